//! Packets of a camera or a publisher as units of a stream.

use std::time::{Duration, Instant, SystemTime};

use freshwire_media::demux::{Assembler, Config, Event};
use freshwire_media::depacketize::{Depacketizer, FormatError, Frame, Packet, PacketError, rtcp};
use freshwire_media::sdp::{CodecError, Media, MediaCodec};
use freshwire_media::timeline::Given;
use freshwire_media::unit::{AudioCodec, AudioTrack, Kind};
use freshwire_media::video::Format;
use freshwire_record::Timestamp;

use super::clocks::{Clocks, TrackClock};
use crate::hub::Publisher;

/// Which tracks of a session description a stream takes: the first of each kind that can be taken.
#[derive(Debug, Default)]
pub struct TrackSelection {
    video: Option<Input>,
    audio: Option<Input>,
}

/// A session description without a track that can be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
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
    start: Instant,
    /// When something was published last, or since when packets come.
    fruitful: Option<Instant>,
    /// The lack of any track has been reported.
    reported: bool,
}

#[derive(Debug)]
struct Input {
    /// Its place in the session description.
    index: usize,
    depacketizer: Depacketizer,
    clock: TrackClock,
    /// When the newest packet came.
    arrived_ns: i64,
    /// Parameter sets that only the description has.
    sets: Vec<Vec<u8>>,
    coded: Coded,
}

#[derive(Clone, Debug)]
enum Coded {
    Video(Format),
    Audio(AudioTrack),
}

impl TrackSelection {
    /// Chooses. The error is that of the first track.
    ///
    /// # Errors
    ///
    /// If no track can be taken.
    pub fn new(media: &[Media]) -> Result<Self, SelectionError> {
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
            return Err(first_error.unwrap_or(SelectionError::Empty));
        }
        Ok(choice)
    }

    /// Leaves out the track at this place of the description.
    pub fn leave_out(&mut self, index: usize) {
        for input in [&mut self.video, &mut self.audio] {
            input.take_if(|input| input.index == index);
        }
    }

    /// Whether the track at this place of the description is taken.
    pub fn takes(&self, index: usize) -> bool {
        [&self.video, &self.audio].into_iter().flatten().any(|input| input.index == index)
    }
}

impl Input {
    fn new(index: usize, media: &Media) -> Result<Self, SelectionError> {
        let codec = media.codec.as_ref().map_err(Clone::clone)?;
        let depacketizer = Depacketizer::new(media, codec)?;
        let sound = |codec| {
            Coded::Audio(AudioTrack { codec, rate: media.clock_rate, channels: media.channels.max(1) })
        };
        let (coded, sets) = match codec {
            MediaCodec::H264 { sets, .. } => {
                (Coded::Video(Format::H264), usable(sets, |nal| matches!(nal[0] & 31, 7 | 8)))
            }
            MediaCodec::H265 { sets, .. } => {
                (Coded::Video(Format::H265), usable(sets, |nal| matches!(nal[0] >> 1 & 63, 32..=34)))
            }
            MediaCodec::Av1 => (Coded::Video(Format::Av1), Vec::new()),
            MediaCodec::Vp9 => (Coded::Video(Format::Vp9), Vec::new()),
            MediaCodec::Aac { config, .. } => (sound(AudioCodec::Aac { config: config.clone() }), Vec::new()),
            MediaCodec::Opus => (sound(AudioCodec::Opus), Vec::new()),
            // A codec that is new to descriptions has no way through here yet.
            _ => return Err(CodecError::Unsupported(format!("{codec:?}")).into()),
        };
        Ok(Self {
            index,
            depacketizer,
            clock: TrackClock::new(media.clock_rate),
            arrived_ns: wall_nanos(),
            sets,
            coded,
        })
    }
}

impl Feed {
    /// A feed of these tracks.
    pub fn new(choice: TrackSelection) -> Self {
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
            start: Instant::now(),
            fruitful: None,
            reported: false,
        }
    }

    /// Takes an RTP packet of the track at this place of the description and publishes what it completes. Packets of tracks
    /// that are not taken are ignored.
    ///
    /// # Errors
    ///
    /// If it is not an RTP packet. Further packets can be taken.
    pub fn rtp(&mut self, index: usize, bytes: &[u8], publisher: &mut Publisher) -> Result<(), PacketError> {
        let packet = Packet::parse(bytes)?;
        let inputs = [&mut self.video, &mut self.audio];
        let Some(input) = inputs.into_iter().flatten().find(|input| input.index == index) else {
            return Ok(());
        };
        input.depacketizer.push(&packet);
        let now_ns = wall_nanos();
        let before_ns = std::mem::replace(&mut input.arrived_ns, now_ns);
        self.assembler.arrive(Timestamp::from_nanos(saturated(self.start.elapsed().as_nanos())));
        while let Some(frame) = input.depacketizer.poll_frame() {
            let arrived_ns = if frame.is_overdue { before_ns } else { now_ns };
            add(&mut self.assembler, &mut self.clocks, input, frame, arrived_ns);
        }
        let now = Instant::now();
        let mut fruitful = *self.fruitful.get_or_insert(now);
        for event in &mut self.assembler {
            match event {
                Event::Tracks(tracks) => publisher.tracks(tracks),
                Event::Unit(unit) => {
                    publisher.push(unit);
                    fruitful = now;
                }
            }
        }
        self.fruitful = Some(fruitful);
        self.tell_fruitless(now.saturating_duration_since(fruitful), publisher);
        Ok(())
    }

    /// Says that packets come and nothing can be made of them, once until something can.
    fn tell_fruitless(&mut self, passed: Duration, publisher: &Publisher) {
        if passed < FRUITLESS {
            self.reported = false;
        } else if !std::mem::replace(&mut self.reported, true) {
            let inputs = [&self.video, &self.audio].into_iter().flatten();
            let malformed: u64 = inputs.map(|input| input.depacketizer.damage().malformed).sum();
            let ((lost, unusable), faults) = (self.damage(), self.assembler.faults());
            tracing::warn!(
                stream = publisher.name(),
                malformed,
                lost,
                unusable,
                undecodable = faults.undecodable,
                damaged = faults.damaged,
                "packets come, and no picture or sound can be made of them; does the source send parameter sets and keyframes?"
            );
        }
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

/// The parameter sets that are some. The rest is passed over: they mostly come with the pictures as well.
fn usable(sets: &[Vec<u8>], is_set: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    sets.iter().filter(|nal| nal.len() >= SHORTEST_SET && is_set(nal)).cloned().collect()
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
pub(crate) fn wall_nanos() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + YEAR_2020).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn saturated(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Packets that give nothing for this long are worth a message.
pub(crate) const FRUITLESS: Duration = Duration::from_secs(5);
/// Bytes of the shortest parameter set.
const SHORTEST_SET: usize = 3;
pub(crate) const YEAR_2020: Duration = Duration::from_secs(1_577_836_800);
