//! A server on a listener of the test's, and streams that ffmpeg makes.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use freshwire_media::demux::{Config, Demux, Event};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::http::{self, Site, internal};
use freshwire_server::hub::{Hub, HubConfig, Stream};
use freshwire_server::net::Acceptor;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Pictures per second of the streams.
pub(crate) const FPS: u32 = 25;

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) internal: SocketAddr,
    pub(crate) context: Arc<Context>,
    pub(crate) expected: watch::Sender<Vec<String>>,
    pub(crate) shutdown: watch::Sender<bool>,
    pub(crate) runtime: Runtime,
}

impl Server {
    /// Serves on this listener; the internal address is on loopback.
    pub(crate) fn new(listener: TcpListener, access: Access, limits: Limits) -> Self {
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
        let acceptor = Acceptor::new(listener, None, Arc::clone(&context.admission)).unwrap();
        let site = Site { rtsp_port: Some(8554), rtsps_port: None };
        runtime.spawn(http::serve(acceptor, Arc::clone(&context), site));
        runtime.spawn(internal::serve_internal(asynchronous(inside), Arc::clone(&context), expectations));
        drop(entered);
        Self { address, internal, context, expected, shutdown, runtime }
    }

    /// A server on loopback that lets everybody view.
    pub(crate) fn open() -> Self {
        Self::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), Limits::default())
    }
}

fn asynchronous(listener: TcpListener) -> tokio::net::TcpListener {
    listener.set_nonblocking(true).unwrap();
    tokio::net::TcpListener::from_std(listener).unwrap()
}

/// A stream that ffmpeg makes in real time: 720p25, I, P, B and b pictures, 1 Mbit/s, with its own clock drawn in.
pub(crate) struct Feed {
    /// When the first picture was drawn, to a few hundredths of a second.
    pub(crate) begun: Arc<OnceLock<SystemTime>>,
    encoder: Child,
    pump: Option<JoinHandle<()>>,
}

impl Feed {
    /// Feeds the stream until dropped; `None` with a message if there is no ffmpeg.
    pub(crate) fn start(stream: &Arc<Stream>, with_sound: bool) -> Option<Self> {
        if !is_there("ffmpeg") {
            return None;
        }
        let mut encoder = Command::new("ffmpeg")
            .args(arguments(with_sound))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut bytes = encoder.stdout.take().unwrap();
        let mut publisher = stream.publish("test", None).unwrap();
        let begun = Arc::new(OnceLock::new());
        let first = Arc::clone(&begun);
        let pump = std::thread::spawn(move || {
            let mut demux = Demux::new(Config::default());
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = bytes.read(&mut buffer) {
                demux.push(&buffer[..count]);
                for event in demux.by_ref() {
                    match event.unwrap() {
                        Event::Tracks(tracks) => publisher.tracks(tracks),
                        Event::Unit(unit) => {
                            first.get_or_init(|| SystemTime::now() - ENCODER_DELAY);
                            publisher.push(unit);
                        }
                    }
                }
            }
        });
        Some(Self { begun, encoder, pump: Some(pump) })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let _ = self.encoder.kill();
        let _ = self.encoder.wait();
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// The encoder keeps three B pictures and the picture in work.
const ENCODER_DELAY: Duration = Duration::from_millis(160);

/// Bits of the picture's number that are drawn, each a square of [`SQUARE`] samples from the left top corner on.
pub(crate) const BITS: u32 = 16;
/// Side of a square.
pub(crate) const SQUARE: u32 = 32;

fn arguments(with_sound: bool) -> Vec<String> {
    let mut clock = format!("drawbox=x=0:y=0:w={}:h={SQUARE}:c=black:t=fill", BITS * SQUARE);
    for bit in 0..BITS {
        let x = bit * SQUARE;
        let divisor = 1_u32 << bit;
        clock.push_str(&format!(
            ",drawbox=x={x}:y=0:w={SQUARE}:h={SQUARE}:c=white:t=fill:enable='eq(mod(floor(t*{FPS}/{divisor}+1e-4),2),1)'"
        ));
    }
    let source = format!("testsrc2=size=1280x720:rate={FPS},{clock},format=yuv420p");
    let mut line: Vec<String> =
        ["-v", "error", "-re", "-f", "lavfi", "-i", &source].map(str::to_owned).into();
    if with_sound {
        line.extend(["-re", "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"].map(str::to_owned));
        line.extend(["-c:a", "aac", "-b:a", "48k"].map(str::to_owned));
    }
    // B and b pictures get as many bits as P: so there is something to leave out.
    let video = "-c:v libx264 -preset veryfast -b:v 1M -x264-params keyint=50:min-keyint=50:bframes=3:\
                 b-pyramid=strict:b-adapt=0:scenecut=0:open-gop=0:ref=2:weightp=0:mbtree=0:sync-lookahead=0:\
                 rc-lookahead=0:sliced-threads=1:vbv-maxrate=1100:vbv-bufsize=300:ipratio=1.1:pbratio=1.0 \
                 -muxdelay 0 -muxpreload 0 -flush_packets 1 -f mpegts -";
    line.extend(video.split_whitespace().map(str::to_owned));
    line
}

/// True if the program can be run. If not, the test is skipped, except in CI.
pub(crate) fn is_there(program: &str) -> bool {
    let found =
        Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "{program} is missing");
    if !found {
        println!("skipped: {program} is missing");
    }
    found
}

/// Waits until `done`, at most so long; panics with `what` after that.
pub(crate) fn wait_for(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let until = SystemTime::now() + patience;
    while !done() {
        assert!(SystemTime::now() < until, "{what} takes longer than {patience:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
