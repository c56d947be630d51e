//! Records from a file in the page cache: read into a buffer and pushed, beside read into the arena and committed.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::{Engine, Meta, Reason, RingConfig, Sender, Sink, SinkConfig, choice};
use freshwire_io::now;
use rustix::fs::{MemfdFlags, memfd_create};

use super::loopback::pair;
use super::series::{Report, Unit};

const BENCH: &str = "push";

/// Bytes of a record and of a block: a segment, a large write, a picture; and the picture in several blocks.
const SIZES: [(usize, usize); 4] =
    [(1400, 1400), (16 << 10, 16 << 10), (256 << 10, 256 << 10), (256 << 10, 16 << 10)];

/// Bytes of the records between two looks at the clock: more than the processor's caches have for one core.
const ROUND_BYTES: usize = 32 << 20;

/// Records between two looks at the clock, at most.
const ROUND_RECORDS: usize = 256;

/// Rounds of a repetition, and those before, in which each page is touched for the first time.
const ROUNDS: usize = 16;
const WARM_UP: usize = 2;

pub(super) fn measure(repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    for (size, block) in SIZES {
        let blocks = if size == block { String::new() } else { format!(", blocks of {block} B") };
        let name = |how| format!("{how} {size} B of a file{blocks}");
        let mut stage = Stage::new(size, block)?;
        let mut places = None;
        for _ in 0..repeat {
            let copied = report.add(BENCH, &name("read and push"), Unit::Nanoseconds, stage.cost(copy)?);
            let in_place = stage.cost(read_in_place)?;
            let in_place = report.add(BENCH, &name("reserve, read, commit"), Unit::Nanoseconds, in_place);
            places = Some((in_place, copied));
        }
        if let Some((in_place, copied)) = places {
            report.compare(&format!("reserve : push of {size} B of a file{blocks}"), in_place, copied, None);
        }
    }
    Ok(())
}

/// A sender, and a file of the records of a round.
struct Stage {
    _engine: Engine,
    sender: Sender,
    sink: Sink,
    _far: TcpStream,
    file: File,
    records: usize,
    buffer: Vec<u8>,
}

impl Stage {
    fn new(size: usize, block: usize) -> anyhow::Result<Self> {
        // The engine does not run: an editor drops what was pushed, which is not timed.
        let engine = Engine::new().context("cannot make an engine")?;
        let records = (ROUND_BYTES / size).min(ROUND_RECORDS);
        let blocks = 2 * (records * size.div_ceil(block)).next_power_of_two() as u32;
        let config = RingConfig { rings: 1, slots: blocks, block_bytes: block as u32, blocks };
        let mut sender = Sender::new(&config, &engine.handle())?;
        let (near, far) = pair()?;
        let sink = sender.add_sink(near, SinkConfig::new(choice::fifo()).ack_fates(false))?;
        let file = memfd_create("freshwire-records", MemfdFlags::CLOEXEC).context("cannot make a file")?;
        let mut file = File::from(file);
        let buffer = vec![7; size];
        for _ in 0..records {
            file.write_all(&buffer)?;
        }
        Ok(Self { _engine: engine, sender, sink, _far: far, file, records, buffer })
    }

    /// Time of one record by `put`.
    fn cost(&mut self, put: fn(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let editor = self.sender.region().editor();
        let mut time = Duration::ZERO;
        for round in 0..WARM_UP + ROUNDS {
            self.file.rewind()?;
            let begin = now();
            for _ in 0..self.records {
                put(self)?;
            }
            if round >= WARM_UP {
                time += now().saturating_since(begin);
            }
            let dropped = editor.drop_where(self.sink.id().ring(), Reason::Application, |_| true);
            anyhow::ensure!(
                dropped == self.records,
                "{dropped} of {} records were in the ring",
                self.records
            );
        }
        Ok(time.as_nanos() as f64 / (ROUNDS * self.records) as f64)
    }
}

fn copy(Stage { file, buffer, sender, sink, .. }: &mut Stage) -> anyhow::Result<()> {
    file.read_exact(buffer)?;
    sender.push(sink.id(), buffer, &Meta::default())?;
    Ok(())
}

fn read_in_place(Stage { file, buffer, sender, sink, .. }: &mut Stage) -> anyhow::Result<()> {
    let meta = Meta::default();
    let mut space = sender.reserve(sink.id(), buffer.len(), &meta)?;
    while space.len() < space.capacity() {
        anyhow::ensure!(space.read_from(&*file)? > 0, "the file ends early");
    }
    sender.commit(sink.id(), &mut space, &meta)?;
    Ok(())
}
