/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The Rust tests `loopback`, `engine` and `state` through C: what a user relies on over loopback. Ends with "loopback: ok". */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIZE 4096

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* An engine, a sender, a sink and its peer. */
struct fixture {
	fw_engine engine;
	fw_sender sender;
	fw_sink sink;
	int far;
};

static void connection(int family, int ends[2])
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr *address = family == AF_INET ? (void *)&v4 : (void *)&v6;
	socklen_t len = family == AF_INET ? sizeof v4 : sizeof v6;
	int listener = socket(family, SOCK_STREAM, 0);

	CHECK(listener >= 0 && !bind(listener, address, len));
	CHECK(!listen(listener, 1) && !getsockname(listener, address, &len));
	ends[0] = socket(family, SOCK_STREAM, 0);
	CHECK(!connect(ends[0], address, len));
	ends[1] = accept(listener, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(listener);
}

static fw_sink add(fw_sender sender, fw_sink_config config, int *far)
{
	int ends[2];
	fw_sink sink;

	connection(AF_INET, ends);
	OK(fw_sender_add_sink(sender, ends[0], &config, &sink));
	close(ends[0]);
	*far = ends[1];
	return sink;
}

static struct fixture fixture(fw_sink_config config)
{
	fw_ring ring = { .rings = 1, .slots = 64, .block_bytes = SIZE, .blocks = 64 };
	struct fixture it;

	OK(fw_engine_new(&it.engine));
	OK(fw_sender_new(it.engine, &ring, &it.sender));
	it.sink = add(it.sender, config, &it.far);
	return it;
}

static void end(struct fixture it)
{
	OK(fw_sink_free(it.sink));
	OK(fw_sender_free(it.sender));
	OK(fw_engine_free(it.engine));
	close(it.far);
}

static fw_status push(fw_sink sink, const char *text, fw_meta meta)
{
	return fw_sink_push(sink, (const uint8_t *)text, strlen(text), &meta, NULL);
}

/* Pushes until nothing moves any more: the reader's window is full, and the rest is in the ring. Numbers count from 1. */
static uint64_t fill(fw_sink sink)
{
	static const uint8_t zeros[SIZE];
	uint64_t limit = fw_now() + LIMIT, pushed = 0;
	fw_stats before, after;

	for (;;) {
		fw_meta meta = { .seq = pushed + 1 };
		fw_status status = fw_sink_push(sink, zeros, SIZE, &meta, NULL);

		CHECK(status == FW_OK || status == FW_FULL);
		CHECK(fw_now() < limit);
		if (status == FW_OK) {
			pushed++;
			continue;
		}
		OK(fw_sink_stats(sink, &before));
		pause_ms(200);
		OK(fw_sink_stats(sink, &after));
		if (before.committed == after.committed)
			return pushed;
	}
}

/* What a reader on a thread has read. */
struct reader {
	pthread_t thread;
	int fd;
	size_t count;
	char last[SIZE];
};

static void *read_all(void *context)
{
	struct reader *reader = context;
	char buffer[SIZE];
	ssize_t got;

	while ((got = read(reader->fd, buffer, sizeof buffer)) > 0)
		for (ssize_t at = 0; at < got; at++)
			reader->last[reader->count++ % SIZE] = buffer[at];
	CHECK(got == 0);
	return NULL;
}

static void read_begin(struct reader *reader, int fd)
{
	*reader = (struct reader){ .fd = fd };
	CHECK(!pthread_create(&reader->thread, NULL, read_all, reader));
}

static void drained(fw_sink sink, fw_close mode, struct reader *reader)
{
	fw_ended ended;

	OK(fw_sink_close(sink, mode, LIMIT, &ended));
	CHECK(ended == FW_ENDED_CLOSED);
	if (reader)
		JOIN(reader->thread);
}

