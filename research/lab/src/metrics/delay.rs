use crate::results::Delay;

impl Delay {
    /// Takes the percentiles of `delays_ns`, in which none is a record that never arrived.
    pub(crate) fn of(delays_ns: impl IntoIterator<Item = Option<u64>>) -> Self {
        let sorted = sorted(delays_ns);
        let at = |hundredths: usize| {
            let rank = (sorted.len() * hundredths).div_ceil(100);
            sorted.get(rank.checked_sub(1)?).copied().flatten()
        };
        Self { p50_ns: at(50), p95_ns: at(95), p99_ns: at(99), max_ns: at(100) }
    }
}

/// The share of records that took at most a delay: corners `(delay in seconds, share)` of the rising steps, from
/// `(0, 0)`. Records that never arrived count, so the last share is that of the records that did.
pub(crate) fn ecdf(delays_ns: impl IntoIterator<Item = Option<u64>>) -> Vec<(f64, f64)> {
    let sorted = sorted(delays_ns);
    let share = |count: usize| count as f64 / sorted.len() as f64;
    let mut corners = vec![(0.0, 0.0)];
    for (before, delay) in sorted.iter().enumerate() {
        if let Some(delay_ns) = delay {
            let seconds = *delay_ns as f64 / 1e9;
            corners.push((seconds, share(before)));
            corners.push((seconds, share(before + 1)));
        }
    }
    corners
}

fn sorted(delays_ns: impl IntoIterator<Item = Option<u64>>) -> Vec<Option<u64>> {
    let mut delays: Vec<Option<u64>> = delays_ns.into_iter().collect();
    delays.sort_by_key(|delay| delay.unwrap_or(u64::MAX));
    delays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_what_never_arrived() {
        let delays = (1..=98).map(Some).chain([None, None]);
        assert_eq!(
            Delay::of(delays),
            Delay { p50_ns: Some(50), p95_ns: Some(95), p99_ns: None, max_ns: None }
        );
        assert_eq!(Delay::of([Some(3)]).p50_ns, Some(3));
        assert_eq!(Delay::of([None, Some(3), Some(1)]).p50_ns, Some(3));
        assert_eq!(Delay::of([]), Delay::default());
    }

    #[test]
    fn the_curve_ends_at_the_share_that_arrived() {
        assert_eq!(
            ecdf([Some(2_000_000_000), None, Some(1_000_000_000), None]),
            [(0.0, 0.0), (1.0, 0.0), (1.0, 0.25), (2.0, 0.25), (2.0, 0.5)]
        );
    }
}
