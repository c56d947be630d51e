// SPDX-License-Identifier: GPL-2.0-only
/*
 * A 32-bit program on a 64-bit kernel: the same options, layout, ioctl and
 * memory. It stands alone, because a machine need not have a 32-bit C library.
 */
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/net.h>
#include <linux/tcp.h>

#include <linux/tcp_ldc.h>

#define NR_EXIT		1
#define NR_READ		3
#define NR_WRITE	4
#define NR_CLOSE	6
#define NR_IOCTL	54
#define NR_SOCKETCALL	102
#define NR_POLL		168
#define NR_MMAP2	192

#define AF_INET		2
#define SOCK_STREAM	1
#define PROT_RW		3
#define MAP_SHARED	1

_Static_assert(sizeof(void *) == 4, "this is to be a 32-bit program");
_Static_assert(sizeof(struct ldc_geometry) == 24, "layout");
_Static_assert(sizeof(struct ldc_region) == 192, "layout");
_Static_assert(sizeof(struct ldc_ring) == 384, "layout");
_Static_assert(sizeof(struct ldc_slot) == 128, "layout");
_Static_assert(sizeof(struct ldc_stats) % 8 == 0, "layout");

static long call(long number, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "0"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return result;
}

/* mmap2() has six arguments, and the sixth goes into the frame pointer: 0. */
static long map(unsigned long bytes, long fd)
{
	long result;

	__asm__ volatile("push %%ebp\n\txor %%ebp, %%ebp\n\tint $0x80\n\tpop %%ebp"
			 : "=a"(result)
			 : "0"(NR_MMAP2), "b"(0), "c"(bytes), "d"(PROT_RW),
			   "S"(MAP_SHARED), "D"(fd)
			 : "memory");
	return result;
}

static long socketcall(long which, long a, long b, long c, long d, long e)
{
	long args[] = { a, b, c, d, e };

	return call(NR_SOCKETCALL, which, (long)args, 0, 0, 0);
}

static void say(const char *text)
{
	unsigned int len = 0;

	while (text[len])
		len++;
	call(NR_WRITE, 1, (long)text, (long)len, 0, 0);
}

static void leave(int code)
{
	call(NR_EXIT, code, 0, 0, 0, 0);
	__builtin_unreachable();
}

static void check(int condition, const char *what)
{
	if (condition)
		return;
	say("# ");
	say(what);
	say("\nnot ok 1 a 32-bit program\n1..1\n");
	leave(1);
}

static void connect_pair(long fds[2])
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = __builtin_bswap32(0x7f000001),
	};
	__u32 len = sizeof(address);
	long listener = socketcall(SYS_SOCKET, AF_INET, SOCK_STREAM, 0, 0, 0);

	check(listener >= 0, "socket()");
	check(!socketcall(SYS_BIND, listener, (long)&address, len, 0, 0), "bind()");
	check(!socketcall(SYS_LISTEN, listener, 1, 0, 0, 0), "listen()");
	check(!socketcall(SYS_GETSOCKNAME, listener, (long)&address, (long)&len,
			  0, 0), "getsockname()");
	fds[0] = socketcall(SYS_SOCKET, AF_INET, SOCK_STREAM, 0, 0, 0);
	check(!socketcall(SYS_CONNECT, fds[0], (long)&address, len, 0, 0),
	      "connect()");
	fds[1] = socketcall(SYS_ACCEPT, listener, 0, 0, 0, 0);
	check(fds[1] >= 0, "accept()");
}

static void push(unsigned char *base, const struct ldc_region *region)
{
	struct ldc_ring *ring = (void *)(base + region->rings_offset);
	struct ldc_slot *slot = (void *)(base + region->slots_offset);
	unsigned char *block = base + region->arena_offset;

	block[0] = '3';
	block[1] = '2';
	slot->deadline = LDC_NO_DEADLINE;
	slot->len = 2;
	slot->span = 1;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	slot->state = LDC_READY;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ring->user_i = 1;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_fetch_and(&ring->kern_flag, ~LDC_KERN_SLEEPS, __ATOMIC_SEQ_CST);
}

static void run(void)
{
	struct ldc_geometry geo = { 16, 64, 16, 0, 0 };
	struct { int fd; short events, revents; } pfd = { 0, 4, 0 };
	__u32 len = sizeof(geo), horizon = 0;
	struct ldc_stats stats;
	struct ldc_region *region;
	char got[2];
	long fds[2];

	connect_pair(fds);
	check(!socketcall(SYS_SETSOCKOPT, fds[0], IPPROTO_TCP, TCP_ULP,
			  (long)TCP_ULP_LDC, 3), "TCP_ULP");
	check(socketcall(SYS_SETSOCKOPT, fds[0], SOL_LDC, LDC_RING, (long)&geo,
			 12) == -EINVAL, "LDC_RING that is too short");
	check(!socketcall(SYS_SETSOCKOPT, fds[0], SOL_LDC, LDC_RING, (long)&geo,
			  sizeof(geo)), "LDC_RING");
	check(!socketcall(SYS_GETSOCKOPT, fds[0], SOL_LDC, LDC_RING, (long)&geo,
			  (long)&len), "LDC_RING, get");
	check(len == 24 && geo.total_bytes == 8192, "its size");
	check(!socketcall(SYS_SETSOCKOPT, fds[0], SOL_LDC, LDC_HORIZON,
			  (long)&horizon, sizeof(horizon)), "LDC_HORIZON");
	region = (void *)map(8192, fds[0]);
	check((unsigned long)region < -4095UL, "mmap()");
	check(region->magic == LDC_MAGIC, "the magic");
	pfd.fd = (int)fds[0];
	check(call(NR_POLL, (long)&pfd, 1, 0, 0, 0) == 1 && pfd.revents == 4,
	      "poll()");
	push((unsigned char *)region, region);
	check(!call(NR_IOCTL, fds[0], LDC_IOC_NOTIFY, 0, 0, 0), "LDC_IOC_NOTIFY");
	check(call(NR_READ, fds[1], (long)got, 2, 0, 0) == 2, "read()");
	check(got[0] == '3' && got[1] == '2', "what was read");
	len = sizeof(stats);
	check(!socketcall(SYS_GETSOCKOPT, fds[0], SOL_LDC, LDC_STATS,
			  (long)&stats, (long)&len), "LDC_STATS");
	check(len == sizeof(stats) && stats.bytes == 2, "the statistics");
	call(NR_CLOSE, fds[0], 0, 0, 0, 0);
	check(call(NR_READ, fds[1], (long)got, 1, 0, 0) == 0, "the end");
}

/* The stack is aligned by hand: nobody has called us. */
__attribute__((force_align_arg_pointer)) void _start(void)
{
	run();
	say("ok 1 a 32-bit program\n1..1\n");
	leave(0);
}
