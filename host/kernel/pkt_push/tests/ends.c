// SPDX-License-Identifier: GPL-2.0-only
/* How a socket, its ring and its programs end. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "pair.h"

static struct pair pair;
static uint8_t got[65536];

static void send_many(uint32_t from, uint32_t to)
{
	while (from < to)
		pair_send(&pair, from++, 200);
}

/* What was pushed is there after close(), until the handle is closed. */
static void close_while_mapped(void)
{
	uint32_t i;

	pair_push(&pair, AF_INET, 0, NULL);
	send_many(0, 10);
	CHECK_EQ(pair_push_now(&pair, 10), 10);
	send_many(10, 12);
	close(pair.receiver);
	CHECK_ERR(push_now(pair.push), ENOTCONN);
	for (i = 0; i < 10; i++)
		check_datagram(got, push_recv(pair.push, got, sizeof(got), 0), i, 200);
	CHECK_ERR(push_recv(pair.push, got, sizeof(got), 0), EBADF);
	push_close(pair.push);
}

/* The socket goes on without the handle, and gives what is in the ring. */
static void handle_goes_first(void)
{
	uint32_t i;

	pair_push(&pair, AF_INET6, 0, NULL);
	send_many(0, 10);
	CHECK_EQ(pair_push_now(&pair, 10), 10);
	push_close(pair.push);
	send_many(10, 20);
	for (i = 0; i < 20; i++)
		check_datagram(got, recv(pair.receiver, got, sizeof(got), 0), i, 200);
	CHECK_ERR(push_open(pair.receiver, NULL) ? 0 : -1, EBUSY);
	close(pair.receiver);
}

#define SHARED	2000

/* Two processes with the same handle: each datagram once, each in order. */
static void fork_shares(void)
{
	struct push_options options = { .bytes = 1 << 20 };
	uint8_t *seen = mmap(NULL, SHARED * 10, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t count = times(SHARED), number, taken = 0;
	struct timeval timeout = { 0, 300000 };
	long last = -1;
	ssize_t size;
	pid_t child;
	int status;

	pair_push(&pair, AF_INET, 1 << 20, &options);
	CHECK(!setsockopt(pair.receiver, SOL_SOCKET, SO_RCVTIMEO, &timeout,
			  sizeof(timeout)));
	child = fork();
	CHECK(child >= 0);
	for (number = 0; child && number < count; ) {
		send_many(number, number + 50);
		number += 50;
		CHECK(push_now(pair.push) >= 0);
		/* Some for the other one. */
		while (push_waiting(pair.push) > 4000 && taken++ % 40) {
			size = push_recv(pair.push, got, sizeof(got), MSG_DONTWAIT);
			if (size >= 0)
				CHECK(!__atomic_exchange_n(
					&seen[datagram_number(got, size)], 1,
					__ATOMIC_RELAXED));
		}
		WAIT_FOR(push_waiting(pair.push) < 1 << 19);
	}
	/* Until nothing has come for a while. */
	for (;;) {
		size = push_recv(pair.push, got, sizeof(got), 0);
		if (size < 0)
			break;
		number = datagram_number(got, size);
		if (!child)
			CHECK((long)number > last);
		last = number;
		CHECK(!__atomic_exchange_n(&seen[number], 1, __ATOMIC_RELAXED));
	}
	CHECK(errno == EAGAIN);
	if (!child)
		_exit(0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	for (number = 0; number < count; number++)
		if (!seen[number])
			FAIL("nobody has had %u", number);
	CHECK_EQ(pair_drops(&pair), 0);
}

static void *read_on(void *arg)
{
	uint8_t data[2000];

	for (;;) {
		if (arg)
			push_recv(pair.push, data, sizeof(data), 0);
		else
			recv(pair.receiver, data, sizeof(data), 0);
	}
	return NULL;
}

/* A program that reads and is flooded, killed at some point. */
static void victim(unsigned int turn)
{
	struct push_options options = { .bytes = 1 << 16, .at_once = turn & 1,
					.oldest = turn >> 1 & 1 };
	pthread_t threads[2];
	uint32_t number;

	pair_push(&pair, turn & 4 ? AF_INET6 : AF_INET, 1 << 16, &options);
	start_thread(&threads[0], read_on, NULL);
	start_thread(&threads[1], read_on, (void *)1);
	for (number = 0;; number++) {
		pair_send(&pair, number, 4 + number % 1400);
		if (number % 100 == 0)
			push_now(pair.push);
	}
}

static void killed(void)
{
	uint64_t state = 7;
	unsigned int turn;
	pid_t child;

	for (turn = 0; turn < times(24); turn++) {
		child = fork();
		CHECK(child >= 0);
		if (!child)
			victim(turn);
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		usleep((useconds_t)(5000 + state % 40000));
		CHECK(!kill(child, SIGKILL));
		CHECK_EQ(waitpid(child, NULL, 0), child);
	}
}

static volatile bool stop;

static void *flood(void *arg)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof(to);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memcpy(&to, arg, sizeof(to));
	len = sizeof(struct sockaddr_in);
	memset(got, 1, 1000);
	while (!stop)
		sendto(fd, got, 1000, 0, (struct sockaddr *)&to, len);
	return NULL;
}

/* Sockets that are closed while datagrams come, on another processor. */
static void closed_under_fire(void)
{
	struct push_options options = { .bytes = 1 << 15, .at_once = 1 };
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	struct push *push;
	unsigned int turn;
	pthread_t thread;
	int on = 1, fd;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	pair_open(&pair, AF_INET, false, 0);
	CHECK(!getsockname(pair.receiver, (struct sockaddr *)&name, &len));
	close(pair.receiver);
	start_thread(&thread, flood, &name);
	for (turn = 0; turn < times(50); turn++) {
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
		CHECK(!bind(fd, (struct sockaddr *)&name, len));
		push = push_open(fd, &options);
		CHECK(push);
		if (turn % 3)
			sleep_ms(1);
		if (turn % 2) {
			close(fd);
			push_close(push);
		} else {
			push_close(push);
			close(fd);
		}
	}
	stop = true;
	CHECK(!pthread_join(thread, NULL));
}

/* A thousand at once: each has its own memory, and all of it goes. */
static void many_sockets(void)
{
	unsigned int count = long_form() ? 1000 : 200, i;
	struct push_options options = { .bytes = 8192 };
	static struct pair pairs[1000];

	for (i = 0; i < count; i++) {
		pair_push(&pairs[i], AF_INET, 0, &options);
		pair_send(&pairs[i], i, 100);
		CHECK_EQ(pair_push_now(&pairs[i], 1), 1);
	}
	for (i = 0; i < count; i++)
		check_datagram(got, push_recv(pairs[i].push, got, sizeof(got), 0), i,
			       100);
}

static const struct test tests[] = {
	{ "close while mapped", close_while_mapped, 0 },
	{ "the handle goes first", handle_goes_first, 0 },
	{ "fork", fork_shares, 60 },
	{ "killed", killed, 60 },
	{ "closed under fire", closed_under_fire, 60 },
	{ "many sockets", many_sockets, 60 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
