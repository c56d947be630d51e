// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * srt receive ADDRESS PORT LATENCY
 * srt send ADDRESS PORT LATENCY RATE
 *
 * SRT in live mode (docs/API/API-socket-options.md of libsrt): message API, LATENCY in
 * milliseconds at both ends, packets that are too late are dropped. RATE is the source's in
 * bytes a second; SRT adds its overhead of 25 %. A message's source time is the one that
 * the lab gives, so that SRT has all the time until LATENCY after it for repairs.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <srt/srt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* Live mode's largest payload. */
#define LIVE_PACKET	1456

/* A lost handshake is repeated four times a second. */
#define CONNECT_MS	30000

static void must(int result, const char *what)
{
	if (result == SRT_ERROR) {
		fprintf(stderr, "srt: cannot %s: %s\n", what, srt_getlasterror_str());
		exit(1);
	}
}

static void set(SRTSOCKET socket, SRT_SOCKOPT option, const void *value, int size)
{
	must(srt_setsockflag(socket, option, value, size), "set an option");
}

static SRTSOCKET make_socket(int latency)
{
	SRTSOCKET socket = srt_create_socket();
	SRT_TRANSTYPE live = SRTT_LIVE;
	bool on = true;

	must(socket, "make a socket");
	set(socket, SRTO_TRANSTYPE, &live, sizeof(live));
	set(socket, SRTO_RCVLATENCY, &latency, sizeof(latency));
	set(socket, SRTO_PEERLATENCY, &latency, sizeof(latency));
	set(socket, SRTO_TLPKTDROP, &on, sizeof(on));
	return socket;
}

static void receive(const struct sockaddr_in *address, int latency)
{
	static unsigned char message[LIVE_PACKET];
	SRTSOCKET listener = make_socket(latency), socket;

	must(srt_bind(listener, (const struct sockaddr *)address, sizeof(*address)), "bind");
	must(srt_listen(listener, 1), "listen");
	say_ready();
	socket = srt_accept(listener, NULL, NULL);
	must(socket, "accept");
	for (;;) {
		int got = srt_recvmsg(socket, (char *)message, sizeof(message));

		/* The sender has closed. */
		if (got == SRT_ERROR && srt_getlasterror(NULL) == SRT_ECONNLOST)
			return;
		must(got, "receive");
		arrived(message, (uint32_t)got);
	}
}

static void send_all(const struct sockaddr_in *address, int latency, int64_t rate)
{
	static struct message message;
	SRTSOCKET socket = make_socket(latency);
	int64_t by_rate = 0;
	int timeout = CONNECT_MS;

	set(socket, SRTO_CONNTIMEO, &timeout, sizeof(timeout));
	set(socket, SRTO_MAXBW, &by_rate, sizeof(by_rate));
	set(socket, SRTO_INPUTBW, &rate, sizeof(rate));
	must(srt_connect(socket, (const struct sockaddr *)address, sizeof(*address)), "connect");
	say_ready();
	while (next_message(&message)) {
		SRT_MSGCTRL control = srt_msgctrl_default;
		int64_t age = (int64_t)(now_ns() - message.source) / 1000;

		control.srctime = srt_time_now() - age;
		must(srt_sendmsg2(socket, (const char *)message.bytes, (int)message.size, &control),
		     "send");
	}
	srt_close(socket);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	bool sends = argc == 6 && !strcmp(argv[1], "send");

	if ((!sends && (argc != 5 || strcmp(argv[1], "receive"))) ||
	    inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: srt receive ADDRESS PORT LATENCY\n"
			"       srt send ADDRESS PORT LATENCY RATE\n");
		return 2;
	}
	address.sin_port = htons((uint16_t)atoi(argv[3]));
	must(srt_startup(), "start");
	/* Handshakes that get lost are not worth a line each. */
	srt_setloglevel(0);
	if (sends)
		send_all(&address, atoi(argv[4]), atoll(argv[5]));
	else
		receive(&address, atoi(argv[4]));
	srt_cleanup();
	return 0;
}
