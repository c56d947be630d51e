//! Streams over relays of Media over QUIC, with the programs as a person starts them.
#![cfg(feature = "moq")]
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod live;
mod wait;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::{Folder, Player, Program, Server, clips, has_ffmpeg, pictures};
use wait::wait_until;

/// A command of this package.
fn freshwire(arguments: &[&str]) -> Command {
    // Programs: own
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A port that UDP and TCP have free.
fn free_address() -> SocketAddr {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// `freshwire relay` on a free port.
struct Relay {
    address: SocketAddr,
    program: Program,
}

impl Relay {
    fn start(arguments: &[&str]) -> Self {
        Self::start_at(free_address(), arguments)
    }

    fn start_at(address: SocketAddr, arguments: &[&str]) -> Self {
        let mut command = freshwire(&["relay", "--listen", &address.to_string()]);
        let relay = Self { address, program: Program::start(command.args(arguments)) };
        relay.program.says("announce a stream");
        relay
    }

    /// A server that announces this source as `live` below this path.
    fn origin(&self, source: &str, path: &str) -> Server {
        let relay = format!("http://{}/{path}", self.address);
        Server::start(&[source, "--relay", &relay])
    }

    /// A server that has the broadcast as `live`.
    fn edge(&self, broadcast: &str) -> Server {
        Server::start(&[&format!("live=moq+http://{}/{broadcast}", self.address)])
    }
}

/// Views `live` until some pictures are decoded. ffmpeg complains of nothing.
#[track_caller]
fn shows_pictures(server: &Server, of: &str) {
    let player = live::ffmpeg_player(&server.rtsp("live"), "60");
    wait_until(|| pictures(&player) > 30, || format!("{of}\n{}\n{}", player.log(), server.0.log()));
    assert!(!player.log().contains("rror"), "{of}: {}", player.log());
}

/// Names of a certificate's files, valid from and until these years.
fn certificate(folder: &Folder, name: &str, years: [i32; 2]) -> [String; 2] {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(years[0], 1, 1);
    params.not_after = rcgen::date_time_ymd(years[1], 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    let files = [("pem", made.pem()), ("key", key.serialize_pem())];
    files.map(|(ending, text)| folder.write(&format!("{name}.{ending}"), &text).display().to_string())
}

#[test]
fn a_relays_certificate_is_verified() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let [good, expired] = [("good", [2020, 2120]), ("old", [2020, 2021])]
        .map(|(name, years)| certificate(&folder, name, years));
    let far = |[certificate, key]: &[String; 2]| Relay::start(&["--tls", certificate, key]);
    let (relay, outdated) = (far(&good), far(&expired));
    // Both are from authorities that are known: the files are all there is.
    let both = [&good[0], &expired[0]].map(|path| std::fs::read_to_string(path).expect("it was written"));
    let trusted = folder.write("trusted.pem", &both.concat());
    let serve = |trusted: &Path, arguments: &[&str]| {
        let mut command = freshwire(&["serve"]);
        for option in ["--listen-rtsp", "--listen-rtmp", "--listen-http", "--listen-internal"] {
            command.args([option, "127.0.0.1:0"]);
        }
        command.args(arguments).env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", trusted);
        let server = Server(Program::start(&mut command));
        server.0.says("\nhttp ");
        server
    };
    let at = |relay: &Relay, scheme: &str, host: &str, path: &str| {
        format!("{scheme}://{host}:{}/{path}", relay.address.port())
    };
    let origin = serve(&trusted, &["live=test", "--relay", &at(&relay, "https", "localhost", "demo")]);
    let edge = |relay: &Relay, trusted: &Path, host: &str| {
        serve(trusted, &[&format!("live={}", at(relay, "moq", host, "demo/live"))])
    };
    shows_pictures(&edge(&relay, &trusted, "localhost"), "by name");
    for (relay, trusted, host, why) in [
        (&outdated, trusted.as_path(), "localhost", "xpired"),
        (&relay, Path::new(&expired[0]), "localhost", "invalid peer certificate"),
        (&relay, trusted.as_path(), "127.0.0.1", "not valid for name"),
    ] {
        let refused = edge(relay, trusted, host);
        let is_said = |line: &str| line.contains(why) && line.contains("check host, port, certificate");
        wait_until(|| refused.0.log().lines().any(is_said), || format!("{why}:\n{}", refused.0.log()));
    }
    let refused = serve(&trusted, &["live=test", "--relay", &at(&outdated, "https", "localhost", "demo")]);
    refused.0.says("xpired");
    assert!(!origin.0.log().contains("panic") && !refused.0.log().contains("panic"));
}

/// The relay still takes the first one for alive when the second one is there.
#[test]
fn an_origin_that_is_killed_and_started_at_once_is_read_again() {
    if !has_ffmpeg() {
        return;
    }
    let relay = Relay::start(&[]);
    let origin = relay.origin("live=test", "demo");
    let edge = relay.edge("demo/live");
    let viewer = live::ffmpeg_player(&edge.rtsp("live"), "100");
    wait_until(|| pictures(&viewer) > 60, || format!("{}\n{}", viewer.log(), edge.0.log()));
    drop(origin);
    let _origin = relay.origin("live=test", "demo");
    let before = pictures(&viewer);
    wait_until(|| pictures(&viewer) > before + 100, || format!("{}\n{}", viewer.log(), edge.0.log()));
    assert!(!viewer.log().contains("rror"), "{}", viewer.log());
}

#[test]
fn every_codec_comes_over() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let relay = Relay::start(&[]);
    for (path, video, audio) in [
        ("h264", "libx264 -preset ultrafast", "aac"),
        ("h265", "libx265 -preset ultrafast -x265-params log-level=error", "libopus"),
        ("vp9", "libvpx-vp9 -deadline realtime -cpu-used 8", "libopus"),
        ("av1", "libaom-av1 -usage realtime -cpu-used 8", "aac"),
    ] {
        let clip = folder.write("clip.mp4", "");
        let mut command = Command::new("ffmpeg");
        let source = "-f lavfi -i testsrc2=size=320x180:rate=30:duration=2 -f lavfi -i sine=duration=2";
        command.args(["-nostdin", "-loglevel", "error", "-y"]).args(source.split(' '));
        command.arg("-c:v").args(video.split(' ')).args(["-g", "15", "-pix_fmt", "yuv420p"]);
        let made = command.args(["-c:a", audio]).arg(&clip).output().expect("ffmpeg runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // A path of its own: for a second the relay takes the last origin for alive.
        let _origin = relay.origin(&format!("live={}", clip.display()), path);
        let edge = relay.edge(&format!("{}/live", path));
        if path == "av1" {
            // Debian's ffmpeg does not know AV1 in RTP.
            let url = format!("http://{}/live.mp4", edge.address("http "));
            let mut player = Command::new("ffmpeg");
            player.args(["-nostdin", "-loglevel", "error", "-i", &url]).stdin(Stdio::null());
            let player =
                Program::start(player.args("-f null -progress pipe:1 -stats_period 0.2 -".split(' ')));
            wait_until(|| pictures(&player) > 30, || format!("{}\n{}", player.log(), edge.0.log()));
        } else {
            shows_pictures(&edge, video);
        }
        assert!(!edge.0.log().contains("left out"), "{video}, {audio}: {}", edge.0.log());
    }
}

/// Growth that the allocator explains.
const FLAT: u64 = 8 << 20;

/// Viewers come and go at the edges of a tree, and one of its programs fails again and again: `make soak-tree` does it for an hour, with
/// a fault each minute. Programs that stayed have no descriptor, thread or memory more than before.
#[test]
fn viewers_come_and_go_and_programs_fail() {
    if !has_ffmpeg() {
        return;
    }
    let seconds = std::env::var("FRESHWIRE_CHURN_SECONDS").map_or(24, |text| text.parse().expect("seconds"));
    let mut relay = Relay::start(&[]);
    let origin = relay.origin("live=test", "demo");
    let (near, mut far) = (relay.edge("demo/live"), relay.edge("demo/live"));
    let mut viewers = VecDeque::new();
    let come_and_go = |viewers: &mut VecDeque<Player>, far: &Server| {
        for edge in [&near, far] {
            viewers.extend(Player::start(edge.address("http "), "live"));
        }
        // Pause: the life of a viewer is six of these.
        std::thread::sleep(Duration::from_millis(500));
        let gone = viewers.len().saturating_sub(12);
        drop(viewers.drain(..gone));
    };
    (0..12).for_each(|_| come_and_go(&mut viewers, &far));
    viewers.clear();
    // Pause: edges read on for two seconds after the last viewer.
    std::thread::sleep(Duration::from_secs(4));
    let stay = [&origin, &near];
    let mut before = stay.map(|server| Held::by(&server.0));
    let (begin, every) = (Instant::now(), (seconds / 6).clamp(4, 60));
    for fault in 0.. {
        let next = Duration::from_secs(every * (fault + 1));
        while begin.elapsed() < next {
            come_and_go(&mut viewers, &far);
        }
        if begin.elapsed().as_secs() >= seconds {
            break;
        }
        match fault % 3 {
            0 => {
                let address = relay.address;
                drop(relay);
                relay = Relay::start_at(address, &[]);
            }
            1 => {
                drop(far);
                far = relay.edge("demo/live");
            }
            _ => {
                relay.program.signal("STOP");
                // Pause: longer than a relay's silence is noticed.
                std::thread::sleep(Duration::from_secs(2));
                relay.program.signal("CONT");
            }
        }
        // Rings become resident as they are used: memory counts from a quarter of the time on.
        if begin.elapsed().as_secs() <= seconds / 4 {
            before.iter_mut().zip(stay).for_each(|(before, server)| before.bytes = server.0.resident());
        }
        println!("{:?}: {:?}", begin.elapsed(), stay.map(|server| Held::by(&server.0)));
    }
    shows_pictures(&near, "after all");
    shows_pictures(&far, "after all");
    viewers.clear();
    for (server, before) in stay.iter().zip(before) {
        let grown = || Held::by(&server.0);
        let is_as_before = || grown().files <= before.files && grown().threads <= before.threads;
        wait_until(is_as_before, || format!("{before:?} became {:?}", grown()));
        let bytes = grown().bytes;
        assert!(bytes <= before.bytes + FLAT, "memory grew from {} to {bytes} bytes", before.bytes);
        assert!(!server.0.log().contains("panic"), "{}", server.0.log());
    }
}

/// What a program has.
#[derive(Clone, Copy, Debug)]
struct Held {
    files: usize,
    threads: usize,
    bytes: u64,
}

impl Held {
    fn by(program: &Program) -> Self {
        let count = |what: &str| {
            std::fs::read_dir(format!("/proc/{}/{what}", program.id())).expect("it runs").count()
        };
        Self { files: count("fd"), threads: count("task"), bytes: program.resident() }
    }
}

/// A server announces a stream and reads it back from a relay at the far end of a link. Its round trip is up to a satellite's and beyond,
/// and packets are lost.
#[test]
fn relays_behind_long_round_trips_are_reached() {
    let has_links = || {
        let link = freshwire(&["link", "--account", "none", "--", "true"]).output();
        link.is_ok_and(|output| output.status.success())
    };
    if !has_ffmpeg() || !has_links() {
        println!("skipped: no ffmpeg, or no emulated links");
        return;
    }
    let (program, clip) = (env!("CARGO_BIN_EXE_freshwire"), clips().join("small.ts"));
    let relay = format!("{program} relay --listen 10.77.0.2:4443 --public '**'");
    let at = "http://10.77.0.2:4443/demo";
    let none = "--listen-rtmp none --listen-webrtc none --listen-internal none";
    let serve =
        format!("{program} serve live={} back=moq+{at}/live --relay live={at} {none}", clip.display());
    let player = "ffmpeg -nostdin -loglevel error -rtsp_transport tcp -i rtsp://127.0.0.1:8554/back -frames:v 60 -f null -";
    let script = format!("{serve} & until {player}; do sleep 0.5; done; kill $!; wait");
    let paths = [("10ms", "0%"), ("150ms", "0%"), ("200ms", "0%"), ("300ms", "1%"), ("400ms", "1%")];
    let links = paths.map(|(delay, loss)| {
        let path = ["link", "--account", "none", "--queue", "1MiB", "--delay", delay, "--loss", loss];
        let mut link = freshwire(&path);
        let link = Program::start(link.args(["--peer", &relay, "--", "sh", "-c", &script]));
        (delay, link)
    });
    for (delay, mut link) in links {
        link.end();
        let log = link.log();
        assert!(log.contains("connected to the relay") && log.contains("no longer views"), "{delay}: {log}");
        assert!(!log.contains("connect timed out"), "{delay}: {log}");
    }
}

/// Where `make relays` has installed upstream's programs.
fn upstream(program: &str) -> PathBuf {
    let folder = std::env::var_os("FRESHWIRE_UPSTREAM").expect("FRESHWIRE_UPSTREAM names a folder");
    Path::new(&folder).join(program)
}

/// Each is of one family: moq-lite, and the drafts of the IETF.
const VERSIONS: [&str; 4] = ["moq-lite-03", "moq-lite-06", "moq-transport-14", "moq-transport-22"];

/// Upstream's command line publishes and subscribes at upstream's relay, with servers of ours beside it, by versions of both families.
#[test]
#[ignore = "`make relays` builds upstream's programs, for some twenty minutes, and runs it"]
fn upstreams_programs_take_part() {
    assert!(has_ffmpeg());
    for version in VERSIONS {
        let address = free_address();
        let at = address.to_string();
        // Programs: own
        let mut command = Command::new(upstream("moq-relay"));
        command.args(["--listen", &at, "--listen-tls-generate", "localhost", "--listen-version", version]);
        command.args(["--web-http-listen", &at, "--auth-public", "**"]).stdin(Stdio::null());
        let relay = Relay { address, program: Program::start(&mut command) };
        wait_until(|| std::net::TcpStream::connect(address).is_ok(), || relay.program.log());
        let moq = |broadcast: &str, rest: &[&str]| {
            // Programs: own
            let mut command = Command::new(upstream("moq"));
            command.args(["--connect", &format!("http://{at}/"), "--broadcast", broadcast]).args(rest);
            command
        };
        let _origin = relay.origin("live=test", "demo");
        shows_pictures(&relay.edge("demo/live"), version);

        let mut encoder = Command::new("ffmpeg");
        encoder.args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"]);
        encoder.arg(clips().join("small.mp4")).args("-c copy -f mpegts pipe:1".split(' '));
        let mut encoder = encoder.stdout(Stdio::piped()).spawn().expect("ffmpeg starts");
        let clip = encoder.stdout.take().expect("a pipe");
        let publisher = Program::start(moq("demo/theirs", &["import", "ts"]).stdin(clip));
        shows_pictures(&relay.edge("demo/theirs"), &format!("{version}: {}", publisher.log()));
        encoder.kill().and_then(|()| encoder.wait()).expect("it ends");

        let mut subscriber = moq("demo/live", &["export", "ts"]);
        let mut subscriber =
            subscriber.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("moq starts");
        let mut player = Command::new("ffmpeg");
        player.args("-nostdin -loglevel error -f mpegts -i pipe:0 -f null -progress pipe:1 -".split(' '));
        let player = Program::start(player.stdin(subscriber.stdout.take().expect("a pipe")));
        wait_until(|| pictures(&player) > 30, || format!("{version}\n{}", player.log()));
        subscriber.kill().and_then(|()| subscriber.wait()).expect("it ends");
    }
}
