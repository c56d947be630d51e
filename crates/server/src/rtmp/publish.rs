//! One who publishes: from messages to the hub.

use std::time::Instant;

use freshwire_media::demux::{Config, Event, Flv};
use freshwire_media::rtmp::{Message, kind};
use freshwire_media::unit::MediaTime;
use freshwire_record::{Rate, Timestamp};
use tokio::sync::watch;

use super::wire;
use crate::hub::Publisher;
use crate::net::Meter;
use crate::rtsp::common::PACKET_COST;
use crate::rtsp::feed::{FRUITLESS, wall_nanos};
use crate::rtsp::publish::SILENCE;

/// A session that feeds a stream.
pub(super) struct PublishSession {
    publisher: Publisher,
    flv: Flv,
    start: Instant,
    /// When the last message of pictures or sound came.
    since: Instant,
    meter: Meter,
    /// When something was published last, or since when messages come.
    fruitful: Option<Instant>,
    /// The lack of anything to publish has been reported.
    reported: bool,
    /// Tracks that have been reported as left out.
    left_out: usize,
}

impl PublishSession {
    pub(super) fn new(publisher: Publisher) -> Self {
        let now = Instant::now();
        Self {
            publisher,
            flv: Flv::new(Config::default(), MediaTime::from_nanos(wall_nanos())),
            start: now,
            since: now,
            meter: Meter::new(),
            fruitful: None,
            reported: false,
            left_out: 0,
        }
    }

    /// Reports the end of the stream that it feeds.
    pub(super) fn removed(&self) -> watch::Receiver<bool> {
        self.publisher.stream().removed()
    }

    /// The stream's name, with that of the rendition behind `~`.
    pub(super) fn name(&self) -> String {
        self.publisher.name()
    }

    /// Counts what the publisher sends, whatever it is. The error says why the connection has to end.
    pub(super) fn hear(&mut self, cost: usize, most: Rate) -> Result<(), String> {
        if self.meter.allows(cost, most) {
            Ok(())
        } else {
            Err(format!("publishes more than {} bit/s", most.bits_per_sec()))
        }
    }

    /// Takes a message of whatever kind, which was counted. The error says why the connection has to end.
    pub(super) fn message(&mut self, message: &Message, most: Rate) -> Result<(), String> {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.flv.arrive(Timestamp::from_nanos(elapsed));
        if message.kind == kind::AGGREGATE {
            for part in message.parts() {
                self.hear(PACKET_COST, most)?;
                self.tag(&part);
            }
        } else {
            self.tag(message);
        }
        Ok(())
    }

    fn tag(&mut self, message: &Message) {
        match message.kind {
            kind::AUDIO => self.flv.audio(message.timestamp, &message.body),
            kind::VIDEO => self.flv.video(message.timestamp, &message.body),
            kind::DATA | kind::DATA_AMF3 => {
                match wire::values(message) {
                    Ok(values) => self.flv.data(&values),
                    // They are only hints.
                    Err(error) => tracing::debug!(%error, "data that cannot be read"),
                }
                return;
            }
            _ => return,
        }
        self.since = Instant::now();
        self.publish();
    }

    fn publish(&mut self) {
        let now = Instant::now();
        let mut fruitful = *self.fruitful.get_or_insert(now);
        for event in &mut self.flv {
            match event {
                Event::Tracks(tracks) => self.publisher.tracks(tracks),
                Event::Unit(unit) => {
                    self.publisher.push(unit);
                    fruitful = now;
                }
            }
        }
        self.fruitful = Some(fruitful);
        for track in self.flv.skipped().iter().skip(self.left_out) {
            tracing::warn!(stream = self.publisher.name(), track, "a track is not carried");
        }
        self.left_out = self.flv.skipped().len();
        if now.saturating_duration_since(fruitful) < FRUITLESS {
            self.reported = false;
        } else if !std::mem::replace(&mut self.reported, true) {
            tracing::warn!(
                stream = self.publisher.name(),
                reason = self.flv.complaint(),
                "messages come, and no picture or sound can be made of them"
            );
        }
    }

    /// Why it holds the stream's name for nothing.
    pub(super) fn overdue(&self) -> Option<String> {
        (self.since.elapsed() > SILENCE).then(|| format!("no picture or sound came for {SILENCE:?}"))
    }

    /// Publishes what has waited for more, and says in the log how it was.
    pub(super) fn end(mut self, reason: &str) {
        self.flv.finish();
        self.publish();
        let faults = self.flv.faults();
        let stream = self.name();
        tracing::info!(
            stream,
            reason,
            undecodable = faults.undecodable,
            damaged = faults.damaged,
            jumps = faults.jumps,
            "no longer publishes"
        );
    }
}