static void records_arrive_over_ipv6(void)
{
	fw_ring ring = fw_ring_default();
	struct reader reader;
	fw_engine engine;
	fw_sender sender;
	fw_fate fate;
	fw_sink sink;
	int ends[2];

	OK(fw_engine_new(&engine));
	OK(fw_sender_new(engine, &ring, &sender));
	connection(AF_INET6, ends);
	OK(fw_sender_add_sink(sender, ends[0], NULL, &sink));
	close(ends[0]);
	for (uint64_t seq = 1; seq <= 50; seq++)
		OK(push(sink, "8 bytes.", (fw_meta){ .seq = seq }));
	read_begin(&reader, ends[1]);
	drained(sink, FW_DRAIN, &reader);
	CHECK(reader.count == 400);
	for (uint64_t seq = 1; seq <= 50; seq++) {
		OK(fw_sink_poll_fate(sink, &fate));
		CHECK(fate.seq == seq && fate.outcome == FW_ACKED);
		CHECK(fate.committed_at <= fate.finished_at && fate.finished_at <= fate.acked_at);
	}
	IS(FW_NOTHING, fw_sink_poll_fate(sink, &fate));
	end((struct fixture){ engine, sender, sink, ends[1] });
}

static void a_stalled_receiver_leaves_the_choice(void)
{
	fw_sink_config config = fw_sink_config_default();
	fw_change change = { .what = FW_CHANGE_DATA, .data = (const uint8_t *)"changed", .len = 7 };
	uint64_t newest, dropped = 0;
	struct reader reader;
	struct fixture it;
	fw_stats stats;

	config.reserve = 1;
	it = fixture(config);
	newest = fill(it.sink);
	OK(fw_sink_stats(it.sink, &stats));
	/* Loopback's segment is 64 kB; nothing reads, so all that is unsent is one segment at most. */
	CHECK(stats.horizon_max <= 65535);
	for (uint64_t seq = 1; seq < newest; seq++)
		dropped += fw_sink_drop(it.sink, seq) == FW_OK;
	CHECK(dropped > 30);
	OK(fw_sink_modify(it.sink, newest, &change));
	read_begin(&reader, it.far);
	drained(it.sink, FW_DRAIN, &reader);
	CHECK(reader.count == (newest - dropped) * SIZE);
	CHECK(!memcmp(reader.last, "changed", 8));
	end(it);
}

static void nothing_expired_is_committed(void)
{
	fw_sink_config config = fw_sink_config_default();
	struct reader reader;
	struct fixture it;
	fw_fate fate;

	config.policy.kind = FW_DEADLINE;
	it = fixture(config);
	OK(push(it.sink, "late", (fw_meta){ .seq = 1, .deadline = fw_now() - 1 }));
	OK(push(it.sink, "fresh", (fw_meta){ .seq = 2, .deadline = fw_now() + LIMIT }));
	read_begin(&reader, it.far);
	drained(it.sink, FW_DRAIN, &reader);
	CHECK(reader.count == 5 && !memcmp(reader.last, "fresh", 5));
	OK(fw_sink_poll_fate(it.sink, &fate));
	CHECK(fate.seq == 1 && fate.outcome == FW_DROPPED && fate.reason == 1);
	end(it);
}

static void closing_finishes_the_record_in_progress(void)
{
	struct fixture it = fixture(fw_sink_config_default());
	struct reader reader;

	fill(it.sink);
	read_begin(&reader, it.far);
	drained(it.sink, FW_FINISH_RECORD, &reader);
	CHECK(reader.count % SIZE == 0);
	end(it);
}

static void a_drain_that_ran_out_of_time_is_no_delivery(void)
{
	struct fixture it = fixture(fw_sink_config_default());
	fw_ended ended;

	fill(it.sink);
	OK(fw_sink_close(it.sink, FW_DRAIN, SECOND / 10, &ended));
	CHECK(ended == FW_ENDED_OUT_OF_TIME);
	end(it);
}

