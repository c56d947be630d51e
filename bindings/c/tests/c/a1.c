/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Groups, streams, qualities of service and descriptors of A1, as the Rust tests have them. Ends with "conversation: ok". */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two nodes and a connection between them. */
struct ends {
	fw_node near, far;
	fw_connection from, to;
};

static void address_of(fw_node node, char *address, size_t size)
{
	uint16_t port;

	OK(fw_node_port(node, &port));
	snprintf(address, size, "127.0.0.1:%d", port);
}

static void wait_for(int fd)
{
	struct pollfd events = { .fd = fd, .events = POLLIN };

	CHECK(poll(&events, 1, (int)(LIMIT / 1000000)) == 1);
}

static int is_readable(int fd)
{
	struct pollfd events = { .fd = fd, .events = POLLIN };

	return poll(&events, 1, 0) == 1;
}

/* Connects by descriptors alone. */
static void connect_nodes(fw_node near, fw_node far, const fw_qos *qos, fw_connection *from, fw_connection *to)
{
	char key[FW_KEY_TEXT], address[FW_ADDRESS_TEXT];
	fw_status status;
	int here, there;

	address_of(far, address, sizeof address);
	OK(fw_node_public_key(far, key));
	OK(fw_node_events(far, &there));
	OK(fw_node_begin_connect(near, address, key, qos, LIMIT, from));
	OK(fw_connection_events(*from, &here));
	for (;;) {
		OK(fw_node_clear_events(far));
		status = fw_node_accept(far, 0, to);
		if (status == FW_OK)
			break;
		CHECK(status == FW_NOTHING);
		wait_for(there);
	}
	for (;;) {
		OK(fw_connection_clear_events(*from));
		status = fw_connection_open(*from);
		if (status == FW_OK)
			break;
		CHECK(status == FW_NOTHING);
		wait_for(here);
	}
}

static struct ends ends(const fw_node_config *near, const fw_node_config *far)
{
	struct ends ends;

	OK(fw_node_bind_with("127.0.0.1:0", near, &ends.near));
	OK(fw_node_bind_with("127.0.0.1:0", far, &ends.far));
	connect_nodes(ends.near, ends.far, NULL, &ends.from, &ends.to);
	return ends;
}

static void ends_free(struct ends ends)
{
	OK(fw_connection_free(ends.from));
	OK(fw_connection_free(ends.to));
	OK(fw_node_free(ends.near));
	OK(fw_node_free(ends.far));
}

static fw_sender sender(void)
{
	fw_ring ring = { .rings = 4, .slots = 1024, .block_bytes = 4096, .blocks = 2048 };
	fw_sender sender;

	OK(fw_sender_new((fw_engine){ 0 }, &ring, &sender));
	return sender;
}

static int same_qos(fw_qos one, fw_qos other)
{
	return one.send_average == other.send_average && one.receive_average == other.receive_average &&
	       one.send_burst == other.send_burst && one.receive_burst == other.receive_burst &&
	       one.max_send_message == other.max_send_message && one.max_receive_message == other.max_receive_message &&
	       one.outstanding == other.outstanding && one.priority == other.priority && one.checksum == other.checksum &&
	       one.retransmission == other.retransmission;
}

