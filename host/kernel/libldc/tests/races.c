// SPDX-License-Identifier: MIT OR Apache-2.0
/* The application and the kernel at the same records at the same time. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

#define PACKET		256
#define PACKETS		32
/* Three slots, and not a whole number of words. */
#define RECORD		(2 * PACKET + 101)

static unsigned int rounds(void)
{
	const char *long_form = getenv("LDC_LONG");

	return long_form && *long_form ? 200000 : 3000;
}

struct stream {
	int fd;
	/* Lets the ring be full, so that there is something to drop. */
	bool slow;
	unsigned int records;
	bool torn;
	bool backwards;
};

/* Each record has one version number in all its words. */
static void *read_versions(void *context)
{
	struct stream *stream = context;
	uint32_t words[RECORD / 4 + 1], newest = 0;

	while (read_all(stream->fd, words, RECORD)) {
		size_t at;

		for (at = 1; at < RECORD / 4; at++)
			stream->torn |= words[at] != words[0];
		stream->backwards |= words[0] < newest;
		newest = words[0];
		stream->records++;
		if (stream->slow && stream->records % 8 == 0)
			usleep(500);
	}
	return NULL;
}

static void set_version(unsigned char *record, uint32_t version)
{
	size_t at;

	for (at = 0; at + sizeof(version) <= RECORD; at += sizeof(version))
		memcpy(record + at, &version, sizeof(version));
}

/* Not tried in Birkedal 2006: queued position updates are overwritten until they are taken. */
static void an_update_arrives_old_or_new_never_mixed(void)
{
	struct pair pair = make_pair();
	struct ldc *ldc = ldc_init(pair.near, PACKETS, PACKET);
	struct stream stream = { .fd = pair.far };
	unsigned char record[RECORD] = { 0 };
	struct ldc_record update = LDC_RECORD(0);
	pthread_t reader;
	/* An update takes a microsecond, a delivery a hundred. */
	uint32_t version, versions = rounds() * 30;

	CHECK(ldc);
	CHECK(!pthread_create(&reader, NULL, read_versions, &stream));
	update.key = 1;
	for (version = 1; version <= versions; version++) {
		update.user_seq = version;
		set_version(record, version);
		while (ldc_replace(ldc, &update, record, RECORD, 1) < 0) {
			CHECK(errno == EAGAIN);
			CHECK(ldc_wait(ldc, RECORD, 5000) >= 0);
		}
	}
	ldc_close(ldc);
	shutdown(pair.near, SHUT_WR);
	pthread_join(reader, NULL);
	CHECK(!stream.torn && !stream.backwards);
	CHECK(stream.records > 1 && stream.records < versions);
	printf("# %u updates, %u delivered\n", versions, stream.records);
}

struct dropper {
	struct ldc *ldc;
	atomic_bool stop;
	unsigned int dropped;
};

/* The oldest only, which the kernel comes to next, and late: it may have come meanwhile. */
static int pick_oldest(const struct ldc_record *record, size_t size, void *context)
{
	bool *asked = context;
	uint64_t begin = ldc_now();

	(void)record;
	(void)size;
	if (*asked)
		return 0;
	*asked = true;
	while (ldc_now() < begin + 50000)
		;
	return 1;
}

static void *drop_some(void *context)
{
	struct dropper *dropper = context;

	while (!atomic_load(&dropper->stop)) {
		bool asked = false;

		dropper->dropped += (unsigned int)ldc_drop_if(dropper->ldc, LDC_REASON_APPLICATION,
							      pick_oldest, &asked) / 3;
		usleep(100);
	}
	return NULL;
}

/* Another thread drops what the kernel may be taking: the count is exact. */
static void drops_are_counted_exactly(void)
{
	struct pair pair = make_pair();
	struct ldc *ldc = ldc_init(pair.near, PACKETS, PACKET);
	struct dropper dropper = { .ldc = ldc };
	struct stream stream = { .fd = pair.far, .slow = true };
	unsigned char record[RECORD] = { 0 };
	pthread_t reader, second;
	uint32_t number;

	CHECK(ldc);
	CHECK(!pthread_create(&reader, NULL, read_versions, &stream));
	CHECK(!pthread_create(&second, NULL, drop_some, &dropper));
	for (number = 1; number <= rounds(); number++) {
		set_version(record, number);
		while (ldc_send(ldc, number, record, RECORD, 1) < 0) {
			CHECK(errno == EAGAIN);
			CHECK(ldc_wait(ldc, RECORD, 5000) >= 0);
		}
	}
	atomic_store(&dropper.stop, true);
	pthread_join(second, NULL);
	/* What is left goes out before the end. */
	while (ldc_room(ldc) < PACKETS)
		usleep(1000);
	ldc_close(ldc);
	shutdown(pair.near, SHUT_WR);
	pthread_join(reader, NULL);
	CHECK(!stream.torn && !stream.backwards);
	CHECK(dropper.dropped > 0 && stream.records + dropper.dropped == rounds());
	printf("# %u sent, %u dropped, %u delivered\n", rounds(), dropper.dropped, stream.records);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "an update arrives old or new, never mixed",
		  an_update_arrives_old_or_new_never_mixed },
		{ "drops are counted exactly", drops_are_counted_exactly },
	};

	return run_cases(cases, sizeof(cases) / sizeof(cases[0]));
}
