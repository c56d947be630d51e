//! Publishers over RTMP: names, rights and limits, all codecs, real programs, and clients that mean no good.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits in real time")]

#[path = "rtmp/hostile.rs"]
mod hostile;
#[path = "rtmp/programs.rs"]
mod programs;
mod rtmp_rig;
mod testing;

use std::process::Command;

use freshwire_server::access::{LinkKey, Right};
use rtmp_rig::{Clip, PATIENCE, Scene, config};
use testing::wait_for;

const SECRET: &str = "a secret of some length";

/// A user, and a secret for links.
const CLOSED: &str = "[access]\nlink_secret = \"a secret of some length\"\n[access.users.studio]\npassword = \"s&same\"\n\
    publish = [\"live\", \"live/*\"]\n[streams.live]\nsource = \"publish\"\n";

#[test]
fn application_and_key_name_the_stream() {
    let scene = Scene::new("");
    for (app, key, stream) in [("live", "", "live"), ("", "studio", "studio"), ("live", "cam", "live/cam")] {
        let _client = scene.publish(app, key).unwrap();
        assert!(scene.is_published(stream), "{stream}");
    }
    let _rendition = scene.publish("", "live~low").unwrap();
    let names: Vec<_> = scene.snapshot("live").unwrap().renditions.into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["main", "low"]);
    for (app, key, why) in
        [("", "", "names no stream"), ("", "live.ts", "marks the address"), ("a", "_/b/../c", "a dot")]
    {
        let refusal = scene.publish(app, key).err().unwrap();
        assert!(refusal.starts_with("NetStream.Publish.BadName") && refusal.contains(why), "{refusal}");
    }
}

#[test]
fn one_publisher_has_a_name_until_it_leaves() {
    let scene = Scene::new("");
    let mut first = scene.publish("live", "").unwrap();
    let refusal = scene.publish("", "live").err().unwrap();
    assert_eq!(refusal, "NetStream.Publish.BadName: stream live has a publisher already");
    first.command("deleteStream", vec![freshwire_media::rtmp::amf0::Value::Null, 1.0.into()]);
    assert_eq!(first.status().as_deref(), Some("NetStream.Unpublish.Success: unpublished"));
    let mut second = scene.publish("live", "").unwrap();
    // Another stream in the connection that has had one.
    first.publish("other").unwrap();
    assert!(second.publish("third").unwrap_err().contains("publishes already"));
    wait_for("the name to be free", PATIENCE, || !scene.is_published("live"));
}

#[test]
fn credentials_are_those_of_the_rules() {
    let scene = Scene::new(CLOSED);
    let link = LinkKey::new(SECRET).query(Right::Publish, "live/cam", u64::from(u32::MAX));
    for (app, key) in [
        ("", "live?user=studio&pass=s%26same"),
        ("live?user=studio&pass=s%26same", ""),
        ("", format!("live/cam?{link}").as_str()),
        (format!("live/cam?{link}").as_str(), ""),
    ] {
        scene.publish(app, key).unwrap_or_else(|why| panic!("{app} {key}: {why}"));
    }
    let forged =
        LinkKey::new("another of the same length").query(Right::Publish, "live", u64::from(u32::MAX));
    for (key, why) in [
        ("live", "needs a user or a signed link"),
        ("live?user=studio&pass=sesame", "wrong user or password"),
        ("live?user=nobody&pass=s%26same", "wrong user or password"),
        ("other?user=studio&pass=s%26same", "this user may not publish this stream"),
        (format!("live?{forged}").as_str(), "the link is not valid"),
    ] {
        let refusal = scene.publish("", key).err().unwrap();
        assert!(
            refusal.starts_with("NetStream.Publish.Unauthorized") && refusal.contains(why),
            "{key}: {refusal}"
        );
    }
    let asked = scene.publish("live", "").err().unwrap();
    assert!(
        asked.starts_with("[ AccessManager.Reject ] : [ code=403 need auth; authmod=adobe ] : publishing"),
        "{asked}"
    );
    assert!(scene.server.context().counters.denied.value() >= 5);
}

