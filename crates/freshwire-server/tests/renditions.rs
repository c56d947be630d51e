//! Real players across changes of the rendition: none of them sees a break, and each picture is one that a decoder takes.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::http::{self, Site};
use freshwire_server::hub::{Hub, HubConfig, Stream};
use freshwire_server::ingest::{self, Outlet, Source};
use freshwire_server::net::Acceptor;
use freshwire_server::rtsp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Server {
    rtsp: SocketAddr,
    http: SocketAddr,
    context: Arc<Context>,
    runtime: Runtime,
    _stop: watch::Sender<bool>,
}

impl Server {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let hub = Hub::new(HubConfig::default()).expect("a hub");
        let (stop, stopped) = watch::channel(false);
        let context = Arc::new(Context::new(hub, Access::open(), Limits::default(), stopped));
        let acceptor = || {
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                Acceptor::new(listener, None, Arc::clone(&context.admission), context.tasks.clone())
                    .expect("an acceptor")
            })
        };
        let (for_rtsp, for_http) = (acceptor(), acceptor());
        let (rtsp, http) = (for_rtsp.local_addr(), for_http.local_addr());
        runtime.spawn(rtsp::serve(for_rtsp, Arc::clone(&context)));
        let site = Site { rtsp_port: Some(rtsp.port()), rtsps_port: None };
        runtime.spawn(http::serve(for_http, Arc::clone(&context), site));
        Self { rtsp, http, context, runtime, _stop: stop }
    }

    fn stream(&self) -> Arc<Stream> {
        self.context.hub.stream("live").expect("a stream")
    }

    fn feed(&self, file: &Path, rendition: Option<&str>) -> JoinHandle<()> {
        let stream = self.stream();
        let outlet = match rendition {
            Some(name) => Outlet::rendition(stream, name),
            None => stream.into(),
        };
        self.runtime.spawn(ingest::run(Source::File(file.to_owned()), outlet))
    }
}

fn has(program: &str, argument: &str) -> bool {
    let there = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{program} is needed in CI");
        println!("skipped: {program} is not on this machine");
    }
    there
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("run")
}

/// A clip with sound whose pictures are of this size, with keyframes so many pictures apart.
fn clip(folder: &Path, (width, height): (u32, u32), rate: &str, group: u32, more: &[&str]) -> PathBuf {
    let path = folder.join(format!("{height}.ts"));
    let size = format!("testsrc2=size={width}x{height}:rate=25:duration=30");
    let group = group.to_string();
    let mut arguments = vec!["-v", "error", "-y", "-f", "lavfi", "-i", &size];
    arguments.extend(["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=30"]);
    arguments.extend(["-c:v", "libx264", "-preset", "ultrafast", "-g", &group, "-b:v", rate, "-c:a", "aac"]);
    arguments.extend(more);
    arguments.push(path.to_str().expect("UTF-8"));
    let output = run("ffmpeg", &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

/// Waits until a viewer has this rendition.
fn await_rendition(stream: &Stream, name: &str) {
    let begun = Instant::now();
    loop {
        let snapshot = stream.snapshot();
        let viewers = &snapshot.viewers;
        if !viewers.is_empty() && viewers.iter().all(|viewer| viewer.rendition.as_deref() == Some(name)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no viewer gets {name}: {snapshot:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `ffprobe` says of the decoded frames of a file: sizes in the order in which they are shown, and times in seconds.
fn frames(file: &Path) -> Vec<(u32, f64)> {
    let arguments =
        ["-v", "error", "-select_streams", "v", "-show_entries", "frame=width,pts_time", "-of", "csv=p=0"];
    let output = run("ffprobe", &[&arguments[..], &[file.to_str().expect("UTF-8")]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "the decoder complains: {said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let frame = |line: &str| {
        let mut fields = line.split(',');
        let time = fields.next().expect("a time").parse().unwrap_or(f64::NAN);
        (fields.next().expect("a width").parse().expect("a number"), time)
    };
    text.lines().filter(|line| !line.is_empty()).map(frame).collect()
}

/// Through which renditions a viewer goes while sources come and go.
fn go_through(server: &Server, clips: &[PathBuf; 3]) {
    let stream = server.stream();
    let small = server.feed(&clips[2], Some("small"));
    let middle = server.feed(&clips[1], Some("middle"));
    let main = server.feed(&clips[0], None);
    await_rendition(&stream, "main");
    main.abort();
    await_rendition(&stream, "middle");
    middle.abort();
    await_rendition(&stream, "small");
    let _main = server.feed(&clips[0], None);
    await_rendition(&stream, "main");
    std::thread::sleep(Duration::from_secs(2));
    small.abort();
}

/// The renditions are there and measured.
fn clips(folder: &Path) -> [PathBuf; 3] {
    [
        clip(folder, (640, 360), "600k", 50, &["-bf", "2"]),
        clip(folder, (320, 180), "200k", 20, &["-bf", "0"]),
        clip(folder, (160, 90), "60k", 30, &["-an"]),
    ]
}

fn plays_through(arguments: &dyn Fn(&Server, &str) -> Vec<String>, suffix: &str) {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let clips = clips(folder.path());
    let server = Server::new();
    let stream = server.stream();
    // Nobody views until the renditions are measured.
    let first = clips.iter().zip([None, Some("middle"), Some("small")]);
    let warm: Vec<_> = first.map(|(clip, name)| server.feed(clip, name)).collect();
    let begun = Instant::now();
    while stream.snapshot().renditions.iter().filter(|rendition| rendition.cost.is_some()).count() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:#?}", stream.snapshot());
        std::thread::sleep(Duration::from_millis(50));
    }
    let out = folder.path().join(format!("seen.{suffix}"));
    let mut command = Command::new("ffmpeg");
    command
        .args(arguments(&server, out.to_str().expect("UTF-8")))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut player = command.spawn().expect("ffmpeg");
    await_rendition(&stream, "main");
    warm.iter().for_each(JoinHandle::abort);
    go_through(&server, &clips);
    // It ends the file when it is told to.
    use std::io::Write as _;
    player.stdin.take().expect("piped").write_all(b"q").expect("taken");
    let output = player.wait_with_output().expect("ended");
    println!("{}", String::from_utf8_lossy(&output.stderr));
    let frames = frames(&out);
    let widths: Vec<u32> = frames.iter().map(|frame| frame.0).collect();
    let mut runs = widths.clone();
    runs.dedup();
    assert!(runs.len() >= 5, "{runs:?}");
    assert!(frames.len() > 100, "{} frames", frames.len());
    let times: Vec<f64> = frames.iter().map(|frame| frame.1).filter(|time| time.is_finite()).collect();
    let back = times.windows(2).find(|pair| pair[1] < pair[0]);
    assert!(back.is_none(), "times go back: {back:?}");
    println!("{} frames, {runs:?}", frames.len());
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn rtsp_goes_on_through_changes_of_the_rendition() {
    let arguments = |server: &Server, out: &str| {
        let rtsp = server.rtsp;
        words(&format!(
            "-v warning -y -rtsp_transport tcp -i rtsp://{rtsp}/live?renditions=all -c copy -f matroska {out}"
        ))
    };
    plays_through(&arguments, "mkv");
}

#[test]
fn mpeg_ts_goes_on_through_changes_of_the_rendition() {
    let arguments = |server: &Server, out: &str| {
        let http = server.http;
        words(&format!("-v warning -y -i http://{http}/live.ts?renditions=all -c copy -f mpegts {out}"))
    };
    plays_through(&arguments, "ts");
}
