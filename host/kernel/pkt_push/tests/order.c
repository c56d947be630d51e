// SPDX-License-Identifier: GPL-2.0-only
/* A conversation: whoever takes, and however, the order and the content stay. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include "harness.h"
#include "pair.h"

static struct pair pair;
static uint8_t got[65536];

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void check_name(const struct sockaddr_storage *name, socklen_t len)
{
	CHECK_EQ(len, pair.sender_len);
	CHECK(!memcmp(name, &pair.sender_name, len));
}

/* Takes the next datagram in one of the ways that there are. */
static void take(uint64_t way, uint32_t number, size_t size)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	struct iovec piece = { got, sizeof(got) };
	struct mmsghdr many = {
		.msg_hdr = { .msg_name = &name, .msg_namelen = sizeof(name),
			     .msg_iov = &piece, .msg_iovlen = 1 },
	};
	struct pollfd readable = { .fd = pair.receiver, .events = POLLIN };
	int waits;

	memset(&name, 0, sizeof(name));
	memset(got, 0, size < 64 ? 64 : size);
	switch (way % 9) {
	case 0:
		check_datagram(got, recv(pair.receiver, got, sizeof(got), 0),
			       number, size);
		return;
	case 1:
		check_datagram(got, recvfrom(pair.receiver, got, sizeof(got), 0,
					     (struct sockaddr *)&name, &len),
			       number, size);
		break;
	case 2:
		CHECK_EQ(recvmmsg(pair.receiver, &many, 1, 0, NULL), 1);
		check_datagram(got, many.msg_len, number, size);
		len = many.msg_hdr.msg_namelen;
		break;
	case 3:
		check_datagram(got, read(pair.receiver, got, sizeof(got)), number,
			       size);
		return;
	case 4: /* A look, and then from the ring if it is there. */
		check_datagram(got, recv(pair.receiver, got, sizeof(got),
					 MSG_PEEK), number, size);
		check_datagram(got, push_recv(pair.push, got, sizeof(got),
					      MSG_PEEK), number, size);
		check_datagram(got, push_recv(pair.push, got, sizeof(got), 0),
			       number, size);
		return;
	case 5: /* The kernel may deliver later than it says that it has sent. */
		CHECK_EQ(poll(&readable, 1, 10000), 1);
		CHECK(!ioctl(pair.receiver, FIONREAD, &waits));
		CHECK_EQ(waits, size);
		CHECK_EQ(recv(pair.receiver, got, 4, MSG_TRUNC), size);
		CHECK_EQ(datagram_number(got, 4), number);
		return;
	case 6:
		CHECK_EQ(push_recv(pair.push, got, 4, MSG_TRUNC), size);
		CHECK_EQ(datagram_number(got, 4), number);
		return;
	default:
		check_datagram(got, push_recvfrom(pair.push, got, sizeof(got), 0,
						  (struct sockaddr *)&name, &len),
			       number, size);
	}
	check_name(&name, len);
}

