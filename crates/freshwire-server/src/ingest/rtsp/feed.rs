use std::time::{Duration, Instant, SystemTime};

use freshwire_media::demux::{Assembler, Config, Event};
use freshwire_media::depacketize::{Depacketizer, FormatError, Frame, Packet, PacketError, rtcp};
use freshwire_media::sdp::{CodecError, Media, MediaCodec};
use freshwire_media::timeline::Given;
use freshwire_media::unit::{AudioCodec, AudioTrack, Kind};
use freshwire_media::video::Format;
use freshwire_units::Timestamp;

use super::clocks::{Clocks, TrackClock};
use crate::hub::Publisher;

/// Which tracks of a session description a stream takes: the first of each kind that can be taken.
#[derive(Debug, Default)]
pub struct Choice {
    video: Option<Input>,
    audio: Option<Input>,
}

/// A session description without a track that can be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The codec, or its parameters.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The way it is cut into packets.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Neither video nor audio.
    #[error("no track that can be taken")]
    Empty,
}

/// Makes units of the RTP packets of a source and publishes them.
#[derive(Debug)]
pub struct Feed {
    video: Option<Input>,
    audio: Option<Input>,
    clocks: Clocks,
    assembler: Assembler,
    begun: Instant,
}

#[derive(Debug)]
struct Input {
    /// Its place in the session description.
    index: usize,
    depacketizer: Depacketizer,
    clock: TrackClock,
    /// Parameter sets that only the description has.
    sets: Vec<Vec<u8>>,
    coded: Coded,
}

#[derive(Clone, Debug)]
enum Coded {
    Video(Format),
    Audio(AudioTrack),
}

