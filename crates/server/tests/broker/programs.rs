//! The brokers: mosquitto and nats-server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{PATIENCE, free_port, listens};
use crate::testing::{Process, is_there};

/// mosquitto, with its files in a folder of its own.
pub(crate) struct Mosquitto {
    pub(crate) port: u16,
    folder: TempDir,
    process: Option<Process>,
}

impl Mosquitto {
    /// For everybody; `None` where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::with(|_| "allow_anonymous true\n".to_owned())
    }

    /// With these settings, which may name files in the folder.
    pub(crate) fn with(settings: impl FnOnce(&std::path::Path) -> String) -> Option<Self> {
        if !(is_there("mosquitto") && is_there("mosquitto_pub")) {
            return None;
        }
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let at = folder.path().display();
        let text = format!(
            "listener {port} 127.0.0.1\nuser root\npersistence true\npersistence_location {at}/\nautosave_interval 1\n\
             autosave_on_changes true\nmax_queued_messages 100000\nlog_dest stderr\n{}",
            settings(folder.path())
        );
        std::fs::write(folder.path().join("mosquitto.conf"), text).unwrap();
        let mut broker = Self { port, folder, process: None };
        broker.restart();
        Some(broker)
    }

    /// Ends it without a goodbye.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(self.folder.path().join("mosquitto.conf"));
        self.process = Some(Process(command.stderr(Stdio::null()).spawn().unwrap()));
        listens(self.port);
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("mqtt://127.0.0.1:{}/{rest}", self.port)
    }

    /// Publishes by mosquitto's own client.
    pub(crate) fn publish(&self, topic: &str, options: &[&str]) {
        let status = self.client("mosquitto_pub", topic).args(options).status().unwrap();
        assert!(status.success(), "{topic} {options:?}");
    }

    pub(crate) fn client(&self, program: &str, topic: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-t", topic]);
        command
    }
}

/// nats-server with JetStream, with its files in a folder of its own.
pub(crate) struct NatsServer {
    pub(crate) port: u16,
    folder: TempDir,
    process: Option<Process>,
}

impl NatsServer {
    pub(crate) fn start() -> Option<Self> {
        Self::with("")
    }

    pub(crate) fn with(settings: &str) -> Option<Self> {
        if !is_there("nats-server") {
            return None;
        }
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let store = folder.path().join("jetstream");
        let text = format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {store:?} }}\n{settings}");
        std::fs::write(folder.path().join("nats.conf"), text).unwrap();
        let mut server = Self { port, folder, process: None };
        server.restart();
        Some(server)
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(self.folder.path().join("nats.conf"));
        self.process = Some(Process(command.stderr(Stdio::null()).spawn().unwrap()));
        listens(self.port);
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("nats://127.0.0.1:{}/{rest}", self.port)
    }

    /// A client that shares no code with ours, as the user of these options.
    pub(crate) fn client(&self, options: &str) -> NatsClient {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = NatsClient { lines: BufReader::new(socket.try_clone().unwrap()), socket };
        client.say(&format!("CONNECT {{\"verbose\":false,\"headers\":true{options}}}\r\nSUB answer 9\r\n"));
        client.flush();
        client
    }
}

pub(crate) struct NatsClient {
    lines: BufReader<TcpStream>,
    socket: TcpStream,
}

impl NatsClient {
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    /// The server has taken all that was said.
    fn flush(&mut self) {
        self.say("PING\r\n");
        while self.line() != "PONG" {}
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(!line.is_empty() && !line.starts_with("-ERR"), "{line:?}");
        line.trim_end().to_owned()
    }

    pub(crate) fn publish(&mut self, subject: &str, payload: &str) {
        self.say(&format!("PUB {subject} {}\r\n{payload}\r\n", payload.len()));
        self.flush();
    }

    /// Deletes a key of a bucket.
    pub(crate) fn delete(&mut self, bucket: &str, key: &str) {
        let headers = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n";
        self.say(&format!("HPUB $KV.{bucket}.{key} {0} {0}\r\n{headers}\r\n", headers.len()));
        self.flush();
    }

    /// Makes a bucket.
    pub(crate) fn bucket(&mut self, name: &str) {
        let config = format!(
            "{{\"name\":\"KV_{name}\",\"subjects\":[\"$KV.{name}.>\"],\"max_msgs_per_subject\":1,\"discard\":\"new\",\
             \"allow_rollup_hdrs\":true,\"deny_delete\":true,\"allow_direct\":true,\"num_replicas\":1,\"max_age\":0,\
             \"max_msgs\":-1,\"max_bytes\":-1,\"storage\":\"file\",\"retention\":\"limits\"}}"
        );
        self.say(&format!("PUB $JS.API.STREAM.CREATE.KV_{name} answer {}\r\n{config}\r\n", config.len()));
        let answer = loop {
            let line = self.line();
            if let Some(length) = line.strip_prefix("MSG answer 9 ") {
                let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                self.lines.read_exact(&mut body).unwrap();
                break serde_json::from_slice::<Value>(&body).unwrap();
            }
        };
        assert!(answer["error"].is_null(), "{answer}");
    }
}
