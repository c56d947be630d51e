//! Several publishers of one stream, each with a quality of its own, as the guide has it: ffmpeg and GStreamer publish, players see
//! the quality that they ask for.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod live;
mod wait;

use std::process::{Command, Stdio};

use live::{Folder, Player, Program, Server, clips, has_ffmpeg};
use wait::wait_until;

/// A stream that one user may publish and everybody may view.
const CONFIG: &str = "[access]\nopen = true\n[access.users.studio]\npassword = \"secret\"\npublish = [\"live\"]\n\
    [streams.live]\nsource = \"publish\"\n";

/// The guide's publisher. `more` is what OBS leaves out.
fn publisher(clip: &str, url: &str, more: &[&str]) -> Program {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-loglevel", "error", "-re", "-stream_loop", "-1", "-i"])
        .arg(clips().join(clip));
    Program::start(command.args(["-c", "copy", "-f", "rtsp"]).args(more).arg(url).stdin(Stdio::null()))
}

/// How wide the pictures are that a player gets at this address.
fn width(url: &str) -> String {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-rtsp_transport", "tcp", "-select_streams", "v"]);
    let output =
        command.args(["-show_entries", "stream=width", "-of", "csv=p=0", url]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Every address of the two qualities shows what it names.
#[track_caller]
fn each_address_shows_its_quality(server: &Server) {
    let widths = [("live~low", "320"), ("live?renditions=low", "320"), ("live?renditions=none", "640")];
    for (address, wanted) in widths {
        let what = || {
            format!(
                "{address} does not have {wanted}:
{}",
                server.0.log()
            )
        };
        wait_until(|| width(&server.rtsp(address)) == wanted, what);
    }
    let low = Player::start(server.address("http "), "live~low").expect("a player");
    low.sees(server, |seen| seen.widths == [320] && seen.pictures.len() > 10);
}

/// The first and the second publisher may come in any order, and the main one may leave and come back.
fn two_publishers(arguments: &[&str], user: &str, main_first: bool) {
    let server = Server::start(arguments);
    let url = |stream: &str| server.rtsp(stream).replace("rtsp://", &format!("rtsp://{user}"));
    let tcp = ["-rtsp_transport", "tcp"];
    let start_main = || publisher("large.mp4", &url("live"), &tcp);
    let mut main = main_first.then(start_main);
    if main_first {
        server.0.says("publishes stream=\"live\"");
    }
    // Without the transport, as OBS does.
    let low = publisher("small.mp4", &url("live~low"), &[]);
    server.0.says("publishes stream=\"live\" rendition=\"low\"");
    main.get_or_insert_with(start_main);
    each_address_shows_its_quality(&server);
    let player = Player::start(server.address("http "), "live").expect("a player");
    player.sees(&server, |seen| seen.widths.last() == Some(&640));
    drop(main);
    player.sees(&server, |seen| seen.widths.last() == Some(&320));
    let _main = start_main();
    player.sees(&server, |seen| seen.widths.last() == Some(&640));
    assert_eq!(player.seen().end, None, "{}", server.0.log());
    drop(low);
    server.0.says("no longer publishes stream=\"live~low\"");
    let before = player.seen().pictures.len();
    player.sees(&server, |seen| seen.pictures.len() > before + 20);
    assert_eq!(player.seen().widths.last(), Some(&640));
}

#[test]
fn a_configured_stream_takes_a_second_quality_before_the_first() {
    if has_ffmpeg() {
        let folder = Folder::new();
        let path = folder.write("f.toml", CONFIG);
        two_publishers(&["--config", path.to_str().expect("UTF-8")], "studio:secret@", false);
    }
}

#[test]
fn a_stream_takes_a_second_quality_after_the_first() {
    if has_ffmpeg() {
        two_publishers(&["live=publish"], "", true);
    }
}

#[test]
fn a_stream_that_nothing_configures_takes_a_second_quality() {
    if has_ffmpeg() {
        two_publishers(&[], "", false);
    }
}

#[test]
fn a_publish_right_for_another_stream_is_none_for_a_rendition() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let config = CONFIG.replace("publish = [\"live\"]", "publish = [\"live2\", \"low\"]");
    let path = folder.write("f.toml", &config);
    let server = Server::start(&["--config", path.to_str().expect("UTF-8")]);
    let url = server.rtsp("live~low").replace("rtsp://", "rtsp://studio:secret@");
    let mut refused = publisher("small.mp4", &url, &["-rtsp_transport", "tcp"]);
    assert!(!refused.end().success());
    assert!(
        refused.log().contains("403 Forbidden: this user may not publish this stream"),
        "{}",
        refused.log()
    );
}

#[test]
fn gstreamer_publishes_a_rendition() {
    let has_sink = Command::new("gst-inspect-1.0").arg("rtspclientsink").output();
    if !has_ffmpeg() {
        return;
    }
    if !has_sink.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "rtspclientsink is needed in CI");
        println!("skipped: rtspclientsink is not on this machine");
        return;
    }
    let server = Server::start(&["live=publish"]);
    let _main = publisher("large.mp4", &server.rtsp("live"), &["-rtsp_transport", "tcp"]);
    let mut command = Command::new("gst-launch-1.0");
    command.args("videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=180 !".split(' '));
    command.args(
        "x264enc tune=zerolatency key-int-max=15 ! h264parse ! rtspclientsink protocols=tcp".split(' '),
    );
    let _low = Program::start(command.arg(format!("location={}", server.rtsp("live~low"))));
    each_address_shows_its_quality(&server);
}

