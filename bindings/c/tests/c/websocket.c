/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A browser's side and the library's of a WebSocket that an HTTP server has handed over. Ends with "conversation: ok". */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection over loopback: [0] is the server's. */
static void connect_pair(int pair[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(listener >= 0);
	CHECK(!bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	pair[1] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(pair[1], (struct sockaddr *)&address, sizeof address));
	pair[0] = accept(listener, NULL, NULL);
	CHECK(pair[0] >= 0);
	close(listener);
}

/* A masked frame of a client with this first byte. */
static size_t frame(uint8_t *to, uint8_t first, const char *payload, size_t len)
{
	static const uint8_t mask[4] = { 1, 2, 3, 4 };

	CHECK(len < 126);
	to[0] = first;
	to[1] = (uint8_t)(0x80 | len);
	memcpy(to + 2, mask, 4);
	for (size_t at = 0; at < len; at++)
		to[6 + at] = (uint8_t)payload[at] ^ mask[at % 4];
	return len + 6;
}

static void say(int client, uint8_t first, const char *payload, size_t len)
{
	uint8_t bytes[160];
	size_t count = frame(bytes, first, payload, len);

	CHECK(write(client, bytes, count) == (ssize_t)count);
}

/* The next frame of the server has this first byte and payload. */
static void hears(int client, uint8_t first, const char *payload, size_t len)
{
	char bytes[160];

	for (size_t got = 0; got < len + 2;) {
		ssize_t count = read(client, bytes + got, len + 2 - got);

		CHECK(count > 0);
		got += (size_t)count;
	}
	CHECK((uint8_t)bytes[0] == first && (size_t)bytes[1] == len && !memcmp(bytes + 2, payload, len));
}

/* The server's last frame is a close frame with this code and a reason. */
static void hears_why(int client, uint16_t code)
{
	uint8_t bytes[160];
	size_t got = 0;
	ssize_t count;

	while ((count = read(client, bytes + got, sizeof bytes - got)) > 0)
		got += (size_t)count;
	CHECK(got > 4 && bytes[0] == 0x88 && bytes[1] == got - 2 && (bytes[2] << 8 | bytes[3]) == code);
}

static void is_closed(int client)
{
	char byte;

	CHECK(read(client, &byte, 1) <= 0);
	close(client);
}

struct served {
	fw_websocket websocket;
	fw_sink sink;
	int client;
};

static struct served serve(fw_sender sender, fw_message_kind kind, const uint8_t *leftover, size_t len)
{
	fw_sink_config config = fw_sink_config_default();
	struct served served;
	int pair[2];

	connect_pair(pair);
	config.policy.kind = FW_LATEST;
	OK(fw_websocket_new(sender, pair[0], leftover, len, kind, 100, &config, &served.websocket, &served.sink));
	close(pair[0]);
	served.client = pair[1];
	return served;
}

static void left(struct served served)
{
	is_closed(served.client);
	OK(fw_websocket_free(served.websocket));
	OK(fw_sink_free(served.sink));
}

/* Messages in both directions, a ping within a fragmented message, and the client's close. */
static void a_conversation(fw_sender sender)
{
	uint8_t leftover[160];
	char buffer[100];
	fw_websocket_message message;
	fw_meta meta = { .key = 1 };
	size_t len = frame(leftover, 0x81, "from before", 11);
	struct served served = serve(sender, FW_TEXT, leftover, len);
	struct pollfd file = { .events = POLLIN };
	uint16_t code;

	IS(FW_SMALL_BUFFER, fw_websocket_next(served.websocket, 0, NULL, 0, &message));
	CHECK(message.len == 11 && message.kind == FW_TEXT);
	OK(fw_websocket_next(served.websocket, 0, (uint8_t *)buffer, sizeof buffer, &message));
	CHECK(!memcmp(buffer, "from before", 11));
	IS(FW_NOTHING, fw_websocket_next(served.websocket, 0, (uint8_t *)buffer, sizeof buffer, &message));
	IS(FW_NOTHING, fw_websocket_ended(served.websocket, &code));
	OK(fw_sink_replace(served.sink, (const uint8_t *)"{\"door\":1}", 10, &meta, NULL));
	hears(served.client, 0x81, "{\"door\":1}", 10);

	OK(fw_websocket_fd(served.websocket, &file.fd));
	say(served.client, 0x02, "\0a", 2);
	say(served.client, 0x89, "there?", 6);
	say(served.client, 0x80, "b", 1);
	CHECK(poll(&file, 1, 60000) == 1);
	OK(fw_websocket_next(served.websocket, LIMIT, (uint8_t *)buffer, sizeof buffer, &message));
	CHECK(message.len == 3 && message.kind == FW_BINARY && !memcmp(buffer, "\0ab", 3));
	hears(served.client, 0x8a, "there?", 6);

	say(served.client, 0x88, "\x03\xe9 bye", 6);
	IS(FW_END, fw_websocket_next(served.websocket, LIMIT, (uint8_t *)buffer, sizeof buffer, &message));
	OK(fw_websocket_ended(served.websocket, &code));
	CHECK(code == 1001);
	hears(served.client, 0x88, "\x03\xe9", 2);
	left(served);
}

/* A breach of the protocol is answered with its code, and explained. */
static void a_violation(fw_sender sender)
{
	static const uint8_t unmasked[] = { 0x81, 1, 'x' };
	struct served served = serve(sender, FW_BINARY, unmasked, sizeof unmasked);
	fw_websocket_message message;
	uint16_t code;

	IS(FW_END, fw_websocket_next(served.websocket, LIMIT, NULL, 0, &message));
	OK(fw_websocket_ended(served.websocket, &code));
	CHECK(code == 1002 && strstr(fw_last_error(), "mask"));
	hears_why(served.client, 1002);
	left(served);
}

/* This side closes; what the client says then is ignored. */
static void a_close(fw_sender sender)
{
	struct served served = serve(sender, FW_BINARY, NULL, 0);
	fw_websocket_message message;
	fw_ended ended;
	uint16_t code;

	OK(fw_sink_push(served.sink, (const uint8_t *)"\0\1", 2, NULL, NULL));
	hears(served.client, 0x82, "\0\1", 2);
	OK(fw_websocket_close(served.websocket, 1001, "restart"));
	hears(served.client, 0x88, "\x03\xe9restart", 9);
	IS(FW_END, fw_websocket_next(served.websocket, LIMIT, NULL, 0, &message));
	OK(fw_websocket_ended(served.websocket, &code));
	CHECK(code == 0);
	IS(FW_CLOSED, fw_sink_interject(served.sink, NULL, 0));
	OK(fw_sink_close(served.sink, FW_DRAIN, LIMIT, &ended));
	CHECK(ended == FW_ENDED_CLOSED);
	left(served);
}

#define LARGE (1 << 20)

/* A close waits for the message in progress, and so does a wait for the close. */
static void a_close_behind_a_message(fw_engine engine)
{
	static uint8_t payload[LARGE];
	fw_ring ring = { .rings = 1, .slots = 64, .block_bytes = LARGE, .blocks = 4 };
	fw_sink_config config = fw_sink_config_default();
	fw_websocket websocket;
	fw_sender sender;
	fw_stats stats;
	fw_ended ended;
	fw_sink sink;
	int pair[2], least = 1 << 16;

	OK(fw_sender_new(engine, &ring, &sender));
	connect_pair(pair);
	/* More than both sockets take. */
	CHECK(!setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least));
	CHECK(!setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &least, sizeof least));
	config.linger = LIMIT;
	OK(fw_websocket_new(sender, pair[0], NULL, 0, FW_BINARY, 0, &config, &websocket, &sink));
	close(pair[0]);
	OK(fw_sink_push(sink, payload, sizeof payload, NULL, NULL));
	UNTIL(fw_sink_stats(sink, &stats) == FW_OK && stats.committed == 1);
	OK(fw_websocket_close(websocket, 1000, NULL));
	IS(FW_NOTHING, fw_sink_close(sink, FW_DRAIN, 0, &ended));
	for (size_t left_ = LARGE + 10 + 4; left_;) {
		ssize_t count = read(pair[1], payload, left_ < sizeof payload ? left_ : sizeof payload);

		CHECK(count > 0);
		left_ -= (size_t)count;
	}
	OK(fw_sink_close(sink, FW_DRAIN, LIMIT, &ended));
	CHECK(ended == FW_ENDED_CLOSED);
	is_closed(pair[1]);
	OK(fw_websocket_free(websocket));
	OK(fw_sink_free(sink));
	OK(fw_sender_free(sender));
}

