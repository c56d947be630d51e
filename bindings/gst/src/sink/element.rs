//! The element: properties, pads and states.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use freshwire_media::unit::Kind;
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;

use super::session::Session;
use super::settings::{DRAIN_MS, Settings, TIMEOUT_MS};
use super::track::TrackSink;
use crate::log::CAT;
use crate::media;
use crate::names::{Framing, Mode, Policy};
use crate::uri::{SCHEMES, Target, Uri, check_state};

glib::wrapper! {
    pub(crate) struct FreshwireSink(ObjectSubclass<Element>)
        @extends gst::Bin, gst::Element, gst::Object,
        @implements gst::ChildProxy, gst::URIHandler;
}

/// Properties that a URI may set: none that names a file.
const IN_URI: &[&str] = &["peer-key", "mode", "policy", "deadline", "timeout", "drain-timeout"];

/// The property that is a structure, which the derived ones cannot be.
const STATS: &str = "stats";

#[derive(Default, glib::Properties)]
#[properties(wrapper_type = FreshwireSink)]
pub(crate) struct Element {
    #[property(name = "stream-name", get, set, type = Option<String>, member = stream_name, default = Some("live"),
        blurb = "Name of the stream in the server: rtsp://HOST:8554/NAME, http://HOST:8080/NAME")]
    #[property(name = "listen-rtsp", get, set, type = Option<String>, member = listen_rtsp,
        blurb = "Serve RTSP at ADDR:PORT, :PORT for all addresses, or none (default: 127.0.0.1:8554)")]
    #[property(name = "listen-http", get, set, type = Option<String>, member = listen_http,
        blurb = "Serve the page, MPEG-TS, MP4 and .fw at ADDR:PORT, :PORT or none (default: 127.0.0.1:8080)")]
    #[property(name = "open", get, set, type = bool, member = open,
        blurb = "Let everybody view who can reach the server; without it other machines need a user of the configuration")]
    #[property(name = "config", get, set, type = Option<String>, member = config,
        blurb = "TOML file with the server's other settings: users, TLS, limits; as that of freshwire serve --config")]
    #[property(name = "location", get, set, type = Option<String>, member = location,
        blurb = "One receiver in place of the server: tcp://HOST:PORT or a1://HOST:PORT")]
    #[property(name = "mode", get, set, type = Mode, member = mode,
        builder(Mode::Caller).blurb("With location: connect to it, or listen there"))]
    #[property(name = "peer-key", get, set, type = Option<String>, member = peer_key,
        blurb = "With a1://: public key of the receiver; with mode=listener the only one that is let in")]
    #[property(name = "key-file", get, set, type = Option<String>, member = key_file,
        blurb = "With a1://: file with this end's private key, as freshwire key makes it (default: a new key each time)")]
    #[property(name = "psk-file", get, set, type = Option<String>, member = psk_file,
        blurb = "With a1://: file with a secret that both ends have, 64 hexadecimal digits")]
    #[property(name = "policy", get, set, type = Policy, member = policy,
        builder(Policy::Auto).blurb("With location: what chooses records to send or drop"))]
    #[property(name = "deadline", get, set, type = u32, member = deadline,
        blurb = "With location: how long a record keeps its value, in ms; 0 is for ever")]
    #[property(name = "framing", get, set, type = Framing, member = framing,
        builder(Framing::Raw).blurb("With tcp://: how records lie in the stream"))]
    #[property(name = "congestion", get, set, type = Option<String>, member = congestion,
        blurb = "With tcp://: congestion control by kernel name, such as bbr (default: the system's)")]
    #[property(name = "timeout", get, set, type = u32, member = timeout, default = TIMEOUT_MS,
        blurb = "With location: how long connecting may take, in ms")]
    #[property(name = "drain-timeout", get, set, type = u32, member = drain_timeout, default = DRAIN_MS,
        blurb = "With location: how long the receiver may take for the rest after the end of the stream, in ms")]
    #[property(name = "sync", get, set = Self::set_sync, type = bool, member = sync, default = true,
        blurb = "Send a buffer that does not come from a live source at its time; live ones go as they come")]
    settings: Mutex<Settings>,
    #[property(name = "urls", get = |this: &Self| this.session.urls(), type = Vec<String>,
        blurb = "From PAUSED on: where the stream can be viewed, or where the element listens")]
    #[property(name = "public-key", get = |this: &Self| this.session.public_key(), type = Option<String>,
        blurb = "From PAUSED on, of a listener at a1://: the key that the receiver has to know")]
    session: Arc<Session>,
}

