//! A UDP receiver whose kernel buffer is emptied before it overflows: *packet push*.
//!
//! A program that is busy for 50 ms loses what arrives meanwhile, although the machine has memory and time: the socket's
//! buffer overflows. A [`Receiver`] moves datagrams into the program's own memory before that happens, and decides late
//! which of them are still worth reading ([`Policy`]).
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use freshwire_push::Receiver;
//!
//! let receiver = Receiver::new(UdpSocket::bind("0.0.0.0:5004")?)?;
//! let mut buffer = [0; 2048];
//! loop {
//!     let (len, source) = receiver.recv_from(&mut buffer)?;
//!     println!("{len} bytes from {source}");        // may take its time
//! }
//! # #[allow(unreachable_code)]
//! # std::io::Result::Ok(())
//! ```
//!
//! The method is that of Choi, Kim and Yoo, "Self-prevention of socket buffer overflow" (Computer Networks 51, 2007).
//! A thread or `io_uring` takes the place of the publication's changes to the kernel. [`Threshold`] is its rule.
//! Linux only, 64-bit only.

#![warn(clippy::missing_errors_doc)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("freshwire-push needs 64-bit Linux");

mod lock;
mod name;
mod policy;
mod receiver;
mod threshold;
mod uring;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod module_ring;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod packet_ring;
#[doc(hidden)]
pub mod pushed;
#[doc(hidden)]
pub mod pusher;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod sys;

#[cfg(feature = "tokio")]
mod asynchronous;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncReceiver;
pub use policy::{Choose, Classify, Drops, Policy, Reason, Tag, Waiting};
pub use receiver::{Backend, Config, Pump, Received, Receiver, Statistics};
pub use sys::Precedence;
pub use threshold::Threshold;
pub use uring::{NoRing, probe as probe_io_uring};
