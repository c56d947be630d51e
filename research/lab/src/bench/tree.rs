//! A stream that goes to many servers over relays. How old is it at each of them, what goes over each line, and what happens when one of
//! them is killed?
//!
//! ```text
//!  clip ─┬─► origin ─► relay-a ═══ relay-b ─► edge-1 ─► viewers, one of them behind a slow line
//!        │               │                └─────────────► edge of a viewer behind a slow line: the relay's own export
//!        │               └─► edge-2 ─► viewer
//!        ├─► single server ─► a viewer behind a slow line
//!        └─► origin behind a slow uplink ─► relay-a ─► edge ─► viewer
//! ```
//!
//! Each is a machine of its own, a network namespace on one switch, and all lines but the slow ones are as fast as the system. Bytes are
//! counted at the switch. The viewers of the edges are on the edges' machines, so only the relays' bytes go there.

mod cast;
mod watcher;
mod wires;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use freshwire_record::{Rate, Timestamp, parse_duration};

use super::series::{Goal, Grid, Report, Unit};
use super::viewers::ViewersArgs;
use crate::metrics::AgeCurve;
use crate::output::say;
use crate::viewers::clip::Clip;
use cast::{Program, Role, rtsp};
use watcher::Watcher;
use wires::{Node, Wires};

const BENCH: &str = "tree";

/// Issue 54: how much older the picture may be behind an edge than behind a single server.
const OLDER: Goal = Goal::AtMost(50e6);
/// From the restart of a program to the next picture of its viewers.
const BACK: Goal = Goal::AtMost(2e9);
/// One copy for an edge, whatever the number of viewers: what more viewers may add, in what an edge asks the relay.
const ONE_COPY: Goal = Goal::AtMost(1.1);
/// Bytes while nobody views, over those while somebody does: what keeps connections alive.
const NOTHING: Goal = Goal::AtMost(0.01);
/// The longest time without a picture for viewers who should notice nothing: a picture comes each 40 ms.
const UNNOTICED: Goal = Goal::AtMost(500e6);

/// How long a viewer that comes back may take until it counts as lost.
const LOST: Duration = Duration::from_secs(20);
/// How long a program is away.
const AWAY: Duration = Duration::from_secs(1);
/// Edges read on for 2 s after the last viewer.
const UNTIL_IDLE: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(10);
/// The shortest time over which bytes are counted.
const GROUPS: Duration = Duration::from_secs(4);

/// The options of `tree`.
#[derive(Args, Clone, Debug)]
pub(super) struct TreeArgs {
    /// How long ages and bytes of `tree` are measured, each time.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    tree_time: Duration,
    /// The slow lines of `tree`, and the slow uplink.
    #[arg(long, value_name = "RATE", default_value = "300kbit")]
    tree_slow: Rate,
    /// Viewers that come in addition to see whether more is carried to their edge.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    tree_viewers: u32,
}

/// Measures it `repeat` times. Needs root, and a `freshwire` with the feature `moq`.
pub(super) fn measure(
    args: &TreeArgs,
    viewers: &ViewersArgs,
    repeat: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let kills = (AWAY + LOST) * 3;
    let (clip, log) = viewers.clip(viewers.settle * 3 + args.tree_time * 2 + UNTIL_IDLE * 3 + kills)?;
    let log = log.with_file_name("tree.log");
    for repetition in 1..=repeat {
        say(&format!("tree: {repetition}/{repeat} ..."));
        let mut tree = Tree::start(args, &clip, &log)?;
        tree.steady(viewers.settle, report)?;
        tree.crowd(viewers.settle, report)?;
        tree.kill_each(viewers.settle, report)?;
    }
    conclude(report);
    Ok(())
}

/// Says what the numbers should be.
fn conclude(report: &mut Report) {
    let place = |report: &Report, name: &str| report.place(BENCH, name);
    if let (Some(edge), Some(single)) = (
        place(report, "age, p50: behind an edge and a slow line"),
        place(report, "age, p50: behind a single server and a slow line"),
    ) {
        let pairs = report.series[edge].samples.iter().zip(&report.series[single].samples);
        for older in pairs.map(|(edge, single)| (edge - single).max(0.0)).collect::<Vec<_>>() {
            report.add(
                BENCH,
                "older behind an edge than behind a single server, p50",
                Unit::Nanoseconds,
                older,
            );
        }
    }
    for (name, goal) in [
        ("older behind an edge than behind a single server, p50", OLDER),
        ("bytes to an edge with many viewers : with one", ONE_COPY),
        ("bytes to an edge without viewers : with one", NOTHING),
        ("bytes to a relay without viewers : with one", NOTHING),
    ] {
        if let Some(at) = place(report, name) {
            report.demand(at, goal);
        }
    }
    for victim in VICTIMS {
        for (name, goal) in [(victim.back(), BACK), (victim.unnoticed(), UNNOTICED)] {
            if let Some(at) = place(report, &name) {
                report.demand(at, goal);
            }
        }
    }
    if let Some(at) = place(report, "torn pictures") {
        report.demand(at, Goal::AtMost(0.0));
    }
    let row = |name: &str| {
        let cell = |share: &str| report.place(BENCH, &format!("age, {share}: {name}"));
        (name.to_owned(), vec![cell("p50"), cell("p95")])
    };
    report.grids.push(Grid {
        bench: BENCH,
        caption: "age on the screen".to_owned(),
        columns: vec!["p50".to_owned(), "p95".to_owned()],
        rows: PLACES.iter().map(|(name, _)| row(name)).collect(),
    });
}

