//! The messages between the command and its workers: one JSON value to a line.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::viewer::{Arrival, Shown};
use crate::schema::{LinkConfig, Trust};

/// Layers of the ladder: I, P, B, b.
pub(super) const LAYERS: usize = 4;

/// How the stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scheme {
    /// Every access unit by a blocking `send()` when it is emitted.
    PlainTcp,
    /// Freshwire's choice at the last moment, over TCP.
    Freshwire,
    /// The same over A1, where it lasts until the last retransmission.
    A1,
}

impl Scheme {
    /// All, in the order in which they are shown.
    pub(super) const ALL: [Self; 3] = [Self::PlainTcp, Self::Freshwire, Self::A1];

    /// Its place among all.
    pub(super) fn place(self) -> usize {
        match self {
            Self::PlainTcp => 0,
            Self::Freshwire => 1,
            Self::A1 => 2,
        }
    }

    /// Its name for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::PlainTcp => "plain TCP",
            Self::Freshwire => "Freshwire",
            Self::A1 => "Freshwire, A1",
        }
    }

    /// Its name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PlainTcp => "plain-tcp",
            Self::Freshwire => "freshwire",
            Self::A1 => "a1",
        }
    }
}

/// A worker's order. After its answer [`Message::Ready`] it receives the time when the first frame is captured, in
/// nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) scheme: Scheme,
    pub(super) link: LinkConfig,
    /// `None`: what the system chooses.
    pub(super) congestion: Option<String>,
    /// A picture older than this is late for the viewer.
    pub(super) deadline_ms: u64,
    /// The stream.
    pub(super) video: PathBuf,
    /// Where to write the bytes that the viewer received.
    pub(super) received: PathBuf,
}

/// A worker's message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub(super) enum Message {
    /// The connection is there.
    Ready,
    /// How it goes, ten times a second.
    Live(Live),
    /// How it went; the last message.
    Done(Box<Outcome>),
}

/// How a run goes. Counts are by layer and since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Live {
    /// Seconds since the start.
    pub(super) at_s: f64,
    /// Age of what is on the screen.
    pub(super) age_s: f64,
    /// Something is on the screen.
    pub(super) on_air: bool,
    /// Units that the camera emitted.
    pub(super) emitted: [u64; LAYERS],
    /// Units that arrived whole.
    pub(super) arrived: [u64; LAYERS],
    /// Units that the sender dropped.
    pub(super) dropped: [u64; LAYERS],
    /// The same, by reason.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Bytes that nobody can take back and that are not on the wire.
    pub(super) horizon_bytes: u64,
    /// Bytes that arrived.
    pub(super) received_bytes: u64,
    /// Torn units.
    pub(super) torn: u64,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) scheme: Scheme,
    /// The congestion control of the sending socket.
    pub(super) congestion: String,
    /// Units that arrived whole, in order of arrival.
    pub(super) arrivals: Vec<Arrival>,
    /// Frames that came on the screen.
    pub(super) shown: Vec<Shown>,
    /// Units that the sender dropped, and why.
    pub(super) drops: Vec<Dropped>,
    /// Torn units.
    pub(super) torn: u64,
    /// Whole units without their references.
    pub(super) undecodable: u64,
    /// Bytes that arrived.
    pub(super) received_bytes: u64,
    /// The largest horizon that was seen.
    pub(super) horizon_max_bytes: u64,
    /// Whether the machine kept up.
    pub(super) trust: Trust,
}

/// A unit that was never sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dropped {
    /// Its number in decoding order.
    pub(super) unit: usize,
    /// The name of the reason.
    pub(super) reason: String,
}

/// Writes a value as one line.
pub(super) fn say(mut to: impl Write, value: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(value).context("cannot write a message")?;
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush()).context("cannot write a message")
}
