//! An emulated link on a real kernel, without root: three network namespaces and a thread that carries packets
//! between them as `freshwire_link` says.
//!
//! ```text
//!  near 10.77.0.1 fd77::1          middle (no addresses)               far 10.77.0.2 fd77::2
//!  ┌──────────────┐        ┌─────────────────────────────────┐        ┌──────────────┐
//!  │ programs     │  veth  │ AF_PACKET  ─ up ──►  AF_PACKET  │  veth  │ programs     │
//!  │        link0 ├────────┤ near0    Emulator         far0  ├────────┤ link0        │
//!  └──────────────┘        │            ◄── down ─           │        └──────────────┘
//!                          └─────────────────────────────────┘
//! ```
//!
//! The kernel's own TCP runs at both ends; what lies between is the model, with the arrival times that the kernel
//! stamped. Neighbours are fixed, offloads are off, and only IPv4 and IPv6 packets from one end to the other are
//! carried. So the n-th packet is the same packet in every run.
//!
//! [`Namespaces::create`] makes them, [`Emulator::start`] connects them. The process itself stays in its own network
//! namespace; [`Namespaces::in_near`] and [`Namespaces::in_far`] run code in the others. A socket belongs to the
//! namespace it was created in, wherever it is used. A process that has threads and is not root uses [`standalone`].
#![warn(clippy::missing_errors_doc)]
#![allow(clippy::disallowed_methods, reason = "an emulator runs by the real clock")]

mod drops;
mod emulator;
mod enclosure;
mod error;
mod ethtool;
mod lateness;
mod namespaces;
mod netlink;
mod packet;
mod pcapng;
mod process;
pub mod standalone;
pub mod testbed;
pub mod testing;
pub mod trust;
mod user;

pub use emulator::{
    Account, DirectionAccount, DirectionSnapshot, Emulator, EmulatorOptions, Lateness, Snapshot,
};
pub use enclosure::Enclosure;
pub use error::NetnsError;
/// How a direction of the link behaves, and what it loses.
pub use freshwire_link::{Config as LinkConfig, Loss};
pub use namespaces::Namespaces;
pub use pcapng::{Course, LogError, LoggedPacket, Place, logged_packets};
pub use process::{Arrived, Signals};
