//! The tags of FLV, as RTMP carries them, with the codecs of enhanced RTMP.

mod header;
mod tag;

use std::sync::Arc;

use freshwire_record::Timestamp;

use self::header::NalHeader;
use self::tag::{SoundFormat, SoundTag, VideoTag};
use super::assembler::{Assembler, Faults};
use super::event::{Config, Event};
use crate::rtmp::amf0::Value;
use crate::timeline::{Given, Unwrap};
use crate::unit::{AudioTrack, MediaTime};
use crate::video::Format;

/// Makes units of the tags of one stream.
///
/// Push tags, take events until `None`, push again. Memory: as [`Assembler`], and the sequence headers.
#[derive(Debug)]
pub struct Flv {
    assembler: Assembler,
    max_unit_bytes: usize,
    clock: Unwrap,
    /// The time of the first tag, and what is added to the times of all.
    origin: MediaTime,
    offset_ns: Option<i64>,
    video: Option<Video>,
    sound: Option<(SoundFormat, Arc<AudioTrack>)>,
    damaged: u64,
    /// Pictures, and frames of sound, before their sequence header.
    headerless: u64,
    skipped: Vec<String>,
}

/// The pictures behind their sequence header.
#[derive(Debug)]
struct Video {
    format: Format,
    length_bytes: usize,
    /// What the next picture is preceded by: parameter sets, or a sequence header OBU.
    preface: Vec<u8>,
}

impl Flv {
    /// A reader whose first tag has the time `origin`.
    pub fn new(config: Config, origin: MediaTime) -> Self {
        Self {
            assembler: Assembler::new(config, None, None),
            max_unit_bytes: config.max_unit_bytes,
            clock: Unwrap::new(32),
            origin,
            offset_ns: None,
            video: None,
            sound: None,
            damaged: 0,
            headerless: 0,
            skipped: Vec::new(),
        }
    }

    /// Tells when the tags arrive that are pushed next; see [`Assembler::arrive`].
    pub fn arrive(&mut self, now: Timestamp) {
        self.assembler.arrive(now);
    }

    /// Takes the body of a data tag, such as `onMetaData`: which tracks to wait for.
    pub fn data(&mut self, values: &[Value]) {
        for fields in values {
            if let Some(format) = fields.get("videocodecid").and_then(announced) {
                self.assembler.expect_video(Some(self.video.as_ref().map_or(format, |video| video.format)));
            }
            let is_silent = |codec: &Value| matches!(codec, Value::Null) || codec.as_number() == Some(0.0);
            if self.sound.is_none() && fields.get("audiocodecid").is_some_and(|codec| !is_silent(codec)) {
                self.assembler.expect_audio(true);
            }
        }
    }

    /// Takes the body of a video tag.
    pub fn video(&mut self, timestamp: u32, body: &[u8]) {
        let time = self.time(timestamp);
        match tag::video(body) {
            VideoTag::Header { format, bytes } => self.video_header(format, bytes),
            VideoTag::Picture { format, shift_ns, bytes } => self.picture(format, bytes, time, shift_ns),
            VideoTag::Other => {}
            VideoTag::Unsupported(name) => self.skip(name),
            VideoTag::Short => self.damaged += 1,
        }
    }

    fn video_header(&mut self, format: Format, bytes: &[u8]) {
        // Some programs announce the end of a stream by a header without content.
        if bytes.is_empty() && format != Format::Vp9 {
            return;
        }
        let parsed = match format {
            Format::H264 => header::h264(bytes),
            Format::H265 => header::h265(bytes),
            Format::Av1 => header::av1(bytes).map(|obus| NalHeader { length_bytes: 0, sets: obus.to_vec() }),
            Format::Vp9 => Some(NalHeader::default()),
        };
        let Some(NalHeader { length_bytes, sets }) = parsed else {
            self.damaged += 1;
            return;
        };
        self.assembler.expect_video(Some(format));
        self.video = Some(Video { format, length_bytes, preface: sets });
    }

