/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks that end a test program and say where. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_timedjoin_np */
#endif
#include <freshwire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
/* A condition counts as failed after this time, on a loaded machine and under valgrind. */
#define LIMIT (60 * SECOND)

static void fail(int line, const char *what)
{
	fprintf(stderr, "line %d: %s; last error: %s\n", line, what, fw_last_error());
	exit(1);
}

#define CHECK(what) \
	do { \
		if (!(what)) \
			fail(__LINE__, #what); \
	} while (0)
#define IS(status, call) CHECK((call) == (status))
#define OK(call) IS(FW_OK, call)

#define UNTIL(what) \
	do { \
		uint64_t limit_ = fw_now() + LIMIT; \
		while (!(what)) { \
			CHECK(fw_now() < limit_); \
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); \
		} \
	} while (0)

/* Waits for a thread's end. */
#define JOIN(thread) \
	CHECK(!pthread_timedjoin_np(thread, NULL, &(struct timespec){ .tv_sec = time(NULL) + (time_t)(LIMIT / SECOND) }))
