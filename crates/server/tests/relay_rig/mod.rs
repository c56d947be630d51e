//! A relay, servers around it, and viewers of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use freshwire_moq::relay::{Relay, RelayConfig, RelayIdentity};
use freshwire_server::config::{Config, Listen};
use freshwire_server::hub::StreamSnapshot;
use freshwire_server::server::Server;
use tokio::runtime::Runtime;

use crate::testing::Process;

/// A busy machine may be late by much.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Upstream's relay in this process.
pub(crate) struct RelayScene {
    runtime: Option<Runtime>,
    pub(crate) address: SocketAddr,
}

/// A relay on a free port that lets everybody do everything.
pub(crate) fn open_relay() -> RelayConfig {
    RelayConfig {
        listen: "127.0.0.1:0".parse().expect("an address"),
        identity: RelayIdentity::Generated(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]),
        key: None,
        public: vec!["**".to_owned()],
        public_read: Vec::new(),
        peers: Vec::new(),
    }
}

impl RelayScene {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        let mut config = config.clone();
        if config.listen.port() == 0 {
            config.listen.set_port(free_port());
        }
        let runtime = Runtime::new().expect("a runtime");
        let relay = runtime.block_on(Relay::open(&config)).expect("it opens");
        let address = relay.address().expect("it listens");
        runtime.spawn(relay.run());
        Self { runtime: Some(runtime), address }
    }

    /// The address of a path at it, as a source or target.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("moq+http://{}/{path}", self.address)
    }

    /// Nobody hears of it.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for RelayScene {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that UDP and TCP have free.
fn free_port() -> u16 {
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        if std::net::UdpSocket::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// A server of this process.
pub(crate) struct Scene {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
}

/// The settings of this text, on ports that are free.
pub(crate) fn config(text: &str) -> Config {
    let mut config = Config::parse(text, Path::new("freshwire.toml")).expect("settings");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listen = Listen { plain: Some(any), tls: None };
    (config.rtsp, config.rtmp, config.http) = (listen, listen, listen);
    (config.internal, config.webrtc) = (Some(any), None);
    config
}

impl Scene {
    pub(crate) fn new(text: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::start(config(text))).expect("it starts");
        Self { runtime, server }
    }

    /// A server that announces its test picture as `live`.
    pub(crate) fn origin(relay: &RelayScene) -> Self {
        Self::new(&format!("[streams.live]\nsource = \"test\"\nrelay = [\"{}\"]\n", relay.url("demo")))
    }

    /// A server that has `live` of the relay.
    pub(crate) fn edge(relay: &RelayScene) -> Self {
        Self::new(&format!("[streams.live]\nsource = \"{}\"\n", relay.url("demo/live")))
    }

    pub(crate) fn address(&self, protocol: &str) -> SocketAddr {
        let mut all = self.server.addresses().iter();
        all.find(|address| address.protocol == protocol).expect("it is served").address
    }

    pub(crate) fn snapshot(&self, stream: &str) -> StreamSnapshot {
        self.server.context().hub.find(stream).expect("it is configured").snapshot()
    }

    pub(crate) fn units(&self, stream: &str) -> u64 {
        self.snapshot(stream).units
    }

    pub(crate) fn viewers(&self, stream: &str) -> usize {
        self.snapshot(stream).viewers.len()
    }

    /// What the internal address answers.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(self.address("internal")).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }

    /// A program that views the stream until it is dropped.
    pub(crate) fn view(&self, stream: &str) -> Process {
        let mut player = Command::new("ffmpeg");
        player.args("-nostdin -v error -rtsp_transport tcp -i".split(' '));
        player.arg(format!("rtsp://{}/{stream}", self.address("rtsp"))).args("-f null -".split(' '));
        Process(player.stdin(Stdio::null()).spawn().expect("ffmpeg starts"))
    }

    /// Views for some seconds: decoded pictures, and what ffmpeg complains of.
    pub(crate) fn watch(&self, stream: &str, seconds: u32) -> (usize, String) {
        let mut player = Command::new("ffmpeg");
        player.args("-nostdin -v error -rtsp_transport tcp -i".split(' '));
        player.arg(format!("rtsp://{}/{stream}", self.address("rtsp")));
        player.args(["-t", &seconds.to_string()]).args("-f null -progress pipe:1 -".split(' '));
        let output = player.output().expect("ffmpeg runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let frames =
            said.lines().filter_map(|line| line.strip_prefix("frame=")?.trim().parse().ok()).next_back();
        (frames.unwrap_or(0), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
