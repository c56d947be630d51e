/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory stays flat over many records and handles. Argument: how many records. Ends with "memory: ok". */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Bytes that the allocator may take meanwhile. Eight bytes lost for each of a million records are more. */
#define ROOM (6 << 20)
/* How long the records may take. */
#define PATIENCE (600 * SECOND)

static long resident(void)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	long size, pages;

	CHECK(statm && fscanf(statm, "%ld %ld", &size, &pages) == 2);
	fclose(statm);
	return pages * sysconf(_SC_PAGESIZE);
}

static void connection(int ends[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof address));
	CHECK(!listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&address, &len));
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(ends[0], (struct sockaddr *)&address, sizeof address));
	ends[1] = accept(listener, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(listener);
}

/* Receives records until the end of the stream, and returns how many. */
static void *receive(void *fd)
{
	uint64_t *count = calloc(1, sizeof *count);
	fw_receiver receiver;
	fw_received record;
	uint8_t buffer[64];
	fw_status status;

	CHECK(count);
	OK(fw_receiver_new(*(int *)fd, 0, &receiver));
	while ((status = fw_receiver_next(receiver, PATIENCE, buffer, sizeof buffer, &record)) == FW_OK)
		++*count;
	CHECK(status == FW_END);
	OK(fw_receiver_free(receiver));
	return count;
}

/* Pushes and reads fates, as a program does that runs for long. */
static void push(fw_sink sink, uint64_t count, uint64_t *fates)
{
	fw_fate fate;

	for (uint64_t number = 0; number < count;) {
		fw_meta meta = { .key = number % 50 + 1, .deadline = fw_now() + PATIENCE };
		fw_status status = fw_sink_push(sink, (const uint8_t *)"a record of some bytes", 22, &meta, NULL);

		CHECK(status == FW_OK || status == FW_FULL);
		if (status == FW_OK)
			number++;
		else
			sched_yield();
		if (status == FW_FULL || number % 256 == 0)
			while (fw_sink_poll_fate(sink, &fate) == FW_OK)
				++*fates;
	}
}

/* Objects of every kind that needs no peer, made and freed. */
static void make_and_free(fw_sender sender, int times)
{
	for (int at = 0; at < times; at++) {
		fw_sink_config config = fw_sink_config_default();
		fw_rule rule = { .kind = FW_EXPIRED };
		uint32_t weights[] = { 1, 2, 3 };
		int ends[2];
		fw_adaptive adaptive;
		fw_sender other;
		fw_gate gate;
		fw_sink sink;

		OK(fw_gate_new(4, &gate));
		OK(fw_adaptive_new(&adaptive));
		config.policy = (fw_policy){
			.kind = at % 2 ? FW_RULES : FW_ADAPTIVE,
			.rules = &rule,
			.rule_count = 1,
			.order = FW_BY_TURN,
			.weights = weights,
			.weight_count = 3,
			.gate = gate,
			.adaptive = adaptive,
		};
		connection(ends);
		OK(fw_sender_add_sink(sender, ends[0], &config, &sink));
		OK(fw_gate_acknowledge(gate, 1));
		OK(fw_sink_close(sink, FW_ABORT, PATIENCE, &(fw_ended){ 0 }));
		OK(fw_sink_free(sink));
		OK(fw_gate_free(gate));
		OK(fw_adaptive_free(adaptive));
		OK(fw_sender_new((fw_engine){ 0 }, NULL, &other));
		OK(fw_sender_free(other));
		CHECK(fw_sink_push(sink, NULL, 0, NULL, NULL) == FW_DEAD_HANDLE && *fw_last_error());
		close(ends[0]);
		close(ends[1]);
	}
}

int main(int argc, char **argv)
{
	uint64_t records = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, fates = 0, *received;
	fw_ring ring = { .rings = 2, .slots = 4096, .block_bytes = 64, .blocks = 8192 };
	fw_sink_config config = fw_sink_config_default();
	fw_engine engine;
	fw_sender sender;
	pthread_t reader;
	int ends[2];
	fw_sink sink;
	long before;

	CHECK(records >= 1000);
	OK(fw_engine_new(&engine));
	OK(fw_sender_new(engine, &ring, &sender));
	connection(ends);
	config.framing = FW_CHUNKED;
	config.ack_fates = 0;
	OK(fw_sender_add_sink(sender, ends[0], &config, &sink));
	close(ends[0]);
	CHECK(!pthread_create(&reader, NULL, receive, &ends[1]));
	push(sink, records / 10, &fates);
	make_and_free(sender, 50);
	before = resident();
	push(sink, records, &fates);
	make_and_free(sender, 500);
	CHECK(resident() - before < ROOM);
	OK(fw_sink_close(sink, FW_DRAIN, PATIENCE, &(fw_ended){ 0 }));
	CHECK(!pthread_join(reader, (void **)&received));
	CHECK(*received == records + records / 10);
	CHECK(fates > records / 2);
	free(received);
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender));
	OK(fw_engine_free(engine));
	close(ends[1]);
	printf("memory: ok\n");
	return 0;
}
