//! A broadcast of this process at a relay.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use freshwire_media::unit::{AudioCodec, AudioTrack, VideoCodec, VideoTrack};
use moq_mux::catalog::VideoHint;
use moq_mux::import::{AudioFormat, AudioInit, Track, VideoFormat, VideoInit};
use moq_tokio::Connection;
use moq_tokio::connection::Monitor;
use url::Url;

use crate::error::MoqError;
use crate::session;

/// How long groups that are not the newest are kept for those who ask late. Upstream keeps half a minute, for playlists.
const KEPT: Duration = Duration::from_secs(5);

/// A group of sound is this long. A relay drops whole groups, and opens a QUIC stream for each. Chosen, not measured.
const SOUND_GROUP_MICROS: u64 = 100_000;

/// One broadcast at a relay; dropping it ends the broadcast and the connection.
pub struct Announcement {
    connection: Connection,
    monitor: Monitor,
    broadcast: moq_net::broadcast::Producer,
    catalog: moq_mux::catalog::Producer,
}

/// The path to the relay, as far as its connection knows it. A reading is at most some 100 ms old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Bits per second that the congestion control sends at most.
    pub rate: Option<u64>,
    /// The round trip.
    pub rtt: Option<Duration>,
    /// Bytes sent so far, with those of the protocol and repetitions.
    pub sent: u64,
    /// Bytes that were lost.
    pub lost: u64,
}

impl Announcement {
    /// Connects to the relay at `url` for a broadcast of this name below the path of `url`. It is announced by
    /// [`announce`](Self::announce), once it has tracks. `zero` is the wall time of the time 0 of its frames; it must not lie after now.
    ///
    /// # Errors
    ///
    /// If the relay cannot be reached, or refuses.
    pub async fn open(url: &Url, name: &str, zero: SystemTime) -> Result<Self, MoqError> {
        let origin = moq_tokio::origin::spawn();
        let connection = session::connect(url, |client| client.with_publisher(&origin)).await?;
        let failed = |reason: String| MoqError::Publish { track: name.to_owned(), reason };
        let mut broadcast = origin.create_broadcast(name).map_err(|error| failed(error.to_string()))?;
        let since = SystemTime::now().duration_since(zero).unwrap_or_default();
        let epoch = Instant::now().checked_sub(since).unwrap_or_else(Instant::now);
        let clock = moq_mux::Clock::at(epoch, zero).map_err(|error| failed(error.to_string()))?;
        let config = moq_mux::catalog::Config::default().with_clock(clock).with_max_age(KEPT);
        let catalog = moq_mux::catalog::Producer::new(&mut broadcast, config);
        let catalog = catalog.map_err(|error| failed(error.to_string()))?;
        let monitor = connection.monitor();
        Ok(Self { connection, monitor, broadcast, catalog })
    }

    /// Makes the broadcast known to the relay.
    ///
    /// # Errors
    ///
    /// If its connection has ended.
    pub fn announce(&self) -> Result<(), MoqError> {
        let announced = self.broadcast.announce(moq_net::origin::Route::default());
        announced.map_err(|error| MoqError::Ended(error.to_string()))
    }

    /// A track of pictures. `rate` in bits per second goes into the catalog, until it is measured.
    ///
    /// # Errors
    ///
    /// If there is a track of this name, or it cannot be described.
    pub fn video(&self, name: &str, track: &VideoTrack, rate: Option<u64>) -> Result<TrackWriter, MoqError> {
        // Keys have their parameter sets: an importer that has them would write them once more.
        let mut header = Vec::new();
        let (format, mut hint) = match &track.codec {
            VideoCodec::H264 { sps, pps } => {
                let config = moq_mux::codec::h264::config(&byte_stream(&[sps, pps]));
                (VideoFormat::Avc3, VideoHint::from(config.map_err(|error| refused(name, error))?))
            }
            VideoCodec::H265 { vps, sps, pps } => {
                let config = moq_mux::codec::h265::config(&byte_stream(&[vps, sps, pps]));
                (VideoFormat::Hev1, VideoHint::from(config.map_err(|error| refused(name, error))?))
            }
            VideoCodec::Av1 { sequence_header } => {
                header.clone_from(sequence_header);
                (VideoFormat::Av01, VideoHint::default())
            }
            &VideoCodec::Vp9 { profile, bit_depth } => {
                let codec = hang::catalog::VP9 { profile, bit_depth, level: VP9_LEVEL, ..Default::default() };
                let mut hint = VideoHint::default();
                hint.codec = Some(codec.into());
                (VideoFormat::Vp9, hint)
            }
            _ => return Err(refused(name, "its codec is none of H.264, H.265, AV1 and VP9")),
        };
        (hint.coded_width, hint.coded_height) = (Some(track.width), Some(track.height));
        hint.bitrate = rate;
        let mut init = VideoInit::new(format, header);
        init.hint = hint;
        let request = self.broadcast.reserve_track(name).map_err(|error| refused(name, error))?;
        let track = Track::video(request, self.catalog.reserve(), init);
        Ok(TrackWriter::new(track.map_err(|error| refused(name, error))?, false))
    }

