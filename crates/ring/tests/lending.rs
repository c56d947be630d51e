//! Pages that were lent: never written to again.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use freshwire_record::Timestamp;
use freshwire_ring::{Config, Consumer, Meta, Producer, RawSlice, Region};

const PAGE: u32 = 64 << 10;

fn config(block_bytes: u32, blocks: u32) -> Config {
    Config { rings: 1, slots: 64, block_bytes, blocks }
}

/// Pushes a record, lends its pieces with `lend`, and finishes it, so that its blocks are free.
fn pass(
    producer: &mut Producer,
    consumer: &mut Consumer,
    payload: &[u8],
    mut lend: impl FnMut(&Region, RawSlice),
) {
    let _ = producer.push(0, payload, &Meta::default()).unwrap();
    let (mut records, mut pieces) = (Vec::new(), Vec::new());
    consumer.queue(1, &mut records);
    let taken = consumer.take(records[0].index).unwrap();
    consumer.slices(&taken, 0, usize::MAX, &mut pieces);
    let region = consumer.region().clone();
    pieces.iter().for_each(|piece| lend(&region, *piece));
    consumer.finish_for_good(&taken, Timestamp::ZERO).unwrap();
}

/// Moves a lent piece into a pipe, which then refers to its pages as a packet does.
fn refer(pipe: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, len: usize) {
    let mut at = offset as libc::off64_t;
    // SAFETY: the kernel reads and writes `at`, which outlives the call.
    let moved = unsafe {
        libc::splice(file.as_raw_fd(), &raw mut at, pipe.as_raw_fd(), std::ptr::null_mut(), len, 0)
    };
    assert_eq!(usize::try_from(moved), Ok(len));
}

/// Records of one to nine blocks through arenas of one to sixty blocks: what was lent stays as it was while the arena is used again.
#[test]
fn lent_pages_keep_their_bytes() {
    for (blocks, len) in [(1, 100), (1, PAGE as usize), (4, 3 * PAGE as usize - 1), (60, 9 * PAGE as usize)] {
        let region = Region::create(&config(PAGE, blocks)).unwrap();
        let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer(0).unwrap());
        assert!(region.can_lend());
        let mut pipes = Vec::new();
        for round in 0..20u8 {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            // Programs need no rights for a pipe of one megabyte.
            rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).unwrap();
            pass(&mut producer, &mut consumer, &vec![round; len], |region, piece| {
                let (file, offset) = region.lend(piece).unwrap();
                refer(writer.as_fd(), file, offset, piece.len);
            });
            pipes.push((round, reader));
        }
        for (round, reader) in pipes {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut File::from(reader), &mut bytes).unwrap();
            assert_eq!(bytes.len(), len);
            assert!(bytes.iter().all(|&byte| byte == round), "{blocks} blocks, {len} bytes, round {round}");
        }
    }
}

/// A new producer cannot know what the last one has lent, so it replaces everything that it uses.
#[test]
fn a_new_producer_takes_every_block_for_lent() {
    let region = Region::create(&config(PAGE, 1)).unwrap();
    let file = region.as_fd().unwrap().try_clone_to_owned().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    {
        let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer(0).unwrap());
        pass(&mut producer, &mut consumer, &[1; 4096], |region, piece| {
            let (file, offset) = region.lend(piece).unwrap();
            refer(writer.as_fd(), file, offset, piece.len);
        });
    }
    drop(writer);
    let other = Region::attach(file).unwrap();
    let (mut producer, mut consumer) = (other.producer().unwrap(), other.consumer(0).unwrap());
    assert!(!region.can_lend(), "its marks are not those of the producer");
    pass(&mut producer, &mut consumer, &[2; 4096], |other, piece| {
        assert!(other.lend(piece).is_some());
        assert!(region.lend(piece).is_none(), "another mapping");
    });
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut File::from(reader), &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4096]);
}

#[test]
fn blocks_that_share_pages_are_not_lent() {
    // Two blocks on a page, a gap after each block, no file.
    for region in [
        Region::create(&config(2048, 4)).unwrap(),
        Region::create(&config(PAGE + 8, 4)).unwrap(),
        Region::heap(&config(PAGE, 4)).unwrap(),
    ] {
        let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer(0).unwrap());
        assert!(!region.can_lend());
        pass(&mut producer, &mut consumer, &[1; 100], |region, piece| assert!(region.lend(piece).is_none()));
    }
    let region = Region::create(&config(PAGE, 4)).unwrap();
    let producer = region.producer().unwrap();
    let mine = [0; 100];
    assert!(region.lend(RawSlice { ptr: mine.as_ptr(), len: 100 }).is_none(), "not of the arena");
    assert!(region.lend(RawSlice { ptr: std::ptr::null(), len: usize::MAX }).is_none());
    drop(producer);
    assert!(!region.can_lend(), "no producer");
}

/// The file keeps its size and its reservation: a hole would end a process that finds no page.
#[test]
fn fresh_pages_are_reserved() {
    let region = Region::create(&config(PAGE, 4)).unwrap();
    let file = File::from(region.as_fd().unwrap().try_clone_to_owned().unwrap());
    let (before, size) = (allocated(&file), file.metadata().unwrap().len());
    let (mut producer, mut consumer) = (region.producer().unwrap(), region.consumer(0).unwrap());
    for _ in 0..20 {
        pass(&mut producer, &mut consumer, &[1; 3 * PAGE as usize], |region, piece| {
            region.lend(piece).unwrap();
        });
    }
    assert_eq!((allocated(&file), file.metadata().unwrap().len()), (before, size));
    let mut last = [0];
    file.read_exact_at(&mut last, size - 1).unwrap();
}

fn allocated(file: &File) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap())
}
