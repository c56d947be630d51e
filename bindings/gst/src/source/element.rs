//! The element: properties, states, and the loop that makes buffers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use freshwire_media::unit::Kind;
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_src::CreateSuccess;
use gst_base::subclass::prelude::*;

use crate::endpoint::{Keys, Location};
use crate::fit::{self, Place, Use};
use crate::link::{Arrival, Link, LinkSettings};
use crate::log::CAT;
use crate::media;
use crate::names::{Codec, Framing, Mode};
use crate::reader::Reader;
use crate::uri::{SCHEMES, Target, Uri, check_state};

/// Interval at which the loop checks whether it is to stop. Chosen, not measured.
const LOOK: Duration = Duration::from_millis(20);

/// Properties that a URI may set: none that names a file.
const IN_URI: &[&str] = &["peer-key", "mode", "codec", "latency", "timeout"];

/// Default time for connecting, in milliseconds. Chosen, not measured.
const TIMEOUT_MS: u32 = 5000;

#[derive(Clone, Debug)]
struct Settings {
    location: Option<String>,
    mode: Mode,
    peer_key: Option<String>,
    key_file: Option<String>,
    psk_file: Option<String>,
    codec: Codec,
    framing: Framing,
    timeout: u32,
    latency: u32,
    /// Why the URI is none, if it has a user.
    refusal: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            location: None,
            mode: Mode::default(),
            peer_key: None,
            key_file: None,
            psk_file: None,
            codec: Codec::default(),
            framing: Framing::default(),
            timeout: TIMEOUT_MS,
            latency: 0,
            refusal: None,
        }
    }
}

impl Settings {
    /// The properties that have no effect at some places.
    fn uses(&self) -> [Use; 5] {
        const TCP: &[Place] = &[Place::Tcp];
        const A1: &[Place] = &[Place::A1];
        let default = Self::default();
        [
            // First what is dangerous to ignore.
            ("peer-key", self.peer_key != default.peer_key, A1),
            ("psk-file", self.psk_file != default.psk_file, A1),
            ("key-file", self.key_file != default.key_file, A1),
            ("framing", self.framing != default.framing, TCP),
            ("latency", self.latency != default.latency, A1),
        ]
    }

    fn link(&self) -> Result<LinkSettings, String> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let Some(location) = &self.location else {
            return Err(
                "location is missing: a1://HOST:PORT, tcp://HOST:PORT or http://HOST:PORT/NAME.fw".to_owned()
            );
        };
        let location = Location::parse(location)?;
        fit::check(location.place(), &self.uses())?;
        Ok(LinkSettings {
            location,
            mode: self.mode,
            keys: Keys {
                peer: self.peer_key.clone(),
                file: self.key_file.clone(),
                psk_file: self.psk_file.clone(),
            },
            framing: self.framing,
            timeout: Duration::from_millis(self.timeout.into()),
        })
    }
}

glib::wrapper! {
    pub(crate) struct FreshwireSrc(ObjectSubclass<Element>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object,
        @implements gst::URIHandler;
}

#[derive(Default, glib::Properties)]
#[properties(wrapper_type = FreshwireSrc)]
pub(crate) struct Element {
    #[property(name = "location", get, set = Self::set_location, type = Option<String>, member = location,
        blurb = "a1://HOST:PORT, tcp://HOST:PORT, or a server's stream at http://[USER:PASSWORD@]HOST:PORT/NAME.fw")]
    #[property(name = "mode", get, set, type = Mode, member = mode,
        builder(Mode::Caller).blurb("Connect to the location, or listen there for one sender"))]
    #[property(name = "peer-key", get, set, type = Option<String>, member = peer_key,
        blurb = "With a1://: public key of the sender; with mode=listener the only one that is let in")]
    #[property(name = "key-file", get, set, type = Option<String>, member = key_file,
        blurb = "With a1://: file with this end's private key, as freshwire key makes it (default: a new key each time)")]
    #[property(name = "psk-file", get, set, type = Option<String>, member = psk_file,
        blurb = "With a1://: file with a secret that both ends have, 64 hexadecimal digits")]
    #[property(name = "codec", get, set, type = Codec, member = codec,
        builder(Codec::Auto).blurb("What the records are: they do not say it themselves"))]
    #[property(name = "framing", get, set, type = Framing, member = framing,
        builder(Framing::Raw).blurb("With tcp://: how records lie in the stream"))]
    #[property(name = "timeout", get, set, type = u32, member = timeout, default = TIMEOUT_MS,
        blurb = "How long connecting may take, in ms")]
    #[property(name = "latency", get, set, type = u32, member = latency,
        blurb = "With a1://: even out the delay of records up to this age, in ms; 0 shows each at once")]
    settings: Mutex<Settings>,
    #[property(name = "urls", get = Self::urls, type = Vec<String>,
        blurb = "From PAUSED on, with mode=listener: where the element listens")]
    #[property(name = "public-key", get = Self::public_key, type = Option<String>,
        blurb = "From PAUSED on, with mode=listener at a1://: the key that the sender has to know")]
    listening: Mutex<Listening>,
    open: Mutex<Option<Open>>,
    /// Set while nothing may block.
    flushing: AtomicBool,
}

