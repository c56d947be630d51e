//! Space that is reserved, filled in place, and committed or given back.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::io::{self, Cursor, Write as _};
use std::ptr::NonNull;

use freshwire_record::Timestamp;
use freshwire_ring::{
    ClaimError, Config, Consumer, EditError, Meta, ModifyError, Producer, PushError, Reason, Region,
    Reservation,
};

/// 64 bytes: blocks side by side in the arena are adjacent.
const BLOCK: usize = 64;
const BLOCKS: usize = 16;
const SLOTS: usize = 8;
const MOST: usize = SLOTS * BLOCK;

/// Sizes around the border of a block, of several, and the largest.
#[cfg(not(miri))]
const SIZES: [usize; 10] =
    [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 3 * BLOCK, 3 * BLOCK + 1, MOST - 1, MOST];
#[cfg(miri)]
const SIZES: [usize; 4] = [0, BLOCK, BLOCK + 1, MOST];

fn roles() -> (Producer, [Consumer; 2]) {
    let config = Config { rings: 2, slots: SLOTS as u32, block_bytes: BLOCK as u32, blocks: BLOCKS as u32 };
    let region = Region::heap(&config).unwrap();
    let senders = [region.consumer(0).unwrap(), region.consumer(1).unwrap()];
    (region.producer().unwrap(), senders)
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn filled(producer: &mut Producer, space: usize, len: usize) -> Reservation {
    let mut reservation = producer.reserve(space).unwrap();
    reservation.write_all(&payload(len)).unwrap();
    reservation
}

/// Takes all records of a ring, and returns their payloads.
fn receive(sender: &mut Consumer) -> Vec<Vec<u8>> {
    let mut queue = Vec::new();
    sender.queue(usize::MAX, &mut queue);
    let receive_one = |record: &freshwire_ring::Record| {
        let taken = sender.take(record.index).unwrap();
        let mut bytes = Vec::new();
        sender.copy(&taken, 0, usize::MAX, &mut bytes);
        sender.finish(&taken, Timestamp::ZERO).unwrap();
        bytes
    };
    queue.iter().map(receive_one).collect()
}

/// All blocks are free: two of the largest records find space at once.
fn nothing_leaked(producer: &mut Producer, at: &str) {
    let both = [producer.reserve(MOST), producer.reserve(MOST)];
    assert!(both.iter().all(Result::is_ok), "{at}: {both:?}");
    assert_eq!(producer.free_blocks(), 0, "{at}");
    drop(both);
}

/// What becomes of a reservation of `space` bytes of which `len` are filled.
type End = fn(&mut Producer, &mut [Consumer; 2], space: usize, len: usize);

fn dropped(producer: &mut Producer, _: &mut [Consumer; 2], space: usize, len: usize) {
    drop(filled(producer, space, len));
}

fn dropped_after_the_producer(producer: &mut Producer, _: &mut [Consumer; 2], space: usize, len: usize) {
    let region = producer.region().clone();
    let reservation = filled(producer, space, len);
    let spare = Region::heap(&Config { slots: 2, blocks: 1, ..Config::default() }).unwrap();
    drop(std::mem::replace(producer, spare.producer().unwrap()));
    assert!(matches!(region.producer(), Err(ClaimError::AlreadyClaimed { .. })));
    drop(reservation);
    *producer = region.producer().unwrap();
}

fn committed(producer: &mut Producer, senders: &mut [Consumer; 2], space: usize, len: usize) {
    let mut reservation = filled(producer, space, len);
    let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
    let used = len.div_ceil(BLOCK).max(1);
    assert_eq!(producer.free_blocks(), BLOCKS - used, "the rest is free again");
    assert_eq!(receive(&mut senders[0]), [payload(len)]);
    // Used up: it has no space, and no second record.
    assert_eq!((reservation.capacity(), reservation.len(), reservation.pieces().count()), (0, 0, 0));
    assert_eq!(reservation.write(b"more").unwrap(), 0);
    assert_eq!(producer.commit(0, &mut reservation, &Meta::default()), Err(PushError::ForeignPayload));
}

fn committed_and_dropped_in_the_queue(
    producer: &mut Producer,
    senders: &mut [Consumer; 2],
    space: usize,
    len: usize,
) {
    let mut reservation = filled(producer, space, len);
    let pushed = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
    assert!(producer.drop_at(0, pushed.index, Reason::Application));
    assert!(receive(&mut senders[0]).is_empty());
}

fn refused_by_a_full_ring(producer: &mut Producer, senders: &mut [Consumer; 2], space: usize, len: usize) {
    let mut reservation = filled(producer, space, len);
    let mut queued = 0;
    while producer.push(0, b"x", &Meta::default()).is_ok() {
        queued += 1;
    }
    assert_eq!(queued, SLOTS);
    assert_eq!(producer.commit(0, &mut reservation, &Meta::default()), Err(PushError::Full));
    assert_eq!((reservation.capacity(), reservation.len()), (space, len), "it is as it was");
    assert_eq!(receive(&mut senders[0]).len(), SLOTS);
    let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
    assert_eq!(receive(&mut senders[0]), [payload(len)]);
}

fn refused_by_a_closed_ring(producer: &mut Producer, senders: &mut [Consumer; 2], space: usize, len: usize) {
    let mut reservation = filled(producer, space, len);
    senders[0].close(Reason::Closed, Timestamp::ZERO);
    assert_eq!(producer.commit(0, &mut reservation, &Meta::default()), Err(PushError::Closed));
    assert_eq!(producer.commit(9, &mut reservation, &Meta::default()), Err(PushError::NoSuchRing));
}

fn stored(producer: &mut Producer, senders: &mut [Consumer; 2], space: usize, len: usize) {
    let reservation = filled(producer, space, len);
    let stored = producer.store_reserved(reservation).unwrap();
    assert_eq!(stored.len() as usize, len);
    assert_eq!(producer.free_blocks(), BLOCKS - len.div_ceil(BLOCK).max(1));
    for ring in 0..2 {
        let _ = producer.push_stored(ring, &stored, &Meta::default()).unwrap();
    }
    drop(stored);
    for sender in senders {
        assert_eq!(receive(sender), [payload(len)]);
    }
}

fn stored_and_never_pushed(producer: &mut Producer, _: &mut [Consumer; 2], space: usize, len: usize) {
    let reservation = filled(producer, space, len);
    drop(producer.store_reserved(reservation).unwrap());
}

#[test]
fn a_reservation_leaks_nothing_however_it_ends() {
    let ends: [(&str, End); 8] = [
        ("dropped", dropped),
        ("dropped after the producer", dropped_after_the_producer),
        ("committed", committed),
        ("dropped in the queue", committed_and_dropped_in_the_queue),
        ("full", refused_by_a_full_ring),
        ("closed", refused_by_a_closed_ring),
        ("stored", stored),
        ("never pushed", stored_and_never_pushed),
    ];
    for (name, end) in ends {
        for space in SIZES {
            for len in SIZES.into_iter().filter(|&len| len <= space) {
                let (mut producer, mut senders) = roles();
                // Twice: the second meets blocks in another order.
                let rounds = if name == "closed" { 1 } else { 2 };
                for round in 0..rounds {
                    end(&mut producer, &mut senders, space, len);
                    nothing_leaked(&mut producer, &format!("{name}, {len} of {space} bytes, round {round}"));
                }
            }
        }
    }
}

#[test]
fn a_full_arena_refuses_a_reservation_and_keeps_the_rest() {
    let (mut producer, mut senders) = roles();
    assert!(matches!(producer.reserve(MOST + 1), Err(PushError::TooLarge)));
    let held = producer.reserve(MOST).unwrap();
    let mut other = filled(&mut producer, MOST - BLOCK, 5);
    assert!(matches!(producer.reserve(BLOCK + 1), Err(PushError::OutOfBlocks)));
    let last = producer.reserve(BLOCK).unwrap();
    assert!(matches!(producer.reserve(0), Err(PushError::OutOfBlocks)));
    assert_eq!(producer.push(1, b"x", &Meta::default()), Err(PushError::OutOfBlocks));
    // A commit needs no block, and gives the others back.
    let _ = producer.commit(0, &mut other, &Meta::default()).unwrap();
    let _ = producer.push(1, b"x", &Meta::default()).unwrap();
    drop((held, last));
    assert_eq!(receive(&mut senders[0]), [payload(5)]);
    assert_eq!(receive(&mut senders[1]), [b"x"]);
    nothing_leaked(&mut producer, "a full arena");
}

/// Leaves no two free blocks side by side.
fn every_second_block(producer: &mut Producer) -> Vec<Reservation> {
    let all: Vec<_> = (0..BLOCKS).map(|_| producer.reserve(1).unwrap()).collect();
    all.into_iter().step_by(2).collect()
}

fn addresses(reservation: &mut Reservation) -> Vec<(usize, usize)> {
    reservation.pieces().map(|piece| (piece.cast::<u8>().addr().get(), piece.len())).collect()
}

/// The addresses of the first record's bytes, as a system call of the sender gets them; adjacent blocks as one.
fn addresses_sent(sender: &mut Consumer) -> Vec<(usize, usize)> {
    let mut queue = Vec::new();
    sender.queue(1, &mut queue);
    let taken = sender.take(queue[0].index).unwrap();
    let mut slices = Vec::new();
    sender.slices(&taken, 0, usize::MAX, &mut slices);
    let mut merged: Vec<(usize, usize)> = Vec::new();
    for slice in slices {
        match merged.last_mut() {
            Some((start, len)) if *start + *len == slice.ptr.addr() => *len += slice.len,
            _ => merged.push((slice.ptr.addr(), slice.len)),
        }
    }
    merged
}

#[test]
fn the_sender_sends_the_bytes_where_they_were_written() {
    for len in SIZES.into_iter().filter(|&len| len > 0) {
        let (mut producer, mut senders) = roles();
        let mut reservation = producer.reserve(len).unwrap();
        let written = addresses(&mut reservation);
        reservation.set_len(len).unwrap();
        let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
        assert_eq!(addresses_sent(&mut senders[0]), written, "{len} bytes on one ring");

        let mut reservation = producer.reserve(len).unwrap();
        let written = addresses(&mut reservation);
        reservation.set_len(len).unwrap();
        let stored = producer.store_reserved(reservation).unwrap();
        let (mut producer, [_, mut second]) = (producer, senders);
        let _ = producer.push_stored(1, &stored, &Meta::default()).unwrap();
        assert_eq!(addresses_sent(&mut second), written, "{len} bytes of a stored payload");
    }
}

#[test]
fn pieces_are_the_rest_of_the_space_wherever_its_blocks_are() {
    let (mut producer, _senders) = roles();
    let _singles = every_second_block(&mut producer);
    let mut reservation = producer.reserve(3 * BLOCK).unwrap();
    let pieces = addresses(&mut reservation);
    assert_eq!(pieces.iter().map(|piece| piece.1).collect::<Vec<_>>(), [BLOCK; 3]);
    reservation.set_len(BLOCK + 10).unwrap();
    let rest = [(pieces[1].0 + 10, BLOCK - 10), pieces[2]];
    assert_eq!(addresses(&mut reservation), rest);
    reservation.set_len(BLOCK).unwrap();
    assert_eq!(addresses(&mut reservation), pieces[1..]);
    assert_eq!(reservation.set_len(3 * BLOCK + 1), Err(EditError::OutOfRange));
    reservation.set_len(3 * BLOCK).unwrap();
    assert!(addresses(&mut reservation).is_empty());
}

#[test]
fn blocks_of_one_record_stay_one_piece() {
    let (mut producer, mut senders) = roles();
    for round in 0..10 {
        let mut reservation = producer.reserve(MOST).unwrap();
        assert_eq!(reservation.pieces().map(NonNull::len).collect::<Vec<_>>(), [MOST], "round {round}");
        reservation.set_len(MOST).unwrap();
        let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
        assert_eq!(receive(&mut senders[0]).len(), 1);
    }
}

#[test]
fn any_reader_fills_a_reservation() {
    for len in SIZES {
        let (mut producer, mut senders) = roles();
        let source = payload(len);
        // By copy, which is safe whatever other processes do.
        let mut reservation = producer.reserve(MOST).unwrap();
        assert_eq!(io::copy(&mut &source[..], &mut reservation).unwrap(), len as u64);
        let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
        // In place.
        let mut reservation = producer.reserve(len).unwrap();
        let mut reader = Cursor::new(&source);
        while reservation.len() < len {
            // SAFETY: the region is on the heap, where no other process has it.
            assert!(unsafe { reservation.fill(&mut reader) }.unwrap() > 0);
        }
        let _ = producer.commit(1, &mut reservation, &Meta::default()).unwrap();
        for sender in &mut senders {
            assert_eq!(receive(sender), std::slice::from_ref(&source));
        }
    }
}

#[test]
fn a_reader_that_lies_about_its_bytes_fills_nothing() {
    struct Liar;
    impl io::Read for Liar {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(MOST + 1)
        }
    }
    let (mut producer, _senders) = roles();
    let mut reservation = producer.reserve(MOST).unwrap();
    // SAFETY: as above.
    let error = unsafe { reservation.fill(Liar) }.unwrap_err();
    assert_eq!((error.kind(), reservation.len()), (io::ErrorKind::InvalidData, 0));
}

