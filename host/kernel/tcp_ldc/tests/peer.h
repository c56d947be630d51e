/* SPDX-License-Identifier: GPL-2.0-only */
/* Connections to test over, and what the other end does. */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A connected pair over loopback, AF_INET or AF_INET6; fds[0] is the sender. */
void tcp_pair(int family, int fds[2]);
/* A receive buffer that soon is full, and whose window still has segments. */
#define SMALL_BUFFER	16384
/* The same with a receive buffer set on the receiver before it connects. */
void tcp_pair_buffer(int family, int fds[2], int rcvbuf);

/* Moves the test into a network namespace whose loopback has this MTU. */
void own_network(unsigned int mtu);

/* Selects a congestion control; skips the test if the kernel has it not. */
void use_congestion(int fd, const char *name);

/* Reads exactly len bytes. */
void read_all(int fd, void *to, size_t len);
/* Reads what there is until the end; returns bytes, fails on a reset. */
size_t read_to_end(int fd, void *to, size_t max);
/* Reads one byte: 0 end, -ECONNRESET reset, 1 a byte. */
int read_end(int fd);

/* Bytes that TCP has not sent. */
uint32_t unsent(int fd);

/* Byte number at of the test stream of a seed. */
uint8_t stream_byte(uint64_t seed, uint64_t at);
void stream_fill(uint64_t seed, uint64_t at, void *to, size_t len);

#endif
