//! The numbers that follow from a run: the age of each object's newest value at the receiving program, and neglected objects.

use anyhow::ensure;

use super::schema::{Arrivals, Metrics, Plan, Reader, Run};
use crate::store::ResultLine;

/// How long after the return of a stalled reader its values are looked at.
const AFTER_RETURN_NS: u64 = 100_000_000;

impl ResultLine for Run {
    const KIND: &str = "state";

    fn measure(&mut self) -> anyhow::Result<()> {
        let Arrivals { keys, ticks, gaps_us } = &self.arrivals;
        ensure!(keys.len() == ticks.len() && keys.len() == gaps_us.len(), "columns of different length");
        self.metrics = Some(Metrics::of(self)?);
        Ok(())
    }
}

impl Metrics {
    /// Fails when the run contradicts itself.
    pub(super) fn of(run: &Run) -> anyhow::Result<Self> {
        let plan = &run.plan;
        let [from, to] = window(plan);
        ensure!(from < to, "the warm-up is all of the run");
        let keys = by_key(run)?;
        let counts: Vec<usize> = keys.iter().map(|key| key.count(from, to)).collect();
        let values: usize = counts.iter().sum();
        let (objects, time) = (f64::from(plan.objects), (to - from) as f64);
        let mean_count = values as f64 / objects;
        let of_mean = |count: Option<&usize>| count.filter(|_| values > 0).map(|n| *n as f64 / mean_count);
        let means: Vec<f64> = keys.iter().map(|key| key.area(from, to) / time).collect();
        Ok(Self {
            values_per_s: values as f64 / (time / 1e9),
            age_mean_ns: means.iter().sum::<f64>() / objects,
            age_p95_ns: quantile(&keys, 0.95, from, to),
            worst_key_age_ns: means.iter().copied().fold(0.0, f64::max),
            least_share: of_mean(counts.iter().min()),
            most_share: of_mean(counts.iter().max()),
            worst_silence_ns: keys.iter().map(|key| key.silence(from, to)).max().unwrap_or(0),
            fair_round_ns: (values > 0).then(|| time / mean_count),
            delay_p50_ns: median_delay(run, from, to),
            after_return_ns: return_at(plan).map(|at| mean_age(&keys, at + AFTER_RETURN_NS)),
        })
    }
}

/// From where to where a run counts.
fn window(plan: &Plan) -> [u64; 2] {
    [plan.warm_up_s, plan.duration_s].map(|s| (s * 1e9).round() as u64)
}

/// When a reader reads again that was stalled.
fn return_at(plan: &Plan) -> Option<u64> {
    match plan.reader {
        Reader::Stalled { from_s, for_s } => Some(((from_s + for_s) * 1e9).round() as u64),
        _ => None,
    }
}

/// The values of one object, in order of time.
#[derive(Clone, Default)]
struct Key {
    /// When each value was read.
    read_at: Vec<u64>,
    /// When a newer value was read than any before, and when that value came into being; both rise.
    newer: Vec<(u64, u64)>,
}

fn by_key(run: &Run) -> anyhow::Result<Vec<Key>> {
    let plan = &run.plan;
    let mut keys = vec![Key::default(); plan.objects as usize];
    for (key, tick, at) in run.arrivals.iter() {
        let made = plan.tick_ns(tick);
        // The clock of the reading counts whole microseconds.
        ensure!(made <= at + 1000, "a value of tick {tick} was read at {at} ns, before it was made");
        let Some(key) = keys.get_mut(key as usize) else {
            anyhow::bail!("there is no object {key}");
        };
        key.read_at.push(at);
        if key.newer.last().is_none_or(|(_, newest)| made > *newest) {
            key.newer.push((at, made));
        }
    }
    Ok(keys)
}

impl Key {
    fn count(&self, from: u64, to: u64) -> usize {
        self.read_at.iter().filter(|at| (from..to).contains(at)).count()
    }

    /// Stretches `(youngest, oldest)` in which the age rises with time. Before the first value it counts from the start.
    fn stretches(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = std::iter::once((0, 0)).chain(self.newer.iter().copied());
        let ends = self.newer.iter().map(|(at, _)| *at).chain(std::iter::once(u64::MAX));
        starts.zip(ends).filter_map(move |((begin, made), end)| {
            let (begin, end) = (begin.max(from), end.min(to));
            (begin < end).then(|| (begin.saturating_sub(made), end.saturating_sub(made)))
        })
    }

    /// The age summed up over time.
    fn area(&self, from: u64, to: u64) -> f64 {
        self.stretches(from, to).map(|(young, old)| (young + old) as f64 / 2.0 * (old - young) as f64).sum()
    }

