// SPDX-License-Identifier: GPL-2.0-only
/* How a ring and its connection end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

#define SEED	7

static uint8_t data[300000], got[400000];

/*
 * A connection whose window is closed, with a long record begun, and after it
 * one that is ready. What was read of it is 0.
 */
static void begun(struct ring *ring, int fds[2])
{
	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(ring, fds[0], 512, 1000);
	stream_fill(SEED, 0, data, sizeof(data));
	CHECK(ring_push(ring, data, sizeof(data), 1, NEVER));
	CHECK(ring_push(ring, "ready", 5, 2, NEVER));
	sleep_ms(400);
	CHECK_EQ(ring_state(ring, 0), LDC_TAKEN);
	CHECK_EQ(ring_state(ring, 300), LDC_READY);
	CHECK(unsent(fds[0]) <= 1448);
}

static void check_whole(int fd)
{
	CHECK_EQ(read_to_end(fd, got, sizeof(got)), sizeof(data));
	CHECK(!memcmp(got, data, sizeof(data)));
}

static void close_while_mapped(void)
{
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET6, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(ring_push(&ring, "bye", 3, 1, NEVER));
	close(fds[0]);
	CHECK_EQ(read_to_end(fds[1], got, sizeof(got)), 3);
	CHECK(!memcmp(got, "bye", 3));
	/* The memory is there until it is unmapped. */
	CHECK(ring.head->kern_flag & LDC_KERN_CLOSED);
	memset(ring_payload(&ring, 5), 1, 64);
	CHECK(!ring_push(&ring, "more", 4, 1, NEVER));
	ring_unmap(&ring);
}

static void close_finishes_a_record(void)
{
	struct ring ring;
	int fds[2];

	begun(&ring, fds);
	close(fds[0]);
	CHECK_EQ(ring_state(&ring, 0), LDC_SENT);
	CHECK_EQ(ring_arg(&ring, 0), 1);
	CHECK_EQ(ring_state(&ring, 300), LDC_DEAD);
	CHECK_EQ(ring_arg(&ring, 300), LDC_REASON_CLOSED);
	CHECK_EQ(ring_slot(&ring, 300)->fate_of, 301);
	check_whole(fds[1]);
}

static void shutdown_finishes_a_record(void)
{
	struct ring ring;
	int fds[2];

	begun(&ring, fds);
	CHECK(!shutdown(fds[0], SHUT_WR));
	CHECK_EQ(ring_state(&ring, 0), LDC_SENT);
	CHECK_EQ(ring_arg(&ring, 300), LDC_REASON_CLOSED);
	CHECK(!ring_push(&ring, "more", 4, 1, NEVER));
	CHECK_ERR(ioctl(fds[0], LDC_IOC_NOTIFY), EPIPE);
	check_whole(fds[1]);
	/* The other direction goes on, and so do acknowledgements. */
	CHECK_EQ(send(fds[1], "still", 5, 0), 5);
	read_all(fds[0], got, 5);
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
	/* The second one is TCP's own. */
	CHECK(!shutdown(fds[0], SHUT_RDWR));
}

static void shutdown_of_reading(void)
{
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(!shutdown(fds[0], SHUT_RD));
	CHECK(ring_push(&ring, "on", 2, 1, NEVER));
	read_all(fds[1], got, 2);
	CHECK_ERR(shutdown(fds[0], 77), EINVAL);
}

static void linger_of_zero_resets(void)
{
	struct linger linger = { 1, 0 };
	struct ring ring;
	int fds[2];

	begun(&ring, fds);
	CHECK(!setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(fds[0]);
	CHECK_EQ(ring_state(&ring, 0), LDC_DEAD);
	CHECK_EQ(ring_arg(&ring, 0), LDC_REASON_CONNECTION_LOST);
	CHECK_EQ(ring_arg(&ring, 300), LDC_REASON_CONNECTION_LOST);
	while (read(fds[1], got, sizeof(got)) > 0)
		;
	CHECK_EQ(errno, ECONNRESET);
}

static void reset(int fd)
{
	struct linger linger = { 1, 0 };

	CHECK(!setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(fd);
}

static void reset_ends_the_ring(void)
{
	struct pollfd pfd = { .events = POLLOUT };
	struct ldc_stats stats;
	struct ring ring;
	int fds[2];

	begun(&ring, fds);
	reset(fds[1]);
	WAIT_FOR(ring_state(&ring, 0) == LDC_DEAD);
	CHECK_EQ(ring_arg(&ring, 0), LDC_REASON_CONNECTION_LOST);
	WAIT_FOR(ring_state(&ring, 300) == LDC_DEAD);
	CHECK_EQ(ring_arg(&ring, 300), LDC_REASON_CONNECTION_LOST);
	pfd.fd = fds[0];
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK(pfd.revents & POLLHUP);
	CHECK(!ring_push(&ring, "more", 4, 1, NEVER));
	CHECK_ERR(ioctl(fds[0], LDC_IOC_NOTIFY), EPIPE);
	ring_stats(fds[0], &stats);
	CHECK_EQ(stats.dropped_connection, 2);
	close(fds[0]);
}

static void reset_with_zerocopy(void)
{
	uint32_t on = 1;
	struct ring ring;
	int fds[2];

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 512, 1000);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &on, sizeof(on)));
	CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
	sleep_ms(400);
	CHECK_EQ(ring_state(&ring, 0), LDC_TAKEN);
	reset(fds[1]);
	WAIT_FOR(ring_state(&ring, 0) == LDC_DEAD);
	close(fds[0]);
	ring_unmap(&ring);
}

