// SPDX-License-Identifier: MIT OR Apache-2.0
/* The senders: send() into TCP's buffer, the kernel ring, SCTP with partial reliability. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* It needs what the headers above declare. */
#include <linux/sctp.h>

#include "layers.h"
#include "ldc.h"

/* Records of the ring: eight of the source's windows, as long as TCP may be silent. */
#define RING_PACKETS	64
/* Between two looks at an empty ring: the stream makes one system call, at its beginning. */
#define WATCH_MS	10

/* Sleeps until a record is due, and notes how late the source is. */
static void pace(struct run *run, uint64_t seq)
{
	uint64_t at = run->start + due(seq), now;

	sleep_until(at);
	now = now_ns();
	if (now > at && now - at > run->late)
		run->late = now - at;
}

/* Waits for room in the socket's buffer. False: the time is over. */
static bool wait_for_room(const struct run *run)
{
	struct pollfd fd = { .fd = run->fd, .events = POLLOUT };
	uint64_t now = now_ns();

	if (now >= run->stop)
		return false;
	poll(&fd, 1, (int)((run->stop - now) / MS + 1));
	return now_ns() < run->stop;
}

int send_tcp(struct run *run)
{
	static unsigned char record[LAYER_BYTES];
	uint64_t seq;

	for (seq = 0; seq < records_of(run); seq++) {
		uint64_t begun;
		size_t at = 0;

		sleep_until(run->start + due(seq));
		make_record(seq, run->start + due(seq), record);
		begun = now_ns();
		while (at < LAYER_BYTES) {
			ssize_t sent = send(run->fd, record + at, LAYER_BYTES - at,
					    MSG_DONTWAIT | MSG_NOSIGNAL);

			run->syscalls++;
			if (sent < 0 && errno != EAGAIN)
				return -1;
			if (sent < 0) {
				if (!wait_for_room(run))
					return 0;
				continue;
			}
			if (!at)
				run->sent[seq].committed = begun - run->start;
			at += (size_t)sent;
			run->sent_bytes += (size_t)sent;
		}
		run->sent[seq].fate = "sent";
	}
	return 0;
}

/*
 * One message a record, a stream a layer, so that no layer waits for another's
 * retransmission. By time: what is not delivered a window after its own began is given up
 * (RFC 3758). By priority: a full buffer gives up the higher layers (RFC 7496).
 */
