//! The library that `freshwire-host push` preloads: a UDP socket's buffer is emptied into the program's memory before it
//! overflows, and the program's receives take from there first.
//!
//! The newest datagram always stays in the kernel's buffer. So the socket is readable whenever anything waits, and
//! `poll`, `select`, `epoll` and a blocked receive need no help: they stay the kernel's own.

pub mod calls;
mod deliver;
mod fork;
mod real;
mod relatives;
mod report;
mod settings;
mod sockets;
mod tables;
