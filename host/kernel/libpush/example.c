// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * example PORT: counts the datagrams that come to a port, and how many of them a busy program
 * would have lost. Ends when nothing has come for a second.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "push.h"

int main(int argc, char **argv)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	struct timeval second = { .tv_sec = 1 };
	struct pkt_push_stats stats;
	unsigned long count = 0;
	static char buffer[65536];
	struct push *push;
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: %s PORT\n", argv[0]);
		return 2;
	}
	name.sin_port = htons((uint16_t)atoi(argv[1]));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof(name)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second))) {
		perror("a UDP socket");
		return 1;
	}
	push = push_open(fd, NULL);
	if (!push) {
		fprintf(stderr, "push_open: %s; `modprobe pkt_push` loads the module\n", strerror(errno));
		return 1;
	}
	while (push_recv(push, buffer, sizeof(buffer), 0) >= 0)
		count++;
	if (push_get_stats(push, &stats))
		return 1;
	printf("%lu datagrams, %llu of them moved before the buffer overflowed\n", count,
	       (unsigned long long)stats.datagrams);
	push_close(push);
	return 0;
}