static void talk(uint64_t seed, unsigned int rounds, size_t largest)
{
	static size_t sizes[1 << 16];
	struct pkt_push_stats stats;
	uint32_t sent = 0, taken = 0;
	uint64_t state = seed;
	unsigned int i, n;

	while (rounds--) {
		n = 1 + random_word(&state) % 12;
		for (i = 0; i < n; i++, sent++) {
			sizes[sent & 0xffff] =
				4 + random_word(&state) % (largest - 3);
			pair_send(&pair, sent, sizes[sent & 0xffff]);
		}
		if (random_word(&state) % 2)
			CHECK(push_now(pair.push) >= 0);
		n = random_word(&state) % 16;
		while (n-- && taken != sent) {
			take(random_word(&state) >> 20, taken,
			     sizes[taken & 0xffff]);
			taken++;
			if (random_word(&state) % 8 == 0)
				CHECK(push_now(pair.push) >= 0);
		}
		/* Neither side ever overflows: that is another test. */
		while (sent - taken > 20) {
			take(random_word(&state) >> 20, taken,
			     sizes[taken & 0xffff]);
			taken++;
		}
	}
	while (taken != sent) {
		take(taken, taken, sizes[taken & 0xffff]);
		taken++;
	}
	CHECK_ERR(recv(pair.receiver, got, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_ERR(push_recv(pair.push, got, 1, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(pair_queued(&pair), 0);
	CHECK_EQ(pair_drops(&pair), 0);
	pair_stats(&pair, &stats);
	printf("# %u datagrams, %llu pushed in %llu pushes, %llu returned\n", sent,
	       (unsigned long long)stats.datagrams,
	       (unsigned long long)stats.pushes,
	       (unsigned long long)stats.returned);
	CHECK(stats.datagrams && stats.returned);
	CHECK_EQ(stats.bad_heads + stats.unpushable, 0);
}

static void talk_v4(void)
{
	pair_push(&pair, AF_INET, 0, NULL);
	talk(1, times(300), 1472);
}

static void talk_v6(void)
{
	pair_push(&pair, AF_INET6, 0, NULL);
	talk(2, times(300), 1452);
}

static void talk_mapped(void)
{
	struct sockaddr_in from;
	struct sockaddr_in6 *name = (void *)&pair.sender_name;

	pair_open(&pair, AF_INET6, true, 0);
	memcpy(&from, &pair.sender_name, sizeof(from));
	memset(name, 0, sizeof(*name));
	name->sin6_family = AF_INET6;
	name->sin6_port = from.sin_port;
	name->sin6_addr.s6_addr[10] = 0xff;
	name->sin6_addr.s6_addr[11] = 0xff;
	memcpy(&name->sin6_addr.s6_addr[12], &from.sin_addr, 4);
	pair.sender_len = sizeof(*name);
	pair_attach(&pair, NULL);
	talk(3, times(100), 1472);
}

/* Datagrams of several pages, in packets of many pieces; the ring wraps often. */
static void talk_large(void)
{
	struct push_options options = { .bytes = 1 << 21 };

	pair_push(&pair, AF_INET, 4 << 20, &options);
	talk(4, times(30), 65507);
}

/* The ring is smaller than what waits: it fills, and the order stays. */
static void talk_small_ring(void)
{
	struct push_options options = { .bytes = 4096, .records = 5 };

	pair_push(&pair, AF_INET6, 0, &options);
	talk(5, times(300), 900);
}

static void talk_at_once(void)
{
	struct push_options options = { .at_once = 1 };

	pair_push(&pair, AF_INET, 0, &options);
	talk(6, times(200), 1472);
}

static void empty_datagrams(void)
{
	int i;

	pair_push(&pair, AF_INET, 0, NULL);
	for (i = 0; i < 4; i++)
		CHECK_EQ(send(pair.sender, "", 0, 0), 0);
	pair_send(&pair, 1, 4);
	CHECK_EQ(pair_push_now(&pair, 5), 5);
	CHECK_EQ(recv(pair.receiver, got, 9, MSG_PEEK), 0);
	CHECK_EQ(recv(pair.receiver, got, 9, MSG_PEEK), 0);
	CHECK_EQ(recv(pair.receiver, got, 9, 0), 0);
	CHECK_EQ(push_recv(pair.push, got, 9, 0), 0);
	CHECK_EQ(recv(pair.receiver, got, 9, 0), 0);
	CHECK_EQ(push_recv(pair.push, got, 9, MSG_PEEK), 0);
	CHECK_EQ(push_recv(pair.push, got, 9, 0), 0);
	check_datagram(got, push_recv(pair.push, got, 9, 0), 1, 4);
}

static const void *control(struct msghdr *message, int level, int type)
{
	struct cmsghdr *header;

	for (header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header))
		if (header->cmsg_level == level && header->cmsg_type == type)
			return CMSG_DATA(header);
	FAIL("no control message %d of %d", type, level);
}

/* Whether a datagram was pushed cannot be told from its control messages. */
static void control_messages_of(int family, bool pushed)
{
	bool v4 = family == AF_INET;
	char space[512];
	struct iovec piece = { got, sizeof(got) };
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	int on = 1, tos = 0xb9;
	const struct timespec *stamp;

	pair_push(&pair, family, 0, NULL);
	CHECK(!setsockopt(pair.receiver, SOL_SOCKET, SO_TIMESTAMPNS, &on, 4));
	if (v4) {
		CHECK(!setsockopt(pair.receiver, SOL_IP, IP_PKTINFO, &on, 4));
		CHECK(!setsockopt(pair.receiver, SOL_IP, IP_RECVTOS, &on, 4));
		CHECK(!setsockopt(pair.receiver, SOL_IP, IP_RECVTTL, &on, 4));
		CHECK(!setsockopt(pair.sender, SOL_IP, IP_TOS, &tos, 4));
	} else {
		CHECK(!setsockopt(pair.receiver, SOL_IPV6, IPV6_RECVPKTINFO, &on, 4));
		CHECK(!setsockopt(pair.receiver, SOL_IPV6, IPV6_RECVTCLASS, &on, 4));
		CHECK(!setsockopt(pair.receiver, SOL_IPV6, IPV6_RECVHOPLIMIT, &on, 4));
		CHECK(!setsockopt(pair.sender, SOL_IPV6, IPV6_TCLASS, &tos, 4));
	}
	pair_send(&pair, 7, 100);
	if (pushed)
		CHECK_EQ(pair_push_now(&pair, 1), 1);
	CHECK_EQ(recvmsg(pair.receiver, &message, 0), 100);
	CHECK_EQ(message.msg_flags, 0);
	stamp = control(&message, SOL_SOCKET, SO_TIMESTAMPNS);
	CHECK(stamp->tv_sec > 0);
	if (v4) {
		const struct in_pktinfo *info = control(&message, SOL_IP, IP_PKTINFO);

		CHECK_EQ(info->ipi_ifindex, 1);
		CHECK_EQ(ntohl(info->ipi_addr.s_addr), INADDR_LOOPBACK);
		/* The sender may not choose all of ECN's codes. */
		CHECK_EQ(*(const uint8_t *)control(&message, SOL_IP, IP_TOS) & ~3,
			 tos & ~3);
		CHECK_EQ(*(const int *)control(&message, SOL_IP, IP_TTL), 64);
	} else {
		const struct in6_pktinfo *info =
			control(&message, SOL_IPV6, IPV6_PKTINFO);

		CHECK_EQ(info->ipi6_ifindex, 1);
		CHECK(!memcmp(&info->ipi6_addr, &in6addr_loopback, 16));
		CHECK_EQ(*(const int *)control(&message, SOL_IPV6, IPV6_TCLASS) & ~3,
			 tos & ~3);
		CHECK_EQ(*(const int *)control(&message, SOL_IPV6, IPV6_HOPLIMIT), 64);
	}
	pair_close(&pair);
}

static void control_messages(void)
{
	control_messages_of(AF_INET, false);
	control_messages_of(AF_INET, true);
	control_messages_of(AF_INET6, false);
	control_messages_of(AF_INET6, true);
}

static uint64_t next_stamp(void)
{
	struct push_datagram datagram;

	pair_send(&pair, 4, 20);
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	CHECK_EQ(push_look(pair.push, &datagram), 1);
	CHECK_EQ(push_release(pair.push, &datagram), 1);
	return datagram.record.stamp;
}

static void what_a_record_says(void)
{
	struct push_datagram datagram;
	int on = 1, tos = 0x2c;

	pair_push(&pair, AF_INET, 0, NULL);
	CHECK(!setsockopt(pair.receiver, SOL_SOCKET, SO_TIMESTAMPNS, &on, 4));
	CHECK(!setsockopt(pair.sender, SOL_IP, IP_TOS, &tos, 4));
	CHECK_EQ(push_look(pair.push, &datagram), 0);
	pair_send(&pair, 3, 60);
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	CHECK_EQ(push_look(pair.push, &datagram), 1);
	check_datagram(datagram.data, (ssize_t)datagram.len, 3, 60);
	CHECK_EQ(datagram.record.tos, tos);
	CHECK_EQ(datagram.record.family, AF_INET);
	CHECK(datagram.record.pushed_at <= now_ns());
	CHECK(now_ns() - datagram.record.pushed_at < 10000000000ULL);
	CHECK_EQ(datagram.record.segment, 0);
	CHECK_EQ(push_release(pair.push, &datagram), 1);
	CHECK_EQ(push_release(pair.push, &datagram), 0);
	CHECK_EQ(push_look(pair.push, &datagram), 0);
	/* The kernel begins to take stamps a little after it was asked to. */
	WAIT_FOR(next_stamp() > 0);
}

/* Several datagrams in one packet, for those who ask for it. */
static void segments(void)
{
	char space[64];
	struct iovec piece = { got, sizeof(got) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1,
				  .msg_control = space,
				  .msg_controllen = sizeof(space) };
	struct push_datagram datagram;
	int on = 1, size = 500;

	pair_push(&pair, AF_INET, 0, NULL);
	CHECK(!setsockopt(pair.receiver, SOL_UDP, UDP_GRO, &on, 4));
	CHECK(!setsockopt(pair.sender, SOL_UDP, UDP_SEGMENT, &size, 4));
	pair_send(&pair, 9, 1900);
	pair_send(&pair, 10, 1900);
	CHECK_EQ(pair_push_now(&pair, 2), 2);
	CHECK_EQ(push_look(pair.push, &datagram), 1);
	check_datagram(datagram.data, (ssize_t)datagram.len, 9, 1900);
	CHECK_EQ(datagram.record.segment, 500);
	CHECK_EQ(push_release(pair.push, &datagram), 1);
	check_datagram(got, recvmsg(pair.receiver, &message, 0), 10, 1900);
	CHECK_EQ(*(const int *)control(&message, SOL_UDP, UDP_GRO), 500);
}

static void readable_means_ring_too(void)
{
	struct pollfd fd;
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(0);

	pair_push(&pair, AF_INET6, 0, NULL);
	fd = (struct pollfd){ pair.receiver, POLLIN, 0 };
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, pair.receiver, &event));
	CHECK_EQ(poll(&fd, 1, 0), 0);
	pair_send(&pair, 1, 10);
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	CHECK_EQ(pair_queued(&pair), 0);
	CHECK_EQ(poll(&fd, 1, 0), 1);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 1);
	check_datagram(got, push_recv(pair.push, got, 100, 0), 1, 10);
	CHECK_EQ(poll(&fd, 1, 0), 0);
	CHECK_EQ(epoll_wait(epoll, &event, 1, 0), 0);
}

