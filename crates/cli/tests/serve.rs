//! `freshwire serve` as people run it, and what happens to it: encoders and viewers that come and go, killed servers,
//! clients that mean no good.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

mod live;
mod wait;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use freshwire_netns::trust::{Trial, measure};
use live::crowd::{Client, Crowd};
use live::{Folder, Player, Server, clips, ffmpeg_player, has_ffmpeg, pictures};
use wait::wait_until;

#[test]
fn viewers_stay_while_a_source_returns_with_another_size() {
    if !has_ffmpeg() {
        return;
    }
    let server = Server::start(&[]);
    let small = server.publisher("small.mp4", "live");
    server.0.says("publishes stream=\"live\"");
    wait_until(|| ready(&server), || server.0.log());
    let ts = Player::start(server.address("http "), "live").expect("a player");
    let rtsp = ffmpeg_player(&server.rtsp("live"), "60");
    ts.sees(&server, |seen| seen.pictures.len() > 20);
    wait_until(|| pictures(&rtsp) > 10, || format!("no pictures:\n{}\n{}", rtsp.log(), server.0.log()));
    small.signal("KILL");
    server.0.says("no longer publishes");
    let (before, counted) = (ts.seen(), pictures(&rtsp));
    let _large = server.publisher("large.mp4", "live");
    ts.sees(&server, |seen| seen.widths == [320, 640] && seen.pictures.len() > before.pictures.len() + 40);
    wait_until(
        || pictures(&rtsp) > counted + 30,
        || format!("{counted} pictures and no more:\n{}\n{}", rtsp.log(), server.0.log()),
    );
    assert_eq!(ts.seen().end, None, "{}", server.0.log());
}

#[test]
fn the_server_has_more_of_the_processor_than_its_encoders() {
    if !has_ffmpeg() {
        return;
    }
    let own = stat(std::process::id()).expect("this process").nice;
    let server = Server::start(&["live=test"]);
    let mut encoder = None;
    let mut find = || {
        let mut running = std::fs::read_dir("/proc")
            .expect("processes")
            .filter_map(|entry| stat(entry.ok()?.file_name().to_str()?.parse().ok()?));
        encoder = running.find(|found| found.parent == server.0.id() && found.name == "ffmpeg");
        encoder.is_some()
    };
    wait_until(&mut find, || format!("no encoder:\n{}", server.0.log()));
    // Its priority is set right after its start.
    let nice = |encoder: &Option<Stat>| stat(encoder.as_ref()?.id).map(|found| found.nice);
    wait_until(|| nice(&encoder) == Some(own), || format!("the encoder has {:?}", nice(&encoder)));
    let nice = stat(server.0.id()).expect("the server").nice;
    let stays = own != 0 || server.0.log().contains("the system does not allow the nice value");
    assert_eq!(nice, if stays { own } else { -10 });
}

struct Stat {
    id: u32,
    name: String,
    parent: u32,
    nice: i32,
}

/// What `/proc` says of a process.
fn stat(id: u32) -> Option<Stat> {
    let line = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (start, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let name = start.split_once('(')?.1.to_owned();
    Some(Stat { id, name, parent: fields[1].parse().ok()?, nice: fields[16].parse().ok()? })
}

/// Whether the stream can be viewed.
fn ready(server: &Server) -> bool {
    let request = format!("DESCRIBE {} RTSP/1.0\r\nCSeq: 1\r\n\r\n", server.rtsp("live"));
    ask(server.address("rtsp "), &request).starts_with("RTSP/1.0 200")
}

/// The first of an answer, or what there is of it within a second.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.write_all(request.as_bytes()).expect("it is taken");
    answer(&mut socket)
}

fn answer(socket: &mut TcpStream) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
    let mut answer = vec![0; 4096];
    let count = socket.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