#[cfg(not(miri))]
#[test]
fn a_file_is_read_into_the_arena() {
    for len in SIZES {
        let (mut producer, mut senders) = roles();
        let mut file = tempfile(&payload(len));
        let mut reservation = producer.reserve(MOST).unwrap();
        while reservation.read_from(&file).unwrap() > 0 {}
        assert_eq!(reservation.len(), len);
        let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
        assert_eq!(receive(&mut senders[0]), [payload(len)]);

        // A source that has more than there is space for is read up to there.
        io::Seek::rewind(&mut file).unwrap();
        let mut reservation = producer.reserve(len / 2).unwrap();
        while reservation.read_from(&file).unwrap() > 0 {}
        assert_eq!((reservation.len(), reservation.capacity()), (len / 2, len / 2));
    }
}

#[cfg(not(miri))]
#[test]
fn a_failed_read_fills_nothing() {
    let (mut producer, _senders) = roles();
    let mut reservation = producer.reserve(10).unwrap();
    let folder = std::fs::File::open("/").unwrap();
    assert!(reservation.read_from(&folder).is_err());
    assert_eq!(reservation.len(), 0);
}

#[cfg(not(miri))]
#[test]
fn a_datagram_is_received_into_blocks_that_are_apart() {
    let (mut producer, mut senders) = roles();
    let _singles = every_second_block(&mut producer);
    let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
    near.send(&payload(3 * BLOCK - 7)).unwrap();
    let mut reservation = producer.reserve(4 * BLOCK).unwrap();
    assert_eq!(reservation.read_from(&far).unwrap(), 3 * BLOCK - 7);
    let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
    assert_eq!(receive(&mut senders[0]), [payload(3 * BLOCK - 7)]);
}

