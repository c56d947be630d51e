// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * costs sink PORT
 * costs calls ADDRESS PORT
 * costs bulk SCHEME CONGESTION ADDRESS PORT SECONDS RECORD_BYTES
 *
 * What the ring costs beside send(), as one JSON object on standard output. SCHEME: send,
 * ring-filled (the whole ring, then one notification), ring-each (a notification each),
 * and either with -zc for zero copy or -h0 for no horizon behind it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "layers.h"
#include "ldc.h"

/* About the size of the thesis's packets, and of a full segment. */
#define CALL_BYTES	1400
#define CALLS		1000
#define RING_BYTES	(4 << 20)

static unsigned char data[1 << 20];

static int connect_to(const char *address, const char *port, const char *congestion)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return -1;
	if (congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
				     (socklen_t)strlen(congestion)))
		return -1;
	return connect(fd, (struct sockaddr *)&to, sizeof(to)) ? -1 : fd;
}

/* Reads and forgets, one connection after the other; reads nothing while it is told to wait. */
static int sink(const char *port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 8))
		return 1;
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		while (fd >= 0 && read(fd, data, 1 << 16) > 0)
			;
		close(fd);
	}
}

static uint64_t send_calls(int fd)
{
	uint64_t begin = now_ns();
	int call;

	for (call = 0; call < CALLS; call++) {
		if (send(fd, data, CALL_BYTES, MSG_NOSIGNAL) != CALL_BYTES)
			exit(1);
	}
	return now_ns() - begin;
}

static uint64_t ring_calls(int fd, int notify)
{
	struct ldc_options options = { .packets = 1024, .packet_bytes = CALL_BYTES };
	struct ldc *ldc = ldc_open(fd, &options);
	uint64_t begin, took;
	int call;

	if (!ldc)
		exit(1);
	/* The first lap touches the pages. */
	for (call = 0; call < 1024; call++)
		ldc_send(ldc, 0, data, CALL_BYTES, 0);
	ldc_notify(ldc);
	while (ldc_room(ldc) < 1024)
		ldc_wait(ldc, CALL_BYTES, 10);
	begin = now_ns();
	for (call = 0; call < CALLS; call++) {
		if (ldc_send(ldc, (uint64_t)call, data, CALL_BYTES, notify) != CALL_BYTES)
			exit(1);
	}
	took = now_ns() - begin;
	ldc_notify(ldc);
	ldc_close(ldc);
	return took;
}

/* One after the other over the same path, so that what the receiver does is in none. */
static int calls(const char *address, const char *port)
{
	struct timespec moment = { .tv_nsec = 500000000 };
	int large = 8 << 20, plain, queued, ring, each;
	uint64_t took;

	plain = connect_to(address, port, NULL);
	queued = connect_to(address, port, NULL);
	ring = connect_to(address, port, NULL);
	each = connect_to(address, port, NULL);
	if (plain < 0 || queued < 0 || ring < 0 || each < 0)
		return 1;
	setsockopt(queued, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof(large));
	took = send_calls(plain);
	printf("{\"calls\": %d, \"bytes\": %d, \"send_ns\": %.1f, ", CALLS, CALL_BYTES,
	       (double)took / CALLS);
	/* The sink is busy with the first connection: this one's window closes, then send() only queues. */
	while (send(queued, data, 1 << 16, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
		int unsent = 0;

		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		if (!ioctl(queued, SIOCOUTQNSD, &unsent) && unsent > (1 << 17))
			break;
	}
	took = send_calls(queued);
	printf("\"send_queued_ns\": %.1f, ", (double)took / CALLS);
	close(plain);
	close(queued);
	nanosleep(&moment, NULL);
	took = ring_calls(ring, 0);
	printf("\"ldc_send_ns\": %.1f, ", (double)took / CALLS);
	close(ring);
	nanosleep(&moment, NULL);
	took = ring_calls(each, 1);
	printf("\"ldc_send_notify_ns\": %.1f}\n", (double)took / CALLS);
	return 0;
}

static uint64_t cpu_busy(void)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *stat = fopen("/proc/stat", "r");
	int got = stat ? fscanf(stat, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
				&system, &idle, &iowait, &irq, &softirq) : 0;

	if (stat)
		fclose(stat);
	return got == 7 ? user + nice + system + irq + softirq : 0;
}

