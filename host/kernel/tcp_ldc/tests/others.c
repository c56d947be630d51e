// SPDX-License-Identifier: GPL-2.0-only
/* What everything else does that can meet an attached socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/bpf.h>

#include "harness.h"
#include "peer.h"
#include "ring.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static struct ring ring;
static int fds[2];

static void open_pair(int family)
{
	tcp_pair(family, fds);
	ring_open(&ring, fds[0], 16, 64);
}

static void check_works(void)
{
	char got[6];

	CHECK(ring_push(&ring, "works!", 6, 1, NEVER));
	read_all(fds[1], got, 6);
	CHECK(!memcmp(got, "works!", 6));
}

static void plain_send(void)
{
	struct iovec iov = { "plain", 5 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct mmsghdr many = { .msg_hdr = msg };

	open_pair(AF_INET);
	CHECK_ERR(send(fds[0], "plain", 5, 0), EBUSY);
	CHECK_ERR(send(fds[0], "!", 1, MSG_OOB), EBUSY);
	CHECK_ERR(send(fds[0], "plain", 5, MSG_ZEROCOPY), EBUSY);
	CHECK_ERR(write(fds[0], "plain", 5), EBUSY);
	CHECK_ERR(writev(fds[0], &iov, 1), EBUSY);
	CHECK_ERR(sendmsg(fds[0], &msg, MSG_MORE), EBUSY);
	CHECK_ERR(sendmmsg(fds[0], &many, 1, 0), EBUSY);
	check_works();
	/* Receiving is TCP's own. */
	CHECK_EQ(send(fds[1], "back", 4, 0), 4);
	read_all(fds[0], (char[4]){}, 4);
}

static void sendfile_and_splice(void)
{
	int file = memfd_create("file", MFD_CLOEXEC), pipes[2];

	CHECK(file >= 0 && !pipe(pipes));
	CHECK_EQ(write(file, "sendfile", 8), 8);
	open_pair(AF_INET6);
	CHECK_ERR(sendfile(fds[0], file, &(off_t){ 0 }, 8), EBUSY);
	CHECK_EQ(write(pipes[1], "splice", 6), 6);
	CHECK_ERR(splice(pipes[0], NULL, fds[0], NULL, 6, 0), EBUSY);
	check_works();
	/* The other direction is TCP's own. */
	CHECK_EQ(send(fds[1], "in", 2, 0), 2);
	CHECK_EQ(splice(fds[0], NULL, pipes[1], NULL, 2, 0), 2);
}

static void a_second_ulp(void)
{
	open_pair(AF_INET);
	CHECK_ERR(setsockopt(fds[0], IPPROTO_TCP, TCP_ULP, "tls", 3), EEXIST);
	CHECK_ERR(setsockopt(fds[0], IPPROTO_TCP, TCP_ULP, "ldc", 3), EEXIST);
	check_works();
	if (setsockopt(fds[1], IPPROTO_TCP, TCP_ULP, "tls", 3))
		skip("no kernel TLS: %m");
	CHECK_ERR(setsockopt(fds[1], IPPROTO_TCP, TCP_ULP, "ldc", 3), EEXIST);
}

static void its_name_is_told(void)
{
	char name[16] = "";
	socklen_t len = sizeof(name);

	open_pair(AF_INET);
	CHECK(!getsockopt(fds[0], IPPROTO_TCP, TCP_ULP, name, &len));
	CHECK(!strcmp(name, "ldc"));
}

/* MPTCP answers before we are asked, in words that depend on its version. */
static void refused_by_mptcp(int fd)
{
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_ULP, "ldc", 3) == -1);
	CHECK(errno == EOPNOTSUPP || errno == ENOPROTOOPT || errno == EEXIST);
}

