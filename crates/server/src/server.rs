//! The server as a whole: listeners, sources, reload and a stop in order.

mod address;
mod error;
mod forwards;
mod inherited;
mod listeners;
mod sources;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::Access;
use crate::config::{Config, TlsFiles};
use crate::context::Context;
use crate::http::{self, Site, internal};
use crate::hub::Hub;
use crate::ingest::Source;
use crate::net::Acceptor;
use crate::rtmp;
use crate::rtsp;
use crate::tasks::text_of;
use crate::tls::{Certificate, TlsError};
use crate::webrtc::{self, WebRtc};

pub use address::Address;
pub use error::ServeError;
pub use inherited::Inherited;

use forwards::Forwards;
use listeners::Listeners;
use sources::Sources;

/// The time for connected clients to take a record in progress when the server stops. Chosen: those that come back should find the next
/// server within 2 s.
const FAREWELL: Duration = Duration::from_millis(1500);

/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(20);

/// How often to look for streams that nobody uses, while there are some that would end.
const LOOK_FOR_UNUSED: Duration = Duration::from_secs(1);

/// A running server. Dropping it ends everything at once; [`Server::stop`] in order.
pub struct Server {
    config: Config,
    /// Addresses of sockets that are not of the configuration.
    held: Vec<Address>,
    certificate: Option<Arc<Certificate>>,
    context: Arc<Context>,
    shutdown: watch::Sender<bool>,
    services: JoinSet<()>,
    sources: Sources,
    forwards: Forwards,
    addresses: Vec<Address>,
}

impl Server {
    /// Binds the listeners, starts the sources and serves; needs a Tokio runtime. Nothing runs if it fails.
    ///
    /// # Errors
    ///
    /// If the configuration contradicts itself, an address cannot be listened on, or the certificate or a source cannot be used.
    pub async fn start(config: Config) -> Result<Self, ServeError> {
        Self::start_on(Inherited::default(), config).await
    }

