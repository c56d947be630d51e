//! `freshwire serve --forward`: streams that are published to other servers by RTMP.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod live;
mod wait;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use live::{Folder, Player, Program, Server, has_ffmpeg, pictures};
use serde_json::Value;
use wait::wait_until;

/// Where Debian's libnginx-mod-rtmp is.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";

/// nginx with its RTMP module, on a port that stays the same when it is started again.
struct Platform {
    folder: Folder,
    address: SocketAddr,
    nginx: Option<Program>,
}

impl Platform {
    /// `None` where the module is not installed. In CI it has to be.
    fn start() -> Option<Self> {
        if !Path::new(MODULE).exists() {
            assert!(std::env::var_os("CI").is_none(), "{MODULE} is needed in CI");
            println!("skipped: {MODULE} is not on this machine");
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let mut platform = Self { folder: Folder::new(), address: free, nginx: None };
        platform.restart();
        Some(platform)
    }

    fn restart(&mut self) {
        self.nginx = None;
        // `strict` asks a server that is not there, and so refuses everybody.
        let config = format!(
            "load_module {MODULE}; daemon off; master_process off; pid nginx.pid; error_log stderr info;\n\
             events {{ worker_connections 64; }}\n\
             rtmp {{ server {{ listen {}; \n\
             application app {{ live on; }}\n\
             application strict {{ live on; on_publish http://127.0.0.1:1/; }} }} }}\n",
            self.address
        );
        let config = self.folder.write("nginx.conf", &config);
        let mut command = Command::new("nginx");
        command.arg("-p").arg(config.parent().expect("a folder")).arg("-c").arg(&config);
        self.nginx = Some(Program::start(command.arg("-e").arg("stderr").stdin(Stdio::null())));
        let log = || self.nginx.as_ref().map(Program::log).unwrap_or_default();
        wait_until(|| TcpStream::connect(self.address).is_ok(), log);
    }

    fn url(&self, application: &str) -> String {
        format!("rtmp://{}/{application}/secret-key", self.address)
    }

    /// A player that decodes what the platform has, and counts pictures.
    fn player(&self) -> Program {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-loglevel", "error", "-i"]).arg(self.url("app"));
        Program::start(command.args("-map 0:v -f null -progress pipe:1 -stats_period 0.2 -".split(' ')))
    }
}

/// A server that waits for a publisher of `live`, with these arguments, and its internal address.
fn server(arguments: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
    let listen = ["--listen-rtsp", "--listen-rtmp", "--listen-http", "--listen-internal"];
    let listen = listen.map(|option| [option, "127.0.0.1:0"]);
    command.arg("serve").args(listen.as_flattened()).args(arguments);
    let server = Server(Program::start(command.stdin(Stdio::null())));
    server.0.says("\nhttp ");
    server
}

/// What the server says at this path of its internal address.
fn ask(server: &Server, path: &str) -> String {
    let mut socket = TcpStream::connect(server.address("internal ")).expect("the internal address");
    write!(socket, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

fn stream(server: &Server) -> Value {
    let streams: Value = serde_json::from_str(&ask(server, "/api/streams")).expect("JSON");
    streams[0].clone()
}

fn target(server: &Server) -> Value {
    stream(server)["targets"][0].clone()
}

#[test]
fn a_platform_keeps_the_stream_through_changes_and_restarts() {
    if !has_ffmpeg() {
        return;
    }
    let Some(mut platform) = Platform::start() else { return };
    let server = server(&["live=publish", "--forward", &platform.url("app")]);
    wait_until(|| target(&server)["state"] == "waiting", || server.0.log());
    let small = server.publisher("small.mp4", "live");
    server.0.says("published to the target");
    let player = platform.player();
    wait_until(|| pictures(&player) > 30, || format!("{}\n{}", player.log(), server.0.log()));
    let found = target(&server);
    assert_eq!(found["state"], "publishing", "{found}");
    assert_eq!(found["address"], format!("rtmp://{}/app", platform.address));
    assert_eq!(stream(&server)["viewers"][0]["latency_ms"], 700.0, "a platform has a deadline");
    wait_until(|| target(&server)["carries"]["bps"].is_u64(), || target(&server).to_string());
    assert!(target(&server)["behind_ms"].as_f64().is_some_and(|behind| behind < 5000.0), "{found}");
    let metrics = ask(&server, "/metrics");
    assert!(metrics.contains("freshwire_target_up{stream=\"live\",target=\"rtmp://"), "{metrics}");
    let top = Command::new(env!("CARGO_BIN_EXE_freshwire"))
        .args(["top", "--once", &format!("http://{}", server.address("internal "))])
        .output()
        .expect("top runs");
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.contains(&format!("to rtmp://{}/app", platform.address)), "{top}");

    // Another size: the target needs the other parameter sets.
    small.signal("KILL");
    server.0.says("no longer publishes");
    let before = pictures(&player);
    let _large = server.publisher("large.mp4", "live");
    let more = |player: &Program, count: u64| pictures(player) > count + 40;
    wait_until(|| more(&player, before), || format!("{before}: {}\n{}", player.log(), server.0.log()));
    assert!(!player.log().contains("rror"), "{}", player.log());
    assert_eq!(target(&server)["connections"], 1, "the same connection: {}", server.0.log());

    // The platform goes and comes back.
    platform.nginx = None;
    server.0.says("not published to the target");
    platform.restart();
    wait_until(|| target(&server)["connections"] == 2, || server.0.log());
    let player = platform.player();
    wait_until(|| pictures(&player) > 30, || format!("{}\n{}", player.log(), server.0.log()));
    assert!(!player.log().contains("rror"), "{}", player.log());
    assert!(!server.0.log().contains("secret-key"), "{}", server.0.log());
    assert!(!ask(&server, "/api/streams").contains("secret-key"));
    server.0.signal("TERM");
    let nginx = platform.nginx.as_ref().expect("it runs");
    // nginx deletes the stream at the end of a connection as well: what counts comes before that.
    let is_end = |line: &&str| line.contains("deleteStream") || line.contains("disconnect, client");
    let of_publisher = |log: &str| {
        let mut lines = log.lines().skip_while(|line| !line.contains(" publish: name=")).map(str::to_owned);
        let number = lines.next()?.split(' ').find(|word| word.starts_with('*'))?.to_owned();
        lines.find(|line| line.contains(&format!(" {number} ")) && is_end(&line.as_str()))
    };
    wait_until(|| of_publisher(&nginx.log()).is_some(), || nginx.log());
    let first = of_publisher(&nginx.log()).expect("it was there");
    assert!(first.contains("deleteStream"), "{first}\n{}", nginx.log());
}

#[test]
fn a_target_that_refuses_disturbs_no_viewer() {
    if !has_ffmpeg() {
        return;
    }
    let Some(platform) = Platform::start() else { return };
    // One accepts and says nothing, one sends what is no RTMP, and nobody listens on the third port.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let rude = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addresses = [silent.local_addr(), rude.local_addr()].map(|address| address.expect("its address"));
    std::thread::spawn(move || {
        for socket in rude.incoming() {
            let mut socket = socket.expect("a connection");
            let _ = socket.write_all(&[b'x'; 8000]);
            let _ = socket.read(&mut [0; 4000]);
        }
    });
    let urls = [
        platform.url("strict"),
        platform.url("nowhere"),
        format!("rtmp://{}/app/secret-key", addresses[0]),
        format!("rtmp://{}/app/secret-key", addresses[1]),
        format!("rtmp://{closed}/app/secret-key"),
        format!("rtmps://{}/app/secret-key", platform.address),
        platform.url("app"),
    ];
    let mut arguments = vec!["live=publish"];
    urls.iter().for_each(|url| arguments.extend(["--forward", url]));
    let server = server(&arguments);
    let _publisher = server.publisher("small.mp4", "live");
    let log = || server.0.log();
    let says = |address: &str, what: &str| {
        let is_line = |line: &str| line.contains(address) && line.contains(what);
        wait_until(|| log().lines().any(is_line), || format!("{address}: {what}:\n{}", log()));
    };
    let [quiet, rude] = addresses.map(|address| address.to_string());
    let platform_at = platform.address;
    says("strict", "the key is wrong or in use");
    says("nowhere", "ended the connection while it was asked to");
    says(&rude, "speaks no RTMP");
    says(&closed.to_string(), "cannot be reached");
    says(&format!("rtmp://{platform_at}/app"), "published to the target");
    let player = platform.player();
    wait_until(|| pictures(&player) > 30, || format!("{}\n{}", player.log(), log()));
    says(&quiet, "took longer than 10s to shake hands");
    says(&format!("rtmps://{platform_at}"), "took longer than 10s to establish TLS");
    let targets = stream(&server)["targets"].as_array().expect("targets").clone();
    let states: Vec<_> = targets.iter().map(|target| target["state"].as_str().expect("a state")).collect();
    assert_eq!(states.iter().filter(|state| **state == "publishing").count(), 1, "{targets:?}");
    assert!(targets.iter().any(|target| target["reason"].as_str().is_some_and(|why| !why.is_empty())));
    assert!(!log().contains("secret-key") && !log().contains("panic"), "{}", log());
}

#[test]
fn another_server_takes_h265_over_tls() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let [certificate, key] = folder.certificate();
    let text = format!(
        "[rtmp]\nlisten = \"none\"\ntls_listen = \"127.0.0.1:0\"\n[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n\
         [rtsp]\ntls_listen = \"none\"\n[http]\ntls_listen = \"none\"\n[streams.live]\nsource = \"publish\"\n"
    );
    let config = folder.write("far.toml", &text);
    let far = Server::start(&["--config", config.to_str().expect("a path")]);
    let clip = folder.write("clip.mp4", "");
    let made = Command::new("ffmpeg")
        .args("-nostdin -v error -y -f lavfi -i testsrc2=size=320x180:rate=30:duration=4 -f lavfi -i sine=duration=4".split(' '))
        .args("-c:v libx265 -preset ultrafast -x265-params log-level=error:keyint=15 -c:a aac".split(' '))
        .arg(&clip)
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    let port = far.address("rtmps ").port();
    let source = format!("live={}", clip.display());
    let forward = |trusted: Option<&Path>, host: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        let none =
            ["--listen-rtsp", "--listen-rtmp", "--listen-http", "--listen-internal"].map(|it| [it, "none"]);
        command.arg("serve").args(none.as_flattened()).arg(&source);
        command.args(["--forward", &format!("rtmps://{host}:{port}/live")]).env_remove("SSL_CERT_DIR");
        let trusted = trusted.map_or("/dev/null".into(), Path::to_path_buf);
        Program::start(command.env("SSL_CERT_FILE", trusted).stdin(Stdio::null()))
    };
    forward(None, "localhost").says("no certificate authority is known");
    forward(Some(&certificate), "127.0.0.1").says("no TLS session: invalid peer certificate");
    let near = forward(Some(&certificate), "localhost");
    near.says("published to the target");
    let player = Player::start(far.address("http "), "live").expect("a player");
    player.sees(&far, |seen| seen.widths == [320] && seen.pictures.len() > 60 && seen.keys > 3);
    let rtsp = live::ffmpeg_player(&far.rtsp("live"), "3");
    wait_until(|| pictures(&rtsp) > 30, || format!("{}\n{}", rtsp.log(), far.0.log()));
    assert!(!rtsp.log().contains("rror"), "{}", rtsp.log());
    assert!(!near.log().contains("does not say that it takes"), "{}", near.log());
}