static uint64_t acked(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	return info.tcpi_bytes_acked;
}

static uint64_t bulk_send(int fd, uint64_t stop, size_t record)
{
	uint64_t calls = 0;

	while (now_ns() < stop) {
		struct pollfd wait = { .fd = fd, .events = POLLOUT };
		ssize_t sent = send(fd, data, record, MSG_DONTWAIT | MSG_NOSIGNAL);

		calls++;
		if (sent < 0 && errno == EAGAIN) {
			poll(&wait, 1, 100);
			calls++;
		} else if (sent < 0) {
			break;
		}
	}
	return calls;
}

static uint64_t bulk_ring(int fd, uint64_t stop, size_t record, const char *scheme)
{
	struct ldc_options options = {
		.packets = (unsigned int)(RING_BYTES / record),
		.packet_bytes = (unsigned int)record,
		.zerocopy = strstr(scheme, "-zc") != NULL,
		.no_horizon = strstr(scheme, "-h0") != NULL,
	};
	int each = !strncmp(scheme, "ring-each", 9);
	struct ldc *ldc = ldc_open(fd, &options);
	struct ldc_stats stats = { 0 };
	uint64_t calls = 0;

	if (!ldc)
		exit(1);
	while (now_ns() < stop) {
		if (ldc_send(ldc, 0, data, record, each) >= 0)
			continue;
		if (errno != EAGAIN)
			break;
		ldc_notify(ldc);
		/* Half a ring at a time: a wake-up for each record would be a system call for each. */
		ldc_wait(ldc, RING_BYTES / 2, 100);
		calls++;
	}
	ldc_get_stats(ldc, &stats);
	printf("\"pulls\": %llu, \"notifies\": %llu, \"zerocopy_bytes\": %llu, ",
	       (unsigned long long)stats.pulls, (unsigned long long)stats.notifies,
	       (unsigned long long)stats.bytes_zerocopy);
	ldc_close(ldc);
	return calls + stats.notifies;
}

static int bulk(char **argv)
{
	const char *scheme = argv[0];
	unsigned int seconds = (unsigned int)atoi(argv[4]);
	size_t record = (size_t)atoi(argv[5]);
	int fd = connect_to(argv[2], argv[3], argv[1]);
	struct linger abort_on_close = { .l_onoff = 1, .l_linger = 0 };
	struct rusage before, after;
	uint64_t begin, end, busy, calls, bytes;

	if (fd < 0 || record > sizeof(data)) {
		perror("cannot connect");
		return 1;
	}
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
	printf("{\"scheme\": \"%s\", \"congestion\": \"%s\", \"record\": %zu, ", scheme, argv[1],
	       record);
	getrusage(RUSAGE_SELF, &before);
	busy = cpu_busy();
	begin = now_ns();
	if (!strcmp(scheme, "send"))
		calls = bulk_send(fd, begin + seconds * SECOND, record);
	else
		calls = bulk_ring(fd, begin + seconds * SECOND, record, scheme);
	end = now_ns();
	bytes = acked(fd);
	busy = cpu_busy() - busy;
	getrusage(RUSAGE_SELF, &after);
	printf("\"bytes\": %llu, \"seconds\": %.3f, \"mbit\": %.2f, \"calls\": %llu, \"busy_s_per_gb\": %.2f, "
	       "\"sender_user_s\": %.3f, \"sender_sys_s\": %.3f}\n", (unsigned long long)bytes,
	       (double)(end - begin) / 1e9, (double)bytes * 8e3 / (double)(end - begin),
	       (unsigned long long)calls, (double)busy * 1e7 / (double)bytes,
	       (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
	       (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6,
	       (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
	       (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "sink"))
		return sink(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "calls"))
		return calls(argv[2], argv[3]);
	if (argc == 8 && !strcmp(argv[1], "bulk"))
		return bulk(argv + 2);
	fprintf(stderr, "usage: costs sink PORT\n       costs calls ADDRESS PORT\n"
		"       costs bulk SCHEME CONGESTION ADDRESS PORT SECONDS RECORD_BYTES\n");
	return 2;
}
