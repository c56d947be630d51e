//! Each role's calls, one behaviour per test, on a region of the heap.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use freshwire_record::Timestamp;
use freshwire_ring::{
    ClaimError, Config, Consumer, EditError, Meta, ModifyError, Outcome, Producer, PushError, Reason, Record,
    Region, Replaced, TooLate,
};

fn region(slots: u32, blocks: u32) -> Region {
    Region::heap(&Config { rings: 3, slots, block_bytes: 16, blocks }).unwrap()
}

fn roles(slots: u32, blocks: u32) -> (Producer, Consumer) {
    let region = region(slots, blocks);
    (region.producer().unwrap(), region.consumer(0).unwrap())
}

fn seq(seq: u64) -> Meta {
    Meta { seq, ..Meta::default() }
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn queued(sender: &mut Consumer) -> Vec<Record> {
    let mut out = Vec::new();
    sender.queue(usize::MAX, &mut out);
    out
}

fn seqs(sender: &mut Consumer) -> Vec<u64> {
    queued(sender).iter().map(|record| record.seq).collect()
}

fn send(sender: &mut Consumer, index: u64) -> Vec<u8> {
    let taken = sender.take(index).unwrap();
    let mut payload = Vec::new();
    assert_eq!(sender.copy(&taken, 0, usize::MAX, &mut payload), taken.record.len as usize);
    sender.commit(&taken, at(10), 7);
    sender.finish(&taken, at(20)).unwrap();
    payload
}

#[test]
fn a_descriptor_arrives_as_it_was_pushed() {
    let (mut producer, mut sender) = roles(4, 4);
    let meta = Meta { seq: 9, generated: at(1), deadline: at(2), layer: 3, group: 4, key: 5, refs: [6, 7] };
    let pushed = producer.push(0, b"payload", &meta).unwrap();
    assert_eq!((pushed.index, pushed.notify), (0, false));
    let expected = Record {
        index: 0,
        seq: 9,
        len: 7,
        layer: 3,
        group: 4,
        key: 5,
        refs: [6, 7],
        generated: at(1),
        deadline: at(2),
    };
    assert_eq!(queued(&mut sender), [expected]);
    assert_eq!(send(&mut sender, 0), b"payload");
    assert_eq!(sender.take(0), Err(TooLate));
}

#[test]
fn a_record_larger_than_a_slot_is_one_record() {
    let (mut producer, mut sender) = roles(4, 8);
    let payload: Vec<u8> = (0..50).collect();
    assert_eq!(producer.push(0, &payload, &seq(1)).unwrap().index, 0);
    assert_eq!(producer.push(0, b"x", &seq(2)), Err(PushError::Full));
    assert_eq!(queued(&mut sender).len(), 1);
    let taken = sender.take(0).unwrap();
    let mut slices = Vec::new();
    sender.slices(&taken, 10, 30, &mut slices);
    assert_eq!(slices.iter().map(|slice| slice.len).collect::<Vec<_>>(), [6, 16, 8]);
    let mut parts = Vec::new();
    assert_eq!(sender.copy(&taken, 10, 30, &mut parts), 30);
    assert_eq!(sender.copy(&taken, 45, 30, &mut parts), 5);
    assert_eq!(sender.copy(&taken, 99, 30, &mut parts), 0);
    assert_eq!(parts, [&payload[10..40], &payload[45..]].concat());
    sender.finish(&taken, at(1)).unwrap();
    assert_eq!(producer.push(0, b"x", &seq(2)).unwrap().index, 4);
}

#[test]
fn dropping_by_number_drops_all_records_with_that_number() {
    let (mut producer, mut sender) = roles(8, 8);
    let _ = producer.push(0, &[1; 40], &seq(1)).unwrap();
    let _ = producer.push(0, &[2; 4], &seq(1)).unwrap();
    let _ = producer.push(0, &[3; 4], &seq(2)).unwrap();
    assert!(producer.drop_seq(0, 1));
    assert!(!producer.drop_seq(0, 1));
    assert_eq!(seqs(&mut sender), [2]);
    let taken = sender.take(4).unwrap();
    assert!(!producer.drop_seq(0, 2));
    sender.finish(&taken, at(1)).unwrap();
    assert!(!producer.drop_seq(9, 2));
}

#[test]
fn a_held_record_is_passed_over_and_comes_back_modified() {
    let (mut producer, mut sender) = roles(4, 4);
    let editor = producer.region().editor();
    let _ = producer.push(0, b"first", &seq(1)).unwrap();
    let _ = producer.push(0, b"second", &seq(2)).unwrap();
    let mut edit = editor.edit(0, 1).unwrap();
    assert_eq!(seqs(&mut sender), [2]);
    assert_eq!(sender.take(0), Err(TooLate));
    assert!(!producer.drop_seq(0, 1), "held by another");
    assert_eq!(edit.write(3, b"abc"), Err(EditError::OutOfRange));
    edit.set_len(6).unwrap();
    edit.write(3, b"abc").unwrap();
    assert_eq!(edit.set_len(17), Err(EditError::OutOfRange));
    edit.set_layer(2);
    edit.set_deadline(at(5));
    let mut bytes = [0; 9];
    assert_eq!(edit.read(1, &mut bytes), 5);
    assert_eq!(&bytes[..5], b"irabc");
    assert_eq!(edit.release(), Ok(false));
    let record = queued(&mut sender)[0];
    assert_eq!((record.len, record.layer, record.deadline), (6, 2, at(5)));
    assert_eq!(send(&mut sender, 0), b"firabc");
    drop(editor.edit(0, 2).unwrap());
    assert_eq!(producer.edit(0, 2).unwrap().kill(), Ok(()));
    assert_eq!(seqs(&mut sender), [0; 0]);
}

#[test]
fn a_record_grown_past_the_limit_stays_ready() {
    let (mut producer, mut sender) = roles(4, 4);
    let index = producer.push(0, b"small", &seq(1)).unwrap().index;
    assert_eq!(queued(&mut sender)[0].len, 5);
    let mut edit = producer.edit(0, 1).unwrap();
    edit.set_len(9).unwrap();
    edit.write(5, b"....").unwrap();
    edit.release().unwrap();
    assert!(sender.take_up_to(index, 8).is_err());
    assert_eq!(queued(&mut sender)[0].len, 9);
    producer.edit(0, 1).unwrap().release().unwrap();
    assert_eq!(sender.take_up_to(index, 9).unwrap().record.len, 9);
}

#[test]
fn a_sleeping_sender_is_notified_once_and_only_then() {
    let (mut producer, mut sender) = roles(8, 8);
    let editor = producer.region().editor();
    assert!(!producer.push(0, b"a", &seq(1)).unwrap().notify, "awake at first");
    assert!(!sender.sleep(), "there is something to see");
    assert_eq!(seqs(&mut sender), [1]);
    assert!(sender.sleep());
    assert_eq!(producer.push_quiet(0, b"b", &seq(2)), Ok(1));
    assert_eq!(producer.push_quiet(0, b"c", &seq(3)), Ok(2));
    assert!(producer.wake_needed(0));
    assert!(!producer.push(0, b"d", &seq(4)).unwrap().notify, "somebody else does it already");
    assert_eq!(seqs(&mut sender), [1, 2, 3, 4]);
    let edit = editor.edit(0, 1).unwrap();
    assert_eq!(seqs(&mut sender), [2, 3, 4]);
    assert!(sender.sleep());
    assert_eq!(edit.release(), Ok(true), "it may be what the sender waits for");
    assert!(!sender.sleep());
    assert_eq!(seqs(&mut sender), [1, 2, 3, 4]);
    assert!(sender.sleep());
    sender.awake();
    assert!(!producer.push(0, b"e", &seq(5)).unwrap().notify);
}

#[test]
fn the_sender_is_held_back_at_umod_i() {
    let (mut producer, mut sender) = roles(8, 8);
    for number in 0..4 {
        let _ = producer.push(0, b"x", &seq(number)).unwrap();
    }
    let taken = sender.take(2).unwrap();
    assert_eq!(producer.hold_from(0, 1), Some(3), "2 is on its way");
    assert_eq!(seqs(&mut sender), [0]);
    assert_eq!(sender.take(3), Err(TooLate));
    let _ = producer.push(0, b"x", &seq(9)).unwrap();
    assert!(producer.drop_seq(0, 3));
    assert_eq!(seqs(&mut sender), [0]);
    assert!(sender.sleep());
    assert!(producer.release_hold(0));
    assert_eq!(seqs(&mut sender), [0, 1, 9]);
    sender.finish(&taken, at(1)).unwrap();
    assert_eq!(producer.hold_from(5, 0), None);
}

#[test]
fn replacing_by_key_says_which_way_it_went() {
    let (mut producer, mut sender) = roles(8, 8);
    let keyed = |seq| Meta { seq, key: 77, ..Meta::default() };
    assert!(matches!(producer.replace(0, b"one", &keyed(1)), Ok(Replaced::Appended(_))));
    let _ = producer.push(0, b"other", &seq(2)).unwrap();
    let Ok(Replaced::InPlace(pushed)) = producer.replace(0, b"longer", &keyed(3)) else { panic!() };
    assert_eq!(pushed.index, 0);
    assert_eq!(seqs(&mut sender), [3, 2]);
    let replaced = producer.replace(0, &[4; 20], &keyed(4)).unwrap();
    assert!(matches!(replaced, Replaced::Superseded(_)));
    assert_eq!(replaced.pushed().index, 2);
    assert_eq!(seqs(&mut sender), [2, 4]);
    let _in_hand = sender.take(2).unwrap();
    assert!(matches!(producer.replace(0, b"five", &keyed(5)), Ok(Replaced::Appended(_))));
    assert_eq!(seqs(&mut sender), [2, 5]);
    assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Dropped(Reason::Superseded)));
}

