// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program lies: wrong words one by one, then all of them at once. It may lose
 * and garble what is its own; the kernel counts, and goes on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "pair.h"

#define BYTES	16384

static struct pair pair;
static volatile struct pkt_push_region *region;
static uint8_t *ring;
static int dev;
static uint8_t got[65536];

/* With the device in our own hands. */
static void open_raw(int family, uint32_t policy)
{
	struct pkt_push_attach attach = { .data_bytes = BYTES };

	pair_open(&pair, family, false, 0);
	dev = open(PKT_PUSH_DEVICE, O_RDWR | O_CLOEXEC);
	CHECK(dev >= 0);
	attach.fd = pair.receiver;
	CHECK(!ioctl(dev, PKT_PUSH_ATTACH, &attach));
	CHECK(!ioctl(dev, PKT_PUSH_POLICY, &policy));
	region = mmap(NULL, attach.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		      dev, 0);
	CHECK(region != MAP_FAILED);
	ring = (uint8_t *)region + PKT_PUSH_DATA_OFFSET;
}

static uint64_t bad_heads(void)
{
	struct pkt_push_stats stats;

	CHECK(!ioctl(dev, PKT_PUSH_STATS, &stats));
	return stats.bad_heads;
}

static int push(void)
{
	return ioctl(dev, PKT_PUSH_NOW);
}

/* The socket is as good as before. */
static void check_works(void)
{
	uint32_t i;

	while (recv(pair.receiver, got, sizeof(got), MSG_DONTWAIT) >= 0)
		;
	for (i = 0; i < 3; i++)
		pair_send(&pair, 100 + i, 50);
	CHECK_EQ(push(), 3);
	for (i = 0; i < 3; i++)
		check_datagram(got, recv(pair.receiver, got, sizeof(got), 0),
			       100 + i, 50);
	CHECK_EQ(region->head, region->tail);
}

static void wrong_heads(void)
{
	uint64_t wrong[] = { 1, 63, 64, 65, 192, 1ULL << 40, 1ULL << 63, ~0ULL,
			     ~63ULL };
	uint64_t before, old;
	size_t i;

	open_raw(AF_INET, PKT_PUSH_NEWEST);
	check_works();
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		pair_send(&pair, 1, 200);
		pair_send(&pair, 2, 200);
		CHECK_EQ(push(), 2);
		before = bad_heads();
		old = region->head;
		region->head = old + wrong[i];
		pair_send(&pair, 3, 200);
		CHECK_EQ(push(), 1);
		CHECK_EQ(bad_heads(), before + 1);
		check_works();
	}
}