/* The peer narrows what is asked for; a change is in force at both ends; what exceeds it is refused. */
static void qualities_of_service(void)
{
	fw_node_config narrow = fw_node_config_default();
	struct ends ends_;
	fw_qos qos, most, asked = fw_qos_default();
	fw_a1_status status;
	fw_protection protection;
	fw_a1_stats stats;
	fw_closed closed;
	uint64_t code;
	fw_connection from, to;
	fw_sender sender_ = sender();
	fw_sink sink;
	fw_missing missing;
	fw_message message;
	fw_peer peer;
	uint8_t bytes[64];
	char key[FW_KEY_TEXT];

	narrow.maximum.outstanding = 4;
	narrow.maximum.max_send_message = narrow.maximum.max_receive_message = 4096;
	ends_ = ends(&narrow, &narrow);
	OK(fw_connection_qos(ends_.from, &qos, &most));
	CHECK(same_qos(qos, narrow.maximum) && same_qos(most, narrow.maximum));
	OK(fw_connection_protection(ends_.from, &protection));
	CHECK(protection == FW_AEAD);
	OK(fw_connection_peer(ends_.to, &peer));
	OK(fw_node_public_key(ends_.near, key));
	CHECK(!strcmp(peer.key, key) && !strncmp(peer.address, "127.0.0.1:", 10));
	asked.outstanding = 2;
	asked.max_send_message = asked.max_receive_message = 100;
	connect_nodes(ends_.near, ends_.far, &asked, &from, &to);
	OK(fw_connection_qos(to, &qos, NULL));
	CHECK(qos.outstanding == 2 && qos.max_receive_message == 100);
	OK(fw_connection_free(from));
	OK(fw_connection_free(to));

	/* A full window of four: records that expire behind it are never sent, and the receiver is notified. */
	OK(fw_sender_add_a1_sink(sender_, ends_.from, &(fw_policy){ .kind = FW_DEADLINE }, FW_DEFAULT, &sink));
	for (int number = 0; number < 5; number++)
		OK(fw_sink_push(sink, (const uint8_t *)"fills", 5, NULL, NULL));
	UNTIL(fw_connection_status(ends_.from, &status) == FW_OK && status.window_exceeded);
	OK(fw_sink_push(sink, (const uint8_t *)"stale", 5, &(fw_meta){ .deadline = 1 }, NULL));
	OK(fw_sink_push(sink, (const uint8_t *)"fresh", 5, NULL, NULL));
	for (int number = 0; number < 6; number++)
		OK(fw_connection_recv(ends_.to, LIMIT, bytes, sizeof bytes, &message));
	CHECK(message.seq == 6 && !memcmp(bytes, "fresh", 5));
	UNTIL(fw_connection_poll_missing(ends_.to, &missing) == FW_OK);
	CHECK(missing.kind == FW_MISSING_NEVER_COMMITTED && missing.first == 5 && missing.count == 1 && missing.reason == 1);
	IS(FW_NOTHING, fw_connection_poll_missing(ends_.to, &missing));

	OK(fw_connection_qos(ends_.from, &qos, NULL));
	qos.priority = 1;
	IS(FW_INVALID, fw_connection_set_qos(ends_.from, &qos));
	CHECK(strstr(fw_last_error(), "beyond the maximum"));
	qos.priority = 0;
	qos.outstanding = 3;
	OK(fw_connection_set_qos(ends_.from, &qos));
	UNTIL(fw_connection_status(ends_.to, &status) == FW_OK && status.qos_changed);
	OK(fw_connection_qos(ends_.to, &qos, NULL));
	CHECK(qos.outstanding == 3);
	OK(fw_connection_stats(ends_.to, &stats));
	CHECK(stats.messages_received == 6 && stats.packets_received > 0);
	IS(FW_NOTHING, fw_connection_closed(ends_.to, &closed, &code));
	OK(fw_connection_close(ends_.from, 300, "enough"));
	UNTIL(fw_connection_closed(ends_.to, &closed, &code) == FW_OK);
	CHECK(closed == FW_CLOSED_PEER && code == 300 && strstr(fw_last_error(), "enough"));
	OK(fw_connection_closed(ends_.from, &closed, NULL));
	CHECK(closed == FW_CLOSED_LOCAL);
	IS(FW_CLOSED, fw_connection_set_qos(ends_.from, &qos));
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender_));
	ends_free(ends_);
}

