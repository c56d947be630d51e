//! MPEG transport streams (ISO 13818-1) with one program: H.264 or H.265, AAC or Opus.
//!
//! ```text
//!  unit      [PAT] [PMT]  [ header · PCR · PES header · AUD · payload ] [ header · payload ] … [ header · stuffing · payload ]
//!            before keys, 188 bytes each
//!            and each 500 ms
//! ```
//!
//! Continuity counters count the packets that are sent, so a reader sees no loss where units were dropped. Tables, and the
//! clock reference (PCR) in front of sound while no picture comes, keep their intervals in media time, as far as units are
//! sent at all. Packets of sound may come between those of a picture. Where the pictures that follow are dropped, repetitions
//! take their places, a packet each, as in RTP ([`super::interleaved`]).
//!
//! A piece is a packet: 4 to 12 bytes of framing and at most 184 of payload. Pieces so small are copied by every write, and
//! are not worth a reference to the payload.
//!
//! **Clock.** PCR is decode time less 200 ms. Players drop or delay units that arrive with a decode time behind PCR.
//! With 200 ms, sound and pictures may be sent that much out of order, as a policy that prefers sound does. PCR never
//! runs back. The first unit's decode time is one second after 0, so that no time is negative; times have 33 bits and
//! wrap after 26.5 hours.

mod error;
mod packet;
mod pes;
mod tables;

use std::sync::Arc;

pub use self::error::TsError;
use self::packet::{Counter, Packet};
use self::pes::{AUDIO_PID, CarriedStream, VIDEO_PID};
use super::viewer::{self, OpenUnits, Units};
use super::{Framer, Piece};
use crate::unit::{Catalog, Kind, MediaTime, Tracks, UnitHead};

/// An MPEG transport stream for one viewer. A unit that cannot be carried is skipped: it makes one piece without bytes.
/// These are units that the catalog does not have, that need a key unit before them which was not sent, or whose tracks
/// have become such as [`Ts::new`] refuses.
#[derive(Debug)]
pub struct Ts {
    units: Units,
    program: Program,
    counters: Counters,
    origin: Option<MediaTime>,
    /// Media time of the last tables.
    tables_at: Option<MediaTime>,
    /// The last clock reference, in ticks.
    pcr: Option<i64>,
    /// Whole packets before those of the unit in progress.
    tables: Vec<u8>,
    /// Bytes of the unit in progress before its payload.
    lead: Vec<u8>,
    open_units: OpenUnits<Open>,
}

#[derive(Debug)]
struct Program {
    tracks: Arc<Tracks>,
    version: u8,
    video: Option<CarriedStream>,
    audio: Option<CarriedStream>,
}

#[derive(Debug, Default)]
struct Counters {
    pat: Counter,
    pmt: Counter,
    video: Counter,
    audio: Counter,
}

/// A unit in progress.
#[derive(Debug)]
struct Open {
    kind: Kind,
    /// Header of the next packet.
    packet: Packet,
    lead_written: usize,
    position: u32,
    len: u32,
}

impl Ts {
    /// A framer for a viewer of the stream with this catalog and, for now, these tracks.
    ///
    /// # Errors
    /// [`TsError`] if a track has a codec, or a form of it, that MPEG-TS does not carry.
    pub fn new(catalog: Arc<Catalog>, tracks: Arc<Tracks>) -> Result<Self, TsError> {
        Ok(Self {
            units: Units::new(catalog),
            program: Program::new(tracks, 0)?,
            counters: Counters::default(),
            origin: None,
            tables_at: None,
            pcr: None,
            tables: Vec::new(),
            lead: Vec::new(),
            open_units: OpenUnits::default(),
        })
    }

    /// The media time that is 0 in a stream which begins with this unit.
    pub fn origin_of(first: &UnitHead) -> MediaTime {
        viewer::origin(first)
    }

    /// Prepares the packets of a unit; `None` if it has to be skipped.
    fn open(&mut self, seq: u64, len: u32) -> Option<Open> {
        let head = self.units.find(seq, len)?;
        self.follow(&head)?;
        if len == 0 {
            return None;
        }
        let random_access = head.key || head.kind == Kind::Audio;
        let open = self.lead(&head, len, random_access)?;
        self.units.accept(&head);
        Some(open)
    }