/// The reader of the log is gone, or its disk is full: nobody else notices, and signals are heard.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    for full in [false, true] {
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let [rtsp, internal] = [port.to_string(), "0".to_owned()].map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        command.args([
            "serve",
            "--listen-http",
            "none",
            "--listen-internal",
            &internal,
            "--listen-rtsp",
            &rtsp,
        ]);
        let log = if full {
            std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into()
        } else {
            std::process::Stdio::piped()
        };
        let mut server = command.stderr(log).stdin(std::process::Stdio::null()).spawn().expect("it starts");
        drop(server.stderr.take());
        let ask = |path: &str| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            let request = format!("DESCRIBE rtsp://127.0.0.1:{port}/{path} RTSP/1.0\r\nCSeq: 1\r\n\r\n");
            socket.write_all(request.as_bytes()).ok()?;
            let mut answer = [0; 512];
            let count = socket.read(&mut answer).ok().filter(|&count| count > 0)?;
            Some(String::from_utf8_lossy(&answer[..count]).into_owned())
        };
        wait_until(|| ask("nobody").is_some(), || "the server does not listen".to_owned());
        // Each refusal is a line of the log.
        for _ in 0..20 {
            let answer = ask("nobody").expect("an answer");
            assert!(answer.starts_with("RTSP/1.0 404"), "{answer}");
        }
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &server.id().to_string()]).status();
            assert!(sent.is_ok_and(|status| status.success()));
        };
        signal("-HUP");
        // Pause: nothing shows that a signal was handled without an effect.
        std::thread::sleep(Duration::from_millis(200));
        assert!(ask("nobody").is_some(), "SIGHUP is heard and survived");
        signal("-TERM");
        let mut end = None;
        wait_until(
            || {
                end = server.try_wait().expect("it can be waited for");
                end.is_some()
            },
            || "SIGTERM is not heard".to_owned(),
        );
        assert!(end.is_some_and(|status| status.success()), "{end:?}");
    }
}

#[test]
fn a_jump_in_time_does_not_stop_a_stream() {
    if !has_ffmpeg() {
        return;
    }
    let mut server = Server::start(&["live=-"]);
    let mut input = server.0.input();
    let shifted = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-i"])
        .arg(clips().join("small.ts"))
        .args("-c copy -output_ts_offset 5000 -f mpegts pipe:1".split(' '))
        .output()
        .expect("ffmpeg runs");
    let parts = [std::fs::read(clips().join("small.ts")).expect("a clip"), shifted.stdout];
    let mut player = None;
    let mut at_jump = 0;
    for part in &parts {
        at_jump = player.as_ref().map_or(0, |player: &Player| player.seen().keys);
        // At the pace at which an encoder would write it.
        for piece in part.chunks(part.len() / 40) {
            input.write_all(piece).expect("the server reads");
            // Pause: the pace of an encoder.
            std::thread::sleep(Duration::from_millis(50));
            if player.is_none() && ready(&server) {
                player = Player::start(server.address("http "), "live").ok();
            }
        }
    }
    let player = player.expect("the stream can be viewed");
    player.sees(&server, |seen| seen.keys >= at_jump + 2);
    drop(input);
    server.0.says("standard input has ended");
    assert!(at_jump > 1 && player.seen().end.is_none(), "{at_jump} {:?}", player.seen());
}

#[test]
fn an_unsupported_track_is_named_and_the_others_are_served() {
    if !has_ffmpeg() {
        return;
    }
    let with_sound = Command::new("ffmpeg")
        .args("-nostdin -loglevel error -f lavfi -i sine=duration=2 -i".split(' '))
        .arg(clips().join("small.ts"))
        .args("-map 1:v -map 0:a -c:v copy -c:a ac3 -f mpegts pipe:1".split(' '))
        .output()
        .expect("ffmpeg runs");
    let mut server = Server::start(&["live=-"]);
    let mut input = server.0.input();
    input.write_all(&with_sound.stdout).expect("the server reads");
    server.0.says(
        "a track cannot be carried and is left out source=\"standard input\" track=\"AC-3 audio (PID 257)\"",
    );
    wait_until(|| ready(&server), || server.0.log());
    assert_eq!(server.0.log().matches("left out").count(), 1, "{}", server.0.log());
}

#[test]
fn a_restarted_server_serves_within_two_seconds() {
    if !has_ffmpeg() {
        return;
    }
    let source = format!("live={}", clips().join("small.h264").display());
    // A tenth of the two seconds.
    measure("serve: a restart", Duration::from_millis(200), || restart(&source));
}

