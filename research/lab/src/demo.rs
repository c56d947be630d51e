//! `freshwire-lab demo`: one live stream to three viewers over the same bad link, by plain TCP, by Freshwire and by A1.
//!
//! ```text
//!  video.rs ── access units ──► worker (plain TCP)  ── link ── viewer.rs ─┐
//!    ffmpeg                ├──► worker (Freshwire)  ── link ── viewer.rs ─┼─► view.rs while it runs
//!                          └──► worker (A1)         ── link ── viewer.rs ─┤
//!                                                                         └─► metrics.rs, quality.rs ─► result.json,
//!                                                                                                table, report.html
//! ```

mod metrics;
mod quality;
mod report;
mod result;
mod run;
mod video;
mod view;
mod viewer;
mod wire;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use crate::output::{print, say};
use crate::schema::{Environment, LinkConfig};
use metrics::Metrics;
use report::Stills;
use result::{Demo, Viewing};
use video::Stream;
use view::View;
use wire::{Order, Outcome, Scheme};

/// Send the same live H.264 stream to three viewers over the same emulated link: by plain TCP, by Freshwire over TCP, and by
/// Freshwire over A1.
///
/// Needs ffmpeg and no privilege. Leaves `report.html`, `result.json` and the streams in the output folder.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  freshwire-lab demo
  freshwire-lab demo --video holiday.mp4 --rate 768kbit --loss 2% --delay 30ms

Exit code: 0 done, 1 a viewer saw a torn frame or a decoder complained, 2 it could not be done.")]
pub(crate) struct DemoArgs {
    /// The link's rate, counting whole IP packets.
    #[arg(long, value_name = "RATE", default_value = "512kbit")]
    rate: Rate,

    /// Share of the packets that the link loses.
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    loss: f64,

    /// One-way delay of the link.
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = parse_duration)]
    delay: Duration,

    /// Bytes that the link's queue holds.
    #[arg(long, value_name = "SIZE", default_value = "15000", value_parser = parse_size)]
    queue: u64,

    /// Decides which packets are lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How long the stream is.
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = parse_duration)]
    duration: Duration,

    /// Your own video, in any format that ffmpeg reads. It is encoded anew and repeated as long as needed.
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,

    /// Congestion control for both TCP senders [default: the system's for plain TCP; bbr for Freshwire where the kernel has
    /// it]. A1 has its own.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Output folder.
    #[arg(long, value_name = "FOLDER", default_value = "freshwire-demo")]
    out: PathBuf,

    /// Run one of them; the demo calls itself so.
    #[arg(long, hide = true)]
    worker: bool,
}

/// Runs the demo. Exit code 0: done; 1: a viewer saw a torn frame or a decoder complained.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    if args.worker {
        return worker::run();
    }
    ensure!(
        (SHORTEST..=LONGEST).contains(&args.duration),
        "a demo takes {SHORTEST:?} to {LONGEST:?}, not {:?}",
        args.duration
    );
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the output folder {}", args.out.display()))?;
    say(&format!("encoding {} s of live video", args.duration.as_secs_f64()));
    let video = video::encode(args.video.as_deref(), args.duration, &args.out)?;
    let stream = video::read(&video)?;
    let link = args.link();
    let orders = Scheme::ALL.map(|scheme| args.order(scheme, &link, &video));
    let Some(outcomes) = watch(&orders, &stream, &link)? else {
        say("stopped");
        return Ok(ExitCode::from(2));
    };
    say("comparing what each viewer saw with the original");
    let (demo, stills) = judge(&orders, outcomes, &stream, link)?;
    write(&args.out.join("result.json"), &serde_json::to_vec(&demo).context("cannot write the result")?)?;
    let page = args.out.join("report.html");
    write(&page, report::html(&demo, &stream, &stills)?.as_bytes())?;
    print(&demo.table().to_terminal())?;
    for fault in demo.faults() {
        print(&format!("these numbers are not exact: {fault}"))?;
    }
    print(&format!("report: {}", page.display()))?;
    Ok(if demo.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl DemoArgs {
    fn link(&self) -> LinkConfig {
        let rate_bps = Some(self.rate.bits_per_sec());
        LinkConfig::steady(rate_bps, self.loss, self.delay, Some(self.queue), self.seed)
    }

    fn order(&self, scheme: Scheme, link: &LinkConfig, video: &Path) -> Order {
        let congestion = match scheme {
            Scheme::PlainTcp => self.congestion.clone(),
            Scheme::Freshwire => self.congestion.clone().or_else(best_congestion),
            Scheme::A1 => None,
        };
        Order {
            scheme,
            link: link.clone(),
            congestion,
            deadline_ms: VIEWER_DEADLINE.as_millis() as u64,
            video: video.to_owned(),
            received: self.out.join(format!("received-{}.h264", scheme.name())),
        }
    }
}

/// A control that takes loss for congestion leaves half of a lossy link unused.
fn best_congestion() -> Option<String> {
    let available = freshwire_io::tcp::available_congestion_controls().unwrap_or_default();
    available.into_iter().find(|name| name == "bbr")
}

fn watch(orders: &[Order], stream: &Stream, link: &LinkConfig) -> anyhow::Result<Option<Vec<Outcome>>> {
    let mut view = View::open(result::link_text(link), stream.duration())?;
    run::side_by_side(orders, |step| view.step(step))
}

fn judge(
    orders: &[Order],
    outcomes: Vec<Outcome>,
    stream: &Stream,
    link: LinkConfig,
) -> anyhow::Result<(Demo, Stills)> {
    let video = orders.first().map(|order| order.video.clone()).context("nothing was run")?;
    let camera: Vec<usize> = (1..=STILLS).map(|still| (stream.frames() - 1) * still / STILLS).collect();
    let instants: Vec<Duration> = camera.iter().map(|&frame| stream.captured(frame)).collect();
    let wanted: Vec<Option<usize>> = camera.iter().copied().map(Some).collect();
    let mut stills = Stills {
        instants_s: instants.iter().map(Duration::as_secs_f64).collect(),
        camera: quality::stills(&video, (0..stream.frames()).collect(), &wanted)?,
        viewers: Vec::new(),
    };
    let mut viewers = Vec::new();
    for (outcome, order) in outcomes.into_iter().zip(orders) {
        let seen = metrics::on_screen(&outcome.shown, instants.iter().copied());
        let frames = quality::received_frames(stream, &outcome);
        let pictures = quality::stills(&order.received, frames, &seen)?;
        let ages = instants.iter().zip(&seen).map(|(&instant, frame)| {
            let captured = frame.map_or(Duration::ZERO, |frame| stream.captured(frame));
            instant.saturating_sub(captured).as_secs_f64()
        });
        stills.viewers.push(ages.zip(pictures).collect());
        let quality = quality::judge(stream, &outcome, &order.received, &video)?;
        let metrics = Metrics::of(stream, &outcome.shown, VIEWER_DEADLINE);
        viewers.push(Viewing { metrics, quality, outcome });
    }
    let deadline_ms = VIEWER_DEADLINE.as_millis() as u64;
    Ok((Demo::new(Environment::here(), link, deadline_ms, stream, viewers), stills))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// A picture older than this is late.
const VIEWER_DEADLINE: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3600);
/// Instants of which pictures are kept.
const STILLS: usize = 5;

#[cfg(test)]
mod tests;
