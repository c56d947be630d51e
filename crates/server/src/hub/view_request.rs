use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Aim;
use freshwire::datagram::DatagramPath;
use freshwire::sink::Seal;
use freshwire_media::framing::Framer;
use freshwire_media::unit::{Catalog, Kind};
use freshwire_record::parse_duration;
use percent_encoding::percent_decode_str;

use super::error::HubError;
use crate::config::check_rendition_name;

/// How a viewer is served.
pub struct ViewRequest {
    /// Where the stream goes.
    pub socket: ViewSocket,
    /// Bytes in front of the stream, such as the answer to PLAY; not yet encrypted.
    pub preface: Vec<u8>,
    /// Writes the stream.
    pub framer: Box<dyn Framer>,
    /// The catalog of `framer`: [`Stream::catalog`](super::Stream::catalog), one for each viewer.
    pub catalog: Arc<Catalog>,
    /// Which renditions of the stream it may get.
    pub renditions: RenditionSelection,
    /// Encrypts it, if it is encrypted.
    pub seal: Option<Box<dyn Seal>>,
    /// By which protocol: `rtsp`, `rtsps`, `rtp`, `webrtc`, `websocket`, `ts`, `mp4`, `freshwire`.
    pub protocol: &'static str,
    /// The viewer's address.
    pub peer: SocketAddr,
    /// The user's name, if one was required.
    pub user: Option<String>,
    /// The only track it takes; `None` for all that there are.
    pub only: Option<Kind>,
    /// Its decoder puts pictures into the order in which they are shown. If not, those that are not sent in this order are left out, with
    /// all that depends on them.
    pub reorders: bool,
    /// Overrides [`HubConfig::latency`](super::HubConfig::latency).
    pub latency: Option<Duration>,
    /// Overrides [`HubConfig::join_age`](super::HubConfig::join_age).
    pub join_age: Option<Duration>,
    /// What counts for the viewer. With [`Aim::Deadline`], there has to be a latency.
    pub aim: Aim,
}

/// Where a viewer's stream goes.
pub enum ViewSocket {
    /// A connection. Bytes to send before the stream go into `preface`. The caller keeps a clone for reading.
    Tcp(TcpStream),
    /// Datagrams: each piece of the framing is whole packets. Preface and seal do not count.
    Datagrams(Box<dyn DatagramPath>),
}

impl From<TcpStream> for ViewSocket {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket)
    }
}

/// Which renditions a viewer may get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenditionSelection {
    /// Whichever its path carries.
    All,
    /// Only what is published under the stream's own name, or else the first that is there.
    None,
    /// Only the one of this name.
    Named(String),
}

/// The query of a viewer's address.
const LATENCIES: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(10);

/// The value of `latency=` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("latency={0} is not a duration from 50ms to 10s")]
pub struct LatencyError(String);

impl ViewRequest {
    /// The renditions that an address asks for: by the name behind `~`, or by its query, such as `renditions=none`; `None` if it says
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`HubError::RenditionName`].
    pub fn renditions_of(
        rendition: Option<&str>,
        query: Option<&str>,
    ) -> Result<Option<RenditionSelection>, HubError> {
        if let Some(name) = rendition {
            check_rendition_name(name)?;
            return Ok(Some(RenditionSelection::Named(name.to_owned())));
        }
        let mut pairs = query.unwrap_or_default().split('&');
        Ok(match pairs.find_map(|pair| pair.strip_prefix("renditions=")) {
            None => None,
            Some("all") => Some(RenditionSelection::All),
            Some("none") => Some(RenditionSelection::None),
            Some(name) => {
                check_rendition_name(name)?;
                Some(RenditionSelection::Named(name.to_owned()))
            }
        })
    }

    /// The latency that the query of an address asks for, such as `latency=300ms`.
    ///
    /// # Errors
    ///
    /// If it is not a duration from 50 ms to 10 s.
    pub fn latency_asked(query: Option<&str>) -> Result<Option<Duration>, LatencyError> {
        let mut pairs = query.unwrap_or_default().split('&');
        let Some(value) = pairs.find_map(|pair| pair.strip_prefix("latency=")) else { return Ok(None) };
        let value = percent_decode_str(value).decode_utf8_lossy();
        let latency = parse_duration(&value).ok().filter(|latency| LATENCIES.contains(latency));
        latency.map(Some).ok_or_else(|| LatencyError(value.chars().take(32).collect()))
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
