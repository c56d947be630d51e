// SPDX-License-Identifier: MIT OR Apache-2.0
/* The receiver: checks every byte and notes when each record was whole. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* It needs what the headers above declare. */
#include <linux/sctp.h>

#include "layers.h"

/* SYNs that are lost are repeated after 1, 3, 7, 15 and 31 seconds. */
#define ACCEPT_MS	32000

/* A message that was begun and is given up is told, and forgotten. */
static int ask_for_aborts(int fd)
{
	struct sctp_event event = {
		.se_assoc_id = SCTP_FUTURE_ASSOC,
		.se_type = SCTP_PARTIAL_DELIVERY_EVENT,
		.se_on = 1,
	};

	return setsockopt(fd, IPPROTO_SCTP, SCTP_EVENT, &event, sizeof(event));
}

struct reader {
	/* Bytes of a record that is not whole yet. */
	unsigned char record[LAYER_BYTES];
	size_t filled;
	/* Known from the first record on. */
	uint64_t start;
	uint64_t *arrived;
	uint64_t records;
	uint64_t bytes;		/* until the source's end */
	uint64_t all_bytes;	/* until the end of the last window's value */
};

static int listen_on(const char *port, bool sctp)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};
	int fd = socket(AF_INET, SOCK_STREAM, sctp ? IPPROTO_SCTP : IPPROTO_TCP);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (sctp && ask_for_aborts(fd)) {
		close(fd);
		return -1;
	}
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Takes bytes of the stream. False: a byte is wrong, or a record came twice. */
static bool take(struct reader *reader, const unsigned char *bytes, size_t size, uint64_t now)
{
	while (size) {
		size_t part = LAYER_BYTES - reader->filled;
		struct header header;

		if (part > size)
			part = size;
		memcpy(reader->record + reader->filled, bytes, part);
		reader->filled += part;
		bytes += part;
		size -= part;
		if (reader->filled < HEADER_BYTES)
			continue;
		if (!read_header(reader->record, &header) || header.seq >= reader->records)
			return false;
		if (!reader->start)
			reader->start = header.submitted - due(header.seq);
		if (reader->filled < LAYER_BYTES)
			continue;
		if (reader->arrived[header.seq] ||
		    !payload_is_right(header.seq, reader->record + HEADER_BYTES,
				      LAYER_BYTES - HEADER_BYTES))
			return false;
		reader->arrived[header.seq] = now - reader->start;
		reader->filled = 0;
	}
	return true;
}

/* Reads until the value of the last window has ended, or the stream. */
static bool read_stream(struct reader *reader, int fd, uint64_t duration)
{
	static unsigned char buffer[1 << 16];

	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		struct iovec data = { .iov_base = buffer, .iov_len = sizeof(buffer) };
		struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
		uint64_t now = now_ns();
		ssize_t got;

		if (reader->start && now >= reader->start + duration + DEADLINE)
			return true;
		if (poll(&wait, 1, 100) <= 0)
			continue;
		got = recvmsg(fd, &message, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		/* The sender aborts when its time is over. */
		if (got <= 0)
			return got == 0 || errno == ECONNRESET;
		if (message.msg_flags & MSG_NOTIFICATION) {
			reader->filled = 0;
			continue;
		}
		now = now_ns();
		if (!take(reader, buffer, (size_t)got, now))
			return false;
		reader->all_bytes += (uint64_t)got;
		if (now <= reader->start + duration)
			reader->bytes += (uint64_t)got;
	}
}

int receive(const char *port, bool sctp, unsigned int seconds, FILE *out)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int listener = listen_on(port, sctp), fd;
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	const char *comma = "";
	uint64_t seq;
	bool right;

	if (!reader || listener < 0) {
		perror("cannot listen");
		return 1;
	}
	reader->records = (uint64_t)seconds * LAYERS;
	reader->arrived = calloc(reader->records, sizeof(*reader->arrived));
	/* A sender that could not connect must not keep everybody waiting. */
	if (poll(&wait, 1, ACCEPT_MS) <= 0) {
		fprintf(stderr, "nobody connects\n");
		return 1;
	}
	fd = accept(listener, NULL, NULL);
	if (!reader->arrived || fd < 0) {
		perror("cannot accept");
		return 1;
	}
	right = read_stream(reader, fd, seconds * SECOND);
	fprintf(out, "{\"right\": %s, \"received_bytes\": %llu, \"received_all_bytes\": %llu, \"arrived\": {",
		right ? "true" : "false", (unsigned long long)reader->bytes,
		(unsigned long long)reader->all_bytes);
	for (seq = 0; seq < reader->records; seq++) {
		if (!reader->arrived[seq])
			continue;
		fprintf(out, "%s\"%llu\": %llu", comma, (unsigned long long)seq,
			(unsigned long long)reader->arrived[seq]);
		comma = ", ";
	}
	fprintf(out, "}}\n");
	return right ? 0 : 1;
}