static void head_goes_back(void)
{
	uint64_t old;

	open_raw(AF_INET6, PKT_PUSH_NEWEST);
	check_works();
	old = region->head;
	check_works();
	region->head = old;
	/* It is not given again. */
	CHECK_ERR(recv(pair.receiver, got, sizeof(got), MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(bad_heads(), 1);
	check_works();
	region->head = 0;
	CHECK_ERR(recv(pair.receiver, got, sizeof(got), MSG_PEEK | MSG_DONTWAIT),
		  EAGAIN);
	check_works();
}

/* Nothing but head is read back, so nothing else matters to recv(). */
static void headers_are_ours_to_spoil(void)
{
	uint64_t head;
	uint32_t i;

	open_raw(AF_INET, PKT_PUSH_NEWEST);
	for (i = 0; i < 5; i++)
		pair_send(&pair, i, 300);
	CHECK_EQ(push(), 5);
	head = region->head;
	memset((void *)region, 0xff, 128);
	for (i = 0; i < 5; i++)
		memset(ring + i * 384, 0xff, sizeof(struct pkt_push_record));
	CHECK_EQ(region->head, head);
	for (i = 0; i < 5; i++)
		check_datagram(got, recv(pair.receiver, got, sizeof(got), 0), i, 300);
	CHECK_EQ(bad_heads(), 0);
}

/* The payload is the program's; its length is not. */
static void payload_is_ours_to_spoil(void)
{
	open_raw(AF_INET, PKT_PUSH_NEWEST);
	pair_send(&pair, 1, 300);
	CHECK_EQ(push(), 1);
	memset(ring, 0xaa, BYTES);
	CHECK_EQ(recv(pair.receiver, got, sizeof(got), 0), 300);
	CHECK(got[0] == 0xaa && got[299] == 0xaa);
	check_works();
}

static volatile bool stop;

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Writes anything, often almost right, everywhere. */
static void *scribble(void *arg)
{
	uint64_t state = 0x9e3779b97f4a7c15ULL * (1 + (uintptr_t)arg);
	volatile struct pkt_push_region *words = region;
	uint64_t word;

	while (!stop) {
		word = random_word(&state);
		switch (word % 12) {
		case 0:
			words->head = word >> (word >> 58);
			break;
		case 1:
			words->head = words->tail;
			break;
		case 2:
			words->head += 64 * (word >> 40 & 15);
			break;
		case 3:
			words->head -= 64 * (word >> 40 & 15);
			break;
		case 4:
			words->tail = word;
			break;
		case 5:
			words->flags = (uint32_t)word;
			break;
		default:
			memset(ring + (word >> 20) % (BYTES - 256), (int)word,
			       word >> 50 & 255);
		}
	}
	return NULL;
}

static void *flood(void *arg)
{
	uint32_t number = 0;

	(void)arg;
	while (!stop) {
		pair_send(&pair, number, 4 + number % 3000);
		if (++number % 64 == 0)
			sleep_ms(0);
	}
	return NULL;
}

static void scribbler_with(int family, uint32_t policy)
{
	uint64_t end, threshold = 0;
	struct pkt_push_stats stats;
	pthread_t threads[3];
	uint32_t received = 0;
	int flags;

	open_raw(family, policy);
	CHECK(!ioctl(dev, PKT_PUSH_THRESHOLD, &threshold));
	start_thread(&threads[0], flood, NULL);
	start_thread(&threads[1], scribble, (void *)1);
	start_thread(&threads[2], scribble, (void *)2);
	end = now_ns() + times(2) * 1000000000ULL;
	do {
		flags = MSG_DONTWAIT | (received % 5 ? 0 : MSG_PEEK);
		if (recv(pair.receiver, got, sizeof(got), flags) >= 0)
			received++;
		push();
		CHECK(!ioctl(dev, PKT_PUSH_STATS, &stats));
	} while (now_ns() < end || (received < 100 && now_ns() < end + 20000000000ULL));
	/* Closed in the midst of it. */
	if (policy == PKT_PUSH_OLDEST)
		close(pair.receiver);
	stop = true;
	CHECK(!pthread_join(threads[0], NULL));
	CHECK(!pthread_join(threads[1], NULL));
	CHECK(!pthread_join(threads[2], NULL));
	printf("# %u received, %llu pushed, %llu wrong heads, %llu returned, %llu evicted\n",
	       received, (unsigned long long)stats.datagrams,
	       (unsigned long long)stats.bad_heads,
	       (unsigned long long)stats.returned,
	       (unsigned long long)stats.evicted);
	CHECK(received >= 100 && stats.datagrams && stats.bad_heads);
	if (policy == PKT_PUSH_OLDEST)
		return;
	threshold = PKT_PUSH_ADAPTIVE;
	CHECK(!ioctl(dev, PKT_PUSH_THRESHOLD, &threshold));
	check_works();
	CHECK_EQ(pair_queued(&pair), 0);
}

/* Another process keeps the socket readable, with nothing in it. */
static void a_reader_can_be_killed(void)
{
	pid_t liar, reader;
	int status;

	open_raw(AF_INET, PKT_PUSH_NEWEST);
	liar = fork();
	CHECK(liar >= 0);
	if (!liar)
		for (;;)
			region->head = 64;
	/* Or the reader would sleep before it is lied to, and nothing wake it. */
	WAIT_FOR(region->head == 64);
	reader = fork();
	CHECK(reader >= 0);
	if (!reader) {
		recv(pair.receiver, got, sizeof(got), 0);
		_exit(0);
	}
	WAIT_FOR(bad_heads() > 0);
	sleep_ms(20);
	CHECK(!kill(reader, SIGKILL));
	CHECK_EQ(waitpid(reader, &status, 0), reader);
	CHECK(WIFSIGNALED(status));
	CHECK(!kill(liar, SIGKILL));
	CHECK_EQ(waitpid(liar, NULL, 0), liar);
	check_works();
}

static void scribbler(void) { scribbler_with(AF_INET, PKT_PUSH_NEWEST); }
static void scribbler_oldest(void) { scribbler_with(AF_INET6, PKT_PUSH_OLDEST); }

static const struct test tests[] = {
	{ "wrong heads", wrong_heads, 0 },
	{ "a head that goes back", head_goes_back, 0 },
	{ "headers are the program's to spoil", headers_are_ours_to_spoil, 0 },
	{ "payload is the program's to spoil", payload_is_ours_to_spoil, 0 },
	{ "a reader of a liar can be killed", a_reader_can_be_killed, 0 },
	{ "a scribbler", scribbler, 100 },
	{ "a scribbler, and the oldest goes", scribbler_oldest, 100 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
