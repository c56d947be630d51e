/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Shows 8 gauges in any browser, each at its own pace: a small HTTP server that hands its sockets over after the upgrade.
 *
 *   cc browser.c -o browser $(pkg-config --cflags --libs freshwire)
 *   ./browser 8000              (port, and perhaps how many ticks are shown before it ends)
 *   open http://127.0.0.1:8000
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <freshwire.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define GAUGES 8
#define CLIENTS 64
#define TICK UINT64_C(20000000)
/* A client that has not finished its request within this time is disconnected. */
#define PATIENCE UINT64_C(5000000000)

static const char PAGE[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<!doctype html><title>gauges</title><pre></pre><script>\n"
	"const seen = {}, socket = new WebSocket('ws://' + location.host + '/values');\n"
	"socket.onmessage = ({data}) => { const value = JSON.parse(data); seen[value.gauge] = data;\n"
	"  document.querySelector('pre').textContent = Object.values(seen).join('\\n'); };\n"
	"</script>\n";
static const char NOT_FOUND[] = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nopen / instead\n";

/* One connection: a request that is being read, or a WebSocket. */
struct client {
	int fd; /* -1 once it was handed over */
	uint64_t until;
	size_t len;
	char request[4096];
	fw_websocket websocket;
	fw_sink sink;
};

static struct client *clients[CLIENTS];

static void check(fw_status status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "%s\n", fw_last_error());
	exit(1);
}

static int listen_on(uint16_t port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), reuse = 1;

	address.sin_port = htons(port);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) ||
	    bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, CLIENTS) ||
	    getsockname(listener, (struct sockaddr *)&address, &len) || fcntl(listener, F_SETFL, O_NONBLOCK)) {
		perror("cannot listen");
		exit(1);
	}
	printf("libfreshwire %s serves http://127.0.0.1:%u\n", fw_version(), ntohs(address.sin_port));
	fflush(stdout);
	return listener;
}

static void leave(struct client **client)
{
	if ((*client)->fd >= 0) {
		close((*client)->fd);
	} else {
		check(fw_websocket_free((*client)->websocket));
		check(fw_sink_free((*client)->sink));
	}
	free(*client);
	*client = NULL;
}

static void enter(int fd)
{
	for (int at = 0; at < CLIENTS; at++) {
		if (clients[at])
			continue;
		clients[at] = calloc(1, sizeof *clients[at]);
		if (!clients[at])
			break;
		clients[at]->fd = fd;
		clients[at]->until = fw_now() + PATIENCE;
		return;
	}
	close(fd); /* full */
}

