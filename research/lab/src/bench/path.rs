//! The send path of a camera: the ways to hand one picture to many sockets, and the live server beside them. Counterparts of
//! tables 4.1 to 4.3 of Marigi 2012, and of what its sections 4.1.4, 4.4.1 and 5.1 say of pages, windows and pipes.

mod args;
mod figures;
pub(super) mod look;
mod paced;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::sendpath::Picture;
use anyhow::Context as _;
use freshwire_acks::{Config, Filter, Hook, HookChoice};
use freshwire_netns::testbed::{Receiver, Testbed};

use super::series::{Goal, Grid, Report, Unit};
use crate::output::say;
use args::{Acknowledging, Setting, Way};
use figures::Figures;
use look::{Look, watch_window};

pub(super) use args::PathArgs;

const BENCH: &str = "path";

/// Bytes of a repetition over all connections, without a limit.
const BYTES: u64 = 200_000_000;

/// The link of Marigi 2012, for which `--path-bytes` counts.
const RATE: u64 = 100_000_000;

/// How long a repetition of a paced way lasts, at least.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// Issue 43: full segments.
const FULL: Goal = Goal::AtLeast(98.0);

/// A quantity: the name of its series, the caption of its tables, its unit, and its value.
type Quantity = (&'static str, &'static str, Unit, fn(&Figures) -> Option<f64>);

const QUANTITIES: [Quantity; 12] = [
    ("throughput", "throughput", Unit::BytesPerSecond, |figures| Some(figures.throughput)),
    ("CPU per GB", "sender's CPU per GB", Unit::SecondsPerGigabyte, |figures| Some(figures.cpu_per_gb)),
    (
        "payload of a segment, of a full one",
        "payload of a segment, of a full one",
        Unit::Percent,
        |figures| figures.fullness.map(|part| 100.0 * part),
    ),
    ("system calls per GB", "system calls per GB", Unit::Count, |figures| figures.system_calls),
    ("context switches a second", "sender's context switches a second", Unit::Count, |figures| {
        Some(figures.rates.switches)
    }),
    ("interrupts a second", "interrupts of the sender's processor a second", Unit::Count, |figures| {
        Some(figures.rates.interrupts)
    }),
    ("ACKs a second", "ACKs in the sender's stack a second", Unit::Count, |figures| figures.acks),
    ("ACKs dropped", "share of the ACKs that the filter drops", Unit::Percent, |figures| figures.filtered),
    ("least window", "receiver's window, least", Unit::Bytes, |figures| {
        figures.window.map(|[least, _]| least)
    }),
    ("median window", "receiver's window, median", Unit::Bytes, |figures| {
        figures.window.map(|[_, median]| median)
    }),
    ("whole pictures", "whole pictures that came, of those made", Unit::Percent, |figures| {
        figures.of_offered.map(|part| 100.0 * part)
    }),
    ("pictures fed", "pictures that the server read, of those due", Unit::Percent, |figures| {
        figures.of_due.map(|part| 100.0 * part)
    }),
];
const CPU: usize = 1;
const FULLNESS: usize = 2;

/// The places of a cell's series, by quantity.
type Places = [Option<usize>; QUANTITIES.len()];

pub(super) fn measure(args: &PathArgs, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let most = args.path_connections.iter().max().copied().unwrap_or(0);
    // Two sockets and a pipe for each connection.
    super::machine::allow_files(4 * most as u64 + 100, "--path-connections")?;
    let receiver = match args.path_receiver {
        Acknowledging::Offload => Receiver::Offload,
        Acknowledging::Delayed => Receiver::Delayed,
    };
    let testbed = Testbed::new("path", receiver).context("cannot measure the send path")?;
    let ways = &offered(&args.ways(), report)?;
    for setting in args.settings() {
        testbed.set_rate(setting.rate.0)?;
        testbed.set_offload(setting.offload)?;
        let bytes: Vec<u8> = (0..setting.picture_bytes()).map(|place| (place % 251) as u8).collect();
        let picture = Picture::with_pages(&bytes, setting.pages())?;
        let mut columns = Vec::new();
        for &connections in &args.path_connections {
            let cell = Cell { testbed: &testbed, picture: &picture, connections, setting, args };
            say(&format!("path: {} ...", cell.name()));
            columns.push(cell.measure(ways, repeat, report)?);
        }
        grids(ways, setting, args, &columns, report);
        if let Some(adjacent) = picture.adjacent() {
            report.add(
                BENCH,
                &format!("adjacent pages; {}", setting.name()),
                Unit::Percent,
                100.0 * adjacent,
            );
        }
    }
    notes(ways, report);
    Ok(())
}

