//! Streams that are published to other servers: by RTMP, or at a relay of Media over QUIC.
//!
//! ```text
//!  hub::Stream ─► ring ─► policy ─► Rtmp framer ─► Seal ─► target
//!                                                            │
//!  Session ◄── Reader ◄── pings, acknowledgements, status ◄──┘
//! ```
//!
//! A target is a viewer: what its path cannot carry in time is dropped before it leaves. The connection exists while the source
//! delivers, and is established again, with backoff, when it fails.

mod client;
mod error;
mod lag;
#[cfg(feature = "moq")]
mod relay;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::choice::Aim;
use freshwire_media::framing::rtmp::Rtmp;
use freshwire_media::unit::{AudioCodec, Tracks, VideoCodec};
use tokio::io::AsyncReadExt as _;

use self::client::{Publishing, Status};
use self::error::ForwardError;
use self::lag::Lag;
use self::shared::{End, Forward, SILENCE, stops};
use crate::config::{Destination, Target};
use crate::context::Context;
use crate::failures::Failures;
use crate::hub::{RenditionSelection, Stream, ViewRequest, Viewer, Wish};
use crate::net::Reader;
use crate::rtmp::wire::{CONTROL, Incoming, WireError};
use crate::targets::TargetState as State;

/// How often to see how far a target is behind, and whether it has ended.
const LOOK: Duration = Duration::from_millis(100);

/// How often to see whether a source delivers.
const LOOK_FOR_SOURCE: Duration = Duration::from_millis(500);

/// The pauses before a connection is tried again; they double. As for cameras.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The same of a relay: viewers behind it are to be back within 2 s of its restart.
const RELAY_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(400));

/// A relay that has refused a token is asked again after this long: its rules may change.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// How old pictures and sound may be when they arrive, where the hub has no latency. Platforms have a delay of some seconds, so each whole
/// picture counts; OBS drops from 700 ms of queue on, too (`drop_threshold_ms` in plugins/obs-outputs/rtmp-stream.c).
const LATENCY: Duration = Duration::from_millis(700);

/// How long an attempt that fails may take. One that lasted longer was a connection.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30);

/// How long a target may take to close after the goodbye. The server waits longer when it stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// A target that is behind by more is reported, at most once in [`BETWEEN_REPORTS`]. Chosen: viewers of a platform notice a second.
const FAR_BEHIND: Duration = Duration::from_secs(1);
const BETWEEN_REPORTS: Duration = Duration::from_secs(10);

/// Publishes a stream to a target whenever its source delivers. Returns when the server stops; drop the future to end it at once.
pub(crate) async fn run(context: Arc<Context>, name: String, target: Destination) {
    let status = context.targets.add(&name, &target);
    let forward = Forward { context, name, target, status };
    let mut stopping = forward.context.shutdown.clone();
    let (shortest, longest) = match &forward.target {
        Destination::Rtmp(_) => (SHORTEST_PAUSE, LONGEST_PAUSE),
        Destination::Relay(_) => RELAY_PAUSES,
    };
    let (mut pause, mut failures) = (shortest, Failures::default());
    loop {
        let (_wish, stream) = tokio::select! {
            found = forward.source() => found,
            () = stops(&mut stopping) => return,
        };
        let start = Instant::now();
        forward.status.set(State::Connecting);
        let ended = match &forward.target {
            Destination::Rtmp(target) => forward.serve(target, &stream).await,
            #[cfg(feature = "moq")]
            Destination::Relay(relay) => relay::announce(&forward, relay, &stream).await,
            // Its address cannot be read then.
            #[cfg(not(feature = "moq"))]
            Destination::Relay(_) => return,
        };
        let Forward { name, target, status, .. } = &forward;
        match ended {
            Ok(End::Stop) => return,
            Ok(End::Source) => {
                tracing::info!(stream = name, %target, "no longer published: the source has ended");
                status.set(State::Waiting);
                pause = shortest;
            }
            Err(error) => {
                if start.elapsed() > LONGEST_ATTEMPT {
                    pause = shortest;
                }
                if error.is_refusal() {
                    pause = REFUSED_PAUSE;
                }
                let reason = error.to_string();
                if failures.is_news(&reason, Instant::now()) {
                    tracing::warn!(stream = name, %target, %error, again_in = ?pause, "not published to the target");
                }
                status.set(State::Retrying { reason });
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stops(&mut stopping) => return,
                }
                pause = (pause * 2).min(longest);
            }
        }
    }
}

impl Forward {
    /// The stream, once its source delivers, and the wish for it: a source on demand delivers only while somebody wants it.
    async fn source(&self) -> (Wish, Arc<Stream>) {
        let delivers = |stream: &Stream| {
            stream.fed().is_some_and(|fed| fed.elapsed() < SILENCE) && stream.tracks().borrow().is_some()
        };
        loop {
            let found = self.context.hub.find(&self.name).map(|stream| (stream.wish(), stream));
            match found {
                Some(found) if delivers(&found.1) => return found,
                // The wish lasts meanwhile.
                _ => tokio::time::sleep(LOOK_FOR_SOURCE).await,
            }
        }
    }

