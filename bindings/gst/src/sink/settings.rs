//! The properties of `freshwiresink`.

use std::time::Duration;

use crate::endpoint::{Keys, Location};
use crate::fit::{self, Place, Use};
use crate::line::LineSettings;
use crate::names::{Framing, Mode, Policy};
use crate::servers::ServerSettings;

/// Default time for connecting, in milliseconds. Chosen, not measured.
pub(super) const TIMEOUT_MS: u32 = 5000;

/// Default time for the rest at the end of the stream, in milliseconds. Chosen, not measured.
pub(super) const DRAIN_MS: u32 = 10_000;

/// The name of a stream that was given none.
const STREAM: &str = "live";

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) stream_name: Option<String>,
    pub(super) listen_rtsp: Option<String>,
    pub(super) listen_http: Option<String>,
    pub(super) open: bool,
    pub(super) config: Option<String>,
    pub(super) location: Option<String>,
    pub(super) mode: Mode,
    pub(super) peer_key: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) psk_file: Option<String>,
    pub(super) policy: Policy,
    pub(super) deadline: u32,
    pub(super) framing: Framing,
    pub(super) congestion: Option<String>,
    pub(super) timeout: u32,
    pub(super) drain_timeout: u32,
    pub(super) sync: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stream_name: Some(STREAM.to_owned()),
            listen_rtsp: None,
            listen_http: None,
            open: false,
            config: None,
            location: None,
            mode: Mode::default(),
            peer_key: None,
            key_file: None,
            psk_file: None,
            policy: Policy::default(),
            deadline: 0,
            framing: Framing::default(),
            congestion: None,
            timeout: TIMEOUT_MS,
            drain_timeout: DRAIN_MS,
            sync: true,
        }
    }
}

impl Settings {
    /// The name of the stream of a server.
    pub(super) fn stream(&self) -> &str {
        self.stream_name.as_deref().unwrap_or(STREAM)
    }

    /// Settings for a server.
    pub(super) fn server(&self) -> Result<ServerSettings, String> {
        fit::check(Place::Server, &self.uses())?;
        Ok(ServerSettings {
            config: self.config.clone(),
            listen_rtsp: self.listen_rtsp.clone(),
            listen_http: self.listen_http.clone(),
            open: self.open,
        })
    }

    /// The properties that have no effect at some places.
    fn uses(&self) -> [Use; 15] {
        const SERVER: &[Place] = &[Place::Server];
        const TCP: &[Place] = &[Place::Tcp];
        const A1: &[Place] = &[Place::A1];
        const BOTH: &[Place] = &[Place::Tcp, Place::A1];
        let default = Self::default();
        [
            // First what is dangerous to ignore.
            ("peer-key", self.peer_key != default.peer_key, A1),
            ("psk-file", self.psk_file != default.psk_file, A1),
            ("key-file", self.key_file != default.key_file, A1),
            ("framing", self.framing != default.framing, TCP),
            ("congestion", self.congestion != default.congestion, TCP),
            ("mode", self.mode != default.mode, BOTH),
            ("policy", self.policy != default.policy, BOTH),
            ("deadline", self.deadline != default.deadline, BOTH),
            ("timeout", self.timeout != default.timeout, BOTH),
            ("drain-timeout", self.drain_timeout != default.drain_timeout, BOTH),
            ("stream-name", self.stream() != default.stream(), SERVER),
            ("listen-rtsp", self.listen_rtsp != default.listen_rtsp, SERVER),
            ("listen-http", self.listen_http != default.listen_http, SERVER),
            ("open", self.open != default.open, SERVER),
            ("config", self.config != default.config, SERVER),
        ]
    }

    /// How one receiver at `location` is sent to.
    pub(super) fn line(&self, location: &str, is_video: bool) -> Result<LineSettings, String> {
        let millis = |number: u32| Duration::from_millis(number.into());
        let location = Location::parse(location)?;
        // A line refuses http:// with its own words.
        if location.place() != Place::Http {
            fit::check(location.place(), &self.uses())?;
        }
        Ok(LineSettings {
            location,
            mode: self.mode,
            keys: Keys {
                peer: self.peer_key.clone(),
                file: self.key_file.clone(),
                psk_file: self.psk_file.clone(),
            },
            is_video,
            policy: self.policy,
            deadline: (self.deadline > 0).then(|| millis(self.deadline)),
            framing: self.framing,
            congestion: self.congestion.clone(),
            timeout: millis(self.timeout),
            drain: millis(self.drain_timeout),
        })
    }
}
