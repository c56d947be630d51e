//! The tracks that are read of a broadcast, and their way to the hub.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use freshwire_media::demux::{Assembler, Config, Event};
use freshwire_media::timeline::Given;
use freshwire_media::unit::{Kind, MediaTime};
use freshwire_moq::{Frame, Listing, MoqError, Subscription, TrackReader, VideoListing};
use freshwire_record::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::names;
use crate::config::MAIN;
use crate::failures::Failures;
use crate::hub::Publisher;
use crate::ingest::Outlet;
use crate::rtsp::feed::{FRUITLESS, YEAR_2020, wall_nanos};

/// Media is read for this long after the last viewer, who may come back: a page that is loaded again takes a second. Chosen, not measured.
const LINGER: Duration = Duration::from_secs(2);

/// A track that could not be read is asked for again after this long. Chosen, not measured.
const PAUSE: Duration = Duration::from_secs(1);

/// A failure that long ago has left the log's memory.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// Capacity of the channel from the readers to the hub, in frames. A reader that finds it full waits, and upstream then skips groups that
/// become too old. Chosen, not measured.
const WAITING: usize = 16;

/// The name under which the reader of sound reports. No rendition can have it.
const SOUND: &str = "audio:";

/// A track has given a frame, or has ended.
pub(super) struct Read {
    track: String,
    /// Which reader of this track: one that was given up may have sent before.
    reader: u64,
    frame: Result<Option<Frame>, MoqError>,
}

impl Read {
    /// Whether it is a frame, and no error or end.
    pub(super) fn has_frame(&self) -> bool {
        matches!(self.frame, Ok(Some(_)))
    }
}

/// The stream of one connection to a relay.
pub(super) struct Edge<'a> {
    outlet: &'a Outlet,
    origin: String,
    listing: Listing,
    /// The rendition of each track of pictures.
    names: Vec<String>,
    renditions: BTreeMap<String, Rendition>,
    sound: Option<Reader>,
    readers: u64,
    sender: mpsc::Sender<Read>,
    receiver: mpsc::Receiver<Read>,
    /// When somebody wanted the stream last.
    wanted: Option<Instant>,
    failed: BTreeMap<String, Failed>,
    /// Failures of the broadcast as a whole.
    failures: Failures,
    start: Instant,
    /// The media time of the time 0, once it is known.
    zero_ns: Option<i64>,
    /// What the log has of what is left out.
    refused: Vec<String>,
}

/// A rendition that is read and published.
struct Rendition {
    publisher: Publisher,
    assembler: Assembler,
    /// `None`: nobody wants it now, or it is a broadcast without pictures.
    reader: Option<Reader>,
    /// When somebody wanted it last.
    wanted: Instant,
    /// When it was last published, or since when it is read.
    fruitful: Instant,
    reported: bool,
}

/// A track that could not be read.
struct Failed {
    at: Instant,
    failures: Failures,
}

/// A task that reads a track; it ends with this.
struct Reader {
    number: u64,
    task: JoinHandle<()>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<TrackReader, MoqError>> + Send>>;

impl<'a> Edge<'a> {
    pub(super) fn new(outlet: &'a Outlet, origin: String) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        Self {
            outlet,
            origin,
            listing: Listing::default(),
            names: Vec::new(),
            renditions: BTreeMap::new(),
            sound: None,
            readers: 0,
            sender,
            receiver,
            wanted: None,
            failed: BTreeMap::new(),
            failures: Failures::default(),
            start: Instant::now(),
            zero_ns: None,
            refused: Vec::new(),
        }
    }

    /// The next frame of any track. Cancel safe.
    pub(super) async fn next(&mut self) -> Read {
        match self.receiver.recv().await {
            Some(read) => read,
            // This holds a sender.
            None => std::future::pending().await,
        }
    }

    /// The broadcast has changed.
    pub(super) fn list(&mut self, mut listing: Listing) {
        if listing.refused != self.refused {
            let stream = self.outlet.name();
            for left_out in &listing.refused {
                warn!(stream, track = left_out, "a track of the relay is left out");
            }
            self.refused.clone_from(&listing.refused);
        }
        if self.outlet.is_rendition() {
            listing.video.truncate(1);
        }
        let names = names::renditions(&listing.video);
        let of = |name: &String, listing: &Listing, names: &[String]| {
            let place = names.iter().position(|other| other == name)?;
            listing.video.get(place).map(|video| (video.name.clone(), video.format))
        };
        let sound =
            |listing: &Listing| listing.sound.as_ref().map(|sound| (sound.name.clone(), sound.track.clone()));
        // An assembler knows its tracks from the beginning.
        if sound(&self.listing) != sound(&listing) {
            (self.sound, self.renditions) = (None, BTreeMap::new());
        }
        let (before, names_before) = (&self.listing, &self.names);
        self.renditions.retain(|name, _| of(name, before, names_before) == of(name, &listing, &names));
        // Viewers can ask for them by name before anybody has read one.
        if !self.outlet.is_rendition()
            && let Err(error) = self.outlet.stream().offer_renditions(&names)
        {
            let failure = error.to_string();
            if self.failures.is_news(&failure, Instant::now()) {
                warn!(stream = self.outlet.name(), failure, "a rendition of the relay waits for a place");
            }
        }
        if let Some(zero) = listing.zero {
            self.zero_ns = Some(nanos_since_2020(zero));
        }
        // Failures of a publisher that changes its names again and again do not add up.
        self.failed.retain(|_, failed| failed.at.elapsed() < FORGOTTEN);
        (self.listing, self.names) = (listing, names);
    }