static ssize_t send_message(const struct run *run, uint64_t seq, void *record, bool by_priority)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct sctp_sndinfo)) +
			   CMSG_SPACE(sizeof(struct sctp_prinfo))];
	} control = { .bytes = { 0 } };
	struct iovec data = { .iov_base = record, .iov_len = LAYER_BYTES };
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	struct sctp_sndinfo info = { .snd_sid = (uint16_t)(seq % LAYERS) };
	uint64_t end = run->start + deadline(seq), now = now_ns();
	struct sctp_prinfo policy = {
		.pr_policy = by_priority ? SCTP_PR_SCTP_PRIO : SCTP_PR_SCTP_TTL,
		.pr_value = by_priority ? (uint32_t)(seq % LAYERS + 1) :
			    end > now + MS ? (uint32_t)((end - now) / MS) : 1,
	};

	part->cmsg_level = IPPROTO_SCTP;
	part->cmsg_type = SCTP_SNDINFO;
	part->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(part), &info, sizeof(info));
	part = CMSG_NXTHDR(&message, part);
	part->cmsg_level = IPPROTO_SCTP;
	part->cmsg_type = SCTP_PRINFO;
	part->cmsg_len = CMSG_LEN(sizeof(policy));
	memcpy(CMSG_DATA(part), &policy, sizeof(policy));
	return sendmsg(run->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int send_sctp(struct run *run, bool by_priority)
{
	static unsigned char record[LAYER_BYTES];
	uint64_t seq;

	for (seq = 0; seq < records_of(run); seq++) {
		pace(run, seq);
		make_record(seq, run->start + due(seq), record);
		for (;;) {
			ssize_t sent = send_message(run, seq, record, by_priority);

			run->syscalls++;
			if (sent == LAYER_BYTES) {
				run->sent[seq].committed = now_ns() - run->start;
				run->sent[seq].fate = "sent";
				run->sent_bytes += LAYER_BYTES;
				break;
			}
			if (sent >= 0 || errno != EAGAIN)
				return -1;
			/* What its buffer has no room for before its value ends is not sent. */
			if (now_ns() >= run->start + deadline(seq) || !wait_for_room(run)) {
				run->sent[seq].fate = "dropped: no-room";
				break;
			}
		}
	}
	sleep_until(run->stop);
	return 0;
}

static void note_fates(struct run *run, struct ldc *ldc)
{
	struct ldc_fate fate;

	while (ldc_next_fate(ldc, &fate)) {
		struct sent *sent = &run->sent[fate.user_seq];

		if (fate.committed_at)
			sent->committed = fate.committed_at - run->start;
		if (fate.outcome != LDC_WAS_DROPPED)
			sent->fate = "sent";
		else if (fate.reason == LDC_REASON_EXPIRED)
			sent->fate = "dropped: expired";
		else if (fate.reason == LDC_REASON_APPLICATION)
			sent->fate = "dropped: application";
		else if (fate.reason != LDC_REASON_CLOSED)
			sent->fate = "dropped: other";
	}
}

/* What is left of a window, from the highest layer down (thesis, section 5.1.2). */
static void drop_window(struct ldc *ldc, uint64_t window)
{
	int layer;

	for (layer = LAYERS - 1; layer >= 0; layer--)
		ldc_drop(ldc, window * LAYERS + (uint64_t)layer);
}

static void print_stats(const struct ldc *ldc, struct run *run, FILE *out)
{
	struct ldc_stats stats;

	if (ldc_get_stats(ldc, &stats))
		return;
	run->sent_bytes = stats.bytes;
	run->syscalls = stats.notifies;
	fprintf(out, "\"ring\": {\"pulls\": %llu, \"taken\": %llu, \"expired\": %llu, \"notifies\": %llu, "
		"\"sleeps\": %llu, \"horizon_max\": %llu, \"bytes_zerocopy\": %llu, \"bad\": %llu}, ",
		(unsigned long long)stats.pulls, (unsigned long long)stats.records_taken,
		(unsigned long long)stats.dropped_expired, (unsigned long long)stats.notifies,
		(unsigned long long)stats.sleeps, (unsigned long long)stats.horizon_max,
		(unsigned long long)stats.bytes_zerocopy,
		(unsigned long long)(stats.bad_indexes + stats.bad_states + stats.bad_descriptors));
}

int send_ring(struct run *run, const struct ring_scheme *scheme, FILE *out)
{
	static unsigned char data[LAYER_BYTES];
	struct ldc_options options = {
		.packets = RING_PACKETS,
		.packet_bytes = LAYER_BYTES,
		.no_horizon = scheme->no_horizon,
		.zerocopy = scheme->zerocopy,
		.watch_ms = WATCH_MS,
	};
	struct ldc *ldc = ldc_open(run->fd, &options);
	uint64_t seq;

	if (!ldc)
		return -1;
	for (seq = 0; seq < records_of(run); seq++) {
		struct ldc_record record = LDC_RECORD(seq);

		pace(run, seq);
		if (!scheme->kernel_drops && seq % LAYERS == 0 && seq)
			drop_window(ldc, seq / LAYERS - 1);
		record.generated = run->start + due(seq);
		record.layer = (uint8_t)(seq % LAYERS);
		record.group = (uint32_t)(seq / LAYERS);
		if (scheme->kernel_drops)
			record.deadline = run->start + deadline(seq);
		if (scheme->keeps_base && !record.layer)
			record.deadline += SECOND;
		make_record(seq, record.generated, data);
		note_fates(run, ldc);
		if (ldc_send_record(ldc, &record, data, LAYER_BYTES, 1) >= 0)
			continue;
		if (errno != EAGAIN)
			return -1;
		run->sent[seq].fate = "dropped: no-room";
	}
	sleep_until(run->start + run->seconds * SECOND);
	if (!scheme->kernel_drops)
		drop_window(ldc, run->seconds - 1);
	sleep_until(run->stop);
	note_fates(run, ldc);
	print_stats(ldc, run, out);
	ldc_close(ldc);
	return 0;
}
