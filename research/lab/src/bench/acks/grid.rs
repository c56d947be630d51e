//! Transfers over an emulated link with delay and loss, with and without the ACK filter: throughput, and what is sent again.
#![allow(clippy::disallowed_methods, reason = "transfers last by the real clock")]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use freshwire_acks::{Config as FilterConfig, Filter, Hook, HookChoice, Rule};
use freshwire_link::{Config, Loss};
use freshwire_netns::testbed::{TcpCounters, connect, tcp_counters};
use freshwire_netns::{Account, Emulator, EmulatorOptions, Namespaces};
use freshwire_record::Rate;
use rustix::net::sockopt::set_socket_send_buffer_size;

use crate::bench::series::{Goal, Grid, Report, Unit};
use crate::output::say;

const BENCH: &str = "acks-grid";

/// Issue 43: cubic and bbr, 0 and 20 ms, 0 and 0.5 % of loss, 1 to 16 connections.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];
const ROUND_TRIPS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(20)];
const LOSSES: [f64; 2] = [0.0, 0.005];
const CONNECTIONS: [usize; 3] = [1, 4, 16];
const THROUGHPUT: Goal = Goal::AtLeast(0.97);

/// The link, and its queue: 20 ms of it.
const RATE: u64 = 50_000_000;
const QUEUE_BYTES: u64 = 125_000;

/// Send buffer of a connection: more than the longest path and its queue hold, and little enough to drain soon.
const SEND_BUFFER: usize = 512 << 10;

const LATE: &str = "late links";

const LINK: &str = "link0";
const STANDSTILL: Duration = Duration::from_secs(20);

/// A column of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    control: &'static str,
    round_trip: Duration,
    loss: f64,
    connections: usize,
}

impl Cell {
    fn path(self) -> String {
        let Self { control, round_trip, loss, .. } = self;
        format!("{control}, {} ms, {} % loss", round_trip.as_millis(), 100.0 * loss)
    }
}

/// The outcome of a transfer.
#[derive(Clone, Debug)]
struct TransferOutcome {
    /// Bytes that had arrived when the time was over.
    in_time: u64,
    tcp: TcpCounters,
    link: Account,
}

impl TransferOutcome {
    /// Packets with data that the link dropped.
    fn dropped(&self) -> u64 {
        self.link.up.link.lost_packets + self.link.up.link.queue_full_packets
    }
}

/// The places of a cell's series, without the filter and with it.
type Places = [[usize; 3]; 2];

pub(super) fn measure(repeat: u32, time: Duration, report: &mut Report) -> anyhow::Result<()> {
    let namespaces = Namespaces::create()?;
    acknowledge_each_packet(&namespaces)?;
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    for control in CONTROLS {
        if !available.split_whitespace().any(|name| name == control) {
            report.notes.push(format!(
                "acks-grid: skipped {control}: this kernel does not have it (modprobe tcp_{control})"
            ));
            continue;
        }
        let mut rows = Vec::new();
        for round_trip in ROUND_TRIPS {
            for loss in LOSSES {
                let cells = CONNECTIONS.map(|connections| Cell { control, round_trip, loss, connections });
                say(&format!("acks-grid: {} ...", cells[0].path()));
                let places = cells.map(|cell| measure_cell(&namespaces, cell, repeat, time, report));
                let places: Vec<Places> = places.into_iter().collect::<Result<_, _>>()?;
                rows.push((cells[0].path(), places));
            }
        }
        grids(control, &rows, report);
    }
    let late = report.series.iter().filter(|series| series.bench == BENCH && series.name.starts_with(LATE));
    let (late, all) = late
        .flat_map(|series| &series.samples)
        .fold((0.0, 0), |(late, all), sample| (late + sample, all + 1));
    report.notes.push(format!(
        "acks-grid: the emulated link was late or missed packets in {late} of {all} transfers."
    ));
    report.notes.push(format!(
        "acks-grid: a link of {} Mbit/s with a queue of {} kB; the receiver acknowledges each packet. Every byte was looked at. Sent again\n\
         without need: segments that TCP sent again, less packets that the link dropped.",
        RATE / 1_000_000,
        QUEUE_BYTES / 1000
    ));
    Ok(())
}