#[test]
fn a_reload_ends_what_it_takes_away() {
    let mut scene = Scene::new(CLOSED);
    let mut publisher = scene.publish("", "live?user=studio&pass=s%26same").unwrap();
    scene.server.reload(config(&CLOSED.replace("\"live\", ", ""))).unwrap();
    let status = publisher.status().unwrap();
    assert_eq!(status, "NetStream.Publish.Unauthorized: the right to publish this stream was withdrawn");
    assert_eq!(publisher.status(), None, "it ends");
    scene.server.reload(config(CLOSED)).unwrap();
    let mut publisher = scene.publish("", "live?user=studio&pass=s%26same").unwrap();
    scene.server.reload(config(CLOSED.split("[streams.live]").next().unwrap())).unwrap();
    assert_eq!(publisher.status().as_deref(), Some("NetStream.Publish.Unauthorized: the stream was removed"));
}

#[test]
fn limits_are_those_of_all_publishers() {
    let scene = Scene::new("[limits]\nmax_publish_rate = \"1Mbit\"\n[hub]\nmax_streams = 1\n");
    let mut fast = scene.publish("", "live").unwrap();
    let refusal = scene.publish("", "other").err().unwrap();
    assert!(refusal.starts_with("NetStream.Publish.Failed: 1 streams are the limit"), "{refusal}");
    fast.send(9, 1, 0, &vec![0; 600_000]);
    assert_eq!(fast.status().as_deref(), Some("NetStream.Publish.Failed: publishes more than 1000000 bit/s"));
}

#[test]
fn viewers_hear_where_to_view() {
    let scene = Scene::new("");
    let mut client = rtmp_rig::Client::connect(scene.address("rtmp"), "live").unwrap();
    client.command("play", vec![freshwire_media::rtmp::amf0::Value::Null, "cam".into()]);
    let status = client.status().unwrap();
    assert!(status.starts_with("NetStream.Play.StreamNotFound") && status.contains("rtsp://"), "{status}");
}

/// All pictures and all sound of each codec come whole to a viewer that decodes them.
#[test]
fn each_codec_comes_to_viewers() {
    let clips = [
        ("libx264 -bf 2", "aac", "mpegts"),
        ("libx265 -x265-params log-level=error", "aac", "mpegts"),
        ("libvpx-vp9 -deadline realtime -cpu-used 8", "libopus", MP4),
        ("libaom-av1 -usage realtime -cpu-used 8", "libopus", MP4),
    ];
    for (video, audio, muxer) in clips {
        let Some(clip) = Clip::encode(video, audio, muxer) else { return };
        let scene = Scene::new("");
        let mut client = scene.publish("live", "").unwrap();
        client.send_clip(&clip, u32::MAX - 1000);
        wait_for("all units", PATIENCE, || scene.units("live") == clip.units.len() as u64);
        let url = format!("http://{}/live.mp4", scene.address("http"));
        let mut player = Command::new("ffmpeg");
        player.args("-nostdin -v error -i".split(' ')).arg(url).args("-f null -progress pipe:1 -".split(' '));
        let player = player.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let player = player.spawn().unwrap();
        wait_for("the viewer", PATIENCE, || !scene.snapshot("live").unwrap().viewers.is_empty());
        let before = scene.units("live");
        client.send_clip(&clip, 1000);
        wait_for("all units again", PATIENCE, || scene.units("live") == before + clip.units.len() as u64);
        drop(client);
        let stream = scene.snapshot("live").unwrap();
        // Pause: until the viewer has what was published.
        std::thread::sleep(std::time::Duration::from_secs(1));
        scene.runtime.block_on(scene.server.stop());
        let output = player.wait_with_output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let decoded = said
            .lines()
            .filter_map(|line| line.strip_prefix("frame=")?.trim().parse::<usize>().ok())
            .next_back();
        // The stream ends as the server stops; decoders say nothing.
        let is_of_decoder =
            |line: &&str| !line.contains("http") && !line.trim_start().starts_with("Last message");
        let complaint = errors.lines().find(is_of_decoder);
        assert!(
            decoded.unwrap() >= clip.pictures() && complaint.is_none_or(str::is_empty),
            "{video}: {decoded:?} of {}\n{errors}\n{stream:?}",
            clip.pictures()
        );
    }
}

const MP4: &str = "mp4 -movflags delay_moov+default_base_moof -frag_duration 1";