    /// The same with listening sockets that are there already, whatever the configuration says about their protocols.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub async fn start_on(inherited: Inherited, mut config: Config) -> Result<Self, ServeError> {
        let held = inherited.addresses()?;
        inherited::enter(&held, &mut config)?;
        config.check()?;
        raise_descriptor_limit(config.limits.max_connections);
        let certificate = load(config.tls.as_ref())?;
        let listeners = Listeners::bind(&config, inherited).await?;
        let webrtc = webrtc(&config)?;
        let mut addresses = listeners.addresses()?;
        let address = webrtc.as_ref().map(|webrtc| webrtc.local_addr());
        addresses.extend(address.map(|address| Address { protocol: "webrtc", address }));
        let hub = Hub::new(config.hub.clone()).map_err(ServeError::Engine)?;
        let (shutdown, stopping) = watch::channel(false);
        let access = Access::new(config.rules());
        let context = Arc::new(Context::new(hub, access, config.limits, stopping));
        context.set_origins(config.trusted_origins.clone());
        if let Some(multicast) = config.multicast {
            context.allow_multicast(multicast);
        }
        let mut sources = Sources::default();
        sources.apply(&context, &config.streams)?;
        let mut forwards = Forwards::default();
        forwards.apply(&context, &config.streams);
        let services = JoinSet::new();
        let mut server =
            Self { config, held, certificate, context, shutdown, services, sources, forwards, addresses };
        server.serve(listeners, webrtc)?;
        Ok(server)
    }

    fn serve(&mut self, listeners: Listeners, webrtc: Option<Arc<WebRtc>>) -> Result<(), ServeError> {
        let port = |address: &Option<tokio::net::TcpListener>| {
            address.as_ref().and_then(|listener| listener.local_addr().ok()).map(|address| address.port())
        };
        let site = Site {
            rtsp_port: port(&listeners.rtsp),
            rtsps_port: port(&listeners.rtsps),
            webrtc: webrtc.clone(),
            base_path: self.config.base_path.clone(),
        };
        let tls = |protocols: &[&str]| self.certificate.as_ref().map(|c| c.acceptor(protocols));
        let admission = &self.context.admission;
        let accept = |listener, tls| {
            Acceptor::new(listener, tls, Arc::clone(admission), self.context.tasks.clone())
                .map_err(ServeError::Engine)
        };
        for (listener, tls) in [(listeners.rtsp, None), (listeners.rtsps, tls(&[]))] {
            let Some(listener) = listener else { continue };
            self.services.spawn(rtsp::serve(accept(listener, tls)?, Arc::clone(&self.context)));
        }
        for (listener, tls) in [(listeners.rtmp, None), (listeners.rtmps, tls(&[]))] {
            let Some(listener) = listener else { continue };
            self.services.spawn(rtmp::serve(accept(listener, tls)?, Arc::clone(&self.context)));
        }
        for (listener, tls) in [(listeners.http, None), (listeners.https, tls(&["http/1.1"]))] {
            let Some(listener) = listener else { continue };
            self.services.spawn(http::serve(accept(listener, tls)?, Arc::clone(&self.context), site.clone()));
        }
        if let Some(webrtc) = webrtc {
            self.services.spawn(webrtc::serve(webrtc, Arc::clone(&self.context)));
        }
        self.services.spawn(end_unused_streams(Arc::clone(&self.context)));
        if let Some(listener) = listeners.internal {
            let (context, expected) = (Arc::clone(&self.context), self.sources.expected());
            self.services.spawn(internal::serve_internal(listener, context, expected));
        }
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A line to type for each stream that has a source: a command or an address of a page.
    pub fn invitations(&self) -> Vec<String> {
        let base_path = self.config.base_path.as_str();
        let streams = self.config.streams.iter();
        let lines = streams.flat_map(|(name, stream)| {
            self.addresses.iter().filter_map(move |address| match stream.source {
                Source::Publish => None,
                Source::Broker(_) => address.value_invitation(name, base_path),
                _ => address.invitation(name, base_path),
            })
        });
        lines.collect()
    }

    /// For each stream that waits for a publisher, its name and what a person can type to publish and to see values and pictures.
    pub fn calls(&self) -> Vec<(&str, Vec<String>)> {
        let base_path = self.config.base_path.as_str();
        let user = !self.config.access.users.is_empty();
        let awaited = self.config.streams.iter().filter(|(_, stream)| stream.source == Source::Publish);
        let calls = |name: &str| {
            // Addresses of pages first: most such streams have values.
            let (http, others): (Vec<&Address>, Vec<&Address>) =
                self.addresses.iter().partition(|address| address.protocol.starts_with("http"));
            let calls =
                http.into_iter().chain(others).flat_map(|address| address.calls(name, base_path, user));
            calls.collect::<Vec<_>>()
        };
        awaited.map(|(name, _)| (name.as_str(), calls(name))).collect()
    }

    /// The state that its connections share.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Applies rules of access, limits, streams and the certificate of a new configuration; on an error nothing changes.
    /// Returns the sections that differ and that only a new start applies.
    ///
    /// # Errors
    ///
    /// If the configuration contradicts itself, or the certificate or a source cannot be used.
    pub fn reload(&mut self, mut newer: Config) -> Result<Vec<&'static str>, ServeError> {
        inherited::enter(&self.held, &mut newer)?;
        let fixed = self.config.fixed_differences(&newer);
        // The addresses that stay open decide what has to be protected.
        (newer.rtsp, newer.http, newer.internal) = (self.config.rtsp, self.config.http, self.config.internal);
        (newer.rtmp, newer.requires_rtmp) = (self.config.rtmp, self.config.requires_rtmp);
        newer.webrtc = self.config.webrtc;
        newer.base_path = self.config.base_path.clone();
        newer.hub = self.config.hub.clone();
        newer.check()?;
        let renewed = load(newer.tls.as_ref())?;
        self.sources.apply(&self.context, &newer.streams)?;
        self.forwards.apply(&self.context, &newer.streams);
        if let (Some(certificate), Some(renewed)) = (&self.certificate, renewed) {
            certificate.renew(&renewed);
        }
        self.context.set_access(self.context.access().with_rules(newer.rules()));
        self.context.set_origins(newer.trusted_origins.clone());
        self.context.admission.set_limits(newer.limits);
        self.config = newer;
        Ok(fixed)
    }

    /// Stops: accepts nobody, lets viewers receive the record in progress, a few seconds at most.
    pub async fn stop(mut self) {
        // Nobody is left to tell if no service runs.
        let _ = self.shutdown.send(true);
        self.sources.stop();
        let deadline = Instant::now() + FAREWELL;
        let ended = async {
            self.forwards.ended().await;
            while self.services.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(FAREWELL, ended).await;
        while self.context.admission.open() > 0 && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        let open = self.context.admission.open();
        if open > 0 {
            tracing::warn!(open, "connections were cut because they did not end in time");
        }
    }
}

