//! What the element and its track sinks share while it is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use freshwire_media::unit::Kind;
use freshwire_server::hub::Stream;
use gst::prelude::*;
use tokio::sync::mpsc;

use super::settings::Settings;
use crate::feed::{Feed, Frame, Outlet};
use crate::line::{Line, LineStats};
use crate::media::Media;
use crate::servers::ServerUse;

/// Why a buffer was not taken.
pub(super) enum Refusal {
    /// The element is not open, or must not wait.
    Flushing,
    /// What went wrong.
    Failed(String),
}

#[derive(Default)]
pub(super) struct Session {
    open: Mutex<Option<Open>>,
    properties: Mutex<Properties>,
    /// Set while nothing may block.
    flushing: Arc<AtomicBool>,
}

/// What there is between READY and PAUSED, in the order in which it ends.
struct Open {
    feed: Feed,
    keys: Option<JoinHandle<()>>,
    server: Option<ServerUse>,
}

/// Values of read-only properties: apart from `open`, which a full ring may hold for long.
#[derive(Default)]
struct Properties {
    urls: Vec<String>,
    key: Option<String>,
    stats: Option<Stats>,
}

enum Stats {
    Server(Arc<Stream>),
    Line(Arc<LineStats>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is of one field.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Opens it for pads of these kinds. `request_key` asks the encoder for a keyframe.
    pub(super) fn open(
        &self,
        settings: &Settings,
        kinds: &[Kind],
        request_key: impl Fn() + Send + 'static,
    ) -> Result<(), String> {
        self.flushing.store(false, Ordering::Relaxed);
        let (outlet, keys, server, properties) = match &settings.location {
            Some(location) => {
                if kinds.len() > 1 {
                    let remedy = "use an element for pictures and another for sound";
                    return Err(format!("a location takes one stream; {remedy}"));
                }
                let line = settings.line(location, kinds.first() != Some(&Kind::Audio))?;
                let line = Line::open(line, Arc::clone(&self.flushing))?;
                let key = line.public_key().map(|key| key.to_string());
                let scheme = if key.is_some() { "a1" } else { "tcp" };
                let url = line.local_address().map(|address| format!("{scheme}://{address}"));
                let properties = Properties {
                    urls: url.into_iter().collect(),
                    key,
                    stats: Some(Stats::Line(line.stats())),
                };
                (Outlet::Line(Box::new(line)), None, None, properties)
            }
            None => {
                let server = ServerUse::take(&settings.server()?)?;
                let name = settings.stream();
                let (publisher, requests) = server.publish(name)?;
                let keys = pass_on(requests, request_key)?;
                let properties = Properties {
                    urls: server.urls(name),
                    key: None,
                    stats: server.stream(name).map(Stats::Server),
                };
                (Outlet::Server(publisher), Some(keys), Some(server), properties)
            }
        };
        let feed = Feed::new(outlet, kinds.iter().copied());
        *lock(&self.properties) = properties;
        *lock(&self.open) = Some(Open { feed, keys, server });
        Ok(())
    }

    /// Ends it. Receivers get the record in progress, viewers the pictures in progress.
    pub(super) fn close(&self) {
        let Some(Open { feed, keys, server, .. }) = lock(&self.open).take() else { return };
        // The publisher goes with it, and with that the other end of what the thread waits for.
        *lock(&self.properties) = Properties::default();
        drop(feed);
        if let Some(keys) = keys {
            // It has nothing to panic with.
            let _ = keys.join();
        }
        drop(server);
    }

    pub(super) fn set_flushing(&self, flushing: bool) {
        self.flushing.store(flushing, Ordering::Relaxed);
    }

    /// Adds a pad. Returns `false` if the stream has already started without it.
    pub(super) fn add(&self, kind: Kind) -> bool {
        lock(&self.open).as_mut().is_none_or(|open| open.server.is_some() && open.feed.add(kind))
    }

    pub(super) fn remove(&self, kind: Kind) -> Result<(), String> {
        lock(&self.open).as_mut().map_or(Ok(()), |open| open.feed.remove(kind))
    }

    pub(super) fn set_media(&self, media: Media) -> Result<(), String> {
        lock(&self.open).as_mut().map_or(Ok(()), |open| open.feed.set_media(media))
    }

    /// Takes a buffer. True: the encoder should make a keyframe.
    pub(super) fn push(&self, frame: Frame) -> Result<bool, Refusal> {
        let mut open = lock(&self.open);
        let Some(Open { feed, .. }) = &mut *open else { return Err(Refusal::Flushing) };
        feed.push(frame).map_err(Refusal::Failed)?;
        Ok(match feed.outlet() {
            Outlet::Line(line) => line.take_key_request(),
            Outlet::Server(_) => false,
        })
    }

    /// A pad's stream has ended. With the last one a receiver gets the rest.
    pub(super) fn end(&self, kind: Kind) -> Result<(), String> {
        let mut open = lock(&self.open);
        let Some(Open { feed, .. }) = &mut *open else { return Ok(()) };
        feed.end(kind)?;
        if feed.has_ended()
            && let Outlet::Line(line) = feed.outlet()
        {
            line.finish();
        }
        Ok(())
    }

    /// Where the stream can be viewed, or a receiver can connect to.
    pub(super) fn urls(&self) -> Vec<String> {
        lock(&self.properties).urls.clone()
    }

    /// The key that a caller over A1 has to know.
    pub(super) fn public_key(&self) -> Option<String> {
        lock(&self.properties).key.clone()
    }

    /// The property of the same name.
    pub(super) fn stats(&self) -> gst::Structure {
        let builder = gst::Structure::builder("freshwiresink-stats");
        match &lock(&self.properties).stats {
            None => builder.build(),
            Some(Stats::Line(line)) => {
                let counts = line.counts();
                let builder = builder
                    .field("receivers", counts.receivers)
                    .field("queued", counts.queued)
                    .field("unsent", counts.unsent);
                let Some(sink) = counts.sink else { return builder.build() };
                let dropped: u64 = sink.drops.iter().map(|(_, count)| count).sum();
                builder
                    .field("sent", sink.finished)
                    .field("dropped", dropped)
                    .field("bytes", sink.bytes)
                    .build()
            }
            Some(Stats::Server(stream)) => {
                let stats = stream.snapshot();
                builder
                    .field("viewers", u64::try_from(stats.viewers.len()).unwrap_or(u64::MAX))
                    .field("units", stats.units)
                    .field("bytes", stats.bytes)
                    .field("keyframes", stats.keys)
                    .field("lost", stats.lost)
                    .build()
            }
        }
    }
}

/// Passes requests of viewers on, on a thread of its own: elements upstream may take their time.
fn pass_on(
    mut requests: mpsc::Receiver<()>,
    request_key: impl Fn() + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    std::thread::Builder::new()
        .name("freshwire-keys".to_owned())
        .spawn(move || {
            while requests.blocking_recv().is_some() {
                request_key();
            }
        })
        .map_err(|error| format!("cannot start a thread: {error}"))
}

/// The event that asks an encoder for a keyframe, as `gst_video_event_new_upstream_force_key_unit` makes it.
pub(super) fn key_request(pad: &gst::Pad) -> bool {
    let structure = gst::Structure::builder("GstForceKeyUnit")
        .field("running-time", gst::ClockTime::NONE)
        .field("all-headers", true)
        .field("count", 0_u32)
        .build();
    pad.push_event(gst::event::CustomUpstream::new(structure))
}
