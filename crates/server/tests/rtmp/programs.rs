//! Programs of other people publish, and others view.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::CLOSED;
use crate::rtmp_rig::{PATIENCE, Scene};
use crate::testing::{Process, has, wait_for};

/// A clip with B pictures and AAC, 12 seconds long.
fn clip(folder: &Path) -> PathBuf {
    let path = folder.join("talk.mp4");
    let source = "-nostdin -v error -f lavfi -i testsrc2=size=320x180:rate=25 -f lavfi -i sine=sample_rate=44100 -t 12";
    let coded = "-c:v libx264 -preset ultrafast -bf 2 -pix_fmt yuv420p -g 25 -c:a aac";
    let arguments = source.split(' ').chain(coded.split(' '));
    assert!(Command::new("ffmpeg").args(arguments).arg(&path).status().is_ok_and(|status| status.success()));
    path
}

fn publisher(clip: &Path, url: &str) -> Process {
    let mut command = Command::new("ffmpeg");
    command.args("-nostdin -v error -re -stream_loop -1 -i".split(' ')).arg(clip);
    command.args("-c copy -f flv".split(' ')).arg(url);
    Process(command.stdin(Stdio::null()).spawn().expect("ffmpeg starts"))
}

/// Views over RTSP for some seconds: decoded pictures, their times and those of sound, and errors.
fn view(scene: &Scene, stream: &str) -> (usize, String) {
    let url = format!("rtsp://{}/{stream}", scene.address("rtsp"));
    let mut player = Command::new("ffmpeg");
    player.args("-nostdin -v error -rtsp_transport tcp -i".split(' ')).arg(url);
    player.args("-t 4 -f null -progress pipe:1 -".split(' '));
    let output = player.output().expect("ffmpeg runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let frames = said.lines().filter_map(|line| line.strip_prefix("frame=")?.trim().parse().ok()).next_back();
    (frames.unwrap_or(0), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn ffmpeg_publishes_in_each_way_it_can_say() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let scene = Scene::new("");
    let at = scene.address("rtmp");
    let ways = [
        (format!("rtmp://{at}/live"), "live"),
        (format!("rtmp://{at}/live/cam"), "live/cam"),
        (format!("rtmp://{at}/a/b/c"), "a/b/c"),
        (format!("rtmp://{at}/door~low"), "door"),
    ];
    let publishers: Vec<_> = ways.iter().map(|(url, _)| publisher(&clip, url)).collect();
    for (url, stream) in &ways {
        wait_for(url, PATIENCE, || scene.units(stream) > 100);
    }
    let (frames, errors) = view(&scene, "live");
    assert!(frames >= 90 && errors.is_empty(), "{frames}: {errors}");
    let snapshot = scene.snapshot("live").unwrap();
    assert!(snapshot.origin.unwrap().starts_with("rtmp publisher 127.0.0.1:"));
    // kill -9, and another one at once.
    drop(publishers);
    let _again = publisher(&clip, &ways[0].0);
    let before = scene.units("live");
    wait_for("the next publisher", PATIENCE, || scene.units("live") > before + 100);
}

#[test]
fn ffmpeg_answers_the_challenge_and_shows_refusals() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    let scene = Scene::new(CLOSED);
    let at = scene.address("rtmp");
    {
        let _publisher = publisher(&clip, &format!("rtmp://studio:s&same@{at}/live/cam"));
        wait_for("a publisher with a password", PATIENCE, || scene.units("live/cam") > 50);
        let url = format!("rtmp://{at}/live?user=studio&pass=s%26same");
        let _other = publisher(&clip, &url);
        wait_for("a password in the address", PATIENCE, || scene.units("live") > 50);
    }
    for (url, why) in [
        (format!("rtmp://studio:wrong@{at}/live"), "Incorrect username/password"),
        (format!("rtmp://{at}/live"), "No credentials set"),
        (format!("rtmp://studio:s&same@{at}/other"), "this user may not publish this stream"),
    ] {
        let mut command = Command::new("ffmpeg");
        command
            .args("-nostdin -v error -i".split(' '))
            .arg(&clip)
            .args("-c copy -f flv".split(' '))
            .arg(&url);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{url}: {errors}");
    }
}

#[test]
fn ffmpeg_publishes_over_tls() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let scene = Scene::new(&format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n"));
    let _publisher = publisher(&clip(folder.path()), &format!("rtmps://{}/live", scene.address("rtmps")));
    wait_for("units over TLS", PATIENCE, || scene.units("live") > 100);
}

#[test]
fn gstreamer_publishes_with_both_of_its_sinks() {
    if !has("gst-launch-1.0", "--version") {
        return;
    }
    let scene = Scene::new(CLOSED);
    let at = scene.address("rtmp");
    // The newer one wants an application and a key, one of which may be empty.
    let sinks = [
        (format!("! rtmp2sink location=rtmp://studio:s%26same@{at}/live/new"), "live/new"),
        (format!("! rtmp2sink location=rtmp://studio:s%26same@{at}/live/"), "live"),
        (format!("! rtmp2sink location=rtmp://{at}//live?user=studio&pass=s%26same"), "live"),
        (format!("! rtmpsink location=rtmp://{at}/live?user=studio&pass=s%26same"), "live"),
    ];
    for (sink, stream) in sinks {
        wait_for("the name", PATIENCE, || !scene.is_published(stream));
        let before = scene.units(stream);
        let pipeline = format!(
            "flvmux name=mux streamable=true {sink} videotestsrc is-live=true ! video/x-raw,format=I420 ! x264enc \
             tune=zerolatency key-int-max=25 ! h264parse ! mux. audiotestsrc is-live=true ! voaacenc ! aacparse ! mux."
        );
        let mut command = Command::new("gst-launch-1.0");
        command.arg("-q").args(pipeline.split_whitespace()).stdin(Stdio::null());
        let _publisher = Process(command.spawn().expect("it starts"));
        wait_for(&sink, PATIENCE, || scene.units(stream) > before + 50);
        let tracks = scene.server.context().hub.find(stream).unwrap().tracks();
        let tracks = tracks.borrow().clone().expect("declared");
        assert!(tracks.video.is_some() && tracks.audio.is_some(), "{tracks:?}");
    }
}