impl Element {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tracks(&self) -> Vec<TrackSink> {
        self.obj().children().into_iter().filter_map(|child| child.downcast().ok()).collect()
    }

    fn track(&self, kind: Kind) -> Option<TrackSink> {
        self.tracks().into_iter().find(|track| track.imp().kind() == Some(kind))
    }

    fn set_sync(&self, sync: bool) {
        self.settings().sync = sync;
        for track in self.tracks() {
            track.imp().set_paces(sync);
        }
    }

    fn open(&self) -> Result<(), gst::StateChangeError> {
        let kinds: Vec<Kind> = self.tracks().iter().filter_map(|track| track.imp().kind()).collect();
        let element = self.obj().downgrade();
        let request_key = move || {
            if let Some(track) = element.upgrade().and_then(|element| element.imp().track(Kind::Video)) {
                track.imp().request_key();
            }
        };
        let settings = self.settings().clone();
        if let Err(text) = self.session.open(&settings, &kinds, request_key) {
            gst::element_imp_error!(self, gst::ResourceError::OpenWrite, ("{text}"));
            return Err(gst::StateChangeError);
        }
        let (urls, key) = (self.session.urls(), self.session.public_key());
        for url in &urls {
            gst::info!(CAT, imp = self, "{url} {}", key.as_deref().unwrap_or_default());
        }
        media::post_listening(&*self.obj(), "freshwiresink-listening", &urls, key.as_deref());
        Ok(())
    }
}

#[glib::object_subclass]
impl ObjectSubclass for Element {
    const NAME: &'static str = "GstFreshwireSink";
    type Type = FreshwireSink;
    type ParentType = gst::Bin;
    type Interfaces = (gst::URIHandler,);
}

impl ObjectImpl for Element {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: OnceLock<Vec<glib::ParamSpec>> = OnceLock::new();
        PROPERTIES.get_or_init(|| {
            let stats = glib::ParamSpecBoxed::builder::<gst::Structure>(STATS).read_only().blurb(
                "Server: viewers, units, bytes, keyframes, lost. One receiver: receivers, queued, unsent, sent, dropped, bytes",
            );
            let derived = Self::derived_properties().iter().cloned();
            derived.chain([stats.build()]).collect()
        })
    }

    fn set_property(&self, id: usize, value: &glib::Value, spec: &glib::ParamSpec) {
        self.derived_set_property(id, value, spec);
    }

    fn property(&self, id: usize, spec: &glib::ParamSpec) -> glib::Value {
        if spec.name() == STATS { self.session.stats().to_value() } else { self.derived_property(id, spec) }
    }

    fn constructed(&self) {
        self.parent_constructed();
        let obj = self.obj();
        // Also while it has no pad: the pipeline waits for the end of its sinks.
        obj.set_suppressed_flags(gst::ElementFlags::SOURCE | gst::ElementFlags::SINK);
        obj.set_element_flags(gst::ElementFlags::SINK);
    }
}

impl GstObjectImpl for Element {}

impl URIHandlerImpl for Element {
    const URI_TYPE: gst::URIType = gst::URIType::Sink;