/// Both variants in turn, as often as asked; they meet the same losses.
fn measure_cell(
    namespaces: &Namespaces,
    cell: Cell,
    repeat: u32,
    time: Duration,
    report: &mut Report,
) -> anyhow::Result<Places> {
    let mut places = [[0; 3]; 2];
    for repetition in 0..repeat {
        for (variant, name) in ["no filter", "safe"].into_iter().enumerate() {
            let moved = transfer(namespaces, cell, time, u64::from(repetition), variant == 1)
                .with_context(|| format!("{name}, {}, {} connections", cell.path(), cell.connections))?;
            let row = format!("{name}; {}, {} connections", cell.path(), cell.connections);
            let packets = moved.link.up.link.offered_packets.max(1) as f64;
            let spare = moved.tcp.retransmitted as f64 - moved.dropped() as f64;
            let mut add =
                |what: &str, unit, sample| report.add(BENCH, &format!("{what}, {row}"), unit, sample);
            places[variant] = [
                add("throughput", Unit::BytesPerSecond, moved.in_time as f64 / time.as_secs_f64()),
                add("sent again without need", Unit::Percent, 100.0 * spare / packets),
                add(
                    "ACKs in the stack for a packet",
                    Unit::Percent,
                    100.0 * moved.tcp.segments_in as f64 / packets,
                ),
            ];
            add(LATE, Unit::Count, f64::from(u8::from(!moved.link.is_trustworthy())));
        }
    }
    let [plain, safe] = places;
    let cell_name = format!("{}, {} connections", cell.path(), cell.connections);
    report.compare(&format!("throughput, safe: none; {cell_name}"), safe[0], plain[0], Some(THROUGHPUT));
    Ok(places)
}

fn grids(control: &str, rows: &[(String, Vec<Places>)], report: &mut Report) {
    for (quantity, what) in
        ["throughput", "sent again without need", "ACKs in the stack for a packet"].into_iter().enumerate()
    {
        let rows = rows.iter().flat_map(|(path, places)| {
            ["no filter", "safe"].into_iter().enumerate().map(move |(variant, name)| {
                let cells = places.iter().map(|places| Some(places[variant][quantity])).collect();
                (format!("{path}, {name}"), cells)
            })
        });
        report.grids.push(Grid {
            bench: BENCH,
            caption: format!("{what}; {control}; by connections"),
            columns: CONNECTIONS.map(|connections| connections.to_string()).to_vec(),
            rows: rows.collect(),
        });
    }
}

fn acknowledge_each_packet(namespaces: &Namespaces) -> anyhow::Result<()> {
    let route = ["route", "replace", "10.77.0.0/24", "dev", LINK, "src", "10.77.0.2", "quickack", "1"];
    let status = namespaces
        .spawn_far(Command::new("ip").args(route))
        .context("cannot run `ip`: apt-get install iproute2")?
        .wait()?;
    ensure!(status.success(), "`ip {}` failed in the far namespace: {status}", route.join(" "));
    Ok(())
}

