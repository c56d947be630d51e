/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Drops acknowledgements that tell a sending host next to nothing, before the TCP stack sees them.
 *
 *   out (tc egress)   learns from each segment, before segmentation offload, what was sent: snd_nxt, MSS, segment size
 *   in  (XDP or tc)   decides about each pure ACK; everything else passes
 *
 * decide() is the counterpart of freshwire_acks::Connection::decide in ../src/decision.rs: the tests hold them together.
 * Every doubt passes: unknown connections, other protocols, IP options and extension headers, fragments, short packets.
 *
 * Fields of a connection have one writer each, the program of their direction, but for checkpoint, recover and recovering. A lost
 * update of one of these passes or drops one ACK more; it cannot withhold the last one, since ACKs of all that was sent pass.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define ntohs(x) __builtin_bswap16(x)
#define ntohl(x) __builtin_bswap32(x)

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*map_delete)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)BPF_FUNC_skb_pull_data;

/* Verdicts, and the counters of the same numbers. Keep in step with ../src/decision.rs. */
enum verdict {
	DROP,
	PASS_OTHER,	/* not TCP over IPv4 or IPv6 without options and extensions */
	PASS_UNKNOWN,	/* no data was sent on this connection since the start, or it was forgotten */
	PASS_DATA,
	PASS_FLAGS,
	PASS_OPTIONS,	/* SACK, or anything but timestamps */
	PASS_OUTSIDE,	/* older than another ACK, or beyond what was sent */
	PASS_DUPLICATE,
	PASS_WINDOW,
	PASS_RECOVERY,
	PASS_LAST,	/* at most one packet is left unacknowledged */
	PASS_SPACING,	/* a segment's worth since the last one that passed */
	PASS_TIME,
	VERDICTS,
	SEGMENTS = VERDICTS,	/* segments sent, and their packets */
	PACKETS,
	COUNTERS,
};

enum rule { RULE_SAFE, RULE_CAKE, RULE_CHECKPOINT };

struct config {
	__u32 rule;
	__u32 window_shift;	/* windows may change by 1/2^shift */
	__u64 guard_ns;		/* an ACK passes when the last one passed this long ago */
};

struct key {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;	/* network order */
	__u16 remote_port;
	__u32 zero;
};

struct connection {
	__u32 snd_nxt;
	__u32 quantum;		/* average bytes of a segment before segmentation offload */
	__u32 mss;
	__u32 checkpoint;
	__u32 recover;		/* retransmissions are repaired when this is acknowledged */
	__u32 recovering;
	__u32 highest;		/* highest ACK seen */
	__u32 passed;		/* highest ACK that passed */
	__u32 window;		/* window of the last ACK that passed, not scaled */
	__u32 zero;
	__u64 passed_at;
};

struct packet {
	struct key key;
	__u32 seq;
	__u32 ack;
	__u32 window;
	__u32 payload;
	__u8 flags;		/* the low byte */
	__u8 reserved;		/* reserved bits and AE */
	__u8 has_options;
};

struct map_def {
	__u32 type, key_size, value_size, max_entries, flags;
};

struct map_def SEC("maps") CONFIG = { BPF_MAP_TYPE_ARRAY, sizeof(__u32), sizeof(struct config), 1, 0 };
struct map_def SEC("maps") COUNTERS_MAP = { BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(__u32), sizeof(__u64), COUNTERS, 0 };
struct map_def SEC("maps") CONNECTIONS = {
	BPF_MAP_TYPE_LRU_HASH, sizeof(struct key), sizeof(struct connection), 16384, 0
};

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

INLINE void count(__u32 counter, __u64 by)
{
	__u64 *value = map_lookup(&COUNTERS_MAP, &counter);

	if (value)
		*value += by;
}

INLINE __s32 after(__u32 a, __u32 b)
{
	return (__s32)(a - b);
}