/// Where the element listens: apart from what the loop holds while it waits.
#[derive(Clone, Debug, Default)]
struct Listening {
    urls: Vec<String>,
    key: Option<String>,
}

struct Open {
    link: Link,
    reader: Reader,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left is one field short at most.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Element {
    fn set_location(&self, location: Option<String>) {
        let mut settings = lock(&self.settings);
        settings.location = location;
        settings.refusal = None;
    }

    fn urls(&self) -> Vec<String> {
        lock(&self.listening).urls.clone()
    }

    fn public_key(&self) -> Option<String> {
        lock(&self.listening).key.clone()
    }

    fn fail(&self, text: &str) -> gst::FlowError {
        gst::element_imp_error!(self, gst::ResourceError::Read, ("{text}"));
        gst::FlowError::Error
    }

    fn tell_listening(&self, link: &Link) {
        let scheme = if link.public_key().is_some() { "a1" } else { "tcp" };
        let urls = link.local_address().map(|address| format!("{scheme}://{address}")).into_iter().collect();
        let key = link.public_key().map(|key| key.to_string());
        let listening = Listening { urls, key };
        *lock(&self.listening) = listening.clone();
        if listening.urls.is_empty() {
            return;
        }
        let Listening { urls, key } = listening;
        gst::info!(CAT, imp = self, "{} {}", urls.join(" "), key.as_deref().unwrap_or_default());
        media::post_listening(&*self.obj(), "freshwiresrc-listening", &urls, key.as_deref());
    }
}

#[glib::object_subclass]
impl ObjectSubclass for Element {
    const NAME: &'static str = "GstFreshwireSrc";
    type Type = FreshwireSrc;
    type ParentType = gst_base::PushSrc;
    type Interfaces = (gst::URIHandler,);
}

#[glib::derived_properties]
impl ObjectImpl for Element {
    fn constructed(&self) {
        self.parent_constructed();
        let obj = self.obj();
        obj.set_live(true);
        obj.set_format(gst::Format::Time);
    }
}

impl GstObjectImpl for Element {}

impl URIHandlerImpl for Element {
    const URI_TYPE: gst::URIType = gst::URIType::Src;

    fn protocols() -> &'static [&'static str] {
        SCHEMES
    }

    fn uri(&self) -> Option<String> {
        let location = lock(&self.settings).location.clone()?;
        match location.strip_prefix("http://") {
            Some(stream) => Some(format!("freshwire://{}", stream.replacen(".fw", "", 1))),
            None => location.starts_with("a1://").then_some(location),
        }
    }

    fn set_uri(&self, text: &str) -> Result<(), glib::Error> {
        check_state(&*self.obj())?;
        let result = self.set_stream(text);
        let mut settings = lock(&self.settings);
        settings.refusal = match &result {
            // `uridecodebin` shows a URI that is refused, with the password. So the refusal waits until the element starts.
            Err(error) if text.contains('@') => Some(error.message().to_owned()),
            _ => None,
        };
        if settings.refusal.is_some() { Ok(()) } else { result }
    }
}

