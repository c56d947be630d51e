//! Records for many sinks with one system call.

use super::*;

/// More than one batch.
const SINKS: usize = 70;

/// Streams are the same with io_uring and without, whole, and without gaps, also where a socket takes a part of a record.
#[test]
fn a_batch_sends_what_single_writes_would() -> Result<()> {
    const ROUNDS: u64 = 60;
    for io_uring in [true, false] {
        let mut fixture = fixture(SINKS, plain)?;
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
