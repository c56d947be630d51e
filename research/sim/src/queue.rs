//! The receive queue of Choi, Kim and Yoo, "Self-prevention of socket buffer overflow" (Computer Networks 51, 2007).
//! It has a network card's queue, socket buffers, and processes that run only while the system is idle.
//!
//! ```text
//!  Poisson arrivals ─► NIC queue ─► transaction ─► check point ─► socket buffers ─► processes, while the system is idle
//!                      300          5 ticks        push above      64 packets        10 packets in a tick, preempted
//!                                                  a threshold                       by the next arrival
//! ```
//!
//! One processor does all of it; the system comes before processes. Time is in ticks, without a relation to seconds. The article
//! leaves several rules open; [`Reading`] and the fields of [`Config`] that say so name them, and
//! `docs/lab-notebook/2026-11-27-queue-simulation.md` says how well each fits the published numbers.

mod config;
mod experiment;
mod model;

pub use config::{Config, ConfigError, PushConfig, Reading, Spread};
pub use experiment::{Cell, Mean, Regression, TABLE_2, mean_of, table_2};
pub use model::{Outcome, simulate};