/* 0 when the packet is TCP as we understand it; local is its source if it goes out. */
INLINE int parse(void *data, void *end, __u32 length, int out, struct packet *packet)
{
	struct ethhdr *eth = data;
	struct tcphdr *tcp;
	__u32 offset = sizeof(*eth), header, total;
	__u16 type;
	void *ip;
	int tag;

	if (data + sizeof(*eth) > end)
		return -1;
	type = eth->h_proto;
#pragma unroll
	for (tag = 0; tag < 2; tag++) {
		if (type != ntohs(ETH_P_8021Q) && type != ntohs(ETH_P_8021AD))
			break;
		if (data + offset + 4 > end)
			return -1;
		type = *(__u16 *)(data + offset + 2);
		offset += 4;
	}
	__builtin_memset(packet, 0, sizeof(*packet));
	ip = data + offset;
	if (type == ntohs(ETH_P_IP)) {
		struct iphdr *v4 = ip;

		if ((void *)(v4 + 1) > end)
			return -1;
		if (v4->ihl != 5 || v4->version != 4 || v4->protocol != IPPROTO_TCP || (v4->frag_off & ntohs(0x3fff)) ||
		    (v4->tos & 3) == 3)
			return -1;
		__builtin_memcpy(out ? packet->key.local : packet->key.remote, &v4->saddr, 4);
		__builtin_memcpy(out ? packet->key.remote : packet->key.local, &v4->daddr, 4);
		total = ntohs(v4->tot_len);
		header = sizeof(*v4);
	} else if (type == ntohs(ETH_P_IPV6)) {
		struct ipv6hdr *v6 = ip;

		if ((void *)(v6 + 1) > end)
			return -1;
		if (v6->version != 6 || v6->nexthdr != IPPROTO_TCP || ((v6->flow_lbl[0] >> 4) & 3) == 3)
			return -1;
		__builtin_memcpy(out ? packet->key.local : packet->key.remote, &v6->saddr, 16);
		__builtin_memcpy(out ? packet->key.remote : packet->key.local, &v6->daddr, 16);
		total = ntohs(v6->payload_len) + sizeof(*v6);
		header = sizeof(*v6);
	} else {
		return -1;
	}
	tcp = ip + header;
	if ((void *)(tcp + 1) > end)
		return -1;
	packet->key.local_port = out ? tcp->source : tcp->dest;
	packet->key.remote_port = out ? tcp->dest : tcp->source;
	packet->seq = ntohl(tcp->seq);
	packet->ack = ntohl(tcp->ack_seq);
	packet->window = ntohs(tcp->window);
	packet->flags = ((__u8 *)tcp)[13];
	packet->reserved = ((__u8 *)tcp)[12] & 0x0f;
	header += tcp->doff * 4;
	/* The lengths of a segment before offload may not fit the header: the buffer's own counts for what goes out. */
	if (out)
		total = length - offset;
	else if (total > length - offset)
		return -1;
	if (tcp->doff < 5 || header > total)
		return -1;
	packet->payload = total - header;
	/* No options, or timestamps as everybody aligns them. */
	if (tcp->doff == 8) {
		__u8 *options = (__u8 *)(tcp + 1);

		if ((void *)(options + 12) > end)
			return -1;
		packet->has_options = !(options[0] == 1 && options[1] == 1 && options[2] == 8 && options[3] == 10);
	} else {
		packet->has_options = tcp->doff != 5;
	}
	return 0;
}

INLINE enum verdict decide(struct connection *c, const struct packet *p, const struct config *config, __u64 now)
{
	__s32 ahead, left, since;
	__u32 slack, spacing, flight;

	if (p->payload)
		return PASS_DATA;
	if (config->rule == RULE_CHECKPOINT) {
		/* As in the thesis: of window, SACK and the other flags it says nothing. Of lost packets neither; without
		 * PASS_RECOVERY a sender that lost two ends of a window heard nothing and waited for longer and longer. */
		if ((p->flags & (SYN | FIN | RST)) || !(p->flags & ACK))
			return PASS_FLAGS;
		if (p->ack == c->highest)
			return PASS_DUPLICATE;
		if (after(p->ack, c->snd_nxt) > 0)
			return PASS_OUTSIDE;
		if (c->recovering && after(p->ack, c->recover) < 0)
			return PASS_RECOVERY;
		return after(p->ack, c->checkpoint) >= 0 ? PASS_SPACING : DROP;
	}
	if (p->flags != ACK || p->reserved)
		return PASS_FLAGS;
	if (p->has_options)
		return PASS_OPTIONS;
	ahead = after(p->ack, c->highest);
	left = after(c->snd_nxt, p->ack);
	if (ahead < 0 || left < 0)
		return PASS_OUTSIDE;
	if (ahead == 0)
		return PASS_DUPLICATE;
	if (config->rule == RULE_SAFE) {
		slack = c->window >> config->window_shift;
		if (!p->window || p->window + slack < c->window || p->window > c->window + slack)
			return PASS_WINDOW;
	}
	if (c->recovering && after(p->ack, c->recover) < 0)
		return PASS_RECOVERY;
	if ((__u32)left < 2 * c->mss)
		return PASS_LAST;
	since = after(p->ack, c->passed);
	if (config->rule == RULE_SAFE) {
		flight = (c->snd_nxt - c->passed) / 3;
		spacing = c->quantum < flight ? c->quantum : flight;
		if (since < 0 || (__u32)since >= spacing)
			return PASS_SPACING;
	}
	if ((__s64)(now - c->passed_at) >= (__s64)config->guard_ns)
		return PASS_TIME;
	return DROP;
}

