// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How many bytes TCP has been given that it could not send yet, looked at from aside. TCP_INFO is read under the
 * socket's lock: never amid a hand-over, as the ioctl SIOCOUTQNSD may be, when bytes are counted that have just been
 * handed over and leave before the lock is given back.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "layers.h"

#define EVERY	(5 * MS)

struct sampler {
	pthread_t thread;
	int fd;
	uint32_t segment;
	atomic_bool stop;
	uint64_t samples;
	uint64_t over;
	uint64_t sum;
	uint64_t most;
};

static void *run_sampler(void *context)
{
	struct sampler *sampler = context;
	uint64_t at = now_ns();

	while (!atomic_load(&sampler->stop)) {
		struct tcp_info info = { 0 };
		socklen_t len = sizeof(info);
		uint32_t unsent;

		sleep_until(at += EVERY);
		if (getsockopt(sampler->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
			continue;
		unsent = info.tcpi_notsent_bytes;
		sampler->samples++;
		sampler->sum += unsent;
		sampler->over += unsent > sampler->segment;
		if (unsent > sampler->most)
			sampler->most = unsent;
	}
	return NULL;
}

struct sampler *sampler_start(int fd, uint32_t segment)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));

	if (!sampler)
		return NULL;
	sampler->fd = fd;
	sampler->segment = segment;
	if (pthread_create(&sampler->thread, NULL, run_sampler, sampler)) {
		free(sampler);
		return NULL;
	}
	return sampler;
}

void sampler_stop(struct sampler *sampler, FILE *out)
{
	if (!sampler)
		return;
	atomic_store(&sampler->stop, true);
	pthread_join(sampler->thread, NULL);
	if (sampler->samples)
		fprintf(out, "\"unsent\": {\"segment\": %u, \"samples\": %llu, \"over_a_segment\": %llu, "
			"\"mean\": %llu, \"max\": %llu}, ", sampler->segment,
			(unsigned long long)sampler->samples, (unsigned long long)sampler->over,
			(unsigned long long)(sampler->sum / sampler->samples),
			(unsigned long long)sampler->most);
	free(sampler);
}
