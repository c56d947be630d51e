//! A broadcast of others at a relay.

use std::time::Duration;

use moq_mux::catalog::{CatalogFormat, Stream as _};
use moq_mux::container::Consumer;
use moq_tokio::Connection;
use url::Url;

use crate::error::MoqError;
use crate::listing::{Listing, SoundListing, VideoListing};
use crate::payload::Payload;
use crate::session;

/// Frames with more bytes are left out. As for other sources.
pub const MAX_FRAME_BYTES: usize = freshwire_media::h264::DEFAULT_MAX_UNIT_BYTES;

/// How long the relay may take to know the broadcast, besides the path's round trips. Chosen, not measured.
const ANNOUNCED: Duration = Duration::from_secs(5);

/// Round trips until the catalog is there: five where the publisher is as far from the relay (4.2 s behind 800 ms), and one for a loss.
const ROUND_TRIPS: u32 = 6;

/// How long a relay may take to answer for a track, which it may have to ask others for. Chosen, not measured.
const ANSWERED: Duration = Duration::from_secs(3);

/// A group that is not complete is given up when what follows it is this much newer. Chosen, not measured.
const OLDEST: Duration = Duration::from_millis(500);

/// What the relay has sent is kept for so long: frames are read at once. Twice [`OLDEST`]. Chosen, not measured.
const KEPT: Duration = Duration::from_secs(1);

/// Bytes of a broadcast that are kept, about: two of the largest groups that upstream takes.
const KEPT_BYTES: u64 = 2 * moq_net::group::MAX_CACHE_BYTES;

/// A broadcast that is read; dropping it ends the connection.
pub struct Subscription {
    connection: Connection,
    broadcast: moq_net::broadcast::Consumer,
    catalog: moq_mux::catalog::Consumer,
}

/// A frame of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it is shown or heard: microseconds since the broadcast's zero.
    pub micros: u64,
    /// It begins a group: decoding can begin here.
    pub is_key: bool,
    /// Frames before it were left out or lost.
    pub is_after_gap: bool,
    /// Its bytes, as [`freshwire_media::demux::Assembler`] takes them.
    pub bytes: Vec<u8>,
}

impl Subscription {
    /// Connects to the relay at `url` and reads the catalog of the broadcast of this name below its path. Reads no track.
    ///
    /// # Errors
    ///
    /// If the relay cannot be reached, refuses, or does not know the broadcast within some seconds.
    pub async fn open(url: &Url, name: &str) -> Result<Self, MoqError> {
        let mut config = moq_net::origin::Config::default();
        config.cache_duration = KEPT;
        let pool = moq_net::cache::Config::default().with_capacity(KEPT_BYTES).with_expiry(KEPT);
        config.pool = moq_net::cache::Pool::new(pool);
        let origin = moq_tokio::origin::spawn_config(config);
        let consumer = origin.consume();
        let connection = session::connect(url, |client| client.with_subscriber(origin)).await?;
        let unannounced = || MoqError::Unannounced { name: name.to_owned(), waited: ANNOUNCED };
        let found = async {
            let broadcast = consumer.routed_broadcast(name).await.map_err(|error| match error {
                moq_net::Error::Unauthorized => MoqError::Refused(error.to_string()),
                error => MoqError::Ended(error.to_string()),
            })?;
            let format = CatalogFormat::detect(name).unwrap_or_default();
            let catalog = moq_mux::catalog::Consumer::new(&broadcast, format).await;
            Ok((broadcast, catalog.map_err(|error| MoqError::Catalog(error.to_string()))?))
        };
        let waited = async {
            tokio::time::sleep(ANNOUNCED).await;
            let stats = connection.monitor().stats();
            tokio::time::sleep(stats.and_then(|stats| stats.rtt).unwrap_or_default() * ROUND_TRIPS).await;
        };
        let found = tokio::select! {
            found = found => found,
            () = waited => Err(unannounced()),
            error = session::ended(&connection) => Err(error),
        };
        let (broadcast, catalog) = found?;
        Ok(Self { connection, broadcast, catalog })
    }

    /// What the broadcast has: at first, and when that changes. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the catalog cannot be read, or the broadcast or the connection has ended.
    pub async fn listing(&mut self) -> Result<Listing, MoqError> {
        tokio::select! {
            next = self.catalog.next() => match next {
                Ok(Some(catalog)) => Ok(Listing::of(&catalog)),
                Ok(None) => Err(MoqError::Over),
                Err(error) => Err(MoqError::Catalog(error.to_string())),
            },
            error = session::ended(&self.connection) => Err(error),
        }
    }