/// Serves until SIGTERM or SIGINT. SIGHUP asks `reload` for the configuration; `None`: there is no file to read again.
///
/// # Errors
///
/// If signals cannot be received.
pub async fn run<E: fmt::Display>(
    mut server: Server,
    reload: impl Fn() -> Option<Result<Config, E>>,
) -> Result<(), ServeError> {
    let listen = |kind: SignalKind| signal(kind).map_err(ServeError::Engine);
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut ends = [listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?];
    loop {
        tokio::select! {
            Some(()) = hang_up.recv() => reload_once(&mut server, reload()),
            () = any(&mut ends) => break,
        }
    }
    tracing::info!("stopping; once more ends it at once");
    tokio::select! {
        () = server.stop() => tracing::info!("stopped"),
        () = any(&mut ends) => tracing::warn!("stopped at once"),
    }
    Ok(())
}

async fn end_unused_streams(context: Arc<Context>) {
    let mut shutdown = context.shutdown.clone();
    let look = async {
        loop {
            context.hub.has_passing_stream().await;
            tokio::time::sleep(LOOK_FOR_UNUSED).await;
            for stream in context.hub.end_unused(Instant::now()) {
                tracing::info!(stream, "ended: nobody publishes or views it");
            }
        }
    };
    tokio::select! {
        () = look => {}
        // A sender that is gone has stopped, too.
        _ = shutdown.wait_for(|&stops| stops) => {}
    }
}

/// The port of WebRTC. Nobody has chosen the default one: if another server of this machine has it, this one goes without.
fn webrtc(config: &Config) -> Result<Option<Arc<WebRtc>>, ServeError> {
    let Some(address) = config.webrtc else { return Ok(None) };
    match WebRtc::open(address, config.webrtc_addresses.clone()) {
        Ok(webrtc) => Ok(Some(Arc::new(webrtc))),
        Err(error) if Config::default().webrtc == Some(address) => {
            tracing::warn!(%address, %error, "no WebRTC; choose a port with --listen-webrtc, or none");
            Ok(None)
        }
        Err(error) => Err(ServeError::listen("webrtc", address, error)),
    }
}

fn load(files: Option<&TlsFiles>) -> Result<Option<Arc<Certificate>>, TlsError> {
    files.map(|files| Certificate::load(&files.certificate, &files.key)).transpose()
}

async fn any([first, second]: &mut [Signal; 2]) {
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}

fn reload_once<E: fmt::Display>(server: &mut Server, read: Option<Result<Config, E>>) {
    let Some(read) = read else {
        tracing::warn!("nothing to reload: the server was started without --config");
        return;
    };
    let reload = || {
        read.map_err(|error| error.to_string())
            .and_then(|config| server.reload(config).map_err(|error| error.to_string()))
    };
    // The signals of the end are still to be heard after a panic.
    let reloaded = catch_unwind(AssertUnwindSafe(reload)).unwrap_or_else(|panic| {
        server.context.tasks.count_panic();
        Err(format!("a panic: {}", text_of(&*panic)))
    });
    match reloaded {
        Ok(fixed) if fixed.is_empty() => tracing::info!("reloaded the configuration"),
        Ok(fixed) => {
            let sections = fixed.join(", ");
            tracing::warn!(sections, "reloaded the configuration; restart the server for these sections");
        }
        Err(error) => tracing::error!(%error, "the configuration was not reloaded, the old one stays"),
    }
}

/// Each viewer takes two descriptors, and as many again may be on their way.
fn raise_descriptor_limit(max_connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let available = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = 2 * max_connections as u64 + 100;
    if available < needed {
        tracing::warn!(
            available,
            needed,
            "too few open files for max_connections; raise the limit (LimitNOFILE, ulimit -Hn) or lower max_connections"
        );
    }
}

#[cfg(test)]
mod tests;
