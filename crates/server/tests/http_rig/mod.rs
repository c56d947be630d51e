//! A server on a listener of the test's, and its own test picture as a stream.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use freshwire_server::access::Access;
use freshwire_server::config::{BasePath, Limits};
use freshwire_server::context::Context;
use freshwire_server::http::{self, Site, internal};
use freshwire_server::hub::{Hub, HubConfig};
use freshwire_server::ingest::{self, PatternConfig, Source};
use freshwire_server::net::Acceptor;
use freshwire_server::tls::Certificate;
use freshwire_server::webrtc::{self, WebRtc};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) context: Arc<Context>,
    pub(crate) expected: watch::Sender<Vec<String>>,
    pub(crate) shutdown: watch::Sender<bool>,
    pub(crate) runtime: Runtime,
    /// What clients trust, if connections are encrypted.
    pub(crate) trust: Option<Arc<ClientConfig>>,
    pub(crate) webrtc: Option<Arc<WebRtc>>,
}

impl Server {
    /// Serves on this listener; the internal address is on loopback.
    pub(crate) fn new(listener: TcpListener, access: Access, limits: Limits) -> Self {
        Self::start(listener, access, limits, None)
    }

    /// A server on loopback that lets everybody view, over TLS, with a new certificate for `localhost`.
    pub(crate) fn encrypted() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let paths = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&paths[0], made.cert.pem()).unwrap();
        std::fs::write(&paths[1], made.signing_key.serialize_pem()).unwrap();
        let certificate = Certificate::load(&paths[0], &paths[1]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let trust = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tls = certificate.acceptor(&["http/1.1"]);
        let server = Self::start(listener, Access::open(), Limits::default(), Some(tls));
        Self { trust: Some(Arc::new(trust)), ..server }
    }

    /// A server whose pages a proxy shows below this path.
    pub(crate) fn below(listener: TcpListener, base_path: BasePath, access: Access, limits: Limits) -> Self {
        let site = Site { rtsp_port: Some(8554), base_path, ..Site::default() };
        Self::on(listener, access, limits, None, site)
    }

    /// A server that serves WebRTC as well.
    pub(crate) fn with_webrtc(listener: TcpListener, access: Access, limits: Limits, webrtc: WebRtc) -> Self {
        let site = Site { webrtc: Some(Arc::new(webrtc)), ..Site::default() };
        Self::on(listener, access, limits, None, site)
    }

    fn start(listener: TcpListener, access: Access, limits: Limits, tls: Option<TlsAcceptor>) -> Self {
        let site = Site { rtsp_port: Some(8554), ..Site::default() };
        Self::on(listener, access, limits, tls, site)
    }

    fn on(
        listener: TcpListener,
        access: Access,
        limits: Limits,
        tls: Option<TlsAcceptor>,
        site: Site,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (shutdown, stops) = watch::channel(false);
        let (expected, expectations) = watch::channel(Vec::new());
        let hub = Hub::new(HubConfig::default()).unwrap();
        let context = Arc::new(Context::new(hub, access, limits, stops));
        let address = listener.local_addr().unwrap();
        let inside = TcpListener::bind("127.0.0.1:0").unwrap();
        let internal = inside.local_addr().unwrap();
        let entered = runtime.enter();
        let listener = asynchronous(listener);
        let acceptor =
            Acceptor::new(listener, tls, Arc::clone(&context.admission), context.tasks.clone()).unwrap();
        let sessions = site.webrtc.clone();
        if let Some(sessions) = sessions.clone() {
            runtime.spawn(webrtc::serve(sessions, Arc::clone(&context)));
        }
        runtime.spawn(http::serve(acceptor, Arc::clone(&context), site));
        runtime.spawn(internal::serve_internal(asynchronous(inside), Arc::clone(&context), expectations));
        drop(entered);
        Self { address, internal, context, expected, shutdown, runtime, trust: None, webrtc: sessions }
    }

    /// A server on loopback that lets everybody view.
    pub(crate) fn open() -> Self {
        Self::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), Limits::default())
    }

    /// How many sessions of WebRTC there are.
    pub(crate) fn sessions(&self) -> usize {
        self.webrtc.as_ref().map_or(0, |webrtc| webrtc.len())
    }

    /// A stream with the test picture, which needs ffmpeg.
    pub(crate) fn feed(&self, stream: &str, picture: PatternConfig) {
        let stream = self.context.hub.stream(stream).unwrap();
        self.runtime.spawn(ingest::run(Source::Test(picture), stream));
    }
}

fn asynchronous(listener: TcpListener) -> tokio::net::TcpListener {
    listener.set_nonblocking(true).unwrap();
    tokio::net::TcpListener::from_std(listener).unwrap()
}
