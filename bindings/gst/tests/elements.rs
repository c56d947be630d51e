//! Both elements in real pipelines, viewed by real programs.
#![allow(clippy::disallowed_methods, reason = "these run against real time")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use freshwire::a1::{ConnectConfig, Node, NodeConfig};
use freshwire::{Meta, RingConfig, Sender, choice};
use freshwire_media::video::{Format, Parser};
use freshwire_record::Timestamp;
use gst::prelude::*;

/// When a test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(20);

/// Pictures at their pace. A viewer that joins within the first twenty seconds has to make the encoder give it a keyframe.
const LIVE: &str = "videotestsrc is-live=true ! video/x-raw,width=160,height=120,framerate=30/1 \
    ! x264enc tune=zerolatency key-int-max=600 ! h264parse";

/// Pictures that are not live, and come to an end.
const FILE: &str = "videotestsrc num-buffers=20 ! video/x-raw,width=160,height=120,framerate=30/1 \
    ! x264enc tune=zerolatency ! h264parse";

/// The elements of other plugins that the tests use.
const NEEDED: &[&str] =
    &["videotestsrc", "audiotestsrc", "x264enc", "h264parse", "avdec_h264", "opusenc", "vp9enc"];

/// One test at a time, because threads are counted; `None` if the machine lacks plugins. In CI it may not.
fn begin() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    static REGISTERED: Once = Once::new();
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    gst::init().unwrap();
    REGISTERED.call_once(|| gstfreshwire::plugin_register_static().unwrap());
    let is_there = |element: &str| gst::ElementFactory::find(element).is_some();
    let missing: Vec<_> = NEEDED.iter().filter(|element| !is_there(element)).collect();
    if missing.is_empty() {
        return Some(guard);
    }
    assert!(std::env::var_os("CI").is_none(), "{missing:?} are needed in CI");
    eprintln!("skipped: GStreamer has no {missing:?}; xtask/install.sh test says which packages");
    None
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    let there = command.arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(there || std::env::var_os("CI").is_none(), "{program} is needed in CI");
    there
}

/// A pipeline, which stops with it.
struct Pipeline(gst::Pipeline);

impl Pipeline {
    fn new(description: &str) -> Self {
        Self(gst::parse::launch(description).unwrap().downcast().unwrap())
    }

    fn playing(description: &str) -> Self {
        let pipeline = Self::new(description);
        pipeline.0.set_state(gst::State::Playing).unwrap();
        pipeline
    }

    fn element(&self, name: &str) -> gst::Element {
        self.0.by_name(name).unwrap()
    }

    fn url(&self, name: &str, scheme: &str) -> String {
        let urls: Vec<String> = self.element(name).property("urls");
        urls.into_iter().find(|url| url.starts_with(scheme)).unwrap()
    }

    fn key(&self, name: &str) -> String {
        self.element(name).property::<Option<String>>("public-key").unwrap()
    }

    /// How many buffers reach this element from now on.
    fn count(&self, name: &str) -> Arc<AtomicU64> {
        let count = Arc::new(AtomicU64::new(0));
        let pad = self.element(name).static_pad("sink").unwrap();
        let counted = Arc::clone(&count);
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        count
    }

    /// `None` at the end of the stream, else what went wrong.
    fn end(&self) -> Option<String> {
        let types = [gst::MessageType::Eos, gst::MessageType::Error];
        let patience = gst::ClockTime::try_from(PATIENCE).unwrap();
        let message = self.0.bus().unwrap().timed_pop_filtered(patience, &types).expect("it ends in time");
        match message.view() {
            gst::MessageView::Error(error) => Some(error.error().message().to_owned()),
            _ => None,
        }
    }

    /// What keeps it from playing.
    fn refusal(description: &str) -> String {
        let pipeline = Self::new(description);
        let _ = pipeline.0.set_state(gst::State::Playing);
        pipeline.end().expect("an error")
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.0.set_state(gst::State::Null).unwrap();
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        // Pause: a poll of the condition.
        std::thread::sleep(LOOK);
    }
}