/* The value of a header of a request, which ends with a zero byte. */
static int header(const char *request, const char *name, char *value, size_t size)
{
	for (const char *line = strstr(request, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
		size_t len = strlen(name);

		if (strncasecmp(line + 2, name, len) || line[2 + len] != ':')
			continue;
		line += 3 + len;
		line += strspn(line, " \t");
		len = strcspn(line, "\r");
		while (len && (line[len - 1] == ' ' || line[len - 1] == '\t'))
			len--;
		if (len >= size)
			return 0;
		memcpy(value, line, len);
		value[len] = 0;
		return 1;
	}
	return 0;
}

/* Answers a whole request. Returns 0 if the connection ends with it. The answers are short, and the connection is new: they have room.
 * A client that has reset it must not end the program with a signal. */
static int answer(fw_sender sender, struct client *client, size_t head)
{
	fw_sink_config config = fw_sink_config_default();
	char key[64], host[128], origin[160], expected[160], accept_[FW_WEBSOCKET_ACCEPT], text[256];
	ssize_t written;
	int len;

	if (!strncmp(client->request, "GET / ", 6)) {
		written = send(client->fd, PAGE, sizeof PAGE - 1, MSG_NOSIGNAL);
		return 0;
	}
	/* A page of another site may not read the values: browsers say whose page it is. */
	if (!header(client->request, "Host", host, sizeof host))
		host[0] = 0;
	snprintf(expected, sizeof expected, "http://%s", host);
	if (header(client->request, "Origin", origin, sizeof origin) && strcmp(origin, expected))
		return 0;
	if (strncmp(client->request, "GET /values ", 12) ||
	    !header(client->request, "Sec-WebSocket-Key", key, sizeof key) || fw_websocket_accept(key, accept_)) {
		written = send(client->fd, NOT_FOUND, sizeof NOT_FOUND - 1, MSG_NOSIGNAL);
		return 0;
	}
	len = snprintf(text, sizeof text,
		       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		       "Sec-WebSocket-Accept: %s\r\n\r\n",
		       accept_);
	written = send(client->fd, text, (size_t)len, MSG_NOSIGNAL);
	if (written != len)
		return 0;
	config.policy.kind = FW_LATEST;
	config.keys = GAUGES;
	if (fw_websocket_new(sender, client->fd, (const uint8_t *)client->request + head, client->len - head, FW_TEXT, 0,
			     &config, &client->websocket, &client->sink)) {
		fprintf(stderr, "%s\n", fw_last_error());
		return 0;
	}
	close(client->fd); /* the library has its own */
	client->fd = -1;
	return 1;
}

/* Reads more of a request. Returns 0 if the connection ends. */
static int read_request(fw_sender sender, struct client *client)
{
	ssize_t count = read(client->fd, client->request + client->len, sizeof client->request - 1 - client->len);
	char *end;

	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (count <= 0)
		return 0;
	client->len += (size_t)count;
	client->request[client->len] = 0;
	end = strstr(client->request, "\r\n\r\n");
	return end ? answer(sender, client, (size_t)(end + 4 - client->request)) : client->len < sizeof client->request - 1;
}

/* Takes in what a browser says: this page says nothing, but pings and the close are answered here. Returns 0 at the end. */
static int read_messages(struct client *client)
{
	uint8_t buffer[256];
	fw_websocket_message message;
	fw_status status;

	while ((status = fw_websocket_next(client->websocket, 0, buffer, sizeof buffer, &message)) == FW_OK)
		printf("a browser says %.*s\n", (int)message.len, (const char *)buffer);
	return status == FW_NOTHING;
}

/* Gives all browsers the values of a tick. Returns 0 if there is none. */
static int publish(fw_sender sender, int tick)
{
	fw_sink sinks[CLIENTS];
	size_t count = 0;

	for (int at = 0; at < CLIENTS; at++)
		if (clients[at] && clients[at]->fd < 0)
			sinks[count++] = clients[at]->sink;
	for (uint64_t gauge = 1; count && gauge <= GAUGES; gauge++) {
		fw_meta meta = { .key = gauge };
		char text[64];
		int len = snprintf(text, sizeof text, "{\"gauge\":%" PRIu64 ",\"tick\":%d}", gauge, tick);

		/* What is still queued under this key is not sent any more. */
		check(fw_sender_push_to_all(sender, sinks, count, (const uint8_t *)text, (size_t)len, &meta, NULL, NULL));
	}
	return count > 0;
}

/* Ends all connections. The engine sends the last frames, so it is not freed before they are acknowledged, or have waited long enough. */
static void say_goodbye(void)
{
	uint64_t until = fw_now() + PATIENCE;
	fw_ended ended;

	for (int at = 0; at < CLIENTS; at++)
		if (clients[at] && clients[at]->fd < 0)
			check(fw_websocket_close(clients[at]->websocket, 1001, "the example ends"));
	for (int at = 0; at < CLIENTS; at++) {
		uint64_t now = fw_now();

		if (!clients[at])
			continue;
		if (clients[at]->fd < 0)
			check(fw_sink_close(clients[at]->sink, FW_DRAIN, until > now ? until - now : 0, &ended));
		leave(&clients[at]);
	}
}

int main(int argc, char **argv)
{
	int listener = listen_on(argc > 1 ? (uint16_t)atoi(argv[1]) : 0), ticks = argc > 2 ? atoi(argv[2]) : -1;
	fw_ring ring = fw_ring_for_clients(CLIENTS, GAUGES, 64);
	uint64_t next = fw_now() + TICK;
	fw_engine engine;
	fw_sender sender;

	check(fw_engine_new(&engine));
	check(fw_sender_new(engine, &ring, &sender));
	for (int tick = 0; ticks < 0 || tick < ticks;) {
		struct pollfd files[CLIENTS + 1];
		uint64_t now = fw_now();
		int wait = next > now ? (int)((next - now) / 1000000) + 1 : 0, fd;

		for (int at = 0; at < CLIENTS; at++) {
			files[at] = (struct pollfd){ .fd = clients[at] ? clients[at]->fd : -1, .events = POLLIN };
			if (clients[at] && clients[at]->fd < 0)
				check(fw_websocket_fd(clients[at]->websocket, &files[at].fd));
		}
		files[CLIENTS] = (struct pollfd){ .fd = listener, .events = POLLIN };
		if (poll(files, CLIENTS + 1, wait) < 0 && errno != EINTR) {
			perror("cannot wait");
			return 1;
		}
		now = fw_now();
		for (int at = 0; at < CLIENTS; at++) {
			int stays = 1;

			if (!clients[at])
				continue;
			if (clients[at]->fd >= 0)
				stays = files[at].revents ? read_request(sender, clients[at]) : now < clients[at]->until;
			else if (files[at].revents)
				stays = read_messages(clients[at]);
			if (!stays)
				leave(&clients[at]);
		}
		if (files[CLIENTS].revents)
			while ((fd = accept(listener, NULL, NULL)) >= 0)
				enter(fd);
		if (now >= next) {
			tick += publish(sender, tick);
			next += TICK;
		}
	}
	say_goodbye();
	check(fw_sender_free(sender));
	return fw_engine_free(engine);
}
