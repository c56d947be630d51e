//! How a scenario is written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use freshwire_a1::{Congestion, ConnectionConfig, Qos};
use freshwire_link::{Config, Loss, Schedule};
use freshwire_record::{ParseUnitError, Rate, parse_duration, parse_size};
use serde::Deserialize;

use super::plan::{Expect, FlowPlan, Happening, PathPlan, Scenario, ScenarioError};
use crate::flow::{PolicyKind, Side};
use crate::offer::SourceConfig;
use crate::pipe::{DirectionConfig, Duplicate, Reorder};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    tells: String,
    length: Time,
    seeds: Option<f64>,
    trouble: Option<RawTrouble>,
    path: BTreeMap<String, RawPath>,
    flow: BTreeMap<String, RawFlow>,
    #[serde(default)]
    event: Vec<RawEvent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTrouble {
    from: Time,
    to: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    /// Both directions, unless one of them is named besides.
    both: Option<RawDirection>,
    up: Option<RawDirection>,
    down: Option<RawDirection>,
    queue_p95: Option<Time>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDirection {
    rate: Option<Bits>,
    /// Lines of a time in seconds and a rate, as `freshwire link --trace` reads them.
    trace: Option<String>,
    delay: Option<Time>,
    queue: Option<Bytes>,
    loss: Option<f64>,
    /// Mean length of a run of lost packets.
    burst: Option<f64>,
    outages: Vec<RawOutage>,
    reorder: Option<RawReorder>,
    duplicate: Option<RawDuplicate>,
    damage: f64,
    mark_above: Option<Bytes>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutage {
    at: Time,
    length: Time,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReorder {
    share: f64,
    by: Time,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDuplicate {
    share: f64,
    copies: u32,
    within: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlow {
    path: String,
    near: Option<String>,
    #[serde(default)]
    from: RawSide,
    offer: RawOffer,
    #[serde(default)]
    start: Option<Time>,
    #[serde(default)]
    policy: PolicyKind,
    #[serde(default)]
    connection: RawConnection,
    #[serde(default)]
    expect: RawExpect,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawSide {
    #[default]
    Near,
    Far,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, tag = "kind")]
enum RawOffer {
    Layers { layers: u8, bytes: Bytes, window: Time, lifetime: Time },
    Frames { fps: f64, rate: Bits, gop: u32, lifetime: Time },
    Positions { objects: u32, bytes: Bytes, every: Time, lifetime: Time },
    Messages { bytes: Bytes, every: Time },
    Bulk { bytes: Bytes },
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConnection {
    idle_timeout: Option<Time>,
    keep_alive: Option<Time>,
    congestion: RawCongestion,
    in_order: bool,
    fec_layers: u8,
    outstanding: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawCongestion {
    #[default]
    Copa,
    Cubic,
    NewReno,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawExpect {
    on_time: Option<f64>,
    base: Option<f64>,
    delay_p95: Option<Time>,
    goodput: Option<Bits>,
    recovery: Option<Time>,
    held: Option<Bytes>,
    age_error: Option<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent {
    at: Time,
    flow: String,
    what: Action,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Rebind,
    RestartNear,
    RestartFar,
    Stall,
    Resume,
    UpdateKeys,
}

/// A duration as text.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

/// A rate as text.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Bits(Rate);

/// A size as text.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Bytes(u64);

impl TryFrom<String> for Time {
    type Error = ParseUnitError;
    fn try_from(text: String) -> Result<Self, ParseUnitError> {
        parse_duration(&text).map(Self)
    }
}

impl TryFrom<String> for Bits {
    type Error = ParseUnitError;
    fn try_from(text: String) -> Result<Self, ParseUnitError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for Bytes {
    type Error = ParseUnitError;
    fn try_from(text: String) -> Result<Self, ParseUnitError> {
        parse_size(&text).map(Self)
    }
}

pub(super) fn parse(text: &str, seed: u64) -> Result<Scenario, ScenarioError> {
    let raw: Raw = toml::from_str(text).map_err(|error| ScenarioError::Text(error.to_string()))?;
    let length = bounded("length", raw.length, MAX_LENGTH)?;
    let trouble = raw.trouble.map(|trouble| (trouble.from.0, trouble.to.0));
    if trouble.is_some_and(|(from, to)| to < from || to > length) {
        return Err(wrong("trouble", "it has to end after it begins, and before the scenario does"));
    }
    let seeds = raw.seeds.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&seeds) {
        return Err(wrong("seeds", "a share goes from 0 to 1"));
    }
    let names: Vec<String> = raw.path.keys().cloned().collect();
    let mut paths = Vec::new();
    for (place, (name, path)) in raw.path.into_iter().enumerate() {
        paths.push(path.plan(name, seed.wrapping_add(place as u64))?);
    }
    let flow_names: Vec<String> = raw.flow.keys().cloned().collect();
    let mut flows = Vec::new();
    for (name, flow) in raw.flow {
        flows.push(flow.plan(name, &names)?);
    }
    if flows.len() > MAX_FLOWS {
        return Err(wrong("flow", "there may be 64 at most"));
    }
    let mut events = Vec::new();
    for event in raw.event {
        let flow = place(&flow_names, &event.flow)
            .ok_or_else(|| wrong("event", format!("there is no flow {:?}", event.flow)))?;
        if event.at.0 > length {
            return Err(wrong("event", "it is after the scenario's end"));
        }
        events.push((event.at.0, event.what.happens_to(flow)));
    }
    events.sort_by_key(|(at, _)| *at);
    Ok(Scenario { tells: raw.tells, seeds, length, trouble, paths, flows, events })
}

impl RawPath {
    fn plan(self, name: String, seed: u64) -> Result<PathPlan, ScenarioError> {
        let read = |raw: Option<RawDirection>, direction: &str| {
            let raw = raw.or_else(|| self.both.clone()).unwrap_or_default();
            raw.plan(seed).map_err(|problem| wrong(format!("path {name}, {direction}"), problem))
        };
        let (up, down) = (read(self.up.clone(), "up")?, read(self.down.clone(), "down")?);
        Ok(PathPlan { up, down, queue_p95: self.queue_p95.map(|time| time.0), name })
    }
}

impl RawDirection {
    fn plan(self, seed: u64) -> Result<DirectionConfig, String> {
        let schedule = match (&self.rate, &self.trace) {
            (None, None) => Schedule::constant(DEFAULT_RATE),
            (Some(rate), None) => Schedule::constant(rate.0),
            (None, Some(trace)) => Schedule::parse(trace).map_err(|error| format!("trace: {error}"))?,
            (Some(_), Some(_)) => return Err("it has a rate or a trace, not both".to_owned()),
        };
        let loss = match (self.loss, self.burst) {
            (None, None) => Loss::None,
            (Some(share), None) => Loss::Random { share },
            (Some(share), Some(mean_packets)) => Loss::Burst { share, mean_packets },
            (None, Some(_)) => return Err("a burst needs a loss".to_owned()),
        };
        let shares = [
            self.damage,
            self.reorder.as_ref().map_or(0.0, |reorder| reorder.share),
            self.duplicate.as_ref().map_or(0.0, |duplicate| duplicate.share),
        ];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Err("a share goes from 0 to 1".to_owned());
        }
        let mut link = Config::builder().schedule(schedule).loss(loss).seed(seed);
        link = link.delay(self.delay.map_or(MIN_DELAY, |delay| delay.0.max(MIN_DELAY)));
        if let Some(queue) = self.queue {
            link = link.queue_bytes(queue.0);
        }
        for outage in &self.outages {
            link = link.outage(outage.at.0, outage.length.0);
        }
        Ok(DirectionConfig {
            link: link.build().map_err(|error| error.to_string())?,
            reorder: self.reorder.map(|reorder| Reorder { share: reorder.share, by: reorder.by.0 }),
            duplicate: self.duplicate.map(|duplicate| Duplicate {
                share: duplicate.share,
                copies: duplicate.copies.min(MAX_COPIES),
                within: duplicate.within.0,
            }),
            damage: self.damage,
            mark_above: self.mark_above.map(|bytes| bytes.0),
        })
    }
}

impl RawFlow {
    fn plan(self, name: String, paths: &[String]) -> Result<FlowPlan, ScenarioError> {
        let part = format!("flow {name}");
        let path = place(paths, &self.path)
            .ok_or_else(|| wrong(&part, format!("there is no path {:?}", self.path)))?;
        let offer = self.offer.plan().map_err(|problem| wrong(&part, problem))?;
        let (connection, qos) = self.connection.plan();
        qos.check_range().map_err(|problem| wrong(&part, problem))?;
        Ok(FlowPlan {
            path,
            near: self.near.unwrap_or_else(|| name.clone()),
            from: match self.from {
                RawSide::Near => Side::Near,
                RawSide::Far => Side::Far,
            },
            offer,
            start: self.start.map_or(DEFAULT_START, |start| start.0),
            policy: self.policy,
            connection,
            qos,
            expect: self.expect.plan(),
            name,
        })
    }
}

impl RawOffer {
    fn plan(self) -> Result<SourceConfig, String> {
        let size = |bytes: Bytes| match u32::try_from(bytes.0) {
            Ok(bytes) if bytes > 0 && bytes <= Qos::MAX_MESSAGE => Ok(bytes),
            _ => Err("a record has from 1 byte to 64 MiB".to_owned()),
        };
        let pace = |time: Time| match time.0 {
            time if time >= MIN_PACE => Ok(time),
            _ => Err("records come at most every 10 us".to_owned()),
        };
        Ok(match self {
            Self::Layers { layers, bytes, window, lifetime } => SourceConfig::Layers {
                layers,
                bytes: size(bytes)?,
                window: pace(window)?,
                lifetime: lifetime.0,
            },
            Self::Frames { fps, rate, gop, lifetime } if (0.1..=1000.0).contains(&fps) => {
                SourceConfig::Frames { fps, rate: rate.0, gop, lifetime: lifetime.0 }
            }
            Self::Frames { .. } => return Err("there are from 0.1 to 1000 pictures in a second".to_owned()),
            Self::Positions { objects, bytes, every, lifetime } => SourceConfig::Positions {
                objects,
                bytes: size(bytes)?,
                every: pace(every)?,
                lifetime: lifetime.0,
            },
            Self::Messages { bytes, every } => {
                SourceConfig::Messages { bytes: size(bytes)?, every: pace(every)? }
            }
            Self::Bulk { bytes } => SourceConfig::Bulk { bytes: size(bytes)? },
        })
    }
}

impl RawConnection {
    fn plan(self) -> (ConnectionConfig, Qos) {
        let mut config = ConnectionConfig::default();
        config.idle_timeout = self.idle_timeout.map_or(config.idle_timeout, |time| time.0);
        config.keep_alive = self.keep_alive.map(|time| time.0);
        config.in_order = self.in_order;
        config.fec_layers = self.fec_layers;
        config.congestion = match self.congestion {
            RawCongestion::Copa => Congestion::Copa,
            RawCongestion::Cubic => Congestion::Cubic,
            RawCongestion::NewReno => Congestion::NewReno,
        };
        let mut qos = Qos::default();
        qos.outstanding = self.outstanding.unwrap_or(qos.outstanding);
        (config, qos)
    }
}

impl RawExpect {
    fn plan(self) -> Expect {
        Expect {
            on_time: self.on_time,
            base: self.base,
            delay_p95: self.delay_p95.map(|time| time.0),
            goodput: self.goodput.map(|rate| rate.0),
            recovery: self.recovery.map(|time| time.0),
            held: self.held.map(|bytes| bytes.0),
            age_error: self.age_error.map(|time| time.0),
        }
    }
}

impl Action {
    fn happens_to(self, flow: usize) -> Happening {
        match self {
            Self::Rebind => Happening::Rebind(flow),
            Self::RestartNear => Happening::Restart(flow, Side::Near),
            Self::RestartFar => Happening::Restart(flow, Side::Far),
            Self::Stall => Happening::Stall(flow),
            Self::Resume => Happening::Resume(flow),
            Self::UpdateKeys => Happening::UpdateKeys(flow),
        }
    }
}

fn place(names: &[String], name: &str) -> Option<usize> {
    names.iter().position(|known| known == name)
}

fn bounded(part: &str, time: Time, most: Duration) -> Result<Duration, ScenarioError> {
    if time.0 > most {
        return Err(wrong(part, format!("{:?} is longer than {most:?}", time.0)));
    }
    Ok(time.0)
}

fn wrong(part: impl Display, problem: impl Display) -> ScenarioError {
    ScenarioError::Part { part: part.to_string(), problem: problem.to_string() }
}

/// Default start of a flow: the handshake is over by then on most paths. Chosen, not measured.
const DEFAULT_START: Duration = Duration::from_secs(1);
/// Where neither rate nor distance takes time, as much as goes is without end.
const DEFAULT_RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
const MIN_DELAY: Duration = Duration::from_micros(10);
const MAX_LENGTH: Duration = Duration::from_secs(3600);
const MIN_PACE: Duration = Duration::from_micros(10);
const MAX_COPIES: u32 = 1000;
const MAX_FLOWS: usize = 64;