/// The threads that only these elements have.
fn own_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end meanwhile.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| name.starts_with("freshwire")).collect()
}

#[test]
fn players_view_pictures_and_sound_over_rtsp() {
    let Some(_one) = begin() else { return };
    if !has("ffprobe") {
        return;
    }
    let pipeline = Pipeline::playing(&format!(
        "{LIVE} ! freshwiresink name=sink listen-rtsp=127.0.0.1:0 listen-http=none \
         audiotestsrc is-live=true ! opusenc ! sink."
    ));
    let url = pipeline.url("sink", "rtsp://");
    let arguments = "-v error -rtsp_transport tcp -count_frames -read_intervals %+#30 \
        -show_entries stream=codec_name,nb_read_frames -of csv=p=0";
    let output = Command::new("ffprobe").args(arguments.split_whitespace()).arg(&url).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let frames = |codec: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(codec)?.strip_prefix(','));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{codec}: {text:?}"))
    };
    assert!(frames("h264") > 3 && frames("opus") > 3, "{text}");
    let stats: gst::Structure = pipeline.element("sink").property("stats");
    assert!(stats.get::<u64>("units").unwrap() > 30 && stats.get::<u64>("keyframes").unwrap() > 0, "{stats}");
}

#[test]
fn two_streams_are_on_the_same_ports_and_are_fetched() {
    let Some(_one) = begin() else { return };
    // Port 0 is another one for each server; one server has both.
    let sink = "freshwiresink listen-rtsp=none listen-http=127.0.0.1:0";
    let servers = Pipeline::playing(&format!(
        "{LIVE} ! {sink} stream-name=a name=a {LIVE} ! {sink} stream-name=b name=b"
    ));
    let (a, b) = (servers.url("a", "http://"), servers.url("b", "http://"));
    assert_eq!(a.strip_suffix('a'), b.strip_suffix('b'));
    let viewer = Pipeline::new(&format!(
        "freshwiresrc location={b}.fw ! h264parse ! avdec_h264 ! fakesink name=out sync=false"
    ));
    let pictures = viewer.count("out");
    viewer.0.set_state(gst::State::Playing).unwrap();
    wait_for("ten pictures are decoded", || pictures.load(Ordering::Relaxed) >= 10);
    // A stream has one publisher.
    let again = Pipeline::refusal(&format!("{LIVE} ! {sink} stream-name=a"));
    assert!(again.contains("stream a has a publisher already"), "{again}");
}

#[test]
fn a1_brings_all_to_the_end() {
    let Some(_one) = begin() else { return };
    let receiver = Pipeline::new(
        "freshwiresrc name=src mode=listener location=a1://127.0.0.1:0 ! h264parse ! avdec_h264 \
         ! fakesink name=out sync=false",
    );
    let pictures = receiver.count("out");
    receiver.0.set_state(gst::State::Playing).unwrap();
    let (url, key) = (receiver.url("src", "a1://"), receiver.key("src"));
    let sender = Pipeline::playing(&format!(
        "{FILE} ! freshwiresink name=sink location={url} peer-key={key} policy=fifo"
    ));
    assert_eq!((sender.end(), receiver.end()), (None, None));
    assert_eq!(pictures.load(Ordering::Relaxed), 20);
    let stats: gst::Structure = sender.element("sink").property("stats");
    assert_eq!((stats.get("sent"), stats.get("unsent")), (Ok(20_u64), Ok(0_u64)), "{stats}");
}