/// A program that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Relay,
    Edge,
    Origin,
}

const VICTIMS: [Victim; 3] = [Victim::Relay, Victim::Edge, Victim::Origin];

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Edge => "edge",
            Self::Origin => "origin",
        }
    }

    fn back(self) -> String {
        format!("from the restart of the {} to a picture", self.name())
    }

    fn unnoticed(self) -> String {
        format!("longest gap of others when the {} is killed", self.name())
    }
}

/// The places where somebody looks while nothing fails.
const PLACES: [(&str, Place); 7] = [
    ("at the origin", Place::Origin),
    ("at an edge behind two relays", Place::EdgeOne),
    ("at an edge behind one relay", Place::EdgeTwo),
    ("behind an edge and a slow line", Place::SlowEdge),
    ("behind a single server and a slow line", Place::SlowSingle),
    ("behind a relay and a slow line", Place::SlowRelay),
    ("at an edge of an origin behind a slow uplink", Place::SlowUplink),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Origin,
    EdgeOne,
    EdgeTwo,
    SlowEdge,
    SlowSingle,
    SlowRelay,
    SlowUplink,
}

/// The machines.
struct Nodes {
    origin: Node,
    relays: [Node; 2],
    edges: [Node; 2],
    single: Node,
    /// Viewers behind slow lines: of an edge, of the single server, of a relay.
    slow: [Node; 3],
    /// The origin behind a slow uplink, and its edge.
    weak: [Node; 2],
}

/// The paths at the relays: of the origin, and of the one behind a slow uplink.
const PATH: &str = "tree";
const WEAK_PATH: &str = "weak";

struct Tree<'a> {
    args: &'a TreeArgs,
    clip: &'a Arc<Clip>,
    log: &'a Path,
    nodes: Nodes,
    origin: Option<Program>,
    relays: [Option<Program>; 2],
    edges: [Option<Program>; 2],
    _others: [Program; 4],
    /// When the first access unit was handed over.
    fed: Timestamp,
    // Last: its machines go when nothing runs in them.
    wires: Wires,
}

impl<'a> Tree<'a> {
    fn start(args: &'a TreeArgs, clip: &'a Arc<Clip>, log: &'a Path) -> anyhow::Result<Self> {
        let mut wires = Wires::new()?;
        let slow = Some(args.tree_slow);
        let nodes = Nodes {
            origin: wires.add("origin", None)?,
            relays: [wires.add("relay-a", None)?, wires.add("relay-b", None)?],
            edges: [wires.add("edge-1", None)?, wires.add("edge-2", None)?],
            single: wires.add("single", None)?,
            slow: [wires.add("slow-1", slow)?, wires.add("slow-2", slow)?, wires.add("slow-3", slow)?],
            weak: [wires.add("weak", None)?, wires.add("weak-edge", None)?],
        };
        wires.limit_uplink(nodes.weak[0], args.tree_slow)?;
        let start = |node, role| Program::start(&wires, node, role, log);
        let [relay_a, relay_b] = nodes.relays;
        let relays = [
            Some(start(relay_a, Role::Relay { peer: None })?),
            Some(start(relay_b, Role::Relay { peer: Some(relay_a) })?),
        ];
        let mut origin = start(nodes.origin, Role::Origin { relay: relay_a, path: PATH })?;
        let mut single = start(nodes.single, Role::Single)?;
        let edges = [
            Some(start(nodes.edges[0], Role::Edge { relay: relay_b, path: PATH })?),
            Some(start(nodes.edges[1], Role::Edge { relay: relay_a, path: PATH })?),
        ];
        let export = start(nodes.slow[2], Role::Edge { relay: relay_b, path: PATH })?;
        let mut weak = start(nodes.weak[0], Role::Origin { relay: relay_a, path: WEAK_PATH })?;
        let weak_edge = start(nodes.weak[1], Role::Edge { relay: relay_a, path: WEAK_PATH })?;
        let fed = freshwire_io::now() + AWAY;
        origin.feed(clip, fed)?;
        single.feed(clip, fed)?;
        weak.feed(clip, fed)?;
        let _others = [single, export, weak, weak_edge];
        Ok(Self { args, clip, log, nodes, origin: Some(origin), relays, edges, _others, fed, wires })
    }