#[test]
fn a_reload_adds_and_removes_targets_only() {
    if !has_ffmpeg() {
        return;
    }
    let Some(platform) = Platform::start() else { return };
    let folder = Folder::new();
    let text = |forward: &str| format!("[streams.live]\nsource = \"publish\"\nforward = [{forward}]\n");
    let path = folder.write("f.toml", &text(""));
    let server = server(&["--config", path.to_str().expect("a path")]);
    let publisher = server.publisher("small.mp4", "live");
    server.0.says("publishes stream=\"live\"");
    folder.write("f.toml", &text(&format!("\"{}\"", platform.url("app"))));
    server.0.signal("HUP");
    server.0.says("published to the target");
    let player = platform.player();
    wait_until(|| pictures(&player) > 20, || format!("{}\n{}", player.log(), server.0.log()));
    folder.write("f.toml", &text("\"rtmp://u:p@host/app/secret-key\""));
    server.0.signal("HUP");
    server.0.says("the configuration was not reloaded");
    server.0.says("a user before the host is not supported");
    folder.write("f.toml", &text(""));
    server.0.signal("HUP");
    server.0.says("the configuration has it no more");
    wait_until(|| target(&server).is_null(), || server.0.log());
    assert!(!server.0.log().contains("no longer publishes"), "the publisher stays: {}", server.0.log());
    drop(publisher);
}