#[test]
fn a_listening_sink_has_one_receiver_after_another() {
    let Some(_one) = begin() else { return };
    let sender = Pipeline::playing(&format!(
        "{LIVE} ! freshwiresink name=sink mode=listener location=a1://127.0.0.1:0"
    ));
    let (url, key) = (sender.url("sink", "a1://"), sender.key("sink"));
    for receivers in 1..=2_u64 {
        let receiver = Pipeline::new(&format!(
            "freshwiresrc location={url} peer-key={key} ! avdec_h264 ! fakesink name=out sync=false"
        ));
        let pictures = receiver.count("out");
        receiver.0.set_state(gst::State::Playing).unwrap();
        wait_for("pictures are decoded", || pictures.load(Ordering::Relaxed) >= 5);
        let mut latency = gst::query::Latency::new();
        assert!(receiver.element("out").static_pad("sink").unwrap().peer_query(&mut latency));
        assert!(latency.result().0, "it is live");
        let stats: gst::Structure = sender.element("sink").property("stats");
        assert_eq!(stats.get("receivers"), Ok(receivers));
    }
}

#[test]
fn receivers_over_tcp_take_turns() {
    let Some(_one) = begin() else { return };
    let sender = Pipeline::playing(&format!(
        "{LIVE} ! freshwiresink name=sink mode=listener location=tcp://127.0.0.1:0"
    ));
    let url = sender.url("sink", "tcp://");
    let receiver = || {
        let receiver = Pipeline::new(&format!(
            "freshwiresrc location={url} ! avdec_h264 ! fakesink name=out sync=false"
        ));
        let pictures = receiver.count("out");
        receiver.0.set_state(gst::State::Playing).unwrap();
        (receiver, pictures)
    };
    let receives = |pictures: &AtomicU64| pictures.load(Ordering::Relaxed) >= 5;
    let (first, pictures) = receiver();
    wait_for("the first receives", || receives(&pictures));
    let (_second, others) = receiver();
    let before = pictures.load(Ordering::Relaxed);
    wait_for("the first goes on", || pictures.load(Ordering::Relaxed) > before + 10);
    assert_eq!(others.load(Ordering::Relaxed), 0, "the second waits");
    drop(first);
    wait_for("the second receives", || receives(&others));
}

#[test]
fn a_new_size_reaches_the_receiver() {
    let Some(_one) = begin() else { return };
    let caps =
        |width: i32| gst::Caps::builder("video/x-raw").field("width", width).field("height", 96).build();
    let sender = Pipeline::new(
        "videotestsrc is-live=true ! capsfilter name=size ! x264enc tune=zerolatency key-int-max=600 ! h264parse \
         ! freshwiresink name=sink mode=listener location=tcp://127.0.0.1:0",
    );
    sender.element("size").set_property("caps", caps(160));
    sender.0.set_state(gst::State::Playing).unwrap();
    let url = sender.url("sink", "tcp://");
    let receiver =
        Pipeline::new(&format!("freshwiresrc location={url} ! avdec_h264 ! fakesink name=out sync=false"));
    let pad = receiver.element("out").static_pad("sink").unwrap();
    receiver.0.set_state(gst::State::Playing).unwrap();
    for width in [160, 320, 96] {
        sender.element("size").set_property("caps", caps(width));
        wait_for("pictures of this width are decoded", || {
            let decoded = pad.current_caps();
            decoded.is_some_and(|caps| caps.structure(0).unwrap().get("width") == Ok(width))
        });
    }
}

#[test]
fn a_stop_does_not_wait_for_the_rest() {
    let Some(_one) = begin() else { return };
    // It accepts, and reads nothing.
    let viewer = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = Pipeline::playing(&format!(
        "videotestsrc num-buffers=60 pattern=snow ! video/x-raw,width=640,height=480 \
         ! x264enc tune=zerolatency speed-preset=ultrafast quantizer=30 pass=quant ! h264parse \
         ! freshwiresink name=sink location=tcp://{} policy=fifo sync=false drain-timeout=3600000",
        viewer.local_addr().unwrap()
    ));
    let _stream = viewer.accept().unwrap();
    wait_for("all pictures are queued", || {
        let stats: gst::Structure = sender.element("sink").property("stats");
        stats.get("queued") == Ok(60_u64)
    });
    let sent: u64 = sender.element("sink").property::<gst::Structure>("stats").get("sent").unwrap();
    assert!(sent < 60, "{sent}: the rest waits");
    let (done, stopped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(sender);
        done.send(()).unwrap();
    });
    assert_eq!(stopped.recv_timeout(PATIENCE), Ok(()), "it stops");
}

