// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "harness.h"
#include "peer.h"

static socklen_t loopback(int family, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	address->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		((struct sockaddr_in *)address)->sin_addr.s_addr =
			htonl(INADDR_LOOPBACK);
		return sizeof(struct sockaddr_in);
	}
	((struct sockaddr_in6 *)address)->sin6_addr = in6addr_loopback;
	return sizeof(struct sockaddr_in6);
}

void tcp_pair_buffer(int family, int fds[2], int rcvbuf)
{
	struct sockaddr_storage address;
	socklen_t len = loopback(family, &address);
	int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(listener >= 0);
	if (rcvbuf)
		CHECK(!setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &rcvbuf,
				  sizeof(rcvbuf)));
	CHECK(!bind(listener, (struct sockaddr *)&address, len));
	CHECK(!listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	fds[0] = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fds[0] >= 0);
	CHECK(!connect(fds[0], (struct sockaddr *)&address, len));
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	CHECK(fds[1] >= 0);
	close(listener);
}

void tcp_pair(int family, int fds[2])
{
	tcp_pair_buffer(family, fds, 0);
}

void own_network(unsigned int mtu)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd;

	if (unshare(CLONE_NEWNET))
		skip("no network namespace: %m");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	request.ifr_mtu = (int)mtu;
	CHECK(!ioctl(fd, SIOCSIFMTU, &request));
	CHECK(!ioctl(fd, SIOCGIFFLAGS, &request));
	request.ifr_flags |= IFF_UP;
	CHECK(!ioctl(fd, SIOCSIFFLAGS, &request));
	close(fd);
}

void use_congestion(int fd, const char *name)
{
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name,
		       (socklen_t)strlen(name)))
		skip("no congestion control %s: %m", name);
}

void read_all(int fd, void *to, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = read(fd, (char *)to + done, len - done);
		if (n <= 0)
			FAIL("read() gives %zd after %zu of %zu bytes: %m", n,
			     done, len);
		done += (size_t)n;
	}
}

size_t read_to_end(int fd, void *to, size_t max)
{
	size_t done = 0;
	ssize_t n = 1;

	while (done < max && n > 0) {
		n = read(fd, (char *)to + done, max - done);
		if (n < 0)
			FAIL("read() after %zu bytes: %m", done);
		done += (size_t)n;
	}
	return done;
}

int read_end(int fd)
{
	char byte;
	ssize_t n = read(fd, &byte, 1);

	return n < 0 ? -errno : (int)n;
}

uint32_t unsent(int fd)
{
	int bytes;

	CHECK(!ioctl(fd, SIOCOUTQNSD, &bytes));
	return (uint32_t)bytes;
}

uint8_t stream_byte(uint64_t seed, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ULL + seed;

	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9ULL;
	return (uint8_t)(x >> 56);
}

void stream_fill(uint64_t seed, uint64_t at, void *to, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		((uint8_t *)to)[i] = stream_byte(seed, at + i);
}