/* A client that vanishes is the end, without a code. */
static void a_client_that_leaves(fw_sender sender)
{
	struct served served = serve(sender, FW_TEXT, NULL, 0);
	fw_websocket_message message;
	uint16_t code;

	CHECK(!shutdown(served.client, SHUT_WR));
	IS(FW_END, fw_websocket_next(served.websocket, LIMIT, NULL, 0, &message));
	OK(fw_websocket_ended(served.websocket, &code));
	CHECK(code == 0);
	left(served);
}

static void *next_until_the_end(void *served)
{
	const struct served *it = served;
	fw_websocket_message message;

	IS(FW_END, fw_websocket_next(it->websocket, FW_DEFAULT, NULL, 0, &message));
	return NULL;
}

/* The sink ends while the client is silent: a call that waits returns, and the descriptor is readable. */
static void an_end_of_the_sink(void)
{
	fw_ring ring = fw_ring_for_clients(1, 1, 64);
	struct pollfd file = { .events = POLLIN };
	struct served served;
	fw_engine engine;
	fw_sender sender;
	fw_ended ended;
	pthread_t thread;

	OK(fw_engine_new(&engine));
	OK(fw_sender_new(engine, &ring, &sender));
	served = serve(sender, FW_TEXT, NULL, 0);
	OK(fw_websocket_fd(served.websocket, &file.fd));
	CHECK(!pthread_create(&thread, NULL, next_until_the_end, &served));
	OK(fw_engine_free(engine));
	JOIN(thread);
	CHECK(poll(&file, 1, 60000) == 1);
	OK(fw_sink_ended(served.sink, &ended));
	CHECK(ended == FW_ENDED_STOPPED);
	left(served);
	OK(fw_sender_free(sender));
}

