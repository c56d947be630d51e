//! A push allocates nothing, in any of its forms.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::io::Write as _;

use freshwire_record::Timestamp;
use freshwire_ring::{Config, Meta, Reason, Region};

struct Counting;

thread_local! {
    /// Allocations of this thread alone: the test's runner allocates at the same time.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn pushing_allocates_nothing() {
    let config = Config { rings: 2, slots: 16, block_bytes: 64, blocks: 20 };
    let region = Region::heap(&config).unwrap();
    let mut producer = region.producer().unwrap();
    let mut sender = region.consumer(0).unwrap();
    let mut queue = Vec::with_capacity(16);
    // Room for fates is made when they are asked for first.
    assert_eq!(producer.poll_fate(0), None);
    let before = CALLS.get();
    for number in 0..1000_u64 {
        let meta = Meta { seq: number, key: number % 3, ..Meta::default() };
        // Full, out of blocks, several slots: all of these happen on the way.
        let _ = producer.push(0, &[1; 150], &meta);
        let _ = producer.replace(0, &[2; 10], &meta);
        if let Ok(stored) = producer.store(&[3; 100]) {
            let _ = producer.push_stored(0, &stored, &meta);
            let _ = producer.push_stored(1, &stored, &meta);
        }
        if let Ok(mut reservation) = producer.reserve(150) {
            let _ = reservation.write(&[4; 100]);
            let _ = producer.commit(0, &mut reservation, &meta);
        }
        producer.drop_seq(1, number);
        sender.queue(16, &mut queue);
        for record in &queue {
            let _ = sender.discard(record.index, Reason::Expired, Timestamp::ZERO);
        }
        if number.is_multiple_of(2) {
            while producer.poll_fate(0).is_some() {}
        }
    }
    assert_eq!(CALLS.get() - before, 0);
    drop(black_box(vec![1_u8; 100]));
    assert_eq!(CALLS.get() - before, 1, "the counter counts");
}