static void close_with_zerocopy(void)
{
	uint32_t on = 1;
	struct ring ring;
	int fds[2];

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 512, 1000);
	stream_fill(SEED, 0, data, sizeof(data));
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &on, sizeof(on)));
	CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
	sleep_ms(400);
	close(fds[0]);
	/* Pages are out until they are acknowledged. */
	CHECK_EQ(ring_state(&ring, 0), LDC_TAKEN);
	check_whole(fds[1]);
	WAIT_FOR(ring_state(&ring, 0) == LDC_SENT);
	CHECK_EQ(ring_arg(&ring, 0), 1);
}

/* Closed by the other side first; we still send. */
static void close_wait(void)
{
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK(!shutdown(fds[1], SHUT_WR));
	CHECK_EQ(read_end(fds[0]), 0);
	CHECK(ring_push(&ring, "after", 5, 1, NEVER));
	read_all(fds[1], got, 5);
	WAIT_FOR(ring_state(&ring, 0) == LDC_ACKED);
	close(fds[0]);
	CHECK_EQ(read_end(fds[1]), 0);
}

static unsigned long long region_bytes(void)
{
	unsigned long long bytes = 0;
	char line[128];
	FILE *file = fopen("/proc/net/tcp_ldc", "re");

	/* Not loaded yet. */
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "RegionBytes %llu", &bytes) == 1)
			break;
	fclose(file);
	return bytes;
}

static void killed_process_frees_everything(void)
{
	int fds[2], pushed[2], status;
	struct ring ring;
	pid_t pid;

	CHECK(!pipe(pushed));
	WAIT_FOR(!region_bytes());
	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(fds[1]);
		ring_open(&ring, fds[0], 512, 1000);
		stream_fill(SEED, 0, data, sizeof(data));
		CHECK(ring_push(&ring, data, sizeof(data), 1, NEVER));
		CHECK_EQ(write(pushed[1], "", 1), 1);
		pause();
	}
	close(fds[0]);
	read_all(pushed[0], (char[1]){ 0 }, 1);
	CHECK(region_bytes());
	CHECK(!kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	WAIT_FOR(!region_bytes());
	/* What it had begun is finished by the kernel. */
	stream_fill(SEED, 0, data, sizeof(data));
	check_whole(fds[1]);
}

static int delete_module(const char *name)
{
	return (int)syscall(SYS_delete_module, name, O_NONBLOCK);
}

static void unload_is_refused(void)
{
	struct ring ring;
	int fds[2];

	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
	CHECK_ERR(delete_module("tcp_ldc"), EWOULDBLOCK);
	close(fds[0]);
	/* The mapping holds it as well. */
	CHECK_ERR(delete_module("tcp_ldc"), EWOULDBLOCK);
	CHECK_EQ(read_end(fds[1]), 0);
	close(fds[1]);
	ring_unmap(&ring);
	WAIT_FOR(!delete_module("tcp_ldc"));
	/* And it comes back by its name. */
	tcp_pair(AF_INET, fds);
	ring_open(&ring, fds[0], 16, 64);
}

/* Pages are out in packets that nobody acknowledges; the module waits. */
static void unload_with_pages_out(void)
{
	uint32_t on = 1, user_timeout = 3000;
	struct ring ring;
	int fds[2];

	own_network(1500);
	tcp_pair_buffer(AF_INET, fds, SMALL_BUFFER);
	ring_open(&ring, fds[0], 512, 1000);
	CHECK(!setsockopt(fds[0], SOL_LDC, LDC_ZEROCOPY, &on, sizeof(on)));
	CHECK(!setsockopt(fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout,
			  sizeof(user_timeout)));
	CHECK(ring_push(&ring, data, 100000, 1, NEVER));
	sleep_ms(300);
	ring_unmap(&ring);
	close(fds[0]);
	/* An orphan with a closed window still has the protocol. */
	CHECK_ERR(delete_module("tcp_ldc"), EWOULDBLOCK);
	close(fds[1]);
	WAIT_FOR(!delete_module("tcp_ldc"));
}

static void again_and_again(void)
{
	unsigned int turn, turns = times(200);
	struct ring ring;
	int fds[2];

	for (turn = 0; turn < turns; turn++) {
		tcp_pair(turn & 1 ? AF_INET6 : AF_INET, fds);
		ring_open(&ring, fds[0], 16, 64);
		CHECK(ring_push(&ring, "turn", 4, 1, NEVER));
		if (turn & 2)
			close(fds[0]);
		CHECK_EQ(read(fds[1], got, 4), 4);
		if (turn & 4)
			reset(fds[1]);
		else
			close(fds[1]);
		if (!(turn & 2))
			close(fds[0]);
		ring_unmap(&ring);
	}
	WAIT_FOR(!region_bytes());
}

static const struct test tests[] = {
	{ "close() sends its FIN while mapped", close_while_mapped, 0 },
	{ "close() finishes a record that was begun", close_finishes_a_record, 0 },
	{ "shutdown() finishes a record that was begun", shutdown_finishes_a_record, 0 },
	{ "shutdown() of reading", shutdown_of_reading, 0 },
	{ "SO_LINGER of zero resets", linger_of_zero_resets, 0 },
	{ "a reset ends the ring", reset_ends_the_ring, 0 },
	{ "a reset with pages out", reset_with_zerocopy, 0 },
	{ "close() with pages out", close_with_zerocopy, 0 },
	{ "sending after the other side has closed", close_wait, 0 },
	{ "a killed process frees everything", killed_process_frees_everything, 0 },
	{ "unloading while attached is refused", unload_is_refused, 60 },
	{ "unloading while pages are out", unload_with_pages_out, 60 },
	{ "made and closed again and again", again_and_again, 120 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
