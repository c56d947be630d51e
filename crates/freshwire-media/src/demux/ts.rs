//! MPEG transport streams (ISO 13818-1): one program with H.264 or H.265 and AAC or Opus.
//!
//! ```text
//!  bytes ─► packets of 188 ─┬─ PID 0 ─► programs ─► map of the first one ─► which PIDs
//!                           ├─ video ─► PES ───────────────────────────► pictures
//!                           └─ audio ─► PES ─► ADTS or Opus ───────────► frames
//! ```

mod packet;
mod pes;
mod psi;
mod sound;

use std::collections::VecDeque;

use crate::buffer::Buffer;
use crate::mpeg_ts::{PACKET_BYTES, SYNC};
use crate::timeline::{Given, Unwrap};
use crate::unit::MediaTime;
use crate::video::Format;

use self::packet::{Continuity, Follows, Packet};
use self::pes::{Assembly, Completed, Pes};
use self::psi::{Elementary, Sections};
use self::sound::{Packing, Sound};

pub(super) use self::sound::Frame;

/// What a transport stream gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The program has these tracks from here on.
    Streams { video: Option<Format>, audio: bool },
    /// A whole access unit.
    Picture { given: Given, bytes: Vec<u8> },
    /// A frame of sound.
    Sound(Frame),
}

/// Reads a transport stream that arrives in pieces. Memory: what was pushed and not yet taken, and per track one PES
/// packet of the limit.
#[derive(Clone, Debug)]
pub(super) struct Ts {
    buffer: Buffer,
    /// The packets' begin is not known for sure.
    adrift: bool,
    last_pid: u16,
    clock: Unwrap,
    programs: Sections,
    map: Option<(u16, Sections)>,
    streams: Vec<Elementary>,
    video: Option<Video>,
    audio: Option<Audio>,
    items: VecDeque<Item>,
    skipped: Vec<String>,
    damaged: u64,
    limit: usize,
}

/// The packets of one PID.
#[derive(Clone, Debug)]
struct Stream {
    pid: u16,
    continuity: Continuity,
    assembly: Assembly,
}