#[test]
fn a_failed_replacement_leaves_the_older_record() {
    let (mut producer, mut sender) = roles(2, 2);
    let keyed = |seq| Meta { seq, key: 77, ..Meta::default() };
    let _ = producer.push(0, b"old", &keyed(1)).unwrap();
    let _ = producer.push(0, b"x", &seq(2)).unwrap();
    assert_eq!(producer.replace(0, &[0; 20], &keyed(3)), Err(PushError::Full));
    assert_eq!(seqs(&mut sender), [1, 2]);
}

#[test]
fn fates_come_in_slot_order_with_their_times() {
    let (mut producer, mut sender) = roles(8, 8);
    for number in 0..5 {
        let _ = producer.push(0, b"x", &seq(number)).unwrap();
    }
    send(&mut sender, 1);
    sender.acked(1, at(30)).unwrap();
    assert_eq!(producer.poll_fate(0), None, "0 is not finished");
    sender.discard(0, Reason::Expired, at(40)).unwrap();
    let fate = producer.poll_fate(0).unwrap();
    assert_eq!((fate.index, fate.outcome), (0, Outcome::Dropped(Reason::Expired)));
    assert_eq!((fate.committed_at, fate.finished_at), (None, Some(at(40))));
    let fate = producer.poll_fate(0).unwrap();
    assert_eq!((fate.seq, fate.outcome, fate.horizon), (1, Outcome::Acked, 7));
    assert_eq!(
        (fate.committed_at, fate.finished_at, fate.acked_at),
        (Some(at(10)), Some(at(20)), Some(at(30)))
    );
    assert!(producer.drop_seq(0, 2));
    let fate = producer.poll_fate(0).unwrap();
    assert_eq!((fate.outcome, fate.finished_at), (Outcome::Dropped(Reason::Application), None));
    let taken = sender.take(3).unwrap();
    sender.commit(&taken, at(50), 0);
    sender.abandon(&taken, Reason::Abandoned, at(51)).unwrap();
    assert_eq!(sender.finish(&taken, at(52)), Err(TooLate));
    let fate = producer.poll_fate(0).unwrap();
    assert_eq!((fate.outcome, fate.committed_at), (Outcome::Dropped(Reason::Abandoned), Some(at(50))));
    send(&mut sender, 4);
    assert_eq!(producer.poll_fate(0), None, "an acknowledgement may come");
    assert_eq!(sender.close(Reason::Closed, at(60)), 0);
    assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Sent));
    assert_eq!(producer.fates_lost(0), 0);
}