/* A shared secret and a list of keys, and an application that decides. */
static void peers_are_chosen(void)
{
	fw_node_config config = fw_node_config_default();
	char private_key[FW_KEY_TEXT], public_key[FW_KEY_TEXT], key[FW_KEY_TEXT], address[FW_ADDRESS_TEXT];
	const char *const allowed[] = { public_key };
	fw_qos qos, few = fw_qos_default();
	fw_node chosen, other, far;
	fw_connection from, to;
	fw_endpoint_stats stats;
	fw_incoming incoming;
	fw_peer peer;

	OK(fw_key_generate(private_key, public_key));
	config.psk = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
	config.allowed = allowed;
	config.allowed_count = 1;
	OK(fw_node_bind_with("127.0.0.1:0", &config, &far));
	OK(fw_node_public_key(far, key));
	address_of(far, address, sizeof address);
	config.allowed = NULL;
	config.private_key = private_key;
	OK(fw_node_bind_with("127.0.0.1:0", &config, &chosen));
	connect_nodes(chosen, far, NULL, &from, &to);
	OK(fw_connection_free(from));
	OK(fw_connection_free(to));
	config.private_key = NULL;
	OK(fw_node_bind_with("127.0.0.1:0", &config, &other));
	OK(fw_node_begin_connect(other, address, key, NULL, LIMIT, &from));
	UNTIL(fw_connection_open(from) == FW_NOT_CONNECTED);
	CHECK(strstr(fw_last_error(), "code 1"));
	IS(FW_NOT_CONNECTED, fw_connection_qos(from, &qos, NULL));
	OK(fw_node_stats(far, &stats));
	CHECK(stats.refused >= 1);
	OK(fw_connection_free(from));
	OK(fw_node_free(other));
	/* Without the secret there is no answer. */
	OK(fw_node_bind("127.0.0.1:0", private_key, &other));
	OK(fw_node_begin_connect(other, address, key, NULL, 2 * SECOND, &from));
	IS(FW_NOTHING, fw_connection_open(from));
	IS(FW_NOT_CONNECTED, fw_connection_close(from, 0, ""));
	UNTIL(fw_connection_open(from) == FW_NOT_CONNECTED);
	OK(fw_connection_free(from));
	OK(fw_node_free(far));

	config = fw_node_config_default();
	config.ask = 1;
	OK(fw_node_bind_with("127.0.0.1:0", &config, &far));
	OK(fw_node_public_key(far, key));
	address_of(far, address, sizeof address);
	OK(fw_node_begin_connect(other, address, key, NULL, LIMIT, &from));
	OK(fw_node_incoming(far, LIMIT, &incoming));
	OK(fw_incoming_peer(incoming, &peer));
	CHECK(!strcmp(peer.key, public_key));
	few.outstanding = 7;
	OK(fw_incoming_qos(incoming, &qos, NULL));
	CHECK(qos.outstanding == 1024);
	OK(fw_incoming_accept(incoming, &few, &to));
	IS(FW_CLOSED, fw_incoming_refuse(incoming, 300, "late"));
	OK(fw_incoming_free(incoming));
	UNTIL(fw_connection_open(from) == FW_OK);
	OK(fw_connection_qos(from, &qos, NULL));
	CHECK(qos.outstanding == 7);
	OK(fw_connection_free(from));
	OK(fw_connection_free(to));
	OK(fw_node_begin_connect(other, address, key, NULL, LIMIT, &from));
	OK(fw_node_incoming(far, LIMIT, &incoming));
	OK(fw_incoming_refuse(incoming, 300, "not today"));
	OK(fw_incoming_free(incoming));
	UNTIL(fw_connection_open(from) == FW_NOT_CONNECTED);
	CHECK(strstr(fw_last_error(), "not today"));
	OK(fw_connection_free(from));
	OK(fw_node_begin_connect(other, address, key, NULL, LIMIT, &from));
	OK(fw_node_incoming(far, LIMIT, &incoming));
	OK(fw_incoming_free(incoming));
	UNTIL(fw_connection_open(from) == FW_NOT_CONNECTED);
	CHECK(strstr(fw_last_error(), "code 256"));
	OK(fw_connection_free(from));
	OK(fw_node_free(far));
	OK(fw_node_free(other));
	OK(fw_node_free(chosen));
}

static void *wait_to_accept(void *node)
{
	fw_connection connection;
	fw_status status = fw_node_accept(*(fw_node *)node, FW_DEFAULT, &connection);

	CHECK(status == FW_CLOSED || status == FW_DEAD_HANDLE);
	return NULL;
}

static void *wait_to_be_asked(void *node)
{
	fw_incoming incoming;
	fw_status status = fw_node_incoming(*(fw_node *)node, FW_DEFAULT, &incoming);

	CHECK(status == FW_CLOSED || status == FW_DEAD_HANDLE);
	return NULL;
}

static void *wait_to_connect(void *node)
{
	char private_key[FW_KEY_TEXT], key[FW_KEY_TEXT];
	fw_connection connection;
	fw_status status;

	/* Nobody has it. */
	OK(fw_key_generate(private_key, key));
	status = fw_node_connect(*(fw_node *)node, "127.0.0.1", 9, key, FW_DEFAULT, &connection);
	CHECK(status == FW_NOT_CONNECTED || status == FW_CLOSED || status == FW_DEAD_HANDLE);
	return NULL;
}

/* A node that is freed ends the calls that wait for it, also one that began just then. */
static void a_freed_node_ends_waits(void)
{
	void *(*const waits[])(void *) = { wait_to_accept, wait_to_be_asked, wait_to_connect };

	for (int at = 0; at < 3; at++) {
		fw_node_config config = fw_node_config_default();
		pthread_t threads[2];
		fw_node node;

		config.ask = at == 1;
		OK(fw_node_bind_with("127.0.0.1:0", &config, &node));
		for (int thread = 0; thread < 2; thread++)
			CHECK(!pthread_create(&threads[thread], NULL, waits[at], &node));
		/* So that they wait as a rule; what they return does not depend on it. */
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		OK(fw_node_free(node));
		for (int thread = 0; thread < 2; thread++)
			JOIN(threads[thread]);
	}
}