static void what_depends_on_a_dropped_record_is_not_sent(void)
{
	static const uint8_t big[32 * SIZE];
	fw_rule rule = { .kind = FW_DEPENDENCY_CLOSURE };
	fw_sink_config config = fw_sink_config_default();
	struct reader reader;
	struct fixture it;

	config.policy = (fw_policy){ .kind = FW_RULES, .rules = &rule, .rule_count = 1, .order = FW_BY_NEWEST };
	config.max_unread = 0;
	it = fixture(config);
	/* While the reader takes nothing, what is pushed last is queued. */
	for (uint64_t seq = 1;; seq++) {
		fw_meta meta = { .seq = seq };
		fw_stats stats;

		UNTIL(fw_sink_push(it.sink, big, sizeof big, &meta, NULL) == FW_OK);
		pause_ms(50);
		OK(fw_sink_stats(it.sink, &stats));
		if (stats.finished < seq)
			break;
	}
	OK(push(it.sink, "reference", (fw_meta){ .seq = 1001 }));
	OK(push(it.sink, "depends", (fw_meta){ .seq = 1002, .refs = { 1, 0 } }));
	OK(push(it.sink, "alone", (fw_meta){ .seq = 1003 }));
	OK(fw_sink_drop(it.sink, 1001));
	read_begin(&reader, it.far);
	drained(it.sink, FW_DRAIN, &reader);
	CHECK(reader.count % SIZE == 5 && !memcmp(reader.last, "alone", 5));
	end(it);
}

static void a_broken_peer_ends_its_sink_and_no_other(void)
{
	fw_ring ring = { .rings = 2, .slots = 64, .block_bytes = SIZE, .blocks = 128 };
	fw_sink_config config = fw_sink_config_default();
	int broken, healthy;
	fw_status missed[2];
	fw_engine engine;
	fw_sender sender;
	fw_sink sinks[2];
	fw_ended ended;
	char bytes[10];

	OK(fw_engine_new(&engine));
	OK(fw_sender_new(engine, &ring, &sender));
	sinks[0] = add(sender, config, &broken);
	sinks[1] = add(sender, config, &healthy);
	close(broken);
	UNTIL((push(sinks[0], "y", (fw_meta){ 0 }), fw_sink_ended(sinks[0], &ended) == FW_OK));
	CHECK(ended == FW_ENDED_IO || ended == FW_ENDED_PEER_CLOSED);
	OK(fw_sender_push_to_all(sender, sinks, 2, (const uint8_t *)"still here", 10, NULL, NULL, missed));
	CHECK(missed[0] == FW_CLOSED && missed[1] == FW_OK);
	CHECK(recv(healthy, bytes, 10, MSG_WAITALL) == 10 && !memcmp(bytes, "still here", 10));
	OK(fw_engine_free(engine));
	OK(fw_sink_ended(sinks[1], &ended));
	CHECK(ended == FW_ENDED_STOPPED);
	IS(FW_CLOSED, push(sinks[1], "x", (fw_meta){ 0 }));
	OK(fw_sink_free(sinks[0]));
	OK(fw_sink_free(sinks[1]));
	OK(fw_sender_free(sender));
	close(healthy);
}

static void a_peer_that_takes_nothing_is_given_up(void)
{
	static const uint8_t zeros[SIZE];
	fw_sink_config config = fw_sink_config_default();
	uint64_t begin = fw_now();
	struct fixture it;
	fw_ended ended;

	config.stall_timeout = SECOND * 3 / 10;
	it = fixture(config);
	UNTIL((fw_sink_push(it.sink, zeros, SIZE, NULL, NULL), fw_sink_ended(it.sink, &ended) == FW_OK));
	CHECK(ended == FW_ENDED_STALLED && fw_now() - begin >= config.stall_timeout);
	end(it);
}

static void rings_are_used_again(void)
{
	fw_sink_config config = fw_sink_config_default();
	struct fixture it = fixture(config);
	fw_sink second, old = it.sink;
	int ends[2];

	connection(AF_INET, ends);
	IS(FW_NO_RING, fw_sender_add_sink(it.sender, ends[0], &config, &second));
	CHECK(strstr(fw_last_error(), "raise fw_ring.rings"));
	drained(it.sink, FW_DRAIN, NULL);
	OK(fw_sender_add_sink(it.sender, ends[0], &config, &second));
	/* No call with the handle of a sink that has left reaches the one that has its ring now. */
	OK(push(second, "theirs", (fw_meta){ .seq = 7 }));
	IS(FW_CLOSED, push(old, "x", (fw_meta){ 0 }));
	IS(FW_CLOSED, fw_sink_drop(old, 7));
	OK(fw_sink_free(second));
	config.keys = 1000;
	close(ends[0]);
	close(ends[1]);
	end(it);

	it = fixture(fw_sink_config_default());
	drained(it.sink, FW_ABORT, NULL);
	connection(AF_INET, ends);
	IS(FW_INVALID, fw_sender_add_sink(it.sender, ends[0], &config, &second));
	CHECK(strstr(fw_last_error(), "1000 keys"));
	/* An abort resets the connection. */
	CHECK(recv(it.far, &(char){ 0 }, 1, 0) == -1 && errno == ECONNRESET);
	close(ends[0]);
	close(ends[1]);
	end(it);
}