#[derive(Clone, Debug)]
struct Video {
    stream: Stream,
    format: Format,
    /// An access unit goes on in PES packets without time.
    continued: bool,
    held: Option<(Given, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct Audio {
    stream: Stream,
    sound: Sound,
}

impl Ts {
    pub(super) fn new(max_unit_bytes: usize) -> Self {
        Self {
            buffer: Buffer::default(),
            adrift: true,
            last_pid: 0,
            clock: Unwrap::new(33),
            programs: Sections::default(),
            map: None,
            streams: Vec::new(),
            video: None,
            audio: None,
            items: VecDeque::new(),
            skipped: Vec::new(),
            damaged: 0,
            limit: max_unit_bytes,
        }
    }

    /// Adds the next bytes of the stream. Take items until `None` before pushing again.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
        while let Some(bytes) = self.next_packet() {
            if let Some(packet) = Packet::parse(&bytes) {
                self.handle(&packet);
            }
        }
    }

    /// Tells that the stream has ended: units of unknown length are complete.
    pub(super) fn finish(&mut self) {
        let mut completed = [Completed::default(), Completed::default()];
        let streams =
            [self.video.as_mut().map(|v| &mut v.stream), self.audio.as_mut().map(|a| &mut a.stream)];
        for (stream, completed) in streams.into_iter().zip(&mut completed) {
            if let Some(stream) = stream {
                stream.assembly.end(completed);
            }
        }
        let [video, audio] = completed;
        self.pictures(video);
        self.sounds(audio);
        self.release_held();
    }

    /// Items in the order in which they were completed.
    pub(super) fn next(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// What the program has besides.
    pub(super) fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Losses: gaps, broken and malformed packets.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    fn next_packet(&mut self) -> Option<[u8; PACKET_BYTES]> {
        loop {
            let bytes = self.buffer.peek();
            let &first = bytes.first()?;
            if first == SYNC && !self.adrift {
                return self.buffer.take_array();
            }
            if first == SYNC && *bytes.get(PACKET_BYTES)? == SYNC {
                self.adrift = false;
                continue;
            }
            let next = bytes.iter().skip(1).position(|&byte| byte == SYNC);
            let skip = next.map_or(bytes.len(), |at| at + 1);
            self.buffer.take(skip);
            if !std::mem::replace(&mut self.adrift, true) {
                // The packet before ended somewhere else than where it should.
                self.lose(self.last_pid);
            }
        }
    }

    fn handle(&mut self, packet: &Packet<'_>) {
        self.last_pid = packet.pid;
        if packet.broken {
            return self.lose(packet.pid);
        }
        let Some(payload) = packet.payload else { return };
        if packet.pid == 0 {
            for section in self.programs.push(packet.start, payload) {
                self.program(&section);
            }
        } else if let Some((_, sections)) = self.map.as_mut().filter(|(pid, _)| *pid == packet.pid) {
            for section in sections.push(packet.start, payload) {
                self.program_map(&section);
            }
        } else {
            self.elementary(packet, payload);
        }
    }

    fn elementary(&mut self, packet: &Packet<'_>, payload: &[u8]) {
        let Some(stream) = self.stream(packet.pid) else { return };
        match stream.continuity.follow(packet, payload) {
            Follows::Again => return,
            Follows::Lost => self.lose(packet.pid),
            Follows::Next => {}
        }
        let Some(stream) = self.stream(packet.pid) else { return };
        let completed = stream.assembly.push(packet.start, payload);
        if self.video.as_ref().is_some_and(|video| video.stream.pid == packet.pid) {
            self.pictures(completed);
        } else {
            self.sounds(completed);
        }
    }

    fn stream(&mut self, pid: u16) -> Option<&mut Stream> {
        let video = self.video.as_mut().map(|video| &mut video.stream);
        let audio = self.audio.as_mut().map(|audio| &mut audio.stream);
        [video, audio].into_iter().flatten().find(|stream| stream.pid == pid)
    }

    /// Gives up what is incomplete of this PID.
    fn lose(&mut self, pid: u16) {
        if let Some(stream) = self.stream(pid) {
            stream.assembly.clear();
            self.damaged += 1;
        }
        if let Some(video) = self.video.as_mut().filter(|video| video.stream.pid == pid) {
            video.held = None;
        } else if let Some(audio) = self.audio.as_mut().filter(|audio| audio.stream.pid == pid) {
            audio.sound.lost();
        }
    }

    fn pictures(&mut self, completed: Completed) {
        self.damaged += completed.damaged;
        for pes in completed.packets {
            let given = self.given(&pes);
            let Some(video) = &mut self.video else { return };
            match (given, &mut video.held) {
                (Some(given), _) => {
                    let continued = video.continued;
                    self.release_held();
                    if !continued {
                        self.items.push_back(Item::Picture { given, bytes: pes.bytes });
                    } else if let Some(video) = &mut self.video {
                        video.held = Some((given, pes.bytes));
                    }
                }
                (None, Some((_, bytes))) if bytes.len() + pes.bytes.len() <= self.limit => {
                    bytes.extend(pes.bytes)
                }
                (None, held) => {
                    // The begin of this unit has already been given out as a whole one.
                    *held = None;
                    video.continued = true;
                    self.damaged += 1;
                }
            }
        }
    }

    fn release_held(&mut self) {
        if let Some((given, bytes)) = self.video.as_mut().and_then(|video| video.held.take()) {
            self.items.push_back(Item::Picture { given, bytes });
        }
    }

    fn given(&mut self, pes: &Pes) -> Option<Given> {
        let pts = self.time(pes.pts?);
        let dts = pes.dts.map_or(pts, |dts| self.time(dts));
        Some(Given::Both { pts, dts })
    }

    fn time(&mut self, ticks: u64) -> MediaTime {
        MediaTime::from_ticks(self.clock.extend(ticks), CLOCK_RATE)
    }

    fn sounds(&mut self, completed: Completed) {
        self.damaged += completed.damaged;
        for pes in completed.packets {
            let pts = pes.pts.map(|ticks| self.time(ticks));
            let Some(audio) = &mut self.audio else { return };
            self.items.extend(audio.sound.push(pts, &pes.bytes).into_iter().map(Item::Sound));
        }
    }

    fn program(&mut self, section: &[u8]) {
        let Some(pid) = psi::program(section) else { return };
        if self.map.as_ref().is_none_or(|(known, _)| *known != pid) {
            self.map = Some((pid, Sections::default()));
        }
    }

    fn program_map(&mut self, section: &[u8]) {
        let Some(streams) = psi::streams(section).filter(|streams| *streams != self.streams) else { return };
        let (mut video, mut audio) = (None, None);
        for stream in &streams {
            match role(stream) {
                Role::Video(format) if video.is_none() => video = Some((stream.pid, format)),
                Role::Audio(packing) if audio.is_none() => audio = Some((stream.pid, packing)),
                Role::Video(_) => self.skip(format!("a further video track (PID {})", stream.pid)),
                Role::Audio(_) => self.skip(format!("a further audio track (PID {})", stream.pid)),
                Role::Other(name) => self.skip(format!("{name} (PID {})", stream.pid)),
            }
        }
        self.streams = streams;
        let limit = self.limit;
        let stream = |pid| Stream { pid, continuity: Continuity::default(), assembly: Assembly::new(limit) };
        let kept = self.video.take().filter(|old| video == Some((old.stream.pid, old.format)));
        self.video = kept.or_else(|| {
            video.map(|(pid, format)| Video { stream: stream(pid), format, continued: false, held: None })
        });
        let kept = self.audio.take().filter(|old| audio == Some((old.stream.pid, old.sound.packing())));
        self.audio = kept.or_else(|| {
            audio.map(|(pid, packing)| Audio { stream: stream(pid), sound: Sound::new(packing) })
        });
        let video = video.map(|(_, format)| format);
        self.items.push_back(Item::Streams { video, audio: audio.is_some() });
    }

    fn skip(&mut self, description: String) {
        if self.skipped.len() < MOST_SKIPPED && !self.skipped.contains(&description) {
            self.skipped.push(description);
        }
    }
}

/// What becomes of a stream of the program.
enum Role {
    Video(Format),
    Audio(Packing),
    Other(String),
}

fn role(stream: &Elementary) -> Role {
    let other = |name: &str| Role::Other(name.to_owned());
    match stream.kind {
        0x1b => Role::Video(Format::H264),
        0x24 => Role::Video(Format::H265),
        0x0f => Role::Audio(Packing::Adts),
        0x06 if stream.descriptor(REGISTRATION, b"Opus").is_some() => opus_role(stream),
        0x01 | 0x02 => other("MPEG-1 or MPEG-2 video"),
        0x03 | 0x04 => other("MPEG audio"),
        0x11 => other("AAC in LATM"),
        0x15 | 0x86 | 0xfc => other("timed metadata"),
        0x81 => other("AC-3 audio"),
        0x87 => other("E-AC-3 audio"),
        kind => match stream.descriptor(REGISTRATION, b"") {
            Some(name) => Role::Other(format!("a private stream {:?}", String::from_utf8_lossy(name))),
            None => Role::Other(format!("a stream of type {kind:#04x}")),
        },
    }
}

/// The channels stand in an extension descriptor.
fn opus_role(stream: &Elementary) -> Role {
    match stream.descriptor(EXTENSION, &[OPUS_CHANNELS]).and_then(|content| content.get(1)) {
        Some(&channels @ 1..=8) => Role::Audio(Packing::Opus { channels }),
        Some(0) => Role::Audio(Packing::Opus { channels: 2 }),
        _ => Role::Other("Opus with unusual channels".to_owned()),
    }
}

/// Ticks of PES times in a second.
const CLOCK_RATE: u32 = 90_000;
const REGISTRATION: u8 = 5;
const EXTENSION: u8 = 0x7f;
/// Tag of the extension that says the channels of Opus.
const OPUS_CHANNELS: u8 = 0x80;
/// More tracks than this are not described.
const MOST_SKIPPED: usize = 32;
