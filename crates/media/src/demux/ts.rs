//! MPEG transport streams (ISO 13818-1): one program with H.264 or H.265 and AAC or Opus.
//!
//! ```text
//!  bytes ─► packets of 188 ─┬─ PID 0 ─► programs ─► map of the first one with video ─► which PIDs
//!                           ├─ video ─► PES ────────────────────────────► parts of a byte stream
//!                           └─ audio ─► PES ─► ADTS or Opus ────────────► frames
//! ```
//!
//! Packets may have four bytes before each (M2TS) or sixteen behind (Reed-Solomon). What a PES packet of video holds need not
//! be a picture: its time is that of the first picture that begins in it (2.4.3.7), and it may have none.

mod packet;
mod pes;
mod programs;
mod psi;
mod sound;

use std::collections::VecDeque;

use crate::buffer::Buffer;
use crate::mpeg_ts::{PACKET_BYTES, SYNC};
use crate::timeline::{Given, Unwrap};
use crate::unit::MediaTime;
use crate::video::Format;

use self::packet::{Continuity, Packet, Succession};
use self::pes::{Assembly, Completed, Pes};
use self::programs::Programs;
use self::psi::Elementary;
use self::sound::{Packing, Sound};

pub(super) use self::sound::Frame;

/// What a transport stream gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The program has these tracks from here on.
    Streams { video: Option<Format>, audio: bool },
    /// Part of the video's byte stream, with the times of the first picture that begins in it.
    Video { given: Given, bytes: Vec<u8> },
    /// Bytes of the video are missing here.
    Gap,
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
    /// From one packet's begin to the next.
    stride: usize,
    /// Bytes before the next packet.
    between: usize,
    /// Bytes since the packet before that were no packet.
    strayed: usize,
    last: [u8; PACKET_BYTES],
    last_pid: u16,
    clock: Unwrap,
    programs: Programs,
    streams: Vec<Elementary>,
    video: Option<Video>,
    audio: Option<Audio>,
    items: VecDeque<Item>,
    skipped: Vec<String>,
    damaged: u64,
    /// Packets of the program's tracks that are encrypted.
    scrambled: u64,
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
            stride: PACKET_BYTES,
            between: 0,
            strayed: 0,
            last: [0; PACKET_BYTES],
            last_pid: 0,
            clock: Unwrap::new(33),
            programs: Programs::default(),
            streams: Vec::new(),
            video: None,
            audio: None,
            items: VecDeque::new(),
            skipped: Vec::new(),
            damaged: 0,
            scrambled: 0,
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

    /// Why no track is there whose pictures or sound could be taken, in words; `None` if there is one.
    pub(super) fn complaint(&self) -> Option<String> {
        let tracks = self.video.is_some() || self.audio.is_some();
        if tracks && self.scrambled > 0 {
            Some("it is encrypted".to_owned())
        } else if tracks {
            None
        } else if !self.programs.is_known() {
            Some("it has no table of programs (PAT)".to_owned())
        } else if self.streams.is_empty() && self.skipped.is_empty() {
            Some("no program has a map (PMT)".to_owned())
        } else {
            Some(format!("it has nothing but {}", self.skipped.join(", ")))
        }
    }

    fn next_packet(&mut self) -> Option<[u8; PACKET_BYTES]> {
        loop {
            let between = self.between.min(self.buffer.peek().len());
            self.buffer.take(between);
            self.between -= between;
            let bytes = self.buffer.peek();
            let &first = bytes.first()?;
            if first == SYNC && !self.adrift {
                let strayed = std::mem::take(&mut self.strayed);
                // Where bytes are missing, the packet before has the begin of the next one in it. Where others stand between,
                // it is whole.
                if strayed > 0 && self.last.get(strayed % PACKET_BYTES) == Some(&SYNC) {
                    self.lose(self.last_pid);
                }
                self.last = self.buffer.take_array()?;
                self.between = self.stride - PACKET_BYTES;
                return Some(self.last);
            }
            if first == SYNC && *bytes.get(PACKET_BYTES)? == SYNC {
                (self.adrift, self.stride) = (false, PACKET_BYTES);
                continue;
            }
            if first == SYNC {
                // One byte that fits is chance, two are not.
                let [_, others @ ..] = STRIDES;
                let mut fitting = None;
                for stride in others {
                    if *bytes.get(stride)? == SYNC && *bytes.get(2 * stride)? == SYNC {
                        fitting.get_or_insert(stride);
                    }
                }
                if let Some(stride) = fitting {
                    (self.adrift, self.stride) = (false, stride);
                    continue;
                }
            }
            let next = bytes.iter().skip(1).position(|&byte| byte == SYNC);
            let skip = next.map_or(bytes.len(), |at| at + 1);
            self.buffer.take(skip);
            self.adrift = true;
            self.strayed += skip;
        }
    }

    fn handle(&mut self, packet: &Packet<'_>) {
        self.last_pid = packet.pid;
        if packet.broken {
            return self.lose(packet.pid);
        }
        let Some(payload) = packet.payload else {
            self.scrambled += u64::from(packet.scrambled && self.stream(packet.pid).is_some());
            return;
        };
        if packet.pid == 0 {
            self.programs.table(packet.start, payload);
            return;
        }
        let maps = self.programs.maps(packet.pid, packet.start, payload);
        if let Some(maps) = maps {
            maps.iter().for_each(|section| self.program_map(section));
        } else {
            self.elementary(packet, payload);
        }
    }

    fn elementary(&mut self, packet: &Packet<'_>, payload: &[u8]) {
        let Some(stream) = self.stream(packet.pid) else { return };
        match stream.continuity.follow(packet, payload) {
            Succession::Again => return,
            Succession::Lost => self.lose(packet.pid),
            Succession::Next => {}
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
        if self.video.as_ref().is_some_and(|video| video.stream.pid == pid) {
            self.items.push_back(Item::Gap);
        } else if let Some(audio) = self.audio.as_mut().filter(|audio| audio.stream.pid == pid) {
            audio.sound.lost();
        }
    }

    fn pictures(&mut self, completed: Completed) {
        if completed.damaged > 0 {
            self.damaged += completed.damaged;
            self.items.push_back(Item::Gap);
        }
        for pes in completed.packets {
            let given = self.given(&pes);
            self.items.push_back(Item::Video { given, bytes: pes.bytes });
        }
    }

    fn given(&mut self, pes: &Pes) -> Given {
        let Some(pts) = pes.pts else { return Given::Nothing };
        let pts = self.time(pts);
        let dts = pes.dts.map_or(pts, |dts| self.time(dts));
        Given::Both { pts, dts }
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

    fn program_map(&mut self, section: &[u8]) {
        let Some((number, streams)) = psi::program_of(section).zip(psi::streams(section)) else { return };
        let carries = |kind: fn(&Role) -> bool| streams.iter().any(|stream| kind(&role(stream)));
        let has_video = carries(|role| matches!(role, Role::Video(_)));
        let has_sound = carries(|role| matches!(role, Role::Audio(_)));
        if !self.programs.choose(number, has_video, has_sound) {
            if !self.programs.has_choice() {
                self.describe_skipped(&streams);
            }
            return;
        }
        if streams == self.streams {
            return;
        }
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
        if kept.is_none() {
            // A unit in progress on another PID does not go on here.
            self.items.push_back(Item::Gap);
        }
        self.video = kept.or_else(|| video.map(|(pid, format)| Video { stream: stream(pid), format }));
        let kept = self.audio.take().filter(|old| audio == Some((old.stream.pid, old.sound.packing())));
        self.audio = kept.or_else(|| {
            audio.map(|(pid, packing)| Audio { stream: stream(pid), sound: Sound::new(packing) })
        });
        let video = video.map(|(_, format)| format);
        self.items.push_back(Item::Streams { video, audio: audio.is_some() });
    }

    /// What a program has that is not taken.
    fn describe_skipped(&mut self, streams: &[Elementary]) {
        for stream in streams {
            if let Role::Other(name) = role(stream) {
                self.skip(format!("{name} (PID {})", stream.pid));
            }
        }
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
        // As it was sent before it had a type of its own.
        0x06 if stream.descriptor(REGISTRATION, b"HEVC").is_some() => Role::Video(Format::H265),
        0x06 if stream.descriptor(AC3, b"").is_some() => other("AC-3 audio"),
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
/// Descriptor of AC-3 in DVB.
const AC3: u8 = 0x6a;
/// From one packet to the next: bare, M2TS with a time before each, with Reed-Solomon bytes behind each.
pub(super) const STRIDES: [usize; 3] = [PACKET_BYTES, PACKET_BYTES + 4, PACKET_BYTES + 16];
/// Tag of the extension that says the channels of Opus.
const OPUS_CHANNELS: u8 = 0x80;
/// More tracks than this are not described. Chosen, not measured.
const MOST_SKIPPED: usize = 32;