#[test]
fn a_record_that_comes_late_is_shown_at_once() {
    let Some(_one) = begin() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("picture.h264");
    let coded = Pipeline::playing(&format!(
        "videotestsrc num-buffers=1 ! x264enc tune=zerolatency ! h264parse ! video/x-h264,stream-format=byte-stream \
         ! filesink location={}",
        file.display()
    ));
    assert_eq!(coded.end(), None);
    let picture = std::fs::read(file).unwrap();
    for latency in [0, 600_000_u32] {
        let receiver = Pipeline::new(&format!(
            "freshwiresrc name=src latency={latency} mode=listener location=a1://127.0.0.1:0 ! fakesink name=out sync=false"
        ));
        let (found, times) = std::sync::mpsc::channel();
        let pad = receiver.element("out").static_pad("sink").unwrap();
        pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            found.send(info.buffer().unwrap().dts()).unwrap();
            gst::PadProbeReturn::Ok
        });
        receiver.0.set_state(gst::State::Playing).unwrap();
        let source = receiver.element("src");
        let mut query = gst::query::Latency::new();
        assert!(source.static_pad("src").unwrap().query(&mut query));
        assert_eq!(query.result().1, gst::ClockTime::from_mseconds(latency.into()));

        let address = receiver.url("src", "a1://");
        let node = Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
        let key = receiver.key("src").parse().unwrap();
        let config = ConnectConfig::default().timeout(PATIENCE);
        let connection = node.connect(address.strip_prefix("a1://").unwrap(), &key, &config).unwrap();
        let mut sender =
            Sender::without_engine(&RingConfig { block_bytes: 16 << 10, ..RingConfig::default() }).unwrap();
        let sink = sender.add_a1_sink(&connection, freshwire::a1::SinkConfig::new(choice::fifo())).unwrap();
        let running = || source.current_running_time().filter(|time| !time.is_zero());
        wait_for("the clock runs", || running().is_some());
        let before = running();
        // As old as the machine.
        let meta = Meta { generated: Timestamp::from_nanos(1), ..Meta::default() };
        sender.push(sink.id(), &picture, &meta).unwrap();
        let time = times.recv_timeout(PATIENCE).unwrap();
        match latency {
            0 => assert!(time >= before, "{time:?} is before {before:?}"),
            _ => assert_eq!(time, Some(gst::ClockTime::ZERO)),
        }
    }
}

#[test]
fn every_codec_comes_through() {
    let Some(_one) = begin() else { return };
    let pictures = "videotestsrc num-buffers=8 ! video/x-raw,width=64,height=64,framerate=30/1";
    let sound = "audiotestsrc num-buffers=20 samplesperbuffer=1024 ! audio/x-raw,rate=48000,channels=2";
    for (codec, encoder, decoder, least) in [
        ("h265", format!("{pictures} ! x265enc tune=zerolatency ! h265parse"), "avdec_h265", 8),
        ("vp9", format!("{pictures} ! vp9enc deadline=1 lag-in-frames=0"), "vp9dec", 8),
        (
            "av1",
            format!("{pictures} ! av1enc cpu-used=8 lag-in-frames=0 usage-profile=realtime"),
            "av1dec",
            8,
        ),
        ("opus", format!("{sound} ! opusenc"), "opusdec", 15),
        ("aac", format!("{sound} ! voaacenc"), "avdec_aac", 15),
    ] {
        let names = encoder.split(" ! ").skip(2).chain([decoder]);
        let missing: Vec<_> = names
            .filter_map(|name| name.split_whitespace().next())
            .filter(|name| gst::ElementFactory::find(name).is_none())
            .collect();
        if !missing.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "{missing:?} are needed in CI");
            eprintln!("{codec} skipped: GStreamer has no {missing:?}");
            continue;
        }
        let receiver = Pipeline::new(&format!(
            "freshwiresrc name=src mode=listener location=tcp://127.0.0.1:0 framing=chunked codec={codec} \
             ! {decoder} ! fakesink name=out sync=false"
        ));
        let decoded = receiver.count("out");
        receiver.0.set_state(gst::State::Playing).unwrap();
        let url = receiver.url("src", "tcp://");
        let sender = Pipeline::playing(&format!(
            "{encoder} ! freshwiresink location={url} framing=chunked policy=fifo"
        ));
        assert_eq!((sender.end(), receiver.end()), (None, None), "{codec}");
        let decoded = decoded.load(Ordering::Relaxed);
        assert!(decoded >= least, "{codec}: {decoded}");
    }
}

