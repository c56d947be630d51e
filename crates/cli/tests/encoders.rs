//! A ladder whose ffmpeg misbehaves, and ladders with encoders that this machine has or lacks.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod live;
mod wait;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use live::{Folder, Player, Program, Server, has_ffmpeg};
use wait::wait_until;

/// A program in the place of ffmpeg that misbehaves as the file `mode` says, where it is to make a ladder, and notes its number.
const FFMPEG: &str = r#"#!/bin/bash
real=REAL folder=FOLDER
mode=$(cat $folder/mode)
case "$* " in
*" -encoders "*) [ "$mode" != lacks ] || { echo " V....D libx265  and no other"; exit; } ;;
*-filter_complex*)
    echo $$ >> $folder/started
    case $mode in
    hangs) exec sleep 1000 ;;
    swallows) exec cat > /dev/null ;;
    dies) echo "it has no luck" >&2; exit 1 ;;
    garbage) for last; do :; done; exec $real -v quiet -re -f lavfi -i testsrc=size=64x64 -f rawvideo "$last" ;;
    pretends)
        echo "$*" > $folder/arguments
        kept=()
        while [ $# -gt 0 ]; do
            case $1 in
            -init_hw_device | -filter_hw_device) shift ;;
            h264_vaapi) kept+=(libx264 -preset ultrafast -tune zerolatency) ;;
            *) kept+=("${1//format=nv12,hwupload/format=yuv420p}") ;;
            esac
            shift
        done
        set -- "${kept[@]}" ;;
    esac ;;
esac
exec $real "$@"
"#;

/// A server with a ladder of one rung, whose ffmpeg is the program above, and a publisher.
struct Rig {
    folder: Folder,
    /// Path of the folder.
    place: PathBuf,
    server: Server,
    publisher: Program,
}

impl Rig {
    fn new(mode: &str, encoder: &str) -> Self {
        Self::of("large.mp4", mode, encoder)
    }

    /// With a publisher of this clip.
    fn of(clip: &str, mode: &str, encoder: &str) -> Self {
        let folder = Folder::new();
        let config = folder.write(
            "f.toml",
            &format!("[streams.live]\nsource = \"publish\"\nladder = [\"320x180@200k\"]\n{encoder}\n"),
        );
        let path = std::env::var_os("PATH").expect("there is one");
        let programs = std::env::split_paths(&path).map(|folder| folder.join("ffmpeg"));
        let real = programs.into_iter().find(|program| program.exists()).expect("it is there");
        let own = config.parent().expect("it has a folder").to_owned();
        let script = FFMPEG.replace("REAL", &real.display().to_string());
        let script = folder.write("ffmpeg", &script.replace("FOLDER", &own.display().to_string()));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        folder.write("mode", mode);
        folder.write("started", "");
        let paths = [own.clone()].into_iter().chain(std::env::split_paths(&path));
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshwire"));
        command.args(
            "serve --listen-rtsp 127.0.0.1:0 --listen-http 127.0.0.1:0 --listen-internal 127.0.0.1:0"
                .split(' '),
        );
        command.arg("--config").arg(config).env("PATH", std::env::join_paths(paths).expect("they were one"));
        let server = Server(Program::start(command.stdin(Stdio::null())));
        server.0.says("\nhttp ");
        server.0.says("internal 127");
        let publisher = server.publisher(clip, "live");
        server.0.says("publishes stream=\"live\"");
        Self { folder, place: own, server, publisher }
    }

    /// The numbers of the encoders so far.
    fn started(&self) -> Vec<u32> {
        let started = std::fs::read_to_string(self.place.join("started")).expect("it is ours");
        started.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn viewer(&self) -> Player {
        Player::start(self.server.address("http "), "live").expect("a player")
    }

    /// Waits until the rung has come for this time.
    #[track_caller]
    fn comes(&self, times: usize) {
        let line = "a rendition has changed stream=\"live\" rendition=\"180p\" is_present=true";
        let log = || self.server.0.log();
        wait_until(|| log().matches(line).count() >= times, || format!("not {times} times: {}", log()));
    }

    /// The value of a metric of the stream.
    fn metric(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(self.server.address("internal ")).expect("a connection");
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it is taken");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        let start = format!("freshwire_{name}_total{{stream=\"live\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(start.as_str())?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {start}in {text}"))
    }
}

/// A process that has ended and was not waited for has an empty command.
fn is_running(process: u32) -> bool {
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|command| !command.is_empty())
}

/// An encoder that misbehaves in this way is ended, reported and restarted until it does its work.
fn misbehaves(mode: &str, says: &str, hangs: bool) {
    if !has_ffmpeg() {
        return;
    }
    let rig = Rig::new(mode, "");
    let _viewer = rig.viewer();
    let log = || rig.server.0.log();
    wait_until(|| rig.started().len() >= 2, || format!("{mode} is not restarted:\n{}", log()));
    assert!(log().contains("renditions cannot be encoded") && log().contains(says), "{mode}:\n{}", log());
    let first = rig.started()[0];
    wait_until(|| !is_running(first), || format!("{mode} is left running"));
    assert!(rig.metric("stream_encoder_failures") >= 1);
    assert_eq!(rig.metric("stream_encoder_hangs") >= 1, hangs, "{mode}");
    rig.folder.write("mode", "works");
    rig.comes(1);
}

