//! How many whole frames could have been on time, had the sender known the link and the frames to come.
//!
//! The oracle sends frames one after the other over the link's capacity, in decode order, none before it is generated,
//! and none without its references. It may leave out any frame, and may send one that will itself be late for the sake
//! of those that refer to it. Decode order loses nothing among the frames that count: with one deadline for all, the
//! older frame's deadline is the earlier.
//!
//! The search is exact. After each frame, a choice leaves three facts for the future. They are (a) which frames that
//! are still referred to were sent, (b) how many frames were on time, (c) when the link is free. For equal (a) and
//! (b) the earliest (c) is best, since a transfer that starts earlier never ends later; so a table from (a) and (b)
//! to (c) loses nothing. In a ladder of I, P, B and b frames few frames are still referred to at any time, and (a)
//! stays small.

use std::collections::BTreeMap;

use super::link::transfer_end_ns;
use crate::schema::LinkConfig;

/// A frame as the oracle sees it.
pub(super) struct Frame {
    pub(super) generated_ns: u64,
    pub(super) bytes: u64,
    /// Positions of the frames that it refers to, all earlier; none is one that does not exist.
    pub(super) refs: Vec<Option<usize>>,
}

/// The most frames that can be decodable within `deadline_ns` of their generation.
pub(super) fn frames_on_time(frames: &[Frame], link: &LinkConfig, deadline_ns: u64) -> u64 {
    let last_use = last_use(frames);
    let mut states = States::from([(Vec::new(), vec![Some(0.0)])]);
    for (position, frame) in frames.iter().enumerate() {
        let latest_ns = (frame.generated_ns + deadline_ns) as f64 - link.delay_ns() as f64;
        let mut next = States::new();
        for (sent, free_by_count) in states {
            let sendable = frame.refs.iter().all(|r| r.is_some_and(|r| sent.contains(&r)));
            let kept = still_used(&sent, &last_use, position);
            if sendable {
                let mut with = kept.clone();
                if last_use[position] > position {
                    with.push(position);
                }
                let ended = free_by_count.iter().map(|free| {
                    free.map(|free| transfer_end_ns(link, free.max(frame.generated_ns as f64), frame.bytes))
                        .filter(|end| end.is_finite())
                });
                send(next.entry(with).or_default(), ended, latest_ns);
            }
            let without = next.entry(kept).or_default();
            for (count, free) in free_by_count.into_iter().enumerate() {
                keep_earliest(without, count, free);
            }
        }
        states = next;
    }
    let best = states.values().filter_map(|free| free.iter().rposition(Option::is_some)).max();
    best.unwrap_or_default() as u64
}

/// From the frames that were sent and are still referred to, to the earliest time at which the link is free again for
/// each count of frames on time.
type States = BTreeMap<Vec<usize>, Vec<Option<f64>>>;

fn send(table: &mut Vec<Option<f64>>, ended: impl Iterator<Item = Option<f64>>, latest_ns: f64) {
    for (count, end) in ended.enumerate() {
        let on_time = usize::from(end.is_some_and(|end| end <= latest_ns));
        keep_earliest(table, count + on_time, end);
    }
}

fn keep_earliest(table: &mut Vec<Option<f64>>, count: usize, free: Option<f64>) {
    let Some(free) = free else { return };
    if table.len() <= count {
        table.resize(count + 1, None);
    }
    if table[count].is_none_or(|earliest| free < earliest) {
        table[count] = Some(free);
    }
}

fn still_used(sent: &[usize], last_use: &[usize], position: usize) -> Vec<usize> {
    sent.iter().copied().filter(|&frame| last_use[frame] > position).collect()
}