/* A value for two clients, one of which is slow: what was not sent is overwritten, and counted. */
static void a_value_for_all(fw_engine engine)
{
	fw_ring ring = fw_ring_for_clients(2, 1, 64);
	fw_sink_config config = fw_sink_config_default();
	fw_meta meta = { .key = 1 };
	fw_status missed[2];
	fw_stats stats[2];
	fw_sender sender;
	fw_sink sinks[2];
	char text[20];
	uint64_t seq;
	int pairs[2][2];

	OK(fw_sender_new(engine, &ring, &sender));
	config.policy.kind = FW_LATEST;
	for (int at = 0; at < 2; at++) {
		connect_pair(pairs[at]);
		OK(fw_sender_add_sink(sender, pairs[at][0], &config, &sinks[at]));
	}
	for (uint64_t tick = 0; tick < 2000; tick++) {
		int len = snprintf(text, sizeof text, "tick %4d\n", (int)tick);

		OK(fw_sender_replace_to_all(sender, sinks, 2, (const uint8_t *)text, (size_t)len, &meta, &seq, missed));
		CHECK(seq == tick && missed[0] == FW_OK && missed[1] == FW_OK);
	}
	for (int at = 0; at < 2; at++) {
		char last[10] = "";

		while (memcmp(last, "tick 1999\n", 10))
			CHECK(recv(pairs[at][1], last, 10, MSG_WAITALL) == 10);
		UNTIL(fw_sink_stats(sinks[at], &stats[at]) == FW_OK && stats[at].finished + stats[at].overwritten == 2000);
		CHECK(stats[at].dropped == 0);
	}
	close(pairs[0][1]);
	UNTIL((fw_sender_replace_to_all(sender, sinks, 2, (const uint8_t *)"x", 1, &meta, NULL, missed), missed[0] == FW_CLOSED));
	CHECK(missed[1] == FW_OK);
	for (int at = 0; at < 2; at++) {
		OK(fw_sink_free(sinks[at]));
		close(pairs[at][0]);
	}
	close(pairs[1][1]);
	OK(fw_sender_free(sender));
}

/* Messages name what C has. */
static void a_message_with_names_of_c(fw_engine engine)
{
	fw_sink_config config = fw_sink_config_default();
	fw_sender sender;
	fw_sink sinks[2];
	int pair[2];

	connect_pair(pair);
	OK(fw_sender_new(engine, NULL, &sender));
	config.keys = 100000;
	CHECK(fw_sender_add_sink(sender, pair[0], &config, &sinks[0]) < 0);
	CHECK(strstr(fw_last_error(), "fw_ring.slots") && strstr(fw_last_error(), "fw_ring_for_clients"));
	CHECK(!strstr(fw_last_error(), "::"));
	config.keys = FW_DEFAULT;
	OK(fw_sender_add_sink(sender, pair[0], &config, &sinks[0]));
	IS(FW_NO_RING, fw_sender_add_sink(sender, pair[0], &config, &sinks[1]));
	CHECK(strstr(fw_last_error(), "fw_ring.rings") && !strstr(fw_last_error(), "::"));
	OK(fw_sink_free(sinks[0]));
	OK(fw_sender_free(sender));
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	fw_ring ring = fw_ring_for_clients(8, 1, 64);
	char accept_[FW_WEBSOCKET_ACCEPT];
	fw_websocket websocket;
	fw_engine engine;
	fw_sender sender;
	fw_sink sink;

	/* RFC 6455, section 1.3. */
	OK(fw_websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept_));
	CHECK(!strcmp(accept_, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
	IS(FW_INVALID, fw_websocket_accept("short", accept_));
	OK(fw_engine_new(&engine));
	OK(fw_sender_new(engine, &ring, &sender));
	IS(FW_INVALID, fw_websocket_new(sender, -1, NULL, 0, FW_TEXT, 0, NULL, &websocket, &sink));
	IS(FW_INVALID, fw_websocket_new(sender, 0, NULL, 0, 7, 0, NULL, &websocket, &sink));
	a_conversation(sender);
	a_violation(sender);
	a_close(sender);
	a_close_behind_a_message(engine);
	a_client_that_leaves(sender);
	an_end_of_the_sink();
	a_value_for_all(engine);
	a_message_with_names_of_c(engine);
	OK(fw_sender_free(sender));
	OK(fw_engine_free(engine));
	printf("conversation: ok, libfreshwire %s\n", fw_version());
	return 0;
}
