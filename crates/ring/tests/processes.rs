//! Two real processes, one of which is killed at a random instruction.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use freshwire_record::Timestamp;
use freshwire_ring::{
    ClaimError, Config, Consumer, Fate, Meta, Outcome, Producer, PushError, Reason, Record, Region,
};

const CONFIG: Config = Config { rings: 1, slots: 64, block_bytes: 64, blocks: 80 };
const ROUNDS: u64 = 12;
const CHILD: &str = "FRESHWIRE_RING_CHILD";

/// Not a test of its own: what the other process runs until it is killed.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let mut words = task.split(' ');
    let role = words.next().unwrap();
    let path = words.next().unwrap();
    let first: u64 = words.next().unwrap().parse().unwrap();
    let fd: OwnedFd = OpenOptions::new().read(true).write(true).open(path).unwrap().into();
    let region = Region::attach(fd).unwrap();
    match role {
        "producer" => produce(&mut region.producer().unwrap(), first),
        "sender" => deliver(&mut region.consumer(0).unwrap()),
        "editor" => edit(&region),
        other => panic!("{other}"),
    }
}

fn spawn(region: &Region, role: &str, first: u64) -> Child {
    let path = format!("/proc/{}/fd/{}", std::process::id(), region.as_fd().unwrap().as_raw_fd());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, format!("{role} {path} {first}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until `done`, but not for ever.
fn wait_for(mut done: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if done() {
            return;
        }
        // Pause: until the next look.
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing happened within five seconds");
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The bytes of record `number`, edited or not: nothing else is ever right.
fn is_whole(number: u64, payload: &[u8]) -> bool {
    let expected = len_of(number);
    let plain = payload.len() == expected && payload.iter().all(|&byte| byte == number as u8);
    let edited = payload.len() == expected && payload.iter().all(|&byte| byte == !(number as u8));
    plain || edited
}

fn len_of(number: u64) -> usize {
    (number * 37 % 200) as usize
}

fn push(producer: &mut Producer, number: u64) -> Result<(), PushError> {
    let payload = [number as u8; 200];
    let meta = Meta { seq: number, ..Meta::default() };
    producer.push(0, &payload[..len_of(number)], &meta).map(|_| ())
}

fn rewrite(edit: &mut freshwire_ring::Edit<'_>) {
    let number = edit.record().seq;
    let len = edit.record().len as usize;
    // Byte by byte, so that a kill in between leaves a torn payload.
    for at in 0..len {
        edit.write(at as u32, &[!(number as u8)]).unwrap();
    }
}

fn produce(producer: &mut Producer, first: u64) {
    for number in first.. {
        while push(producer, number).is_err() {
            thread::yield_now();
        }
        if number.is_multiple_of(3)
            && let Ok(mut edit) = producer.edit(0, number)
        {
            rewrite(&mut edit);
            let _late_or_not = edit.release();
        }
        if number.is_multiple_of(7) {
            producer.drop_seq(0, number);
        }
    }
}

/// Like a sender on a slow link: has each record in hand for a while.
fn deliver(sender: &mut Consumer) {
    let mut queue = Vec::new();
    loop {
        sender.queue(1, &mut queue);
        let Some(record) = queue.first() else {
            thread::yield_now();
            continue;
        };
        let taken = sender.take(record.index).unwrap();
        sender.commit(&taken, Timestamp::ZERO, 0);
        // Pause: a send takes time.
        thread::sleep(Duration::from_micros(20));
        sender.finish(&taken, Timestamp::ZERO).unwrap();
    }
}

fn edit(region: &Region) {
    let editor = region.editor();
    let mut queue = Vec::new();
    loop {
        editor.queue(0, 64, &mut queue);
        for record in &queue {
            if let Ok(mut edit) = editor.edit_at(0, record.index) {
                rewrite(&mut edit);
                let _late_or_not = edit.release();
            }
        }
    }
}

/// Takes and finishes all that is ready; returns how many.
fn receive(sender: &mut Consumer, each: &mut dyn FnMut(u64)) -> usize {
    let mut queue: Vec<Record> = Vec::new();
    sender.queue(64, &mut queue);
    let mut received = 0;
    for record in &queue {
        let Ok(taken) = sender.take(record.index) else { continue };
        let mut payload = Vec::new();
        sender.copy(&taken, 0, usize::MAX, &mut payload);
        assert!(is_whole(taken.record.seq, &payload), "record {} is torn", taken.record.seq);
        sender.commit(&taken, Timestamp::ZERO, 0);
        sender.finish(&taken, Timestamp::ZERO).unwrap();
        each(taken.record.seq);
        received += 1;
    }
    received
}

fn pause(round: u64) {
    // Pause: the process is killed at another point in each round.
    thread::sleep(Duration::from_micros(round * 7919 % 3000));
}

#[test]
fn a_killed_producers_ring_is_taken_over_and_its_sender_goes_on() {
    let region = Region::create(&CONFIG).unwrap();
    let mut sender = region.consumer(0).unwrap();
    let mut last = 0;
    for round in 1..=ROUNDS {
        let mut child = spawn(&region, "producer", last + 1);
        let mut seen = last;
        let mut in_order = |number| {
            assert!(number > seen, "{number} after {seen}");
            seen = number;
        };
        wait_for(|| receive(&mut sender, &mut in_order) > 0);
        if round == 1 {
            assert!(
                matches!(region.producer(), Err(ClaimError::AlreadyClaimed { pid }) if pid == child.id())
            );
        }
        for _ in 0..round * 20 {
            receive(&mut sender, &mut in_order);
        }
        pause(round);
        kill(&mut child);
        // Ready records stay ready; half-edited ones die.
        receive(&mut sender, &mut in_order);
        let mut producer = region.producer().unwrap();
        receive(&mut sender, &mut in_order);
        assert_eq!(producer.pending(0), 0, "held records are recovered");
        last = producer.last_seq(0).unwrap().max(seen);
        while producer.poll_fate(0).is_some() {}
        fill_and_empty(&mut producer, &mut sender, &mut last);
    }
    assert_eq!(sender.counters().bad_values(), 0, "a death is no lie");
}

/// Every slot and every block can still be used.
fn fill_and_empty(producer: &mut Producer, sender: &mut Consumer, last: &mut u64) {
    let whole = CONFIG.slots as usize;
    assert_eq!(producer.free_slots(0), CONFIG.slots);
    for _ in 0..whole {
        *last += 1;
        let meta = Meta { seq: *last, ..Meta::default() };
        let payload = vec![*last as u8; len_of(*last).min(64)];
        let _ = producer.push(0, &payload, &meta).unwrap();
    }
    assert_eq!(producer.free_blocks(), CONFIG.blocks as usize - whole);
    let mut queue = Vec::new();
    sender.queue(100, &mut queue);
    assert_eq!(queue.len(), whole);
    for record in queue {
        sender.discard(record.index, Reason::Expired, Timestamp::ZERO).unwrap();
    }
    while producer.poll_fate(0).is_some() {}
    assert_eq!(producer.free_blocks(), CONFIG.blocks as usize, "no block is lost");
}

#[test]
fn every_record_has_one_fate_when_the_sender_is_killed() {
    let records = 200;
    let region = Region::create(&Config { slots: 1024, blocks: 1024, ..CONFIG }).unwrap();
    let mut producer = region.producer().unwrap();
    let mut number = 0;
    let mut fates: Vec<Fate> = Vec::new();
    for round in 1..=ROUNDS {
        for _ in 0..records {
            number += 1;
            push(&mut producer, number).unwrap();
        }
        let mut child = spawn(&region, "sender", 0);
        wait_for(|| producer.pending(0) < records);
        pause(round);
        kill(&mut child);
        let mut sender = region.consumer(0).unwrap();
        while receive(&mut sender, &mut |_| ()) > 0 {}
        drop(sender);
        // Acknowledgements never come here: what was sent is finished when the next sender takes over.
        drop(region.consumer(0).unwrap());
        fates.extend(std::iter::from_fn(|| producer.poll_fate(0)));
    }
    let lost = Outcome::Dropped(Reason::SenderLost);
    let lost_in_hand = fates.iter().filter(|fate| fate.outcome == lost).count() as u64;
    assert_eq!(producer.fates_lost(0), 0);
    assert!(fates.iter().map(|fate| fate.seq).eq(1..=number), "one fate each, in order");
    assert!((1..=ROUNDS).contains(&lost_in_hand), "a sender has one record in hand: {lost_in_hand}");
    assert_eq!(producer.bad_values(), 0);
}

#[test]
fn a_record_half_edited_by_a_killed_process_is_dropped() {
    let region = Region::create(&CONFIG).unwrap();
    let mut producer = region.producer().unwrap();
    let mut sender = region.consumer(0).unwrap();
    let mut number = 0;
    let mut recovered = 0;
    for round in 1..=ROUNDS {
        for _ in 0..12 {
            number += 1;
            push(&mut producer, number).unwrap();
        }
        let mut child = spawn(&region, "editor", 0);
        let mut queue = Vec::new();
        wait_for(|| {
            producer.queue(0, 64, &mut queue);
            queue.len() < 12
        });
        pause(round);
        kill(&mut child);
        let before = producer.pending(0);
        let dropped = sender.recover();
        recovered += dropped;
        assert_eq!(producer.pending(0), before - dropped);
        assert_eq!(receive(&mut sender, &mut |_| ()), before - dropped, "all others are whole");
        drop(sender);
        sender = region.consumer(0).unwrap();
        while producer.poll_fate(0).is_some() {}
    }
    assert!(recovered > 0, "no process was killed while it held a record");
}