#[test]
fn states_can_be_changed_again_and_again() {
    let Some(_one) = begin() else { return };
    let server = Pipeline::new(&format!(
        "{LIVE} ! freshwiresink name=sink listen-rtsp=127.0.0.1:0 listen-http=127.0.0.1:0"
    ));
    let line =
        Pipeline::new(&format!("{LIVE} ! freshwiresink name=sink mode=listener location=a1://127.0.0.1:0"));
    let source = Pipeline::new("freshwiresrc name=src mode=listener location=a1://127.0.0.1:0 ! fakesink");
    for _ in 0..4 {
        for pipeline in [&server, &line, &source] {
            pipeline.0.set_state(gst::State::Playing).unwrap();
        }
        wait_for("units are published", || {
            let stats: gst::Structure = server.element("sink").property("stats");
            stats.get::<u64>("units").is_ok_and(|units| units > 2)
        });
        assert!(!own_threads().is_empty());
        let address = server.url("sink", "rtsp://");
        let address = address.strip_prefix("rtsp://").and_then(|rest| rest.strip_suffix("/live")).unwrap();
        assert!(TcpStream::connect(address).is_ok());
        for pipeline in [&server, &line, &source] {
            pipeline.0.set_state(gst::State::Null).unwrap();
        }
        assert!(TcpStream::connect(address).is_err(), "the port is closed");
        wait_for("its threads have ended", || own_threads().is_empty());
        let urls: Vec<String> = server.element("sink").property("urls");
        assert!(urls.is_empty(), "{urls:?}");
    }
}

#[test]
fn impossible_settings_are_refused_with_a_reason() {
    let Some(_one) = begin() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let sound = "audiotestsrc num-buffers=50 ! opusenc";
    for (description, reason) in [
        (format!("{FILE} ! freshwiresink location=viewer:5000"), "it has no scheme"),
        (
            format!("{FILE} ! freshwiresink location=http://viewer/live.fw"),
            "without a location freshwiresink serves",
        ),
        (format!("{FILE} ! freshwiresink location=a1://127.0.0.1:9"), "peer-key is missing"),
        (
            format!("{FILE} ! freshwiresink location=tcp://127.0.0.1:1 timeout=100"),
            "nobody listens on 127.0.0.1:1",
        ),
        (
            format!("{FILE} ! freshwiresink mode=listener location=tcp://127.0.0.1:0 policy=frames"),
            "set deadline",
        ),
        (
            format!("{FILE} ! freshwiresink name=s mode=listener location=tcp://127.0.0.1:0 {sound} ! s."),
            "a location takes one stream",
        ),
        (format!("{sound} ! freshwiresink location=tcp://{taken}"), "use framing=chunked"),
        (
            format!("{FILE} ! freshwiresink listen-rtsp={taken} listen-http=none"),
            "choose another port (listen-rtsp, listen-http)",
        ),
        (
            format!("{FILE} ! freshwiresink listen-rtsp=0.0.0.0:0 listen-http=none"),
            "let everybody view with open=true",
        ),
        (format!("{FILE} ! freshwiresink listen-rtsp=soon"), "listen-rtsp: "),
        (format!("{FILE} ! freshwiresink config=/nowhere.toml"), "give another one with config"),
        (
            format!("{FILE} ! freshwiresink stream-name=a/../b listen-rtsp=127.0.0.1:0 listen-http=none"),
            "cannot be a stream's name",
        ),
        (
            format!("{FILE} ! freshwiresink location=tcp://{taken} peer-key=ab"),
            "peer-key is for a1://, and the location is tcp://",
        ),
        ("freshwiresrc ! fakesink".to_owned(), "location is missing"),
        ("freshwiresrc location=http://127.0.0.1:1/live.ts ! fakesink".to_owned(), "does not end in .fw"),
        ("freshwiresrc location=a1://127.0.0.1:1 peer-key=x ! fakesink".to_owned(), "peer-key \"x\""),
    ] {
        let refusal = Pipeline::refusal(&description);
        assert!(refusal.contains(reason) && !refusal.contains("--"), "{description}: {refusal}");
    }
}

