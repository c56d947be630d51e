// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * layers receive [--sctp] PORT SECONDS
 * layers send SCHEME CONGESTION ADDRESS PORT SECONDS
 *
 * One end of one run of the layered-video experiment. The result is one JSON object on standard
 * output. SCHEME: tcp, ring-thesis, ring-deadline, ring-deadline-h0, ring-deadline-zc,
 * ring-base, sctp-ttl, sctp-prio.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "layers.h"

static int connect_to(const char *address, const char *port, bool sctp, const char *congestion)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};
	int fd = socket(AF_INET, SOCK_STREAM, sctp ? IPPROTO_SCTP : IPPROTO_TCP);

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return -1;
	if (!sctp && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
				(socklen_t)strlen(congestion)))
		return -1;
	return connect(fd, (struct sockaddr *)&to, sizeof(to)) ? -1 : fd;
}

static uint32_t segment_of(int fd)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len);
	return mss > 0 ? (uint32_t)mss : 0;
}

static const struct ring_scheme ring_schemes[] = {
	{ .name = "ring-thesis" },
	{ .name = "ring-deadline", .kernel_drops = true },
	{ .name = "ring-deadline-h0", .kernel_drops = true, .no_horizon = true },
	{ .name = "ring-deadline-zc", .kernel_drops = true, .zerocopy = true },
	{ .name = "ring-base", .kernel_drops = true, .keeps_base = true },
};

static int send_scheme(struct run *run, const char *scheme)
{
	size_t i;

	if (!strcmp(scheme, "tcp"))
		return send_tcp(run);
	for (i = 0; i < sizeof(ring_schemes) / sizeof(ring_schemes[0]); i++)
		if (!strcmp(scheme, ring_schemes[i].name))
			return send_ring(run, &ring_schemes[i], stdout);
	return send_sctp(run, !strcmp(scheme, "sctp-prio"));
}

static void print_records(const struct run *run)
{
	uint64_t seq;

	printf("\"records\": [");
	for (seq = 0; seq < records_of(run); seq++)
		printf("%s[%llu, \"%s\"]", seq ? ", " : "",
		       (unsigned long long)run->sent[seq].committed,
		       run->sent[seq].fate ? run->sent[seq].fate : "unsent");
	printf("]}\n");
}

static int send_stream(char **argv)
{
	const char *scheme = argv[0];
	bool sctp = !strncmp(scheme, "sctp", 4);
	struct run run = { .seconds = (unsigned int)atoi(argv[4]) };
	/* The rest is of no use to anybody when the time is over. */
	struct linger abort_on_close = { .l_onoff = 1, .l_linger = 0 };
	struct sampler *sampler = NULL;
	int failed;

	run.fd = connect_to(argv[2], argv[3], sctp, argv[1]);
	run.sent = calloc(records_of(&run), sizeof(*run.sent));
	if (run.fd < 0 || !run.sent) {
		perror("cannot connect");
		return 1;
	}
	setsockopt(run.fd, SOL_SOCKET, SO_LINGER, &abort_on_close, sizeof(abort_on_close));
	run.start = now_ns() + LEAD;
	run.stop = run.start + run.seconds * SECOND + DEADLINE;
	if (!sctp)
		sampler = sampler_start(run.fd, segment_of(run.fd));
	printf("{\"scheme\": \"%s\", ", scheme);
	failed = send_scheme(&run, scheme);
	if (failed)
		perror(scheme);
	sampler_stop(sampler, stdout);
	printf("\"failed\": %s, \"sent_bytes\": %llu, \"syscalls\": %llu, \"late_ns\": %llu, ",
	       failed ? "true" : "false", (unsigned long long)run.sent_bytes,
	       (unsigned long long)run.syscalls, (unsigned long long)run.late);
	print_records(&run);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 7 && !strcmp(argv[1], "send"))
		return send_stream(argv + 2);
	if (argc == 5 && !strcmp(argv[1], "receive") && !strcmp(argv[2], "--sctp"))
		return receive(argv[3], true, (unsigned int)atoi(argv[4]), stdout);
	if (argc == 4 && !strcmp(argv[1], "receive"))
		return receive(argv[2], false, (unsigned int)atoi(argv[3]), stdout);
	fprintf(stderr, "usage: layers receive [--sctp] PORT SECONDS\n"
		"       layers send SCHEME CONGESTION ADDRESS PORT SECONDS\n");
	return 2;
}