#[test]
fn an_encoder_that_does_nothing_is_ended() {
    misbehaves("hangs", "ffmpeg hangs: it gives no pictures of 180p; it is ended", true);
}

#[test]
fn an_encoder_that_only_reads_is_ended() {
    misbehaves("swallows", "ffmpeg hangs: it gives no pictures of 180p; it is ended", true);
}

#[test]
fn an_encoder_that_gives_garbage_is_ended() {
    misbehaves("garbage", "again_in=", false);
}

#[test]
fn an_encoder_that_dies_at_once_is_restarted_and_logged() {
    misbehaves("dies", "ffmpeg failed: it has no luck", false);
}

/// The encoder of a graphics processor that has stopped looks like this.
#[test]
fn an_encoder_that_stops_while_it_works_is_ended_and_restarted() {
    if !has_ffmpeg() {
        return;
    }
    let rig = Rig::new("works", "encoder = \"libx264\"");
    let viewer = rig.viewer();
    rig.comes(1);
    let encoder = rig.started()[0];
    let status = Command::new("kill").args(["-STOP", &encoder.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()));
    let stopped = Instant::now();
    rig.server.0.says("ffmpeg hangs: it gives no pictures of 180p; it is ended");
    println!("noticed after {:?}", stopped.elapsed());
    wait_until(|| !is_running(encoder), || "it is left running".to_owned());
    rig.comes(2);
    assert_eq!((rig.metric("stream_encoder_failures"), rig.metric("stream_encoder_hangs")), (1, 1));
    let before = viewer.seen().pictures.len();
    viewer.sees(&rig.server, |seen| seen.pictures.len() > before + 20);
}

#[test]
fn an_encoder_that_ffmpeg_lacks_is_named_before_somebody_views() {
    if !has_ffmpeg() {
        return;
    }
    let rig = Rig::new("lacks", "encoder = \"libopenh264\"");
    rig.server
        .0
        .says("this ffmpeg has no encoder libopenh264; of those for H.264 it has none of them: name another");
}

#[test]
fn a_device_that_is_missing_is_named() {
    if !has_ffmpeg() {
        return;
    }
    let rig = Rig::new("works", "encoder = \"h264_vaapi\"\nencoder_device = \"/nowhere/renderD9\"");
    rig.server.0.says("h264_vaapi needs /nowhere/renderD9: No such file or directory");
    let viewer = rig.viewer();
    rig.server.0.says("renditions cannot be encoded");
    viewer.sees(&rig.server, |seen| seen.pictures.len() > 20);
}

/// This machine has no graphics processor: libx264 takes its place behind the arguments that are for it.
#[test]
fn a_graphics_encoder_gets_its_device_and_its_pictures() {
    if !has_ffmpeg() {
        return;
    }
    let device = tempfile::NamedTempFile::new().expect("a file");
    let path = device.path().display().to_string();
    let rig = Rig::new("pretends", &format!("encoder = \"h264_vaapi\"\nencoder_device = \"{path}\""));
    let _viewer = rig.viewer();
    rig.comes(1);
    let arguments = std::fs::read_to_string(rig.place.join("arguments")).expect("it was started");
    for part in [
        &*format!("-init_hw_device vaapi=hw:{path} -filter_hw_device hw "),
        "hwupload",
        "-c:v h264_vaapi -bf 0",
    ] {
        assert!(arguments.contains(part), "{part:?} is not in {arguments}");
    }
}

/// A camera at night sends so little that ffmpeg would wait for more than five seconds of it. This source stops before.
#[test]
fn a_ladder_of_a_quiet_picture_starts_at_once() {
    if !has_ffmpeg() {
        return;
    }
    let folder = Folder::new();
    let clip = folder.write("quiet.mp4", "");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args("-v error -y -f lavfi -i color=black:size=640x360:rate=10:duration=2".split(' '));
    ffmpeg.args("-c:v libx264 -preset ultrafast -g 5 -bf 0 -pix_fmt yuv420p".split(' ')).arg(&clip);
    assert!(ffmpeg.status().is_ok_and(|status| status.success()));
    // 10 to 20 kbit/s.
    assert!(std::fs::metadata(&clip).is_ok_and(|clip| clip.len() < 8000), "it is not quiet");
    let rig = Rig::of(&clip.display().to_string(), "works", "");
    let viewer = rig.viewer();
    viewer.sees(&rig.server, |seen| seen.pictures.len() >= 25);
    rig.publisher.signal("STOP");
    rig.comes(1);
}
