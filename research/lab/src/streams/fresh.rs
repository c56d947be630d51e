//! The schemes that keep records in a ring until they can be put on the wire.

use std::net::TcpStream;
use std::time::Duration;

use freshwire::choice::{self, Choice, Reason};
use freshwire::sink::CloseMode;
use freshwire::{
    Engine, Fate, Framing, Meta, Outcome, PushError, RingConfig, Sender, Sink, SinkConfig, SinkId,
};
use freshwire_record::Timestamp;

use super::offer::OfferedRecord;
use super::pace::{SenderAccount, payload};
use crate::scenario::wait_until;
use crate::schema::{Plan, SenderStats, Source};
use crate::scheme;

/// Payload bytes of a slot. A record of the layered source fits one.
const BLOCK_BYTES: u32 = 16 << 10;

/// Slots of the ring: four of the source's windows, more than any policy but first-in-first-out keeps.
const SLOTS: u32 = 4096;

/// Blocks of the arena.
const BLOCKS: u32 = 2048;

/// How often the source looks for room when the ring is full; only first-in-first-out gets there.
const FULL_RETRY: Duration = Duration::from_millis(1);

/// How long the engine may take to end the sink.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends the offered records until `stop_at`.
pub(super) fn send(
    stream: TcpStream,
    plan: &Plan,
    framing: Framing,
    offered: &[OfferedRecord],
    start: Timestamp,
    stop_at: Timestamp,
) -> anyhow::Result<SenderAccount> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&ring(), &engine.handle())?;
    let sink = sender.add_sink(stream, SinkConfig::new(policy(plan)).framing(framing))?;
    feed(&mut sender, sink, offered, start, stop_at)
}

/// A sender's region.
pub(super) fn ring() -> RingConfig {
    RingConfig { rings: 1, slots: SLOTS, block_bytes: BLOCK_BYTES, blocks: BLOCKS }
}

/// Feeds a sink with the offered records until `stop_at`.
pub(super) fn feed(
    sender: &mut Sender,
    sink: Sink,
    offered: &[OfferedRecord],
    start: Timestamp,
    stop_at: Timestamp,
) -> anyhow::Result<SenderAccount> {
    let id = sink.id();
    let mut paced = SenderAccount::new(offered.len());
    for record in offered {
        let due = start + record.at;
        wait_until(due);
        paced.lateness = paced.lateness.max(freshwire_io::now().saturating_since(due));
        push(sender, id, record, start, stop_at)?;
        note_fates(sender, id, &mut paced);
    }
    wait_until(stop_at);
    let stats = sink.stats();
    let ended = sink.close(CloseMode::Abort, CLOSE_TIMEOUT);
    anyhow::ensure!(ended == freshwire::Ended::Closed, "the connection broke: {ended:?}");
    note_fates(sender, id, &mut paced);
    paced.sent_bytes = stats.bytes;
    paced.stats = SenderStats {
        horizon_max_bytes: stats.horizon_max,
        horizon_mean_bytes: stats.horizon_mean,
        drops: stats.drops.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
        syscalls: None,
        cpu_ns: None,
    };
    Ok(paced)
}

fn push(
    sender: &mut Sender,
    id: SinkId,
    record: &OfferedRecord,
    start: Timestamp,
    stop_at: Timestamp,
) -> anyhow::Result<()> {
    let mut refs = [0; 2];
    for (distance, reference) in refs.iter_mut().zip(&record.refs) {
        *distance = u32::try_from(record.seq - reference)?;
    }
    let meta = Meta {
        seq: record.seq,
        generated: start + record.at,
        deadline: start + record.deadline,
        layer: record.layer,
        group: record.group,
        key: 0,
        refs,
    };
    let bytes = payload(record, start);
    loop {
        match sender.push(id, &bytes, &meta) {
            Ok(_) => return Ok(()),
            Err(PushError::Full | PushError::OutOfBlocks) if freshwire_io::now() < stop_at => {
                std::thread::sleep(FULL_RETRY);
            }
            Err(PushError::Full | PushError::OutOfBlocks) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn note_fates(sender: &mut Sender, id: SinkId, paced: &mut SenderAccount) {
    while let Ok(Some(Fate { seq, outcome, committed_at, .. })) = sender.poll_fate(id) {
        let Some(fate) = usize::try_from(seq).ok().and_then(|seq| paced.fates.get_mut(seq)) else {
            continue;
        };
        if outcome == Outcome::Refused {
            // It is tried again.
            continue;
        }
        fate.committed = committed_at;
        fate.word = Some(match outcome {
            Outcome::Dropped(reason) => word(reason, committed_at.is_some()),
            _ => "sent".to_owned(),
        });
    }
}

fn word(reason: Reason, is_committed: bool) -> String {
    match reason {
        Reason::Closed | Reason::ConnectionLost => "unsent".to_owned(),
        _ if is_committed => "abandoned".to_owned(),
        reason => format!("dropped: {reason}"),
    }
}

/// The policy of the plan's scheme.
pub(super) fn policy(plan: &Plan) -> Box<dyn Choice> {
    let window = match plan.source {
        Source::Layers { window_ms, .. } | Source::Video { window_ms, .. } => {
            Duration::from_millis(u64::from(window_ms))
        }
        Source::Frames { .. } => Duration::from_secs(1),
    };
    match (plan.scheme.as_str(), &plan.source) {
        (scheme::THESIS, _) => Box::new(choice::thesis(window)),
        // One layer's time instead of one window's (thesis, section 5.3).
        (scheme::THESIS_IMPROPER, Source::Layers { layers, .. }) => {
            Box::new(choice::thesis(window / u32::from((*layers).max(1))))
        }
        (scheme::PRIORITY_PROGRESS, _) => Box::new(choice::priority_progress(window)),
        (scheme::RESERVE, _) => Box::new(choice::fifo()),
        (scheme::FRESHWIRE_FRAMES, _) => Box::new(choice::frames()),
        (_, Source::Layers { .. } | Source::Video { .. }) => Box::new(choice::layered(Duration::ZERO)),
        (_, Source::Frames { .. }) => Box::new(choice::frames()),
    }
}