#[test]
fn a_push_reuses_finished_slots_and_fates_outlive_them() {
    for are_kept in [false, true] {
        let (mut producer, mut sender) = roles(2, 2);
        if are_kept {
            producer.keep_fates(0);
        }
        for number in 0..10 {
            let pushed = producer.push(0, b"x", &seq(number)).unwrap();
            send(&mut sender, pushed.index);
            assert_eq!(producer.free_slots(0), 2);
        }
        assert_eq!(producer.fates_lost(0), if are_kept { 0 } else { 8 });
        assert_eq!(sender.acked(7, at(1)), Err(TooLate));
        assert_eq!(sender.acked(8, at(1)), Ok(()));
        producer.note_acked(0, 7, Some(at(2)));
        if are_kept {
            let fate = producer.poll_fate(0).unwrap();
            assert_eq!((fate.seq, fate.outcome, fate.acked_at), (7, Outcome::Acked, Some(at(2))));
        }
        assert_eq!(producer.poll_fate(0).map(|fate| fate.seq), Some(8));
        assert_eq!(producer.last_seq(0), Some(9));
        sender.close(Reason::Closed, at(3));
        let rest: Vec<_> = std::iter::from_fn(|| producer.poll_fate(0)).map(|fate| fate.outcome).collect();
        assert_eq!(rest, vec![Outcome::Sent; if are_kept { 8 } else { 1 }]);
    }
}