static void *receive_without_room(void *connection)
{
	fw_message message;
	uint8_t byte;

	IS(FW_SMALL_BUFFER, fw_connection_recv(*(fw_connection *)connection, LIMIT, &byte, 1, &message));
	return NULL;
}

static void *wait_to_receive(void *connection)
{
	fw_message message;
	fw_status status = fw_connection_recv(*(fw_connection *)connection, FW_DEFAULT, NULL, 0, &message);

	CHECK(status == FW_CLOSED || status == FW_DEAD_HANDLE);
	return NULL;
}

/* Two threads have too small a buffer: no message is lost. A connection that is freed ends a call that waits. */
static void waits_of_a_connection(void)
{
	struct ends ends_ = ends(NULL, NULL);
	fw_sender sender_ = sender();
	pthread_t threads[2];
	fw_message message;
	uint8_t bytes[8];
	unsigned seen = 0;
	fw_sink sink;

	OK(fw_sender_add_a1_sink(sender_, ends_.from, NULL, FW_DEFAULT, &sink));
	for (int at = 0; at < 2; at++)
		CHECK(!pthread_create(&threads[at], NULL, receive_without_room, &ends_.to));
	OK(fw_sink_push(sink, (const uint8_t *)"one", 3, &(fw_meta){ .key = 1 }, NULL));
	OK(fw_sink_push(sink, (const uint8_t *)"two", 3, &(fw_meta){ .key = 2 }, NULL));
	for (int at = 0; at < 2; at++)
		JOIN(threads[at]);
	for (int at = 0; at < 2; at++) {
		OK(fw_connection_recv(ends_.to, LIMIT, bytes, sizeof bytes, &message));
		seen |= (unsigned)message.key;
	}
	CHECK(seen == 3);

	CHECK(!pthread_create(&threads[0], NULL, wait_to_receive, &ends_.to));
	/* So that it waits as a rule; what it returns does not depend on it. */
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	OK(fw_connection_free(ends_.to));
	JOIN(threads[0]);
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender_));
	OK(fw_connection_free(ends_.from));
	OK(fw_node_free(ends_.near));
	OK(fw_node_free(ends_.far));
}

/* Whether this machine brings a multicast packet from itself to itself; a free port of that group. */
static int has_multicast(const char *group, char *address, size_t size)
{
	struct sockaddr_in there = { .sin_family = AF_INET }, here = { .sin_family = AF_INET };
	struct timeval second = { .tv_sec = 1 };
	socklen_t len = sizeof there;
	struct ip_mreq request;
	int member = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), heard;
	char byte;

	there.sin_addr.s_addr = inet_addr(group);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	request.imr_multiaddr = there.sin_addr;
	request.imr_interface = here.sin_addr;
	heard = !bind(member, (struct sockaddr *)&there, sizeof there) &&
		!setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) &&
		!setsockopt(member, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second) &&
		!getsockname(member, (struct sockaddr *)&there, &len) &&
		!bind(from, (struct sockaddr *)&here, sizeof here) &&
		sendto(from, "x", 1, 0, (struct sockaddr *)&there, sizeof there) == 1 && recv(member, &byte, 1, 0) == 1;
	close(member);
	close(from);
	snprintf(address, size, "%s:%d", group, ntohs(there.sin_port));
	return heard;
}

