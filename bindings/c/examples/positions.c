/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends the newest positions of 50 objects to one client, 60 times a second. Any TCP program can be the client.
 *
 *   cc positions.c -o positions $(pkg-config --cflags --libs freshwire)
 *   ./positions 5000 600 &      (port, ticks)
 *   nc 127.0.0.1 5000
 */
#include <arpa/inet.h>
#include <freshwire.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OBJECTS 50

/* Waits for one client, and says where it listens: port 0 lets the system choose one. */
static int accept_one(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client, reuse = 1;

	address.sin_port = htons(port);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) ||
	    bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &len)) {
		perror("cannot listen");
		exit(1);
	}
	printf("libfreshwire %s listens on 127.0.0.1:%u\n", fw_version(), ntohs(address.sin_port));
	fflush(stdout);
	client = accept(listener, NULL, NULL);
	close(listener);
	return client;
}

static void check(fw_status status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "%s\n", fw_last_error());
	exit(1);
}

int main(int argc, char **argv)
{
	uint16_t port = argc > 1 ? (uint16_t)atoi(argv[1]) : 0;
	int ticks = argc > 2 ? atoi(argv[2]) : 600;
	fw_ring ring = fw_ring_for_clients(1, OBJECTS, 64);
	fw_sink_config config = fw_sink_config_default();
	fw_engine engine;
	fw_sender sender;
	fw_sink sink;
	fw_ended ended;
	int client = accept_one(port);

	config.policy.kind = FW_LATEST;
	config.keys = OBJECTS;
	check(fw_engine_new(&engine));
	check(fw_sender_new(engine, &ring, &sender));
	check(fw_sender_add_sink(sender, client, &config, &sink));
	close(client); /* the sink has its own */
	for (int tick = 0; tick < ticks; tick++) {
		for (uint64_t object = 1; object <= OBJECTS; object++) {
			fw_meta meta = { .key = object };
			char text[64];
			int len = snprintf(text, sizeof text, "object %" PRIu64 ", tick %d\n", object, tick);

			/* The value that is still queued for this object is replaced. */
			check(fw_sink_replace(sink, (const uint8_t *)text, (size_t)len, &meta, NULL));
		}
		nanosleep(&(struct timespec){ .tv_nsec = 16000000 }, NULL);
	}
	check(fw_sink_close(sink, FW_DRAIN, UINT64_C(10000000000), &ended));
	if (ended != FW_ENDED_CLOSED)
		fprintf(stderr, "the client has left: %s\n", fw_last_error());
	check(fw_sink_free(sink));
	check(fw_sender_free(sender));
	check(fw_engine_free(engine));
	return ended != FW_ENDED_CLOSED;
}
