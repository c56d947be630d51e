//! ffmpeg and GStreamer as they are, publishing to the RTSP server and viewing from it.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

mod testing;

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freshwire_media::unit::VideoCodec;
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::hub::{Hub, HubConfig};
use freshwire_server::ingest::Source;
use freshwire_server::ingest::rtsp::{Camera, pull};
use freshwire_server::net::Acceptor;
use freshwire_server::rtsp;
use testing::{Process, has};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

struct Server {
    address: SocketAddr,
    context: Arc<Context>,
    runtime: Runtime,
    _stop: watch::Sender<bool>,
}

impl Server {
    fn new() -> Self {
        LazyLock::force(&LOG);
        let runtime = Runtime::new().expect("a runtime");
        let hub = Hub::new(HubConfig::default()).expect("a hub");
        let (stop, stopped) = watch::channel(false);
        let context = Arc::new(Context::new(hub, Access::open(), Limits::default(), stopped));
        let acceptor = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            Acceptor::new(listener, None, Arc::clone(&context.admission), context.tasks.clone())
                .expect("an acceptor")
        });
        let address = acceptor.local_addr();
        runtime.spawn(rtsp::serve(acceptor, Arc::clone(&context)));
        Self { address, context, runtime, _stop: stop }
    }

    fn url(&self, stream: &str) -> String {
        format!("rtsp://{}/{stream}", self.address)
    }

    /// Waits until the stream has shown its tracks and this many units.
    fn await_units(&self, stream: &str, count: u64) {
        let started = Instant::now();
        while self.context.hub.find(stream).is_none_or(|stream| stream.snapshot().units < count) {
            assert!(started.elapsed() < Duration::from_secs(20), "{stream} does not begin");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What the servers of all tests had to say.
static LOG: LazyLock<Arc<Mutex<Vec<u8>>>> = LazyLock::new(|| {
    let log = Arc::<Mutex<Vec<u8>>>::default();
    let writer = Arc::clone(&log);
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || Log(Arc::clone(&writer))).init();
    log
});

struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged() -> String {
    String::from_utf8_lossy(&LOG.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

fn command(program: &str, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn start(program: &str, arguments: &str) -> Process {
    let mut command = command(program, arguments);
    Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started"))
}

/// Runs a program to its end.
fn run(program: &str, arguments: &str) -> Output {
    command("timeout", &format!("30 {program} {arguments}")).output().expect("run")
}

const PICTURES: &str = "-hide_banner -loglevel error -re -f lavfi -i testsrc2=size=320x180:rate=25";
const SOUND: &str = "-re -f lavfi -i sine=frequency=440:sample_rate=48000";
const H264: &str = "-c:v libx264 -preset ultrafast -g 25 -bf 2 -b:v 400k";

/// Decodes 2 s with ffmpeg, which has to find nothing wrong.
fn assert_ffmpeg_plays(url: &str, transport: &str, maps: &str) {
    let output = run(
        "ffmpeg",
        &format!(
            "-hide_banner -loglevel warning -xerror -rtsp_transport {transport} -i {url} {maps} -t 2 -f null -"
        ),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{transport}: {} {said}", output.status);
    let errors = ["error while decoding", "concealing", "Invalid", "missed", "non-existing"];
    assert!(!errors.iter().any(|error| said.contains(error)), "{transport}: {said}");
}

#[test]
fn ffmpeg_publishes_and_views() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let server = Server::new();
    let url = server.url("live/cam");
    let tracks = "-map 0:v -map 1:a -c:a aac -b:a 64k";
    let _encoder =
        start("ffmpeg", &format!("{PICTURES} {SOUND} {tracks} {H264} -f rtsp -rtsp_transport tcp {url}"));
    server.await_units("live/cam", 60);
    assert_ffmpeg_plays(&url, "tcp", "-map 0:v -map 0:a");
    assert_ffmpeg_plays(&url, "udp", "-map 0:v -map 0:a");
    // It does not know retransmission, and is not disturbed by its offer.
    assert_ffmpeg_plays(&format!("{url}?retransmission=on"), "udp", "-map 0:v -map 0:a");
    let probed = run(
        "ffprobe",
        &format!("-v error -rtsp_transport tcp -show_entries stream=codec_name -of csv=p=0 {url}"),
    );
    assert_eq!(
        String::from_utf8_lossy(&probed.stdout).split_whitespace().collect::<Vec<_>>(),
        ["h264", "aac"]
    );
}

#[test]
fn ffmpeg_publishes_other_codecs_and_comes_back() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let server = Server::new();
    let url = server.url("cam");
    let codecs = "-c:v libx265 -preset ultrafast -g 25 -x265-params log-level=none -c:a libopus -strict -2";
    // Without a transport ffmpeg asks for UDP first, and takes TCP when that is refused.
    let arguments = format!("{PICTURES} {SOUND} -map 0:v -map 1:a {codecs} -f rtsp {url}");
    let encoder = start("ffmpeg", &arguments);
    server.await_units("cam", 60);
    assert_ffmpeg_plays(&url, "tcp", "-map 0:v -map 0:a");
    drop(encoder);
    let before = server.context.hub.find("cam").expect("it outlives its source").snapshot().units;
    let _again = start("ffmpeg", &arguments);
    server.await_units("cam", before + 60);
    assert_ffmpeg_plays(&url, "tcp", "-map 0:v -map 0:a");
}

/// GStreamer shows forty pictures, and has nothing to complain of until it has closed.
fn assert_gstreamer_plays(url: &str, protocols: &str) {
    let source = format!("rtspsrc location={url} protocols={protocols} latency=0");
    let sink = "rtph264depay ! h264parse ! avdec_h264 ! fakesink num-buffers=40";
    let output = Command::new("timeout")
        .args(["30", PYTHON, "tests/gstreamer.py", &format!("{source} ! {sink}")])
        .stdin(Stdio::null())
        .output()
        .expect("run");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(
        output.status.success() && said[0] == "played\n",
        "{protocols}: {} {said:?}\nthe servers:\n{}",
        output.status,
        logged()
    );
}

/// Debian's, which has its packages.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn gstreamer_publishes_and_views() {
    if !has("gst-launch-1.0", "--version")
        || !has("gst-inspect-1.0", "rtspclientsink")
        || !has(PYTHON, "-cimport gi; gi.require_version('Gst', '1.0')")
    {
        return;
    }
    let server = Server::new();
    let pictures =
        "videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=25/1 ! videoconvert";
    let encoder = "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=50 ! h264parse";
    // As it is, GStreamer publishes over UDP, and gives up where that is refused.
    for (name, protocols) in [("over-tcp", "protocols=tcp"), ("as-it-is", "")] {
        let url = server.url(name);
        let sink = format!("rtspclientsink {protocols} location={url}");
        let _encoder = start("gst-launch-1.0", &format!("-q {pictures} ! {encoder} ! {sink}"));
        server.await_units(name, 30);
        for protocols in ["tcp", "udp"] {
            assert_gstreamer_plays(&url, protocols);
        }
        // In the profile with feedback, where nothing is lost.
        assert_gstreamer_plays(&format!("{url}?retransmission=on"), "tcp");
    }
}

/// Each player asks for a latency in its own way of making URLs. VLC is not among what the tests need: it does not run as root.
#[test]
fn players_keep_the_latency_of_their_url() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let server = Server::new();
    let tracks = "-map 0:v -map 1:a -c:a aac -b:a 64k";
    let publish = format!("-f rtsp -rtsp_transport tcp {}", server.url("live/cam"));
    let _encoder = start("ffmpeg", &format!("{PICTURES} {SOUND} {tracks} {H264} {publish}"));
    server.await_units("live/cam", 30);
    let url = server.url("live/cam?track=1&latency=1234ms");
    // As they are, they ask for UDP first.
    let mut players = vec![
        ("ffmpeg", format!("-loglevel error -rtsp_transport tcp -i {url} -f null -")),
        ("ffmpeg", format!("-loglevel error -i {url} -f null -")),
        ("ffprobe", format!("-v error -rtsp_transport tcp -show_packets {url}")),
    ];
    if has("gst-launch-1.0", "--version") {
        let fake = "name=s s. ! fakesink s. ! fakesink";
        players.push(("gst-launch-1.0", format!("-q rtspsrc location={url} protocols=tcp {fake}")));
        players.push(("gst-launch-1.0", format!("-q rtspsrc location={url} {fake}")));
    }
    let viewers = || server.context.hub.find("live/cam").expect("published").snapshot().viewers;
    for (program, arguments) in players {
        let started = Instant::now();
        while !viewers().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(20), "the one before does not leave");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(20));
        }
        let _player = start(program, &arguments);
        while viewers().is_empty() {
            assert!(started.elapsed() < Duration::from_secs(40), "{program} {arguments}: {}", logged());
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(20));
        }
        let latency = viewers().first().expect("a viewer").latency;
        assert_eq!(latency, Some(Duration::from_millis(1234)), "{program} {arguments}");
    }
}