#[test]
fn an_acknowledgement_before_the_end_is_never_missed() {
    const NONE: [(u64, Option<Timestamp>); 0] = [];
    let (mut producer, mut sender) = roles(2, 2);
    assert!(producer.awaits_acks(0), "nobody has asked for fates yet");
    producer.keep_fates(0);
    assert!(!producer.awaits_acks(0));
    for number in 0..2 {
        let pushed = producer.push(0, b"x", &seq(number)).unwrap();
        send(&mut sender, pushed.index);
    }
    let _ = producer.push(0, b"x", &seq(2)).unwrap();
    assert!(producer.awaits_acks(0));
    // The sender reports, and ends, after the look at what is late.
    let none_yet = producer.poll_fate_with(0, || {
        sender.close(Reason::Closed, at(3));
        NONE
    });
    assert_eq!(none_yet, None);
    let fate = producer.poll_fate_with(0, || [(0, Some(at(2)))]).unwrap();
    assert_eq!((fate.seq, fate.outcome, fate.acked_at), (0, Outcome::Acked, Some(at(2))));
    assert!(!producer.awaits_acks(0));
    let rest: Vec<_> = std::iter::from_fn(|| producer.poll_fate(0)).map(|fate| fate.outcome).collect();
    assert_eq!(rest, [Outcome::Sent, Outcome::Dropped(Reason::Closed)]);
}

#[test]
fn ended_records_are_reclaimed_without_their_fates() {
    let (mut producer, mut sender) = roles(4, 4);
    for number in 0..4 {
        let pushed = producer.push(0, b"x", &seq(number)).unwrap();
        if number < 3 {
            send(&mut sender, pushed.index);
        }
    }
    let free = producer.free_blocks();
    sender.acked(0, at(2)).unwrap();
    producer.reclaim_ended(0);
    assert_eq!(producer.free_blocks(), free + 1, "the others may be reported yet");
    sender.acked(1, at(2)).unwrap();
    sender.close(Reason::Closed, at(3));
    producer.reclaim_ended(0);
    assert_eq!(producer.free_blocks(), free + 4);
    assert!(producer.awaits_acks(0), "nobody has asked for fates");
    assert_eq!((producer.poll_fate(0), producer.fates_lost(0)), (None, 0));
}

#[test]
fn fates_are_final_when_the_sender_tells_no_more() {
    for drops_it in [false, true] {
        let (mut producer, mut sender) = roles(4, 4);
        for number in 0..3 {
            let pushed = producer.push(0, b"x", &seq(number)).unwrap();
            if number < 2 {
                send(&mut sender, pushed.index);
            }
        }
        assert_eq!(sender.refuse(Reason::Closed, at(1)), 1);
        assert_eq!(producer.push(0, b"x", &seq(3)), Err(PushError::Closed));
        assert_eq!(producer.poll_fate(0), None, "an acknowledgement may come");
        sender.acked(0, at(2)).unwrap();
        assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Acked));
        assert_eq!(producer.poll_fate(0), None);
        if drops_it {
            drop(sender);
        } else {
            sender.close(Reason::Closed, at(3));
        }
        assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Sent));
        assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Dropped(Reason::Closed)));
    }
}

#[test]
fn a_record_in_progress_costs_nobody_else_a_slot() {
    let (mut producer, mut sender) = roles(8, 8);
    let first = producer.push(0, b"first", &seq(0)).unwrap();
    let taken = sender.take(first.index).unwrap();
    let mut queue = Vec::new();
    for number in 1..1000 {
        let pushed = producer.push(0, &[number as u8], &seq(number)).unwrap();
        sender.queue(8, &mut queue);
        assert_eq!(queue.iter().map(|record| record.seq).collect::<Vec<_>>(), [number]);
        send(&mut sender, pushed.index);
    }
    let mut payload = Vec::new();
    sender.copy(&taken, 0, usize::MAX, &mut payload);
    assert_eq!(payload, b"first");
    sender.finish_for_good(&taken, at(9)).unwrap();
    let fate = producer.poll_fate(0).unwrap();
    assert_eq!((fate.index, fate.seq, fate.outcome), (first.index, 0, Outcome::Sent));
    assert_eq!(sender.counters().bad_values() + producer.bad_values(), 0);
}