    fn picture(&mut self, format: Format, bytes: &[u8], time: MediaTime, shift_ns: i64) {
        if format == Format::Vp9 && self.video.is_none() {
            // Its header says nothing that the pictures do not say.
            self.video_header(format, &[]);
        }
        let Some(video) = self.video.as_mut().filter(|video| video.format == format) else {
            self.headerless += 1;
            return;
        };
        if bytes.is_empty() {
            return;
        }
        let mut coded = Vec::with_capacity(bytes.len() + video.preface.len() + 64);
        let has_header = format == Format::Av1 && begins_with_sequence(bytes);
        if !has_header {
            coded.extend_from_slice(&video.preface);
        }
        let whole = match format {
            Format::H264 | Format::H265 => header::byte_stream(bytes, video.length_bytes, &mut coded),
            Format::Av1 | Format::Vp9 => {
                coded.extend_from_slice(bytes);
                Some(())
            }
        };
        if whole.is_none() || coded.len() > self.max_unit_bytes {
            self.damaged += 1;
            self.assembler.lost();
            return;
        }
        video.preface.clear();
        let dts = time;
        let pts = MediaTime::from_nanos(time.as_nanos().saturating_add(shift_ns));
        self.assembler.video(&coded, Given::Both { pts, dts });
    }

    /// Takes the body of an audio tag.
    pub fn audio(&mut self, timestamp: u32, body: &[u8]) {
        let time = self.time(timestamp);
        match tag::sound(body) {
            SoundTag::Header { format, bytes } => self.sound_header(format, bytes),
            SoundTag::Frame { format, shift_ns, bytes } => {
                if format == SoundFormat::Opus && self.sound.is_none() {
                    self.sound_header(format, &[]);
                }
                if self.sound.as_ref().is_none_or(|(known, _)| *known != format) {
                    self.headerless += 1;
                } else if !bytes.is_empty() {
                    let time = MediaTime::from_nanos(time.as_nanos().saturating_add(shift_ns));
                    self.assembler.audio(bytes.to_vec(), time);
                }
            }
            SoundTag::Other => {}
            SoundTag::Unsupported(name) => self.skip(name),
            SoundTag::Short => self.damaged += 1,
        }
    }

    fn sound_header(&mut self, format: SoundFormat, bytes: &[u8]) {
        let track = match format {
            SoundFormat::Aac => header::aac(bytes),
            SoundFormat::Opus => header::opus(bytes),
        };
        let Some(track) = track else {
            self.damaged += 1;
            return;
        };
        if self.sound.as_ref().is_none_or(|(_, known)| **known != track) {
            let track = Arc::new(track);
            self.assembler.audio_track(&track);
            self.sound = Some((format, track));
        }
    }

    /// Tells that the source has ended. Take the last events.
    pub fn finish(&mut self) {
        self.assembler.finish();
    }

    /// Descriptions of tracks that are not used, each once.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        let mut faults = self.assembler.faults();
        faults.damaged += self.damaged;
        faults.undecodable += self.headerless;
        faults
    }

    /// Why nothing has been given although tags come, in words for a person.
    pub fn complaint(&self) -> String {
        if self.video.is_none() && self.sound.is_none() {
            let tracks = if self.skipped.is_empty() {
                String::new()
            } else {
                format!("; {}", self.skipped.join(", "))
            };
            return format!("no sequence header has come{tracks}");
        }
        let Faults { damaged, undecodable, .. } = self.faults();
        format!("no keyframe has come; {undecodable} pictures were left out, {damaged} tags damaged")
    }

    fn skip(&mut self, name: String) {
        if self.skipped.len() < MOST_SKIPPED && !self.skipped.contains(&name) {
            self.skipped.push(name);
        }
    }

    fn time(&mut self, timestamp: u32) -> MediaTime {
        let own = MediaTime::from_ticks(self.clock.extend(timestamp.into()), 1000).as_nanos();
        let offset = *self.offset_ns.get_or_insert(self.origin.as_nanos().saturating_sub(own));
        MediaTime::from_nanos(own.saturating_add(offset))
    }
}

/// Yields `None` when more tags are needed.
impl Iterator for Flv {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.assembler.next()
    }
}

/// The format that metadata announce: FLV's number of a codec, or a four-letter code as a number or as a text.
fn announced(codec: &Value) -> Option<Format> {
    if let Some(code) = codec.as_str() {
        return tag::video_format(*code.as_bytes().first_chunk()?);
    }
    match codec.as_number()? {
        7.0 => Some(Format::H264),
        12.0 => Some(Format::H265),
        code if code > 255.0 => tag::video_format((code as u32).to_be_bytes()),
        _ => None,
    }
}

/// Whether a temporal unit begins with a sequence header, perhaps behind a temporal delimiter.
fn begins_with_sequence(mut obus: &[u8]) -> bool {
    if let Some(rest) = obus.strip_prefix(&[0x12, 0]) {
        obus = rest;
    }
    obus.first().is_some_and(|header| header >> 3 & 15 == 1)
}

/// Tracks that are named. The names come from the source.
const MOST_SKIPPED: usize = 8;

#[cfg(test)]
mod tests;