impl Choice {
    /// Chooses. The error is that of the first track.
    pub fn new(media: &[Media]) -> Result<Self, ChoiceError> {
        let mut choice = Self::default();
        let mut first_error = None;
        for (index, media) in media.iter().enumerate() {
            let place = match media.kind {
                Kind::Video => &mut choice.video,
                Kind::Audio => &mut choice.audio,
            };
            if place.is_some() {
                continue;
            }
            match Input::new(index, media) {
                Ok(input) => *place = Some(input),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        if choice.video.is_none() && choice.audio.is_none() {
            return Err(first_error.unwrap_or(ChoiceError::Empty));
        }
        Ok(choice)
    }

    /// Whether the track at this place of the description is taken.
    pub fn takes(&self, index: usize) -> bool {
        [&self.video, &self.audio].into_iter().flatten().any(|input| input.index == index)
    }
}

impl Input {
    fn new(index: usize, media: &Media) -> Result<Self, ChoiceError> {
        let codec = media.codec.as_ref().map_err(Clone::clone)?;
        let depacketizer = Depacketizer::new(media, codec)?;
        let sound = |codec| {
            Coded::Audio(AudioTrack { codec, rate: media.clock_rate, channels: media.channels.max(1) })
        };
        let (coded, sets) = match codec {
            MediaCodec::H264 { sets, .. } => (Coded::Video(Format::H264), sets.clone()),
            MediaCodec::H265 { sets, .. } => (Coded::Video(Format::H265), sets.clone()),
            MediaCodec::Av1 => (Coded::Video(Format::Av1), Vec::new()),
            MediaCodec::Vp9 => (Coded::Video(Format::Vp9), Vec::new()),
            MediaCodec::Aac { config, .. } => (sound(AudioCodec::Aac { config: config.clone() }), Vec::new()),
            MediaCodec::Opus => (sound(AudioCodec::Opus), Vec::new()),
            // A codec that is new to descriptions has no way through here yet.
            _ => return Err(CodecError::Unsupported(format!("{codec:?}")).into()),
        };
        Ok(Self { index, depacketizer, clock: TrackClock::new(media.clock_rate), sets, coded })
    }
}

impl Feed {
    /// A feed of these tracks.
    pub fn new(choice: Choice) -> Self {
        let format = choice.video.as_ref().and_then(|input| match input.coded {
            Coded::Video(format) => Some(format),
            Coded::Audio(_) => None,
        });
        let sound = choice.audio.as_ref().and_then(|input| match &input.coded {
            Coded::Audio(track) => Some(track.clone()),
            Coded::Video(_) => None,
        });
        Self {
            video: choice.video,
            audio: choice.audio,
            clocks: Clocks::default(),
            assembler: Assembler::new(Config::default(), format, sound),
            begun: Instant::now(),
        }
    }

    /// Takes an RTP packet of the track at this place of the description and publishes what it completes. Packets of tracks
    /// that are not taken are ignored.
    pub fn rtp(&mut self, index: usize, bytes: &[u8], publisher: &mut Publisher) -> Result<(), PacketError> {
        let packet = Packet::parse(bytes)?;
        let inputs = [&mut self.video, &mut self.audio];
        let Some(input) = inputs.into_iter().flatten().find(|input| input.index == index) else {
            return Ok(());
        };
        input.depacketizer.push(&packet);
        let now_ns = wall_nanos();
        self.assembler.arrive(Timestamp::from_nanos(saturated(self.begun.elapsed().as_nanos())));
        while let Some(frame) = input.depacketizer.poll_frame() {
            add(&mut self.assembler, &mut self.clocks, input, frame, now_ns);
        }
        for event in &mut self.assembler {
            match event {
                Event::Tracks(tracks) => publisher.tracks(tracks),
                Event::Unit(unit) => publisher.push(unit),
            }
        }
        Ok(())
    }

    /// Takes an RTCP packet of the track at this place of the description.
    pub fn rtcp(&mut self, index: usize, bytes: &[u8]) {
        let inputs = [&mut self.video, &mut self.audio];
        let Some(input) = inputs.into_iter().flatten().find(|input| input.index == index) else { return };
        if let Some(clock) = rtcp::sender_clock(bytes) {
            let ticks = input.depacketizer.place(clock.timestamp);
            self.clocks.report(&mut input.clock, &clock, ticks);
        }
    }

    /// The RTCP packet that asks for a key picture, and the place of the track it is about; `None` before the first
    /// packet. `receiver` is who asks.
    pub fn key_request(&self, receiver: u32) -> Option<(usize, [u8; 20])> {
        let video = self.video.as_ref()?;
        Some((video.index, rtcp::picture_loss(receiver, video.depacketizer.ssrc()?)))
    }

    /// Packets of the pictures that were lost.
    pub fn lost_of_video(&self) -> u64 {
        self.video.as_ref().map_or(0, |video| video.depacketizer.damage().lost)
    }

    /// Packets that were lost and frames that could not be used, for the log.
    pub fn damage(&self) -> (u64, u64) {
        let damage =
            [&self.video, &self.audio].into_iter().flatten().map(|input| input.depacketizer.damage());
        damage.fold((0, 0), |(lost, frames), damage| (lost + damage.lost, frames + damage.frames))
    }
}

fn add(assembler: &mut Assembler, clocks: &mut Clocks, input: &mut Input, frame: Frame, now_ns: i64) {
    let time = clocks.time(&mut input.clock, frame.ticks, now_ns);
    if matches!(input.coded, Coded::Audio(_)) {
        assembler.audio(frame.bytes, time);
        return;
    }
    if frame.gap {
        assembler.lost();
    }
    let mut bytes = Vec::new();
    for set in input.sets.drain(..) {
        bytes.extend([0, 0, 0, 1]);
        bytes.extend(set);
    }
    bytes.extend(frame.bytes);
    assembler.video(&bytes, Given::Shown(time));
}

/// Wall time goes on across sources, so that one that returns continues where it would be. Counted from 2020: a timeline
/// takes times of up to 36 years.
fn wall_nanos() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + YEAR_2020).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn saturated(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

const YEAR_2020: Duration = Duration::from_secs(1_577_836_800);