    /// The longest time without a value, the waits for the first and for the end included.
    fn silence(&self, from: u64, to: u64) -> u64 {
        let mut last = from;
        let mut longest = 0;
        for &at in self.read_at.iter().filter(|at| (from..to).contains(at)).chain(&[to]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }
}

/// The age that all objects together stayed below for that share of the time.
fn quantile(keys: &[Key], share: f64, from: u64, to: u64) -> f64 {
    let stretches: Vec<(u64, u64)> = keys.iter().flat_map(|key| key.stretches(from, to)).collect();
    let wanted = share * keys.len() as f64 * (to - from) as f64;
    let below = |age: f64| -> f64 {
        stretches.iter().map(|&(young, old)| age.min(old as f64) - age.min(young as f64)).sum()
    };
    let (mut low, mut high) = (0.0, stretches.iter().map(|(_, old)| *old).max().unwrap_or(0) as f64);
    // Halving an hour so often leaves less than a microsecond.
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if below(middle) < wanted { low = middle } else { high = middle }
    }
    high
}

fn mean_age(keys: &[Key], at: u64) -> f64 {
    let age = |key: &Key| {
        let made = key.newer.iter().rev().find(|(read, _)| *read <= at).map_or(0, |(_, made)| *made);
        at.saturating_sub(made) as f64
    };
    keys.iter().map(age).sum::<f64>() / keys.len().max(1) as f64
}

fn median_delay(run: &Run, from: u64, to: u64) -> Option<u64> {
    let in_time = run.arrivals.iter().filter(|(_, _, at)| (from..to).contains(at));
    let mut delays: Vec<u64> =
        in_time.map(|(_, tick, at)| at.saturating_sub(run.plan.tick_ns(tick))).collect();
    delays.sort_unstable();
    delays.get(delays.len().saturating_sub(1) / 2).copied()
}

/// The mean age over objects at `points` instants of the run, in seconds, for a plot.
pub(super) fn age_curve(run: &Run, points: u32) -> anyhow::Result<Vec<(f64, f64)>> {
    let keys = by_key(run)?;
    let end = window(&run.plan)[1];
    let at = |point: u32| end * u64::from(point) / u64::from(points);
    Ok((0..=points).map(|point| (at(point) as f64 / 1e9, mean_age(&keys, at(point)) / 1e9)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::schema::Arrivals;
    use super::super::schema::testing::run;
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn ages_rise_until_a_newer_value_is_read() {
        // Two objects, ten ticks a second, two seconds of which the first does not count.
        let mut run = run("tcp", Reader::Fast);
        run.arrivals = Arrivals::of(&[
            (0, 0, 50 * MS),
            (1, 0, 60 * MS),
            (0, 11, 1200 * MS),
            // Older than what is there: it counts as read and makes nothing younger.
            (0, 9, 1300 * MS),
            (1, 15, 1600 * MS),
        ]);
        let metrics = Metrics::of(&run).unwrap();
        // The first from 1.0 to 1.2 s old for 0.2 s, then from 0.1 to 0.9; the other from 1.0 to 1.6, then from 0.1 to 0.5.
        let first = 1.1 * 0.2 + 0.5 * 0.8;
        let second = 1.3 * 0.6 + 0.3 * 0.4;
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e3, "{a} is not {b}");
        near(metrics.age_mean_ns, (first + second) / 2.0 * 1e9);
        near(metrics.worst_key_age_ns, second * 1e9);
        // A tenth of a second of the two that both objects have together is above it.
        near(metrics.age_p95_ns, 1.5e9);
        assert_eq!((metrics.values_per_s, metrics.fair_round_ns), (3.0, Some(2.0 / 3.0 * 1e9)));
        assert_eq!((metrics.least_share, metrics.most_share), (Some(1.0 / 1.5), Some(2.0 / 1.5)));
        assert_eq!(metrics.worst_silence_ns, 700 * MS);
        assert_eq!((metrics.delay_p50_ns, metrics.after_return_ns), (Some(100 * MS), None));
    }

    #[test]
    fn a_stalled_reader_is_looked_at_when_it_is_back() {
        let mut run = run("tcp", Reader::Stalled { from_s: 1.2, for_s: 0.3 });
        run.arrivals = Arrivals::of(&[(0, 11, 1150 * MS), (1, 14, 1550 * MS), (0, 15, 1650 * MS)]);
        let metrics = Metrics::of(&run).unwrap();
        assert_eq!(metrics.after_return_ns, Some(f64::midpoint(500e6, 200e6)));
    }

    #[test]
    fn nothing_read_is_as_old_as_the_run() {
        let metrics = Metrics::of(&run("tcp", Reader::Fast)).unwrap();
        assert_eq!((metrics.values_per_s, metrics.age_mean_ns), (0.0, 1.5e9));
        assert_eq!((metrics.least_share, metrics.fair_round_ns), (None, None));
        assert_eq!(metrics.worst_silence_ns, 1000 * MS);
    }

    #[test]
    fn a_run_that_contradicts_itself_is_refused() {
        let mut run = run("tcp", Reader::Fast);
        for (key, tick, at) in [(2, 0, MS), (0, 5, 100 * MS)] {
            run.arrivals = Arrivals::of(&[(key, tick, at)]);
            assert!(Metrics::of(&run).is_err());
        }
        run.arrivals = Arrivals::default();
        run.plan.warm_up_s = 2.0;
        assert!(Metrics::of(&run).is_err());
    }
}
