//! The edges where Freshwire meets the operating system. It knows no protocol and no policy.
#![warn(clippy::missing_errors_doc)]
#![allow(clippy::disallowed_methods, reason = "this is where clocks are read")]

mod clock;
mod heap;
pub mod kernel_ring;
pub mod network;
mod page;
pub mod poll;
mod process;
mod random;
mod stamps;
pub mod tcp;
pub mod udp;

pub use clock::{now, thread_time};
pub use heap::share_heap;
pub use page::PageBuffer;
pub use process::end_with_parent;
pub use random::random;