#[test]
fn a_track_has_one_pad() {
    let Some(_one) = begin() else { return };
    let sink = gst::ElementFactory::make("freshwiresink").build().unwrap();
    let pad = sink.request_pad_simple("video_%u").unwrap();
    assert_eq!(sink.request_pad_simple("video_%u"), None);
    sink.release_request_pad(&pad);
    assert!(sink.request_pad_simple("video_%u").is_some());
    assert!(sink.request_pad_simple("audio_%u").is_some());
    assert_eq!(sink.pads().len(), 2);
}

/// The plugin's folder, and GStreamer's programs with that plugin.
struct Installation(tempfile::TempDir);

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = std::env::current_exe().unwrap().with_file_name("libgstfreshwire.so");
        std::os::unix::fs::symlink(&library, folder.path().join("libgstfreshwire.so")).unwrap();
        Self(folder)
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.0.path();
        // The user's own list of plugins is left alone.
        command.env("GST_PLUGIN_PATH", folder).env("GST_REGISTRY", folder.join("registry"));
        command
    }

    /// What `gst-launch-1.0 -m` prints of an element that listens; the pipeline is ended then.
    fn listening(&self, pipeline: &str) -> String {
        let mut command = self.tool("gst-launch-1.0");
        let mut launched =
            command.arg("-m").args(pipeline.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(launched.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.take(10_000).find(|line| line.contains("-listening"));
        launched.kill().unwrap();
        launched.wait().unwrap();
        line.unwrap_or_else(|| panic!("{pipeline}: no message"))
    }
}

/// The value of a plain string in a printed structure.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("{name}=(string)")).unwrap_or_else(|| panic!("{name}: {line}"));
    rest.split([',', ';']).next().unwrap().trim_matches('"')
}

#[test]
fn gst_launch_prints_addresses_and_the_key() {
    let Some(_one) = begin() else { return };
    let installed = Installation::new();
    let listens = "mode=listener location=a1://127.0.0.1:0";
    for (pipeline, scheme) in [
        (format!("freshwiresrc {listens} ! fakesink"), "a1"),
        (format!("{LIVE} ! freshwiresink {listens}"), "a1"),
        ("freshwiresrc mode=listener location=tcp://127.0.0.1:0 ! fakesink".to_owned(), "tcp"),
        (format!("{LIVE} ! freshwiresink listen-rtsp=127.0.0.1:0 listen-http=127.0.0.1:0"), "rtsp"),
        (format!("{LIVE} ! freshwiresink listen-rtsp=127.0.0.1:0 listen-http=127.0.0.1:0"), "http"),
    ] {
        let line = installed.listening(&pipeline);
        let address = field(&line, scheme);
        assert!(address.starts_with(&format!("{scheme}://127.0.0.1:")), "{line}");
        if scheme == "a1" {
            let key = field(&line, "public-key");
            assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        }
    }
}

