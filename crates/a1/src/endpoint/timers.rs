use std::collections::BTreeSet;

use freshwire_record::Timestamp;

/// One timer for each connection that wants one. A timer that is put off keeps its place until it would have fired: most
/// are put off with each packet, and that costs a comparison. A connection never has more than one place, however
/// often its timer moves, so a thousand moves leave nothing behind.
#[derive(Default)]
pub(super) struct Timers {
    places: BTreeSet<(Timestamp, u32)>,
}

/// A connection's side of its timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    /// When the connection wants to be woken.
    at: Timestamp,
    /// Its place, at that time or before.
    place: Option<Timestamp>,
}

impl Timer {
    pub(super) fn new() -> Self {
        Self { at: Timestamp::MAX, place: None }
    }
}

impl Timers {
    /// Sets or stops the timer of connection `id`.
    pub(super) fn set(&mut self, id: u32, timer: &mut Timer, at: Option<Timestamp>) {
        timer.at = at.unwrap_or(Timestamp::MAX);
        if timer.at < timer.place.unwrap_or(Timestamp::MAX) {
            self.remove(id, timer);
            self.places.insert((timer.at, id));
            timer.place = Some(timer.at);
        }
    }

    /// Takes the timer's place away, with the connection.
    pub(super) fn remove(&mut self, id: u32, timer: &mut Timer) {
        if let Some(place) = timer.place.take() {
            self.places.remove(&(place, id));
        }
    }

    /// The first place: no timer fires before it.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.places.first().map(|(at, _)| *at)
    }

    /// Gives the connection that has the first place if its time has come, for [`Self::fires`].
    pub(super) fn due(&mut self, now: Timestamp) -> Option<u32> {
        let (at, id) = *self.places.first()?;
        (at <= now).then(|| {
            self.places.pop_first();
            id
        })
    }

    /// Whether the timer whose place was due fires now. If it was put off it gets a new place.
    pub(super) fn fires(&mut self, now: Timestamp, id: u32, timer: &mut Timer) -> bool {
        timer.place = None;
        let fires = timer.at <= now;
        if !fires {
            let at = timer.at;
            self.set(id, timer, (at < Timestamp::MAX).then_some(at));
        }
        fires
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Against a plain table of times: the same timers fire, none before its time, each with one place at most.
    #[test]
    fn timers_fire_when_they_should() {
        bolero::check!().with_type::<Vec<(u8, u8, bool)>>().for_each(|steps| {
            let (mut timers, mut table) =
                (Timers::default(), BTreeMap::<u32, (Timer, Option<Timestamp>)>::new());
            let mut now = 0;
            for (id, value, is_step) in steps {
                if *is_step {
                    now += u64::from(*value) % 16;
                    let time = Timestamp::from_nanos(now);
                    let mut fired = Vec::new();
                    while let Some(id) = timers.due(time) {
                        let (timer, expected) = table.get_mut(&id).unwrap();
                        if timers.fires(time, id, timer) {
                            assert!(expected.take().is_some_and(|at| at <= time));
                            fired.push(id);
                        }
                    }
                    assert!(table.values().all(|(_, at)| at.is_none_or(|at| at > time)), "one is late");
                    for id in fired {
                        let (timer, _) = table.get_mut(&id).unwrap();
                        timers.set(id, timer, None);
                    }
                } else {
                    let at = (value % 8 != 0).then(|| Timestamp::from_nanos(now + u64::from(*value)));
                    let (timer, expected) = table.entry(u32::from(*id % 8)).or_insert((Timer::new(), None));
                    timers.set(u32::from(*id % 8), timer, at);
                    *expected = at;
                }
                assert!(timers.places.len() <= table.len());
                let earliest = table.values().filter_map(|(_, at)| *at).min();
                assert!(timers.next().unwrap_or(Timestamp::MAX) <= earliest.unwrap_or(Timestamp::MAX));
            }
        });
    }
}
