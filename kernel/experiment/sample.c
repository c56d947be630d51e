// SPDX-License-Identifier: MIT OR Apache-2.0
/* How many bytes TCP has been given that it could not send yet, looked at from aside. */
#include <linux/sockios.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>

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
		int unsent;

		sleep_until(at += EVERY);
		if (ioctl(sampler->fd, SIOCOUTQNSD, &unsent) || unsent < 0)
			continue;
		sampler->samples++;
		sampler->sum += (uint64_t)unsent;
		sampler->over += (uint32_t)unsent > sampler->segment;
		if ((uint64_t)unsent > sampler->most)
			sampler->most = (uint64_t)unsent;
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
