//! What a scenario says.

use std::time::Duration;

use freshwire_a1::{ConnectionConfig, Qos};
use freshwire_record::Rate;

use crate::flow::{PolicyKind, Side};
use crate::offer::SourceConfig;
use crate::pipe::DirectionConfig;

/// A world, what happens in it, and what has to be reached. Times count from the world's begin.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it tells, in a sentence.
    pub tells: String,
    /// Share of many seeds with which it reaches what it expects, at least.
    pub seeds: f64,
    /// For how long applications offer something.
    pub length: Duration,
    /// Period of a fault, if it is temporary: times of recovery count from its end.
    pub trouble: Option<(Duration, Duration)>,
    /// Paths by name, up and down.
    pub paths: Vec<PathPlan>,
    /// Connections by name.
    pub flows: Vec<FlowPlan>,
    /// What happens, in order of time.
    pub events: Vec<(Duration, Happening)>,
}

/// A path.
#[derive(Clone, Debug)]
pub struct PathPlan {
    /// Its name.
    pub name: String,
    /// Towards the far side.
    pub up: DirectionConfig,
    /// Towards the near side.
    pub down: DirectionConfig,
    /// 95 of 100 datagrams may wait for the transmitter for so long, towards the far side.
    pub queue_p95: Option<Duration>,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Its name.
    pub name: String,
    /// Its path's place in [`Scenario::paths`].
    pub path: usize,
    /// The near node's name; flows of the same name share it.
    pub near: String,
    /// Which end sends.
    pub from: Side,
    /// The traffic.
    pub offer: SourceConfig,
    /// When it begins.
    pub start: Duration,
    /// What chooses.
    pub policy: PolicyKind,
    /// How both connections behave.
    pub connection: ConnectionConfig,
    /// The quality of service, as the near end sees it.
    pub qos: Qos,
    /// The expectations.
    pub expect: Expect,
}

/// What a flow has to reach. Only named values are required. In any case bytes have to be right, nothing may come
/// twice, nothing reliable may be lost, and late records have to be marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expect {
    /// Share of all records that are of use on time, at least.
    pub on_time: Option<f64>,
    /// The same of records of layer 0.
    pub base: Option<f64>,
    /// 95 of 100 records come within this.
    pub delay_p95: Option<Duration>,
    /// Payload that is of use, over [`Scenario::length`].
    pub goodput: Option<Rate>,
    /// From the end of the trouble until a second in which every base record is on time; where records have no deadline,
    /// until something comes.
    pub recovery: Option<Duration>,
    /// Most bytes of payload that are queued or unsettled.
    pub held: Option<u64>,
    /// How far a receiver's idea of a record's age may be off.
    pub age_error: Option<Duration>,
}

/// Something that happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A NAT gives the near node another port.
    Rebind(usize),
    /// The process of an end dies and begins anew.
    Restart(usize, Side),
    /// The receiving application takes nothing any more.
    Stall(usize),
    /// It takes messages again.
    Resume(usize),
    /// The sending end changes its keys.
    UpdateKeys(usize),
}

/// A text that is no scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The text is not TOML, or has fields or values that are not known; with the line.
    #[error("{0}")]
    Text(String),
    /// A part of it cannot be.
    #[error("{part}: {problem}")]
    Part {
        /// Which.
        part: String,
        /// Why.
        problem: String,
    },
}
