// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The sender of Birkedal 2006: a stream of eight layers of 128 kbit a second, one after the
 * other in each window of one second. When a window is over, what is left of it is
 * dropped, from the highest layer down, so that the base layer always gets through.
 *
 *	example HOST PORT SECONDS
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ldc.h"

#define LAYERS		8
#define LAYER_BYTES	16384
#define RING_PACKETS	64
#define SECOND		1000000000ULL

static int connect_to(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *one;
	int fd = -1;

	if (getaddrinfo(host, port, &hints, &list))
		return -1;
	for (one = list; one && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
		if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	return fd;
}

static void sleep_until(uint64_t instant)
{
	struct timespec at = {
		.tv_sec = (time_t)(instant / SECOND),
		.tv_nsec = (long)(instant % SECOND),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

/* Numbers are window * LAYERS + layer. */
static int drop_window(struct ldc *ldc, uint64_t window)
{
	int layer, dropped = 0;

	for (layer = LAYERS - 1; layer >= 0; layer--)
		dropped += ldc_drop(ldc, window * LAYERS + (uint64_t)layer);
	return dropped;
}

static int stream(struct ldc *ldc, uint64_t windows)
{
	static unsigned char layer_data[LAYER_BYTES];
	uint64_t start = ldc_now(), number;
	int dropped = 0;

	for (number = 0; number < windows * LAYERS; number++) {
		if (number % LAYERS == 0 && number)
			dropped += drop_window(ldc, number / LAYERS - 1);
		memset(layer_data, (int)number, sizeof(layer_data));
		if (ldc_send(ldc, number, layer_data, sizeof(layer_data), 1) < 0)
			return -1;
		sleep_until(start + (number + 1) * SECOND / LAYERS);
	}
	printf("sent %llu layers, dropped %d\n", (unsigned long long)number - (unsigned)dropped,
	       dropped);
	return 0;
}

int main(int argc, char **argv)
{
	struct ldc *ldc;
	int fd, failed;

	if (argc != 4) {
		fprintf(stderr, "usage: %s HOST PORT SECONDS\n", argv[0]);
		return 2;
	}
	fd = connect_to(argv[1], argv[2]);
	if (fd < 0) {
		fprintf(stderr, "cannot connect to %s:%s\n", argv[1], argv[2]);
		return 1;
	}
	ldc = ldc_init(fd, RING_PACKETS, LAYER_BYTES);
	if (!ldc) {
		perror("no ring");
		return 1;
	}
	failed = stream(ldc, strtoull(argv[3], NULL, 10));
	if (failed)
		perror("the stream ended early");
	ldc_close(ldc);
	close(fd);
	return failed ? 1 : 0;
}
