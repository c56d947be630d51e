// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <linux/sock_diag.h>

#include "harness.h"
#include "pair.h"

static socklen_t loopback(int family, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	address->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		((struct sockaddr_in *)address)->sin_addr.s_addr =
			htonl(INADDR_LOOPBACK);
		return sizeof(struct sockaddr_in);
	}
	((struct sockaddr_in6 *)address)->sin6_addr = in6addr_loopback;
	return sizeof(struct sockaddr_in6);
}

void pair_open(struct pair *pair, int family, bool mapped, int rcvbuf)
{
	struct sockaddr_storage name;
	socklen_t len = loopback(family, &name);

	memset(pair, 0, sizeof(*pair));
	pair->receiver = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(pair->receiver >= 0);
	/* Half of what the kernel makes of it. */
	if (rcvbuf)
		CHECK(!setsockopt(pair->receiver, SOL_SOCKET, SO_RCVBUF, &rcvbuf,
				  sizeof(rcvbuf)));
	if (mapped)
		((struct sockaddr_in6 *)&name)->sin6_addr = in6addr_any;
	CHECK(!bind(pair->receiver, (struct sockaddr *)&name, len));
	CHECK(!getsockname(pair->receiver, (struct sockaddr *)&name, &len));
	if (mapped) {
		uint16_t port = ((struct sockaddr_in6 *)&name)->sin6_port;

		family = AF_INET;
		len = loopback(AF_INET, &name);
		((struct sockaddr_in *)&name)->sin_port = port;
	}
	pair->sender = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(pair->sender >= 0);
	CHECK(!connect(pair->sender, (struct sockaddr *)&name, len));
	pair->sender_len = sizeof(pair->sender_name);
	CHECK(!getsockname(pair->sender, (struct sockaddr *)&pair->sender_name,
			   &pair->sender_len));
}

void pair_attach(struct pair *pair, const struct push_options *options)
{
	pair->push = push_open(pair->receiver, options);
	CHECK(pair->push);
}

void pair_push(struct pair *pair, int family, int rcvbuf,
	       const struct push_options *options)
{
	pair_open(pair, family, false, rcvbuf);
	pair_attach(pair, options);
}

void pair_close(struct pair *pair)
{
	push_close(pair->push);
	close(pair->receiver);
	close(pair->sender);
}

/* Every byte depends on the number and its place. */
static uint8_t byte_at(uint32_t number, size_t place)
{
	return (uint8_t)(number * 131 + place * 7 + (place >> 8));
}

static void stay_on_this_cpu(void)
{
	static __thread bool stays;
	cpu_set_t set;

	if (stays)
		return;
	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	CHECK(!sched_setaffinity(0, sizeof(set), &set));
	stays = true;
}

void start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
	pthread_attr_t attributes;
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	CHECK(!pthread_attr_init(&attributes));
	CHECK(!pthread_attr_setaffinity_np(&attributes, sizeof(all), &all));
	CHECK(!pthread_create(thread, &attributes, body, argument));
	CHECK(!pthread_attr_destroy(&attributes));
}

void pair_send(const struct pair *pair, uint32_t number, size_t size)
{
	uint8_t data[65536];
	size_t place;

	CHECK(size >= 4 && size <= sizeof(data));
	stay_on_this_cpu();
	for (place = 4; place < size; place++)
		data[place] = byte_at(number, place);
	memcpy(data, &number, 4);
	CHECK_EQ(send(pair->sender, data, size, 0), size);
}

uint32_t datagram_number(const void *data, ssize_t got)
{
	const uint8_t *bytes = data;
	uint32_t number;
	size_t place;

	CHECK(got >= 4);
	memcpy(&number, data, 4);
	for (place = 4; place < (size_t)got; place++)
		if (bytes[place] != byte_at(number, place))
			FAIL("datagram %u is damaged at %zu of %zd", number, place,
			     got);
	return number;
}

void check_datagram(const void *data, ssize_t got, uint32_t number, size_t size)
{
	CHECK_EQ(got, size);
	CHECK_EQ(datagram_number(data, got), number);
}

long pair_push_now(const struct pair *pair, long count)
{
	uint64_t end = now_ns() + 10000000000ULL;
	long went = 0, now;

	for (;;) {
		now = push_now(pair->push);
		if (now < 0)
			return now;
		went += now;
		if (went >= count || now_ns() > end)
			return went;
		sleep_ms(1);
	}
}

void await_delivery(void)
{
	struct pair last;
	uint32_t number;

	pair_open(&last, AF_INET, false, 0);
	pair_send(&last, 0, sizeof(number));
	CHECK_EQ(recv(last.receiver, &number, sizeof(number), 0), sizeof(number));
	pair_close(&last);
}

void pair_stats(const struct pair *pair, struct pkt_push_stats *stats)
{
	CHECK(!push_get_stats(pair->push, stats));
}

static uint32_t meminfo(const struct pair *pair, int index)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t len = sizeof(info);

	CHECK(!getsockopt(pair->receiver, SOL_SOCKET, SO_MEMINFO, info, &len));
	return info[index];
}

uint32_t pair_queued(const struct pair *pair)
{
	return meminfo(pair, SK_MEMINFO_RMEM_ALLOC);
}

uint32_t pair_drops(const struct pair *pair)
{
	return meminfo(pair, SK_MEMINFO_DROPS);
}