static volatile int asleep;

static void *sleeper(void *arg)
{
	ssize_t size;

	(void)arg;
	asleep = 1;
	size = recv(pair.receiver, got, sizeof(got), 0);
	check_datagram(got, size, 5, 77);
	return NULL;
}

/* With a threshold of 0 what comes is never in the buffer when it awakes. */
static void sleepers_awake(void)
{
	struct push_options options = { .at_once = 1 };
	struct timeval timeout = { 0, 60000 };
	pthread_t thread;
	uint64_t start;
	unsigned int i;

	pair_push(&pair, AF_INET, 0, &options);
	for (i = 0; i < times(20); i++) {
		asleep = 0;
		start_thread(&thread, sleeper, NULL);
		WAIT_FOR(asleep);
		if (i % 2)
			sleep_ms(2);
		pair_send(&pair, 5, 77);
		CHECK(!pthread_join(thread, NULL));
	}
	CHECK(!setsockopt(pair.receiver, SOL_SOCKET, SO_RCVTIMEO, &timeout,
			  sizeof(timeout)));
	start = now_ns();
	CHECK_ERR(recv(pair.receiver, got, 10, 0), EAGAIN);
	CHECK(now_ns() - start >= 50000000);
	start = now_ns();
	CHECK_ERR(push_recv(pair.push, got, 10, 0), EAGAIN);
	CHECK(now_ns() - start >= 50000000);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void signals_interrupt(void)
{
	struct sigaction action = { .sa_handler = on_alarm };

	pair_push(&pair, AF_INET, 0, NULL);
	CHECK(!sigaction(SIGALRM, &action, NULL));
	ualarm(30000, 30000);
	CHECK_ERR(recv(pair.receiver, got, 10, 0), EINTR);
	CHECK_ERR(push_recv(pair.push, got, 10, 0), EINTR);
}

static void shut_down(void)
{
	pair_push(&pair, AF_INET, 0, NULL);
	CHECK(!connect(pair.receiver, (struct sockaddr *)&pair.sender_name,
		       pair.sender_len));
	pair_send(&pair, 4, 20);
	pair_send(&pair, 5, 20);
	CHECK_EQ(pair_push_now(&pair, 2), 2);
	CHECK(!shutdown(pair.receiver, SHUT_RD));
	check_datagram(got, recv(pair.receiver, got, 100, 0), 4, 20);
	check_datagram(got, recv(pair.receiver, got, 100, 0), 5, 20);
	CHECK_EQ(recv(pair.receiver, got, 100, 0), 0);
}

/* An error of the socket is told to the program, not eaten by a push. */
static void errors_stay(void)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET };
	int closed = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(nobody);

	nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!bind(closed, (struct sockaddr *)&nobody, len));
	CHECK(!getsockname(closed, (struct sockaddr *)&nobody, &len));
	close(closed);
	pair_push(&pair, AF_INET, 0, NULL);
	pair_send(&pair, 1, 30);
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	pair_send(&pair, 2, 30);
	CHECK(!connect(pair.receiver, (struct sockaddr *)&nobody, len));
	CHECK_EQ(send(pair.receiver, "x", 1, 0), 1);
	/* The answer is there when send() returns: it is loopback. */
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	CHECK_ERR(recv(pair.receiver, got, 100, 0), ECONNREFUSED);
	check_datagram(got, recv(pair.receiver, got, 100, 0), 1, 30);
	check_datagram(got, recv(pair.receiver, got, 100, 0), 2, 30);
}

