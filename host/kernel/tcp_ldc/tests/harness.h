/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A test is a function in a table; each runs in a process of its own, so that
 * one that hangs or crashes costs the others nothing. Output is KTAP.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct test {
	const char *name;
	void (*run)(void);
	unsigned int seconds;	/* killed after that; 0: 30 */
};

#define TESTS_END { NULL, NULL, 0 }

/* Runs a table; returns main()'s exit code. */
int run_tests(const struct test *tests);

/* LDC_LONG is set: repeat more. */
bool long_form(void);
/* times, or ten times as many in the long form. */
unsigned int times(unsigned int n);

/* Ends the running test with a text. */
_Noreturn void fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void skip(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition)						\
	do {								\
		if (!(condition))					\
			FAIL("%s (errno %m)", #condition);		\
	} while (0)
#define CHECK_EQ(left, right)						\
	do {								\
		long long l_ = (long long)(left), r_ = (long long)(right); \
		if (l_ != r_)						\
			FAIL("%s is %lld, not %s = %lld", #left, l_,	\
			     #right, r_);				\
	} while (0)
/* The call fails with this errno. */
#define CHECK_ERR(call, error)						\
	do {								\
		long c_ = (long)(call);					\
		if (c_ != -1)						\
			FAIL("%s gives %ld, not an error", #call, c_);	\
		if (errno != (error))					\
			FAIL("%s: %m, not %s", #call, #error);		\
	} while (0)

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);
void sleep_ms(unsigned int ms);

/* Waits up to 10 s for a condition. */
#define WAIT_FOR(condition)						\
	do {								\
		uint64_t end_ = now_ns() + 10000000000ULL;		\
		while (!(condition)) {					\
			if (now_ns() > end_)				\
				FAIL("waited in vain for %s", #condition); \
			sleep_ms(1);					\
		}							\
	} while (0)

#endif
