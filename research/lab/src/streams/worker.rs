//! One run of layers or frames.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::Framing;
use freshwire_record::Timestamp;
use serde::{Deserialize, Serialize};

use super::offer::{self, OfferedRecord};
use super::pace::{Ends, LEAD, SenderAccount, Span};
use super::receive::{self, Received};
use super::{a1, fresh, peers, plain, udp};
use crate::metrics::layers_in_time;
use crate::scenario::TestLink;
use crate::scenario::pool::Task;
use crate::schema::{Environment, Plan, RecordFate, Run, Source, Totals, Trust};
use crate::scheme;
use crate::video::{self, Clip};

/// A source that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(5);

/// One stream over one link.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(super) plan: Plan,
    /// The folder with the programs of other transports, if the plan needs one.
    pub(super) programs: Option<PathBuf>,
    /// The clip, if the plan is of scalable video.
    pub(super) clip: Option<Clip>,
    /// The folder for what is not a result: pictures of the screen.
    pub(super) stills: PathBuf,
}

impl Task for Stream {
    type Run = Run;

    // At a source rate of about a megabit: measured, the emulator's lateness stays below a tenth of a millisecond.
    const PER_CORE: usize = 6;

    const KIND: &str = "stream";

    const RESULTS: &str = "results.jsonl";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        measure(self, environment)
    }

    fn name(&self) -> String {
        format!("{}, seed {}", self.plan.scheme, self.plan.link.seed)
    }

    fn seconds(&self) -> f64 {
        self.plan.duration_s + self.plan.deadline_ms / 1e3
    }
}

fn measure(stream: Stream, environment: Environment) -> anyhow::Result<Run> {
    let Stream { plan, programs, clip, stills } = stream;
    let video = clip.as_ref().map(Clip::read).transpose()?;
    let offered = offer::of(&plan, video.as_ref());
    let link = TestLink::open(&plan.link)?;
    let ends = match plan.scheme.as_str() {
        name if scheme::is_a1(name) => a1::run(&link, &plan, &offered)?,
        scheme::UDP | scheme::UDP_LIMITED => udp::run(&link, &plan, &offered)?,
        name if scheme::PEERS.contains(&name) => peers::run(&link, &plan, &offered, programs.as_deref())?,
        _ => over_tcp(&link, &plan, &offered)?,
    };
    let account = link.close();
    let Ends { span, paced, received } = ends;
    received.check(&offered)?;
    let mut faults = account.faults;
    if paced.lateness > MAX_LATENESS {
        faults.push(format!("the source was {:.1} ms late", paced.lateness.as_secs_f64() * 1e3));
    }
    let mut run = Run {
        environment,
        trust: Trust::of(&faults),
        totals: Totals {
            received_bytes: received.bytes,
            received_all_bytes: received.all_bytes,
            sent_bytes: paced.sent_bytes,
        },
        records: fates(&offered, &paced, &received, span.start),
        sender: paced.stats,
        decoded: None,
        metrics: None,
        plan,
    };
    if let Some(clip) = clip {
        let name = stills_name(&run.plan);
        run.decoded = Some(video::judge(&clip, &layers_in_time(&run), &stills.join(name))?);
    }
    Ok(run)
}

/// The prefix of the names of a run's pictures.
fn stills_name(plan: &Plan) -> String {
    let Plan { scheme, congestion, link, .. } = plan;
    let clip = match &plan.source {
        Source::Video { clip, order, layers, .. } => {
            let second =
                layers.get(1).map_or(String::new(), |(spatial, temporal)| format!("s{spatial}t{temporal}"));
            format!("{clip}-{order:?}-{second}")
        }
        _ => String::new(),
    };
    let rate = link.rate_bps.map_or("none".to_owned(), |rate| rate.to_string());
    let name = format!("{clip}-{rate}-{}-{}-{congestion}-{scheme}-{}", link.loss, link.delay_ms, link.seed);
    // `Path::with_extension` would take what follows a point for one.
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// Plain TCP or Freshwire on TCP.
fn over_tcp(link: &TestLink, plan: &Plan, offered: &[OfferedRecord]) -> anyhow::Result<Ends> {
    // Both ends stay open until sender and reader have ended.
    let (near_end, far_end, _) = link.connect_tcp(Some(&plan.congestion))?;
    let framing = if plan.framing == "chunked" { Framing::Chunked } else { Framing::Raw };
    let span = Span::of(plan, link.start_after(LEAD)?);
    let (near, far) = (near_end.try_clone()?, far_end.try_clone()?);
    let (paced, received) = std::thread::scope(|scope| {
        let reader = scope.spawn(move || receive::read(far, framing, span.count_until, span.stop_at));
        let paced = if plain::is_plain(&plan.scheme) {
            plain::send(near, &plan.scheme, offered, span.start, span.stop_at)
        } else {
            fresh::send(near, plan, framing, offered, span.start, span.stop_at)
        };
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        anyhow::Ok((paced.context("the sender failed")?, received.context("the receiver failed")?))
    })?;
    Ok(Ends { span, paced, received })
}

fn fates(
    offered: &[OfferedRecord],
    paced: &SenderAccount,
    received: &Received,
    start: Timestamp,
) -> Vec<RecordFate> {
    let since_start = |at: Timestamp| at.saturating_since(start).as_nanos() as u64;
    let fate = |record: &OfferedRecord| {
        let fate = paced.fates.get(record.seq as usize).cloned().unwrap_or_default();
        RecordFate {
            seq: record.seq,
            group: record.group,
            layer: record.layer,
            bytes: record.bytes,
            generated_ns: record.at.as_nanos() as u64,
            deadline_ns: record.deadline.as_nanos() as u64,
            committed_ns: fate.committed.map(since_start),
            arrived_ns: received.arrivals.get(&record.seq).copied().map(since_start),
            fate: fate.word.unwrap_or_else(|| "unsent".to_owned()),
            refs: record.refs.clone(),
            picture: record.coded.as_ref().map(|(picture, _)| *picture),
        }
    };
    offered.iter().map(fate).collect()
}