    /// The track of sound.
    ///
    /// # Errors
    ///
    /// As [`video`](Self::video).
    pub fn audio(&self, name: &str, track: &AudioTrack) -> Result<TrackWriter, MoqError> {
        let (format, data) = match &track.codec {
            AudioCodec::Aac { config } => (AudioFormat::Aac, Bytes::copy_from_slice(config)),
            AudioCodec::Opus => {
                let head = moq_mux::codec::opus::Config::new(48_000, track.channels.into()).encode();
                (AudioFormat::Opus, head.map_err(|error| refused(name, error))?)
            }
            _ => return Err(refused(name, "its codec is none of AAC and Opus")),
        };
        let request = self.broadcast.reserve_track(name).map_err(|error| refused(name, error))?;
        let track = Track::audio(request, self.catalog.reserve(), AudioInit::new(format, data));
        Ok(TrackWriter::new(track.map_err(|error| refused(name, error))?, true))
    }

    /// The path to the relay.
    pub fn link(&self) -> Link {
        let stats = self.monitor.stats().unwrap_or_default();
        Link {
            rate: stats.estimated_send_rate.map(|rate| rate.as_bps()),
            rtt: stats.rtt,
            sent: stats.bytes_sent.unwrap_or_default(),
            lost: stats.bytes_lost.unwrap_or_default(),
        }
    }

    /// Waits for the end of the connection, and says how it ended.
    pub async fn ended(&self) -> MoqError {
        session::ended(&self.connection).await
    }
}

/// Level 4.1, full HD: a stream of VP9 does not say its own. Decoders do not insist.
const VP9_LEVEL: u8 = 41;

fn refused(track: &str, reason: impl std::fmt::Display) -> MoqError {
    MoqError::Publish { track: track.to_owned(), reason: reason.to_string() }
}

/// NAL units as a byte stream.
fn byte_stream(nals: &[&Vec<u8>]) -> Vec<u8> {
    nals.iter().flat_map(|nal| [0, 0, 0, 1].iter().chain(nal.iter()).copied()).collect()
}

/// Writes one track.
pub struct TrackWriter {
    track: Track,
    is_sound: bool,
    /// When the group of sound began.
    group: Option<u64>,
}

impl TrackWriter {
    fn new(track: Track, is_sound: bool) -> Self {
        Self { track, is_sound, group: None }
    }

    /// Writes a unit that is shown or heard at `micros`. A picture that is no key needs one before it.
    ///
    /// # Errors
    ///
    /// If its time lies before those of an earlier group, it is damaged, or the broadcast has ended.
    pub fn write(&mut self, micros: u64, bytes: Vec<u8>) -> Result<(), MoqError> {
        let failed = |name: String, reason: String| MoqError::Publish { track: name, reason };
        let time = moq_net::Timestamp::from_micros(micros)
            .map_err(|error| failed(self.track.name(), error.to_string()))?;
        if self.is_sound {
            let begin = *self.group.get_or_insert(micros);
            if micros.saturating_sub(begin) >= SOUND_GROUP_MICROS {
                self.group = Some(micros);
                self.track.cut(Some(time)).map_err(|error| failed(self.track.name(), error.to_string()))?;
            }
        }
        let written = self.track.decode(Bytes::from(bytes), Some(time));
        written.map_err(|error| failed(self.track.name(), error.to_string()))
    }

    /// A handle that says whether somebody reads it.
    pub fn demand(&self) -> Demand {
        Demand(self.track.demand())
    }
}

/// Whether somebody reads a track.
#[derive(Clone)]
pub struct Demand(moq_net::track::Demand);

impl Demand {
    /// Whether somebody reads it now.
    pub fn is_used(&self) -> bool {
        self.0.is_used()
    }
}
