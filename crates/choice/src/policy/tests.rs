use std::time::Duration;

use freshwire_record::Rate;

use super::*;
use crate::{layered, thesis};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * MS)
}

fn record(seq: u64) -> Record {
    Record { index: seq, len: 1000, ..Record::numbered(seq) }
}

/// The layered source of Birkedal 2006: 8 layers a second.
fn layer_record(seq: u64) -> Record {
    let (window, layer) = (seq / 8, seq % 8);
    let generated = at(seq * 125);
    Record {
        len: 16384,
        layer: layer as u8,
        group: window as u32,
        refs: [u32::from(layer > 0), 0],
        generated,
        deadline: generated + Duration::from_secs(1),
        ..record(seq)
    }
}

/// Asks until the choice sends or waits; the drops, and what was sent.
fn drain(
    choice: &mut dyn Choice,
    now: Timestamp,
    queue: &mut Vec<Record>,
    link: &LinkView,
) -> (Vec<(u64, Reason)>, Option<u64>) {
    let mut drops = Vec::new();
    loop {
        match choice.pick(now, queue, link) {
            Decision::Drop(at, reason) => {
                let record = queue.remove(at);
                choice.outcome(&record, Outcome::Dropped(reason));
                drops.push((record.seq, reason));
            }
            Decision::Send(at) => {
                let record = queue.remove(at);
                choice.outcome(&record, Outcome::Sent);
                return (drops, Some(record.seq));
            }
            Decision::Wait(_) => return (drops, None),
        }
    }
}

#[test]
fn the_thesis_rule_drops_the_rest_of_a_window_from_the_top() {
    let mut choice = thesis(Duration::from_secs(1));
    let link = LinkView::default();
    let mut queue: Vec<Record> = (0..8).map(layer_record).collect();
    for sent in 0..5 {
        assert_eq!(drain(&mut choice, at(999), &mut queue, &link), (vec![], Some(sent)));
    }
    queue.push(layer_record(8));
    let drops = [7, 6, 5].map(|seq| (seq, Reason::WindowEnd)).to_vec();
    assert_eq!(drain(&mut choice, at(1000), &mut queue, &link), (drops, Some(8)));
}

#[test]
fn a_window_of_an_eighth_is_the_improper_use() {
    let mut choice = thesis(Duration::from_millis(125));
    let link = LinkView::default();
    let mut queue = vec![layer_record(0)];
    assert_eq!(drain(&mut choice, at(0), &mut queue, &link), (vec![], Some(0)));
    queue.extend([layer_record(1), layer_record(2)]);
    // Layer 1 waited while the base was sent; its eighth of a second is over.
    let drops = vec![(1, Reason::WindowEnd)];
    assert_eq!(drain(&mut choice, at(250), &mut queue, &link), (drops, Some(2)));
}

#[test]
fn layers_above_a_lost_one_are_not_sent() {
    let mut choice = layered(Duration::ZERO);
    let link = LinkView { rate: Some(Rate::from_bytes_per_sec(64 * 1024)), ..LinkView::default() };
    let mut queue: Vec<Record> = (0..12).map(layer_record).collect();
    // Layer 3 of window 0 is due at 1375 ms and takes 250 ms.
    queue.drain(..3);
    choice.outcome(&layer_record(2), Outcome::Sent);
    let (drops, sent) = drain(&mut choice, at(1200), &mut queue, &link);
    assert_eq!(drops[0], (3, Reason::PredictedLate));
    assert_eq!(drops[1..], [4, 5, 6, 7].map(|seq| (seq, Reason::ReferenceLost)));
    assert_eq!(sent, Some(8));
}

#[test]
fn by_layer_never_overtakes_a_reference() {
    let mut choice = Policy::builder().order(Order::ByLayer).build();
    // A base record that refers to a higher layer.
    let mut queue = vec![Record { layer: 5, ..record(0) }, Record { refs: [1, 0], ..record(1) }, record(2)];
    let order: Vec<_> =
        (0..3).map(|_| drain(&mut choice, at(0), &mut queue, &LinkView::default()).1).collect();
    assert_eq!(order, [Some(2), Some(0), Some(1)]);
}