#[test]
fn a_committed_record_can_be_modified_in_place() {
    let (mut producer, mut senders) = roles();
    let mut reservation = filled(&mut producer, MOST, 3);
    let pushed = producer.commit(0, &mut reservation, &Meta { key: 1, ..Meta::default() }).unwrap();
    producer.modify(0, pushed.seq, |edit| edit.write(0, b"new")).unwrap();
    assert_eq!(receive(&mut senders[0]), [b"new"]);

    let reservation = filled(&mut producer, MOST, 3);
    let stored = producer.store_reserved(reservation).unwrap();
    let pushed = producer.push_stored(0, &stored, &Meta::default()).unwrap();
    let refused = producer.modify(0, pushed.seq, |edit| edit.write(0, b"new"));
    assert_eq!(refused, Err(ModifyError::Invalid(EditError::Shared)));
}

#[test]
fn a_reservation_of_another_producer_is_refused() {
    let ((mut producer, _senders), (mut other, _others)) = (roles(), roles());
    let mut reservation = filled(&mut producer, 10, 5);
    assert_eq!(other.commit(0, &mut reservation, &Meta::default()), Err(PushError::ForeignPayload));
    assert_eq!(reservation.len(), 5);
    assert_eq!(other.store_reserved(reservation).err(), Some(PushError::ForeignPayload));
    nothing_leaked(&mut producer, "the owner");
    nothing_leaked(&mut other, "the other");
}

#[test]
fn a_reservation_is_filled_on_another_thread() {
    let (mut producer, mut senders) = roles();
    let mut reservation = producer.reserve(MOST).unwrap();
    let filling = std::thread::spawn(move || {
        reservation.write_all(&payload(MOST)).unwrap();
        reservation
    });
    let _ = producer.push(1, b"meanwhile", &Meta::default()).unwrap();
    let mut reservation = filling.join().unwrap();
    let _ = producer.commit(0, &mut reservation, &Meta::default()).unwrap();
    assert_eq!(receive(&mut senders[0]), [payload(MOST)]);
    assert_eq!(receive(&mut senders[1]), [b"meanwhile"]);
}

#[cfg(not(miri))]
fn tempfile(content: &[u8]) -> std::fs::File {
    let fd = rustix::fs::memfd_create("source", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(content).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    file
}
