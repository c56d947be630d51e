//! A server whose stream `state` has the values of a broker.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use freshwire_server::config::{Config, Listen};
use freshwire_server::server::Server;
use freshwire_server::values::Content;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::testing::wait_for;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A running server.
pub(crate) struct Site {
    runtime: Runtime,
    server: Server,
}

impl Site {
    pub(crate) fn start(source: &str) -> Self {
        Self::with(source, "")
    }

    /// With these settings as well.
    pub(crate) fn with(source: &str, settings: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start(config(source, settings))).unwrap();
        Self { runtime, server }
    }

    pub(crate) fn reload(&mut self, source: &str, settings: &str) {
        let _entered = self.runtime.enter();
        self.server.reload(config(source, settings)).unwrap();
    }

    fn address(&self, protocol: &str) -> SocketAddr {
        self.server.addresses().iter().find(|address| address.protocol == protocol).unwrap().address
    }

    /// The present values.
    pub(crate) fn values(&self) -> BTreeMap<String, Value> {
        let Some(topic) = self.server.context().topics.find("state") else { return BTreeMap::new() };
        let value = |content: Content| match content {
            Content::Json(json) => serde_json::from_str(&json).unwrap(),
            Content::Bytes(bytes) => json!({ "bytes": bytes }),
        };
        std::iter::successors(topic.present_after(None), |last| topic.present_after(Some(&last.key)))
            .map(|present| (present.key, value(present.content)))
            .collect()
    }

    /// Waits until the present values are these.
    #[track_caller]
    pub(crate) fn has(&self, expected: &Value) {
        self.wait(&format!("{expected}"), |site| json!(site.values()) == *expected);
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let begin = std::time::Instant::now();
        while !done(self) {
            let now = format!("{} {}", json!(self.values()), self.broker());
            let shown: String = now.chars().take(2000).collect();
            assert!(begin.elapsed() < PATIENCE, "{what}: {shown}");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What operators see of the broker.
    pub(crate) fn broker(&self) -> Value {
        let answer = ask(self.address("internal"), "GET", "/api/values", "", b"");
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        let topics: Value = serde_json::from_str(body).unwrap_or_default();
        topics[0]["broker"].clone()
    }

    #[track_caller]
    pub(crate) fn is_subscribed(&self) {
        self.wait("subscribed", |site| site.broker()["state"] == "subscribed");
    }

    /// Waits until the connection has failed for a reason with this text.
    #[track_caller]
    pub(crate) fn fails(&self, why: &str) {
        let is_so = |site: &Self| site.broker()["reason"].as_str().is_some_and(|reason| reason.contains(why));
        self.wait(why, is_so);
    }

    pub(crate) fn internal(&self, path: &str) -> String {
        ask(self.address("internal"), "GET", path, "", b"")
    }

    /// The status of the answer to a request, and all of it.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (String, String) {
        let answer = ask(self.address("http"), method, path, headers, body);
        (answer.split_whitespace().nth(1).unwrap_or_default().to_owned(), answer)
    }
}

fn config(source: &str, settings: &str) -> Config {
    let text = format!("[streams.state]\nsource = {source:?}\n{settings}");
    let mut config = Config::parse(&text, Path::new("freshwire.toml")).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let none = Listen { plain: None, tls: None };
    (config.rtsp, config.rtmp, config.webrtc) = (none, none, None);
    (config.http, config.internal) = (Listen { plain: Some(any), tls: None }, Some(any));
    config
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Certificates: an authority, and a server's certificate for a name.
pub(crate) struct Certificates {
    pub(crate) folder: TempDir,
}

impl Certificates {
    /// One that `ca.pem` has signed, for this name: `cert.pem` and `key.pem`.
    pub(crate) fn for_name(name: &str) -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let folder = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let cert = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let certificates = Self { folder };
        certificates.write("ca.pem", &root.pem());
        certificates.write("cert.pem", &cert.pem());
        certificates.write("key.pem", &key.serialize_pem());
        certificates
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Waits until somebody listens there.
pub(crate) fn listens(port: u16) {
    wait_for("a listener", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
}
