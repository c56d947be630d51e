//! SRT and SCTP by programs of their own (`research/python/peers`), fed and read through pipes.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::Namespaces;
use freshwire_record::Timestamp;

use super::super::offer::OfferedRecord;
use super::super::pace::{Ends, LEAD, SenderAccount, Span, payload};
use super::super::pieces::{PIECE_HEADER, Pieces, piece_header};
use super::super::receive::{Received, whole_record};
use crate::scenario::{TestLink, wait_until};
use crate::schema::Plan;
use crate::scheme;

/// Where the far end listens. The namespace is the run's own.
const PORT: u16 = 9899;

/// Largest message that an end hands over, in bytes.
const MAX_MESSAGE: u32 = 1 << 20;

/// A message of SRT's live mode: seven packets of an MPEG transport stream.
const SRT_MESSAGE: usize = 1316;

/// From SRT's delivery to the deadline, for the receiving thread and what comes in a burst, in milliseconds.
const SRT_MARGIN_MS: f64 = 20.0;

/// Sends the offered records across the link and receives them.
pub(super) fn run(
    link: &TestLink,
    plan: &Plan,
    offered: &[OfferedRecord],
    programs: Option<&Path>,
) -> anyhow::Result<Ends> {
    let program = programs.context("the programs of the lab were not built")?.join(&plan.scheme);
    let (both, sender_only) = options(plan);
    let command = |role: &str| {
        let mut command = Command::new(&program);
        command.arg(role).arg(Namespaces::FAR_V4.to_string()).arg(PORT.to_string()).args(&both);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let mut receiver = End::start(link.namespaces.spawn_far(&mut command("receive")))?;
    let mut sender = End::start(link.namespaces.spawn_near(command("send").args(&sender_only)))?;
    let span = Span::of(plan, link.start_after(LEAD)?);
    let output = receiver.output.take().context("a receiver without output")?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(output, plan, span));
        let paced = send(&mut sender, plan, offered, span);
        wait_until(span.stop_at);
        let ended = receiver.end().context("the receiver failed");
        let received = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        let paced = paced.and_then(|paced| sender.end().map(|()| paced)).context("the sender failed")?;
        ended?;
        Ok(Ends { span, paced, received: received.context("the reader failed")? })
    })
}

/// Options of both ends, and those of the sender alone.
fn options(plan: &Plan) -> (Vec<String>, Vec<String>) {
    if plan.scheme != scheme::SRT {
        return (Vec::new(), Vec::new());
    }
    // The receiver adds the path's delay to it.
    let latency_ms = (plan.deadline_ms - plan.link.delay_ms - SRT_MARGIN_MS).max(0.0);
    let with_headers = SRT_MESSAGE as f64 / (SRT_MESSAGE - PIECE_HEADER) as f64;
    let rate = plan.source.bytes_per_second() * with_headers;
    (vec![format!("{latency_ms:.0}")], vec![format!("{rate:.0}")])
}

/// A running program that is ready.
struct End {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl End {
    fn start(child: std::io::Result<Child>) -> anyhow::Result<Self> {
        let mut child = child.context("cannot start an end")?;
        let mut output = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read from an end")?;
        anyhow::ensure!(line == "ready\n", "an end did not get ready");
        Ok(Self { child, output: Some(output) })
    }

    /// Ends it. Fails if it has failed before.
    fn end(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            anyhow::ensure!(status.success(), "it ended with {status}");
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

fn send(
    sender: &mut End,
    plan: &Plan,
    offered: &[OfferedRecord],
    span: Span,
) -> anyhow::Result<SenderAccount> {
    let mut input = sender.child.stdin.take().context("a sender without input")?;
    let deadline = Duration::from_nanos(plan.deadline_ns());
    let mut paced = SenderAccount::new(offered.len());
    let mut messages = Vec::new();
    for record in offered {
        let due = span.start + record.at;
        wait_until(due);
        let started = freshwire_io::now();
        paced.lateness = paced.lateness.max(started.saturating_since(due));
        let bytes = payload(record, span.start);
        let until = span.start + record.deadline;
        messages.clear();
        let mut message = |parts: [&[u8]; 2]| {
            let size = parts.map(<[u8]>::len).iter().sum::<usize>() as u32;
            messages.extend_from_slice(&size.to_be_bytes());
            messages.extend_from_slice(&u32::from(record.layer).to_be_bytes());
            messages.extend_from_slice(&(until.as_nanos() - deadline.as_nanos() as u64).to_be_bytes());
            messages.extend_from_slice(&until.as_nanos().to_be_bytes());
            messages.extend(parts.concat());
        };
        if plan.scheme == scheme::SRT {
            for (place, piece) in bytes.chunks(SRT_MESSAGE - PIECE_HEADER).enumerate() {
                let offset = place * (SRT_MESSAGE - PIECE_HEADER);
                message([&piece_header(record.seq, offset), piece]);
            }
        } else {
            message([&bytes, &[]]);
        }
        input.write_all(&messages).context("cannot hand over a record")?;
        paced.sent_bytes += bytes.len() as u64;
        paced.sent(record, started);
    }
    wait_until(span.stop_at);
    Ok(paced)
}

/// Reads messages until the receiver is ended.
fn read(mut from: BufReader<ChildStdout>, plan: &Plan, span: Span) -> anyhow::Result<Received> {
    let mut received = Received::default();
    let mut pieces = Pieces::default();
    let mut head = [0; 12];
    // A message that is cut when the program ends came after the run.
    while from.read_exact(&mut head).is_ok() {
        let [s0, s1, s2, s3, at @ ..] = head;
        let size = u32::from_be_bytes([s0, s1, s2, s3]);
        anyhow::ensure!(size <= MAX_MESSAGE, "a message of {size} bytes");
        let at = Timestamp::from_nanos(u64::from_be_bytes(at));
        let mut message = vec![0; size as usize];
        if from.read_exact(&mut message).is_err() {
            break;
        }
        if at > span.stop_at {
            continue;
        }
        if plan.scheme == scheme::SRT {
            let (header, piece) =
                message.split_first_chunk::<PIECE_HEADER>().context("a message without a header")?;
            received.count(piece.len(), at, span.count_until);
            if let Some(record) = pieces.take(u64::from_be_bytes(*header), piece)? {
                received.arrived(whole_record(&record)?, at)?;
            }
        } else {
            received.count(message.len(), at, span.count_until);
            received.arrived(whole_record(&message)?, at)?;
        }
    }
    Ok(received)
}
