//! The sink of one pad: pace, preroll and end are those of every sink.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use freshwire_media::unit::{Kind, MediaTime};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::prelude::*;

use super::session::{Refusal, Session, key_request};
use crate::feed::Frame;
use crate::log::CAT;
use crate::media;

glib::wrapper! {
    pub(super) struct TrackSink(ObjectSubclass<Track>) @extends gst_base::BaseSink, gst::Element, gst::Object;
}

#[derive(Default)]
pub(super) struct Track {
    place: OnceLock<(Kind, Arc<Session>)>,
    /// Buffers that are not live wait for their time.
    paces: AtomicBool,
}

impl Track {
    /// Says what it is for. Once.
    pub(super) fn set_place(&self, kind: Kind, session: Arc<Session>, paces: bool) {
        // It has one place for all its life.
        let _ = self.place.set((kind, session));
        self.paces.store(paces, Ordering::Relaxed);
    }

    pub(super) fn set_paces(&self, paces: bool) {
        self.paces.store(paces, Ordering::Relaxed);
    }

    /// Which track it is.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.place.get().map(|(kind, _)| *kind)
    }

    /// Asks the encoder for a keyframe.
    pub(super) fn request_key(&self) {
        let is_sent = key_request(self.obj().sink_pad());
        gst::debug!(CAT, imp = self, "asked for a keyframe: {}", if is_sent { "taken" } else { "not taken" });
    }

    fn fail(&self, text: &str) {
        gst::element_imp_error!(self, gst::ResourceError::Write, ("{text}"));
    }

    fn is_upstream_live(&self) -> bool {
        let mut query = gst::query::Latency::new();
        self.obj().sink_pad().peer_query(&mut query) && query.result().0
    }

    fn running_time(
        segment: &gst::FormattedSegment<gst::ClockTime>,
        time: Option<gst::ClockTime>,
    ) -> Option<MediaTime> {
        let signed = segment.to_running_time_full(time?)?;
        let nanos = |time: gst::ClockTime| i64::try_from(time.nseconds()).unwrap_or(i64::MAX);
        Some(MediaTime::from_nanos(match signed {
            gst::Signed::Positive(time) => nanos(time),
            gst::Signed::Negative(time) => -nanos(time),
        }))
    }
}

#[glib::object_subclass]
impl ObjectSubclass for Track {
    const NAME: &'static str = "GstFreshwireTrackSink";
    type Type = TrackSink;
    type ParentType = gst_base::BaseSink;
}

impl ObjectImpl for Track {
    fn constructed(&self) {
        self.parent_constructed();
        let obj = self.obj();
        // A unit is copied or sent when it is rendered: neither is needed afterwards, and neither takes 20 ms.
        obj.set_enable_last_sample(false);
        obj.set_processing_deadline(gst::ClockTime::ZERO);
    }
}

impl GstObjectImpl for Track {}

impl ElementImpl for Track {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: OnceLock<gst::subclass::ElementMetadata> = OnceLock::new();
        Some(METADATA.get_or_init(|| {
            gst::subclass::ElementMetadata::new(
                "Freshwire track",
                "Sink/Network",
                "One track of freshwiresink",
                env!("CARGO_PKG_NAME"),
            )
        }))
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: OnceLock<Vec<gst::PadTemplate>> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let mut caps = media::template_caps(Kind::Video);
            caps.merge(media::template_caps(Kind::Audio));
            gst::PadTemplate::new("sink", gst::PadDirection::Sink, gst::PadPresence::Always, &caps)
                .into_iter()
                .collect()
        })
    }
}

impl BaseSinkImpl for Track {
    fn caps(&self, filter: Option<&gst::Caps>) -> Option<gst::Caps> {
        let caps = media::template_caps(self.kind()?);
        Some(match filter {
            Some(filter) => filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First),
            None => caps,
        })
    }

    fn set_caps(&self, caps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let Some((_, session)) = self.place.get() else { return Ok(()) };
        // A live source delivers in time; waiting for the pipeline's latency would only make its data older.
        let waits = self.paces.load(Ordering::Relaxed) && !self.is_upstream_live();
        self.obj().set_sync(waits);
        gst::debug!(CAT, imp = self, "caps {caps}, {}", if waits { "paced" } else { "as they come" });
        media::of_caps(caps).and_then(|media| session.set_media(media)).map_err(|text| {
            gst::element_imp_error!(self, gst::StreamError::WrongType, ("{text}"));
            gst::loggable_error!(CAT, "{text}")
        })
    }

    fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        let Some((kind, session)) = self.place.get() else { return Err(gst::FlowError::Flushing) };
        let Ok(segment) = self.obj().segment().downcast::<gst::ClockTime>() else {
            self.fail("the stream has no times; its segment is not in TIME format");
            return Err(gst::FlowError::Error);
        };
        let Ok(bytes) = buffer.clone().into_mapped_buffer_readable() else {
            self.fail("a buffer cannot be read");
            return Err(gst::FlowError::Error);
        };
        let frame = Frame {
            kind: *kind,
            pts: Self::running_time(&segment, buffer.pts()),
            dts: Self::running_time(&segment, buffer.dts()),
            bytes,
        };
        match session.push(frame) {
            Ok(wants_key) => {
                if wants_key {
                    self.request_key();
                }
                Ok(gst::FlowSuccess::Ok)
            }
            Err(Refusal::Flushing) => Err(gst::FlowError::Flushing),
            Err(Refusal::Failed(text)) => {
                self.fail(&text);
                Err(gst::FlowError::Error)
            }
        }
    }

    fn event(&self, event: gst::Event) -> bool {
        if let (gst::EventView::Eos(_), Some((kind, session))) = (event.view(), self.place.get())
            && let Err(text) = session.end(*kind)
        {
            self.fail(&text);
        }
        self.parent_event(event)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        if let Some((_, session)) = self.place.get() {
            session.set_flushing(true);
        }
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        if let Some((_, session)) = self.place.get() {
            session.set_flushing(false);
        }
        Ok(())
    }
}