/// The ways that this kernel has; a note names the obstacles of the others.
fn offered(ways: &[Way], report: &mut Report) -> anyhow::Result<Vec<Way>> {
    let picture = Picture::new(&[7])?;
    let mut offered = Vec::new();
    for &way in ways {
        // Nobody gets the picture; what the mechanism needs of the kernel is made.
        let tried = match way {
            Way::Mechanism(mechanism) => mechanism.send(&[], &picture, 1).map_err(anyhow::Error::from),
            Way::Server | Way::ServerUdp => crate::product::program().map(|_| Default::default()),
            Way::Udp | Way::UdpOffload => Ok(Default::default()),
        };
        match tried {
            Ok(_) => offered.push(way),
            Err(error) => report.notes.push(format!("path: {way} skipped: {error:#}")),
        }
    }
    Ok(offered)
}

/// A number of connections in a setting.
struct Cell<'a> {
    testbed: &'a Testbed,
    picture: &'a Picture,
    connections: usize,
    setting: Setting,
    args: &'a PathArgs,
}

impl Cell<'_> {
    fn name(&self) -> String {
        format!("{} connections, {}", self.connections, self.setting.name())
    }

    /// Each way in turn, as often as asked.
    fn measure(&self, ways: &[Way], repeat: u32, report: &mut Report) -> anyhow::Result<Vec<Places>> {
        let mut places = Vec::new();
        for repetition in 0..repeat {
            for &way in ways {
                let figures = self.run(way).with_context(|| format!("{way}, {}", self.name()))?;
                let place: Places = QUANTITIES.map(|(what, _, unit, value)| {
                    let name = format!("{what}, {way}; {}", self.name());
                    value(&figures).map(|sample| report.add(BENCH, &name, unit, sample))
                });
                if repetition == 0 {
                    places.push(place);
                }
            }
        }
        let plain = Way::Mechanism(crate::sendpath::Mechanism::Write);
        let base = ways.iter().position(|&way| way == plain).and_then(|place| places[place][CPU]);
        for (&way, place) in ways.iter().zip(&places) {
            if let (Some(base), Some(cpu)) = (base, place[CPU])
                && way != plain
            {
                report.compare(&format!("CPU per GB, {way}: write; {}", self.name()), cpu, base, None);
            }
            if let Some(full) = place[FULLNESS].filter(|_| self.setting.offload) {
                report.demand(full, FULL);
            }
        }
        Ok(places)
    }

    fn run(&self, way: Way) -> anyhow::Result<Figures> {
        let filter = self.setting.filter.and_then(args::FilterRule::rule).map(|rule| {
            let interface = self.testbed.interface();
            self.testbed.in_near(|| Filter::new(interface, HookChoice::Only(Hook::Tc), &Config::new(rule)))
        });
        let filter = filter.transpose()?.transpose()?;
        let figures = self.run_filtered(way)?;
        let filtered = filter.map(|filter| filter.counters()).transpose()?;
        Ok(Figures { filtered: filtered.map(|counters| 100.0 * counters.share()), ..figures })
    }

    /// The same under the filter in place.
    fn run_filtered(&self, way: Way) -> anyhow::Result<Figures> {
        let total = match self.setting.rate.0 {
            Some(rate) => (self.args.path_bytes as f64 * rate as f64 / RATE as f64) as u64,
            None => BYTES,
        };
        if way.is_paced() {
            let seconds = self.setting.rate.0.map_or(0.0, |rate| total as f64 * 8.0 / rate as f64);
            let time = Duration::from_secs_f64(seconds).max(LEAST_TIME);
            let run = if matches!(way, Way::Udp | Way::UdpOffload) { paced::datagrams } else { paced::serve };
            return run(self.testbed, way, self.connections, self.setting, time);
        }
        self.fan_out(way, total)
    }

    fn fan_out(&self, way: Way, total: u64) -> anyhow::Result<Figures> {
        let Way::Mechanism(mechanism) = way else { anyhow::bail!("{way} has a rate of its own") };
        let times = (total / (self.picture.len() * self.connections) as u64).max(1);
        let bytes_each = times * self.picture.len() as u64;
        let watches = self.setting.filter.is_some();
        let ((account, rates, window), outcome) =
            self.testbed.fan_out(self.connections, bytes_each, |sockets| {
                let stop = AtomicBool::new(false);
                thread::scope(|scope| {
                    let watch = watches.then(|| scope.spawn(|| watch_window(&sockets[0], &stop)));
                    let before = Look::of_this_thread();
                    let account = mechanism.send_through(
                        sockets,
                        self.picture,
                        times as u32,
                        self.setting.pipe_pages(),
                    );
                    let rates = Look::of_this_thread().since(&before);
                    stop.store(true, Ordering::Relaxed);
                    let window = watch.and_then(|watch| watch.join().ok().flatten());
                    Ok((account?, rates, window))
                })
            })?;
        let gigabytes = outcome.bytes as f64 / 1e9;
        Ok(Figures {
            throughput: outcome.rate() / 8.0,
            cpu_per_gb: outcome.cpu_per_gb(),
            fullness: Some(outcome.fullness()),
            system_calls: Some(account.system_calls as f64 / gigabytes),
            rates,
            acks: Some(outcome.tcp.segments_in as f64 / outcome.time.as_secs_f64()),
            filtered: None,
            window,
            of_offered: None,
            of_due: None,
        })
    }
}