    /// Writes what goes before `len` bytes in the place of a unit to [`lead`](Self::lead).
    fn lead(&mut self, head: &UnitHead, len: u32, random_access: bool) -> Option<Open> {
        let origin = *self.origin.get_or_insert_with(|| viewer::origin(head));
        let ticks = |at: MediaTime| {
            MediaTime::from_nanos(at.as_nanos().saturating_sub(origin.as_nanos())).ticks(90_000)
        };
        let (pts, dts) = (ticks(head.pts), ticks(head.dts));
        let carried = match head.kind {
            Kind::Video => self.program.video.as_ref()?,
            Kind::Audio => self.program.audio.as_ref()?,
        };
        carried.write_header(pts as u64, dts as u64, len, &mut self.lead)?;
        let pid = carried.stream.pid;
        self.add_tables(head);
        let pcr = self.reference(head, dts);
        let packet = Packet { pid, start: true, pcr, random_access };
        Some(Open { kind: head.kind, packet, lead_written: 0, position: 0, len })
    }

    /// Adds the packets of a picture of these NAL units, in the place of the unit with this head.
    fn write_whole(&mut self, head: &UnitHead, nals: &[Vec<u8>], out: &mut Vec<u8>) -> Option<()> {
        const START_CODE: [u8; 4] = [0, 0, 0, 1];
        self.tables.clear();
        self.lead.clear();
        let len: usize = nals.iter().map(|nal| START_CODE.len() + nal.len()).sum();
        let open = self.lead(head, u32::try_from(len).ok()?, false)?;
        for nal in nals {
            self.lead.extend_from_slice(&START_CODE);
            self.lead.extend_from_slice(nal);
        }
        out.append(&mut self.tables);
        let mut open = Open { len: 0, ..open };
        while open.lead_written < self.lead.len() {
            open.packet(&self.lead, &mut self.counters.video, out);
        }
        Some(())
    }

    /// Takes over the unit's tracks if they have changed. `None` if they cannot be carried. Sound says nothing of the pictures: it
    /// may be that of another rendition.
    fn follow(&mut self, head: &UnitHead) -> Option<()> {
        let tracks = &head.tracks;
        if Arc::ptr_eq(&self.program.tracks, tracks) || self.has_sound_of(head) {
            return Some(());
        }
        let same = self.program.tracks == *tracks;
        let version = self.program.version.wrapping_add(u8::from(!same));
        self.program = Program::new(Arc::clone(tracks), version).ok()?;
        if !same {
            self.tables_at = None;
        }
        Some(())
    }

    /// Whether the unit is sound, and the program has it.
    fn has_sound_of(&self, head: &UnitHead) -> bool {
        head.kind == Kind::Audio && self.program.tracks.audio == head.tracks.audio
    }

    /// Adds PAT and PMT if they are due.
    fn add_tables(&mut self, head: &UnitHead) {
        let is_due = |since: MediaTime| {
            let until = head.dts.as_nanos().saturating_add(head.duration_ns.into());
            until.saturating_sub(since.as_nanos()) > TABLES_NS
        };
        let begins = head.key && head.kind == Kind::Video;
        if !begins && self.tables_at.is_some_and(|since| !is_due(since)) {
            return;
        }
        self.tables_at = Some(head.dts);
        let program = &self.program;
        let streams: Vec<_> =
            program.video.iter().chain(&program.audio).map(|carried| carried.stream.clone()).collect();
        tables::write_pat(&mut self.counters.pat, &mut self.tables);
        let pcr_pid = program.pcr_pid();
        tables::write_pmt(program.version, pcr_pid, &streams, &mut self.counters.pmt, &mut self.tables);
    }