    /// Reads what viewers use, and no more.
    pub(super) fn follow_demand(&mut self, subscription: &Subscription) {
        let now = Instant::now();
        let demand = self.outlet.stream().demand();
        if demand.viewers > 0 || demand.is_awaited {
            self.wanted = Some(now);
        }
        if self.wanted.is_none_or(|at| now.duration_since(at) > LINGER) {
            if !self.renditions.is_empty() {
                info!(stream = self.outlet.name(), "nobody views it any more; the relay is not asked for it");
            }
            (self.sound, self.renditions) = (None, BTreeMap::new());
            return;
        }
        let videos: Vec<_> = self.names.iter().cloned().zip(self.listing.video.iter().cloned()).collect();
        let is_only = videos.len() == 1;
        for (name, video) in videos {
            // One that nobody has read is read once, so that viewers' policies know what it needs, and that it can be had.
            // A target that has yet to become a viewer needs one of them.
            let is_awaited = demand.used.is_empty() && name == MAIN;
            let is_unknown = !demand.measured.contains(&name) || !self.renditions.contains_key(&name);
            let is_wanted = is_only || is_awaited || demand.used.contains(&name) || is_unknown;
            if is_wanted {
                self.begin(&name, Some(&video), subscription, now);
            } else if let Some(rendition) = self.renditions.get_mut(&name) {
                rendition.rest(now);
            }
        }
        if self.listing.video.is_empty() && self.listing.sound.is_some() {
            self.begin(MAIN, None, subscription, now);
        }
        if self.sound.is_none() && !self.renditions.is_empty() && !self.has_failed(SOUND, now) {
            let opening = self.listing.sound.as_ref().map(|sound| subscription.sound(sound));
            self.sound = opening.map(|opening| self.read(SOUND, Box::pin(opening)));
        }
    }

    /// Whether a track is read.
    pub(super) fn is_reading(&self) -> bool {
        self.sound.is_some() || self.renditions.values().any(|rendition| rendition.reader.is_some())
    }

    /// Whether nothing is read, as nobody views.
    pub(super) fn is_resting(&self) -> bool {
        self.renditions.is_empty()
    }

    fn has_failed(&self, track: &str, now: Instant) -> bool {
        self.failed.get(track).is_some_and(|failed| now.duration_since(failed.at) < PAUSE)
    }

    /// Begins to read and to publish a rendition.
    fn begin(&mut self, name: &str, video: Option<&VideoListing>, from: &Subscription, now: Instant) {
        if self.has_failed(name, now) {
            return;
        }
        if let Some(rendition) = self.renditions.get_mut(name) {
            rendition.wanted = now;
            if let Some(video) = video.filter(|_| rendition.reader.is_none()) {
                rendition.assembler.lost();
                rendition.publisher.set_idle(false);
                let reader = self.read(name, Box::pin(from.video(video)));
                if let Some(rendition) = self.renditions.get_mut(name) {
                    (rendition.reader, rendition.fruitful) = (Some(reader), now);
                }
            }
            return;
        }
        let stream = self.outlet.stream();
        let published = if name == MAIN {
            self.outlet.publish(&self.origin, None)
        } else {
            stream.publish_rendition(name, &self.origin, None)
        };
        let mut publisher = match published {
            Ok(publisher) => publisher,
            Err(error) => {
                return self.fail(name, &error.to_string(), now);
            }
        };
        publisher.shares_clock();
        let sound = self.listing.sound.as_ref().map(|sound| sound.track.clone());
        let assembler = Assembler::new(Config::default(), video.map(|video| video.format), sound);
        let reader = video.map(|video| self.read(name, Box::pin(from.video(video))));
        let rendition =
            Rendition { publisher, assembler, reader, wanted: now, fruitful: now, reported: false };
        self.renditions.insert(name.to_owned(), rendition);
    }

    /// Starts a task that reads a track.
    fn read(&mut self, track: &str, opening: Opening) -> Reader {
        self.readers += 1;
        let (number, track, sender) = (self.readers, track.to_owned(), self.sender.clone());
        let send = move |frame| {
            let (read, sender) = (Read { track: track.clone(), reader: number, frame }, sender.clone());
            async move { sender.send(read).await.is_ok() }
        };
        let task = tokio::spawn(async move {
            let mut reader = match opening.await {
                Ok(reader) => reader,
                Err(error) => {
                    send(Err(error)).await;
                    return;
                }
            };
            loop {
                let frame = reader.next().await;
                let goes_on = matches!(frame, Ok(Some(_)));
                if !send(frame).await || !goes_on {
                    return;
                }
            }
        });
        Reader { number, task }
    }

