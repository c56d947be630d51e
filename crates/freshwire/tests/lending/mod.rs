//! A stream whose arena is far smaller than what packets and the receiver's queue refer to.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use freshwire::engine::Transfer;
use freshwire::sink::{CloseMode, Reserve};
use freshwire::stats::SinkSnapshot;
use freshwire::{Engine, Framing, Meta, PushError, RingConfig, Sender, SinkConfig, choice};

use crate::until::until;

/// A page on every machine with pages of up to 16 KiB.
pub(crate) const BLOCK: u32 = 16 << 10;
pub(crate) const BLOCKS: u32 = 4;
pub(crate) const ARENA: u64 = (BLOCK * BLOCKS) as u64;

/// The bytes of a record: each differs from its neighbours, and from those of other records at its place.
pub(crate) fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ seq.wrapping_mul(113) ^ (at >> 8)) as u8).collect()
}

/// Sends records of these lengths through the sink's ring, and reads them where they arrive, once `unread` bytes are
/// acknowledged. Each byte is compared. Returns the statistics after the last acknowledgement.
pub(crate) fn run(
    (near, mut far): (TcpStream, TcpStream),
    transfer: Transfer,
    framing: Framing,
    lens: &[usize],
    unread: u64,
) -> SinkSnapshot {
    let engine = Engine::new().unwrap().spawn().unwrap();
    engine.handle().set_transfer(transfer);
    let ring = RingConfig { rings: 1, slots: 64, block_bytes: BLOCK, blocks: BLOCKS };
    let mut sender = Sender::new(&ring, &engine.handle()).unwrap();
    // As much as the socket takes.
    let config =
        SinkConfig::new(choice::fifo()).framing(framing).reserve(Reserve::Fixed(1 << 20)).queue_target(None);
    let sink = sender.add_sink(near, config).unwrap();
    let monitor = sink.monitor();
    let has_len = framing == Framing::LengthPrefixed;
    let expected = lens.to_vec();
    let acked = monitor.clone();
    let reader = std::thread::spawn(move || {
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        until("the arena is used again", || acked.stats().acked > unread);
        for (seq, len) in expected.into_iter().enumerate() {
            if has_len {
                let mut head = [0; 4];
                far.read_exact(&mut head).unwrap();
                assert_eq!(u32::from_be_bytes(head) as usize, len, "record {seq}");
            }
            let mut bytes = vec![0; len];
            far.read_exact(&mut bytes).unwrap();
            let expected = payload(seq as u64, len);
            let wrong = bytes.iter().zip(&expected).position(|(read, sent)| read != sent);
            assert_eq!(wrong, None, "first wrong byte of record {seq} of {len} bytes");
        }
    });
    for (seq, &len) in lens.iter().enumerate() {
        let (bytes, meta) = (payload(seq as u64, len), Meta { seq: seq as u64, ..Meta::default() });
        until("room for a record", || match sender.push(sink.id(), &bytes, &meta) {
            Ok(_) => true,
            Err(PushError::Full | PushError::OutOfBlocks) => {
                assert!(!reader.is_finished() || seq == 0, "the reader has ended early");
                false
            }
            Err(error) => panic!("{error}"),
        });
    }
    sink.close(CloseMode::Drain, Duration::from_secs(30));
    reader.join().unwrap();
    monitor.stats()
}