#[test]
fn a_record_that_waits_long_is_found_by_everybody() {
    let (mut producer, mut sender) = roles(4, 4);
    let old = producer.push(0, b"old", &Meta { key: 7, ..seq(0) }).unwrap();
    for number in 1..50 {
        let pushed = producer.push(0, b"new", &seq(number)).unwrap();
        send(&mut sender, pushed.index);
    }
    let replaced = producer.replace(0, b"newer", &Meta { key: 7, ..seq(50) }).unwrap();
    assert!(matches!(replaced, Replaced::InPlace(pushed) if pushed.index == old.index), "it keeps its turn");
    let mut queue = Vec::new();
    let editor = producer.region().editor();
    editor.queue(0, 4, &mut queue);
    assert_eq!(queue.iter().map(|record| record.seq).collect::<Vec<_>>(), [50]);
    assert_eq!((producer.pending(0), editor.unfinished(0)), (1, 1));
    assert!(editor.drop_seq(0, 50));
    let mut gone = Vec::new();
    sender.dropped_by_others(&mut gone);
    assert_eq!(gone, [(50, Reason::Application)]);
}

#[test]
fn no_key_is_not_a_key() {
    let (mut producer, _sender) = roles(4, 4);
    for number in 0..2 {
        let replaced = producer.replace(0, b"x", &seq(number)).unwrap();
        assert!(matches!(replaced, Replaced::Appended(_)), "{replaced:?}");
    }
    assert_eq!(producer.pending(0), 2);
}

/// With the fewest slots that a ring for keys has, a new value of any key finds room whatever is in progress.
#[test]
#[cfg_attr(miri, ignore = "100,000 steps of one thread take miri longer than the whole step may")]
fn slots_for_keys_are_enough() {
    for keys in [1_u32, 7, 50, 56, 57] {
        let config = Config::for_clients(1, keys, 32);
        let region = Region::heap(&config).unwrap();
        let (mut producer, mut sender) = (region.producer().unwrap(), region.consumer(0).unwrap());
        let (mut taken_records, mut queue, mut random) = (Vec::new(), Vec::new(), 1_u64);
        for number in 0..20_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = random % u64::from(keys) + 1;
            let _ = producer.replace(0, &[1; 32], &Meta { key, ..seq(number) }).unwrap();
            sender.queue(usize::MAX, &mut queue);
            let at = (random >> 8) as usize % queue.len();
            if random % 3 == 0 && taken_records.len() < config.in_progress_slots() as usize {
                taken_records.push(sender.take(queue[at].index).unwrap());
            }
            if random % 5 == 0 && !taken_records.is_empty() {
                let taken = taken_records.swap_remove((random >> 16) as usize % taken_records.len());
                sender.finish(&taken, at_ns(number)).unwrap();
            }
        }
        assert_eq!(sender.counters().bad_values() + producer.bad_values(), 0);
    }
}

fn at_ns(nanoseconds: u64) -> Timestamp {
    Timestamp::from_nanos(nanoseconds)
}

#[test]
fn a_record_that_does_not_fit_is_refused_without_effect() {
    let (mut producer, mut sender) = roles(4, 3);
    assert_eq!(producer.push(0, &[0; 65], &seq(1)), Err(PushError::TooLarge));
    assert_eq!(producer.push(0, &[0; 64], &seq(1)), Err(PushError::TooLarge), "more than all blocks");
    assert_eq!(producer.push(3, &[0; 1], &seq(1)), Err(PushError::NoSuchRing));
    let _ = producer.push(0, &[0; 32], &seq(1)).unwrap();
    assert_eq!(producer.push(1, &[0; 32], &seq(1)), Err(PushError::OutOfBlocks));
    let _ = producer.push(1, &[0; 0], &seq(1)).unwrap();
    assert_eq!(producer.push(1, &[0; 1], &seq(1)), Err(PushError::OutOfBlocks));
    // A dead record gives its blocks to any ring, even from behind a living one.
    sender.discard(0, Reason::Expired, at(1)).unwrap();
    let _ = producer.push(1, &[0; 17], &seq(2)).unwrap();
    assert_eq!(producer.poll_fate(0).map(|fate| fate.seq), Some(1));
}

