//! Streams over RTP: from cameras, which are asked for them, and from those who publish by RTSP.

mod clocks;
mod feed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::sdp::{self, Media, SdpError};
use freshwire_media::unit::Kind;
use futures_util::StreamExt as _;
use percent_encoding::percent_decode_str;
use retina::client::{
    Credentials, Described, InitialTimestampPolicy, PacketItem, PlayOptions, Session, SessionGroup,
    SessionOptions, SetupOptions,
};
use url::Url;

use super::Outlet;
use crate::hub::HubError;

pub use feed::{Choice, ChoiceError, Feed};

/// Why a camera gives no stream, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// Not a URL, or not of RTSP.
    #[error("not a URL like rtsp://user:password@camera/path")]
    Url,
    /// The camera refuses, breaks the protocol or the connection.
    #[error("{}", first_line(.0))]
    Camera(#[from] retina::Error),
    /// It does not answer, or sends nothing any more.
    #[error("the camera {0} for {1:?}")]
    Silent(&'static str, Duration),
    /// It has ended the stream.
    #[error("the camera has ended the stream")]
    Ended,
    /// Its session description.
    #[error(transparent)]
    Description(#[from] SdpError),
    /// None of its tracks can be taken.
    #[error(transparent)]
    Tracks(#[from] ChoiceError),
    /// The stream is published by somebody else.
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// What follows it are addresses and positions in the connection.
fn first_line(error: &retina::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// A camera: its address, and what it wants to know of who asks.
#[derive(Clone)]
pub struct Camera {
    /// Without user and password.
    url: Url,
    credentials: Option<Credentials>,
}

impl Camera {
    /// Reads a URL, which may have a user and a password. They are never logged.
    pub fn parse(url: &str) -> Result<Self, PullError> {
        let mut url = Url::parse(url).map_err(|_| PullError::Url)?;
        if url.scheme() != "rtsp" || url.host_str().is_none_or(str::is_empty) {
            return Err(PullError::Url);
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let credentials = (!url.username().is_empty()).then(|| Credentials {
            username: decoded(url.username()),
            password: decoded(url.password().unwrap_or_default()),
        });
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| PullError::Url)?;
        Ok(Self { url, credentials })
    }

    /// Its address for people: without user, password and query, which may hold secrets as well.
    pub fn origin(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.to_string()
    }
}

/// Feeds a stream, or one of its renditions, from a camera over TCP. When the camera is away, it is asked again and again, at most every
/// [`LONGEST_PAUSE`]. Never returns; drop the future to stop.
pub async fn pull(camera: Camera, outlet: impl Into<Outlet>) {
    let outlet = outlet.into();
    let mut pause = SHORTEST_PAUSE;
    loop {
        let begun = Instant::now();
        let result = once(&camera, &outlet).await;
        if begun.elapsed() > LONGEST_PAUSE {
            pause = SHORTEST_PAUSE;
        }
        if let Err(error) = result {
            let camera = camera.origin();
            tracing::warn!(stream = outlet.name(), camera, %error, again_in = ?pause, "no stream from the camera");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn once(camera: &Camera, outlet: &Outlet) -> Result<(), PullError> {
    let group = Arc::new(SessionGroup::default());
    let options = SessionOptions::default()
        .creds(camera.credentials.clone())
        .user_agent("freshwire".to_owned())
        .session_group(group);
    let describe = Session::describe(camera.url.clone(), options);
    let mut session = within(describe, "did not answer").await??;
    let media = sdp::parse(session.sdp())?;
    let choice = Choice::new(&media)?;
    let places = places(&session, &media);
    for (place, index) in places.iter().enumerate() {
        if index.is_some_and(|index| choice.takes(index)) {
            within(session.setup(place, SetupOptions::default()), "did not answer").await??;
        }
    }
    // Times come from the packets and their sender reports, not from RTP-Info, which many cameras leave out or get wrong.
    let play = PlayOptions::default().initial_timestamp(InitialTimestampPolicy::Ignore);
    let mut session = within(session.play(play), "did not answer").await??;
    let mut publisher = outlet.publish(&camera.origin(), None)?;
    let mut feed = Feed::new(choice);
    tracing::info!(stream = outlet.name(), camera = camera.origin(), "the camera sends");
    loop {
        let item = within(session.next(), "sent nothing").await?.ok_or(PullError::Ended)??;
        match item {
            PacketItem::Rtp(packet) => {
                let place = places.get(packet.stream_id()).copied().flatten();
                // The library has checked the header.
                let _ = place.map(|index| feed.rtp(index, packet.raw(), &mut publisher));
            }
            PacketItem::Rtcp(packet) => {
                let place = places.get(packet.stream_id()).copied().flatten();
                place.into_iter().for_each(|index| feed.rtcp(index, packet.raw()));
            }
            _ => {}
        }
    }
}

/// For each stream of the library its place in the description as we read it, which leaves out what is neither video nor
/// audio.
fn places(session: &Session<Described>, media: &[Media]) -> Vec<Option<usize>> {
    let of =
        |kind| media.iter().enumerate().filter(move |(_, media)| media.kind == kind).map(|(index, _)| index);
    let (mut video, mut audio) = (of(Kind::Video), of(Kind::Audio));
    let place = |stream: &retina::client::Stream| match stream.media() {
        "video" => video.next(),
        "audio" => audio.next(),
        _ => None,
    };
    session.streams().iter().map(place).collect()
}

async fn within<T>(future: impl Future<Output = T>, what: &'static str) -> Result<T, PullError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| PullError::Silent(what, PATIENCE))
}

/// Longest pause between two attempts to get a stream.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_secret() {
        let camera = Camera::parse("rtsp://me:p%40ss@cam:8554/live?token=x").expect("valid");
        assert_eq!(camera.origin(), "rtsp://cam:8554/live");
        assert_eq!(camera.url.as_str(), "rtsp://cam:8554/live?token=x");
        let credentials = camera.credentials.expect("given");
        assert_eq!((credentials.username.as_str(), credentials.password.as_str()), ("me", "p@ss"));
    }

    #[test]
    fn what_is_no_camera() {
        for url in ["", "cam", "http://cam/live", "rtsp:///live"] {
            assert!(matches!(Camera::parse(url), Err(PullError::Url)), "{url}");
        }
    }
}
