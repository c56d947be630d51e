//! Where records come from.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::Meta;
use freshwire_media::framing::length_prefixed;
use freshwire_media::h264::{AccessUnit, AccessUnits, AnnexBError};
use freshwire_media::layered;
use freshwire_record::Timestamp;

use super::args::SourcePlan;
use super::input::{Input, NewRecord, ONLY_KEY, Piece, Polled, Source, is_standard_input};
use super::lines::Lines;
use crate::output::say;

/// Frames per second that a stream may ask for.
const PACES: RangeInclusive<f64> = 0.01..=1000.0;

/// Opens the source that is asked for.
pub(super) fn open(plan: &SourcePlan) -> anyhow::Result<Box<dyn Source>> {
    Ok(match plan {
        SourcePlan::Layers { source, duration, deadline } => Box::new(Layers {
            source: *source,
            duration: *duration,
            deadline: *deadline,
            start: None,
            seq: 0,
        }),
        SourcePlan::H264 { file, fps, deadline } => Box::new(H264 {
            input: Input::open(file)?,
            units: AccessUnits::default().tolerant(),
            damage: None,
            next: None,
            pace: Pace { fps: *fps, live: is_standard_input(file), start: None },
            deadline: *deadline,
            seq: 0,
            ended: false,
        }),
        SourcePlan::Records { deadline } => Box::new(Records {
            input: Input::open(Path::new("-"))?,
            reader: length_prefixed::Reader::default(),
            deadline: *deadline,
            seq: 0,
        }),
        SourcePlan::Lines { key_field, deadline } => {
            Box::new(Lines::new(Input::open(Path::new("-"))?, key_field.as_deref(), *deadline))
        }
    })
}

/// Sleeps until `due` or for `timeout`; true if it is due.
fn wait_until(due: Timestamp, timeout: Duration) -> bool {
    let left = due.saturating_since(freshwire_io::now());
    std::thread::sleep(left.min(timeout));
    left <= timeout
}

/// The layered source of Birkedal 2006, at its pace.
struct Layers {
    source: layered::Source,
    duration: Duration,
    deadline: Duration,
    start: Option<Timestamp>,
    seq: u64,
}

impl Source for Layers {
    fn poll(&mut self, timeout: Duration) -> anyhow::Result<Polled> {
        let record = self.source.record(self.seq);
        if record.due >= self.duration {
            return Ok(Polled::End);
        }
        let start = *self.start.get_or_insert_with(freshwire_io::now);
        if !wait_until(start + record.due, timeout) {
            return Ok(Polled::Nothing);
        }
        self.seq += 1;
        let mut bytes = Vec::new();
        record.write(start, &mut bytes);
        // All layers of a window are played together, so they share its deadline.
        let window_begin = self.source.record(record.seq - u64::from(record.layer)).due;
        let meta = Meta {
            seq: record.seq,
            generated: start + record.due,
            deadline: start + window_begin + self.deadline,
            layer: record.layer,
            group: record.window,
            key: ONLY_KEY,
            refs: record.refs,
        };
        Ok(Polled::Record(NewRecord { bytes, meta }))
    }
}

/// An H.264 byte stream, a record to an access unit.
struct H264 {
    input: Input,
    units: AccessUnits,
    /// The first thing that could not be read.
    damage: Option<AnnexBError>,
    next: Option<AccessUnit>,
    pace: Pace,
    deadline: Option<Duration>,
    seq: u64,
    ended: bool,
}

/// When access units come.
struct Pace {
    /// As asked for, or as found in the stream.
    fps: Option<f64>,
    /// The input sets the pace unless one is asked for.
    live: bool,
    start: Option<Timestamp>,
}

impl Pace {
    /// When unit `seq` comes into being; now for a live stream.
    fn due(&mut self, unit: &AccessUnit, seq: u64) -> anyhow::Result<Timestamp> {
        let now = freshwire_io::now();
        if self.fps.is_none() && !self.live {
            let found = unit.frame_ns.map(|ns| 1e9 / f64::from(ns)).filter(|fps| PACES.contains(fps));
            self.fps = Some(found.context("the stream does not say its pace; say it with --fps")?);
        }
        let Some(fps) = self.fps else { return Ok(now) };
        let start = *self.start.get_or_insert(now);
        Ok(start + Duration::from_secs_f64(seq as f64 / fps))
    }
}

impl Source for H264 {
    fn poll(&mut self, timeout: Duration) -> anyhow::Result<Polled> {
        let unit = match self.next.take() {
            Some(unit) => unit,
            None => match self.units.next() {
                Some(Ok(unit)) => unit,
                Some(Err(error)) => {
                    self.damaged(error);
                    return Ok(Polled::Nothing);
                }
                None => return self.read(timeout),
            },
        };
        let due = self.pace.due(&unit, self.seq)?;
        if !wait_until(due, timeout) {
            self.next = Some(unit);
            return Ok(Polled::Nothing);
        }
        let meta = Meta {
            seq: self.seq,
            generated: due,
            deadline: self.deadline.map_or(Timestamp::MAX, |deadline| due + deadline),
            layer: unit.layer,
            group: unit.group,
            key: ONLY_KEY,
            refs: unit.refs,
        };
        self.seq += 1;
        Ok(Polled::Record(NewRecord { bytes: unit.bytes, meta }))
    }
}

impl H264 {
    /// A live source goes on where something is damaged.
    fn damaged(&mut self, error: AnnexBError) {
        if self.damage.is_none() && self.seq > 0 {
            say(&format!("{}: {error}; what cannot be read is left out", self.input.name));
        }
        self.damage.get_or_insert(error);
    }

    fn read(&mut self, timeout: Duration) -> anyhow::Result<Polled> {
        match self.input.read(timeout)? {
            Piece::Bytes(bytes) => self.units.push(&bytes),
            Piece::Nothing => {}
            Piece::End if self.ended => {
                let name = &self.input.name;
                if let Some(error) = self.damage.filter(|_| self.seq == 0) {
                    return Err(error).with_context(|| format!("cannot read {name}"));
                }
                anyhow::ensure!(self.seq > 0, "{name} has no picture in it");
                return Ok(Polled::End);
            }
            Piece::End => {
                self.ended = true;
                // The last unit is complete only now.
                self.units.finish();
            }
        }
        Ok(Polled::Nothing)
    }
}

/// Length-prefixed records, as they come.
struct Records {
    input: Input,
    reader: length_prefixed::Reader,
    deadline: Option<Duration>,
    seq: u64,
}

impl Source for Records {
    fn poll(&mut self, timeout: Duration) -> anyhow::Result<Polled> {
        let Some(record) = self.reader.next() else {
            match self.input.read(timeout)? {
                Piece::Bytes(bytes) => self.reader.push(&bytes),
                Piece::Nothing => {}
                Piece::End => {
                    std::mem::take(&mut self.reader).finish().context("standard input")?;
                    return Ok(Polled::End);
                }
            }
            return Ok(Polled::Nothing);
        };
        let now = freshwire_io::now();
        let meta = Meta {
            seq: self.seq,
            generated: now,
            deadline: self.deadline.map_or(Timestamp::MAX, |deadline| now + deadline),
            key: ONLY_KEY,
            ..Meta::default()
        };
        self.seq += 1;
        Ok(Polled::Record(NewRecord { bytes: record.context("standard input")?, meta }))
    }
}