#[test]
fn players_take_addresses_as_uris() {
    let Some(_one) = begin() else { return };
    let installed = Installation::new();
    let over_a1 = Pipeline::playing(&format!(
        "{LIVE} ! freshwiresink name=sink mode=listener location=a1://127.0.0.1:0"
    ));
    let served = Pipeline::playing(&format!(
        "{LIVE} ! freshwiresink name=sink listen-rtsp=none listen-http=127.0.0.1:0 stream-name=door"
    ));
    let a1 = format!("{}?peer-key={}&codec=h264", over_a1.url("sink", "a1://"), over_a1.key("sink"));
    let stream = served.url("sink", "http://").replace("http://", "freshwire://");
    for uri in [&a1, &stream] {
        let decoded = format!("uridecodebin uri={uri} ! fakesink sync=false num-buffers=5");
        let played = format!("playbin uri={uri} audio-sink=fakesink");
        for (pipeline, sink) in
            [(decoded, None), (played, Some("video-sink=fakesink sync=false num-buffers=5"))]
        {
            let mut command = installed.tool("gst-launch-1.0");
            command.arg("-q").args(pipeline.split_whitespace()).args(sink);
            let mut launched = command.spawn().unwrap();
            let mut end = None;
            wait_for("five pictures are decoded", || {
                end = launched.try_wait().unwrap();
                end.is_some()
            });
            assert!(end.is_some_and(|end| end.success()), "{pipeline}");
        }
    }
}

#[test]
fn uris_make_elements() {
    let Some(_one) = begin() else { return };
    let make = |kind, uri: &str| gst::Element::make_from_uri(kind, uri, None);
    let text =
        |element: &gst::Element, name: &str| element.property::<Option<String>>(name).unwrap_or_default();
    let source = make(gst::URIType::Src, "a1://viewer:5000?peer-key=ab&latency=40&mode=listener").unwrap();
    assert_eq!(
        (text(&source, "location"), text(&source, "peer-key")),
        ("a1://viewer:5000".into(), "ab".into())
    );
    assert_eq!(source.property::<u32>("latency"), 40);
    let source = make(gst::URIType::Src, "freshwire://me:pw@host/door?token=x%3D").unwrap();
    assert_eq!(text(&source, "location"), "http://me:pw@host:8080/door.fw?token=x%3D");
    let handler = source.dynamic_cast_ref::<gst::URIHandler>().unwrap();
    assert_eq!(handler.uri().unwrap(), "freshwire://me:pw@host:8080/door?token=x%3D");
    let sink = make(gst::URIType::Sink, "a1://viewer:5000?peer-key=ab&policy=latest").unwrap();
    assert_eq!(text(&sink, "location"), "a1://viewer:5000");
    let sink = make(gst::URIType::Sink, "freshwire://:9090/door").unwrap();
    assert_eq!((text(&sink, "listen-http"), text(&sink, "stream-name")), (":9090".into(), "door".into()));
    for (kind, uri, words) in [
        (
            gst::URIType::Src,
            "a1://viewer:5000?key-file=/etc/key",
            "a URI cannot have key-file: peer-key, mode",
        ),
        (gst::URIType::Src, "a1://viewer:5000?latency=soon", "latency has no such value"),
        (gst::URIType::Src, "freshwire://viewer", "the stream's name is missing"),
        (
            gst::URIType::Sink,
            "a1://viewer:5000?codec=h264",
            "a URI cannot have codec: peer-key, mode, policy",
        ),
    ] {
        let error = make(kind, uri).unwrap_err().to_string();
        assert!(error.contains(words), "{uri}: {error}");
    }
    let playing =
        Pipeline::playing("freshwiresrc name=src mode=listener location=tcp://127.0.0.1:0 ! fakesink");
    let source = playing.element("src").dynamic_cast::<gst::URIHandler>().unwrap();
    wait_for("it listens", || !playing.element("src").property::<Vec<String>>("urls").is_empty());
    assert!(source.set_uri("a1://viewer:5000").unwrap_err().to_string().contains("READY"));
}