/* One push reaches two members; one that joins no groups is left out. */
static void one_push_for_a_group(void)
{
	fw_node_config config = fw_node_config_default();
	char address[FW_ADDRESS_TEXT];
	fw_connection from[3], to[3], stranger;
	fw_node node, members[3];
	fw_group_config settings;
	fw_multicast_stats stats;
	fw_membership membership;
	fw_message message;
	fw_a1_stats counts;
	fw_group group;
	fw_sender sender_ = sender();
	uint8_t bytes[2000];
	fw_ended ended;
	fw_fate fate;
	fw_sink sink;

	if (!has_multicast("239.255.79.1", address, sizeof address)) {
		CHECK(!getenv("CI"));
		printf("skipped: no IP multicast on this machine's loopback\n");
		OK(fw_sender_free(sender_));
		return;
	}
	OK(fw_node_bind_with("127.0.0.1:0", NULL, &node));
	settings = fw_group_config_default("127.0.0.1:5000", 1000000000);
	IS(FW_INVALID, fw_node_group(node, &settings, &group));
	settings.address = address;
	settings.repair_for = SECOND / 5;
	OK(fw_node_group(node, &settings, &group));
	OK(fw_sender_add_a1_group(sender_, group, NULL, FW_DEFAULT, &sink));
	for (int at = 0; at < 3; at++) {
		config.join_most = at < 2 ? 16 : 0;
		OK(fw_node_bind_with("127.0.0.1:0", &config, &members[at]));
		connect_nodes(node, members[at], NULL, &from[at], &to[at]);
		OK(fw_group_invite(group, from[at]));
		UNTIL(fw_connection_membership(to[at], 0, &membership) == FW_OK);
		CHECK(membership.joined == (at < 2) && !strcmp(membership.address, address));
		CHECK(at < 2 || strstr(fw_last_error(), "joins no groups"));
		IS(FW_NOTHING, fw_connection_membership(to[at], 1, &membership));
	}
	connect_nodes(members[0], members[1], NULL, &stranger, &to[2]);
	IS(FW_INVALID, fw_group_invite(group, stranger));
	memset(bytes, 7, sizeof bytes);
	OK(fw_sink_push(sink, bytes, sizeof bytes, &(fw_meta){ .key = 9 }, NULL));
	for (int at = 0; at < 2; at++) {
		memset(bytes, 0, sizeof bytes);
		OK(fw_connection_recv(to[at], LIMIT, bytes, sizeof bytes, &message));
		CHECK(message.len == sizeof bytes && bytes[0] == 7 && bytes[1999] == 7 && message.key == 9);
		OK(fw_connection_stats(to[at], &counts));
		CHECK(counts.group_packets_received > 0);
	}
	OK(fw_group_stats(group, &stats));
	CHECK(stats.members == 3 && stats.packets_sent >= 2 && !stats.packets_refused);
	/* When it can be repaired no more. */
	UNTIL(fw_sink_poll_fate(sink, &fate) == FW_OK);
	CHECK(fate.outcome == FW_ACKED && fate.acked_at - fate.committed_at >= SECOND / 5);
	OK(fw_sink_close(sink, FW_DRAIN, LIMIT, &ended));
	CHECK(ended == FW_ENDED_CLOSED);
	OK(fw_sink_free(sink));
	OK(fw_connection_free(stranger));
	OK(fw_connection_free(to[2]));
	for (int at = 0; at < 3; at++) {
		OK(fw_connection_free(from[at]));
		if (at < 2)
			OK(fw_connection_free(to[at]));
		OK(fw_node_free(members[at]));
	}
	OK(fw_node_free(node));
	IS(FW_CLOSED, fw_group_stats(group, &stats));
	OK(fw_group_free(group));
	OK(fw_sender_free(sender_));
}

#define BYTES (1 << 18)

static uint8_t byte_at(size_t at)
{
	return (uint8_t)(at * 2654435761u >> 13);
}

/* Writes with descriptors, and ends. */
static void *write_all(void *stream)
{
	fw_stream to = *(fw_stream *)stream;
	static uint8_t bytes[BYTES];
	size_t at = 0, taken;
	fw_status status;
	int fd;

	for (size_t place = 0; place < BYTES; place++)
		bytes[place] = byte_at(place);
	OK(fw_stream_events(to, FW_WRITE, &fd));
	while (at < BYTES) {
		OK(fw_stream_clear_events(to, FW_WRITE));
		status = fw_stream_write(to, 0, bytes + at, BYTES - at, &taken);
		CHECK(status == FW_OK || status == FW_NOTHING);
		at += taken;
		if (status == FW_NOTHING)
			wait_for(fd);
	}
	for (;;) {
		OK(fw_stream_clear_events(to, FW_WRITE));
		status = fw_stream_finish(to, 0);
		if (status == FW_OK)
			return NULL;
		CHECK(status == FW_NOTHING);
		wait_for(fd);
	}
}

static void *wait_to_read(void *stream)
{
	size_t count;
	uint8_t byte;

	IS(FW_CLOSED, fw_stream_read(*(fw_stream *)stream, FW_DEFAULT, &byte, 1, &count));
	return NULL;
}

