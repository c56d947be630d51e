//! From what arrives to buffers with caps and times.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use freshwire_media::adts;
use freshwire_media::demux::{Assembler, Config, Event, recognize_byte_stream};
use freshwire_media::unit::{AudioCodec, AudioTrack, MediaTime, VideoTrack};
use freshwire_media::video::{Coded, Format, Parser};

use crate::media;
use crate::names::Codec;

/// The codec must be known after this number of bytes. Chosen, not measured.
const MOST_FIRST_BYTES: usize = 256 << 10;

/// In front of a temporal unit of AV1: units of Freshwire have none.
const TEMPORAL_DELIMITER: [u8; 2] = [0x12, 0];

/// Opus has this clock, whatever was encoded.
const OPUS_RATE: u32 = 48_000;

/// A buffer, with its caps where they are new.
pub(crate) struct Output {
    pub(crate) caps: Option<gst::Caps>,
    pub(crate) buffer: gst::Buffer,
}

/// Reads what arrives.
pub(crate) struct Reader {
    decoder: Decoder,
    outputs: VecDeque<Output>,
    /// The newest time, which the next is not before.
    latest: gst::ClockTime,
    /// Something is missing before the next buffer.
    has_gap: bool,
}

enum Decoder {
    /// It is not known yet what comes. The first bytes.
    Open(Vec<u8>),
    Video {
        format: Format,
        parser: Box<Parser>,
        track: Option<Arc<VideoTrack>>,
    },
    Audio(Box<Audio>),
}

struct Audio {
    codec: Codec,
    /// Frames of a byte stream.
    frames: adts::Frames,
    assembler: Option<Assembler>,
    track: Option<AudioTrack>,
}

impl Reader {
    /// A reader of this codec.
    pub(crate) fn new(codec: Codec) -> Self {
        let video = |format| Decoder::Video { format, parser: Box::new(Parser::new(format)), track: None };
        let decoder = match codec {
            Codec::Auto => Decoder::Open(Vec::new()),
            Codec::H264 => video(Format::H264),
            Codec::H265 => video(Format::H265),
            Codec::Av1 => video(Format::Av1),
            Codec::Vp9 => video(Format::Vp9),
            Codec::Opus | Codec::Aac => Decoder::Audio(Box::new(Audio {
                codec,
                frames: adts::Frames::new(),
                assembler: None,
                track: None,
            })),
        };
        Self { decoder, outputs: VecDeque::new(), latest: gst::ClockTime::ZERO, has_gap: true }
    }

