/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tcp_ldc

#if !defined(_TCP_LDC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TCP_LDC_TRACE_H

#include <linux/tracepoint.h>
#include <net/inet_sock.h>

/* A record's first byte is handed over to TCP. */
TRACE_EVENT(ldc_take,
	TP_PROTO(const struct sock *sk, u64 index, u64 user_seq, u32 len,
		 u32 horizon),
	TP_ARGS(sk, index, user_seq, len, horizon),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u64, index)
		__field(u64, user_seq)
		__field(u32, len)
		__field(u32, horizon)
		__field(u16, sport)
		__field(u16, dport)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->index = index;
		__entry->user_seq = user_seq;
		__entry->len = len;
		__entry->horizon = horizon;
		__entry->sport = ntohs(inet_sk(sk)->inet_sport);
		__entry->dport = ntohs(inet_sk(sk)->inet_dport);
	),
	TP_printk("sk=%p sport=%u dport=%u index=%llu user_seq=%llu len=%u horizon=%u",
		  __entry->sk, __entry->sport, __entry->dport, __entry->index,
		  __entry->user_seq, __entry->len, __entry->horizon)
);

/* The kernel drops a record. */
TRACE_EVENT(ldc_drop,
	TP_PROTO(const struct sock *sk, u64 index, u64 user_seq, u8 reason),
	TP_ARGS(sk, index, user_seq, reason),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u64, index)
		__field(u64, user_seq)
		__field(u16, sport)
		__field(u16, dport)
		__field(u8, reason)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->index = index;
		__entry->user_seq = user_seq;
		__entry->sport = ntohs(inet_sk(sk)->inet_sport);
		__entry->dport = ntohs(inet_sk(sk)->inet_dport);
		__entry->reason = reason;
	),
	TP_printk("sk=%p sport=%u dport=%u index=%llu user_seq=%llu reason=%u",
		  __entry->sk, __entry->sport, __entry->dport, __entry->index,
		  __entry->user_seq, __entry->reason)
);

DECLARE_EVENT_CLASS(ldc_sleeper,
	TP_PROTO(const struct sock *sk, u64 next),
	TP_ARGS(sk, next),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u64, next)
		__field(u16, sport)
		__field(u16, dport)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->next = next;
		__entry->sport = ntohs(inet_sk(sk)->inet_sport);
		__entry->dport = ntohs(inet_sk(sk)->inet_dport);
	),
	TP_printk("sk=%p sport=%u dport=%u next=%llu", __entry->sk,
		  __entry->sport, __entry->dport, __entry->next)
);

/* Nothing is left to take; the next push has to notify. */
DEFINE_EVENT(ldc_sleeper, ldc_sleep,
	TP_PROTO(const struct sock *sk, u64 next), TP_ARGS(sk, next));

/* Somebody notified. */
DEFINE_EVENT(ldc_sleeper, ldc_wake,
	TP_PROTO(const struct sock *sk, u64 next), TP_ARGS(sk, next));

#endif /* _TCP_LDC_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