/* All bytes arrive in order; a question is answered after its end; what was not finished was cut off. */
/* What comes on one connection goes on on the other, until both have ended. */
static void forward(int near, int far)
{
	int from[] = { near, far }, open = 2;
	struct pollfd events[] = { { .fd = near, .events = POLLIN }, { .fd = far, .events = POLLIN } };
	char bytes[4096];

	while (open > 0) {
		CHECK(poll(events, 2, (int)(LIMIT / 1000000)) > 0);
		for (int side = 0; side < 2; side++) {
			ssize_t count, sent = 0;

			if (!events[side].revents)
				continue;
			count = read(from[side], bytes, sizeof bytes);
			if (count <= 0) {
				shutdown(from[!side], SHUT_WR);
				events[side].fd = -1;
				open--;
			}
			while (sent < count) {
				ssize_t done = send(from[!side], bytes + sent, (size_t)(count - sent), MSG_NOSIGNAL);

				if (done < 0)
					break;
				sent += done;
			}
		}
	}
}

/* A host on the way: TCP goes on to the node, and nobody reads what comes to its UDP port. */
struct firewall {
	uint16_t from, to;
	int tcp, udp;
};

static void *pass_on(void *argument)
{
	struct firewall *wall = argument;
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(wall->to) };
	int near = accept(wall->tcp, NULL, NULL), far = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(near >= 0 && !connect(far, (struct sockaddr *)&address, sizeof address));
	forward(near, far);
	close(near);
	close(far);
	return NULL;
}

static void over_tcp_where_udp_does_not_pass(void)
{
	fw_node_config config = fw_node_config_default();
	struct firewall wall = { .tcp = socket(AF_INET, SOCK_STREAM, 0), .udp = socket(AF_INET, SOCK_DGRAM, 0) };
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof address;
	char key[FW_KEY_TEXT];
	uint8_t bytes[16];
	fw_sender sender_ = sender();
	fw_connection from, to;
	fw_message message;
	fw_a1_status status;
	fw_node near, far;
	fw_sink sink;
	pthread_t thread;

	config.attempt_delay = 5 * SECOND;
	IS(FW_INVALID, fw_node_bind_with("127.0.0.1:0", &config, &near));
	CHECK(strstr(fw_last_error(), "fw_node_config.attempt_delay"));
	config = fw_node_config_default();
	config.tcp_fallback = 1;
	OK(fw_node_bind_with("127.0.0.1:0", &config, &near));
	OK(fw_node_bind_with("127.0.0.1:0", &config, &far));
	OK(fw_node_public_key(far, key));
	OK(fw_node_port(far, &wall.to));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!bind(wall.tcp, (struct sockaddr *)&address, sizeof address) && !listen(wall.tcp, 1));
	CHECK(!getsockname(wall.tcp, (struct sockaddr *)&address, &length));
	CHECK(!bind(wall.udp, (struct sockaddr *)&address, sizeof address));
	CHECK(!pthread_create(&thread, NULL, pass_on, &wall));
	OK(fw_node_connect(near, "127.0.0.1", ntohs(address.sin_port), key, LIMIT, &from));
	OK(fw_node_accept(far, LIMIT, &to));
	OK(fw_connection_status(from, &status));
	CHECK(status.over_tcp);
	OK(fw_sender_add_a1_sink(sender_, from, NULL, FW_DEFAULT, &sink));
	CHECK(!strcmp(fw_sink_carrier(sink), "a1-over-tcp"));
	OK(fw_sink_push(sink, (const uint8_t *)"by tcp", 6, NULL, NULL));
	OK(fw_connection_recv(to, LIMIT, bytes, sizeof bytes, &message));
	CHECK(!memcmp(bytes, "by tcp", 6));
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender_));
	OK(fw_connection_free(from));
	OK(fw_connection_free(to));
	OK(fw_node_free(near));
	OK(fw_node_free(far));
	JOIN(thread);
	close(wall.tcp);
	close(wall.udp);
}

/* A connection's priority becomes the class of its datagrams; what cannot be had is refused, and says why. */
static void the_networks_service(void)
{
	fw_node_config config = fw_node_config_default();
	char key[FW_KEY_TEXT];
	fw_connection connection;
	struct ends ends_;
	fw_node node, far;
	uint16_t port;

	config.network.dscp = "AF44";
	IS(FW_INVALID, fw_node_bind_with("127.0.0.1:0", &config, &node));
	CHECK(strstr(fw_last_error(), "AF11 to AF43"));
	config.network.dscp = "46";
	config.network.priority = UINT64_C(1) << 32;
	IS(FW_INVALID, fw_node_bind_with("127.0.0.1:0", &config, &node));
	CHECK(strstr(fw_last_error(), "priority="));
	config.network.priority = 6;
	config.translate = 1;
	ends_ = ends(&config, NULL);
	ends_free(ends_);
	/* Loopback has no queueing discipline. */
	for (int times = 0; times < 2; times++) {
		config = fw_node_config_default();
		config.network.max_rate = 1000000;
		config.network.departure_times = (uint8_t)times;
		OK(fw_node_bind_with("127.0.0.1:0", &config, &node));
		OK(fw_node_bind_with("127.0.0.1:0", NULL, &far));
		OK(fw_node_public_key(far, key));
		OK(fw_node_port(far, &port));
		IS(FW_NOT_CONNECTED, fw_node_connect(node, "127.0.0.1", port, key, LIMIT, &connection));
		CHECK(strstr(fw_last_error(), "not fq") && strstr(fw_last_error(), times ? "SO_TXTIME" : "SO_MAX_PACING_RATE"));
		OK(fw_node_free(node));
		OK(fw_node_free(far));
	}
}

