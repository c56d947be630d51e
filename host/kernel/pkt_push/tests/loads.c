// SPDX-License-Identifier: GPL-2.0-only
/* Loading, a socket that is attached and receives, unloading; and what memory that leaves behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "pair.h"

/* Turns before the first look at the memory: what is made once is made. */
#define WARM	3
/* A turn's ring and its account have 1.5 MiB. Of the long form's turns each may leave 4 KiB, and leaves less than a module's page. */
#define LEFT_KIB	4096

static uint8_t got[2000];

static int unload(void)
{
	return (int)syscall(SYS_delete_module, "pkt_push", O_NONBLOCK);
}

static bool is_loaded(void)
{
	char line[256];
	bool found = false;
	FILE *modules = fopen("/proc/modules", "r");

	CHECK(modules);
	while (fgets(line, sizeof(line), modules))
		found |= !strncmp(line, "pkt_push ", 9);
	fclose(modules);
	return found;
}

/* The sum of the numbers behind @name in a file of /proc. */
static long sum_of(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[512], *at;
	long sum = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		at = line + strspn(line, " ");
		if (!strncmp(at, name, strlen(name)))
			sum += strtol(at + strlen(name), NULL, 10);
	}
	fclose(file);
	return sum;
}

/*
 * KiB that are neither free nor a cache of files. Each processor keeps freed pages to itself, more and more of them on newer kernels: they are
 * free as well.
 */
static long used_kib(void)
{
	static const char meminfo[] = "/proc/meminfo";
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	long page_kib = sysconf(_SC_PAGESIZE) / 1024;

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, "3", 1), 1);
	close(fd);
	return sum_of(meminfo, "MemTotal:") - sum_of(meminfo, "MemFree:") - sum_of(meminfo, "Buffers:") -
	       sum_of(meminfo, "Cached:") - sum_of(meminfo, "SReclaimable:") -
	       page_kib * sum_of("/proc/zoneinfo", "count:");
}

/* What is attached is used, refuses to go, and is left in each order, with and without datagrams in the ring. */
static void one_turn(unsigned int turn)
{
	struct push_options options = { .bytes = 1 << 20, .oldest = turn >> 1 & 1 };
	uint32_t i, taken = turn % 3 ? 10 : 6;
	struct pair pair;

	CHECK(!system("modprobe pkt_push"));
	CHECK(is_loaded());
	pair_push(&pair, turn & 1 ? AF_INET6 : AF_INET, 1 << 18, &options);
	CHECK_ERR(unload(), EAGAIN);
	for (i = 0; i < 8; i++)
		pair_send(&pair, i, 1000);
	CHECK_EQ(pair_push_now(&pair, 8), 8);
	for (; i < 10; i++)
		pair_send(&pair, i, 1000);
	for (i = 0; i < taken; i++)
		check_datagram(got, i % 2 ? recv(pair.receiver, got, sizeof(got), 0) :
			       push_recv(pair.push, got, sizeof(got), 0), i, 1000);
	if (turn & 4) {
		close(pair.receiver);
		/* The handle has the module, too. */
		CHECK_ERR(unload(), EAGAIN);
		push_close(pair.push);
	} else {
		push_close(pair.push);
		CHECK_ERR(unload(), EAGAIN);
		close(pair.receiver);
	}
	close(pair.sender);
	CHECK(!unload());
	CHECK(!is_loaded());
	CHECK_ERR(access(PKT_PUSH_DEVICE, F_OK), ENOENT);
}

static void loads(void)
{
	unsigned int count = long_form() ? 1000 : 10, turn;
	long before, after;
	uint64_t end;

	/* The suite has loaded it for the others. */
	if (is_loaded())
		CHECK(!unload());
	for (turn = 0; turn < WARM; turn++)
		one_turn(turn);
	before = used_kib();
	for (turn = 0; turn < count; turn++)
		one_turn(turn);
	/* Some of it is given back by RCU, a little later. */
	end = now_ns() + 10000000000ULL;
	do {
		sleep_ms(10);
		after = used_kib();
	} while (after > before + LEFT_KIB && now_ns() < end);
	printf("# %u loads: %ld KiB before, %ld KiB after\n", count, before, after);
	CHECK(after <= before + LEFT_KIB);
	CHECK(!system("modprobe pkt_push"));
}

static const struct test tests[] = {
	{ "load, attach, receive, unload", loads, 3000 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
