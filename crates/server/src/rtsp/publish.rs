//! One who publishes: from ANNOUNCE to the hub.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use freshwire_media::sdp::{self, Media};
use freshwire_record::Rate;
use tokio::sync::{mpsc, watch};

use super::channel::Channel;
use super::common::{PACKET_COST, random, session_id};
use super::feed::{Feed, SelectionError, TrackSelection};
use super::receive::Receiver;
use super::reply::Reply;
use super::transport::{Offer, Profile};
use super::udp::Ports;
use super::view::{Ends, session_header};
use crate::config::{Limits, SourceError, check_published_name};
use crate::hub::{Hub, HubError, Publisher};
use crate::net::Meter;

/// A session that feeds a stream.
pub(super) struct PublishSession {
    /// Its name.
    pub(super) id: String,
    publisher: Publisher,
    feed: Feed,
    media: Vec<Media>,
    /// The controls of what is neither video nor audio.
    others: Vec<Option<String>>,
    channels: BTreeMap<u8, Channel>,
    datagrams: Receiver,
    /// Goes over to TCP when UDP is refused.
    prefers_tcp: bool,
    keys: mpsc::Receiver<()>,
    lost: LossLog,
    /// The source of requests for key pictures.
    ssrc: u32,
    recording: bool,
    /// It has recorded before.
    has_recorded: bool,
    /// When the last packet came, or since when it has not been recording.
    since: Instant,
    meter: Meter,
    malformed: u64,
}

/// An event of a session besides its connection's requests.
pub(super) enum Event {
    /// To be written to the connection.
    Write(Vec<u8>),
    /// A packet that came over UDP.
    Packet(Channel, Vec<u8>),
}