/* Beyond its maximum a connection is opened anew; the old one stays. */
static void a_connection_is_reopened(void)
{
	fw_node_config narrow = fw_node_config_default();
	fw_qos qos, more = fw_qos_default();
	fw_connection reopened, accepted;
	fw_sender sender_ = sender();
	struct ends ends_;
	fw_message message;
	fw_closed closed;
	fw_sink sink;
	static uint8_t large[2000], bytes[2000];

	narrow.maximum.max_send_message = narrow.maximum.max_receive_message = 1000;
	ends_ = ends(&narrow, NULL);
	more.max_send_message = more.max_receive_message = sizeof large;
	IS(FW_INVALID, fw_connection_set_qos(ends_.from, &more));
	CHECK(strstr(fw_last_error(), "reopen"));
	IS(FW_INVALID, fw_node_reopen(ends_.near, ends_.from, NULL, NULL, LIMIT, &reopened));
	OK(fw_node_reopen(ends_.near, ends_.from, &more, NULL, LIMIT, &reopened));
	OK(fw_node_accept(ends_.far, LIMIT, &accepted));
	OK(fw_connection_qos(reopened, &qos, NULL));
	CHECK(same_qos(qos, more));
	IS(FW_NOTHING, fw_connection_closed(ends_.from, &closed, NULL));
	OK(fw_sender_add_a1_sink(sender_, reopened, NULL, FW_DEFAULT, &sink));
	OK(fw_sink_push(sink, large, sizeof large, NULL, NULL));
	OK(fw_connection_recv(accepted, LIMIT, bytes, sizeof bytes, &message));
	CHECK(message.len == sizeof large);
	more.outstanding = 2000;
	IS(FW_NOT_CONNECTED, fw_node_reopen(ends_.near, ends_.from, &more, NULL, LIMIT, &reopened));
	CHECK(strstr(fw_last_error(), "beyond the maximum"));
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender_));
	OK(fw_connection_free(accepted));
	ends_free(ends_);
}

/* Fates over A1 say when the last packet left, where the kernel can say it; a kernel that cannot is named. */
static void departures(void)
{
	fw_a1_sink_config config = fw_a1_sink_config_default();
	struct ends ends_ = ends(NULL, NULL);
	static uint8_t large[4096], bytes[4096];
	fw_sender sender_ = sender();
	fw_message message;
	fw_status status;
	fw_fate fate;
	fw_sink sink;

	IS(FW_INVALID, fw_sender_add_a1_sink_with(sender_, ends_.from, NULL, &sink));
	config.departures = 1;
	status = fw_sender_add_a1_sink_with(sender_, ends_.from, &config, &sink);
	if (status == FW_SYSTEM) {
		CHECK(strstr(fw_last_error(), "6.13"));
	} else {
		CHECK(status == FW_OK);
		for (size_t size = 1; size <= sizeof large; size *= 16) {
			OK(fw_sink_push(sink, large, size, NULL, NULL));
			OK(fw_connection_recv(ends_.to, LIMIT, bytes, sizeof bytes, &message));
			UNTIL(fw_sink_poll_fate(sink, &fate) == FW_OK);
			CHECK(fate.outcome == FW_ACKED && fate.scheduled_at && fate.departed_at);
			/* The clocks of the library and of the kernel's notes are read at different moments. */
			CHECK(fate.committed_at <= fate.scheduled_at + SECOND / 50);
			CHECK(fate.scheduled_at <= fate.departed_at + SECOND / 50);
			CHECK(fate.departed_at <= fate.acked_at + SECOND / 50);
		}
		OK(fw_sink_free(sink));
	}
	OK(fw_sender_free(sender_));
	ends_free(ends_);
}

