//! A viewer's screen in numbers.

use freshwire::choice::screen::Shown;
use freshwire_record::Timestamp;

use super::schema::{Metrics, Picture, Run, Screen, Window};
use super::score;
use crate::metrics::capacity_bps;
use crate::store::ResultLine;

impl ResultLine for Run {
    const KIND: &str = "screen";

    fn measure(&mut self) -> anyhow::Result<()> {
        self.check()?;
        self.metrics = Some(Metrics::of(self));
        Ok(())
    }
}

impl Metrics {
    pub(super) fn of(run: &Run) -> Self {
        let capacity = capacity_bps(run.plan.link.rate_bps, run.plan.link.loss);
        Self {
            screen: Screen::of(&shown(&run.pictures), run.window),
            oracle: Screen::of(&score::oracle(&run.pictures, &run.plan.link), run.window),
            link_used: run.received_bytes as f64 * 8.0 / run.window.seconds() / capacity,
        }
    }
}

/// From when on each picture can be decoded, if it can: it and all that it refers to are there.
pub(super) fn decodable(pictures: &[Picture]) -> Vec<Option<u64>> {
    let mut decodable: Vec<Option<u64>> = Vec::with_capacity(pictures.len());
    for picture in pictures {
        let mut references =
            picture.refs.iter().map(|reference| *decodable.get(usize::try_from((*reference)?).ok()?)?);
        let at =
            picture.arrived_ns.and_then(|at| references.try_fold(at, |latest, at| Some(latest.max(at?))));
        decodable.push(at);
    }
    decodable
}

/// The pictures that arrived and can be decoded, in order.
pub(super) fn shown(pictures: &[Picture]) -> Vec<Shown> {
    let with_time = pictures.iter().zip(decodable(pictures));
    let mut shown: Vec<Shown> = with_time
        .filter_map(|(picture, at)| {
            Some(Shown {
                captured: Timestamp::from_nanos(picture.captured_ns),
                arrived: Timestamp::from_nanos(at?),
            })
        })
        .collect();
    shown.sort_by_key(|shown| (shown.arrived, shown.captured));
    shown
}

/// Stretches of time in which the newest picture is the same, from the begin to the end: from, to, and its capture.
pub(super) fn stretches(shown: &[Shown], window: Window) -> Vec<(u64, u64, u64)> {
    let Window { begin_ns, until_ns, .. } = window;
    let (mut stretches, mut since, mut newest) = (Vec::new(), begin_ns, begin_ns);
    for shown in shown {
        let (at, captured) = (shown.arrived.as_nanos().clamp(begin_ns, until_ns), shown.captured.as_nanos());
        if captured > newest {
            stretches.push((since, at, newest));
            (since, newest) = (at, captured);
        }
    }
    stretches.push((since, until_ns, newest));
    stretches
}

impl Screen {
    fn of(shown: &[Shown], window: Window) -> Self {
        let score = score::score(shown, window);
        Self {
            age_mean_s: score.mean_age,
            age_p95_s: score.p95_age,
            pictures_per_s: score.pictures_per_second,
            frozen_s: score.frozen * window.seconds(),
            freezes: score.freezes,
            longest_gap_s: score.longest_gap,
            motion_s: score.motion,
            cost: score.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Captured and offered at once; seconds.
    fn picture(captured: f64, refs: &[Option<u32>], arrived: Option<f64>) -> Picture {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        Picture {
            captured_ns: ns(captured),
            offered_ns: ns(captured),
            bytes: 90_500,
            refs: refs.to_vec(),
            arrived_ns: arrived.map(ns),
        }
    }

    fn window() -> Window {
        Window { begin_ns: 4 * SECOND, from_ns: 4 * SECOND, until_ns: 8 * SECOND }
    }

    #[test]
    fn a_picture_is_there_with_all_that_it_refers_to() {
        let pictures = [
            picture(4.0, &[], Some(5.0)),
            picture(4.5, &[Some(0)], None),
            picture(4.2, &[Some(0)], Some(4.9)),
            picture(4.7, &[Some(1)], Some(5.5)),
            picture(4.8, &[None], Some(5.6)),
        ];
        assert_eq!(decodable(&pictures), [Some(5 * SECOND), None, Some(5 * SECOND), None, None]);
        let shown: Vec<u64> = shown(&pictures).iter().map(|shown| shown.captured.as_nanos()).collect();
        assert_eq!(shown, [4 * SECOND, 4_200_000_000]);
    }

    #[test]
    fn an_empty_screen_ages_and_a_picture_makes_it_young() {
        let empty = Screen::of(&[], window());
        assert_eq!((empty.age_mean_s, empty.longest_gap_s, empty.freezes), (2.0, 4.0, 1));
        assert_eq!((empty.frozen_s, empty.pictures_per_s), (3.5, 0.0));
        // Ages from 0 to 2 s, from 1 to 3 s.
        let one = Screen::of(&shown(&[picture(5.0, &[], Some(6.0))]), window());
        assert!((one.age_mean_s - 1.5).abs() < 1e-9 && (one.age_p95_s - 2.8).abs() < 1e-9, "{one:?}");
        assert_eq!((one.pictures_per_s, one.freezes, one.frozen_s), (0.25, 2, 3.0));
        let stretches = stretches(&shown(&[picture(5.0, &[], Some(6.0))]), window());
        assert_eq!(stretches, [(4 * SECOND, 6 * SECOND, 4 * SECOND), (6 * SECOND, 8 * SECOND, 5 * SECOND)]);
    }

    #[test]
    fn the_oracle_leaves_out_what_makes_the_screen_older() {
        // A second of the link for each picture, one offered each half second; none depends on another one.
        let link = crate::testing::link(Some(750_000), 0.0, 0.0);
        let every = (0..8u32).map(|place| picture(4.0 + f64::from(place) / 2.0, &[], None));
        let pictures: Vec<Picture> = every.collect();
        let oracle = Screen::of(&score::oracle(&pictures, &link), window());
        assert!(oracle.pictures_per_s <= 1.0 && oracle.pictures_per_s >= 0.75, "{oracle:?}");
        // In order, the screen would be older with each picture: 1, 1.5, 2 and 2.5 s at their arrival.
        assert!(oracle.age_mean_s < 1.6, "{oracle:?}");
    }
}
