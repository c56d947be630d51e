//! Every interleaving of each handoff, on a ring of four slots.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p freshwire-ring --test loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::io::Write as _;

use freshwire_record::Timestamp;
use freshwire_ring::{Config, Consumer, Meta, Outcome, Producer, Reason, Record, Region, TooLate};
use loom::thread;

const NOW: Timestamp = Timestamp::from_nanos(1);

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Three preemptions find every bug that a handoff between two threads is known to have.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(body);
}

fn roles() -> (Region, Producer, Consumer) {
    let region = Region::heap(&Config { rings: 1, slots: 4, block_bytes: 16, blocks: 4 }).unwrap();
    let producer = region.producer().unwrap();
    let sender = region.consumer(0).unwrap();
    (region, producer, sender)
}

fn seq(seq: u64) -> Meta {
    Meta { seq, ..Meta::default() }
}

fn queued(sender: &mut Consumer) -> Vec<Record> {
    let mut out = Vec::new();
    sender.queue(4, &mut out);
    out
}

fn payload(sender: &Consumer, taken: &freshwire_ring::Taken) -> Vec<u8> {
    let mut bytes = Vec::new();
    sender.copy(taken, 0, usize::MAX, &mut bytes);
    bytes
}

#[test]
fn no_wake_up_is_lost() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let pusher = thread::spawn(move || {
            let pushed = producer.push(0, b"a", &seq(1)).unwrap();
            (pushed.notify, producer)
        });
        let seen = queued(&mut sender).len();
        let asleep = sender.sleep();
        let (notified, _producer) = pusher.join().unwrap();
        if asleep && seen == 0 {
            assert!(notified, "asleep, with a record that nobody spoke of");
        }
    });
}

#[test]
fn no_wake_up_is_lost_when_a_held_record_comes_back() {
    model(|| {
        let (region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let editing = thread::spawn(move || {
            let editor = region.editor();
            let edit = editor.edit(0, 1).unwrap();
            edit.release().unwrap()
        });
        let seen = queued(&mut sender).len();
        let asleep = sender.sleep();
        let notified = editing.join().unwrap();
        assert!(!(asleep && seen == 0) || notified, "asleep, with a record that came back unseen");
    });
}

#[test]
fn no_wake_up_is_lost_when_a_hold_ends() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        assert_eq!(producer.hold_from(0, 0), Some(0));
        let holding = thread::spawn(move || (producer.release_hold(0), producer));
        let seen = queued(&mut sender).len();
        let asleep = sender.sleep();
        let (notified, _producer) = holding.join().unwrap();
        assert!(!(asleep && seen == 0) || notified);
    });
}

#[test]
fn a_record_is_taken_or_dropped_never_both() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let dropping = thread::spawn(move || (producer.drop_seq(0, 1), producer));
        let taken = sender.take(0);
        if let Ok(taken) = &taken {
            assert_eq!(payload(&sender, taken), b"a");
            sender.finish(taken, NOW).unwrap();
        }
        let (dropped, mut producer) = dropping.join().unwrap();
        assert_eq!(dropped, taken == Err(TooLate), "exactly one of them has it");
        if dropped {
            let outcome = producer.poll_fate(0).unwrap().outcome;
            assert_eq!(outcome, Outcome::Dropped(Reason::Application));
        }
    });
}

#[test]
fn a_dropped_records_block_is_not_read_while_it_is_reused() {
    model(|| {
        let region = Region::heap(&Config { rings: 1, slots: 4, block_bytes: 16, blocks: 1 }).unwrap();
        let mut producer = region.producer().unwrap();
        let mut sender = region.consumer(0).unwrap();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let reusing = thread::spawn(move || {
            producer.drop_seq(0, 1);
            let _ = producer.push(0, b"b", &seq(2));
            producer
        });
        if let Ok(taken) = sender.take(0) {
            assert_eq!(payload(&sender, &taken), b"a");
            sender.finish(&taken, NOW).unwrap();
        }
        reusing.join().unwrap();
    });
}