static void streams(void)
{
	fw_node_config config = fw_node_config_default();
	struct ends ends_ = ends(NULL, NULL);
	fw_stream near, far;
	pthread_t thread;
	size_t count, at = 0;
	uint8_t bytes[1000];
	fw_status status;
	int fd;

	IS(FW_INVALID, fw_stream_new(ends_.from, &near));
	CHECK(strstr(fw_last_error(), "in_order"));
	ends_free(ends_);
	config.in_order = 1;
	config.maximum.outstanding = 2;
	config.maximum.max_send_message = config.maximum.max_receive_message = 4096;
	ends_ = ends(&config, &config);
	OK(fw_stream_new(ends_.from, &near));
	OK(fw_stream_new(ends_.to, &far));
	IS(FW_FAILED, fw_stream_new(ends_.to, &(fw_stream){ 0 }));
	IS(FW_INVALID, fw_stream_events(far, 2, &fd));
	IS(FW_INVALID, fw_stream_read(far, 0, NULL, 1, &count));
	OK(fw_stream_events(far, FW_READ, &fd));
	IS(FW_NOTHING, fw_stream_read(far, 0, bytes, sizeof bytes, &count));
	OK(fw_stream_clear_events(far, FW_READ));
	CHECK(!is_readable(fd));
	pthread_create(&thread, NULL, write_all, &near);
	for (;;) {
		OK(fw_stream_clear_events(far, FW_READ));
		while ((status = fw_stream_read(far, 0, bytes, sizeof bytes, &count)) == FW_OK)
			for (size_t place = 0; place < count; place++, at++)
				CHECK(bytes[place] == byte_at(at));
		if (status == FW_END)
			break;
		CHECK(status == FW_NOTHING);
		wait_for(fd);
	}
	CHECK(at == BYTES);
	JOIN(thread);
	IS(FW_CLOSED, fw_stream_write(near, 0, bytes, 1, &count));
	OK(fw_stream_write(far, LIMIT, (const uint8_t *)"answer", 6, &count));
	CHECK(count == 6);
	for (at = 0; at < 6; at += count)
		OK(fw_stream_read(near, LIMIT, bytes + at, sizeof bytes - at, &count));
	CHECK(!memcmp(bytes, "answer", 6));
	/* The other end is freed without an end of its stream. A thread waits for it. */
	pthread_create(&thread, NULL, wait_to_read, &near);
	OK(fw_stream_free(far));
	OK(fw_connection_free(ends_.to));
	JOIN(thread);
	OK(fw_stream_free(near));
	IS(FW_DEAD_HANDLE, fw_stream_free(near));
	OK(fw_connection_free(ends_.from));
	OK(fw_node_free(ends_.near));
	OK(fw_node_free(ends_.far));
}

/* A child of a fork is refused, and the parent's connection goes on. */
static void forks(void)
{
	fw_node_config config = fw_node_config_default();
	struct ends ends_;
	fw_stream stream;
	size_t count;
	pid_t child;
	int status, fd;

	config.in_order = 1;
	ends_ = ends(&config, &config);
	OK(fw_stream_new(ends_.from, &stream));
	fflush(NULL);
	child = fork();
	if (child == 0) {
		fw_qos qos;
		uint8_t byte;

		IS(FW_FORKED, fw_stream_write(stream, 0, (const uint8_t *)"x", 1, &count));
		IS(FW_FORKED, fw_stream_read(stream, 0, &byte, 1, &count));
		IS(FW_FORKED, fw_connection_qos(ends_.to, &qos, NULL));
		IS(FW_FORKED, fw_connection_events(ends_.to, &fd));
		IS(FW_FORKED, fw_node_events(ends_.near, &fd));
		IS(FW_FORKED, fw_stream_free(stream));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	OK(fw_stream_write(stream, LIMIT, (const uint8_t *)"parent", 6, &count));
	OK(fw_stream_free(stream));
	ends_free(ends_);
}

/* An argument leaves out the fork: a child cannot free what belongs to its parent, which valgrind counts as lost in it. */
int main(int argc, char **argv)
{
	(void)argv;
	qualities_of_service();
	peers_are_chosen();
	a_freed_node_ends_waits();
	waits_of_a_connection();
	one_push_for_a_group();
	over_tcp_where_udp_does_not_pass();
	the_networks_service();
	a_connection_is_reopened();
	departures();
	streams();
	if (argc == 1)
		forks();
	printf("conversation: ok, libfreshwire %s\n", fw_version());
	return 0;
}
