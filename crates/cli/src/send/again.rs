//! Connecting again when the connection ends before the source does.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;

use super::args::Plan;
use super::input::{NewRecord, Polled, Source};
use super::timing::WATCH;
use super::{Line, NOT_CONNECTED, Route, Session, tell_carrier};
use crate::output::say;

/// How long after a failure it is tried again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

impl Session {
    /// Whether the connection has ended, and the user wants another one.
    pub(super) fn may_connect_again(&self) -> bool {
        let has_ended = self.line.as_ref().is_none_or(|line| line.sink.ended().is_some());
        self.plan.reconnects && has_ended && !self.interrupt.arrived()
    }

    /// Waits for another connection, and meanwhile for the source. `source` is `None` once it has ended.
    pub(super) fn connect_again(
        &mut self,
        why: &anyhow::Error,
        source: Option<&mut dyn Source>,
    ) -> anyhow::Result<()> {
        self.progress.finish();
        say(&format!("{why:#}; waiting for another connection"));
        if let Some(mut line) = self.line.take() {
            line.poll_fates(&mut self.account);
            self.account.disconnected(&line.sink.stats());
        }
        let mut kept = self.newest.kept();
        kept.extend(self.unsent.as_ref().map(|offer| offer.meta.seq));
        self.account.lose_all_but(&kept);
        let routes = open_again(Arc::clone(&self.plan))?;
        if let Some(route) = self.wait_for(&routes, source)? {
            let line = Line::new(&self.plan, route)?;
            if !self.quiet {
                tell_carrier(&line.sink, &self.plan);
            }
            self.line = Some(line);
            self.is_late = true;
            return self.send_newest();
        }
        Ok(())
    }

    /// Queues the newest record of each key. A connection that ends meanwhile is found to have ended at the next look.
    fn send_newest(&mut self) -> anyhow::Result<()> {
        let unsent = self.unsent.take();
        for offer in self.newest.in_order() {
            self.account.offered_again(&offer);
            match self.push(offer) {
                Err(_) if self.may_connect_again() => break,
                pushed => pushed?,
            }
        }
        self.unsent = unsent;
        Ok(())
    }

    /// The next connection; `None` if the user ends it.
    fn wait_for(
        &mut self,
        routes: &Receiver<Route>,
        mut source: Option<&mut dyn Source>,
    ) -> anyhow::Result<Option<Route>> {
        let mut give_up = source.is_none().then(|| freshwire_io::now() + self.plan.drain);
        loop {
            let patience = if self.plan.is_lossless() || source.is_none() { WATCH } else { Duration::ZERO };
            match routes.recv_timeout(patience) {
                Ok(route) => return Ok(Some(route)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("what connects again has stopped"),
            }
            if self.interrupt.arrived() {
                return Ok(None);
            }
            if let Some(end) = give_up {
                anyhow::ensure!(
                    freshwire_io::now() < end,
                    "nobody has connected again {:?} after the end of the source; --drain waits longer",
                    self.plan.drain
                );
            }
            let Some(poll) = source.as_mut().filter(|_| !self.plan.is_lossless()) else { continue };
            match poll.poll(WATCH)? {
                Polled::Record(offer) => self.keep(offer),
                Polled::Nothing => {}
                Polled::End => {
                    source = None;
                    give_up = Some(freshwire_io::now() + self.plan.drain);
                }
            }
        }
    }

    /// Takes a record while nobody is connected.
    fn keep(&mut self, offer: NewRecord) {
        self.account.offered(&offer);
        if self.plan.replaces() && offer.meta.key != 0 {
            self.account.replaced(self.newest.seq_of(offer.meta.key));
            self.newest.put(offer);
        } else {
            self.account.not_sent(offer.meta.seq, NOT_CONNECTED);
        }
    }
}

/// Connects, in a thread of its own, for as long as it takes.
fn open_again(plan: Arc<Plan>) -> anyhow::Result<Receiver<Route>> {
    let (sender, routes) = mpsc::channel();
    let open = move || {
        let (mut pause, mut said) = (PAUSES.0, String::new());
        loop {
            match Route::open(&plan) {
                Ok(route) => {
                    // Nobody waits any more if the program ends just now.
                    let _ = sender.send(route);
                    return;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != said {
                        say(&format!("{error}; trying again"));
                        said = error;
                    }
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    };
    std::thread::Builder::new().name("connect".to_owned()).spawn(open).context("cannot start a thread")?;
    Ok(routes)
}