#[test]
fn one_payload_serves_many_rings() {
    let region = region(4, 2);
    let mut producer = region.producer().unwrap();
    let mut senders: Vec<_> = (0..3).map(|ring| region.consumer(ring).unwrap()).collect();
    let stored = producer.store(b"a payload of two blocks").unwrap();
    for ring in 0..3 {
        let _ = producer.push_stored(ring, &stored, &seq(ring as u64)).unwrap();
    }
    drop(stored);
    let mut edit = producer.edit(0, 0).unwrap();
    assert_eq!(edit.write(0, b"x"), Err(EditError::Shared));
    assert_eq!(edit.set_len(1), Err(EditError::Shared));
    edit.set_layer(4);
    assert_eq!(edit.release(), Ok(false));
    for (ring, sender) in senders.iter_mut().enumerate() {
        assert_eq!(producer.push(ring, b"y", &seq(9)), Err(PushError::OutOfBlocks));
        assert_eq!(send(sender, 0), b"a payload of two blocks");
    }
    let _ = producer.push(0, &[1; 32], &seq(9)).unwrap();
    let unused = producer.store(b"");
    assert!(matches!(unused, Err(PushError::OutOfBlocks)));
    assert!(producer.drop_seq(0, 9));
    drop(producer.store(b"").unwrap());
    assert!(producer.store(&[0; 32]).is_ok(), "a dropped handle gives its blocks back");
    let other = Region::heap(&Config::default()).unwrap().producer().unwrap().store(b"z").unwrap();
    assert_eq!(producer.push_stored(0, &other, &seq(1)), Err(PushError::ForeignPayload));
}

#[test]
fn a_stored_payload_can_be_read_by_its_own_producer() {
    let (mut producer, _sender) = roles(4, 8);
    for payload in [&b""[..], b"a block of 16 by", b"a payload of three blocks, the last in part"] {
        let stored = producer.store(payload).unwrap();
        let mut out = b"before:".to_vec();
        producer.read_stored(&stored, &mut out).unwrap();
        assert_eq!(out, [b"before:", payload].concat());
        let (other, _sender) = roles(4, 8);
        assert_eq!(other.read_stored(&stored, &mut out), Err(PushError::ForeignPayload));
    }
}

#[test]
fn a_ring_is_empty_when_what_comes_next_may_be_taken() {
    let (mut producer, mut sender) = roles(4, 4);
    assert!(sender.is_empty() && !sender.has_untold());
    let pushed = producer.push(0, b"one", &seq(1)).unwrap();
    assert!(!sender.is_empty());
    let edit = producer.edit(0, 1).unwrap();
    assert!(!sender.is_empty(), "held");
    let _notify = edit.release().unwrap();
    let taken = sender.take(pushed.index).unwrap();
    assert!(sender.is_empty() && sender.has_untold(), "taken, and its end not asked for");
    sender.finish(&taken, at(1)).unwrap();
    sender.dropped_by_others(&mut Vec::new());
    assert!(sender.is_empty() && !sender.has_untold());
    producer.hold_from(0, pushed.index + 1).unwrap();
    assert!(!sender.is_empty(), "held back from what comes next");
    let _notify = producer.release_hold(0);
    assert!(sender.is_empty());
    let _pushed = producer.push(0, b"two", &seq(2)).unwrap();
    assert!(producer.drop_seq(0, 2));
    assert!(!sender.is_empty(), "the sender has yet to see that it was dropped");
    assert_eq!(seqs(&mut sender), []);
    assert!(sender.is_empty() && sender.has_untold());
}

