//! A producer, a sender and an editor in three threads. Miri watches the same test for data races.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use freshwire_record::Timestamp;
use freshwire_ring::{Config, Meta, Outcome, Region};

const RECORDS: u64 = if cfg!(miri) { 40 } else { 20_000 };

#[test]
fn three_parties_never_see_a_torn_record() {
    let region = Region::heap(&Config { rings: 1, slots: 16, block_bytes: 16, blocks: 16 }).unwrap();
    let done = AtomicBool::new(false);
    let (mut received, fates) = thread::scope(|scope| {
        let sender = scope.spawn(|| receive(&region, &done));
        let editor = scope.spawn(|| edit(&region, &done));
        let stop = Stop(&done);
        let fates = produce(&region);
        drop(stop);
        editor.join().unwrap();
        (sender.join().unwrap(), fates)
    });
    assert_eq!(
        fates.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (1..=RECORDS).collect::<Vec<_>>()
    );
    let sent: Vec<_> = fates.iter().filter(|(_, sent)| *sent).map(|(number, _)| *number).collect();
    // A record that was held when its turn came is taken later.
    received.sort_unstable();
    assert_eq!(received, sent, "what has the fate of being sent was received, and nothing else");
}

/// Ends the other threads also when an assertion fails, so that the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Pushes all records, dropping every fifth; returns each one's number and whether it was sent.
fn produce(region: &Region) -> Vec<(u64, bool)> {
    let mut producer = region.producer().unwrap();
    let mut fates = Vec::new();
    let mut number = 1;
    for _ in 0..RECORDS * 1000 {
        if fates.len() == RECORDS as usize {
            break;
        }
        // Five records of three slots always fit, so no fate is overwritten before it is read.
        if number <= RECORDS && number - (fates.len() as u64) <= 5 {
            let payload = [number as u8; 40];
            let meta = Meta { seq: number, ..Meta::default() };
            let _ = producer.push(0, &payload[..(number % 40) as usize], &meta).unwrap();
            number += 1;
            if number.is_multiple_of(5) {
                producer.drop_seq(0, number - 1);
            }
        }
        while let Some(fate) = producer.poll_fate(0) {
            fates.push((fate.seq, matches!(fate.outcome, Outcome::Acked)));
        }
        thread::yield_now();
    }
    assert_eq!(producer.fates_lost(0), 0);
    fates
}

fn receive(region: &Region, done: &AtomicBool) -> Vec<u64> {
    let mut sender = region.consumer(0).unwrap();
    let mut queue = Vec::new();
    let mut received = Vec::new();
    while !done.load(Ordering::Acquire) {
        sender.queue(1, &mut queue);
        let Some(record) = queue.first() else {
            thread::yield_now();
            continue;
        };
        let Ok(taken) = sender.take(record.index) else { continue };
        let mut payload = Vec::new();
        sender.copy(&taken, 0, usize::MAX, &mut payload);
        let number = taken.record.seq as u8;
        assert_eq!(payload.len(), (taken.record.seq % 40) as usize);
        assert!(payload.iter().all(|&byte| byte == number) || payload.iter().all(|&byte| byte == !number));
        sender.finish(&taken, Timestamp::ZERO).unwrap();
        received.push(taken.record.seq);
        sender.acked(taken.record.index, Timestamp::ZERO).unwrap();
    }
    assert_eq!(sender.counters().bad_values(), 0);
    received
}

fn edit(region: &Region, done: &AtomicBool) {
    let editor = region.editor();
    let mut queue = Vec::new();
    while !done.load(Ordering::Acquire) {
        editor.queue(0, 8, &mut queue);
        for record in &queue {
            let Ok(mut edit) = editor.edit_at(0, record.index) else { continue };
            let number = edit.record().seq as u8;
            let len = edit.record().len as usize;
            edit.write(0, &vec![!number; len]).unwrap();
            edit.release().unwrap();
        }
        thread::yield_now();
    }
}
