//! The servers of this process. Elements with the same settings share one, so that several streams are on the same ports.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshwire_server::config::{Config, Listen, parse_listen};
use freshwire_server::hub::{Publisher, Stream};
use freshwire_server::server::Server;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::log::{CAT, bridge};

/// Control connections cost little; viewers are served by the engine and by the publishing thread.
const WORKERS: usize = 2;

/// Requests for a keyframe that wait: one says it all.
const KEY_REQUESTS: usize = 1;

/// Settings of a server, by the names of the element's properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    /// A file as `packaging/freshwire.toml`.
    pub(crate) config: Option<String>,
    /// `ADDR:PORT`, `:PORT` or `none`.
    pub(crate) listen_rtsp: Option<String>,
    pub(crate) listen_http: Option<String>,
    /// Everybody may view.
    pub(crate) open: bool,
}

/// The command's options in the server's messages, and what they are here.
const NAMES: [(&str, &str); 7] = [
    ("--user NAME:PASSWORD, or ", ""),
    ("--open", "open=true"),
    ("--config", "config"),
    (" --listen-rtmp,", ""),
    (", --listen-webrtc", ""),
    (", --listen-internal", ""),
    ("--listen-", "listen-"),
];

/// A message of the server with the properties' names.
fn in_own_names(words: &str) -> String {
    NAMES.iter().fold(words.to_owned(), |words, (theirs, ours)| words.replace(theirs, ours))
}

impl ServerSettings {
    fn complete(&self) -> Result<Config, String> {
        let mut config = match &self.config {
            Some(path) => Config::load(Path::new(path)).map_err(|error| error.to_string())?,
            // What it says of itself is in the element's properties.
            None => {
                let rtmp = Listen { plain: None, tls: None };
                Config { rtmp, webrtc: None, internal: None, ..Config::default() }
            }
        };
        let listen = |text: &Option<String>, property: &str, address: &mut Option<SocketAddr>| {
            let Some(text) = text else { return Ok(()) };
            // It is not shown: it may have a password.
            if text.contains('@') {
                return Err(format!(
                    "{property} is ADDR:PORT: leave out the user and the password in front of @"
                ));
            }
            *address = parse_listen(text).map_err(|error| format!("{property}: {error}"))?;
            Ok::<_, String>(())
        };
        listen(&self.listen_rtsp, "listen-rtsp", &mut config.rtsp.plain)?;
        listen(&self.listen_http, "listen-http", &mut config.http.plain)?;
        config.open |= self.open;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }
}

/// A server that runs.
struct Running {
    runtime: Runtime,
    server: Server,
}

struct Entry {
    settings: ServerSettings,
    running: Running,
    users: usize,
}

static SERVERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The entries are whole whatever a thread that panicked has done.
fn servers() -> MutexGuard<'static, Vec<Entry>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The use of a server. Dropping the last one stops it in order: viewers get pictures in progress, for some
/// seconds at most.
pub(crate) struct ServerUse {
    settings: ServerSettings,
    /// `scheme://address` of each listener.
    addresses: Vec<String>,
}

impl ServerUse {
    /// A server with these settings, started if there is none.
    pub(crate) fn take(settings: &ServerSettings) -> Result<Self, String> {
        // Held meanwhile: whoever has the same settings waits for the ports.
        let mut servers = servers();
        let place = match servers.iter().position(|entry| entry.settings == *settings) {
            Some(place) => place,
            None => {
                let running = settings.complete().and_then(start).map_err(|words| in_own_names(&words))?;
                servers.push(Entry { settings: settings.clone(), running, users: 0 });
                servers.len() - 1
            }
        };
        let Entry { running, users, .. } = &mut servers[place];
        *users += 1;
        let addresses = running.server.addresses().iter();
        let addresses =
            addresses.map(|address| format!("{}://{}", address.protocol, address.address)).collect();
        Ok(Self { settings: settings.clone(), addresses })
    }

    /// The address of a stream at each listener.
    pub(crate) fn urls(&self, stream: &str) -> Vec<String> {
        self.addresses.iter().map(|address| format!("{address}/{stream}")).collect()
    }

    /// The right to feed a stream, and what comes when a viewer needs a keyframe.
    pub(crate) fn publish(&self, stream: &str) -> Result<(Publisher, mpsc::Receiver<()>), String> {
        freshwire_server::config::check_stream_name(stream).map_err(|error| error.to_string())?;
        let (wanted, key_requests) = mpsc::channel(KEY_REQUESTS);
        let hub = self.with(|running| running.server.context().hub.clone())?;
        let publisher = hub.publish(stream, "GStreamer", Some(wanted)).map_err(|error| error.to_string())?;
        Ok((publisher, key_requests))
    }

    /// A stream that is published.
    pub(crate) fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.with(|running| running.server.context().hub.find(name)).ok()?
    }

    fn with<T>(&self, use_it: impl FnOnce(&Running) -> T) -> Result<T, String> {
        let servers = servers();
        let entry = servers.iter().find(|entry| entry.settings == self.settings);
        entry.map(|entry| use_it(&entry.running)).ok_or_else(|| "the server has stopped".to_owned())
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        let mut servers = servers();
        let Some(place) = servers.iter().position(|entry| entry.settings == self.settings) else { return };
        servers[place].users -= 1;
        if servers[place].users > 0 {
            return;
        }
        let Running { runtime, server } = servers.swap_remove(place).running;
        tracing::dispatcher::with_default(&bridge(), || runtime.block_on(server.stop()));
        gst::debug!(CAT, "the server has stopped");
    }
}

fn start(config: Config) -> Result<Running, String> {
    let dispatch = Arc::new(bridge());
    let for_threads = Arc::clone(&dispatch);
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("freshwire")
        .enable_all()
        // For as long as the thread lives.
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&for_threads)))
        .build()
        .map_err(|error| format!("cannot start the server's threads: {error}"))?;
    let server = tracing::dispatcher::with_default(&dispatch, || runtime.block_on(Server::start(config)));
    let server = server.map_err(|error| error.to_string())?;
    Ok(Running { runtime, server })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &Path, found: &mut Vec<String>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_test = path.ends_with("tests.rs") || path.ends_with("tests");
            if path.is_dir() {
                sources(&path, found);
            } else if !is_test && path.extension().is_some_and(|ending| ending == "rs") {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn messages_have_no_options_of_the_command() {
        let mut found = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/server/src"), &mut found);
        let has_option = |line: &str| {
            line.match_indices("--")
                .any(|(at, _)| line[at + 2..].starts_with(|next: char| next.is_ascii_lowercase()))
        };
        let lines = found.iter().flat_map(|source| source.lines()).map(str::trim_start);
        let words =
            lines.filter(|line| !line.starts_with("//") && !line.contains("tracing::") && has_option(line));
        // Lines with options of curl, which the command prints at its start.
        let words: Vec<&str> = words.filter(|line| !line.contains("curl")).collect();
        assert!(words.len() >= 3, "{words:?}");
        for line in words {
            assert!(!has_option(&in_own_names(line)), "{line}: NAMES has no name for its option");
        }
    }
}