    /// Publishes a frame.
    ///
    /// # Errors
    ///
    /// If the broadcast has ended.
    pub(super) fn take(&mut self, read: Read) -> Result<(), MoqError> {
        let Read { track, reader, frame } = read;
        let own = match self.renditions.get(&track) {
            Some(rendition) => rendition.reader.as_ref(),
            None => self.sound.as_ref(),
        };
        if own.is_none_or(|own| own.number != reader) {
            return Ok(());
        }
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Err(error @ MoqError::Over) => return Err(error),
            Ok(None) => {
                self.give_up(&track, "it has ended");
                return Ok(());
            }
            Err(error) => {
                self.give_up(&track, &error.to_string());
                return Ok(());
            }
        };
        let zero = *self.zero_ns.get_or_insert_with(|| wall_nanos().saturating_sub(nanos(frame.micros)));
        let time = MediaTime::from_nanos(zero.saturating_add(nanos(frame.micros)));
        let arrived =
            Timestamp::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        match self.renditions.get_mut(&track) {
            Some(rendition) => rendition.video(&frame, time, arrived),
            None => self.renditions.values_mut().for_each(|rendition| rendition.audio(&frame, time, arrived)),
        }
        Ok(())
    }

    /// A track cannot be read, or not any more. It is asked for again after a pause.
    fn give_up(&mut self, track: &str, why: &str) {
        self.fail(track, why, Instant::now());
        if self.renditions.remove(track).is_none() {
            self.sound = None;
        }
    }

    fn fail(&mut self, track: &str, why: &str, now: Instant) {
        let stream = self.outlet.name();
        let failed = self.failed.entry(track.to_owned());
        let failed = failed.or_insert_with(|| Failed { at: now, failures: Failures::default() });
        failed.at = now;
        if failed.failures.is_news(why, now) {
            warn!(stream, track, why, "a track of the relay is not read");
        }
    }
}

impl Rendition {
    /// Nobody wants it. It is not read any more after a while, and viewers can still want it.
    fn rest(&mut self, now: Instant) {
        if self.reader.is_some() && now.duration_since(self.wanted) > LINGER {
            self.reader = None;
            self.publisher.set_idle(true);
        }
    }

    fn video(&mut self, frame: &Frame, time: MediaTime, arrived: Timestamp) {
        self.assembler.arrive(arrived);
        if frame.is_after_gap && !frame.is_key {
            self.assembler.lost();
        }
        self.assembler.video(&frame.bytes, Given::Shown(time));
        self.publish(time);
    }

    fn audio(&mut self, frame: &Frame, time: MediaTime, arrived: Timestamp) {
        self.assembler.arrive(arrived);
        self.assembler.audio(frame.bytes.clone(), time);
        self.publish(time);
        if self.reader.is_none() {
            self.fruitful = Instant::now();
        }
    }

    /// Publishes what the assembler has. `time`: that of the frame it was given last.
    fn publish(&mut self, time: MediaTime) {
        let events: Vec<_> = self.assembler.by_ref().collect();
        let is_one = events.iter().filter(|event| matches!(event, Event::Unit(_))).count() == 1;
        for event in events {
            match event {
                Event::Tracks(tracks) => self.publisher.tracks(tracks),
                Event::Unit(unit) => {
                    self.fruitful = Instant::now();
                    let shown = unit.head.pts;
                    let begins =
                        unit.head.key && (unit.head.kind == Kind::Video || unit.head.tracks.video.is_none());
                    self.publisher.push(unit);
                    if let Some(at) = wall_of(time).filter(|_| is_one && begins) {
                        self.publisher.captured(shown, at);
                    }
                }
            }
        }
        let is_fruitless = self.fruitful.elapsed() > FRUITLESS;
        if is_fruitless && !self.reported {
            let faults = self.assembler.faults();
            warn!(
                stream = self.publisher.name(),
                undecodable = faults.undecodable,
                damaged = faults.damaged,
                "frames come from the relay, and no picture or sound can be made of them"
            );
        }
        self.reported = is_fruitless;
    }
}

/// Media times count from 2020, as the wire's do.
fn nanos_since_2020(at: SystemTime) -> i64 {
    let since = at.duration_since(year_2020()).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn wall_of(time: MediaTime) -> Option<SystemTime> {
    year_2020().checked_add(Duration::from_nanos(u64::try_from(time.as_nanos()).ok()?))
}

fn year_2020() -> SystemTime {
    SystemTime::UNIX_EPOCH + YEAR_2020
}

fn nanos(micros: u64) -> i64 {
    i64::try_from(micros.saturating_mul(1000)).unwrap_or(i64::MAX)
}