INLINE void remember(struct connection *c, const struct packet *p, enum verdict verdict, __u64 now)
{
	if (!(p->flags & ACK) || verdict == PASS_OUTSIDE)
		return;
	if (after(p->ack, c->highest) > 0)
		c->highest = p->ack;
	if (c->recovering && after(p->ack, c->recover) >= 0)
		c->recovering = 0;
	if (verdict == DROP)
		return;
	if (after(p->ack, c->checkpoint) >= 0)
		c->checkpoint = c->snd_nxt;
	c->passed = c->highest;
	c->window = p->window;
	c->passed_at = now;
}

/* 1: drop. */
INLINE int arrived(void *data, void *end, __u32 length)
{
	struct connection *connection;
	struct config *config;
	struct packet packet;
	enum verdict verdict;
	__u32 zero = 0;
	__u64 now;

	config = map_lookup(&CONFIG, &zero);
	if (!config || parse(data, end, length, 0, &packet)) {
		count(PASS_OTHER, 1);
		return 0;
	}
	connection = map_lookup(&CONNECTIONS, &packet.key);
	if (!connection) {
		count(PASS_UNKNOWN, 1);
		return 0;
	}
	if (packet.flags & (FIN | RST)) {
		map_delete(&CONNECTIONS, &packet.key);
		count(PASS_FLAGS, 1);
		return 0;
	}
	now = ktime_get_ns();
	verdict = decide(connection, &packet, config, now);
	remember(connection, &packet, verdict, now);
	count(verdict, 1);
	return verdict == DROP;
}

SEC("xdp") int acks_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return arrived(data, end, end - data) ? XDP_DROP : XDP_PASS;
}

/* Ethernet, two tags, IPv6, TCP, timestamps. */
#define HEADERS (14 + 8 + 40 + 20 + 12)

SEC("classifier") int acks_in(struct __sk_buff *skb)
{
	__u32 wanted = skb->len < HEADERS ? skb->len : HEADERS;

	if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end)
		skb_pull_data(skb, wanted);
	return arrived((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("classifier") int acks_out(struct __sk_buff *skb)
{
	__u32 wanted = skb->len < HEADERS ? skb->len : HEADERS, segment, mss, end_seq;
	struct connection *connection;
	struct packet packet;

	if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end)
		skb_pull_data(skb, wanted);
	if (parse((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len, 1, &packet))
		return TC_ACT_UNSPEC;
	if (packet.flags & (SYN | FIN | RST)) {
		map_delete(&CONNECTIONS, &packet.key);
		return TC_ACT_UNSPEC;
	}
	if (!packet.payload)
		return TC_ACT_UNSPEC;
	segment = packet.payload;
	mss = skb->gso_size ? skb->gso_size : segment;
	end_seq = packet.seq + segment;
	count(SEGMENTS, 1);
	count(PACKETS, skb->gso_segs ? skb->gso_segs : 1);
	connection = map_lookup(&CONNECTIONS, &packet.key);
	if (!connection) {
		struct connection fresh = {};

		fresh.snd_nxt = end_seq;
		fresh.quantum = segment;
		fresh.mss = mss;
		fresh.checkpoint = end_seq;
		fresh.highest = packet.seq;
		fresh.passed = packet.seq;
		map_update(&CONNECTIONS, &packet.key, &fresh, BPF_ANY);
		return TC_ACT_UNSPEC;
	}
	if (after(packet.seq, connection->snd_nxt) < 0) {
		connection->recover = connection->snd_nxt;
		connection->recovering = 1;
	}
	if (mss > connection->mss || skb->gso_size)
		connection->mss = mss;
	/* A quarter of the newest: short ends of a burst do not count for much. */
	connection->quantum = connection->quantum - connection->quantum / 4 + segment / 4;
	if (after(end_seq, connection->snd_nxt) > 0) {
		if (after(connection->checkpoint, connection->highest) <= 0)
			connection->checkpoint = end_seq;
		connection->snd_nxt = end_seq;
	}
	return TC_ACT_UNSPEC;
}

char licence[] SEC("license") = "Dual MIT/GPL";