#[test]
fn gst_launch_and_gst_inspect_find_the_plugin() {
    let Some(_one) = begin() else { return };
    let installed = Installation::new();
    let tool = |program: &str| installed.tool(program);
    let listed = tool("gst-inspect-1.0").arg("freshwire").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("freshwiresink") && listed.contains("freshwiresrc"), "{listed}");

    let viewer = TcpListener::bind("127.0.0.1:0").unwrap();
    let location = format!("location=tcp://{}", viewer.local_addr().unwrap());
    let line = format!("-q -e {FILE} ! freshwiresink {location} policy=fifo");
    let mut launched = tool("gst-launch-1.0").args(line.split_whitespace()).spawn().unwrap();
    let (mut stream, _) = viewer.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(launched.wait().unwrap().success());
    let mut parser = Parser::new(Format::H264);
    parser.push(&bytes);
    parser.finish();
    assert_eq!(parser.filter(Result::is_ok).count(), 20);
}

/// Lines of the manual that run a pipeline, in its order; the ports are fixed, so that they run in a network namespace.
#[test]
fn the_pipelines_of_the_manual_run() {
    const INSIDE: &str = "FRESHWIRE_GST_INSIDE";
    let Some(_one) = begin() else { return };
    if std::env::var_os(INSIDE).is_none() {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--fork", "--kill-child"]).arg(exe);
        command.args(["--exact", "the_pipelines_of_the_manual_run", "--nocapture"]).env(INSIDE, "1");
        let probe = Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]).status();
        if !probe.is_ok_and(|status| status.success()) {
            eprintln!("skipped: the system gives no network namespaces");
            return;
        }
        assert!(command.status().unwrap().success());
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/gstreamer.md");
    let manual = std::fs::read_to_string(manual).unwrap().replace("\\\n", " ");
    let lines: Vec<&str> = manual.lines().filter(|line| line.starts_with("gst-launch-1.0 ")).collect();
    let [server, receiver, sender, cameras, play_server, listener, play_a1] = lines[..] else {
        panic!("a line without a test: {lines:#?}")
    };
    let installed = Installation::new();
    // There is no screen, camera or microphone here.
    let start = |line: &str, key: &str| {
        let line = line.replace("KEY", key).replace("autovideosink", "fakesink sync=false num-buffers=5");
        let line = line.replace("v4l2src", "videotestsrc is-live=true");
        let line = line.replace("autoaudiosrc", "audiotestsrc is-live=true");
        let sinks = "playbin audio-sink=fakesink video-sink='fakesink sync=false num-buffers=5' ";
        let line = line.replace("playbin ", sinks);
        let mut shell = installed.tool("sh");
        shell.arg("-c").arg(format!("exec {line}")).stdout(Stdio::piped());
        Launched(shell.spawn().unwrap())
    };
    let serves = |stream: &str| {
        let mut request = match TcpStream::connect("127.0.0.1:8080") {
            Ok(request) => request,
            Err(_) => return false,
        };
        write!(request, "GET /{stream}.fw HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut status = [0; 12];
        request.read_exact(&mut status).is_ok() && &status == b"HTTP/1.1 200"
    };

    let serving = start(server, "");
    wait_for("the server serves", || serves("live"));
    start(play_server, "").succeed(play_server);
    drop(serving);
    let serving = start(cameras, "");
    wait_for("the server serves cameras", || serves("door"));
    drop(serving);

    let mut receiving = start(receiver, "");
    let key = receiving.key();
    let _sending = start(sender, &key);
    receiving.succeed(receiver);

    let mut listening = start(listener, "");
    let key = listening.key();
    start(play_a1, &key).succeed(play_a1);
}

/// A program that ends with this.
struct Launched(std::process::Child);

impl Launched {
    /// The key that it prints.
    fn key(&mut self) -> String {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.by_ref().take(10_000).find(|line| line.contains("public-key"));
        // A program whose messages nobody reads stops, or ends.
        std::thread::spawn(move || lines.for_each(drop));
        field(&line.expect("a key"), "public-key").to_owned()
    }

    fn succeed(mut self, line: &str) {
        let mut end = None;
        wait_for(line, || {
            end = self.0.try_wait().unwrap();
            end.is_some()
        });
        assert!(end.is_some_and(|end| end.success()), "{line}");
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}