/* What recv() would drop for its checksum is dropped by a push. */
static void bad_checksums(void)
{
	struct sockaddr_in to;
	struct udphdr header = { 0 };
	socklen_t len = sizeof(to);
	struct pkt_push_stats stats;
	uint8_t packet[1008];
	int raw;

	pair_push(&pair, AF_INET, 0, NULL);
	raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
	if (raw < 0)
		skip("no raw sockets: %m");
	CHECK(!getsockname(pair.receiver, (struct sockaddr *)&to, &len));
	header.source = htons(9);
	header.dest = to.sin_port;
	header.len = htons(sizeof(packet));
	header.check = 0x1234;
	memset(packet, 0x55, sizeof(packet));
	memcpy(packet, &header, sizeof(header));
	to.sin_port = 0;
	pair_send(&pair, 1, 50);
	CHECK_EQ(sendto(raw, packet, sizeof(packet), 0, (struct sockaddr *)&to,
			sizeof(to)), sizeof(packet));
	pair_send(&pair, 2, 50);
	CHECK(push_now(pair.push) >= 2);
	pair_stats(&pair, &stats);
	CHECK_EQ(stats.datagrams, 2);
	CHECK_EQ(stats.bad_checksums, 1);
	CHECK_EQ(pair_drops(&pair), 1);
	check_datagram(got, push_recv(pair.push, got, 100, 0), 1, 50);
	check_datagram(got, recv(pair.receiver, got, 100, 0), 2, 50);
}

