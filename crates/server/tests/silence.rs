//! Clients that vanish behind a link without a word, as when a cable is pulled: their places are free soon. A client that is asleep for less than the
//! time for an answer stays.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod rtsp_rig;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freshwire::websocket::{Event, Reader, Role};
use freshwire_link::{Config as LinkConfig, Direction};
use freshwire_netns::testing::namespaces;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_record::Rate;
use freshwire_server::config::Config;
use freshwire_server::context::Context;
use freshwire_server::server::Server;
use freshwire_server::values::Content;
use rtsp_rig::{Client, Source, TCP, with_session};

const PUBLISHERS: usize = 16;
/// `limits.keepalive` and `limits.keepalive_timeout`.
const KEEPALIVE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(10);
/// TCP tries again within the timeout.
const ASLEEP: Duration = Duration::from_secs(3);
/// With the defaults of before a place was free after 100 s.
const MOST: Duration = Duration::from_secs(45);

fn main() -> ExitCode {
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    let link = || LinkConfig::builder().rate("100Mbit".parse().unwrap()).build().unwrap();
    let emulator = Emulator::start(&namespaces, link(), link(), EmulatorOptions::default()).unwrap();
    let scene = Scene::new(&namespaces);
    let clients = namespaces.in_far(|| Clients::new(&scene)).unwrap();
    scene.everybody_is_there("at the start");
    // Silent clients answer pings for longer than a connection may stay without an answer.
    hold(&scene, KEEPALIVE + TIMEOUT + Duration::from_secs(3));
    scene.everybody_is_there("after a silence");
    set_rate(&emulator, Some(Rate::from_bits_per_sec(1)));
    hold(&scene, ASLEEP);
    set_rate(&emulator, Some("100Mbit".parse().unwrap()));
    hold(&scene, KEEPALIVE + TIMEOUT + Duration::from_secs(3));
    scene.everybody_is_there("after a sleep");
    set_rate(&emulator, Some(Rate::from_bits_per_sec(1)));
    let vanished = Instant::now();
    let mut free = [None; 4];
    while free.contains(&None) && vanished.elapsed() < MOST {
        hold(&scene, Duration::from_millis(200));
        for (free, count) in free.iter_mut().zip(scene.counts()) {
            if count == 0 {
                free.get_or_insert(vanished.elapsed());
            }
        }
    }
    println!("free after: publishers, readers, viewers, connections {free:?}");
    drop(clients);
    if free.contains(&None) {
        println!("failed: {:?} are left after {MOST:?}", scene.counts());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn set_rate(emulator: &Emulator, rate: Option<Rate>) {
    emulator.set_rate(Direction::Up, rate);
    emulator.set_rate(Direction::Down, rate);
}

/// Lets the time pass, with pictures of one stream and values of one key.
fn hold(scene: &Scene, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        scene.moving.lock().unwrap().push();
        let topic = scene.context().topics.find("busy").unwrap();
        topic.set("key", &Content::Json("1".to_owned())).unwrap();
        // Pause: the pace of a source.
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Scene {
    server: Server,
    _runtime: tokio::runtime::Runtime,
    moving: Mutex<Source>,
    _still: Source,
}

impl Scene {
    fn new(namespaces: &Namespaces) -> Self {
        let near = Namespaces::NEAR_V4;
        let text = format!(
            "[rtsp]\nlisten = \"{near}:8554\"\n[http]\nlisten = \"{near}:8080\"\ninternal = \"none\"\n\
             [access]\nopen = true\n[access.anonymous]\npublish = [\"*\"]\n\
             [limits]\nkeepalive = \"{}s\"\nkeepalive_timeout = \"{}s\"\n[hub]\nstall_timeout = \"{}s\"\n\
             [streams.still]\nsource = \"publish\"\n[streams.moving]\nsource = \"publish\"\n\
             [streams.busy]\nsource = \"publish\"\n[streams.idle]\nsource = \"publish\"\n",
            KEEPALIVE.as_secs(),
            TIMEOUT.as_secs(),
            TIMEOUT.as_secs()
        );
        let config = Config::parse(&text, Path::new("freshwire.toml")).unwrap();
        let (runtime, server) = namespaces
            .in_near(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let server = runtime.block_on(Server::start(config)).unwrap();
                (runtime, server)
            })
            .unwrap();
        let source = |name: &str| {
            let stream = server.context().hub.find(name).unwrap();
            let mut source = Source::of(stream.publish("test", None).unwrap());
            source.push();
            source
        };
        let (moving, still) = (Mutex::new(source("moving")), source("still"));
        Self { server, _runtime: runtime, moving, _still: still }
    }

    fn context(&self) -> &Arc<Context> {
        self.server.context()
    }

    /// Publishers, readers of values, viewers, connections.
    fn counts(&self) -> [usize; 4] {
        let topics = self.context().topics.all();
        let topics = topics.iter().map(|topic| topic.snapshot());
        let (publishers, readers) = topics.fold((0, 0), |(publishers, readers), topic| {
            (publishers + topic.publishers, readers + topic.watchers.len())
        });
        let streams = self.context().hub.streams();
        let viewers = streams.iter().map(|stream| stream.snapshot().viewers.len()).sum();
        [publishers, readers, viewers, self.context().admission.open()]
    }

    fn everybody_is_there(&self, when: &str) {
        assert_eq!(self.counts(), [PUBLISHERS, 4, 10, PUBLISHERS + 14], "{when}");
    }
}

/// Clients of each kind. WebSocket clients answer pings.
struct Clients {
    leave: Arc<AtomicBool>,
    _rtsp: Vec<Client>,
    _threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    fn new(scene: &Scene) -> Self {
        let address = |protocol: &str| {
            scene.server.addresses().iter().find(|address| address.protocol == protocol).unwrap().address
        };
        let (rtsp, http) = (address("rtsp"), address("http"));
        let leave = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let mut read = |path: &str, is_socket: bool| {
            let (socket, leave) = (open(http, path, is_socket), Arc::clone(&leave));
            threads.push(std::thread::spawn(move || answer_pings(socket, is_socket, &leave)));
        };
        (0..PUBLISHERS).for_each(|_| read("/idle/push", true));
        for topic in ["idle", "busy"] {
            read(&format!("/{topic}/values"), true);
            read(&format!("/{topic}/events"), false);
        }
        let mut clients = Vec::new();
        for stream in ["still", "moving"] {
            read(&format!("/{stream}/ws"), true);
            ["ts", "mp4", "fw"].iter().for_each(|suffix| read(&format!("/{stream}.{suffix}"), false));
            clients.push(view(rtsp, stream));
        }
        Self { leave, _rtsp: clients, _threads: threads }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.leave.store(true, Ordering::Relaxed);
    }
}

fn open(address: SocketAddr, path: &str, is_socket: bool) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let upgrade = if is_socket { upgrade } else { "" };
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{upgrade}\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let expected = if is_socket { "HTTP/1.1 101" } else { "HTTP/1.1 200" };
    assert!(head.starts_with(expected.as_bytes()), "{path}: {}", String::from_utf8_lossy(&head));
    socket
}

fn answer_pings(mut socket: TcpStream, is_socket: bool, leave: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut frames = Reader::new(Role::Client, 1 << 20);
    let mut bytes = [0; 4096];
    while !leave.load(Ordering::Relaxed) {
        let Ok(count) = socket.read(&mut bytes) else { continue };
        if count == 0 {
            return;
        }
        if is_socket {
            frames.push(&bytes[..count]);
            for event in frames.by_ref() {
                if let Ok(Event::Ping(_)) = event {
                    socket.write_all(&[0x8a, 0x80, 1, 2, 3, 4]).unwrap();
                }
            }
        }
    }
}

/// Plays over RTSP. Its system takes what comes.
fn view(address: SocketAddr, stream: &str) -> Client {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let url = format!("rtsp://{address}/{stream}");
    let mut client = Client { socket, read: Vec::new(), cseq: 0, url };
    let session = client.ask("SETUP", "/trackID=0", TCP).session();
    assert_eq!(client.ask("PLAY", "", &with_session(&session)).status, "200");
    client
}