/// The position of the last frame that refers to each frame; its own where none does.
fn last_use(frames: &[Frame]) -> Vec<usize> {
    let mut last: Vec<usize> = (0..frames.len()).collect();
    for (position, frame) in frames.iter().enumerate() {
        for &reference in frame.refs.iter().flatten() {
            last[reference] = position;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::RateStep;
    use crate::testing;

    const MS: u64 = 1_000_000;

    fn frame(generated_ms: u64, bytes: u64, refs: &[usize]) -> Frame {
        Frame { generated_ns: generated_ms * MS, bytes, refs: refs.iter().copied().map(Some).collect() }
    }

    /// 1.448 Mbit/s of payload: 181 bytes take 1 ms.
    fn link() -> LinkConfig {
        testing::link(Some(1_500_000), 0.0, 0.0)
    }

    #[test]
    fn a_slow_link_carries_every_other_frame() {
        // Each takes 20 ms, one comes every 10 ms, each is worth something for 25 ms.
        let frames: Vec<Frame> = (0..10).map(|i| frame(i * 10, 3620, &[])).collect();
        assert_eq!(frames_on_time(&frames, &link(), 25 * MS), 5);
        assert_eq!(frames_on_time(&frames, &link(), 19 * MS), 0);
        let mut far = link();
        far.delay_ms = 6.0;
        assert_eq!(frames_on_time(&frames, &far, 25 * MS), 0);
        assert_eq!(frames_on_time(&frames, &testing::link(None, 0.0, 0.0), 0), 10);
    }

    #[test]
    fn references_go_first_and_may_be_late_themselves() {
        // The I frame takes 40 ms and is late at 30 ms; the three that need it still fit.
        let ladder = [frame(0, 7240, &[]), frame(20, 181, &[0]), frame(30, 181, &[1]), frame(40, 181, &[2])];
        assert_eq!(frames_on_time(&ladder, &link(), 30 * MS), 3);
        // Without its reference nothing is decodable.
        let orphan = [Frame { generated_ns: 0, bytes: 1, refs: vec![None] }];
        assert_eq!(frames_on_time(&orphan, &link(), 30 * MS), 0);
        // Dropping the tail of one group makes room for the next: 2 x (I + P) but not the P between.
        let groups = [
            frame(0, 1810, &[]),
            frame(10, 1810, &[0]),
            frame(10, 3620, &[1]),
            frame(20, 1810, &[]),
            frame(30, 1810, &[3]),
        ];
        assert_eq!(frames_on_time(&groups, &link(), 10 * MS), 4);
    }

    #[test]
    fn a_dip_costs_what_the_link_could_not_carry() {
        let frames: Vec<Frame> = (0..10).map(|i| frame(i * 10, 1810, &[])).collect();
        let mut dip = link();
        dip.steps = vec![
            RateStep { at_ns: 20 * MS, rate_bps: Some(0) },
            RateStep { at_ns: 60 * MS, rate_bps: Some(1_500_000) },
        ];
        assert_eq!(frames_on_time(&frames, &dip, 10 * MS), 6);
    }

    #[test]
    fn the_search_is_exact_on_small_streams() {
        let mut random = testing::Random::new(7);
        for case in 0..300 {
            let count = 1 + random.below(9) as usize;
            let frames: Vec<Frame> = (0..count)
                .map(|i| {
                    let candidates: Vec<usize> =
                        (i.saturating_sub(3)..i).filter(|_| random.below(3) == 0).collect();
                    frame(i as u64 * 10, 181 * (1 + random.below(40)), &candidates)
                })
                .collect();
            let mut link = link();
            link.steps = vec![
                RateStep { at_ns: random.below(40) * MS, rate_bps: Some(300_000) },
                RateStep { at_ns: (40 + random.below(40)) * MS, rate_bps: Some(3_000_000) },
            ];
            let deadline_ns = (5 + random.below(40)) * MS;
            assert_eq!(
                frames_on_time(&frames, &link, deadline_ns),
                exhaustive(&frames, &link, deadline_ns),
                "case {case}"
            );
        }
    }

    /// Tries every set of frames that is closed under references.
    fn exhaustive(frames: &[Frame], link: &LinkConfig, deadline_ns: u64) -> u64 {
        let closed = |set: u32| {
            (0..frames.len())
                .filter(|i| set >> i & 1 == 1)
                .all(|i| frames[i].refs.iter().all(|r| r.is_some_and(|r| set >> r & 1 == 1)))
        };
        let on_time = |set: u32| {
            let mut free = 0.0_f64;
            let sent = (0..frames.len()).filter(|i| set >> i & 1 == 1);
            sent.filter(|&i| {
                free = transfer_end_ns(link, free.max(frames[i].generated_ns as f64), frames[i].bytes);
                free + link.delay_ns() as f64 <= (frames[i].generated_ns + deadline_ns) as f64
            })
            .count() as u64
        };
        (0..1 << frames.len()).filter(|set| closed(*set)).map(on_time).max().unwrap_or_default()
    }

    #[test]
    fn decode_order_loses_nothing_among_frames_that_stand_alone() {
        let mut random = testing::Random::new(11);
        for _ in 0..60 {
            let frames: Vec<Frame> =
                (0..5).map(|i| frame(i * 10, 181 * (1 + random.below(40)), &[])).collect();
            let deadline_ns = (5 + random.below(40)) * MS;
            let mut best = 0;
            permute(&mut vec![0, 1, 2, 3, 4], 0, &mut |order| {
                let mut free = 0.0_f64;
                let mut on_time = 0;
                for &i in order {
                    let end =
                        transfer_end_ns(&link(), free.max(frames[i].generated_ns as f64), frames[i].bytes);
                    if end <= (frames[i].generated_ns + deadline_ns) as f64 {
                        (free, on_time) = (end, on_time + 1);
                    }
                }
                best = best.max(on_time);
            });
            assert!(frames_on_time(&frames, &link(), deadline_ns) >= best);
        }
    }

    fn permute(order: &mut Vec<usize>, fixed: usize, visit: &mut impl FnMut(&[usize])) {
        if fixed == order.len() {
            return visit(order);
        }
        for next in fixed..order.len() {
            order.swap(fixed, next);
            permute(order, fixed + 1, visit);
            order.swap(fixed, next);
        }
    }
}