    /// One connection.
    async fn serve(&self, target: &Target, stream: &Arc<Stream>) -> Result<End, ForwardError> {
        let mut stopping = self.context.shutdown.clone();
        let published = tokio::select! {
            published = client::publish(target) => published?,
            () = stops(&mut stopping) => return Ok(End::Stop),
        };
        let Publishing { conn, incoming, message_stream, is_enhanced } = published;
        let tracks = stream.tracks().borrow().clone();
        if let Some(codec) = tracks.and_then(|tracks| enhanced_codec(&tracks)).filter(|_| !is_enhanced) {
            let (stream, target) = (&self.name, &self.target);
            tracing::warn!(stream, %target, codec, "the target does not say that it takes this codec");
        }
        let peer = conn.peer_addr();
        let parts = conn.into_parts()?;
        parts.reader.outlast(stream.stall_timeout());
        let catalog = stream.catalog();
        let viewer = stream.view(ViewRequest {
            socket: parts.socket.into(),
            preface: Vec::new(),
            framer: Box::new(Rtmp::new(Arc::clone(&catalog), message_stream)),
            catalog,
            renditions: RenditionSelection::All,
            seal: parts.seal,
            protocol: if target.tls { "rtmps" } else { "rtmp" },
            peer,
            user: None,
            only: None,
            reorders: true,
            latency: Some(stream.latency().unwrap_or(LATENCY)),
            join_age: None,
            aim: Aim::Deadline,
        })?;
        self.status.set(State::Publishing { viewer: viewer.id() });
        tracing::info!(stream = self.name, target = %self.target, "published to the target");
        let mut session = Session { forward: self, target, stream, incoming, message_stream, reported: None };
        session.attend(viewer, parts.reader).await
    }
}

/// The codec that RTMP 1.0 does not have.
fn enhanced_codec(tracks: &Tracks) -> Option<&'static str> {
    let video = match tracks.video.as_ref()?.codec {
        VideoCodec::H264 { .. } => None,
        VideoCodec::H265 { .. } => Some("H.265"),
        VideoCodec::Av1 { .. } => Some("AV1"),
        VideoCodec::Vp9 { .. } => Some("VP9"),
        _ => Some("unknown"),
    };
    let is_opus = || tracks.audio.as_ref().is_some_and(|audio| audio.codec == AudioCodec::Opus);
    video.or_else(|| is_opus().then_some("Opus"))
}

/// The connection of a target that gets the stream.
struct Session<'a> {
    forward: &'a Forward,
    target: &'a Target,
    stream: &'a Stream,
    incoming: Incoming,
    message_stream: u32,
    /// When it was reported that the target is far behind; `None` while it is not.
    reported: Option<Instant>,
}

impl Session<'_> {
    async fn attend(&mut self, viewer: Viewer, mut reader: Reader) -> Result<End, ForwardError> {
        let mut removed = self.stream.removed();
        let mut stopping = self.forward.context.shutdown.clone();
        let mut look = tokio::time::interval(LOOK);
        let mut lag = Lag::default();
        let mut buffer = [0; 4096];
        let end = loop {
            tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    Ok(0) => return Err(ForwardError::ClosedByServer),
                    Ok(count) => self.take(&buffer[..count], &viewer)?,
                    Err(error) => return Err(ForwardError::Io(error)),
                },
                _ = look.tick() => {
                    if let Some(ended) = viewer.ended() {
                        return Err(ForwardError::Ended(ended));
                    }
                    let now = Instant::now();
                    let fed = self.stream.fed().unwrap_or(now);
                    if now.duration_since(fed) > SILENCE {
                        break End::Source;
                    }
                    let behind = lag.look(&viewer.sink_snapshot(), fed, now);
                    self.forward.status.set_behind(behind);
                    self.report(behind, &viewer, now);
                }
                _ = removed.wait_for(|&is_removed| is_removed) => break End::Source,
                () = stops(&mut stopping) => break End::Stop,
            }
        };
        viewer.finish_with(client::farewell(self.target.key(), self.message_stream));
        // The engine needs a moment for it, and the server closes when it has read it.
        let closed = async { while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
        let _ = tokio::time::timeout(FAREWELL, closed).await;
        Ok(end)
    }

    /// Takes bytes of the target.
    fn take(&mut self, bytes: &[u8], viewer: &Viewer) -> Result<(), ForwardError> {
        let protocol = |error: WireError| ForwardError::Protocol(error.to_string());
        self.incoming.push(bytes);
        let mut out = Vec::new();
        let mut result = Ok(());
        while let Some(message) = self.incoming.next().map_err(protocol)? {
            let Some(command) = client::take(&message, &mut out)? else { continue };
            match (command.name.as_str(), Status::of(&command)) {
                ("onStatus", Some(status)) if status.is_error() => {
                    result = Err(ForwardError::Refused { step: "take more", reason: status.text() });
                }
                ("close", _) => result = Err(ForwardError::ClosedByServer),
                _ => {}
            }
        }
        if let Some(acknowledgement) = self.incoming.due_acknowledgement() {
            client::write(CONTROL, &acknowledgement, &mut out);
        }
        if !out.is_empty() {
            viewer.interject(out);
        }
        result
    }

    /// Says when the target falls far behind, and when it has caught up.
    fn report(&mut self, behind: Option<Duration>, viewer: &Viewer, now: Instant) {
        let (stream, target) = (&self.forward.name, self.target);
        let is_far = behind.is_some_and(|behind| behind > FAR_BEHIND);
        let is_due = self.reported.is_none_or(|at| now.duration_since(at) >= BETWEEN_REPORTS);
        if is_far && is_due {
            self.reported = Some(now);
            let carries = viewer.sink_snapshot().path.map(|path| path.rate.bits_per_sec());
            tracing::warn!(stream, %target, ?behind, bits_per_sec = carries, "the target is behind");
        } else if !is_far && self.reported.is_some_and(|_| is_due) {
            self.reported = None;
            tracing::info!(stream, %target, ?behind, "the target has caught up");
        }
    }
}