    /// Reads a rendition of the pictures, from its newest key on.
    ///
    /// # Errors
    ///
    /// If the broadcast does not have it.
    pub fn video(
        &self,
        video: &VideoListing,
    ) -> impl Future<Output = Result<TrackReader, MoqError>> + Send + use<> {
        let container = moq_mux::catalog::hang::Container::try_from(&video.config);
        let priority = hang::catalog::PRIORITY.video;
        read(self.broadcast.clone(), video.name.clone(), priority, container, video.payload.clone())
    }

    /// Reads the sound.
    ///
    /// # Errors
    ///
    /// As [`video`](Self::video).
    pub fn sound(
        &self,
        sound: &SoundListing,
    ) -> impl Future<Output = Result<TrackReader, MoqError>> + Send + use<> {
        let container = moq_mux::catalog::hang::Container::try_from(&sound.config);
        let priority = hang::catalog::PRIORITY.audio;
        read(self.broadcast.clone(), sound.name.clone(), priority, container, Payload::Whole)
    }
}

async fn read(
    broadcast: moq_net::broadcast::Consumer,
    name: String,
    priority: u8,
    container: Result<moq_mux::catalog::hang::Container, moq_mux::Error>,
    payload: Payload,
) -> Result<TrackReader, MoqError> {
    let failed =
        |reason: &dyn std::fmt::Display| MoqError::Read { track: name.clone(), reason: reason.to_string() };
    let unanswered = |error: moq_net::Error| if is_over(&error) { MoqError::Over } else { failed(&error) };
    let container = container.map_err(|error| failed(&error))?;
    let wanted = moq_net::track::Subscription::default().with_priority(priority).with_max_age(OLDEST);
    let track = broadcast.track(&name).map_err(unanswered)?;
    let answered = tokio::time::timeout(ANSWERED, track.subscribe(wanted)).await;
    let track = answered.map_err(|_| failed(&format!("no answer within {ANSWERED:?}")))?;
    let track = track.map_err(unanswered)?;
    let consumer = Consumer::new(track, container);
    Ok(TrackReader { name, consumer, payload, breaks: 0, has_gap: false, is_damaged: false })
}

/// Reads one track.
pub struct TrackReader {
    name: String,
    consumer: Consumer<moq_mux::catalog::hang::Container>,
    payload: Payload,
    /// Breaks of the time line so far.
    breaks: u64,
    has_gap: bool,
    is_damaged: bool,
}

impl TrackReader {
    /// The next frame; `None` at the end of the track. Cancel safe.
    ///
    /// # Errors
    ///
    /// If the track cannot be read any more.
    pub async fn next(&mut self) -> Result<Option<Frame>, MoqError> {
        loop {
            let read = self.consumer.read().await;
            let failed = |error: moq_mux::Error| match error {
                moq_mux::Error::Moq(error) if is_over(&error) => MoqError::Over,
                error => MoqError::Read { track: self.name.clone(), reason: error.to_string() },
            };
            let Some(frame) = read.map_err(failed)? else { return Ok(None) };
            let breaks = self.consumer.discontinuity();
            self.has_gap |= std::mem::replace(&mut self.breaks, breaks) != breaks;
            // A marker of a group's end has no bytes.
            if frame.payload.is_empty() {
                continue;
            }
            let bytes = self.payload.unit(&frame.payload, frame.keyframe);
            let bytes = bytes.ok().filter(|bytes| bytes.len() <= MAX_FRAME_BYTES);
            let (Some(bytes), Ok(micros)) = (bytes, u64::try_from(frame.timestamp.as_micros())) else {
                if !std::mem::replace(&mut self.is_damaged, true) {
                    tracing::warn!(
                        track = self.name,
                        "a damaged or too large frame is left out; later ones are not logged"
                    );
                }
                self.has_gap = true;
                continue;
            };
            let is_after_gap = std::mem::take(&mut self.has_gap);
            return Ok(Some(Frame { micros, is_key: frame.keyframe, is_after_gap, bytes }));
        }
    }
}

/// Whether nobody serves the broadcast any more. This subscription then stays without it, also where another publisher announces the name.
fn is_over(error: &moq_net::Error) -> bool {
    use moq_net::{Error, StreamError};
    matches!(error, Error::Unroutable | Error::Stream(StreamError::Unroutable))
}
