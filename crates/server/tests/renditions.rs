//! Real players across changes of the rendition: none of them sees a break, and each picture is one that a decoder takes.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

mod testing;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use freshwire_media::framing::chunked;
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::http::{self, Site};
use freshwire_server::hub::{Hub, HubConfig, Stream};
use freshwire_server::ingest::{self, Outlet, Source, ladder};
use freshwire_server::net::Acceptor;
use freshwire_server::rtsp;
use testing::{has, wait_for};
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
        let site = Site { rtsp_port: Some(rtsp.port()), ..Site::default() };
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

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("run")
}

/// A clip with sound whose pictures have this size, with a keyframe every `group` pictures.
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
    let started = Instant::now();
    loop {
        let snapshot = stream.snapshot();
        let viewers = &snapshot.viewers;
        if !viewers.is_empty() && viewers.iter().all(|viewer| viewer.rendition.as_deref() == Some(name)) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "no viewer gets {name}: {snapshot:#?}");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Width and time in seconds of the frames that ffmpeg has shown, as its filter `showinfo` says.
fn frames(said: &str) -> Vec<(u32, f64)> {
    let field = |line: &str, name: &str| {
        let (_, after) = line.split_once(name)?;
        after.split_whitespace().next().map(str::to_owned)
    };
    let frame = |line: &str| {
        let time = field(line, " pts_time:")?.parse().ok()?;
        let size = field(line, " s:")?;
        Some((size.split_once('x')?.0.parse().ok()?, time))
    };
    said.lines().filter_map(frame).collect()
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
    // Pause: both renditions run beside each other for a while.
    std::thread::sleep(Duration::from_secs(2));
    small.abort();
}

/// The clips of the three renditions, encoded once for all tests.
fn clips() -> &'static [PathBuf; 3] {
    static CLIPS: OnceLock<[PathBuf; 3]> = OnceLock::new();
    CLIPS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("renditions");
        std::fs::create_dir_all(&folder).expect("a folder");
        [
            clip(&folder, (640, 360), "600k", 50, &["-bf", "2"]),
            clip(&folder, (320, 180), "200k", 20, &["-bf", "0"]),
            clip(&folder, (160, 90), "60k", 30, &["-an"]),
        ]
    })
}

/// Everything that a player says while the viewer of a new server goes through renditions; `None` if it is not on this machine.
fn played(program: &str, arguments: &dyn Fn(&Server) -> String) -> Option<String> {
    Some(String::from_utf8_lossy(&output(program, arguments)?).into_owned())
}