#[test]
fn a_reserved_payload_is_read_once_it_is_committed() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let reservation = producer.reserve(48).unwrap();
        drop(reservation);
        let filling = thread::spawn(move || {
            let mut reservation = producer.reserve(48).unwrap();
            reservation.write_all(b"seventeen bytes..").unwrap();
            let _ = producer.commit(0, &mut reservation, &seq(1)).unwrap();
            producer
        });
        if let Ok(taken) = sender.take(0) {
            assert_eq!(payload(&sender, &taken), b"seventeen bytes..");
            sender.finish(&taken, NOW).unwrap();
        }
        filling.join().unwrap();
    });
}

#[test]
fn a_record_is_taken_before_or_after_an_edit_never_within() {
    model(|| {
        let (region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"old", &seq(1)).unwrap();
        let editing = thread::spawn(move || {
            let editor = region.editor();
            let Ok(mut edit) = editor.edit(0, 1) else { return false };
            edit.write(0, b"new").unwrap();
            edit.set_layer(1);
            edit.release().unwrap();
            true
        });
        let taken = sender.take(0);
        let found = taken.as_ref().ok().map(|taken| (payload(&sender, taken), taken.record.layer));
        let edited = editing.join().unwrap();
        match found {
            Some((payload, layer)) => {
                let expected: &[u8] = if layer == 1 { b"new" } else { b"old" };
                assert_eq!(payload, expected);
                assert_eq!(edited, layer == 1, "the editor got the true answer");
            }
            None => assert!(edited, "passed over because it was held"),
        }
    });
}

#[test]
fn records_safe_by_a_hold_are_not_taken() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let _ = producer.push(0, b"b", &seq(2)).unwrap();
        let holding = thread::spawn(move || (producer.hold_from(0, 0).unwrap(), producer));
        let taken: Vec<_> = (0..2).map(|index| sender.take(index).is_ok()).collect();
        let (safe, _producer) = holding.join().unwrap();
        for (index, taken) in taken.into_iter().enumerate() {
            assert!(!(taken && index as u64 >= safe), "{index} was taken, {safe} was called safe");
        }
    });
}

#[test]
fn a_listing_never_mixes_two_records() {
    model(|| {
        let region = Region::heap(&Config { rings: 1, slots: 2, block_bytes: 16, blocks: 2 }).unwrap();
        let mut producer = region.producer().unwrap();
        let mut sender = region.consumer(0).unwrap();
        let meta = |number| Meta { seq: number, key: number, ..Meta::default() };
        let _ = producer.push(0, b"a", &meta(1)).unwrap();
        let reusing = thread::spawn(move || {
            producer.drop_seq(0, 1);
            for number in 2..4 {
                let _index = producer.push_quiet(0, b"b", &meta(number)).unwrap();
            }
            producer
        });
        for record in queued(&mut sender) {
            assert_eq!(record.seq, record.key);
            assert_eq!(record.seq, record.index + 1);
        }
        reusing.join().unwrap();
        assert_eq!(queued(&mut sender).len(), 2, "nothing was passed over for good");
        assert_eq!(sender.counters().bad_values(), 0);
    });
}

#[test]
fn a_listing_shows_an_edit_whole_or_not_at_all() {
    model(|| {
        let (region, mut producer, mut sender) = roles();
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let editing = thread::spawn(move || {
            let editor = region.editor();
            let mut edit = editor.edit(0, 1).unwrap();
            edit.set_layer(1);
            edit.set_deadline(NOW);
            edit.release().unwrap();
        });
        for record in queued(&mut sender) {
            assert_eq!(record.layer == 1, record.deadline == NOW);
        }
        editing.join().unwrap();
    });
}

