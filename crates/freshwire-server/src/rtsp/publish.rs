//! One who publishes: from ANNOUNCE to the hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::sdp::{self, Media};
use freshwire_units::Rate;
use tokio::sync::mpsc;

use super::methods::{random, session_id};
use super::reply::Reply;
use super::transport::Offer;
use super::view::session_header;
use crate::hub::{HubError, Publisher, Stream};
use crate::ingest::rtsp::{Choice, ChoiceError, Feed};

/// A session that feeds a stream.
pub(super) struct PublishSession {
    /// Its name.
    pub(super) id: String,
    publisher: Publisher,
    feed: Feed,
    media: Vec<Media>,
    channels: BTreeMap<u8, Channel>,
    keys: mpsc::Receiver<()>,
    /// Who asks for key pictures.
    ssrc: u32,
    recording: bool,
    meter: Meter,
    malformed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    /// The packets of the track at this place of the description.
    Rtp(usize),
    /// Its reports.
    Rtcp(usize),
}

/// Why ANNOUNCE is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnnounceError {
    #[error(transparent)]
    Description(#[from] sdp::SdpError),
    #[error(transparent)]
    Tracks(#[from] ChoiceError),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl AnnounceError {
    /// How it is answered.
    pub(super) fn reply(&self) -> Reply {
        match self {
            Self::Description(_) => Reply::refuse(400, format!("Bad Request: {self}")),
            Self::Tracks(_) => Reply::refuse(415, format!("Unsupported Media Type: {self}")),
            Self::Hub(_) | Self::Io(_) => Reply::refuse(503, format!("Service Unavailable: {self}")),
        }
    }
}

impl PublishSession {
    /// Takes the stream, if nobody publishes it.
    pub(super) fn announce(
        description: &[u8],
        stream: &Arc<Stream>,
        origin: &str,
    ) -> Result<Self, AnnounceError> {
        let media = sdp::parse(description)?;
        let choice = Choice::new(&media)?;
        // One request that waits says as much as many.
        let (asks, keys) = mpsc::channel(1);
        Ok(Self {
            id: session_id()?,
            publisher: stream.publish(origin, Some(asks))?,
            feed: Feed::new(choice),
            media,
            channels: BTreeMap::new(),
            keys,
            ssrc: u32::from_be_bytes(random()?),
            recording: false,
            meter: Meter::new(),
            malformed: 0,
        })
    }

    /// Answers SETUP of a track. Tracks that the stream does not take are set up as well, as clients go on only then.
    pub(super) fn setup(&mut self, uri: &str, offers: impl Iterator<Item = Offer>) -> Reply {
        let Some(index) = named(uri, &self.media) else {
            return Reply::refuse(404, "Not Found: no track with this control was announced");
        };
        let wanted = offers.into_iter().find_map(|offer| match offer {
            Offer::Interleaved(channel) => Some(channel),
            Offer::Udp { .. } => None,
        });
        let Some(wanted) = wanted else {
            return Reply::refuse(461, "Unsupported Transport; publish over RTP/AVP/TCP");
        };
        self.channels
            .retain(|_, channel| !matches!(channel, Channel::Rtp(at) | Channel::Rtcp(at) if *at == index));
        let is_free =
            |channel: &u8| [*channel, *channel + 1].iter().all(|it| !self.channels.contains_key(it));
        let Some(channel) = wanted.into_iter().chain((0..u8::MAX).step_by(2)).find(is_free) else {
            return Reply::refuse(461, "Unsupported Transport; all channels are taken");
        };
        self.channels.insert(channel, Channel::Rtp(index));
        self.channels.insert(channel + 1, Channel::Rtcp(index));
        let transport = format!("RTP/AVP/TCP;unicast;interleaved={channel}-{};mode=record", channel + 1);
        Reply::ok().header("Transport", transport).header("Session", session_header(&self.id))
    }

    /// Answers RECORD.
    pub(super) fn record(&mut self) -> Reply {
        if self.channels.is_empty() {
            return super::methods::wrong_state("no track was set up");
        }
        self.recording = true;
        self.meter = Meter::new();
        Reply::ok().header("Session", session_header(&self.id))
    }

    /// Whether RECORD was asked for.
    pub(super) fn is_recording(&self) -> bool {
        self.recording
    }

    /// Answers PAUSE: packets are ignored until RECORD.
    pub(super) fn pause(&mut self) -> Reply {
        self.recording = false;
        Reply::ok().header("Session", session_header(&self.id))
    }

    /// Takes a packet. The error says why the connection has to end.
    pub(super) fn packet(&mut self, channel: u8, bytes: &[u8], most: Rate) -> Result<(), String> {
        if !self.meter.allows(bytes.len(), most) {
            return Err(format!("publishes more than {} bit/s", most.bits_per_sec()));
        }
        match self.channels.get(&channel) {
            Some(&Channel::Rtp(index)) if self.recording => {
                let result = self.feed.rtp(index, bytes, &mut self.publisher);
                if let Err(error) = result {
                    self.malformed += 1;
                    if self.malformed == 1 {
                        tracing::warn!(%error, channel, "an RTP packet is not one");
                    }
                }
            }
            Some(&Channel::Rtcp(index)) => self.feed.rtcp(index, bytes),
            _ => {}
        }
        Ok(())
    }

    /// Waits until a viewer needs a key picture, and gives what has to be sent for one.
    pub(super) async fn key_request(&mut self) -> Vec<u8> {
        loop {
            if self.keys.recv().await.is_none() {
                return std::future::pending().await;
            }
            let Some((index, packet)) = self.feed.key_request(self.ssrc) else { continue };
            let channel = self.channels.iter().find(|(_, channel)| **channel == Channel::Rtcp(index));
            if let Some((&channel, _)) = channel {
                let mut bytes = vec![b'$', channel, 0, packet.len() as u8];
                bytes.extend(packet);
                return bytes;
            }
        }
    }

    /// Lost packets, unusable frames and bytes that were no packets, for the log.
    pub(super) fn damage(&self) -> (u64, u64, u64) {
        let (lost, frames) = self.feed.damage();
        (lost, frames, self.malformed)
    }
}

/// The announced track that a URI names by its control; without one the only track.
fn named(uri: &str, media: &[Media]) -> Option<usize> {
    let uri = uri.trim_end_matches('/');
    let by_control = media.iter().position(|media| {
        let Some(control) = media.control.as_deref().filter(|control| !control.is_empty()) else {
            return false;
        };
        let control = control.trim_end_matches('/');
        // Behind the path, or behind the query, as players do.
        let path = uri.split_once('?').map_or(uri, |(path, _)| path);
        uri == control
            || [uri, path].iter().any(|uri| uri.strip_suffix(control).is_some_and(|at| at.ends_with('/')))
    });
    by_control.or((media.len() == 1).then_some(0))
}

/// Bytes in a window of time.
#[derive(Debug)]
struct Meter {
    since: Instant,
    bytes: u64,
}

impl Meter {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    fn allows(&mut self, bytes: usize, most: Rate) -> bool {
        self.bytes += bytes as u64;
        if self.since.elapsed() > WINDOW {
            *self = Self::new();
        }
        self.bytes <= most.bytes_in(WINDOW)
    }
}

const WINDOW: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use freshwire_media::sdp::MediaCodec;
    use freshwire_media::unit::Kind;

    use super::*;

    fn media(control: &str) -> Media {
        Media {
            kind: Kind::Video,
            codec: Ok(MediaCodec::Vp9),
            payload_type: 96,
            clock_rate: 90_000,
            channels: 1,
            control: Some(control.to_owned()),
        }
    }

    #[test]
    fn tracks_are_named_by_their_control() {
        let two = [media("streamid=0"), media("rtsp://h/cam/audio")];
        assert_eq!(named("rtsp://h/cam/streamid=0", &two), Some(0));
        assert_eq!(named("rtsp://h/cam?sig=a/b/streamid=0/", &two), Some(0));
        assert_eq!(named("rtsp://h/cam/streamid=0?sig=a/b", &two), Some(0));
        assert_eq!(named("rtsp://h/cam/audio", &two), Some(1));
        assert_eq!(named("rtsp://h/cam/streamid=10", &two), None);
        assert_eq!(named("rtsp://h/cam", &two), None);
        assert_eq!(named("rtsp://h/cam", &two[..1]), Some(0));
    }

    #[test]
    fn a_meter_stops_who_sends_too_much() {
        let mut meter = Meter::new();
        let most = Rate::from_bytes_per_sec(100);
        assert!(meter.allows(400, most));
        assert!(!meter.allows(1, most));
    }
}