/// The players of today's distributions do not know AV1 over RTP, so another server is the player.
#[test]
fn av1_goes_from_server_to_server() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("clip.ivf");
    let encoder = "-c:v libaom-av1 -usage realtime -cpu-used 8 -g 10 -b:v 300k";
    let pictures = PICTURES.replace("-re ", "");
    let output = run("ffmpeg", &format!("{pictures} -t 2 {encoder} {}", file.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (camera, server) = (Server::new(), Server::new());
    let original = camera.context.hub.stream("cam").expect("room");
    camera.runtime.spawn(freshwire_server::ingest::run(Source::File(file), original));
    let copy = server.context.hub.stream("copy").expect("room");
    server.runtime.spawn(pull(Camera::parse(&camera.url("cam")).expect("a URL"), Arc::clone(&copy)));
    // Each picture is read for what it depends on: one that was damaged would end the group.
    server.await_units("copy", 60);
    let tracks = copy.tracks().borrow().clone().expect("known");
    let video = tracks.video.as_ref().expect("has pictures");
    assert!(matches!(&video.codec, VideoCodec::Av1 { sequence_header } if sequence_header[0] == 0x0a));
    assert_eq!((video.width, video.height), (320, 180));
    let snapshot = copy.snapshot();
    assert!(snapshot.keys >= 6 && snapshot.bytes > 10_000, "{snapshot:?}");
}

#[test]
fn a_file_with_vp9_has_its_sound() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("clip.webm");
    let (pictures, sound) = (PICTURES.replace("-re ", ""), SOUND.replace("-re ", ""));
    let encoders = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 25 -b:v 300k -c:a libopus";
    let output = run("ffmpeg", &format!("{pictures} {sound} -t 2 {encoders} {}", file.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let server = Server::new();
    let stream = server.context.hub.stream("film").expect("room");
    server.runtime.spawn(freshwire_server::ingest::run(Source::File(file), stream));
    server.await_units("film", 20);
    // Longer than the file, which begins again.
    let output = run(
        "ffmpeg",
        &format!(
            "-hide_banner -loglevel error -xerror -rtsp_transport tcp -i {} -map 0:v -map 0:a -t 4 -f framecrc -",
            server.url("film")
        ),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let count = |track: &str| said.lines().filter(|line| line.starts_with(track)).count();
    assert!(count("0,") > 90 && count("1,") > 180, "{} pictures, {} frames", count("0,"), count("1,"));
}

#[test]
fn a_camera_is_pulled_and_awaited() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let (camera, server) = (Server::new(), Server::new());
    let stream = server.context.hub.stream("copy").expect("room");
    let source = Camera::parse(&camera.url("cam").replace("rtsp://", "rtsp://me:secret@")).expect("a URL");
    assert!(!source.origin().contains("secret"));
    // It is not there yet.
    server.runtime.spawn(pull(source, stream));
    // Pause: the camera comes late.
    std::thread::sleep(Duration::from_millis(200));
    let _encoder =
        start("ffmpeg", &format!("{PICTURES} {H264} -f rtsp -rtsp_transport tcp {}", camera.url("cam")));
    server.await_units("copy", 40);
    assert_ffmpeg_plays(&server.url("copy"), "tcp", "-map 0:v");
}