static void mptcp(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);

	if (listener < 0 || fd < 0)
		skip("no MPTCP: %m");
	CHECK(!bind(listener, (struct sockaddr *)&address, len));
	CHECK(!listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	CHECK(!connect(fd, (struct sockaddr *)&address, len));
	refused_by_mptcp(fd);
	/* The same where the other side speaks plain TCP. */
	close(fd);
	close(listener);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	address.sin_port = 0;
	CHECK(!bind(listener, (struct sockaddr *)&address, len));
	CHECK(!listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	CHECK(!connect(fd, (struct sockaddr *)&address, len));
	refused_by_mptcp(fd);
}

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int sockmap_add(int map, int fd)
{
	uint32_t key = 0, value = (uint32_t)fd;
	union bpf_attr attr = {
		.map_fd = (uint32_t)map,
		.key = (uintptr_t)&key,
		.value = (uintptr_t)&value,
	};

	return bpf(BPF_MAP_UPDATE_ELEM, &attr);
}

static void sockmap(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_SOCKMAP,
		.key_size = 4, .value_size = 4, .max_entries = 1,
	};
	int map = bpf(BPF_MAP_CREATE, &attr);

	if (map < 0)
		skip("no sockmap: %m");
	open_pair(AF_INET);
	CHECK_ERR(sockmap_add(map, fds[0]), EINVAL);
	check_works();
	/* And the other way round. */
	tcp_pair(AF_INET, fds);
	CHECK(!sockmap_add(map, fds[0]));
	CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_ULP, "ldc", 3) == -1);
	CHECK(errno == EBUSY || errno == EINVAL || errno == EOPNOTSUPP);
	CHECK_EQ(send(fds[0], "plain", 5, 0), 5);
}

/* A child has the socket, not the memory; closed is what all have closed. */
static void fork_and_exec(void)
{
	unsigned char resident;
	int status;
	pid_t pid;

	open_pair(AF_INET);
	CHECK(ring_push(&ring, "parent", 6, 1, NEVER));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (!mincore(ring.base, 4096, &resident) || errno != ENOMEM)
			_exit(1);
		ring_map(&ring, fds[0]);
		if (ioctl(fds[0], LDC_IOC_NOTIFY))
			_exit(2);
		if (ring.head->user_i != 1)
			_exit(3);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	read_all(fds[1], (char[6]){}, 6);
	check_works();
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		pause();
		_exit(0);
	}
	close(fds[0]);
	/* The child still has it. */
	CHECK_ERR(recv(fds[1], (char[1]){}, 1, MSG_DONTWAIT), EAGAIN);
	CHECK(!kill(pid, SIGKILL));
	CHECK_EQ(read_end(fds[1]), 0);
}

static void connect_to_nowhere(void)
{
	struct sockaddr nowhere = { .sa_family = AF_UNSPEC };

	open_pair(AF_INET);
	CHECK_ERR(connect(fds[0], &nowhere, sizeof(nowhere)), EOPNOTSUPP);
	check_works();
}

static void family_cannot_change(void)
{
	int family = AF_INET;

	open_pair(AF_INET6);
	CHECK(setsockopt(fds[0], IPPROTO_IPV6, IPV6_ADDRFORM, &family,
			 sizeof(family)) == -1);
	check_works();
}

/* An IPv6 socket that speaks IPv4. */
static void mapped_address(void)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6 };
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	socklen_t v4_len = sizeof(v4);

	CHECK(!bind(listener, (struct sockaddr *)&v4, v4_len));
	CHECK(!listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&v4, &v4_len));
	address.sin6_addr.s6_addr[10] = 0xff;
	address.sin6_addr.s6_addr[11] = 0xff;
	address.sin6_addr.s6_addr[12] = 127;
	address.sin6_addr.s6_addr[15] = 1;
	address.sin6_port = v4.sin_port;
	fds[0] = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(!connect(fds[0], (struct sockaddr *)&address, len));
	fds[1] = accept(listener, NULL, NULL);
	ring_open(&ring, fds[0], 16, 64);
	check_works();
	close(fds[0]);
	CHECK_EQ(read_end(fds[1]), 0);
}

static void told_by_diagnostics(void)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	open_pair(AF_INET);
	check_works();
	CHECK(!getsockopt(fds[0], IPPROTO_TCP, TCP_INFO, &info, &len));
	CHECK_EQ(info.tcpi_state, TCP_ESTABLISHED);
}

static const struct test tests[] = {
	{ "plain send and write are refused", plain_send, 0 },
	{ "sendfile and splice are refused", sendfile_and_splice, 0 },
	{ "a second upper-layer protocol is refused", a_second_ulp, 0 },
	{ "TCP_ULP tells the name", its_name_is_told, 0 },
	{ "MPTCP is refused", mptcp, 0 },
	{ "sockmap is refused, both ways", sockmap, 0 },
	{ "a child has the socket and not the memory", fork_and_exec, 0 },
	{ "connect() to nowhere is refused", connect_to_nowhere, 0 },
	{ "IPV6_ADDRFORM is refused", family_cannot_change, 0 },
	{ "IPv4 through an IPv6 socket", mapped_address, 0 },
	{ "TCP_INFO", told_by_diagnostics, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