/// The same, byte by byte.
fn output(program: &str, arguments: &dyn Fn(&Server) -> String) -> Option<Vec<u8>> {
    let version = if program.starts_with("gst") { "--version" } else { "-version" };
    if !has("ffmpeg", "-version") || !has(program, version) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let clips = clips();
    let server = Server::new();
    let stream = server.stream();
    // Nobody views until the renditions are measured.
    let first = clips.iter().zip([None, Some("middle"), Some("small")]);
    let warm: Vec<_> = first.map(|(clip, name)| server.feed(clip, name)).collect();
    let started = Instant::now();
    while stream.snapshot().renditions.iter().filter(|rendition| rendition.cost.is_some()).count() < 3 {
        assert!(started.elapsed() < Duration::from_secs(30), "{:#?}", stream.snapshot());
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = folder.path().join("log");
    let file = std::fs::File::create(&log).expect("a file");
    let mut command = Command::new(program);
    command.args(arguments(&server).split_whitespace());
    command.stdout(file.try_clone().expect("a handle")).stderr(file);
    let mut player = command.stdin(Stdio::piped()).spawn().expect("a player");
    await_rendition(&stream, "main");
    warm.iter().for_each(JoinHandle::abort);
    go_through(&server, clips);
    assert!(matches!(player.try_wait(), Ok(None)), "the player has ended by itself");
    // ffmpeg ends on request, the others when they are killed.
    if program == "ffmpeg" {
        use std::io::Write as _;
        player.stdin.take().expect("piped").write_all(b"q").expect("taken");
    } else {
        player.kill().expect("running");
    }
    player.wait().expect("ended");
    Some(std::fs::read(&log).expect("a log"))
}

/// ffmpeg decodes all, in all sizes, at times that go on, and has nothing to say of it.
fn assert_ffmpeg_plays(input: &dyn Fn(&Server) -> String) {
    let arguments = |server: &Server| {
        format!(
            "-hide_banner -nostats {} -map 0:v -vf showinfo -fps_mode passthrough -enc_time_base 1:90000 -f null - \
             -map 0:a -f null -",
            input(server)
        )
    };
    let Some(said) = played("ffmpeg", &arguments) else { return };
    let frames = frames(&said);
    let mut widths: Vec<u32> = frames.iter().map(|frame| frame.0).collect();
    widths.dedup();
    println!("{} frames, {widths:?}", frames.len());
    let other: Vec<_> = said.lines().filter(|line| !line.contains("showinfo")).collect();
    assert!(widths.len() >= 5 && frames.len() > 100, "{} frames: {widths:?}", frames.len());
    // The first packet over RTP has no time in ffmpeg: its parser loses it, as packets have no position in a
    // file. A 0 takes its place, which the next packet may have by right.
    let back = frames[1..].windows(2).find(|pair| pair[1].1 <= pair[0].1);
    assert!(back.is_none(), "times go back: {back:?}");
    let complaints =
        ["error", "concealing", "Invalid", "missed", "non-existing", "corrupt", "onoton", "iscontinuity"];
    let complaint = other.iter().find(|line| complaints.iter().any(|complaint| line.contains(complaint)));
    assert_eq!(complaint, None);
}

#[test]
fn gstreamer_goes_on_through_changes_of_the_rendition() {
    let arguments = |server: &Server| {
        format!(
            "-v rtspsrc location=rtsp://{}/live?renditions=all protocols=tcp latency=0 ! rtph264depay ! h264parse ! \
             avdec_h264 name=decoder ! fakesink sync=false silent=false",
            server.rtsp
        )
    };
    let Some(said) = played("gst-launch-1.0", &arguments) else { return };
    let pictures = said.lines().filter(|line| line.contains("last-message = chain")).count();
    let sizes = said.lines().filter(|line| line.contains("GstFakeSink") && line.contains("width=(int)"));
    println!("{pictures} pictures, {} sizes", sizes.clone().count());
    assert!(pictures > 100 && sizes.count() >= 5, "{pictures} pictures");
    let complaint = said.lines().find(|line| line.contains("ERROR") || line.contains("WARN"));
    assert_eq!(complaint, None);
}

#[test]
fn mpv_goes_on_through_changes_of_the_rendition() {
    let arguments = |server: &Server| {
        format!(
            "--no-config --vo=null --ao=null --profile=low-latency --rtsp-transport=tcp --msg-level=all=v \
             rtsp://{}/live?renditions=all",
            server.rtsp
        )
    };
    let Some(said) = played("mpv", &arguments) else { return };
    let sizes = said.lines().filter(|line| line.contains("[vd]") && line.contains("Decoder format:")).count();
    let complaints = ["Error", "error while", "Invalid", "concealing", "non-existing"];
    for line in said.lines().filter(|line| line.contains("rror") || line.contains("nvalid")) {
        println!("{line}");
    }
    println!("{sizes} sizes");
    assert!(sizes >= 5, "{sizes} sizes: {said}");
    let is_complaint = |line: &&str| complaints.iter().any(|complaint| line.contains(complaint));
    assert_eq!(said.lines().filter(|line| line.contains("ffmpeg/video")).find(is_complaint), None);
}

#[test]
fn rtsp_goes_on_through_changes_of_the_rendition() {
    assert_ffmpeg_plays(&|server| {
        format!("-rtsp_transport tcp -i rtsp://{}/live?renditions=all", server.rtsp)
    });
}

#[test]
fn mpeg_ts_goes_on_through_changes_of_the_rendition() {
    assert_ffmpeg_plays(&|server| format!("-i http://{}/live.ts?renditions=all", server.http));
}

#[test]
fn mp4_goes_on_through_changes_of_the_rendition() {
    assert_ffmpeg_plays(&|server| format!("-i http://{}/live.mp4?renditions=all", server.http));
}

/// Freshwire's own stream: each record is whole, and together they are one H.264 stream that changes its size.
#[test]
fn freshwire_goes_on_through_changes_of_the_rendition() {
    let arguments = |server: &Server| {
        format!("-v quiet -f data -i http://{}/live.fw?renditions=all -map 0 -c copy -f data -", server.http)
    };
    let Some(bytes) = output("ffmpeg", &arguments) else { return };
    let mut reader = chunked::Reader::default();
    reader.push(&bytes);
    let mut stream = Vec::new();
    for event in reader {
        if let chunked::Event::Record { payload, .. } = event.expect("a stream of chunks") {
            stream.extend(payload);
        }
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &stream).expect("written");
    let path = file.path().to_str().expect("a name");
    let decoded = run(
        "ffmpeg",
        &["-hide_banner", "-nostats", "-f", "h264", "-i", path, "-vf", "showinfo", "-f", "null", "-"],
    );
    let said = String::from_utf8_lossy(&decoded.stderr);
    let frames = frames(&said);
    let mut widths: Vec<u32> = frames.iter().map(|frame| frame.0).collect();
    widths.dedup();
    println!("{} frames, {widths:?}", frames.len());
    assert!(widths.len() >= 5 && frames.len() > 100, "{} frames: {widths:?}", frames.len());
    assert!(decoded.status.success() && !said.contains("error") && !said.contains("concealing"), "{said}");
}

/// Whether the ladder's renditions have a source now.
fn is_encoded(stream: &Stream) -> bool {
    stream
        .snapshot()
        .renditions
        .iter()
        .any(|rendition| rendition.name != "main" && rendition.origin.is_some())
}

/// The pids of children of this process that have this text in their command.
fn children(text: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("a /proc").filter_map(Result::ok);
    let own = std::process::id().to_string();
    let pid = |entry: std::fs::DirEntry| {
        let read = |name: &str| {
            Some(String::from_utf8_lossy(&std::fs::read(entry.path().join(name)).ok()?).into_owned())
        };
        let is_child = read("stat")?.rsplit(')').next()?.split_whitespace().nth(1)? == own;
        entry
            .file_name()
            .to_str()?
            .parse()
            .ok()
            .filter(|_| is_child && read("cmdline").is_some_and(|it| it.contains(text)))
    };
    processes.filter_map(pid).collect()
}

/// A ladder is made while somebody views, again if ffmpeg dies, and shares the clock of the stream.
#[test]
fn a_ladder_is_made_while_somebody_views() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let main = clip(folder.path(), (640, 360), "600k", 25, &["-bf", "2"]);
    let server = Server::new();
    let stream = server.stream();
    let _main = server.feed(&main, None);
    // A size that nothing else on this machine is asked for.
    let rungs = ["322x182@200k", "162x92@60k"].map(|rung| rung.parse().expect("a rung"));
    server.runtime.spawn(ladder::run(Arc::clone(&stream), rungs.to_vec()));
    // Pause: an encoder would start within this time.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!is_encoded(&stream), "nobody views");
    let url = format!("rtsp://{}/live~92p", server.rtsp);
    let arguments = [
        "-hide_banner",
        "-rtsp_transport",
        "tcp",
        "-i",
        &url,
        "-t",
        "4",
        "-vf",
        "showinfo",
        "-f",
        "null",
        "-",
    ];
    let viewer = std::thread::scope(|scope| {
        let viewer = scope.spawn(|| run("ffmpeg", &arguments));
        wait_for("a ladder", Duration::from_secs(15), || {
            stream.snapshot().renditions.iter().all(|it| it.is_present && it.cost.is_some())
        });
        viewer.join().expect("no panic")
    });
    let seen = frames(&String::from_utf8_lossy(&viewer.stderr));
    assert!(seen.len() > 60 && seen.iter().all(|frame| frame.0 <= 162), "{seen:?}");
    let renditions = stream.snapshot().renditions;
    let rate = |name: &str| {
        let rendition = renditions.iter().find(|rendition| rendition.name == name).expect("there");
        rendition.cost.expect("measured").bytes_per_sec * 8
    };
    println!("main {}, 182p {}, 92p {} bit/s", rate("main"), rate("182p"), rate("92p"));
    assert!(rate("92p") < 100_000 && rate("182p") < 300_000);
    wait_for("the end of encoding", Duration::from_secs(15), || !is_encoded(&stream));
}

#[test]
fn an_encoder_that_dies_is_restarted() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let main = clip(folder.path(), (640, 360), "600k", 25, &[]);
    let server = Server::new();
    let stream = server.stream();
    let _main = server.feed(&main, None);
    let rungs = vec!["324x184@200k".parse().expect("a rung")];
    server.runtime.spawn(ladder::run(Arc::clone(&stream), rungs));
    let url = format!("rtsp://{}/live", server.rtsp);
    let arguments =
        ["-v", "error", "-xerror", "-rtsp_transport", "tcp", "-i", &url, "-t", "12", "-f", "null", "-"];
    std::thread::scope(|scope| {
        let viewer = scope.spawn(|| run("ffmpeg", &arguments));
        wait_for("a ladder", Duration::from_secs(15), || is_encoded(&stream));
        for pid in children("scale=324:184") {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        wait_for("its end", Duration::from_secs(10), || !is_encoded(&stream));
        wait_for("another ladder", Duration::from_secs(15), || is_encoded(&stream));
        let viewer = viewer.join().expect("no panic");
        let said = String::from_utf8_lossy(&viewer.stderr);
        assert!(viewer.status.success() && said.trim().is_empty(), "{said}");
    });
}
