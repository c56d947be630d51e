//! Records for many sinks with one system call.

use freshwire::framing::{Framer, Piece};

use super::*;

/// More than one batch.
const SINKS: usize = 70;

/// Cuts records into pieces of at most 184 bytes, each after its length and whether it is the last one.
#[derive(Default)]
struct Cells {
    at: u32,
    len: u32,
}

impl Framer for Cells {
    fn begin(&mut self, _: u64, len: u32) {
        *self = Self { at: 0, len };
    }

    fn next(&mut self, _: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let payload = self.at..(self.at + 184).min(self.len);
        self.at = payload.end;
        let last = self.at == self.len;
        prefix.extend([payload.len() as u8, last.into()]);
        Some(Piece { payload, last, boundary: last })
    }
}

fn cells() -> SinkConfig {
    SinkConfig::new(choice::fifo()).framing(Box::new(Cells::default()) as Box<dyn Framer>).ack_fates(false)
}

fn read_cells(far: &mut TcpStream) -> Result<Vec<u8>> {
    let (mut record, mut head) = (Vec::new(), [0; 2]);
    while head[1] == 0 {
        far.read_exact(&mut head)?;
        let begin = record.len();
        record.resize(begin + usize::from(head[0]), 0);
        far.read_exact(&mut record[begin..])?;
    }
    Ok(record)
}

/// Streams are the same with io_uring and without, whole, and without gaps. A socket may take a part of a record, and many small
/// pieces are copied into one.
#[test]
fn a_batch_sends_what_single_writes_would() -> Result<()> {
    for io_uring in [true, false] {
        look_at_batches(io_uring, plain, read_record)?;
        look_at_batches(io_uring, cells, read_cells)?;
    }
    Ok(())
}

fn look_at_batches(
    io_uring: bool,
    config: fn() -> SinkConfig,
    read_record: fn(&mut TcpStream) -> Result<Vec<u8>>,
) -> Result<()> {
    const ROUNDS: u64 = 60;
    let mut fixture = fixture(SINKS, config)?;
    fixture.engine.handle().set_io_uring(io_uring);
    let mut stalled = fixture.far.pop().ok_or("no sinks")?;
    let ids: Vec<SinkId> = fixture.sinks.iter().map(Sink::id).collect();
    let len = |seq: u64| if seq % 10 == 9 { 60_000 } else { 900 };
    let mut at_once = [0, 0];
    let mut given = Vec::new();
    for seq in 0..ROUNDS {
        let mut targets: Vec<Target> = ids.iter().map(|&id| Target::new(id, meta(seq))).collect();
        let stored = fixture.sender.producer().store(&payload(seq, len(seq)))?;
        fixture.sender.send_at_once(&stored, &mut targets)?;
        at_once[usize::from(len(seq) > 900)] += targets.iter().filter(|target| target.is_sent()).count();
        for target in &targets {
            let producer = fixture.sender.producer();
            while producer.poll_fate(target.sink.ring()).is_some() {}
            let is_queued = target.is_sent() || queue(&mut fixture.sender, target, &stored).is_ok();
            if Some(&target.sink) == ids.last() && is_queued {
                given.push(seq);
            }
        }
        for far in &mut fixture.far {
            assert_eq!(read_record(far)?, payload(seq, len(seq)), "io_uring: {io_uring}");
        }
    }
    assert!(at_once[0] > SINKS, "hardly a record went at once: {at_once:?}, io_uring: {io_uring}");
    assert!(!given.is_empty());
    for seq in given {
        assert_eq!(read_record(&mut stalled)?, payload(seq, len(seq)), "io_uring: {io_uring}");
    }
    Ok(())
}

#[test]
fn a_connection_that_breaks_ends_alone() -> Result<()> {
    let mut fixture = fixture(8, plain)?;
    let ids: Vec<SinkId> = fixture.sinks.iter().map(Sink::id).collect();
    drop(fixture.far.remove(3));
    let (mut left, end) = (ids.clone(), now() + TIMEOUT);
    left.remove(3);
    for seq in 0.. {
        assert!(now() < end, "the broken one does not end");
        let mut targets: Vec<Target> = ids.iter().map(|&id| Target::new(id, meta(seq))).collect();
        let stored = fixture.sender.producer().store(&payload(seq, 1000))?;
        fixture.sender.send_at_once(&stored, &mut targets)?;
        for target in targets.iter().filter(|target| !target.is_sent() && left.contains(&target.sink)) {
            let producer = fixture.sender.producer();
            while producer.poll_fate(target.sink.ring()).is_some() {}
            queue(&mut fixture.sender, target, &stored)?;
        }
        for far in &mut fixture.far {
            assert_eq!(read_record(far)?, payload(seq, 1000));
        }
        if fixture.sinks[3].ended().is_some() {
            break;
        }
        // Pause: gives the engine time to meet the reset; the loop's condition decides.
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = |sink: &&Sink| sink.ended().is_some();
    assert_eq!(fixture.sinks.iter().filter(ended).count(), 1);
    Ok(())
}