fn restart(source: &str) -> Trial {
    let mut first = Server::start(&[source]);
    let addresses = [first.address("rtsp "), first.address("http ")].map(|address| address.to_string());
    let http = first.address("http ");
    let crowd = || -> Vec<Player> { (0..20).filter_map(|_| view_again(http)).collect() };
    wait_until(|| ready(&first), || first.0.log());
    let players = crowd();
    players.iter().for_each(|player| player.sees(&first, |seen| seen.pictures.len() > 10));
    first.0.signal("KILL");
    first.0.end();
    wait_until(|| players.iter().all(|player| player.seen().end.is_some()), || "a player hangs".to_owned());
    let mut second = Server::start_on([&addresses[0], &addresses[1]], &[source]);
    let started = Instant::now();
    wait_until(|| ready(&second), || second.0.log());
    let players = crowd();
    assert_eq!(players.len(), 20, "{}", second.0.log());
    players.iter().for_each(|player| player.sees(&second, |seen| !seen.pictures.is_empty()));
    let serves = started.elapsed();
    second.0.signal("TERM");
    let asked = Instant::now();
    assert!(second.0.end().success(), "{}", second.0.log());
    let stops = asked.elapsed();
    second.0.says("stopped");
    for player in &players {
        player.sees(&second, |seen| seen.end.is_some());
        let seen = player.seen();
        assert!(seen.bytes % 188 == 0, "a torn packet: {seen:?}\n{}", second.0.log());
    }
    let is_soon = serves < Duration::from_secs(2) && stops < Duration::from_secs(5);
    Trial::new(is_soon, || format!("serves after {serves:?}, stops after {stops:?}\n{}", second.0.log()))
}

/// Connects as a viewer does that has lost its server.
fn view_again(http: SocketAddr) -> Option<Player> {
    let give_up = Instant::now() + Duration::from_secs(2);
    while Instant::now() < give_up {
        if let Ok(player) = Player::start(http, "live") {
            return Some(player);
        }
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(50));
    }
    None
}

#[test]
fn clients_that_mean_no_good_cost_viewers_nothing() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    folder.certificate();
    let source = clips().join("small.h264");
    let config = folder.write(
        "freshwire.toml",
        &format!(
            "[rtsp]\ntls_listen = \"127.0.0.1:0\"\n[http]\ntls_listen = \"127.0.0.1:0\"\n\
             [tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n\
             [limits]\nhandshake_timeout = \"1s\"\nrequest_timeout = \"1s\"\n\
             [streams.live]\nsource = {:?}\n",
            source.display().to_string()
        ),
    );
    let server = Server::start(&["--config", &config.display().to_string()]);
    wait_until(|| ready(&server), || server.0.log());
    let (rtsp, rtsps) = (server.address("rtsp "), server.address("rtsps "));
    let players: Vec<_> = (0..5).filter_map(|_| view_again(server.address("http "))).collect();
    players.iter().for_each(|player| player.sees(&server, |seen| seen.pictures.len() > 10));
    let connect = |address| TcpStream::connect(address).expect("a connection");
    // Says nothing.
    let _silent: Vec<_> = (0..20).map(|_| connect(rtsps)).collect();
    // Never comes to the end of a request.
    let mut slow = connect(rtsp);
    slow.write_all(b"OPTIONS rtsp://x/").expect("it is taken");
    // Says too much.
    let oversized = ask(rtsp, &format!("OPTIONS rtsp://x/{} RTSP/1.0\r\n", "x".repeat(20_000)));
    assert!(oversized.starts_with("RTSP/1.0 400") && oversized.contains("exceed"), "{oversized}");
    assert!(ask(rtsp, "\u{16}\u{3}\u{1} nonsense\r\n\r\n").starts_with("RTSP/1.0 400"), "{}", server.0.log());
    // Closes its half at once.
    let half_open = connect(rtsp);
    half_open.shutdown(std::net::Shutdown::Write).expect("closed");
    // Asks for everything at once, and reads nothing meanwhile.
    let mut pipelined = connect(rtsp);
    let options: String =
        (1..=20).map(|number| format!("OPTIONS * RTSP/1.0\r\nCSeq: {number}\r\n\r\n")).collect();
    pipelined.write_all(options.as_bytes()).expect("it is taken");
    let mut answers = String::new();
    wait_until(
        || {
            answers += &answer(&mut pipelined);
            answers.matches("RTSP/1.0 200").count() == 20
        },
        || format!("not all were answered;\n{}", server.0.log()),
    );
    for reason in ["no TLS handshake", "the client took too long", "request line and headers exceed"] {
        server.0.says(reason);
    }
    let gone = |socket: &mut TcpStream| matches!(socket.read(&mut [0; 4096]), Ok(0));
    slow.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    assert!(gone(&mut slow), "a request that never ends is waited for;\n{}", server.0.log());
    for player in &players {
        let seen = player.seen();
        assert!(seen.end.is_none() && seen.pictures.len() > 40, "{seen:?}\n{}", server.0.log());
        assert_eq!(gaps(&seen.pictures), [0i64; 0], "a player missed pictures;\n{}", server.0.log());
    }
}