    fn protocols() -> &'static [&'static str] {
        SCHEMES
    }

    fn uri(&self) -> Option<String> {
        let settings = self.settings();
        match &settings.location {
            Some(location) => location.starts_with("a1://").then(|| location.clone()),
            None => {
                let server = settings.listen_http.as_deref().filter(|server| *server != "none")?;
                Some(format!("freshwire://{server}/{}", settings.stream()))
            }
        }
    }

    fn set_uri(&self, text: &str) -> Result<(), glib::Error> {
        let (obj, uri) = (self.obj(), Uri::parse(text)?);
        check_state(&*obj)?;
        if text.contains('@') {
            let words = "a sink's address has no user: leave out the user and the password in front of @";
            return Err(glib::Error::new(gst::URIError::BadUri, words));
        }
        uri.set_properties(&*obj, IN_URI)?;
        let mut settings = self.settings();
        match uri.target {
            Target::A1(location) => {
                settings.location = Some(location);
                // An earlier URI may have set them for a server.
                settings.listen_http = None;
                settings.stream_name = None;
            }
            Target::Stream(server, name) => {
                settings.location = None;
                settings.listen_http = Some(server);
                settings.stream_name = Some(name);
            }
        }
        Ok(())
    }
}

impl ElementImpl for Element {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: OnceLock<gst::subclass::ElementMetadata> = OnceLock::new();
        Some(METADATA.get_or_init(|| {
            gst::subclass::ElementMetadata::new(
                "Freshwire sink",
                "Sink/Network",
                "Serves an encoded stream to any player by RTSP and HTTP, or sends it to one receiver; \
                 what is stale is dropped before it reaches the wire",
                env!("CARGO_PKG_NAME"),
            )
        }))
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: OnceLock<Vec<gst::PadTemplate>> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let template = |name: &str, kind| {
                let caps = media::template_caps(kind);
                gst::PadTemplate::new(name, gst::PadDirection::Sink, gst::PadPresence::Request, &caps)
            };
            [template("video_%u", Kind::Video), template("audio_%u", Kind::Audio)]
                .into_iter()
                .flatten()
                .collect()
        })
    }

    fn request_new_pad(
        &self,
        template: &gst::PadTemplate,
        name: Option<&str>,
        _caps: Option<&gst::Caps>,
    ) -> Option<gst::Pad> {
        let (kind, default) = match template.name_template() {
            "video_%u" => (Kind::Video, "video_0"),
            _ => (Kind::Audio, "audio_0"),
        };
        if self.track(kind).is_some() {
            gst::error!(CAT, imp = self, "a stream has one track of a kind; {kind:?} has a pad already");
            return None;
        }
        if !self.session.add(kind) {
            gst::error!(
                CAT,
                imp = self,
                "the stream has started without {kind:?}; request the pad before PAUSED"
            );
            return None;
        }
        let track: TrackSink =
            glib::Object::builder().property("name", format!("{kind:?}").to_lowercase()).build();
        track.imp().set_place(kind, Arc::clone(&self.session), self.settings().sync);
        let obj = self.obj();
        obj.add(&track).ok()?;
        let target = track.sink_pad();
        let pad = gst::GhostPad::builder_from_template_with_target(template, target).ok()?;
        let pad = pad.name(name.unwrap_or(default)).build();
        // In a state above READY it would refuse data otherwise.
        pad.set_active(true).ok()?;
        obj.add_pad(&pad).ok()?;
        track.sync_state_with_parent().ok()?;
        Some(pad.upcast())
    }

    fn release_pad(&self, pad: &gst::Pad) {
        let ghost = pad.downcast_ref::<gst::GhostPad>();
        let track = ghost.and_then(|ghost| ghost.target()).and_then(|target| target.parent_element());
        let track = track.and_then(|element| element.downcast::<TrackSink>().ok());
        // An element that is not in a bin, or in the wrong state, has nothing to give back.
        let _ = self.obj().remove_pad(pad);
        let Some(track) = track else { return };
        let _ = self.obj().remove(&track);
        let _ = track.set_state(gst::State::Null);
        if let Some(kind) = track.imp().kind()
            && let Err(text) = self.session.remove(kind)
        {
            gst::warning!(CAT, imp = self, "{text}");
        }
    }

    fn change_state(
        &self,
        transition: gst::StateChange,
    ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::ReadyToPaused {
            self.open()?;
        }
        let result = self.parent_change_state(transition);
        let has_failed = transition == gst::StateChange::ReadyToPaused && result.is_err();
        if has_failed || transition == gst::StateChange::PausedToReady {
            self.session.close();
        }
        result
    }
}

impl BinImpl for Element {}