impl Element {
    fn set_stream(&self, text: &str) -> Result<(), glib::Error> {
        let (obj, mut uri) = (self.obj(), Uri::parse(text)?);
        let location = match &uri.target {
            Target::A1(location) => location.clone(),
            Target::Stream(server, name) => {
                let (server, name) = (server.clone(), name.clone());
                format!("http://{server}/{name}.fw{}", uri.take_query(IN_URI))
            }
        };
        uri.set_properties(&*obj, IN_URI)?;
        lock(&self.settings).location = Some(location);
        Ok(())
    }
}

impl ElementImpl for Element {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: OnceLock<gst::subclass::ElementMetadata> = OnceLock::new();
        Some(METADATA.get_or_init(|| {
            gst::subclass::ElementMetadata::new(
                "Freshwire source",
                "Source/Network",
                "Receives an encoded stream over A1 or TCP, or from a Freshwire server",
                env!("CARGO_PKG_NAME"),
            )
        }))
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: OnceLock<Vec<gst::PadTemplate>> = OnceLock::new();
        TEMPLATES.get_or_init(|| {
            let mut caps = media::template_caps(Kind::Video);
            caps.merge(media::template_caps(Kind::Audio));
            gst::PadTemplate::new("src", gst::PadDirection::Src, gst::PadPresence::Always, &caps)
                .into_iter()
                .collect()
        })
    }
}

impl BaseSrcImpl for Element {
    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = lock(&self.settings).clone();
        let link = settings.link().and_then(|link| Link::open(&link));
        let link = link.map_err(|text| gst::error_msg!(gst::ResourceError::OpenRead, ("{text}")))?;
        self.tell_listening(&link);
        *lock(&self.open) = Some(Open { link, reader: Reader::new(settings.codec), has_ended: false });
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *lock(&self.open) = None;
        *lock(&self.listening) = Listening::default();
        Ok(())
    }

    fn is_seekable(&self) -> bool {
        false
    }

    /// Caps come with the first picture, which says its size.
    fn negotiate(&self) -> Result<(), gst::LoggableError> {
        Ok(())
    }

    fn query(&self, query: &mut gst::QueryRef) -> bool {
        if let gst::QueryViewMut::Latency(latency) = query.view_mut() {
            // A buffer's time is that of its arrival, or before it by at most this.
            let evened = gst::ClockTime::from_mseconds(lock(&self.settings).latency.into());
            latency.set(true, evened, gst::ClockTime::NONE);
            return true;
        }
        BaseSrcImplExt::parent_query(self, query)
    }

    fn unlock(&self) -> Result<(), gst::ErrorMessage> {
        self.flushing.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
        self.flushing.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl PushSrcImpl for Element {
    fn create(&self, _buffer: Option<&mut gst::BufferRef>) -> Result<CreateSuccess, gst::FlowError> {
        let latency = Duration::from_millis(lock(&self.settings).latency.into());
        let mut open = lock(&self.open);
        let Some(Open { link, reader, has_ended }) = &mut *open else { return Err(gst::FlowError::Flushing) };
        loop {
            if let Some(output) = reader.next() {
                if let Some(caps) = output.caps {
                    gst::debug!(CAT, imp = self, "caps {caps}");
                    self.obj().set_caps(&caps).map_err(|_| gst::FlowError::NotNegotiated)?;
                }
                return Ok(CreateSuccess::NewBuffer(output.buffer));
            }
            if *has_ended {
                return Err(gst::FlowError::Eos);
            }
            if self.flushing.load(Ordering::Relaxed) {
                return Err(gst::FlowError::Flushing);
            }
            let arrival = link.poll(LOOK).map_err(|text| self.fail(&text))?;
            let now = self.obj().current_running_time().unwrap_or(gst::ClockTime::ZERO);
            match arrival {
                None => {}
                Some(Arrival::Record { bytes, age }) => {
                    // A sink drops a picture that is due before it came: older ones are for now.
                    reader.record(&bytes, age.min(latency), now).map_err(|text| self.fail(&text))?;
                }
                Some(Arrival::Bytes(bytes)) => reader.bytes(&bytes, now).map_err(|text| self.fail(&text))?,
                Some(Arrival::Abandoned) => reader.gap(),
                Some(Arrival::End) => {
                    reader.finish(now);
                    *has_ended = true;
                }
            }
        }
    }
}