/* Sockets that no sink can have: each is an error, and the ring stays free. */
static void a_refused_sink_costs_no_ring(void)
{
	fw_sink_config config = fw_sink_config_default();
	fw_ring ring = { .rings = 1, .slots = 64, .block_bytes = SIZE, .blocks = 64 };
	int udp = socket(AF_INET, SOCK_DGRAM, 0), listening = socket(AF_INET, SOCK_STREAM, 0);
	struct fixture it;
	fw_sink refused;

	CHECK(udp >= 0 && listening >= 0 && !listen(listening, 1));
	OK(fw_engine_new(&it.engine));
	OK(fw_sender_new(it.engine, &ring, &it.sender));
	for (int time = 0; time < 10000; time++) {
		fw_status status = fw_sender_add_sink(it.sender, time % 2 ? udp : listening, &config, &refused);

		CHECK(status != FW_OK && status != FW_NO_RING && refused.id == 0);
	}
	close(udp);
	close(listening);
	it.sink = add(it.sender, config, &it.far);
	OK(push(it.sink, "after", (fw_meta){ .seq = 0 }));
	end(it);
}

/* Fills a reservation by its pieces; returns how many there were. */
static int fill_in(fw_reservation reservation, size_t size)
{
	size_t at = 0, len;
	uint8_t *data;
	int pieces = 0;

	for (; at < size; at += len, pieces++) {
		OK(fw_reservation_piece(reservation, at, &data, &len));
		CHECK(len > 0 && len <= size - at);
		for (size_t byte = 0; byte < len; byte++)
			data[byte] = (uint8_t)((at + byte) % 251);
	}
	IS(FW_END, fw_reservation_piece(reservation, size, &data, &len));
	CHECK(!data && !len);
	return pieces;
}

static void arrives(int far, size_t size)
{
	uint8_t *bytes = malloc(size + 1);

	/* A recv of no bytes would wait for some. */
	CHECK(bytes && (!size || recv(far, bytes, size, MSG_WAITALL) == (ssize_t)size));
	for (size_t byte = 0; byte < size; byte++)
		CHECK(bytes[byte] == (uint8_t)(byte % 251));
	free(bytes);
}

static void a_record_is_written_into_the_arena(void)
{
	static const size_t sizes[] = { 0, 1, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE, 64 * SIZE };
	struct fixture it = fixture(fw_sink_config_default());
	fw_reservation reservation, all;
	fw_status missed;
	uint64_t seq;

	for (size_t place = 0; place < sizeof sizes / sizeof *sizes; place++) {
		size_t size = sizes[place];

		/* Given back, it leaves nothing. */
		for (int time = 0; time < 100; time++) {
			UNTIL(fw_sink_reserve(it.sink, 64 * SIZE, NULL, &reservation) == FW_OK);
			OK(fw_reservation_free(reservation));
		}
		IS(FW_DEAD_HANDLE, fw_reservation_free(reservation));
		OK(fw_sink_reserve(it.sink, size, NULL, &reservation));
		fill_in(reservation, size);
		IS(FW_INVALID, fw_sink_commit(it.sink, reservation, size + 1, NULL, NULL));
		OK(fw_sink_commit(it.sink, reservation, size, NULL, &seq));
		IS(FW_DEAD_HANDLE, fw_sink_commit(it.sink, reservation, size, NULL, NULL));
		arrives(it.far, size);

		UNTIL(fw_sender_reserve(it.sender, &it.sink, 1, size, NULL, &all) == FW_OK);
		fill_in(all, size);
		OK(fw_sender_commit_to_all(it.sender, &it.sink, 1, all, size, NULL, &seq, &missed));
		CHECK(missed == FW_OK);
		IS(FW_DEAD_HANDLE, fw_reservation_free(all));
		arrives(it.far, size);
	}
	IS(FW_TOO_LARGE, fw_sink_reserve(it.sink, 64 * SIZE + 1, NULL, &reservation));
	CHECK(reservation.id == 0);
	end(it);
}

