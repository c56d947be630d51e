// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * sctp receive ADDRESS PORT
 * sctp send ADDRESS PORT
 *
 * SCTP with partial reliability by usrsctp, over UDP (RFC 6951) from PORT to PORT. What is not
 * delivered when a message's value ends is given up (RFC 3758). Each layer has a stream, the
 * lower ones first, and its messages do not wait for one another.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

#include "peer.h"

#define STREAMS		64
/* More than a source makes while its records have a value. */
#define BUFFER		(4 << 20)
/* As Linux's TCP; the RFC's is a second. */
#define SHORTEST_RTO_MS	200

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "sctp: cannot %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void set(struct socket *socket, int option, const void *value, socklen_t size)
{
	must(usrsctp_setsockopt(socket, IPPROTO_SCTP, option, value, size), "set an option");
}

static struct socket *make_socket(uint16_t port)
{
	struct socket *socket = usrsctp_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	struct sctp_initmsg streams = {
		.sinit_num_ostreams = STREAMS,
		.sinit_max_instreams = STREAMS,
	};
	struct sctp_rtoinfo rto = { .srto_min = SHORTEST_RTO_MS };
	/* Each packet at once, as quinn is told to. */
	struct sctp_sack_info sack = { .sack_delay = 1, .sack_freq = 1 };
	struct sctp_udpencaps over_udp = { .sue_port = htons(port) };
	uint32_t on = 1, whole = MAX_MESSAGE;
	int buffer = BUFFER;

	if (!socket)
		must(-1, "make a socket");
	must(usrsctp_setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)),
	     "make the send buffer larger");
	must(usrsctp_setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)),
	     "make the receive buffer larger");
	over_udp.sue_address.ss_family = AF_INET;
	set(socket, SCTP_INITMSG, &streams, sizeof(streams));
	set(socket, SCTP_RTOINFO, &rto, sizeof(rto));
	set(socket, SCTP_REMOTE_UDP_ENCAPS_PORT, &over_udp, sizeof(over_udp));
	set(socket, SCTP_DELAYED_SACK, &sack, sizeof(sack));
	set(socket, SCTP_NODELAY, &on, sizeof(on));
	set(socket, SCTP_PARTIAL_DELIVERY_POINT, &whole, sizeof(whole));
	return socket;
}

static void receive(struct sockaddr_in *address, uint16_t port)
{
	static unsigned char message[MAX_MESSAGE];
	struct socket *listener = make_socket(port), *socket;

	must(usrsctp_bind(listener, (struct sockaddr *)address, sizeof(*address)), "bind");
	must(usrsctp_listen(listener, 1), "listen");
	say_ready();
	socket = usrsctp_accept(listener, NULL, NULL);
	if (!socket)
		must(-1, "accept");
	for (;;) {
		struct sockaddr_in from;
		struct sctp_rcvinfo info;
		socklen_t from_size = sizeof(from), info_size = sizeof(info);
		unsigned int info_type;
		int flags = 0;
		ssize_t got = usrsctp_recvv(socket, message, sizeof(message),
					    (struct sockaddr *)&from, &from_size, &info,
					    &info_size, &info_type, &flags);

		/* The sender aborts when its time is over. */
		if (got == 0 || (got < 0 && errno == ECONNRESET))
			return;
		must((int)got, "receive");
		if (!(flags & MSG_EOR)) {
			errno = EMSGSIZE;
			must(-1, "receive");
		}
		arrived(message, (uint32_t)got);
	}
}

static void send_message(struct socket *socket, const struct message *message)
{
	uint64_t now = now_ns();
	struct sctp_sendv_spa how = {
		.sendv_flags = SCTP_SEND_SNDINFO_VALID | SCTP_SEND_PRINFO_VALID,
		.sendv_sndinfo = {
			.snd_sid = (uint16_t)(message->layer % STREAMS),
			.snd_flags = SCTP_UNORDERED,
		},
		.sendv_prinfo = {
			.pr_policy = SCTP_PR_SCTP_TTL,
			.pr_value = message->deadline > now + MS ?
				    (uint32_t)((message->deadline - now) / MS) : 1,
		},
	};

	must((int)usrsctp_sendv(socket, message->bytes, message->size, NULL, 0, &how, sizeof(how),
				SCTP_SENDV_SPA, 0), "send");
}

static void send_all(struct sockaddr_in *address, uint16_t port)
{
	static struct message message;
	struct socket *socket = make_socket(port);
	struct linger abort_on_close = { .l_onoff = 1, .l_linger = 0 };
	struct sctp_assoc_value scheduler = { .assoc_value = SCTP_SS_PRIORITY };
	uint16_t layer;

	usrsctp_setsockopt(socket, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
	must(usrsctp_connect(socket, (struct sockaddr *)address, sizeof(*address)), "connect");
	set(socket, SCTP_PLUGGABLE_SS, &scheduler, sizeof(scheduler));
	for (layer = 0; layer < STREAMS; layer++) {
		struct sctp_stream_value priority = { .stream_id = layer, .stream_value = layer };

		set(socket, SCTP_SS_VALUE, &priority, sizeof(priority));
	}
	say_ready();
	while (next_message(&message))
		send_message(socket, &message);
	usrsctp_close(socket);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	bool sends = argc == 4 && !strcmp(argv[1], "send");
	uint16_t port;

	if ((!sends && (argc != 4 || strcmp(argv[1], "receive"))) ||
	    inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: sctp receive ADDRESS PORT\n"
			"       sctp send ADDRESS PORT\n");
		return 2;
	}
	port = (uint16_t)atoi(argv[3]);
	address.sin_port = htons(port);
	usrsctp_init(port, NULL, NULL);
	if (sends)
		send_all(&address, port);
	else
		receive(&address, port);
	while (usrsctp_finish())
		usleep(1000);
	return 0;
}