/// Steps between pictures that are longer than one, in milliseconds.
fn gaps(times: &[i64]) -> Vec<i64> {
    let steps = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000);
    steps.filter(|step| *step > 1500 / live::RATE as i64).collect()
}

#[test]
fn a_client_without_rights_is_refused_and_logged() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    folder.certificate();
    let secret = folder.write("secret", "0123456789abcdef").display().to_string();
    let config = folder.write(
        "freshwire.toml",
        "[rtsp]\ntls_listen = \"127.0.0.1:0\"\n[http]\ntls_listen = \"none\"\n\
         [tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n\
         [access]\nlink_secret_file = \"secret\"\n\
         [access.users.anna]\npassword = \"sesame\"\n\
         [access.users.encoder]\npassword = \"lens\"\nview = []\npublish = [\"live\"]\n\
         [streams.live]\nsource = \"publish\"\n",
    );
    let server = Server::start(&["--config", &config.display().to_string()]);
    let place =
        |user: &str| format!("encoder:lens@{}", server.address("rtsp ")).replace("encoder:lens", user);
    let rtsp = |user: &str| format!("rtsp://{}/live", place(user));
    let mut refused = server.publisher("small.mp4", "live");
    assert!(!refused.end().success(), "anybody may publish;\n{}", server.0.log());
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"]);
    command.arg(clips().join("small.mp4")).args(["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp"]);
    let publisher = live::Program::start(command.arg(rtsp("encoder:lens")));
    server.0.says("publishes stream=\"live\"");

    for (user, why) in
        [("anna:guessed", "wrong credentials"), ("encoder:lens", "this user may not view this stream")]
    {
        assert!(!ffmpeg_player(&rtsp(user), "1").end().success(), "{user}");
        server.0.says(&format!("access denied stream=\"live\" why=\"{why}\""));
    }
    let link = |valid: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        let url = server.rtsp("live");
        let output = command.args(["sign", &url, "--for", valid, "--secret-file", &secret]).output();
        String::from_utf8(output.expect("it runs").stdout).expect("text").trim().to_owned()
    };
    let expired = link("1s");
    let mut valid = ffmpeg_player(&link("1h"), "1");
    assert!(valid.end().success(), "{}\n{}", valid.log(), server.0.log());
    // The expiry is one of whole seconds.
    // Pause: the link expires.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(!ffmpeg_player(&expired, "1").end().success(), "an expired link lets in;\n{}", server.0.log());
    server.0.says("the link has expired");

    let rtsps = format!("rtsps://anna:sesame@{}/live", server.address("rtsps "));
    let mut encrypted = ffmpeg_player(&rtsps, "1");
    assert!(encrypted.end().success(), "{}\n{}", encrypted.log(), server.0.log());
    server.0.says("protocol=\"rtsps\"");
    let recording = folder.write("recording", "").display().to_string();
    let recv = |user: &str| {
        let url = format!("http://{user}@{}/live.fw", server.address("http "));
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        live::Program::start(command.args(["recv", &url, "--out", &recording]))
    };
    let mut receiver = recv("anna:sesame");
    let recorded = || std::fs::metadata(&recording).map_or(0, |file| file.len());
    wait_until(|| recorded() > 10_000, || format!("{}\n{}", receiver.log(), server.0.log()));
    receiver.signal("INT");
    assert!(receiver.end().success(), "{}", receiver.log());
    let kept = recorded();
    let mut guessed = recv("anna:guessed");
    assert_eq!(guessed.end().code(), Some(2), "{}", guessed.log());
    guessed.says("the server answers HTTP/1.1 401");
    assert_eq!(recorded(), kept, "a refused request costs the recording");
    for secret in ["sesame", "guessed", "lens", "0123456789abcdef"] {
        assert!(!server.0.log().contains(secret), "a secret is in the log:\n{}", server.0.log());
    }
    drop(publisher);
}