static void a_full_ring_leaves_the_reservation(void)
{
	struct fixture it = fixture(fw_sink_config_default());
	fw_reservation reservation;
	uint64_t first = 0;

	OK(fw_sink_reserve(it.sink, SIZE, NULL, &reservation));
	fill_in(reservation, SIZE);
	fill(it.sink);
	/* The last block is the reservation's. */
	OK(fw_sink_commit(it.sink, reservation, SIZE, NULL, &first));
	IS(FW_FULL, fw_sink_reserve(it.sink, 1, NULL, &reservation));
	OK(fw_sink_drop(it.sink, first));
	OK(fw_sink_reserve(it.sink, 1, NULL, &reservation));
	/* Its owner may free the sender before. */
	end(it);
	fill_in(reservation, 1);
	OK(fw_reservation_free(reservation));
}

#define ROUND 32

struct committer {
	struct fixture *it;
	fw_reservation *reservations;
	int is_for_all;
	fw_status statuses[ROUND], missed[ROUND];
};

static void *commit_each(void *committer)
{
	struct committer *mine = committer;
	fw_sender sender = mine->it->sender;
	fw_sink sink = mine->it->sink;

	for (int at = 0; at < ROUND; at++)
		mine->statuses[at] = mine->is_for_all ?
			fw_sender_commit_to_all(sender, &sink, 1, mine->reservations[at], 1, NULL, NULL, &mine->missed[at]) :
			fw_sink_commit(sink, mine->reservations[at], 1, NULL, NULL);
	return NULL;
}

static void two_threads_commit_a_reservation_once(void)
{
	fw_sink_config config = fw_sink_config_default();
	fw_reservation reservations[ROUND];
	struct fixture it;

	config.ack_fates = 0;
	it = fixture(config);
	for (int round = 0; round < 300; round++) {
		struct committer committers[] = {
			{ .it = &it, .reservations = reservations },
			{ .it = &it, .reservations = reservations, .is_for_all = 1 },
		};
		pthread_t threads[2];
		char bytes[ROUND];

		for (int at = 0; at < ROUND; at++)
			UNTIL(fw_sender_reserve(it.sender, &it.sink, 1, 1, NULL, &reservations[at]) == FW_OK);
		for (int which = 0; which < 2; which++)
			CHECK(!pthread_create(&threads[which], NULL, commit_each, &committers[which]));
		for (int which = 0; which < 2; which++)
			JOIN(threads[which]);
		for (int at = 0; at < ROUND; at++) {
			int winner = committers[1].statuses[at] == FW_OK;

			IS(FW_OK, committers[winner].statuses[at]);
			IS(FW_DEAD_HANDLE, committers[!winner].statuses[at]);
			CHECK(!winner || committers[1].missed[at] == FW_OK);
			IS(FW_DEAD_HANDLE, fw_reservation_free(reservations[at]));
		}
		CHECK(recv(it.far, bytes, ROUND, MSG_WAITALL) == ROUND);
	}
	end(it);
}

int main(void)
{
	records_arrive_over_ipv6();
	a_stalled_receiver_leaves_the_choice();
	nothing_expired_is_committed();
	closing_finishes_the_record_in_progress();
	a_drain_that_ran_out_of_time_is_no_delivery();
	what_depends_on_a_dropped_record_is_not_sent();
	a_broken_peer_ends_its_sink_and_no_other();
	a_peer_that_takes_nothing_is_given_up();
	rings_are_used_again();
	a_refused_sink_costs_no_ring();
	a_record_is_written_into_the_arena();
	a_full_ring_leaves_the_reservation();
	two_threads_commit_a_reservation_once();
	printf("loopback: ok\n");
	return 0;
}
