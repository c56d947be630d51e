//! The throughput of one connection, beside that of plain `send()` calls.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::sink::CloseMode;
use freshwire::{Ended, Engine, Meta, PushError, RingConfig, Sender, SinkConfig, choice};
use freshwire_io::now;

use super::loopback::{Drain, pair_with};
use super::series::{Goal, Report, Unit};

const BENCH: &str = "stream";

/// Bytes of a `send()`, and of a record.
const RECORD_BYTES: usize = 16 << 10;

/// Records on the ring. All of them together stay in the cache of one core.
const RECORDS: u32 = 32;

/// How long the producer rests when the ring is full: a part of the time that a full ring lasts.
const REST: Duration = Duration::from_micros(50);

/// How long the engine may take for the rest.
const CLOSE: Duration = Duration::from_secs(10);

pub(super) fn measure(
    repeat: u32,
    time: Duration,
    congestion: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut plain_at, mut fresh_at) = (0, 0);
    for _ in 0..repeat {
        plain_at = report.add(BENCH, "send() of 16 KiB", Unit::BytesPerSecond, plain(time, congestion)?);
        let fresh = fresh(time, congestion)?;
        fresh_at = report.add(BENCH, "records of 16 KiB through the ring", Unit::BytesPerSecond, fresh.rate);
        report.add(BENCH, "bytes of a write by the engine", Unit::Bytes, fresh.write_bytes);
        report.add(BENCH, "mean horizon", Unit::Bytes, fresh.horizon);
    }
    report.compare("ring : send()", fresh_at, plain_at, Some(Goal::AtLeast(1.0)));
    Ok(())
}

fn plain(time: Duration, congestion: Option<&str>) -> anyhow::Result<f64> {
    let (mut near, far) = pair_with(congestion)?;
    let drain = Drain::start(far);
    let payload = vec![7; RECORD_BYTES];
    let begin = now();
    while now().saturating_since(begin) < time {
        near.write_all(&payload).context("cannot send on loopback")?;
    }
    drop(near);
    let (bytes, end) = drain.finish()?;
    Ok(bytes as f64 / end.saturating_since(begin).as_secs_f64())
}

struct Fresh {
    rate: f64,
    write_bytes: f64,
    horizon: f64,
}

fn fresh(time: Duration, congestion: Option<&str>) -> anyhow::Result<Fresh> {
    let engine = Engine::new().and_then(Engine::spawn).context("cannot start an engine")?;
    let config = RingConfig { rings: 1, slots: RECORDS, block_bytes: RECORD_BYTES as u32, blocks: RECORDS };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let (near, far) = pair_with(congestion)?;
    let drain = Drain::start(far);
    let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    let payload = vec![7; RECORD_BYTES];
    let begin = now();
    let mut seq = 0;
    while now().saturating_since(begin) < time {
        match sender.push(sink.id(), &payload, &Meta { seq, ..Meta::default() }) {
            Ok(_) => seq += 1,
            Err(PushError::Full | PushError::OutOfBlocks) => std::thread::sleep(REST),
            Err(error) => return Err(error.into()),
        }
    }
    let stats = sink.stats();
    let ended = sink.close(CloseMode::Drain, CLOSE);
    anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
    let (bytes, end) = drain.finish()?;
    anyhow::ensure!(bytes == seq * RECORD_BYTES as u64, "{bytes} bytes came of {seq} records");
    Ok(Fresh {
        rate: bytes as f64 / end.saturating_since(begin).as_secs_f64(),
        write_bytes: stats.bytes as f64 / stats.writes.max(1) as f64,
        horizon: stats.horizon_mean,
    })
}
