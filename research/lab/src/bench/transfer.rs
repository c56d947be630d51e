//! Large records to many receivers: copied, by reference, and by the engine's own choice, beside `write()` to each.

use std::net::TcpStream;

use anyhow::Context as _;
use freshwire::engine::{EnginePool, Transfer};
use freshwire::{Meta, PushError, RingConfig, Sender, Sink, SinkConfig, choice, now};

use super::fan_out::{Plain, Receivers};
use super::machine::{allow_files, this_thread, thread_time, threads};
use super::series::{Report, Unit};

const BENCH: &str = "transfer";

/// Bytes of a record: from the smallest that is sent by reference to the largest write.
const SIZES: [usize; 5] = [16 << 10, 40_000, 64 << 10, 128 << 10, 256 << 10];

/// Receivers.
const COUNTS: [usize; 3] = [1, 32, 256];

/// Bytes of a round to all receivers, at least.
const ROUND_BYTES: usize = 32 << 20;

/// Rounds before the first, in which an engine measures both ways.
const WARM_UP: usize = 4;

/// The live server's.
const BLOCK_BYTES: u32 = 32 << 10;

pub(super) fn measure(repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let most = COUNTS.into_iter().max().unwrap_or(0) as u64;
    allow_files(2 * 4 * most + 64, "transfer")?;
    for count in COUNTS {
        for size in SIZES {
            compare(count, size, repeat, report)?;
        }
    }
    Ok(())
}

/// The ways for records of one size to this number of receivers, in turns.
fn compare(count: usize, size: usize, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let mut plain = Plain::new(count)?;
    let ways = [("copied", Transfer::Copy), ("by reference", Transfer::Reference), ("auto", Transfer::Auto)];
    let mut fresh = ways
        .into_iter()
        .map(|(name, transfer)| Ok((name, Fresh::new(count, transfer)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for _ in 0..WARM_UP {
        for (_, fresh) in &mut fresh {
            fresh.cost(size)?;
        }
    }
    let name = |way: &str| format!("{count} x {size} B, {way}");
    let mut places = Vec::new();
    for _ in 0..repeat {
        let cost = plain.cost(size, rounds(size, count))?;
        let under = report.add(BENCH, &name("write()"), Unit::Nanoseconds, cost);
        places.clear();
        for (way, fresh) in &mut fresh {
            let over = report.add(BENCH, &name(way), Unit::Nanoseconds, fresh.cost(size)?);
            places.push((name(way), over, under));
        }
    }
    for (way, over, under) in places {
        report.compare(&format!("{way} : write()"), over, under, None);
    }
    for (way, fresh) in &fresh {
        let share = format!("{}: share of bytes by reference", name(way));
        report.add(BENCH, &share, Unit::Count, fresh.share_by_reference());
    }
    Ok(())
}

fn rounds(size: usize, count: usize) -> usize {
    ROUND_BYTES.div_ceil(size * count).max(4)
}

struct Fresh {
    sender: Sender,
    sinks: Vec<Sink>,
    receivers: Receivers,
    own: String,
    threads: Vec<String>,
    _engines: EnginePool,
    seq: u64,
}

impl Fresh {
    fn new(count: usize, transfer: Transfer) -> anyhow::Result<Self> {
        let (near, receivers) = Receivers::start(count, false)?;
        let others = threads()?;
        let pool = EnginePool::spawn(1).context("cannot start an engine")?;
        let threads = threads()?.difference(&others).cloned().collect();
        pool.set_transfer(transfer);
        let ring = RingConfig { rings: count as u32, slots: 64, block_bytes: BLOCK_BYTES, blocks: 64 };
        let mut sender = Sender::new(&ring, pool.group())?;
        let add = |stream: TcpStream| {
            stream.set_nonblocking(true)?;
            Ok(sender.add_sink(stream, SinkConfig::new(choice::fifo()).ack_fates(false))?)
        };
        let sinks = near.into_iter().map(add).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { sender, sinks, receivers, own: this_thread()?, threads, _engines: pool, seq: 0 })
    }

    /// Processor time of a record to one receiver, in nanoseconds: that of the pushing thread and of the engine's.
    fn cost(&mut self, size: usize) -> anyhow::Result<f64> {
        let payload = vec![7; size];
        let rounds = rounds(size, self.sinks.len());
        let before = self.time()?;
        for _ in 0..rounds {
            self.receivers.expect(self.sinks.len() * size);
            self.seq += 1;
            let meta = Meta { seq: self.seq, generated: now(), ..Meta::default() };
            loop {
                match self.sender.push_to_all(self.sinks.iter().map(Sink::id), &payload, &meta) {
                    Ok(taken) => {
                        anyhow::ensure!(taken == self.sinks.len(), "{taken} of the receivers had room");
                        break;
                    }
                    Err(PushError::OutOfBlocks) => std::thread::yield_now(),
                    Err(error) => return Err(error.into()),
                }
            }
            self.receivers.wait()?;
        }
        Ok((self.time()? - before) as f64 / (rounds * self.sinks.len()) as f64)
    }

    fn time(&self) -> anyhow::Result<u64> {
        self.threads.iter().chain([&self.own]).map(|thread| thread_time(thread)).sum()
    }

    fn share_by_reference(&self) -> f64 {
        let stats = self.sinks.iter().map(Sink::stats);
        let (bytes, by_reference) = stats.fold((0, 0), |(bytes, by_reference), stats| {
            (bytes + stats.bytes, by_reference + stats.bytes_by_reference)
        });
        by_reference as f64 / bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_the_one_that_it_is_called() {
        let mut report = Report::default();
        compare(4, 64 << 10, 1, &mut report).unwrap();
        let of = |what: &str| {
            let place = report.place(BENCH, &format!("4 x 65536 B, {what}")).unwrap();
            report.series[place].samples[0]
        };
        assert!(["write()", "copied", "by reference", "auto"].into_iter().all(|way| of(way) > 0.0));
        assert_eq!(of("copied: share of bytes by reference"), 0.0);
        assert!(of("by reference: share of bytes by reference") > 0.9);
    }
}