    /// A viewer at a place.
    fn watch(&self, place: Place) -> anyhow::Result<Watcher> {
        let Nodes { origin, edges, single, slow, weak, .. } = self.nodes;
        let (from, server) = match place {
            Place::Origin => (origin, origin),
            Place::EdgeOne => (edges[0], edges[0]),
            Place::EdgeTwo => (edges[1], edges[1]),
            Place::SlowEdge => (slow[0], edges[0]),
            Place::SlowSingle => (slow[1], single),
            Place::SlowRelay => (slow[2], slow[2]),
            Place::SlowUplink => (weak[1], weak[1]),
        };
        Ok(Watcher::start(self.wires.dialer(from)?, rtsp(server), self.clip))
    }

    /// Bytes that go to a machine each second.
    fn rate_to(&self, node: Node, time: Duration) -> anyhow::Result<f64> {
        let (before, from) = (self.wires.bytes_to(node)?, freshwire_io::now());
        std::thread::sleep(time);
        let bytes = self.wires.bytes_to(node)? - before;
        Ok(bytes as f64 / freshwire_io::now().saturating_since(from).as_secs_f64())
    }

    /// Ages at all places.
    fn steady(&self, settle: Duration, report: &mut Report) -> anyhow::Result<()> {
        let watchers = PLACES
            .iter()
            .map(|(name, place)| Ok((*name, self.watch(*place)?)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        std::thread::sleep(settle + AWAY);
        let from = freshwire_io::now();
        std::thread::sleep(self.args.tree_time);
        let to = freshwire_io::now();
        // The first picture was captured before its access unit was there, by the encoder's reordering.
        let begin = self.fed - self.clip.reorder();
        let since = |at: Timestamp| nanoseconds(at.saturating_since(begin));
        for (name, watcher) in &watchers {
            let seen = watcher.seen_since(begin);
            let units = seen.iter().map(|&(at, picture)| (Clip::captured_ns(picture), Some(since(at))));
            let age = AgeCurve::of(units, since(to));
            for (share, text) in [(0.5, "p50"), (0.95, "p95")] {
                let age = age.quantile(since(from)..since(to), share) as f64;
                report.add(BENCH, &format!("age, {text}: {name}"), Unit::Nanoseconds, age);
            }
        }
        self.note_damage(watchers.iter().map(|(_, watcher)| watcher), report);
        Ok(())
    }

    fn note_damage<'w>(&self, watchers: impl Iterator<Item = &'w Watcher>, report: &mut Report) {
        let damaged: u64 = watchers.map(Watcher::damaged).sum();
        report.add(BENCH, "torn pictures", Unit::Count, damaged as f64);
    }

    /// Bytes on the lines with one viewer of an edge, with many, and with none.
    fn crowd(&self, settle: Duration, report: &mut Report) -> anyhow::Result<()> {
        let (edge, relay) = (self.nodes.edges[0], self.nodes.relays[1]);
        // Whole groups, which are 2 s long.
        let time = Duration::from_secs(self.args.tree_time.as_secs() / 8 * 2).max(GROUPS);
        std::thread::sleep(UNTIL_IDLE);
        let one = self.watch(Place::EdgeOne)?;
        std::thread::sleep(settle);
        let with_one = self.rate_to(edge, time)?;
        let relay_with_one = self.rate_to(relay, time)?;
        let crowd: Vec<Watcher> =
            (0..self.args.tree_viewers).map(|_| self.watch(Place::EdgeOne)).collect::<Result<_, _>>()?;
        std::thread::sleep(settle);
        let with_many = self.rate_to(edge, time)?;
        self.note_damage(crowd.iter().chain([&one]), report);
        drop((crowd, one));
        std::thread::sleep(UNTIL_IDLE);
        let without = self.rate_to(edge, time)?;
        let relay_without = self.rate_to(relay, time)?;
        report.add(BENCH, "bytes to an edge with one viewer", Unit::BytesPerSecond, with_one);
        report.add(BENCH, "bytes to an edge without viewers", Unit::BytesPerSecond, without);
        for (name, ratio) in [
            ("bytes to an edge with many viewers : with one", with_many / with_one),
            ("bytes to an edge without viewers : with one", without / with_one),
            ("bytes to a relay without viewers : with one", relay_without / relay_with_one),
        ] {
            report.add(BENCH, name, Unit::Count, ratio);
        }
        Ok(())
    }

    /// Kills one after the other, and waits until its viewers have pictures again.
    fn kill_each(&mut self, settle: Duration, report: &mut Report) -> anyhow::Result<()> {
        let [one, two, single] = [Place::EdgeOne, Place::EdgeTwo, Place::SlowSingle];
        let [one, two, single] = [self.watch(one)?, self.watch(two)?, self.watch(single)?];
        for victim in VICTIMS {
            std::thread::sleep(settle);
            // The slow viewer has gaps of its own, so it is only asked for torn pictures.
            let others: &[&Watcher] = match victim {
                Victim::Relay | Victim::Edge => &[&two],
                Victim::Origin => &[],
            };
            let killed = freshwire_io::now();
            self.stop(victim);
            std::thread::sleep(AWAY);
            self.restart(victim)?;
            let restarted = freshwire_io::now();
            let back = loop {
                if let Some((at, _)) = one.seen_since(restarted).first() {
                    break at.saturating_since(restarted);
                }
                let waited = freshwire_io::now().saturating_since(restarted);
                if waited > LOST {
                    report.notes.push(format!(
                        "tree: viewers never came back after the {} was killed",
                        victim.name()
                    ));
                    break waited;
                }
                std::thread::sleep(LOOK);
            };
            report.add(BENCH, &victim.back(), Unit::Nanoseconds, nanoseconds(back) as f64);
            for other in others {
                let gap = longest_gap(&other.seen_since(killed), killed, freshwire_io::now());
                report.add(BENCH, &victim.unnoticed(), Unit::Nanoseconds, nanoseconds(gap) as f64);
            }
        }
        self.note_damage([&one, &two, &single].into_iter(), report);
        Ok(())
    }

    fn stop(&mut self, victim: Victim) {
        // Dropping a program kills it.
        match victim {
            Victim::Relay => self.relays[1] = None,
            Victim::Edge => self.edges[0] = None,
            Victim::Origin => self.origin = None,
        }
    }

    fn restart(&mut self, victim: Victim) -> anyhow::Result<()> {
        let Nodes { origin, relays, edges, .. } = self.nodes;
        let start = |node, role| Program::start(&self.wires, node, role, self.log);
        match victim {
            Victim::Relay => self.relays[1] = Some(start(relays[1], Role::Relay { peer: Some(relays[0]) })?),
            Victim::Edge => {
                self.edges[0] = Some(start(edges[0], Role::Edge { relay: relays[1], path: PATH })?)
            }
            Victim::Origin => {
                let mut program = start(origin, Role::Origin { relay: relays[0], path: PATH })?;
                program.feed(self.clip, freshwire_io::now())?;
                self.origin = Some(program);
            }
        }
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The longest time without a picture.
fn longest_gap(seen: &[(Timestamp, u32)], from: Timestamp, to: Timestamp) -> Duration {
    let times = || seen.iter().map(|(at, _)| *at);
    let begins = [from].into_iter().chain(times());
    let ends = times().chain([to]);
    begins.zip(ends).map(|(begin, end)| end.saturating_since(begin)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_may_be_at_either_end() {
        let at = |ms| Timestamp::ZERO + Duration::from_millis(ms);
        let gap = |times: &[u64]| {
            let seen: Vec<_> = times.iter().map(|&ms| (at(ms), 0)).collect();
            longest_gap(&seen, at(100), at(1000)).as_millis()
        };
        assert_eq!(gap(&[]), 900);
        assert_eq!(gap(&[600, 800]), 500);
        assert_eq!(gap(&[200, 800]), 600);
        assert_eq!(gap(&[200, 300]), 700);
    }

    /// The goals stand beside numbers that can miss them.
    #[test]
    fn each_number_is_judged() {
        let mut report = Report::default();
        for (name, _) in PLACES {
            report.add(BENCH, &format!("age, p50: {name}"), Unit::Nanoseconds, 1e9);
            report.add(BENCH, &format!("age, p95: {name}"), Unit::Nanoseconds, 2e9);
        }
        report.add(BENCH, "torn pictures", Unit::Count, 0.0);
        report.add(BENCH, &Victim::Edge.back(), Unit::Nanoseconds, 1e9);
        conclude(&mut report);
        assert!(report.all_met() && report.ratios.len() == 3, "{:?}", report.ratios);
        report.add(BENCH, "torn pictures", Unit::Count, 2.0);
        report.ratios.clear();
        report.series.retain(|series| !series.name.starts_with("older"));
        conclude(&mut report);
        assert!(!report.all_met());
    }
}
