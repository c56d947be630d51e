// SPDX-License-Identifier: GPL-2.0-only
/*
 * Modify in place: queued position updates are overwritten until the kernel
 * takes them. Every delivered record is one version, never a mix of two.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

/* Two blocks and a bit, so that a record is of several slots and segments. */
#define WORDS	450
#define SLOTS	64

/* So many updates at least have to be delivered in a later version. */
#define EDITED		10
#define PATIENCE_NS	60000000000ULL

struct update {
	uint64_t object;
	uint64_t words[WORDS];	/* all the same: the version */
};

static struct ring ring;
static int fds[2];
static volatile bool stop;
static uint64_t overwritten, too_late;

static void write_update(uint64_t index, uint64_t object, uint64_t version)
{
	uint32_t block = ring.geo.block_bytes;
	struct update update = { .object = object };
	size_t done = 0, n, i;

	for (i = 0; i < WORDS; i++)
		update.words[i] = version;
	for (i = 0; done < sizeof(update); i++) {
		n = sizeof(update) - done < block ? sizeof(update) - done : block;
		memcpy(ring_payload(&ring, index + i), (char *)&update + done, n);
		done += n;
	}
}

/* Overwrites whatever is queued, the newest first, again and again. */
static void *editor(void *arg)
{
	uint64_t version = (uintptr_t)arg, user_i, index, word;
	uint32_t span;

	while (!stop) {
		user_i = __atomic_load_n(&ring.head->user_i, __ATOMIC_ACQUIRE);
		for (index = user_i; index-- > 0 && user_i - index < SLOTS;) {
			word = ring_hold(&ring, index);
			if (!word) {
				too_late++;
				continue;
			}
			span = ring_slot(&ring, index)->span;
			if (span == 3) {
				version += 2;
				write_update(index,
					     ring_slot(&ring, index)->user_seq,
					     version);
				__atomic_fetch_add(&overwritten, 1,
						   __ATOMIC_RELAXED);
			}
			ring_release(&ring, index, word);
		}
	}
	return NULL;
}

struct checked {
	uint64_t records, edited, bytes;
};

static void *check_updates(void *arg)
{
	struct checked *checked = arg;
	bool *seen = calloc(1 << 20, 1);
	struct update update;
	size_t i;

	CHECK(seen);
	while (read_to_end(fds[1], &update, sizeof(update)) == sizeof(update)) {
		for (i = 1; i < WORDS; i++)
			if (update.words[i] != update.words[0])
				FAIL("object %llu: versions %llu and %llu in one record",
				     (unsigned long long)update.object,
				     (unsigned long long)update.words[0],
				     (unsigned long long)update.words[i]);
		CHECK(update.object < 1 << 20);
		CHECK(!seen[update.object]);
		seen[update.object] = true;
		checked->records++;
		__atomic_fetch_add(&checked->edited, update.words[0] != 0,
				   __ATOMIC_RELAXED);
		checked->bytes += sizeof(update);
		/* Slow enough for a queue to stand. */
		if (checked->records % 8 == 0)
			sleep_ms(1);
	}
	free(seen);
	return NULL;
}

static void overwrite(uint32_t zerocopy, uint32_t editors)
{
	uint64_t end = now_ns() + times(3) * 1000000000ULL, object = 0;
	static const struct update zero;
	struct checked checked = {};
	pthread_t threads[2], reader;
	struct ldc_stats stats;
	struct update update;
	uint32_t i;

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], SLOTS, 1448);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &zerocopy, 4));
	CHECK(!pthread_create(&reader, NULL, check_updates, &checked));
	for (i = 0; i < editors; i++)
		CHECK(!pthread_create(&threads[i], NULL, editor,
				      (void *)(uintptr_t)(1 + i)));
	/* In a guest on a busy host little is done in that time. */
	while (now_ns() < end ||
	       (__atomic_load_n(&checked.edited, __ATOMIC_RELAXED) <= EDITED &&
		now_ns() < end + PATIENCE_NS)) {
		update = zero;
		update.object = object;
		if (ring_push(&ring, &update, sizeof(update), object, NEVER))
			object++;
		else
			sleep_ms(1);
	}
	stop = true;
	for (i = 0; i < editors; i++)
		CHECK(!pthread_join(threads[i], NULL));
	WAIT_FOR(ring_free(&ring) == SLOTS);
	ring_stats(fds[0], &stats);
	close(fds[0]);
	CHECK(!pthread_join(reader, NULL));
	printf("# %llu updates, %llu overwritten in the queue, %llu delivered in a later version\n",
	       (unsigned long long)object, (unsigned long long)overwritten,
	       (unsigned long long)checked.edited);
	CHECK_EQ(checked.records, object);
	CHECK_EQ(stats.records_sent, object);
	CHECK(checked.edited > EDITED);
	CHECK(overwritten > checked.edited);
	CHECK_EQ(stats.bad_states + stats.bad_descriptors, 0);
}

static void one_editor(void) { overwrite(0, 1); }
static void two_editors(void) { overwrite(0, 2); }
static void two_editors_zerocopy(void) { overwrite(1, 2); }

static const struct test tests[] = {
	{ "updates overwritten until taken, one editor", one_editor, 100 },
	{ "updates overwritten until taken, two editors", two_editors, 100 },
	{ "updates overwritten, zero copy", two_editors_zerocopy, 100 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
