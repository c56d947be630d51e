//! The runs side by side, each in a worker process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::wire::{Live, Message, Order, Outcome, Scheme, say};
use crate::child::{ChildGuard, own_program};

/// From the last worker's readiness to the first frame.
const LEAD: Duration = Duration::from_millis(300);

/// How often whoever watches is asked whether to go on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An event during the runs.
pub(super) enum Step<'a> {
    /// A progress message of one of them.
    Live(Scheme, &'a Live),
    /// Nothing; time has passed.
    Idle,
}

/// Runs the orders and hands each step to `watch`, which returns false to stop. Returns `None` if it was stopped.
pub(super) fn side_by_side(
    orders: &[Order],
    mut watch: impl FnMut(Step<'_>) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<Vec<Outcome>>> {
    let (sender, messages) = mpsc::channel();
    let mut workers = Vec::new();
    for order in orders {
        workers.push(Worker::start(order, sender.clone())?);
    }
    drop(sender);
    let mut ready = 0;
    let mut outcomes = Vec::new();
    while outcomes.len() < orders.len() {
        match next(&messages, &mut workers)? {
            None => {
                if !watch(Step::Idle)? {
                    return Ok(None);
                }
            }
            Some((_, Message::Ready)) => {
                ready += 1;
                if ready == workers.len() {
                    let start = freshwire_io::now() + LEAD;
                    for worker in &mut workers {
                        say(&mut worker.input, &start.as_nanos())?;
                    }
                }
            }
            Some((scheme, Message::Live(live))) => {
                if !watch(Step::Live(scheme, &live))? {
                    return Ok(None);
                }
            }
            Some((_, Message::Done(outcome))) => outcomes.push(*outcome),
        }
    }
    outcomes.sort_by_key(|outcome| outcome.scheme.place());
    Ok(Some(outcomes))
}

type WorkerReport = (Scheme, anyhow::Result<Message>);

fn next(
    messages: &Receiver<WorkerReport>,
    workers: &mut [Worker],
) -> anyhow::Result<Option<(Scheme, Message)>> {
    match messages.recv_timeout(LOOK_EVERY) {
        Ok((scheme, Ok(message))) => Ok(Some((scheme, message))),
        Ok((scheme, Err(error))) => {
            let complaint = workers.iter_mut().find(|worker| worker.scheme == scheme).map(Worker::complaint);
            match complaint.filter(|text| !text.is_empty()) {
                Some(text) => bail!("the run with {} failed: {text}", scheme.label()),
                None => Err(error).with_context(|| format!("the run with {} failed", scheme.label())),
            }
        }
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the runs ended without a result"),
    }
}

/// A worker process. Dropping it ends it.
struct Worker {
    scheme: Scheme,
    child: ChildGuard,
    input: ChildStdin,
}

impl Worker {
    fn start(order: &Order, messages: mpsc::Sender<WorkerReport>) -> anyhow::Result<Self> {
        let mut child = own_program()?
            .args(["demo", "--worker"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a run")?;
        let mut input = child.stdin.take().context("a run has no input")?;
        let output = child.stdout.take().context("a run has no output")?;
        let scheme = order.scheme;
        std::thread::spawn(move || {
            let mut done = false;
            for line in BufReader::new(output).lines() {
                let message =
                    line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?));
                done |= matches!(message, Ok(Message::Done(_)));
                if messages.send((scheme, message)).is_err() {
                    return;
                }
            }
            if !done {
                // Nobody listens any more if this fails.
                let _ = messages.send((scheme, Err(anyhow::anyhow!("it ended early"))));
            }
        });
        say(&mut input, order)?;
        Ok(Self { scheme, child: ChildGuard(child), input })
    }

    /// The error output of a worker that has ended.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // Unreadable output counts as none.
            let _ = stderr.read_to_string(&mut text);
        }
        text.trim().trim_start_matches("freshwire-lab: ").to_owned()
    }
}