#[test]
fn latest_by_key_keeps_the_newest_of_each() {
    let mut choice = crate::latest();
    let keyed = |seq, key| Record { key, ..record(seq) };
    let mut queue = vec![keyed(0, 7), keyed(1, 8), keyed(2, 7), record(3), keyed(4, 7)];
    let (drops, sent) = drain(&mut choice, at(0), &mut queue, &LinkView::default());
    assert_eq!(drops, [(0, Reason::Superseded), (2, Reason::Superseded)]);
    assert_eq!(sent, Some(4));
    assert_eq!(queue.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn newest_group_and_layer_limit() {
    let mut choice = Policy::builder().rule(Rule::NewestGroup).rule(Rule::LayerLimit { highest: 1 }).build();
    let mut queue =
        vec![record(0), Record { group: 1, layer: 2, ..record(1) }, Record { group: 1, ..record(2) }];
    let (drops, sent) = drain(&mut choice, at(0), &mut queue, &LinkView::default());
    assert_eq!((drops, sent), (vec![(0, Reason::Superseded), (1, Reason::LayerShed)], Some(2)));
}

#[test]
fn priority_progress_goes_by_layer_and_ends_with_the_window() {
    let mut choice = crate::priority_progress(Duration::from_secs(1));
    let mut queue: Vec<Record> =
        [3, 1, 0, 2].map(|layer| Record { layer, ..record(3 - u64::from(layer)) }).to_vec();
    let link = LinkView::default();
    assert_eq!(drain(&mut choice, at(0), &mut queue, &link), (vec![], Some(3)));
    assert_eq!(drain(&mut choice, at(1), &mut queue, &link), (vec![], Some(2)));
    let rest = vec![(0, Reason::WindowEnd), (1, Reason::WindowEnd)];
    assert_eq!(drain(&mut choice, at(1000), &mut queue, &link), (rest, None));
}

#[test]
fn a_record_is_abandoned_only_if_twice_the_rate_is_too_slow() {
    let mut choice = crate::deadline(Duration::from_millis(50));
    let link = LinkView { rate: Some(Rate::from_bytes_per_sec(1000)), ..LinkView::default() };
    let due = Record { deadline: at(1000), ..record(0) };
    assert_eq!(choice.progress(at(0), &due, 2000, &link), Progress::Continue);
    assert_eq!(choice.progress(at(1), &due, 2000, &link), Progress::Abandon(Reason::PredictedLate));
    assert_eq!(choice.progress(at(1001), &due, 0, &link), Progress::Abandon(Reason::Expired));
}

#[test]
fn the_head_is_enough_for_fifo() {
    assert_eq!(crate::fifo().lookahead(), 1);
    assert_eq!(crate::deadline(Duration::ZERO).lookahead(), 1);
    assert_eq!(thesis(Duration::ZERO).lookahead(), usize::MAX);
    assert_eq!(layered(Duration::ZERO).lookahead(), usize::MAX);
}

#[test]
fn only_policies_that_keep_the_order_are_left_to_the_queue() {
    use crate::{deadline, expiring, fifo, latest};
    assert!(fifo().is_in_order() && !fifo().drops_expired());
    assert!(expiring().is_in_order() && expiring().drops_expired());
    assert!(!deadline(Duration::ZERO).is_in_order() && deadline(Duration::ZERO).drops_expired());
    assert!(!latest().is_in_order() && latest().drops_expired());
    let boxed: Box<dyn Choice> = Box::new(expiring());
    assert!(boxed.is_in_order() && boxed.drops_expired());
    assert!(!Policy::builder().rule(Rule::LayerLimit { highest: 0 }).build().is_in_order());
    assert!(!crate::from_fn(|_, _: &[Record], _: &_| crate::Decision::Send(0)).is_in_order());
}
