use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::{Ended, LAYERS, Monitor, Seal, Sink, SinkSnapshot};
use freshwire_media::framing::Framer;
use freshwire_media::unit::Kind;
use freshwire_units::parse_duration;
use percent_encoding::percent_decode_str;

use super::stream::Stream;

/// How a viewer is served.
pub struct ViewRequest {
    /// The connection. What has to be sent before the stream goes into `preface`. The caller keeps a clone for reading.
    pub socket: TcpStream,
    /// Bytes in front of the stream, such as the answer to PLAY; not yet encrypted.
    pub preface: Vec<u8>,
    /// Writes the stream.
    pub framer: Box<dyn Framer>,
    /// Encrypts it, if it is encrypted.
    pub seal: Option<Box<dyn Seal>>,
    /// By which protocol: `rtsp`, `rtsps`, `websocket`, `ts`, `mp4`, `freshwire`.
    pub protocol: &'static str,
    /// The viewer's address.
    pub peer: SocketAddr,
    /// Who it is, if it had to say so.
    pub user: Option<String>,
    /// The only track it takes; `None` for all that there are.
    pub only: Option<Kind>,
    /// Overrides [`HubConfig::latency`](super::HubConfig::latency).
    pub latency: Option<Duration>,
    /// Overrides [`HubConfig::join_age`](super::HubConfig::join_age).
    pub join_age: Option<Duration>,
}

/// What a viewer may ask for in the query of its address.
const LATENCIES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(10);

/// What stands behind `latency=` is no latency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("latency={0}: a duration from 50ms to 10s is wanted")]
pub struct LatencyError(String);

impl ViewRequest {
    /// The latency that the query of an address asks for, such as `latency=300ms`.
    pub fn latency_asked(query: Option<&str>) -> Result<Option<Duration>, LatencyError> {
        let mut pairs = query.unwrap_or_default().split('&');
        let Some(value) = pairs.find_map(|pair| pair.strip_prefix("latency=")) else { return Ok(None) };
        let value = percent_decode_str(value).decode_utf8_lossy();
        let latency = parse_duration(&value).ok().filter(|latency| LATENCIES.contains(latency));
        latency.map(Some).ok_or_else(|| LatencyError(value.chars().take(32).collect()))
    }
}

/// One viewer; dropping it disconnects after the record that was begun.
pub struct Viewer {
    pub(super) sink: Sink,
    pub(super) stream: Arc<Stream>,
    pub(super) identity: Arc<Identity>,
}

/// Who a viewer is, and what its sink tells of it.
pub(super) struct Identity {
    pub(super) id: u64,
    pub(super) protocol: &'static str,
    pub(super) peer: SocketAddr,
    pub(super) user: Option<String>,
    pub(super) since: Instant,
    pub(super) latency: Option<Duration>,
    pub(super) monitor: Monitor,
}

/// What a viewer has got and missed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ViewerSnapshot {
    /// Number of the viewer, unique in this server's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: &'static str,
    /// Its address.
    pub peer: SocketAddr,
    /// Who it is.
    pub user: Option<String>,
    /// For how long it has been served.
    pub age: Duration,
    /// [`ViewRequest::latency`].
    pub latency: Option<Duration>,
    /// What the engine has counted: ages at commit, units sent and dropped by layer and by reason, horizon, rate.
    pub sink: SinkSnapshot,
    /// Pictures offered, by layer.
    pub offered: [u64; LAYERS],
    /// Units that could not even be queued, because the viewer's ring was full.
    pub missed: u64,
}

/// What a seat has counted: all of a snapshot that needs the stream's lock.
pub(super) struct SeatCounts {
    pub(super) identity: Arc<Identity>,
    pub(super) offered: [u64; LAYERS],
    pub(super) missed: u64,
}

impl SeatCounts {
    pub(super) fn snapshot(&self) -> ViewerSnapshot {
        let viewer = &self.identity;
        ViewerSnapshot {
            id: viewer.id,
            protocol: viewer.protocol,
            peer: viewer.peer,
            user: viewer.user.clone(),
            age: viewer.since.elapsed(),
            latency: viewer.latency,
            sink: viewer.monitor.stats(),
            offered: self.offered,
            missed: self.missed,
        }
    }
}

impl Viewer {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.identity.id
    }

    /// Sends bytes between two records, such as the answer to a request. A viewer that asks and does not read the answers
    /// is disconnected.
    pub fn interject(&self, bytes: Vec<u8>) {
        self.sink.interject(bytes);
    }

    /// Offers it no more units; those that are queued are dropped, what was begun is finished.
    pub fn pause(&self) {
        self.stream.pause(self.identity.id, true);
    }

    /// Goes on with the next keyframe.
    pub fn resume(&self) {
        self.stream.pause(self.identity.id, false);
    }

    /// How it ended, `None` while it is served. Nothing calls: look once a second.
    pub fn ended(&self) -> Option<Ended> {
        self.sink.ended()
    }

    /// What it has got and missed; `None` once it has ended.
    pub fn snapshot(&self) -> Option<ViewerSnapshot> {
        self.stream.counts(self.identity.id).map(|counts| counts.snapshot())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.stream.leave(self.identity.id, self.sink.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_asks_for_a_latency_in_its_address() {
        let asked = |query| ViewRequest::latency_asked(query);
        assert_eq!(asked(None), Ok(None));
        assert_eq!(asked(Some("expires=1&sig=ab")), Ok(None));
        assert_eq!(asked(Some("sig=ab&latency=1.5s")), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(asked(Some("latency=1%2e5s&x=")), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(asked(Some("max-latency=x&latencyx=y&latency")), Ok(None));
        for wrong in ["latency=", "latency=5", "latency=1ms", "latency=1h", "latency=-1s"] {
            assert!(asked(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