    /// The next buffer.
    pub(crate) fn next(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A whole record, which was generated `age` before the running time `now`.
    pub(crate) fn record(&mut self, bytes: &[u8], age: Duration, now: gst::ClockTime) -> Result<(), String> {
        let age = gst::ClockTime::try_from(age).unwrap_or(gst::ClockTime::ZERO);
        self.push(bytes, true, now.saturating_sub(age))
    }

    /// Part of a byte stream.
    pub(crate) fn bytes(&mut self, bytes: &[u8], now: gst::ClockTime) -> Result<(), String> {
        self.push(bytes, false, now)
    }

    /// Something is missing before what comes next.
    pub(crate) fn gap(&mut self) {
        self.has_gap = true;
    }

    /// The stream has ended: what is there is complete.
    pub(crate) fn finish(&mut self, now: gst::ClockTime) {
        if let Decoder::Video { parser, .. } = &mut self.decoder {
            parser.finish();
            self.take_pictures(now);
        }
    }

    fn push(&mut self, bytes: &[u8], is_whole: bool, at: gst::ClockTime) -> Result<(), String> {
        if let Decoder::Open(first) = &mut self.decoder {
            first.extend_from_slice(bytes);
            let format = recognize_byte_stream(first);
            match format {
                Some(format) => {
                    let first = std::mem::take(first);
                    self.decoder =
                        Decoder::Video { format, parser: Box::new(Parser::new(format)), track: None };
                    return self.push(&first, is_whole, at);
                }
                None if first.len() > MOST_FIRST_BYTES => {
                    return Err("neither H.264 nor H.265 (Annex B); set codec".to_owned());
                }
                None => return Ok(()),
            }
        }
        match &mut self.decoder {
            Decoder::Open(_) => {}
            Decoder::Video { parser, .. } => {
                parser.push(bytes);
                if is_whole {
                    parser.complete();
                }
                self.take_pictures(at);
            }
            Decoder::Audio(audio) => {
                let outputs = audio.push(bytes, is_whole, at, self.latest)?;
                for output in outputs {
                    self.put(output);
                }
            }
        }
        Ok(())
    }

    fn take_pictures(&mut self, at: gst::ClockTime) {
        let Decoder::Video { format, parser, track } = &mut self.decoder else { return };
        let mut outputs = Vec::new();
        let at = at.max(self.latest);
        for coded in parser.by_ref() {
            // A picture above the limit is left out, and so is what depends on it.
            let Ok(coded) = coded else {
                self.has_gap = true;
                continue;
            };
            let is_new = track
                .as_ref()
                .is_none_or(|known| !Arc::ptr_eq(known, &coded.track) && **known != *coded.track);
            let caps = is_new.then(|| media::video_caps(&coded.track));
            *track = Some(Arc::clone(&coded.track));
            outputs.push(Output { caps, buffer: picture(coded, *format, at) });
        }
        for output in outputs {
            self.put(output);
        }
    }

    fn put(&mut self, mut output: Output) {
        let buffer = output.buffer.make_mut();
        if let Some(time) = buffer.dts_or_pts() {
            self.latest = time;
        }
        if std::mem::take(&mut self.has_gap) {
            buffer.set_flags(gst::BufferFlags::DISCONT);
        }
        self.outputs.push_back(output);
    }
}

fn picture(coded: Coded, format: Format, at: gst::ClockTime) -> gst::Buffer {
    let bytes = match format {
        Format::Av1 => [&TEMPORAL_DELIMITER, coded.bytes.as_slice()].concat(),
        _ => coded.bytes,
    };
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    if let Some(buffer) = buffer.get_mut() {
        buffer.set_dts(at);
        // Where pictures are reordered, records do not say when they are shown; decoders put them into order.
        if coded.reorder == 0 {
            buffer.set_pts(at);
        }
        buffer.set_duration(coded.frame_ns.map(|ns| gst::ClockTime::from_nseconds(ns.into())));
        if !coded.key {
            buffer.set_flags(gst::BufferFlags::DELTA_UNIT);
        }
    }
    buffer
}

impl Audio {
    fn push(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        at: gst::ClockTime,
        latest: gst::ClockTime,
    ) -> Result<Vec<Output>, String> {
        let at = at.max(latest);
        if self.codec == Codec::Opus {
            if !is_whole {
                return Err(
                    "a stream of Opus does not say where its packets end; use framing=chunked".to_owned()
                );
            }
            let track =
                AudioTrack { codec: AudioCodec::Opus, rate: OPUS_RATE, channels: channels_of_opus(bytes) };
            return Ok(self.assemble(track, bytes.to_vec(), at));
        }
        self.frames.push(bytes);
        let frames: Vec<_> = self.frames.by_ref().collect();
        Ok(frames
            .into_iter()
            .flat_map(|frame| self.assemble(frame.header.track(), frame.bytes, at))
            .collect())
    }

    fn assemble(&mut self, track: AudioTrack, bytes: Vec<u8>, at: gst::ClockTime) -> Vec<Output> {
        let is_new = self.track.as_ref() != Some(&track);
        if is_new {
            self.assembler = Some(Assembler::new(Config::default(), None, Some(track.clone())));
        }
        let mut caps = is_new.then(|| media::audio_caps(&track));
        self.track = Some(track);
        let Some(assembler) = &mut self.assembler else { return Vec::new() };
        assembler.audio(bytes, MediaTime::from_nanos(i64::try_from(at.nseconds()).unwrap_or(i64::MAX)));
        let mut outputs = Vec::new();
        for event in assembler.by_ref() {
            let Event::Unit(unit) = event else { continue };
            let mut buffer = gst::Buffer::from_mut_slice(unit.bytes);
            if let Some(buffer) = buffer.get_mut() {
                let time = u64::try_from(unit.head.pts.as_nanos()).unwrap_or(0);
                buffer.set_pts(gst::ClockTime::from_nseconds(time));
                buffer.set_duration(gst::ClockTime::from_nseconds(unit.head.duration_ns.into()));
            }
            outputs.push(Output { caps: caps.take(), buffer });
        }
        outputs
    }
}

/// The stereo flag of a packet's first byte (RFC 6716, 3.1).
fn channels_of_opus(packet: &[u8]) -> u8 {
    packet.first().map_or(2, |toc| 1 + (toc >> 2 & 1))
}
