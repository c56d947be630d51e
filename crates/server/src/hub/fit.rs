use freshwire::stats::PathRate;

use super::snapshot::StreamSnapshot;

/// Rates that the paths of a stream's viewers carry, for an encoder that adapts to them. A stream up to `slowest`
/// reaches everybody, one up to `median` half of them, and one above `fastest` reaches nobody in full. Framing and
/// other tracks go off these rates, and a keyframe needs room: 85 % is a good share for a mean rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// For the viewer with the slowest path.
    pub slowest: PathRate,
    /// For the median viewer, the slower of two.
    pub median: PathRate,
    /// For the viewer with the fastest path.
    pub fastest: PathRate,
}

impl StreamSnapshot {
    /// The rate that would fit its viewers over TCP; `None` while nothing is known of any of their paths. A path that has shown no
    /// limit counts as faster than all that have.
    pub fn fit(&self) -> Option<Fit> {
        Fit::of(self.viewers.iter().filter_map(|viewer| viewer.sink.path).collect())
    }
}

impl Fit {
    fn of(mut paths: Vec<PathRate>) -> Option<Self> {
        paths.sort_unstable();
        let (&slowest, &fastest) = (paths.first()?, paths.last()?);
        let &median = paths.get((paths.len() - 1) / 2)?;
        Some(Self { slowest, median, fastest })
    }
}

#[cfg(test)]
mod tests {
    use freshwire_record::Rate;

    use super::*;

    fn path(kbit: u64, at_least: bool) -> PathRate {
        PathRate { at_least, rate: Rate::from_bits_per_sec(kbit * 1000) }
    }

    #[test]
    fn a_path_without_a_limit_is_faster_than_all_with_one() {
        let fit = Fit::of(vec![path(900, true), path(5000, false), path(300, false)]).expect("known");
        assert_eq!(fit.slowest, path(300, false));
        assert_eq!(fit.median, path(5000, false));
        assert_eq!(fit.fastest, path(900, true));
    }

    #[test]
    fn of_two_the_slower_is_the_median_and_of_none_nothing_is_known() {
        let fit = Fit::of(vec![path(2, true), path(1, true)]).expect("known");
        assert_eq!((fit.slowest, fit.median, fit.fastest), (path(1, true), path(1, true), path(2, true)));
        assert_eq!(Fit::of(Vec::new()), None);
    }
}