/// Why ANNOUNCE is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnnounceError {
    #[error(transparent)]
    Name(#[from] SourceError),
    #[error(transparent)]
    Description(#[from] sdp::SdpError),
    #[error(transparent)]
    Tracks(#[from] SelectionError),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl AnnounceError {
    /// How it is answered.
    pub(super) fn reply(&self) -> Reply {
        match self {
            Self::Name(_) | Self::Description(_) => Reply::refuse(400, format!("Bad Request: {self}")),
            Self::Tracks(_) => Reply::refuse(415, format!("Unsupported Media Type: {self}")),
            Self::Hub(HubError::RenditionName(_)) => Reply::refuse(400, format!("Bad Request: {self}")),
            Self::Hub(_) | Self::Io(_) => Reply::refuse(503, format!("Service Unavailable: {self}")),
        }
    }
}

impl PublishSession {
    /// Takes the stream, if nobody publishes it. One that is new begins when its description is accepted.
    pub(super) fn announce(
        description: &[u8],
        hub: &Hub,
        (name, rendition): (&str, Option<&str>),
        origin: &str,
    ) -> Result<Self, AnnounceError> {
        check_published_name(name)?;
        let sdp::Description { media, others, .. } = sdp::parse_whole(description)?;
        let choice = TrackSelection::new(&media)?;
        tell_left_out(&media, &choice, others.len());
        // One request that waits says as much as many.
        let (asks, keys) = mpsc::channel(1);
        Ok(Self {
            id: session_id()?,
            publisher: match rendition {
                None => hub.publish(name, origin, Some(asks)),
                Some(rendition) => hub.publish_rendition(name, rendition, origin, Some(asks)),
            }?,
            feed: Feed::new(choice),
            media,
            others,
            channels: BTreeMap::new(),
            datagrams: Receiver::new(),
            prefers_tcp: String::from_utf8_lossy(description).contains(LIBAVFORMAT),
            keys,
            lost: LossLog::default(),
            ssrc: u32::from_be_bytes(random()?),
            recording: false,
            has_recorded: false,
            since: Instant::now(),
            meter: Meter::new(),
            malformed: 0,
        })
    }

    /// Answers SETUP of a track. Tracks that the stream does not take are set up as well, as clients go on only then.
    pub(super) fn setup(
        &mut self,
        uri: &str,
        offers: impl Iterator<Item = (Profile, Offer)>,
        ends: &Ends,
    ) -> io::Result<Reply> {
        let Some(index) = named(uri, &self.media, &self.others) else {
            return Ok(Reply::refuse(404, "Not Found: no track with this control was announced"));
        };
        self.channels.retain(|_, channel| channel.track() != index);
        self.datagrams.remove(index);
        let takes_udp = !self.prefers_tcp && !ends.encrypted;
        let mut offers = offers.filter_map(|(profile, offer)| (profile == Profile::Avp).then_some(offer));
        let offer = offers.find(|offer| match offer {
            Offer::Interleaved(_) => true,
            Offer::Udp { .. } => takes_udp,
            Offer::Multicast => false,
        });
        let transport = match offer {
            None | Some(Offer::Multicast) => {
                return Ok(Reply::refuse(461, "Unsupported Transport; publish over RTP/AVP/TCP"));
            }
            Some(Offer::Interleaved(wanted)) => {
                let is_free =
                    |channel: &u8| [*channel, *channel + 1].iter().all(|it| !self.channels.contains_key(it));
                let Some(channel) = wanted.into_iter().chain((0..u8::MAX).step_by(2)).find(is_free) else {
                    return Ok(Reply::refuse(461, "Unsupported Transport; all channels are taken"));
                };
                self.channels.insert(channel, Channel::Rtp(index));
                self.channels.insert(channel + 1, Channel::Rtcp(index));
                format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", channel + 1)
            }
            Some(Offer::Udp { rtp, rtcp }) => {
                let ports = Ports::open(ends.local, ends.peer, rtp, rtcp)?;
                let pair = ports.transport()?;
                self.datagrams.add(index, ports)?;
                pair
            }
        };
        let transport = format!("{transport};mode=record");
        Ok(Reply::ok().header("Transport", transport).header("Session", session_header(&self.id)))
    }

    /// Reports the end of the stream that it feeds.
    pub(super) fn removed(&self) -> watch::Receiver<bool> {
        self.publisher.stream().removed()
    }

    /// Answers RECORD.
    pub(super) fn record(&mut self) -> Reply {
        if self.channels.is_empty() && self.datagrams.is_empty() {
            return super::common::wrong_state("no track was set up");
        }
        (self.recording, self.has_recorded, self.since) = (true, true, Instant::now());
        self.meter = Meter::new();
        Reply::ok().header("Session", session_header(&self.id))
    }

    /// Why it holds the stream's name for nothing: whoever announces has to record, and whoever records has to send.
    pub(super) fn overdue(&self, limits: &Limits) -> Option<String> {
        let (patience, missing) = match (self.recording, self.has_recorded) {
            (true, _) => (SILENCE, "no packet came"),
            (false, true) => (limits.idle_timeout, "it paused"),
            (false, false) => (limits.request_timeout, "no RECORD came"),
        };
        (self.since.elapsed() > patience).then(|| format!("{missing} for {patience:?}"))
    }

    /// Answers PAUSE: packets are ignored until RECORD.
    pub(super) fn pause(&mut self) -> Reply {
        if self.recording {
            (self.recording, self.since) = (false, Instant::now());
        }
        Reply::ok().header("Session", session_header(&self.id))
    }

    /// The track of a packet in the connection; `None` for an unused channel.
    pub(super) fn channel(&self, channel: u8) -> Option<Channel> {
        self.channels.get(&channel).copied()
    }

    /// Takes a packet; `None` is of nothing that was set up. The error says why the connection has to end.
    pub(super) fn packet(
        &mut self,
        channel: Option<Channel>,
        bytes: &[u8],
        most: Rate,
    ) -> Result<(), String> {
        if !self.meter.allows(bytes.len() + PACKET_COST, most) {
            return Err(format!("publishes more than {} bit/s", most.bits_per_sec()));
        }
        if self.recording && channel.is_some() {
            self.since = Instant::now();
        }
        match channel {
            Some(Channel::Rtp(index)) if self.recording => {
                let result = self.feed.rtp(index, bytes, &mut self.publisher);
                if let Err(error) = result {
                    self.malformed += 1;
                    if self.malformed == 1 {
                        tracing::warn!(%error, track = index, "malformed RTP packet");
                    }
                }
                self.lost.see(self.feed.lost_of_video());
            }
            Some(Channel::Rtcp(index)) => self.feed.rtcp(index, bytes),
            _ => {}
        }
        Ok(())
    }

    /// Waits until something came over UDP, or a viewer needs a key picture, or what was lost makes one needed.
    pub(super) async fn event(&mut self) -> Event {
        loop {
            if !self.lost.needs_key() {
                tokio::select! {
                    (channel, bytes) = self.datagrams.next() => return Event::Packet(channel, bytes),
                    Some(()) = self.keys.recv() => {}
                }
            }
            let Some((index, packet)) = self.feed.key_request(self.ssrc) else { continue };
            if self.datagrams.report(index, &packet) {
                continue;
            }
            let channel = self.channels.iter().find(|(_, channel)| **channel == Channel::Rtcp(index));
            if let Some((&channel, _)) = channel {
                let mut bytes = vec![b'$', channel, 0, packet.len() as u8];
                bytes.extend(packet);
                return Event::Write(bytes);
            }
        }
    }

    /// The stream's name, with that of the rendition behind `~`.
    pub(super) fn name(&self) -> String {
        self.publisher.name()
    }

    /// Lost packets, unusable frames and bytes that were no packets, for the log.
    pub(super) fn damage(&self) -> (u64, u64, u64) {
        let (lost, frames) = self.feed.damage();
        (lost, frames, self.malformed)
    }
}

/// Packets of pictures that did not come: a picture that was damaged is left out, with all that depends on it.
#[derive(Debug, Default)]
struct LossLog {
    packets: u64,
    asks: bool,
    asked: Option<Instant>,
}

impl LossLog {
    /// Packets lost so far.
    fn see(&mut self, packets: u64) {
        if packets > self.packets {
            if self.packets == 0 {
                tracing::warn!(
                    "packets of a publisher are missing; publish over TCP if they are lost on the way"
                );
            }
            self.packets = packets;
            self.asks = true;
        }
    }

    /// Whether a key picture has to be asked for, once for each loss and not all the time.
    fn needs_key(&mut self) -> bool {
        let needs = self.asks && self.asked.is_none_or(|asked| asked.elapsed() >= BETWEEN_ASKS);
        if needs {
            self.asks = false;
            self.asked = Some(Instant::now());
        }
        needs
    }
}

/// A source that sends nothing for this long is gone, and another one may publish.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);
/// A source needs this long to answer.
const BETWEEN_ASKS: Duration = Duration::from_millis(500);
/// How ffmpeg's library, which OBS uses as well, signs its descriptions. It asks for UDP first, and for TCP when that is
/// refused, as others (GStreamer) do not: over TCP nothing is lost, and nothing on the way stops it.
const LIBAVFORMAT: &str = "\na=tool:libavformat";

/// Says once which tracks are set up and dropped.
fn tell_left_out(media: &[Media], choice: &TrackSelection, others: usize) {
    for (track, media) in media.iter().enumerate().filter(|(track, _)| !choice.takes(*track)) {
        let why = media
            .codec
            .as_ref()
            .err()
            .map_or_else(|| "there is one of its kind".to_owned(), |e| e.to_string());
        tracing::warn!(track, why, "a track is not carried");
    }
    if others > 0 {
        tracing::warn!(tracks = others, "tracks of data or text are not carried");
    }
}

/// The announced track that a URI names by its control; without one the only track. Tracks that are neither video nor audio
/// have the places behind those that are.
fn named(uri: &str, media: &[Media], others: &[Option<String>]) -> Option<usize> {
    let uri = uri.trim_end_matches('/');
    let mut controls = media.iter().map(|media| &media.control).chain(others);
    let by_control = controls.position(|control| {
        let Some(control) = control.as_deref().filter(|control| !control.is_empty()) else {
            return false;
        };
        let control = control.trim_end_matches('/');
        // Behind the path, or behind the query, as players do.
        let path = uri.split_once('?').map_or(uri, |(path, _)| path);
        uri == control
            || [uri, path].iter().any(|uri| uri.strip_suffix(control).is_some_and(|at| at.ends_with('/')))
    });
    by_control.or((media.len() == 1 && others.is_empty()).then_some(0))
}

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
        assert_eq!(named("rtsp://h/cam/streamid=0", &two, &[]), Some(0));
        assert_eq!(named("rtsp://h/cam?sig=a/b/streamid=0/", &two, &[]), Some(0));
        assert_eq!(named("rtsp://h/cam/streamid=0?sig=a/b", &two, &[]), Some(0));
        assert_eq!(named("rtsp://h/cam/audio", &two, &[]), Some(1));
        assert_eq!(named("rtsp://h/cam/streamid=10", &two, &[]), None);
        assert_eq!(named("rtsp://h/cam", &two, &[]), None);
        assert_eq!(named("rtsp://h/cam", &two[..1], &[]), Some(0));
        let data = [Some("streamid=5".to_owned()), None];
        assert_eq!(named("rtsp://h/cam/streamid=5", &two[..1], &data), Some(1));
        assert_eq!(named("rtsp://h/cam/streamid=6", &two[..1], &data), None);
    }

    #[test]
    fn a_meter_stops_who_sends_too_much() {
        let mut meter = Meter::new();
        let most = Rate::from_bytes_per_sec(100);
        assert!(meter.allows(400, most));
        assert!(!meter.allows(1, most));
    }
}
