//! From the buffers of one or two pads to the units of a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use freshwire_media::demux::{Assembler, Config, Event};
use freshwire_media::timeline::Given;
use freshwire_media::unit::{Kind, MediaTime, Tracks, Unit};
use freshwire_server::hub::Publisher;

use crate::line::Line;
use crate::media::Media;

/// Media that waits for the caps of the other pad, as time. Chosen, not measured.
const LONGEST_WAIT_NS: i64 = 3_000_000_000;

/// The most bytes that wait for them. Chosen, not measured.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// A buffer: a picture or a frame of sound.
pub(crate) struct Frame {
    /// Kind of the pad.
    pub(crate) kind: Kind,
    /// When it is shown or heard, in running time.
    pub(crate) pts: Option<MediaTime>,
    /// When it is decoded.
    pub(crate) dts: Option<MediaTime>,
    /// The buffer's memory.
    pub(crate) bytes: gst::MappedBuffer<gst::buffer::Readable>,
}

/// Where units go.
pub(crate) enum Outlet {
    /// A stream of a server in this process.
    Server(Publisher),
    /// One receiver.
    Line(Box<Line>),
}

impl Outlet {
    fn tracks(&mut self, tracks: Arc<Tracks>) {
        match self {
            Self::Server(publisher) => publisher.tracks(tracks),
            // Each of its records says what it is of.
            Self::Line(_) => {}
        }
    }

    fn unit(&mut self, unit: Unit) -> Result<(), String> {
        match self {
            Self::Server(publisher) => {
                publisher.push(unit);
                Ok(())
            }
            Self::Line(line) => line.push(&unit),
        }
    }
}

/// The pads' buffers on their way to the outlet.
pub(crate) struct Feed {
    outlet: Outlet,
    pads: Vec<Pad>,
    /// Made when the caps of all pads are known.
    assembler: Option<Assembler>,
    waiting: VecDeque<Frame>,
    has_ended: bool,
}

struct Pad {
    kind: Kind,
    media: Option<Media>,
    has_ended: bool,
}

impl Feed {
    /// A feed of pads of these kinds.
    pub(crate) fn new(outlet: Outlet, kinds: impl IntoIterator<Item = Kind>) -> Self {
        let pad = |kind| Pad { kind, media: None, has_ended: false };
        Self {
            outlet,
            pads: kinds.into_iter().map(pad).collect(),
            assembler: None,
            waiting: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Where its units go.
    pub(crate) fn outlet(&mut self) -> &mut Outlet {
        &mut self.outlet
    }

    /// Adds a pad. Returns `false` if the stream has already started without it.
    pub(crate) fn add(&mut self, kind: Kind) -> bool {
        let fits = self.assembler.is_none();
        if fits {
            self.pads.push(Pad { kind, media: None, has_ended: false });
        }
        fits
    }

    /// A pad is gone. What it had announced stays, because viewers have it.
    pub(crate) fn remove(&mut self, kind: Kind) -> Result<(), String> {
        if self.assembler.is_none() {
            self.pads.retain(|pad| pad.kind != kind);
            self.begin_if_complete()?;
        }
        self.end(kind)
    }

    /// The caps of a pad.
    pub(crate) fn set_media(&mut self, media: Media) -> Result<(), String> {
        let (kind, has_started) = (media.kind(), self.assembler.is_some());
        let Some(pad) = self.pads.iter_mut().find(|pad| pad.kind == kind) else {
            return Err("the pad was released".to_owned());
        };
        match &pad.media {
            // A new size is within the stream.
            Some(known) if *known == media => return Ok(()),
            None if !has_started => {}
            None => return Err("caps came too late: the other pad has waited for them for 3 s".to_owned()),
            Some(_) if has_started => {
                return Err("the codec has changed within the stream; use an element for each".to_owned());
            }
            Some(_) => {}
        }
        pad.media = Some(media);
        self.begin_if_complete()
    }

    /// A buffer.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<(), String> {
        if let Some(pad) = self.pads.iter_mut().find(|pad| pad.kind == frame.kind) {
            pad.has_ended = false;
        }
        self.has_ended = false;
        if self.assembler.is_some() {
            return self.assemble(&frame);
        }
        self.waiting.push_back(frame);
        let time = |frame: &Frame| frame.dts.or(frame.pts).map(MediaTime::as_nanos);
        let times = || self.waiting.iter().filter_map(time);
        let span = times().max().zip(times().min()).map_or(0, |(latest, earliest)| latest - earliest);
        let bytes: usize = self.waiting.iter().map(|frame| frame.bytes.len()).sum();
        if span > LONGEST_WAIT_NS || bytes > MOST_WAITING_BYTES {
            return self.begin();
        }
        Ok(())
    }

    /// A pad's stream has ended. With the last one the units that were kept back come out.
    pub(crate) fn end(&mut self, kind: Kind) -> Result<(), String> {
        for pad in self.pads.iter_mut().filter(|pad| pad.kind == kind) {
            pad.has_ended = true;
        }
        if self.has_ended || !self.pads.iter().all(|pad| pad.has_ended) {
            return self.begin_if_complete();
        }
        self.has_ended = true;
        if self.assembler.is_none() && !self.waiting.is_empty() {
            self.begin()?;
        }
        if let Some(assembler) = &mut self.assembler {
            assembler.finish();
        }
        self.deliver()
    }

    /// Whether all pads have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn begin_if_complete(&mut self) -> Result<(), String> {
        // A pad that has ended without caps has none to come.
        let is_complete = self.pads.iter().all(|pad| pad.media.is_some() || pad.has_ended);
        let has_any = self.pads.iter().any(|pad| pad.media.is_some());
        if self.assembler.is_none() && is_complete && has_any { self.begin() } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), String> {
        let (mut video, mut audio) = (None, None);
        for media in self.pads.iter().filter_map(|pad| pad.media.as_ref()) {
            match media {
                Media::Video(format) => video = Some(*format),
                Media::Audio(track) => audio = Some(track.clone()),
            }
        }
        self.assembler = Some(Assembler::new(Config::default(), video, audio));
        while let Some(frame) = self.waiting.pop_front() {
            self.assemble(&frame)?;
        }
        Ok(())
    }

    fn assemble(&mut self, frame: &Frame) -> Result<(), String> {
        let Some(assembler) = &mut self.assembler else { return Ok(()) };
        match frame.kind {
            Kind::Video => {
                let given = match (frame.pts, frame.dts) {
                    (Some(pts), Some(dts)) => Given::Both { pts, dts },
                    (Some(pts), None) => Given::Shown(pts),
                    (None, _) => Given::Nothing,
                };
                assembler.video(&frame.bytes, given);
            }
            Kind::Audio => {
                let Some(pts) = frame.pts.or(frame.dts) else {
                    return Err(
                        "a buffer of sound has no timestamp; put a parser before freshwiresink".to_owned()
                    );
                };
                assembler.audio(frame.bytes.to_vec(), pts);
            }
        }
        self.deliver()
    }

    fn deliver(&mut self) -> Result<(), String> {
        let Some(assembler) = &mut self.assembler else { return Ok(()) };
        for event in assembler.by_ref() {
            match event {
                Event::Tracks(tracks) => self.outlet.tracks(tracks),
                Event::Unit(unit) => self.outlet.unit(unit)?,
            }
        }
        Ok(())
    }
}
