// SPDX-License-Identifier: GPL-2.0-only
/* Each call of the device and its errors; mappings, limits, unloading. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "pair.h"

static struct pair pair;

static int device(void)
{
	int fd = open(PKT_PUSH_DEVICE, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	return fd;
}

static int attach(int dev, int fd, uint64_t bytes, uint32_t records)
{
	struct pkt_push_attach wanted = { .fd = fd, .data_bytes = bytes,
					  .records = records };

	return ioctl(dev, PKT_PUSH_ATTACH, &wanted);
}

static void attaching(void)
{
	struct pkt_push_attach wanted = { .data_bytes = 8192 };
	int dev = device(), other = device(), fd = udp(), fds[2];

	CHECK_ERR(ioctl(dev, PKT_PUSH_ATTACH, NULL), EFAULT);
	CHECK_ERR(attach(dev, -1, 8192, 0), EBADF);
	CHECK_ERR(attach(dev, dev, 8192, 0), ENOTSOCK);
	CHECK_ERR(attach(dev, socket(AF_INET, SOCK_STREAM, 0), 8192, 0),
		  EOPNOTSUPP);
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, fds));
	CHECK_ERR(attach(dev, fds[0], 8192, 0), EOPNOTSUPP);
	CHECK_ERR(attach(dev, socket(AF_INET, SOCK_RAW, IPPROTO_UDP), 8192, 0),
		  EOPNOTSUPP);
	CHECK_ERR(attach(dev, fd, 0, 0), EINVAL);
	CHECK_ERR(attach(dev, fd, 2048, 0), EINVAL);
	CHECK_ERR(attach(dev, fd, 12288, 0), EINVAL);
	CHECK_ERR(attach(dev, fd, 1ULL << 31, 0), EINVAL);
	CHECK_ERR(attach(dev, fd, ~0ULL, 0), EINVAL);
	CHECK_ERR(attach(dev, fd, 8192, 1), EINVAL);
	CHECK_ERR(attach(dev, fd, 8192, ~0U), EINVAL);
	wanted.fd = fd;
	wanted.flags = 1;
	CHECK_ERR(ioctl(dev, PKT_PUSH_ATTACH, &wanted), EINVAL);
	wanted.flags = 0;
	wanted.reserved = 1;
	CHECK_ERR(ioctl(dev, PKT_PUSH_ATTACH, &wanted), EINVAL);
	wanted.reserved = 0;
	wanted.total_bytes = 8192;
	CHECK_ERR(ioctl(dev, PKT_PUSH_ATTACH, &wanted), EINVAL);
	wanted.total_bytes = 0;
	wanted.records = 9;
	CHECK(!ioctl(dev, PKT_PUSH_ATTACH, &wanted));
	CHECK_EQ(wanted.total_bytes, 8192 + 4096);
	CHECK_EQ(wanted.records, 16);
	/* One socket for a device, one device for a socket. */
	CHECK_ERR(attach(dev, udp(), 8192, 0), EEXIST);
	CHECK_ERR(attach(other, fd, 8192, 0), EBUSY);
	CHECK(!attach(other, udp(), 8192, 0));
}

static void before_attaching(void)
{
	struct pkt_push_stats stats;
	uint64_t bytes = 1;
	int dev = device();

	CHECK_ERR(ioctl(dev, PKT_PUSH_STATS, &stats), ENXIO);
	CHECK_ERR(ioctl(dev, PKT_PUSH_THRESHOLD, &bytes), ENXIO);
	CHECK_ERR(ioctl(dev, PKT_PUSH_NOW), ENXIO);
	CHECK_ERR(ioctl(dev, PKT_PUSH_RESET), ENXIO);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, dev, 0) == MAP_FAILED);
	CHECK_EQ(errno, ENXIO);
}

static void calls(void)
{
	struct pkt_push_stats stats;
	uint64_t bytes = 1ULL << 31;
	uint32_t policy = 2;
	int dev = device(), fd = udp();

	CHECK(!attach(dev, fd, 8192, 0));
	CHECK_ERR(ioctl(dev, PKT_PUSH_THRESHOLD, &bytes), EINVAL);
	CHECK_ERR(ioctl(dev, PKT_PUSH_THRESHOLD, NULL), EFAULT);
	CHECK_ERR(ioctl(dev, PKT_PUSH_POLICY, &policy), EINVAL);
	CHECK_ERR(ioctl(dev, PKT_PUSH_POLICY, NULL), EFAULT);
	CHECK_ERR(ioctl(dev, PKT_PUSH_STATS, NULL), EFAULT);
	CHECK_ERR(ioctl(dev, _IO(PKT_PUSH_MAGIC, 99)), ENOTTY);
	bytes = 5000;
	CHECK(!ioctl(dev, PKT_PUSH_THRESHOLD, &bytes));
	CHECK(!ioctl(dev, PKT_PUSH_STATS, &stats));
	CHECK_EQ(stats.threshold, 5000);
	CHECK_EQ(stats.mapped_bytes, 8192 + 4096);
	bytes = PKT_PUSH_ADAPTIVE;
	CHECK(!ioctl(dev, PKT_PUSH_THRESHOLD, &bytes));
	CHECK_EQ(ioctl(dev, PKT_PUSH_NOW), 0);
	CHECK(!ioctl(dev, PKT_PUSH_RESET));
	close(fd);
	CHECK_ERR(ioctl(dev, PKT_PUSH_NOW), ENOTCONN);
	CHECK(!ioctl(dev, PKT_PUSH_STATS, &stats));
}

