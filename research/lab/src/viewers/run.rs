//! One run: a server, a link and a player, for a while.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_record::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::clip::Clip;
use super::measure::{Metrics, Observed};
use super::player::{self, Player, Sight};
use super::probe;
use super::segments::Segments;
use super::server::{self, Server};
use crate::cells::{self, measurement};
use crate::scenario::{LEAD, directions, wait_until};
use crate::schema::{Environment, LinkConfig, Trust};
use crate::store::ResultLine;

/// From the beginning of a run to the first access unit.
const FEED_LEAD: Duration = Duration::from_millis(500);
/// The stream is longer than a run by this: the server's start, the link's lead, and some reserve.
pub(super) const CLIP_RESERVE: Duration = Duration::from_secs(20);
/// A source that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(40);

/// Everything that was chosen before a run; runs with equal plans repeat each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(super) server: Server,
    pub(super) player: Player,
    /// The settings of `freshwire serve`; none for the defaults.
    #[serde(default)]
    pub(super) serve_config: Option<PathBuf>,
    /// Its steps count from two seconds after the player's start.
    pub(super) link: LinkConfig,
    /// For how long the player looks, in seconds, after the two seconds that it has to join.
    pub(super) duration_s: f64,
    /// Mean rate of the stream in bits per second.
    pub(super) rate_bps: u64,
}

/// A plan and its outcome: one line of the result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    pub(super) trust: Trust,
    pub(super) observed: Observed,
    /// The numbers that follow from the observations; none when the player saw nothing.
    pub(super) metrics: Option<Metrics>,
    /// Pictures without a readable number; for the probe, access units that are not as they were encoded.
    pub(super) damaged: u64,
    /// The words of the player's first complaints.
    pub(super) complaints: Vec<String>,
    /// How full the segments were, where they were captured.
    pub(super) segments: Option<Segments>,
}

/// A run to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(super) plan: Plan,
    /// The encoded stream.
    pub(super) clip: PathBuf,
    /// The folder for the server's log and the captured packets.
    pub(super) folder: PathBuf,
    /// Whether to capture the link's packets there.
    pub(super) capture: bool,
}

impl cells::Plan for Plan {
    fn cell(&self) -> Self {
        Self { link: self.link.without_seed(), ..self.clone() }
    }
}

measurement!(Run, Plan);

impl ResultLine for Run {
    const KIND: &str = "viewer";

    fn measure(&mut self) -> anyhow::Result<()> {
        self.metrics = self.observed.metrics();
        Ok(())
    }
}

/// Makes a run. Call while the process has one thread.
pub(super) fn measure(task: &Task, environment: Environment) -> anyhow::Result<Run> {
    let Task { plan, folder, .. } = task;
    let clip = &Arc::new(Clip::read(&task.clip)?);
    let namespaces = Namespaces::create()?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("server.log"))
        .context("cannot open server.log")?;
    let mut server = server::Running::start(plan.server, plan.serve_config.as_deref(), &namespaces, log)?;
    let input = server.input()?;
    let fed = freshwire_io::now() + FEED_LEAD;
    let source = Arc::clone(clip);
    let feeder = std::thread::spawn(move || source.feed(input, fed));
    server.wait_until_it_listens(&namespaces)?;
    wait_until(fed);

    let [up, down] = directions(&plan.link)?;
    let packet_log = task.capture.then(|| folder.join("capture.pcapng"));
    let options = EmulatorOptions { packet_log: packet_log.clone(), ..EmulatorOptions::default() };
    let begin = freshwire_io::now();
    let emulator = Emulator::start(&namespaces, up, down, options)?;
    let end = begin + LEAD + Duration::from_secs_f64(plan.duration_s);
    let sight = look(plan, &namespaces, clip, end)?;
    let mut faults = emulator.stop().faults;
    if !server.is_alive() {
        faults.push("the server had ended".to_owned());
    }
    drop(server);
    let lateness = feeder.join().map_err(|_| anyhow::anyhow!("the feeder panicked"))?;
    if lateness > MAX_LATENESS {
        faults.push(format!("the source was {:.0} ms late", lateness.as_secs_f64() * 1e3));
    }
    let segments = match packet_log {
        None => None,
        Some(path) => {
            let capture = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Some(Segments::count(&capture, server::PORT, clip, since_epoch(fed))?)
        }
    };
    // Captured before the first access unit could be coded.
    let since_capture = |at: Timestamp| (at + clip.reorder()).saturating_since(fed).as_nanos() as u64;
    let observed = Observed {
        seen: sight.seen.iter().map(|(at, picture)| (since_capture(*at), *picture)).collect(),
        keys: clip.keys(),
        complaints: sight.complaints.iter().map(|at| since_capture(*at)).collect(),
        link_back_ns: plan
            .link
            .last_rise_ns()
            .map(|at| since_capture(begin + LEAD + Duration::from_nanos(at))),
        end_ns: since_capture(end),
    };
    Ok(Run {
        trust: Trust::of(&faults),
        metrics: None,
        observed,
        damaged: sight.damaged,
        complaints: sight.words,
        segments,
        plan: plan.clone(),
        environment,
    })
}

/// The same instant on the clock of captures.
fn since_epoch(at: Timestamp) -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    let since = Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0));
    since.saturating_sub(freshwire_io::now().saturating_since(at))
}

fn look(plan: &Plan, namespaces: &Namespaces, clip: &Arc<Clip>, until: Timestamp) -> anyhow::Result<Sight> {
    let mut sight = if plan.player == Player::Probe {
        let running = probe::Running::start(namespaces, Arc::clone(clip))?;
        wait_until(until);
        running.stop()?
    } else {
        let running = player::Running::start(plan.player, plan.server, namespaces)?;
        wait_until(until);
        running.stop()
    };
    // A player that is ended may complain of that.
    sight.complaints.retain(|at| *at <= until);
    sight.words.truncate(sight.complaints.len());
    sight.seen.retain(|(at, _)| *at <= until);
    Ok(sight)
}
