//! Scenarios: worlds in text files.

mod text;

use std::time::Duration;

use freshwire_a1::{ConnectionConfig, Qos};
use freshwire_units::Rate;

use crate::flow::{PolicyKind, Side};
use crate::offer::Offer;
use crate::pipe::Way;

/// A world, what happens in it, and what has to be reached. Times count from the world's begin.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it tells, in a sentence.
    pub tells: String,
    /// Share of many seeds with which it reaches what it expects, at least.
    pub seeds: f64,
    /// For how long applications offer something.
    pub length: Duration,
    /// When something is wrong, if it is so only for a while: what is told of recovery counts from its end.
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
    pub up: Way,
    /// Towards the near side.
    pub down: Way,
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
    /// What is sent.
    pub offer: Offer,
    /// When it begins.
    pub start: Duration,
    /// What chooses.
    pub policy: PolicyKind,
    /// How both connections behave.
    pub connection: ConnectionConfig,
    /// The quality of service, as the near end sees it.
    pub qos: Qos,
    /// What has to be reached.
    pub expect: Expect,
}

/// What a flow has to reach. What is not named is not asked for; that bytes are right, that nothing comes twice, that
/// nothing reliable is lost and that what is late is marked always is.
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

/// Every scenario that comes with this crate, by name.
pub const SCENARIOS: &[(&str, &str)] = &[
    ("bit_damage", include_str!("../scenarios/bit_damage.toml")),
    ("bufferbloat", include_str!("../scenarios/bufferbloat.toml")),
    ("burst_loss", include_str!("../scenarios/burst_loss.toml")),
    ("duplicate_storm", include_str!("../scenarios/duplicate_storm.toml")),
    ("file_beside_video", include_str!("../scenarios/file_beside_video.toml")),
    ("lab_clean", include_str!("../scenarios/lab_clean.toml")),
    ("lab_lossy", include_str!("../scenarios/lab_lossy.toml")),
    ("marking_router", include_str!("../scenarios/marking_router.toml")),
    ("nat_rebinding", include_str!("../scenarios/nat_rebinding.toml")),
    ("one_slow_sink", include_str!("../scenarios/one_slow_sink.toml")),
    ("outage", include_str!("../scenarios/outage.toml")),
    ("peer_restart", include_str!("../scenarios/peer_restart.toml")),
    ("random_loss", include_str!("../scenarios/random_loss.toml")),
    ("reordering", include_str!("../scenarios/reordering.toml")),
    ("satellite", include_str!("../scenarios/satellite.toml")),
    ("step_down", include_str!("../scenarios/step_down.toml")),
    ("step_up", include_str!("../scenarios/step_up.toml")),
    ("two_videos", include_str!("../scenarios/two_videos.toml")),
    ("wifi_pause", include_str!("../scenarios/wifi_pause.toml")),
];

impl Scenario {
    /// Reads a scenario, which is TOML. `seed` is that of its links. [`SCENARIOS`] are examples of all of it; durations, sizes
    /// and rates are texts with units (`"50ms"`, `"16KiB"`, `"2Mbit"`).
    ///
    /// | table | fields, those in brackets may be left out |
    /// |---|---|
    /// | | `tells`, a sentence; `length`; \[`seeds`, a share, or 1\]; \[`trouble`: `from`, `to`\] |
    /// | `path.NAME` | \[`both`\], or \[`up`\] and \[`down`\]: \[`rate`, or `trace`: lines of seconds and a rate\], \[`delay`\], \[`queue` in bytes\], \[`loss`, a share, and `burst`, how many in a row\], \[`outages`: `at`, `length`\], \[`reorder`: `share`, `by`\], \[`duplicate`: `share`, `copies`, `within`\], \[`damage`, a share\], \[`mark_above`, bytes\]; \[`queue_p95`, to be reached\] |
    /// | `flow.NAME` | `path`; \[`near`: flows of the same text share an endpoint\]; \[`from`: `near` or `far`, who sends\]; `offer`; \[`start`, or 1 s\]; \[`policy`: `fifo`, `expiring`, `deadline`, `layered`, `latest`, `frames`, `live`\]; \[`connection`\]; \[`expect`\] |
    /// | `offer` | `kind`: `layers` (`layers`, `bytes`, `window`, `lifetime`), `frames` (`fps`, `rate`, `gop`, `lifetime`), `positions` (`objects`, `bytes`, `every`, `lifetime`), `messages` (`bytes`, `every`), `bulk` (`bytes`); see [`Offer`] |
    /// | `connection` | \[`idle_timeout`\], \[`keep_alive`\], \[`congestion`: `copa`, `cubic`, `new-reno`\], \[`in_order`\], \[`fec_layers`\], \[`outstanding`\]; see [`ConnectionConfig`] |
    /// | `expect` | as [`Expect`] has them |
    /// | `event`, many | `at`; `flow`; `what`: `rebind`, `restart-near`, `restart-far`, `stall`, `resume`, `update-keys` |
    ///
    /// # Errors
    /// If the text is none, with the line or the part that is wrong.
    pub fn parse(text: &str, seed: u64) -> Result<Self, ScenarioError> {
        text::parse(text, seed)
    }

    /// One of [`SCENARIOS`].
    pub fn text_of(name: &str) -> Option<&'static str> {
        SCENARIOS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
}
