// SPDX-License-Identifier: MIT OR Apache-2.0
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define SMALL_BUFFER	4096
#define CASE_SECONDS	60
#define READ_MS		10000

struct pair make_pair(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), small = SMALL_BUFFER;
	struct pair pair;

	CHECK(listener >= 0);
	CHECK(!setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)));
	CHECK(!bind(listener, (struct sockaddr *)&address, len) && !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &len));
	pair.near = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(pair.near >= 0 && !connect(pair.near, (struct sockaddr *)&address, len));
	pair.far = accept(listener, NULL, NULL);
	CHECK(pair.far >= 0);
	close(listener);
	return pair;
}

bool read_all(int fd, void *to, size_t size)
{
	unsigned char *rest = to;

	while (size) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&wait, 1, READ_MS) <= 0)
			return false;
		got = recv(fd, rest, size, 0);
		if (got <= 0)
			return false;
		rest += got;
		size -= (size_t)got;
	}
	return true;
}

int run_cases(const struct test_case *cases, size_t count)
{
	size_t number;
	int failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("1..%zu\n", count);
	for (number = 0; number < count; number++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			alarm(CASE_SECONDS);
			cases[number].run();
			_exit(0);
		}
		waitpid(child, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
			printf("ok %zu %s\n", number + 1, cases[number].name);
			continue;
		}
		failed++;
		printf("not ok %zu %s (status %#x)\n", number + 1, cases[number].name,
		       (unsigned int)status);
	}
	return failed ? 1 : 0;
}