    /// The clock reference for the unit's first packet. If one is due in front of sound that is not the
    /// clock's own stream, a packet of its own carries it. Sound that overtakes a picture gets none: the
    /// clock would be past that picture's time.
    fn reference(&mut self, head: &UnitHead, dts: i64) -> Option<u64> {
        if self.open_units.alone().is_some() {
            return None;
        }
        let pcr = dts.saturating_sub(PCR_LEAD_TICKS).max(self.pcr.unwrap_or(0));
        if head.kind == Kind::Video || self.program.video.is_none() {
            self.pcr = Some(pcr);
            return Some(pcr as u64);
        }
        let duration = MediaTime::from_nanos(head.duration_ns.into()).ticks(90_000);
        if self.pcr.is_none_or(|last| pcr - last + duration > PCR_INTERVAL_TICKS) {
            self.pcr = Some(pcr);
            let packet = Packet { pid: VIDEO_PID, pcr: Some(pcr as u64), ..Packet::default() };
            packet.write_without_payload(self.counters.video, &mut self.tables);
        }
        None
    }
}

impl Program {
    fn new(tracks: Arc<Tracks>, version: u8) -> Result<Self, TsError> {
        let video = tracks.video.as_ref().map(CarriedStream::video).transpose()?;
        let audio = tracks.audio.as_ref().map(CarriedStream::audio).transpose()?;
        if video.is_none() && audio.is_none() {
            return Err(TsError::NoTrack);
        }
        Ok(Self { tracks, version, video, audio })
    }

    fn pcr_pid(&self) -> u16 {
        if self.video.is_some() { VIDEO_PID } else { AUDIO_PID }
    }
}

impl Framer for Ts {
    fn begin(&mut self, seq: u64, len: u32) {
        self.tables.clear();
        self.lead.clear();
        let open = self.open(seq, len);
        self.open_units.begin(open);
    }

    fn missed(&mut self, seq: u64) {
        self.units.missed(seq);
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        let mut repetitions = 0;
        for (head, nals) in self.units.repetitions() {
            repetitions += usize::from(self.write_whole(&head, &nals, out).is_some());
        }
        repetitions
    }

    fn next(&mut self, _max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        self.open_units.next(|open| {
            prefix.append(&mut self.tables);
            let counter = match open.kind {
                Kind::Video => &mut self.counters.video,
                Kind::Audio => &mut self.counters.audio,
            };
            Some(open.packet(&self.lead, counter, prefix))
        })
    }

    fn can_be_overtaken(&self) -> bool {
        self.open_units.alone().is_some_and(|open| open.kind == Kind::Video && open.position > 0)
    }

    fn can_overtake(&self, seq: u64) -> bool {
        let is_of_program = |head: Arc<UnitHead>| self.has_sound_of(&head);
        self.can_be_overtaken() && self.units.of(Kind::Audio, seq).is_some_and(is_of_program)
    }
}

impl Open {
    /// Adds the next packet, without its payload, to `out`.
    fn packet(&mut self, lead: &[u8], counter: &mut Counter, out: &mut Vec<u8>) -> Piece {
        // Once payload is written, all of the lead is, and another unit's may be there.
        let lead = if self.position > 0 { &[] } else { &lead[self.lead_written..] };
        let remaining = self.len - self.position;
        let room = self.packet.write_header(counter, lead.len() + remaining as usize, out);
        let of_lead = lead.len().min(room);
        out.extend_from_slice(&lead[..of_lead]);
        self.lead_written += of_lead;
        let begin = self.position;
        self.position += (room - of_lead) as u32;
        self.packet = Packet { pid: self.packet.pid, ..Packet::default() };
        let last = self.position == self.len;
        Piece { payload: begin..self.position, last, boundary: last }
    }
}

/// Interval of the program tables: at most 0.5 s (ETSI TR 101 290, PAT and PMT errors).
const TABLES_NS: i64 = 500_000_000;
/// Time from a unit's clock reference to its decoding, 0.2 s in ticks of 90 kHz. Chosen, not measured.
const PCR_LEAD_TICKS: i64 = 18_000;
/// Interval of clock references: at most 0.1 s (ISO/IEC 13818-1, 2.7.2).
const PCR_INTERVAL_TICKS: i64 = 9_000;

#[cfg(test)]
mod tests;
