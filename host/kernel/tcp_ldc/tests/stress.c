// SPDX-License-Identifier: GPL-2.0-only
/* Everything at once: push, drop, edit, poll, notify, options, close. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

#define SLOTS	256
#define BLOCK	512
#define MAGIC	0x6672657368776972ULL

/* Each record says of itself what it is, so that the reader can check. */
struct head {
	uint64_t magic;
	uint64_t seq;
	uint32_t len;		/* of the whole record */
	uint32_t sum;
};

struct run {
	struct ring ring;
	int fds[2];
	volatile bool stop;
	uint64_t pushed, dropped, edited, read;
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint32_t sum_of(const uint8_t *data, uint32_t len)
{
	uint32_t sum = 1;

	while (len--)
		sum = sum * 31 + *data++;
	return sum;
}

static uint32_t make_record(uint8_t *data, uint64_t seq, uint64_t word)
{
	struct head *head = (struct head *)data;
	uint32_t len = (uint32_t)(sizeof(*head) + word % (word >> 40 & 7 ? 1500 : 8000));

	memset(data + sizeof(*head), (int)(word >> 32), len - sizeof(*head));
	head->magic = MAGIC;
	head->seq = seq;
	head->len = len;
	head->sum = sum_of(data + sizeof(*head), len - sizeof(*head));
	return len;
}

static void *reader(void *arg)
{
	static __thread uint8_t data[8192];
	struct run *run = arg;
	struct head *head = (struct head *)data;

	while (read_to_end(run->fds[1], data, sizeof(*head)) == sizeof(*head)) {
		CHECK_EQ(head->magic, MAGIC);
		CHECK(head->len >= sizeof(*head) && head->len < sizeof(data));
		read_all(run->fds[1], data + sizeof(*head),
			 head->len - sizeof(*head));
		CHECK_EQ(sum_of(data + sizeof(*head), head->len - sizeof(*head)),
			 head->sum);
		run->read++;
		/* Slow at times, so that a queue stands. */
		if (run->read % 32 == 0)
			sleep_ms(1);
	}
	return NULL;
}

static void *editor(void *arg)
{
	uint64_t state = 0x9e3779b97f4a7c15ULL ^ (uintptr_t)pthread_self();
	struct run *run = arg;
	struct ring *ring = &run->ring;
	uint64_t word, index, held, user_i;

	while (!run->stop) {
		word = next_random(&state);
		user_i = __atomic_load_n(&ring->head->user_i, __ATOMIC_ACQUIRE);
		index = user_i - word % SLOTS;
		if (index >= user_i)
			continue;
		if (word & (1 << 20)) {
			run->dropped += ring_drop(ring, index);
			continue;
		}
		held = ring_hold(ring, index);
		if (!held)
			continue;
		if (word & (1 << 21))
			sleep_ms(1);
		run->edited++;
		ring_release(ring, index, held);
	}
	return NULL;
}

static void *caller(void *arg)
{
	uint64_t state = 77;
	struct run *run = arg;
	struct pollfd pfd = { .fd = run->fds[0], .events = POLLOUT | POLLIN };
	struct ldc_stats stats;
	uint32_t word;

	while (!run->stop) {
		word = (uint32_t)(next_random(&state) >> 20);
		switch (word % 6) {
		case 0:
			CHECK(poll(&pfd, 1, 1) >= 0);
			break;
		case 1:
			CHECK(!ioctl(run->fds[0], LDC_IOC_NOTIFY));
			break;
		case 2:
			word = word >> 8 & 1;
			CHECK(!setsockopt(run->fds[0], SOL_LDC, LDC_HORIZON,
					  &word, sizeof(word)));
			break;
		case 3:
			word = word >> 8 & 1;
			CHECK(!setsockopt(run->fds[0], SOL_LDC, LDC_ZEROCOPY,
					  &word, sizeof(word)));
			break;
		case 4:
			ring_stats(run->fds[0], &stats);
			break;
		case 5:
			CHECK_ERR(send(run->fds[0], "x", 1, 0), EBUSY);
			/* Traffic back makes acknowledgements of its own. */
			CHECK(send(run->fds[1], "y", 1, 0) == 1);
			CHECK(recv(run->fds[0], &word, 4, MSG_DONTWAIT) != 0);
		}
	}
	return NULL;
}

static void push_until(struct run *run, uint64_t end)
{
	uint64_t state = 0x1234567, word;
	struct ldc_ring *head = run->ring.head;
	uint8_t data[8192];
	uint32_t len;

	while (now_ns() < end) {
		word = next_random(&state);
		if (word >> 58 == 0) {
			/* Holds the sender back for a while. */
			__atomic_store_n(&head->umod_i, run->ring.user_i - 4,
					 __ATOMIC_SEQ_CST);
		} else if (word >> 59 == 1) {
			__atomic_store_n(&head->umod_i, LDC_NO_HOLD,
					 __ATOMIC_RELEASE);
			__atomic_fetch_add(&head->changes, 1, __ATOMIC_RELEASE);
			ring_wake(&run->ring);
		}
		len = make_record(data, run->pushed, word >> 8);
		if (!ring_push(&run->ring, data, len, run->pushed,
			       word & 15 ? NEVER : now_ns() + 2000000)) {
			struct pollfd pfd = { .fd = run->fds[0],
					      .events = POLLOUT };

			CHECK(poll(&pfd, 1, 5) >= 0);
			continue;
		}
		run->pushed++;
	}
	__atomic_store_n(&head->umod_i, LDC_NO_HOLD, __ATOMIC_RELEASE);
	__atomic_fetch_add(&head->changes, 1, __ATOMIC_RELEASE);
	ring_wake(&run->ring);
}

static void everything(int family, unsigned int mtu, const char *congestion)
{
	pthread_t threads[4];
	struct ldc_stats stats;
	static struct run run;
	int i;

	own_network(mtu);
	tcp_pair_buffer(family, run.fds, 4 * SMALL_BUFFER);
	use_congestion(run.fds[0], congestion);
	ring_open(&run.ring, run.fds[0], SLOTS, BLOCK);
	CHECK(!pthread_create(&threads[0], NULL, reader, &run));
	CHECK(!pthread_create(&threads[1], NULL, editor, &run));
	CHECK(!pthread_create(&threads[2], NULL, editor, &run));
	CHECK(!pthread_create(&threads[3], NULL, caller, &run));
	push_until(&run, now_ns() + times(5) * 1000000000ULL);
	run.stop = true;
	for (i = 1; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	ring_wake(&run.ring);
	WAIT_FOR(ring_free(&run.ring) == SLOTS);
	CHECK(!shutdown(run.fds[0], SHUT_WR));
	CHECK(!pthread_join(threads[0], NULL));
	ring_stats(run.fds[0], &stats);
	printf("# %llu pushed, %llu read, %llu dropped, %llu expired, %llu edits, "
	       "%llu put back, %llu zero-copy bytes\n",
	       (unsigned long long)run.pushed, (unsigned long long)run.read,
	       (unsigned long long)run.dropped,
	       (unsigned long long)stats.dropped_expired,
	       (unsigned long long)run.edited,
	       (unsigned long long)stats.records_put_back,
	       (unsigned long long)stats.bytes_zerocopy);
	CHECK_EQ(run.read, stats.records_sent);
	/* Two editors count without atomics, so this may be one too few. */
	CHECK(run.pushed - run.read - stats.dropped_expired >= run.dropped);
	CHECK_EQ(stats.bad_indexes + stats.bad_states + stats.bad_descriptors, 0);
	close(run.fds[0]);
	close(run.fds[1]);
}

static void everything_v4(void) { everything(AF_INET, 1500, "cubic"); }
static void everything_v6(void) { everything(AF_INET6, 65536, "reno"); }
static void everything_bbr(void) { everything(AF_INET, 1500, "bbr"); }

/* Notifies, and reads until the connection ends in whatever way. */
static void *bystander(void *arg)
{
	struct run *run = arg;
	char got[4096];

	while (read(run->fds[1], got, sizeof(got)) > 0)
		if (run->stop)
			break;
	return NULL;
}

static void *notifier(void *arg)
{
	struct run *run = arg;

	while (!run->stop) {
		ioctl(run->ring.fd, LDC_IOC_NOTIFY);
		getsockopt(run->ring.fd, SOL_LDC, LDC_RING, &run->ring.geo,
			   &(socklen_t){ sizeof(run->ring.geo) });
	}
	return NULL;
}

/* Ends in the midst of sending, in every way there is. */
static void ends(void)
{
	static const struct linger reset = { 1, 0 };
	unsigned int turn, turns = times(120);
	uint8_t data[8192] = {};
	uint64_t state = 99;

	for (turn = 0; turn < turns; turn++) {
		uint32_t zerocopy = turn >> 3 & 1;
		pthread_t threads[2];
		struct run run = {};
		int i;

		tcp_pair(turn & 1 ? AF_INET : AF_INET6, run.fds);
		ring_open(&run.ring, run.fds[0], 64, 4096);
		CHECK(!setsockopt(run.fds[0], SOL_LDC, LDC_ZEROCOPY, &zerocopy, 4));
		CHECK(!pthread_create(&threads[0], NULL, bystander, &run));
		CHECK(!pthread_create(&threads[1], NULL, notifier, &run));
		for (i = 0; i < 100; i++)
			ring_push(&run.ring, data,
				  (uint32_t)(next_random(&state) >> 20) % 8192,
				  0, NEVER);
		switch (turn % 5) {
		case 0:
			close(run.fds[0]);
			break;
		case 1:
			setsockopt(run.fds[0], SOL_SOCKET, SO_LINGER, &reset,
				   sizeof(reset));
			close(run.fds[0]);
			break;
		case 2:
			shutdown(run.fds[0], SHUT_RDWR);
			break;
		case 3:
			setsockopt(run.fds[1], SOL_SOCKET, SO_LINGER, &reset,
				   sizeof(reset));
			shutdown(run.fds[1], SHUT_RDWR);
			close(run.fds[1]);
			break;
		case 4:
			munmap(run.ring.base, run.ring.geo.total_bytes);
			close(run.fds[0]);
			break;
		}
		run.stop = true;
		close(run.fds[0]);
		CHECK(!pthread_join(threads[1], NULL));
		shutdown(run.fds[1], SHUT_RDWR);
		CHECK(!pthread_join(threads[0], NULL));
		close(run.fds[1]);
		if (turn % 5 != 4)
			munmap(run.ring.base, run.ring.geo.total_bytes);
		free(run.ring.spans);
	}
}

static const struct test tests[] = {
	{ "everything at once, IPv4, cubic", everything_v4, 120 },
	{ "everything at once, IPv6, reno, large segments", everything_v6, 120 },
	{ "everything at once, IPv4, bbr", everything_bbr, 120 },
	{ "ends in the midst of sending", ends, 120 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
