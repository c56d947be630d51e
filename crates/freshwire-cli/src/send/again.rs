//! Connecting again when the connection ends before the source does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;

use super::source::{Offer, Polled, Source};
use super::{Line, NOT_CONNECTED, Plan, Route, Session, WATCH, tell_carrier};
use crate::output::say;

/// How long after a failure it is tried again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The newest record of each key, for whoever connects again.
pub(super) struct Newest {
    /// Newer records replace older ones.
    by_key: bool,
    /// The records themselves are kept, and not only their numbers.
    keeps_records: bool,
    seqs: BTreeMap<u64, u64>,
    offers: BTreeMap<u64, Offer>,
}

impl Newest {
    pub(super) fn new(by_key: bool, keeps_records: bool) -> Self {
        Self { by_key, keeps_records, seqs: BTreeMap::new(), offers: BTreeMap::new() }
    }

    /// Notes a record. Those without a key are nobody's state.
    pub(super) fn put(&mut self, offer: Offer) {
        let key = offer.meta.key;
        if !self.by_key || key == 0 {
            return;
        }
        self.seqs.insert(key, offer.meta.user_seq);
        if self.keeps_records {
            self.offers.insert(key, offer);
        }
    }

    /// The number of the newest record with this key.
    pub(super) fn seq_of(&self, key: u64) -> Option<u64> {
        self.seqs.get(&key).copied()
    }

    /// The numbers of those that are kept.
    fn kept(&self) -> BTreeSet<u64> {
        self.offers.values().map(|offer| offer.meta.user_seq).collect()
    }

    fn in_order(&self) -> Vec<Offer> {
        let mut offers: Vec<Offer> = self.offers.values().cloned().collect();
        offers.sort_by_key(|offer| offer.meta.user_seq);
        offers
    }
}

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
        kept.extend(self.unsent.as_ref().map(|offer| offer.meta.user_seq));
        self.account.lose_all_but(&kept);
        let routes = open_again(Arc::clone(&self.plan))?;
        if let Some(route) = self.wait_for(&routes, source)? {
            let line = Line::new(&self.plan, route)?;
            if !self.quiet {
                tell_carrier(&line.sink);
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
    fn keep(&mut self, offer: Offer) {
        self.account.offered(&offer);
        if self.plan.replaces() && offer.meta.key != 0 {
            self.account.replaced(self.newest.seq_of(offer.meta.key));
            self.newest.put(offer);
        } else {
            self.account.not_sent(offer.meta.user_seq, NOT_CONNECTED);
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
