//! `libfreshwire`: the C interface. The headers in `include` are made from this crate; a test compares them.
//!
//! - **Handles** are numbers in a table, with a generation. A handle that was freed, or never was one, is the status
//!   [`FW_DEAD_HANDLE`](fw_status::FW_DEAD_HANDLE), not undefined behaviour.
//! - **Panics** do not cross the border: the status is [`FW_PANIC`](fw_status::FW_PANIC).
//! - **Threads.** Every call may come from any thread at any time; calls on one sender are one at a time. A policy's function
//!   runs on the engine's thread and cannot call the library.
//! - **Forks.** A child process has none of the threads: handles of the parent have the status
//!   [`FW_FORKED`](fw_status::FW_FORKED) there.
#![allow(non_camel_case_types, reason = "names of C")]
#![allow(
    unexpected_cfgs,
    reason = "the files in `common` are for the crate for Python too, which has the feature `python`"
)]

mod a1;
mod a1_connection;
mod a1_types;
mod adaptive;
mod border;
mod common;
mod engine;
mod fanout;
mod fate;
mod gate;
mod group;
mod handles;
mod incoming;
mod link;
mod meta;
mod policy;
mod receiver;
mod reservation;
mod sender;
mod sink;
mod stream;
mod types;
mod websocket;

pub use a1::*;
pub use a1_connection::*;
pub use a1_types::*;
pub use adaptive::*;
pub use border::{fw_last_error, fw_status};
pub use common::structures::*;
pub use engine::*;
pub use fanout::*;
pub use fate::*;
pub use gate::*;
pub use group::*;
pub use handles::{
    fw_adaptive, fw_connection, fw_engine, fw_gate, fw_group, fw_incoming, fw_link, fw_node, fw_receiver,
    fw_reservation, fw_sender, fw_sink, fw_stream,
};
pub use incoming::*;
pub use link::*;
pub use meta::*;
pub use policy::*;
pub use receiver::*;
pub use reservation::*;
pub use sender::*;
pub use sink::*;
pub use stream::*;
pub use types::*;
pub use websocket::*;
