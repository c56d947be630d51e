use std::collections::VecDeque;

use crate::Record;

/// Which records the receiver will never have, in bounded memory.
///
/// Lost sequence numbers are kept as runs. When there are too many, the two oldest runs become one, and
/// records sent between them count as lost. A record that depends on such a record may be dropped without
/// need, but none is sent without use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    runs: VecDeque<Run>,
    first_seen: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    last: u64,
}

impl Lost {
    /// Notes that the record was offered. What it may refer to before the first record offered is not at the receiver.
    pub(crate) fn seen(&mut self, seq: u64) {
        self.first_seen = Some(self.first_seen.map_or(seq, |first| first.min(seq)));
    }

    //= spec/choice.md 7
    pub(crate) fn insert(&mut self, seq: u64) {
        let at = self.runs.partition_point(|run| run.last < seq);
        if self.runs.get(at).is_some_and(|run| run.first <= seq) {
            return;
        }
        let joins_before = at > 0 && self.runs.get(at - 1).is_some_and(|run| run.last + 1 == seq);
        let joins_after = self.runs.get(at).is_some_and(|run| seq.checked_add(1) == Some(run.first));
        match (joins_before, joins_after) {
            (true, true) => {
                let after = self.runs.remove(at).map_or(seq, |run| run.last);
                self.runs[at - 1].last = after;
            }
            (true, false) => self.runs[at - 1].last = seq,
            (false, true) => self.runs[at].first = seq,
            (false, false) => self.runs.insert(at, Run { first: seq, last: seq }),
        }
        if self.runs.len() > RUNS
            && let Some(oldest) = self.runs.pop_front()
        {
            self.runs[0].first = oldest.first;
        }
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        if self.first_seen.is_some_and(|first| seq < first) {
            return true;
        }
        let at = self.runs.partition_point(|run| run.last < seq);
        self.runs.get(at).is_some_and(|run| run.first <= seq)
    }

    /// True if something that the record depends on will never be at the receiver.
    //= spec/choice.md 13
    pub(crate) fn breaks(&self, record: &Record) -> bool {
        record.references().any(|reference| reference.is_none_or(|seq| self.contains(seq)))
    }
}

/// Runs kept. A run is as long as a streak of drops, so this covers minutes of video with every second frame dropped.
const RUNS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn agrees_with_a_set() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|seqs| {
            let mut lost = Lost::default();
            let mut model = BTreeSet::new();
            for &seq in seqs {
                lost.insert(u64::from(seq));
                model.insert(u64::from(seq));
            }
            for seq in 0..=256 {
                assert_eq!(lost.contains(seq), model.contains(&seq), "{seq}");
            }
            assert!(lost.runs.iter().zip(lost.runs.iter().skip(1)).all(|(a, b)| a.last + 1 < b.first));
        });
    }

    #[test]
    fn forgets_on_the_safe_side() {
        let mut lost = Lost::default();
        for index in 0..2 * RUNS as u64 {
            lost.insert(index * 2);
        }
        assert_eq!(lost.runs.len(), RUNS);
        assert!((0..RUNS as u64).all(|index| lost.contains(index * 2)));
        assert!(lost.contains(1), "merged into a lost run");
        assert!(!lost.contains(4 * RUNS as u64 - 3), "recent records are known exactly");
    }

    #[test]
    fn a_record_that_was_never_offered_is_lost() {
        let mut lost = Lost::default();
        lost.seen(10);
        assert!(lost.contains(9));
        assert!(!lost.contains(10));
        lost.seen(8);
        assert!(!lost.contains(9));
    }

    #[test]
    fn ends_of_the_number_space() {
        let mut lost = Lost::default();
        for seq in [u64::MAX, u64::MAX - 1, 0, 1] {
            lost.insert(seq);
        }
        assert!(lost.contains(u64::MAX) && lost.contains(0) && !lost.contains(2));
    }
}
