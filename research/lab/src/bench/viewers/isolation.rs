//! The effect of slow and stalled viewers on the others, and on the server's memory.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_server::hub::HubConfig;

use super::args::{OTHER_FILES, VIEWER_BYTES, ViewersArgs};
use super::process::{Serving, Subject};
use crate::bench::machine::allow_files;
use crate::bench::series::{Goal, Report, Unit};
use crate::histogram::{Histogram, Summary};
use crate::output::say;
use crate::viewers::clip::Clip;
use crate::viewers::probe;
use crate::viewers::server::Server;
use crate::viewers::session::Session;

const BENCH: &str = "isolation";

/// Bytes that the slow viewer takes at a time, and how often: 300 kbit/s.
const SIP_BYTES: usize = 1500;
const SIP_EVERY: Duration = Duration::from_millis(40);
/// Receive buffer of the slow and of the stalled viewer; small, so that the server soon notices.
const BUFFER_BYTES: usize = 16 << 10;
/// How much later than without the others a picture may be. Equal distributions differ by chance.
const SAME: f64 = 1.2;
/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(in crate::bench) fn measure(repeat: u32, args: &ViewersArgs, report: &mut Report) -> anyhow::Result<()> {
    let most = args.fast.max(args.stalled);
    allow_files(3 * u64::from(most) + OTHER_FILES, "--stalled")?;
    let (clip, log) = args.prepare(most)?;
    let (mut alone_at, mut beside_at) = ([0; 3], [0; 3]);
    for _ in 0..repeat {
        for (beside, at) in [(false, &mut alone_at), (true, &mut beside_at)] {
            let who = if beside { "beside a slow and a stalled one" } else { "alone" };
            say(&format!("{} fast viewers {who} ...", args.fast));
            let Summary { p50_ms, p95_ms, p99_ms, .. } = delays(args, &clip, &log, beside)?;
            *at = [("p50", p50_ms), ("p95", p95_ms), ("p99", p99_ms)].map(|(part, ms)| {
                let name = format!("{} fast viewers {who}: delay, {part}", args.fast);
                report.add(BENCH, &name, Unit::Nanoseconds, ms * 1e6)
            });
        }
    }
    for ((part, beside), alone) in ["p50", "p95", "p99"].into_iter().zip(beside_at).zip(alone_at) {
        let name = format!("delay {part}, beside a slow and a stalled one : alone");
        report.compare(&name, beside, alone, Some(Goal::AtMost(SAME)));
    }
    say(&format!("{} stalled viewers ...", args.stalled));
    stalled(args, &clip, &log, report)
}

/// From the instant when an access unit is handed to the server to its arrival at each fast viewer.
fn delays(args: &ViewersArgs, clip: &Arc<Clip>, log: &Path, beside: bool) -> anyhow::Result<Summary> {
    let serving = Serving::start(Subject::Server(Server::Freshwire), clip, log)?;
    let url = serving.url().context("the server has no stream")?;
    let fast =
        (0..args.fast).map(|_| probe::Running::over(serving.connect()?, url.clone(), Arc::clone(clip)));
    let fast: Vec<_> = fast.collect::<anyhow::Result<_>>()?;
    let others = if beside { Some([sluggish(&serving, &url)?, sluggish(&serving, &url)?]) } else { None };
    if let Some([slow, _]) = &others {
        let slow = slow.try_clone().context("cannot duplicate a socket")?;
        // Ends with the connection.
        std::thread::spawn(move || sip(slow));
    }
    std::thread::sleep(args.settle);
    let from = freshwire_io::now();
    std::thread::sleep(args.duration);
    let to = freshwire_io::now();
    let mut delays = Histogram::default();
    for probe in fast {
        let sight = probe.stop()?;
        for (at, picture) in sight.seen.into_iter().filter(|(at, _)| (from..to).contains(at)) {
            let handed_over = clip.handed_over(picture).context("a picture that nobody encoded")?;
            delays.add(at.saturating_since(serving.fed + handed_over));
        }
    }
    drop(others);
    delays.summary().context("nothing came to the fast viewers")
}

/// A viewer that plays and whose receive buffer is small.
fn sluggish(serving: &Serving, url: &str) -> anyhow::Result<TcpStream> {
    let socket = serving.connect()?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)
        .context("cannot set a socket up")?;
    let asking = socket.try_clone().context("cannot duplicate a socket")?;
    Session::new(asking, url.to_owned())?.play()?;
    Ok(socket)
}

fn sip(mut socket: TcpStream) {
    let mut buffer = [0; SIP_BYTES];
    while socket.read_exact(&mut buffer).is_ok() {
        std::thread::sleep(SIP_EVERY);
    }
}

/// How much viewers that read nothing make the server's memory grow.
fn stalled(args: &ViewersArgs, clip: &Arc<Clip>, log: &Path, report: &mut Report) -> anyhow::Result<()> {
    let serving = Serving::start(Subject::Server(Server::Freshwire), clip, log)?;
    let mut load = serving.load()?;
    load.connect(1, true)?;
    std::thread::sleep(args.settle);
    let before = serving.memory()?.sum();
    load.connect(args.stalled as usize, false)?;
    let mut most = before;
    let until = freshwire_io::now() + args.settle + args.duration;
    while freshwire_io::now() < until {
        std::thread::sleep(LOOK_EVERY);
        most = most.max(serving.memory()?.sum());
    }
    let growth = most.saturating_sub(before) as f64;
    let name = format!("memory that {} stalled viewers take", args.stalled);
    let at = report.add(BENCH, &name, Unit::Bytes, growth);
    let bound = HubConfig::default().arena_bytes as f64 + f64::from(args.stalled) * VIEWER_BYTES;
    report.demand(at, Goal::AtMost(bound));
    Ok(())
}
