//! Acknowledgements that a TCP stack need not see, dropped before it by eBPF.
//!
//! A host that sends at high rates to receivers that acknowledge each packet spends much of its time on
//! acknowledgements. The camera of Marigi and Irestål (2012) filtered them in its network processor; here two small
//! programs do, one at each direction of a network interface:
//!
//! ```text
//!  TCP ──► acks_out (tc egress): segments before offload ──► device
//!                  │ CONNECTIONS: what was sent, segment sizes (LRU, 16384)
//!  TCP ◄── acks_xdp (XDP) or acks_in (tc ingress): drop or pass ◄── device
//! ```
//!
//! [`Connection::decide`] is the decision as a pure function; `bpf/ack_filter.c` the same in the kernel. What the filter does not
//! understand passes. The programs leave with the [`Filter`], and with its process however that ends: they hang on BPF links.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod decision;
mod filter;
mod interface;
mod watch;

pub use decision::{Ack, Config, Connection, Rule, Segment, Verdict};
pub use filter::{Counters, Filter, FilterError, Hook, HookChoice, KEY_BYTES, LoadedFilter, tc_programs};
pub use watch::{Advice, Watch, WatchConfig};