#[test]
fn a_reload_changes_rights_and_a_faulty_file_changes_nothing() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let source = clips().join("small.h264").display().to_string();
    let write = |user: &str, streams: &[&str]| {
        let mut text = format!("[access.users.{user}]\npassword = \"sesame\"\n");
        for stream in streams {
            text += &format!("[streams.{stream}]\nsource = {source:?}\n");
        }
        folder.write("freshwire.toml", &text).display().to_string()
    };
    let config = write("anna", &["live"]);
    let both =
        std::fs::read_to_string(&config).expect("a file") + "[access.users.bert]\npassword = \"sesame\"\n";
    let config = folder.write("freshwire.toml", &both).display().to_string();
    let server = Server::start(&["--config", &config, &format!("extra={source}")]);
    let view = |user: &str, stream: &str, seconds: &str| {
        let url = server.rtsp(stream).replace("rtsp://", &format!("rtsp://{user}:sesame@"));
        ffmpeg_player(&url, seconds)
    };
    let sees = |user: &str, stream: &str| view(user, stream, "0.5").end().success();
    let mut goes = view("anna", "live", "60");
    let stays = view("bert", "extra", "60");
    for player in [&goes, &stays] {
        wait_until(|| pictures(player) > 10, || format!("{}\n{}", player.log(), server.0.log()));
    }
    assert!(!sees("carl", "live") && !sees("anna", "second"), "{}", server.0.log());

    write("bert", &["live", "second"]);
    server.0.signal("HUP");
    server.0.says("reloaded the configuration");
    // ffmpeg plays for a minute, unless the server says goodbye.
    goes.end();
    server.0.says("the right to view this stream was withdrawn");
    for stream in ["live", "second", "extra"] {
        assert!(sees("bert", stream), "{stream};\n{}", server.0.log());
        assert!(!sees("anna", stream), "{stream};\n{}", server.0.log());
    }

    folder.write("freshwire.toml", "[access]\nlink_secret = 5\n");
    server.0.signal("HUP");
    server.0.says("freshwire.toml:2");
    write("carla", &["extra"]);
    server.0.signal("HUP");
    server.0.says("there are two streams extra");
    let refusals = server.0.log().matches("the configuration was not reloaded, the old one stays").count();
    assert_eq!(refusals, 2, "{}", server.0.log());
    assert!(sees("bert", "second") && sees("bert", "extra") && !sees("carla", "extra"), "{}", server.0.log());
    let counted = pictures(&stays);
    wait_until(
        || pictures(&stays) > counted + 10,
        || format!("a reload ended a viewer that is still let in:\n{}\n{}", stays.log(), server.0.log()),
    );
}

/// 300 readers of values, a tenth of them too slow: the server's memory has a bound, and does not grow. `FRESHWIRE_CROWD_SECONDS` makes
/// it longer than five seconds (`make soak-values`).
#[test]
fn many_readers_of_values_take_a_bounded_memory() {
    const CHANGES_PER_SECOND: u64 = 50;
    /// More than a ring has slots: each was used once then, and its memory is resident.
    const FIRST_CHANGES: u64 = 1100;
    const MOST: u64 = 256 << 20;
    const MOST_GROWTH: u64 = 4 << 20;
    let seconds =
        std::env::var("FRESHWIRE_CROWD_SECONDS").map_or(5, |seconds| seconds.parse().expect("seconds"));
    let server = Server::start(&["state=publish"]);
    let http = server.address("http ");
    let mut publisher = Client::open(http, "/state/push", None);
    // 2.5 kB/s, of 8 kB/s that are offered.
    let mut crowd = Crowd::new(http, "/state/values", 270, 30, Duration::from_millis(50));
    let padding = "x".repeat(100);
    let mut number = 0;
    let mut publish = || {
        number += 1;
        publisher.say(&format!("{{\"key\":\"k\",\"value\":[{number},\"{padding}\"]}}"));
        format!("\"value\":[{number},")
    };
    let first = (1..FIRST_CHANGES).map(|_| publish()).last();
    crowd.read_until_newest(&first.expect("changes"));
    let (settled, begin, mut most) = (server.0.resident(), Instant::now(), 0);
    for second in 0..seconds {
        for change in 1..=CHANGES_PER_SECOND {
            publish();
            let since = Duration::from_secs(second * CHANGES_PER_SECOND + change) / CHANGES_PER_SECOND as u32;
            crowd.read_until(begin + since);
        }
        most = most.max(server.0.resident());
    }
    crowd.read_until_newest(&publish());
    let end = server.0.resident();
    let [fast, slow] = crowd.messages();
    println!(
        "{number} changes; messages of a reader: {fast:?}, slow {slow:?}; memory after {FIRST_CHANGES} changes {} KiB, at the end {} KiB, at most {} KiB",
        settled >> 10,
        end >> 10,
        most >> 10
    );
    assert!(slow.1 < number, "none is slow: {slow:?} of {number}");
    assert!(most < MOST, "{} MiB", most >> 20);
    assert!(end < settled + MOST_GROWTH, "from {} to {} KiB", settled >> 10, end >> 10);
}
