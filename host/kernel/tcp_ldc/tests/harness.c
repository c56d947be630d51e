// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define EXIT_SKIP	4
#define SECONDS		30

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns();
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

bool long_form(void)
{
	const char *value = getenv("LDC_LONG");

	return value && *value;
}

unsigned int times(unsigned int n)
{
	return long_form() ? 10 * n : n;
}

void fail(const char *file, int line, const char *format, ...)
{
	int error = errno;
	va_list args;

	fflush(stdout);
	printf("# %s:%d: ", file, line);
	errno = error;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

void skip(const char *format, ...)
{
	va_list args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(EXIT_SKIP);
}

/* By how much the kernel here is slower than a stock one: a debug kernel in an emulated processor is. */
static unsigned int patience(void)
{
	const char *text = getenv("FRESHWIRE_PATIENCE");
	int factor = text ? atoi(text) : 1;

	return factor > 1 ? (unsigned int)factor : 1;
}

/* Returns the exit code, or 128 and the signal. */
static int run_one(const struct test *test)
{
	unsigned int seconds = (test->seconds ? test->seconds : SECONDS) * patience();
	uint64_t end = clock_ns() + seconds * 1000000000ULL;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		/* Whatever the test starts ends with it. */
		setpgid(0, 0);
		signal(SIGPIPE, SIG_IGN);
		test->run();
		fflush(stdout);
		_exit(0);
	}
	setpgid(pid, pid);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_ns() > end) {
			printf("# killed after %u s\n", seconds);
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		sleep_ms(2);
	}
	kill(-pid, SIGKILL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_tests(const struct test *tests)
{
	unsigned int number = 0, failed = 0;
	const char *only = getenv("LDC_ONLY");
	const struct test *test;
	uint64_t start;
	int code;

	for (test = tests; test->name; test++) {
		if (only && !strstr(test->name, only))
			continue;
		number++;
		start = clock_ns();
		code = run_one(test);
		if (code == EXIT_SKIP)
			printf("ok %u %s # SKIP\n", number, test->name);
		else if (code)
			printf("not ok %u %s # %d\n", number, test->name, code);
		else
			printf("ok %u %s # %u ms\n", number, test->name,
			       (unsigned int)((clock_ns() - start) / 1000000));
		failed += code && code != EXIT_SKIP;
	}
	printf("1..%u\n", number);
	return failed ? 1 : 0;
}