/// A camera's main and sub stream, as the guide configures them. The camera is another server.
#[test]
fn a_cameras_sub_stream_is_a_second_quality() {
    if !has_ffmpeg() {
        return;
    }
    let camera = Server::start(&["main=publish", "sub=publish"]);
    let _publishers = [("large.mp4", "main"), ("small.mp4", "sub")]
        .map(|(clip, stream)| publisher(clip, &camera.rtsp(stream), &["-rtsp_transport", "tcp"]));
    let folder = Folder::new();
    let [main, sub] = ["main", "sub"].map(|stream| camera.rtsp(stream));
    let config = format!(
        "[streams.live]\nsource = \"{main}\"\n[[streams.live.rendition]]\nname = \"low\"\nsource = \"{sub}\"\n"
    );
    let path = folder.write("f.toml", &config);
    let server = Server::start(&["--config", path.to_str().expect("UTF-8")]);
    each_address_shows_its_quality(&server);
    // Its place is taken by its source.
    let mut second = publisher("small.mp4", &server.rtsp("live~low"), &["-rtsp_transport", "tcp"]);
    assert!(!second.end().success());
    let says = "503 Service Unavailable: stream live~low has a publisher already";
    assert!(second.log().contains(says), "{}", second.log());
}

/// A name that nobody publishes is refused at once, with those that there are.
#[test]
fn an_unknown_quality_is_refused_by_name() {
    if !has_ffmpeg() {
        return;
    }
    let server = Server::start(&["live=publish"]);
    let _main = publisher("large.mp4", &server.rtsp("live"), &["-rtsp_transport", "tcp"]);
    wait_until(|| width(&server.rtsp("live")) == "640", || server.0.log());
    let says = "the stream has no rendition \"nope\"; it has main";
    for address in ["live~nope", "live?renditions=nope"] {
        let refused =
            Command::new("ffprobe").args(["-rtsp_transport", "tcp"]).arg(server.rtsp(address)).output();
        let said = String::from_utf8_lossy(&refused.expect("it runs").stderr).into_owned();
        assert!(said.contains(&format!("404 Not Found: {says}")), "{said}");
    }
    let nobody = Player::start(server.address("http "), "live~nope").expect("a connection");
    nobody.sees(&server, |seen| seen.end.as_deref().is_some_and(|end| end.contains("404 Not Found")));
}