#[test]
fn closing_ends_what_is_ready_and_claiming_opens_again() {
    let region = region(8, 8);
    let mut producer = region.producer().unwrap();
    let mut sender = region.consumer(0).unwrap();
    for number in 0..3 {
        let _ = producer.push(0, b"x", &seq(number)).unwrap();
    }
    let edit = producer.edit(0, 2).unwrap();
    send(&mut sender, 0);
    assert_eq!(sender.close(Reason::ConnectionLost, at(5)), 1);
    assert_eq!(edit.release(), Ok(false));
    assert_eq!(producer.push(0, b"x", &seq(4)), Err(PushError::Closed));
    let outcomes: Vec<_> = std::iter::from_fn(|| producer.poll_fate(0)).map(|fate| fate.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::Sent, Outcome::Dropped(Reason::ConnectionLost), Outcome::Dropped(Reason::Closed),]
    );
    assert!(matches!(region.consumer(0), Err(ClaimError::AlreadyClaimed { .. })));
    drop(sender);
    let mut sender = region.consumer(0).unwrap();
    let _ = producer.push(0, b"x", &seq(5)).unwrap();
    assert_eq!(seqs(&mut sender), [5]);
}

#[test]
fn a_role_is_had_once_and_what_is_left_is_taken_over() {
    let region = region(4, 4);
    let mut producer = region.producer().unwrap();
    assert!(matches!(region.producer(), Err(ClaimError::AlreadyClaimed { .. })));
    assert!(matches!(region.take_over_producer(), Err(ClaimError::AlreadyClaimed { .. })));
    assert!(matches!(region.consumer(3), Err(ClaimError::NoSuchRing(3))));
    let _ = producer.push(0, &[1; 20], &seq(1)).unwrap();
    let _ = producer.push(0, b"b", &seq(2)).unwrap();
    let mut sender = region.consumer(0).unwrap();
    let _in_hand = sender.take(0).unwrap();
    drop(sender);
    drop(producer);
    let mut producer = region.producer().unwrap();
    assert_eq!(producer.last_seq(0), Some(2));
    assert_eq!(producer.free_blocks(), 1, "three are still in use");
    assert_eq!(producer.pending(0), 1);
    let mut sender = region.consumer(0).unwrap();
    assert_eq!(seqs(&mut sender), [2]);
    assert_eq!(producer.poll_fate(0).map(|fate| fate.outcome), Some(Outcome::Dropped(Reason::SenderLost)));
    assert_eq!(producer.free_blocks(), 3);
    let _ = producer.push(0, &[1; 33], &seq(3)).unwrap();
    assert_eq!(seqs(&mut sender), [2, 3]);
}

#[test]
fn records_without_a_number_of_their_own_are_counted() {
    let region = Region::heap(&Config { rings: 2, slots: 8, ..Config::default() }).unwrap();
    let mut producer = region.producer().unwrap();
    let counted = Meta::default();
    let numbers = [
        producer.push(0, b"a", &counted).unwrap().seq,
        producer.push(1, b"b", &counted).unwrap().seq,
        producer.push(0, b"c", &seq(40)).unwrap().seq,
        producer.replace(0, b"d", &Meta { key: 7, ..counted }).unwrap().pushed().seq,
        producer.replace(0, b"e", &Meta { key: 7, ..counted }).unwrap().pushed().seq,
    ];
    assert_eq!(numbers, [0, 1, 40, 41, 42]);
    assert_eq!(producer.number(&counted).seq, 43);
    assert_eq!(producer.number(&seq(9)).seq, 9);
    let _ = producer.push(1, b"f", &seq(u64::MAX - 1)).unwrap();
    assert_eq!(producer.number(&counted).seq, 0, "the largest number means the next one");
    let _ = producer.push(1, b"g", &seq(50)).unwrap();
    drop(producer);
    assert_eq!(region.producer().unwrap().number(&counted).seq, 51, "a new producer goes on");
}

#[test]
fn modifying_reports_one_of_three_results() {
    let (mut producer, mut sender) = roles(8, 8);
    let editor = producer.region().editor();
    let _ = producer.push(0, b"first", &seq(1)).unwrap();
    assert_eq!(editor.modify(0, 1, |edit| edit.write(0, b"FI")), Ok(false));
    let failed = producer.modify(0, 1, |edit| {
        edit.set_layer(3);
        edit.write(0, &[0; 999])
    });
    assert_eq!(failed, Err(ModifyError::Invalid(EditError::OutOfRange)));
    let record = queued(&mut sender)[0];
    assert_eq!(record.layer, 3, "it is queued, with what was changed before");
    assert_eq!(send(&mut sender, record.index), b"FIrst");
    for result in
        [producer.modify(0, 1, |_| Ok(())), editor.modify(0, 1, |_| Ok(())), editor.modify(9, 1, |_| Ok(()))]
    {
        assert_eq!(result, Err(ModifyError::TooLate(TooLate)));
    }
}