#[test]
fn a_record_pushed_while_the_ring_closes_is_dropped() {
    model(|| {
        let (_region, mut producer, mut sender) = roles();
        let pushing = thread::spawn(move || (producer.push(0, b"a", &seq(1)).is_ok(), producer));
        sender.close(Reason::Closed, NOW);
        let (pushed, mut producer) = pushing.join().unwrap();
        assert_eq!(producer.pending(0), 0, "dropped by the sender or by the push itself");
        let fate = producer.poll_fate(0);
        assert_eq!(pushed, fate.is_some());
    });
}

/// The producer passes over a record that is just being finished, and uses the slots around it. The sender's
/// end of the record counts, and its fate is reported once.
#[test]
fn a_record_that_is_passed_over_ends_once() {
    model(|| {
        let region = Region::heap(&Config { rings: 1, slots: 2, block_bytes: 16, blocks: 3 }).unwrap();
        let mut producer = region.producer().unwrap();
        let mut sender = region.consumer(0).unwrap();
        producer.keep_fates(0);
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let taken = sender.take(0).unwrap();
        let pushing = thread::spawn(move || {
            let pushed = (2..4).filter(|&number| producer.push(0, b"b", &seq(number)).is_ok()).count();
            (pushed, producer)
        });
        assert_eq!(payload(&sender, &taken), b"a");
        sender.finish_for_good(&taken, NOW).unwrap();
        let (pushed, mut producer) = pushing.join().unwrap();
        assert_eq!(queued(&mut sender).len(), pushed, "what was pushed is found");
        let fate = producer.poll_fate(0).unwrap();
        assert_eq!((fate.seq, fate.outcome), (1, Outcome::Sent));
        assert_eq!(producer.poll_fate(0), None);
        assert_eq!(sender.counters().bad_values() + producer.bad_values(), 0);
    });
}

/// The slot of a sent record is used again while it is acknowledged. Either the acknowledgement is written
/// there in time, or the sender learns that it is too late and reports it otherwise.
#[test]
fn an_acknowledgement_is_reported_once_despite_slot_reuse() {
    model(|| {
        let region = Region::heap(&Config { rings: 1, slots: 2, block_bytes: 16, blocks: 2 }).unwrap();
        let mut producer = region.producer().unwrap();
        let mut sender = region.consumer(0).unwrap();
        producer.keep_fates(0);
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let _ = producer.push(0, b"b", &seq(2)).unwrap();
        let taken = sender.take(0).unwrap();
        sender.finish(&taken, NOW).unwrap();
        let pushing = thread::spawn(move || {
            let _ = producer.push(0, b"c", &seq(3)).unwrap();
            producer
        });
        let is_late = sender.acked(0, NOW).is_err();
        let mut producer = pushing.join().unwrap();
        if is_late {
            producer.note_acked(0, 0, Some(NOW));
        }
        let fate = producer.poll_fate(0).unwrap();
        assert_eq!((fate.seq, fate.outcome, fate.acked_at), (1, Outcome::Acked, Some(NOW)));
    });
}

#[test]
fn an_end_with_its_acknowledgement_is_never_too_late() {
    model(|| {
        let region = Region::heap(&Config { rings: 1, slots: 2, block_bytes: 16, blocks: 2 }).unwrap();
        let mut producer = region.producer().unwrap();
        let mut sender = region.consumer(0).unwrap();
        producer.keep_fates(0);
        let _ = producer.push(0, b"a", &seq(1)).unwrap();
        let _ = producer.push(0, b"b", &seq(2)).unwrap();
        let taken = sender.take(0).unwrap();
        let pushing = thread::spawn(move || {
            // Refused while the record is in hand.
            let _ = producer.push(0, b"c", &seq(3));
            producer
        });
        sender.finish_acked(&taken, NOW).unwrap();
        let mut producer = pushing.join().unwrap();
        let fate = producer.poll_fate(0).unwrap();
        assert_eq!((fate.seq, fate.outcome, fate.acked_at), (1, Outcome::Acked, Some(NOW)));
    });
}