static void mappings(void)
{
	struct pkt_push_region *region;
	const int both = PROT_READ | PROT_WRITE;
	int dev = device();
	size_t total = 8192 + 4096;

	CHECK(!attach(dev, udp(), 8192, 0));
	CHECK(mmap(NULL, 4096, both, MAP_SHARED, dev, 0) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK(mmap(NULL, total + 4096, both, MAP_SHARED, dev, 0) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK(mmap(NULL, total, both, MAP_SHARED, dev, 4096) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK(mmap(NULL, total, both, MAP_PRIVATE, dev, 0) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	CHECK(mmap(NULL, total, both | PROT_EXEC, MAP_SHARED, dev, 0) == MAP_FAILED);
	CHECK_EQ(errno, EPERM);
	region = mmap(NULL, total, both, MAP_SHARED, dev, 0);
	CHECK(region != MAP_FAILED);
	CHECK_ERR(mprotect(region, total, both | PROT_EXEC), EACCES);
	CHECK(mremap(region, total, total + 4096, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK_EQ(region->magic, PKT_PUSH_REGION_MAGIC);
	CHECK_EQ(region->version, PKT_PUSH_VERSION);
	CHECK_EQ(region->data_offset, 4096);
	CHECK_EQ(region->data_bytes, 8192);
	CHECK_EQ(region->total_bytes, total);
	CHECK_EQ(region->head, 0);
	CHECK_EQ(region->tail, 0);
}

/* The memory is charged like pinned memory, and given back. */
static void memory_is_accounted(void)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	int dev = device(), turn, fd;

	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK(!setresuid(65534, 65534, 65534));
	fd = udp();
	CHECK_ERR(attach(dev, fd, 1 << 20, 0), ENOBUFS);
	for (turn = 0; turn < 20; turn++) {
		dev = device();
		fd = udp();
		/* Freed a little later, by RCU. */
		WAIT_FOR(!attach(dev, fd, 1 << 18, 0));
		CHECK_ERR(attach(device(), udp(), 1 << 19, 0), ENOBUFS);
		close(dev);
		close(fd);
	}
}

static int unload(void)
{
	return (int)syscall(SYS_delete_module, "pkt_push", O_NONBLOCK);
}

/* Whoever else is attached is another test's; each runs alone. */
static void unloading_is_refused(void)
{
	int dev = device(), fd = udp();

	CHECK_ERR(unload(), EAGAIN);
	CHECK(!attach(dev, fd, 8192, 0));
	close(dev);
	CHECK_ERR(unload(), EAGAIN);
	/* The copy is the socket, too. */
	CHECK(dup2(fd, 100) == 100);
	close(fd);
	CHECK_ERR(unload(), EAGAIN);
	close(100);
	CHECK(!unload());
	CHECK(!system("modprobe pkt_push"));
	CHECK(device() >= 0);
}

static void others_are_refused(void)
{
	int version = PF_INET;

	/* ADDRFORM would give the socket to IPv4, past us. */
	pair_open(&pair, AF_INET6, true, 0);
	CHECK(!connect(pair.receiver, (struct sockaddr *)&(struct sockaddr_in6){
		.sin6_family = AF_INET6, .sin6_port = htons(9),
		.sin6_addr.s6_addr = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 } },
		sizeof(struct sockaddr_in6)));
	pair_attach(&pair, NULL);
	CHECK_ERR(setsockopt(pair.receiver, SOL_IPV6, IPV6_ADDRFORM, &version, 4),
		  EBUSY);
}

/* The threshold of the document, for the size that the buffer has now. */
static void the_rule(void)
{
	struct pkt_push_stats stats;
	int size, half;
	socklen_t len = sizeof(size);

	pair_push(&pair, AF_INET, 0, NULL);
	for (half = 20000; half < 200000; half *= 3) {
		CHECK(!setsockopt(pair.receiver, SOL_SOCKET, SO_RCVBUFFORCE, &half,
				  sizeof(half)));
		CHECK(!getsockopt(pair.receiver, SOL_SOCKET, SO_RCVBUF, &size, &len));
		CHECK(!push_reset(pair.push));
		pair_stats(&pair, &stats);
		/* Nothing was pushed yet, so nothing is expected to come during it. */
		CHECK_EQ(stats.threshold, 2ULL * (unsigned int)size / 3);
		pair_send(&pair, 1, 1000);
		sleep_ms(20);
		pair_send(&pair, 2, 1000);
		CHECK_EQ(push_now(pair.push), 2);
		pair_stats(&pair, &stats);
		CHECK_EQ(stats.pushes, 1);
		CHECK_EQ(stats.push_ns, stats.last_ns);
		/* Fast: half of the last gap, at least; a thing of milliseconds. */
		CHECK(stats.gap_ns >= 10000000);
		CHECK_EQ(stats.threshold, 2ULL * (unsigned int)size / 3);
	}
}

static const struct test tests[] = {
	{ "attaching", attaching, 0 },
	{ "before attaching", before_attaching, 0 },
	{ "each call", calls, 0 },
	{ "mappings", mappings, 0 },
	{ "memory is accounted", memory_is_accounted, 0 },
	{ "unloading is refused while attached", unloading_is_refused, 0 },
	{ "what would go past us is refused", others_are_refused, 0 },
	{ "the rule", the_rule, 0 },
	TESTS_END
};

int main(void)
{
	return run_tests(tests);
}