fn grids(ways: &[Way], setting: Setting, args: &PathArgs, columns: &[Vec<Places>], report: &mut Report) {
    for (quantity, (_, what, ..)) in QUANTITIES.iter().enumerate() {
        let rows = ways.iter().enumerate().map(|(row, way)| {
            let places = columns.iter().map(|column| column.get(row).and_then(|places| places[quantity]));
            (way.to_string(), places.collect::<Vec<_>>())
        });
        let rows: Vec<_> = rows.filter(|(_, places)| places.iter().any(Option::is_some)).collect();
        if rows.is_empty() {
            continue;
        }
        report.grids.push(Grid {
            bench: BENCH,
            caption: format!("{what}; {}; by connections", setting.name()),
            columns: args.path_connections.iter().map(ToString::to_string).collect(),
            rows,
        });
    }
}

fn notes(ways: &[Way], report: &mut Report) {
    report.notes.push(
        "path: the published values are beside ours in `freshwire-lab evidence --only marigi-2012-table-4.1,marigi-2012-table-4.3`.\n\
         The camera filled its link with each mechanism. A repetition here takes a second unless --path-bytes asks for more, and slow start\n\
         is a part of it: many connections do not fill the link. Kernels since Linux 6.5 hand all pages over at once (MSG_SPLICE_PAGES).\n\
         On a veth a zero-copy send is copied when it enters the other host; a card would read the pages instead.\n\
         The kernel ring's zero copy is not among the mechanisms: its module runs in a guest (make kernel-costs)."
            .to_owned(),
    );
    if ways.iter().any(|way| way.is_paced()) {
        report.notes.push(
            "path: `server` is the process `freshwire serve` with its ingest: key pictures of the given size in MPEG-TS, together 1.05 of the\n\
             link, so that it has to choose; 1 Gbit/s without a limit. Its bytes are RTP, interleaved or in datagrams. `udp` offers what the link\n\
             carries."
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests;