/// Sends for `time` over each connection and waits until everything has arrived.
fn transfer(
    namespaces: &Namespaces,
    cell: Cell,
    time: Duration,
    seed: u64,
    has_filter: bool,
) -> anyhow::Result<TransferOutcome> {
    let direction = |loss, seed| {
        let builder =
            Config::builder().delay(cell.round_trip / 2).queue_bytes(QUEUE_BYTES).loss(loss).seed(seed);
        builder.rate(Rate::from_bits_per_sec(RATE)).build()
    };
    let loss = if cell.loss > 0.0 { Loss::Random { share: cell.loss } } else { Loss::None };
    let emulator = Emulator::start(
        namespaces,
        direction(loss, seed)?,
        direction(Loss::None, seed)?,
        EmulatorOptions::default(),
    )?;
    let make = || {
        let config = FilterConfig::new(Rule::Safe);
        namespaces.in_near(|| Filter::new(LINK, HookChoice::Only(Hook::Tc), &config))
    };
    let filter = has_filter.then(make).transpose()?.transpose()?;
    let far = IpAddr::from(Namespaces::FAR_V4);
    let listener = namespaces.in_far(|| TcpListener::bind(SocketAddr::new(far, 0)))??;
    let to = listener.local_addr()?;
    let before = namespaces.in_near(tcp_counters)??;
    let open = || -> io::Result<TcpStream> {
        let socket = connect(to, cell.control)?;
        set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        Ok(socket)
    };
    let near =
        namespaces.in_near(|| (0..cell.connections).map(|_| open()).collect::<io::Result<Vec<_>>>())??;
    let streams = (0..cell.connections).map(|_| Ok(listener.accept()?.0)).collect::<io::Result<Vec<_>>>()?;
    let arrived = AtomicU64::new(0);
    let end = Instant::now() + time;
    let in_time = thread::scope(|scope| {
        let receivers: Vec<_> =
            streams.into_iter().map(|stream| scope.spawn(|| receive(stream, &arrived))).collect();
        let senders: Vec<_> = near.into_iter().map(|stream| scope.spawn(move || send(stream, end))).collect();
        thread::sleep(end.saturating_duration_since(Instant::now()));
        let in_time = arrived.load(Ordering::Relaxed);
        let (mut sent, mut received) = (0, 0);
        for sender in senders {
            sent += sender.join().map_err(|_| anyhow!("a sender panicked"))??;
        }
        for receiver in receivers {
            received += receiver.join().map_err(|_| anyhow!("a receiver panicked"))??;
        }
        ensure!(sent == received, "{sent} bytes were sent, and {received} arrived");
        Ok(in_time)
    })?;
    let after = namespaces.in_near(tcp_counters)??;
    if let Some(filter) = filter {
        let counters = filter.counters()?;
        ensure!(
            counters.packets > 0 && counters.acks() > 0,
            "the filter has seen no connection: {counters:?}"
        );
    }
    Ok(TransferOutcome { in_time, tcp: after - before, link: emulator.stop() })
}

/// A pattern that is sent again and again. Its length is prime, so that it is at another place in each segment.
fn pattern() -> Vec<u8> {
    (0..65_521_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn send(mut stream: TcpStream, end: Instant) -> anyhow::Result<u64> {
    stream.set_write_timeout(Some(STANDSTILL))?;
    let block = pattern();
    let mut sent = 0;
    while Instant::now() < end {
        stream.write_all(&block)?;
        sent += block.len() as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // The end of the stream is the receiver's word that it has everything.
    stream.set_read_timeout(Some(STANDSTILL))?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(sent)
}

fn receive(mut stream: TcpStream, arrived: &AtomicU64) -> anyhow::Result<u64> {
    stream.set_read_timeout(Some(STANDSTILL))?;
    let block = pattern();
    let (mut buffer, mut received) = (vec![0; block.len()], 0_u64);
    loop {
        let place = (received % block.len() as u64) as usize;
        let read = stream.read(&mut buffer[place..])?;
        if read == 0 {
            return Ok(received);
        }
        if buffer[place..place + read] != block[place..place + read] {
            bail!("bytes behind {received} are not those that were sent");
        }
        received += read as u64;
        arrived.fetch_add(read as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_over_a_link_with_loss_and_with_the_filter() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "eBPF needs root");
            println!("skipped: eBPF needs root");
            return;
        }
        let namespaces = Namespaces::create().unwrap();
        acknowledge_each_packet(&namespaces).unwrap();
        let round_trip = Duration::from_millis(20);
        let cell = Cell { control: "cubic", round_trip, loss: 0.005, connections: 2 };
        for has_filter in [false, true] {
            let moved = transfer(&namespaces, cell, Duration::from_millis(300), 1, has_filter).unwrap();
            let link = &moved.link.up.link;
            assert!(link.offered_packets > 0, "{moved:?}");
            // Lost packets were sent again, or nothing would have ended.
            assert!(moved.tcp.retransmitted >= link.lost_packets.min(1), "{moved:?}");
            assert!(moved.tcp.segments_in > 0, "{moved:?}");
        }
    }
}