#define SHARED	4000

static volatile uint8_t seen[SHARED * 10];
static volatile bool done;

static void *sharer(void *arg)
{
	uint8_t data[2000];
	long last = -1;
	ssize_t size;
	uint32_t number;

	while (!done) {
		size = arg ? push_recv(pair.push, data, sizeof(data), MSG_DONTWAIT) :
			     recv(pair.receiver, data, sizeof(data), MSG_DONTWAIT);
		if (size < 0) {
			CHECK(errno == EAGAIN);
			sleep_ms(0);
			continue;
		}
		number = datagram_number(data, size);
		/* Nobody is given something older than what it had. */
		if ((long)number <= last)
			FAIL("%u after %ld", number, last);
		last = number;
		CHECK(!__atomic_exchange_n(&seen[number], 1, __ATOMIC_RELAXED));
	}
	return NULL;
}

static bool all_seen(uint32_t count)
{
	while (count--)
		if (!seen[count])
			return false;
	return true;
}

/* Two who use the memory and two who call recv(): each datagram once, in order. */
static void many_readers(void)
{
	uint32_t count = times(SHARED), i;
	pthread_t threads[4];
	struct push_options options = { .bytes = 1 << 16 };

	pair_push(&pair, AF_INET, 1 << 20, &options);
	for (i = 0; i < 4; i++)
		start_thread(&threads[i], sharer, (void *)(uintptr_t)(i % 2));
	for (i = 0; i < count; i++) {
		pair_send(&pair, i, 4 + i * 37 % 1400);
		if (i % 5 == 0)
			push_now(pair.push);
		/* Not more than fits, however slow the readers are. */
		if (i % 100 == 99)
			WAIT_FOR(all_seen(i));
	}
	WAIT_FOR(all_seen(count));
	done = true;
	for (i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK_EQ(pair_drops(&pair), 0);
}

static void oldest_goes(void)
{
	struct push_options options = { .bytes = 4096, .records = 4, .oldest = 1 };
	struct pkt_push_stats stats;
	uint32_t i;

	pair_push(&pair, AF_INET, 0, &options);
	for (i = 0; i < 20; i++) {
		pair_send(&pair, i, 100);
		CHECK_EQ(pair_push_now(&pair, 1), 1);
	}
	for (i = 16; i < 20; i++)
		check_datagram(got, i % 2 ? push_recv(pair.push, got, 200, 0) :
			       recv(pair.receiver, got, 200, 0), i, 100);
	CHECK_ERR(push_recv(pair.push, got, 200, MSG_DONTWAIT), EAGAIN);
	pair_stats(&pair, &stats);
	CHECK_EQ(stats.evicted, 16);
}

static void stale_is_not_read(void)
{
	struct push_options options = { .max_age_ms = 50 };

	pair_push(&pair, AF_INET, 0, &options);
	pair_send(&pair, 1, 10);
	pair_send(&pair, 2, 10);
	CHECK_EQ(pair_push_now(&pair, 2), 2);
	sleep_ms(80);
	pair_send(&pair, 3, 10);
	CHECK_EQ(pair_push_now(&pair, 1), 1);
	check_datagram(got, push_recv(pair.push, got, 100, 0), 3, 10);
	CHECK_EQ(push_expired(pair.push), 2);
}

/* Takes ten, and is killed at the first system call but read(), write() and its end. */
static void take_without_calls(bool from_memory)
{
	uint32_t i;

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		_exit(1);
	for (i = 0; i < 10; i++)
		check_datagram(got, from_memory ? push_recv(pair.push, got, sizeof(got), 0) :
			       recv(pair.receiver, got, sizeof(got), 0), i, 1400);
	/* exit_group() is not allowed either. */
	syscall(SYS_exit, 0);
}

static int end_of_taker(bool from_memory)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (!child)
		take_without_calls(from_memory);
	CHECK_EQ(waitpid(child, &status, 0), child);
	return status;
}

