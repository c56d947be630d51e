//! Text messages between the player's page and the server, beside the stream.

use std::time::{Duration, SystemTime};

use freshwire_media::unit::{AudioCodec, MediaTime, Tracks};
use serde::{Deserialize, Serialize};

use crate::hub::{Stream, ViewerSnapshot, WEBRTC};
use crate::report::PathReport;
use crate::values::{HoldReason, WatcherSnapshot};

/// A request of the page.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Question {
    /// The server's time, asked at this time of the page's own clock.
    Ping {
        /// Comes back as it is.
        at: f64,
    },
    /// Not a question: a watcher of values with a window has handled this number of messages.
    Ack {
        /// Values handled so far, on this connection.
        received: u64,
    },
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Statement<'a> {
    Pong {
        at: f64,
        /// Milliseconds since 1970.
        wall_ms: f64,
        clock: Option<Clock>,
    },
    Stats {
        clock: Option<Clock>,
        /// The stream's tracks, if they are known: `video`, `audio`.
        kinds: Option<Vec<&'static str>>,
        offered: &'a [u64],
        sent: &'a [u64],
        missed: u64,
        /// Its name, the number to choose from, and the reason of the choice.
        rendition: Option<&'a str>,
        wanted: Option<&'a str>,
        renditions: usize,
        why: &'static str,
        drops: Vec<(String, u64)>,
        /// What the protocol does not carry, in words.
        left_out: Vec<&'static str>,
        path: Box<PathReport>,
    },
    /// The last one, over WebRTC: the members of a close frame.
    End { code: u16, reason: &'a str },
}

/// How a watcher of values is served.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct WatchReport {
    r#type: &'static str,
    /// Values sent, counted when they are committed.
    sent: u64,
    /// Values left out, because a newer one came or they were too old.
    dropped: u64,
    /// Keys whose newest value found no room yet.
    waiting_keys: usize,
    /// Why it is held back, and for how many seconds for what it has not read.
    held_by: Option<&'static str>,
    held_unread_s: Option<f64>,
    path: PathReport,
}

/// How a watcher of values is served, in words for its page.
pub(crate) fn watch_report(watcher: &WatcherSnapshot) -> String {
    let report = WatchReport {
        r#type: "stats",
        sent: watcher.sink.committed_by_layer.iter().sum(),
        dropped: watcher.dropped,
        waiting_keys: watcher.waiting_keys,
        held_by: watcher.held_by.map(HoldReason::name),
        held_unread_s: watcher.held_unread.map(|held| held.as_secs_f64()),
        path: PathReport::from(&watcher.sink),
    };
    // A structure of numbers has a text.
    serde_json::to_string(&report).unwrap_or_default()
}

/// A place of the stream's clock and the wall time that belongs to it, both in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Clock {
    media_ms: f64,
    wall_ms: f64,
}

impl Question {
    /// `None` if it is no question.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let question = serde_json::from_str(text).ok()?;
        match question {
            Self::Ping { at } => at.is_finite().then_some(question),
            Self::Ack { .. } => Some(question),
        }
    }
}

/// The answer to [`Question::Ping`].
pub(crate) fn pong(at: f64, clock: Option<(MediaTime, SystemTime)>, now: SystemTime) -> String {
    text(&Statement::Pong { at, wall_ms: wall_ms(now), clock: clock.map(Clock::from) })
}

/// The end of a session.
pub(crate) fn end(code: u16, reason: &str) -> String {
    text(&Statement::End { code, reason })
}

/// How a viewer is served.
pub(crate) fn report(viewer: &ViewerSnapshot, stream: &Stream) -> String {
    let layers =
        (0..viewer.offered.len()).rev().find(|&layer| viewer.offered[layer] > 0).map_or(0, |top| top + 1);
    // WebRTC shows pictures when they come, and not at the times of their order.
    let clock = if viewer.protocol == WEBRTC { stream.capture_clock() } else { stream.wall_clock() };
    text(&Statement::Stats {
        clock: clock.map(Clock::from),
        kinds: stream.tracks().borrow().as_deref().map(kinds),
        offered: &viewer.offered[..layers],
        sent: &viewer.sink.committed_by_layer[..layers],
        missed: viewer.missed,
        rendition: viewer.rendition.as_deref(),
        wanted: viewer.wanted.as_deref(),
        renditions: stream.present_renditions(),
        why: viewer.why,
        drops: viewer.sink.drops.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
        left_out: left_out(viewer, stream),
        path: Box::new(PathReport::from(&viewer.sink)),
    })
}

impl From<(MediaTime, SystemTime)> for Clock {
    fn from((media, wall): (MediaTime, SystemTime)) -> Self {
        Self { media_ms: media.as_nanos() as f64 / 1e6, wall_ms: wall_ms(wall) }
    }
}

/// What WebRTC does not carry of the stream.
fn left_out(viewer: &ViewerSnapshot, stream: &Stream) -> Vec<&'static str> {
    let tracks = stream.tracks().borrow().clone().unwrap_or_default();
    let is_aac = tracks.audio.as_ref().is_some_and(|audio| matches!(audio.codec, AudioCodec::Aac { .. }));
    let sound = (viewer.protocol == WEBRTC && is_aac).then_some("sound: WebRTC does not carry AAC");
    let pictures = (viewer.left_out > 0).then_some("pictures: WebRTC does not carry B pictures");
    sound.into_iter().chain(pictures).collect()
}

fn kinds(tracks: &Tracks) -> Vec<&'static str> {
    let video = tracks.video.as_ref().map(|_| "video");
    video.into_iter().chain(tracks.audio.as_ref().map(|_| "audio")).collect()
}

fn wall_ms(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}

fn text(statement: &Statement<'_>) -> String {
    serde_json::to_string(statement).expect("maps have text keys, numbers are finite")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_comes_back_with_the_time() {
        let Some(Question::Ping { at }) = Question::read(r#"{"type":"ping","at":12.5}"#) else {
            panic!("a question")
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(5_000);
        let clock = (MediaTime::from_nanos(2_500_000), now - Duration::from_secs(1));
        assert_eq!(
            pong(at, Some(clock), now),
            r#"{"type":"pong","at":12.5,"wall_ms":5000.0,"clock":{"media_ms":2.5,"wall_ms":4000.0}}"#
        );
    }

    #[test]
    fn any_text_is_a_question_or_none() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = Question::read(text);
        });
        for text in ["", "{}", r#"{"type":"ping"}"#, r#"{"type":"stats"}"#, r#"{"type":"ping","at":null}"#] {
            assert_eq!(Question::read(text), None, "{text}");
        }
    }
}
