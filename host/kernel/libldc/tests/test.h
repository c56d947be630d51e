/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small kselftest: each case runs in a process of its own and is one line of KTAP. */
#ifndef LDC_TEST_H
#define LDC_TEST_H

#include <stdbool.h>
#include <stddef.h>

#include "ldc.h"

/* A case ends with the first condition that does not hold. */
#define CHECK(condition)							\
	do {									\
		if (!(condition)) {						\
			fprintf(stderr, "# %s:%d: %s: %s\n", __FILE__, __LINE__,	\
				#condition, strerror(errno));			\
			_exit(1);						\
		}								\
	} while (0)

struct test_case {
	const char *name;
	void (*run)(void);
};

/* Both ends of a TCP connection on loopback. */
struct pair {
	int near;
	int far;
};

/* Nothing but a few kilobytes fits between the two. */
struct pair make_pair(void);
/* Reads until @size bytes are there. False: the stream ended, or nothing came for seconds. */
bool read_all(int fd, void *to, size_t size);
/* Runs the cases and returns the exit code. */
int run_cases(const struct test_case *cases, size_t count);

#endif /* LDC_TEST_H */