static void taking_makes_no_call(void)
{
	uint32_t i;

	if (prctl(PR_GET_SECCOMP) < 0)
		skip("this kernel has no seccomp");
	pair_push(&pair, AF_INET, 0, NULL);
	for (i = 0; i < 20; i++)
		pair_send(&pair, i, 1400);
	CHECK_EQ(pair_push_now(&pair, 20), 20);
	/* recv() makes one, which the kernel sees. */
	CHECK(WIFSIGNALED(end_of_taker(false)));
	CHECK_EQ(end_of_taker(true), 0);
}

static const struct test tests[] = {
	{ "a conversation, IPv4", talk_v4, 0 },
	{ "a conversation, IPv6", talk_v6, 0 },
	{ "a conversation, IPv4 on an IPv6 socket", talk_mapped, 0 },
	{ "a conversation with large datagrams", talk_large, 60 },
	{ "a conversation with a small ring", talk_small_ring, 0 },
	{ "a conversation through the ring alone", talk_at_once, 0 },
	{ "empty datagrams", empty_datagrams, 0 },
	{ "control messages", control_messages, 0 },
	{ "what a record says", what_a_record_says, 0 },
	{ "segments", segments, 0 },
	{ "poll and epoll", readable_means_ring_too, 0 },
	{ "sleepers awake", sleepers_awake, 0 },
	{ "signals", signals_interrupt, 0 },
	{ "shutdown", shut_down, 0 },
	{ "errors stay", errors_stay, 0 },
	{ "bad checksums", bad_checksums, 0 },
	{ "many readers", many_readers, 90 },
	{ "the oldest goes", oldest_goes, 0 },
	{ "stale datagrams are not read", stale_is_not_read, 0 },
	{ "taking makes no system call", taking_makes_no_call, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
