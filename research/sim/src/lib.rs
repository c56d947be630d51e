//! Worlds of A1 endpoints across emulated links, in virtual time.
//!
//! A [`World`] runs the public API of [`freshwire_a1`] over links of [`freshwire_link`], without a clock. All
//! randomness follows from its seed: the same seed gives the same datagrams. Every record that is delivered is
//! checked against what was pushed. A [`Scenario`] is a world in a text file, named for what it tells, with what has
//! to be reached in it; [`run()`] plays it.
#![forbid(unsafe_code)]

mod feed;
mod flow;
mod node;
mod offer;
mod outcome;
mod pipe;
pub mod queue;
mod rng;
mod run;
mod scenario;
mod speed;
mod world;

pub use feed::{Arrival, Ending, Entry, Fault, Feed};
pub use flow::{Flow, FlowConfig, PolicyKind, Side};
pub use offer::SourceConfig;
pub use outcome::{FlowOutcome, Outcome, SLOTS, Slot};
pub use pipe::{DirectionConfig, DirectionStats, Duplicate, Reorder};
pub use run::run;
pub use scenario::{Expect, FlowPlan, Happening, PathPlan, SCENARIOS, Scenario, ScenarioError};
pub use speed::{SpeedConfig, SpeedOutcome};
pub use world::{CapturedDatagram, FlowId, NodeId, PathId, World};
