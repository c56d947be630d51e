//! The state that an engine, a sender and the owner of a sink share.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use freshwire_io::poll::Event;
use freshwire_record::Timestamp;
use freshwire_ring::{Fate, MAX_KEPT_FATES};

use super::departures::Departures;
use super::ended::Ended;
use super::signal::Signal;
use crate::carrier::CarrierInUse;
use crate::kernel_view::KernelView;
use crate::stats::{SinkSnapshot, SinkStats};

/// The state of a sink that its engine and its owner share.
#[derive(Debug, Default)]
pub(crate) struct SinkShared {
    pub(crate) stats: SinkStats,
    carrier: CarrierInUse,
    /// A1 goes over TCP.
    is_over_tcp: AtomicBool,
    /// Why it is not the carrier that was wanted.
    pub(super) fallback: Option<String>,
    /// Where the numbers are if the engine has none. Boxed: hardly a sink has it.
    pub(crate) kernel: Option<Box<KernelView>>,
    /// If the sink notes them. Boxed: hardly a sink has it.
    departures: OnceLock<Box<Departures>>,
    /// Acknowledgements of records whose slots were used again before.
    late_acks: LateAcks,
    ended: Mutex<Option<(Ended, Timestamp)>>,
    changed: Condvar,
    /// Tells a program that waits for changes.
    signal: Signal,
    /// Readable from the end on; made when a program asks, and let go at the end.
    end_event: Mutex<Option<Event>>,
}

/// Acknowledgements that came too late for a slot of the ring, for the program that polls fates.
#[derive(Debug, Default)]
pub(crate) struct LateAcks {
    list: Mutex<Vec<(u64, Option<Timestamp>)>>,
    /// Spares the lock where there is nothing.
    is_empty_hint: AtomicBool,
}

impl LateAcks {
    /// Notes that the record at `index` was acknowledged; `at` if that is known. If the program never polls, drops the newest.
    pub(crate) fn add(&self, index: u64, at: Option<Timestamp>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_KEPT_FATES {
            list.push((index, at));
        }
        self.is_empty_hint.store(false, Ordering::Release);
    }

    /// Takes all out, after `collect` has added what another keeps.
    fn take_with(
        &self,
        collect: impl FnOnce(&mut Vec<(u64, Option<Timestamp>)>),
    ) -> Vec<(u64, Option<Timestamp>)> {
        self.is_empty_hint.store(true, Ordering::Release);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        collect(&mut list);
        std::mem::take(&mut *list)
    }

    /// Takes all out.
    pub(crate) fn take(&self) -> Vec<(u64, Option<Timestamp>)> {
        if self.is_empty_hint.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SinkShared {
    pub(crate) fn new(carrier: CarrierInUse, fallback: Option<String>, kernel: Option<KernelView>) -> Self {
        Self { carrier, fallback, kernel: kernel.map(Box::new), ..Self::default() }
    }

    pub(super) fn snapshot(&self) -> SinkSnapshot {
        let snapshot = match &self.kernel {
            Some(kernel) => kernel.snapshot(),
            None => self.stats.snapshot(),
        };
        let overwritten = self.stats.overwritten();
        let is_over_tcp = self.is_over_tcp.load(Ordering::Relaxed);
        let carrier = if is_over_tcp { CarrierInUse::A1OverTcp } else { self.carrier };
        SinkSnapshot { carrier, overwritten, ..snapshot }
    }

    /// A1 goes over TCP, or over UDP, from now on.
    pub(crate) fn set_over_tcp(&self, is_over_tcp: bool) {
        self.is_over_tcp.store(is_over_tcp, Ordering::Relaxed);
    }

    /// Departures, from the first one on.
    pub(crate) fn departures(&self) -> &Departures {
        self.departures.get_or_init(Box::default)
    }

    /// The fate with its departure, if the sink notes departures.
    pub(crate) fn complete(&self, fate: Fate) -> Fate {
        match self.departures.get() {
            Some(departures) => departures.complete(fate),
            None => fate,
        }
    }

    pub(crate) fn late_acks(&self) -> &LateAcks {
        &self.late_acks
    }

    /// Takes the acknowledgements that no slot has; if the producer `awaits` some, also those that the kernel keeps.
    pub(crate) fn take_late_acks(&self, awaits: bool) -> Vec<(u64, Option<Timestamp>)> {
        match &self.kernel {
            Some(kernel) if awaits => self.late_acks.take_with(|list| kernel.collect_acks(list)),
            _ => self.late_acks.take(),
        }
    }

    /// Takes from the kernel what it still keeps, before its socket is closed.
    pub(crate) fn save_late_acks(&self) {
        if let Some(kernel) = &self.kernel {
            // One lock around both: a program that polls meanwhile finds each acknowledgement either there or here.
            let mut list = self.late_acks.list.lock().unwrap_or_else(PoisonError::into_inner);
            kernel.collect_acks(&mut list);
            self.late_acks.is_empty_hint.store(false, Ordering::Release);
        }
    }

    pub(crate) fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((ended, freshwire_io::now()));
        self.changed.notify_all();
        if let Some(event) = self.lock_end_event().take() {
            event.signal();
        }
        self.note_change();
    }

    /// A file that is readable from the end on.
    pub(crate) fn end_event(&self) -> io::Result<Event> {
        let mut kept = self.lock_end_event();
        let event = match &*kept {
            Some(event) => event.clone(),
            None => kept.insert(Event::new()?).clone(),
        };
        // An end before the file was there has signalled nothing.
        if self.has_ended() {
            event.signal();
            *kept = None;
        }
        Ok(event)
    }

    fn lock_end_event(&self) -> MutexGuard<'_, Option<Event>> {
        self.end_event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something became of records, or the sink has ended: wakes a program that waits for it.
    #[inline]
    pub(crate) fn note_change(&self) {
        self.signal.set();
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock_end().is_some()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.lock_end().as_ref().map(|(ended, _)| ended.clone())
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.lock_end().as_ref().map(|&(_, at)| at)
    }

    fn lock_end(&self) -> MutexGuard<'_, Option<(Ended, Timestamp)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait(&self, timeout: Duration) -> Option<Ended> {
        let guard = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, timeout, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().map(|(ended, _)| ended.clone())
    }
}
