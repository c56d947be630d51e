//! Renditions over a relay: only those that somebody uses, and their capture times.

use std::process::Command;
use std::time::{Duration, SystemTime};

use freshwire_media::demux::{Config, Demux, Event};
use freshwire_media::unit::Unit;
use freshwire_moq::Announcement;

use crate::relay_rig::{PATIENCE, RelayScene, Scene, open_relay};
use crate::testing::{has, wait_for};

/// The renditions that the relay reads from the origin.
fn read(origin: &Scene) -> Vec<String> {
    let viewers = origin.snapshot("live").viewers;
    let mut renditions: Vec<_> = viewers.into_iter().filter_map(|viewer| viewer.rendition).collect();
    renditions.sort();
    renditions
}

#[test]
fn only_the_rendition_that_is_used_is_read() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let settings = format!(
        "[streams.live]\nsource = \"test\"\nrelay = [\"{}\"]\n[[streams.live.rendition]]\nname = \"low\"\nsource = \"test\"\n",
        relay.url("demo")
    );
    let origin = Scene::new(&settings);
    wait_for("both renditions", PATIENCE, || {
        origin.snapshot("live").renditions.iter().filter(|rendition| rendition.is_present).count() == 2
    });
    let edge = Scene::edge(&relay);
    wait_for("their names", PATIENCE, || edge.snapshot("live").renditions.len() == 2);
    let both_can_be_had = || {
        let renditions = edge.snapshot("live").renditions;
        renditions.len() == 2 && renditions.iter().all(|rendition| rendition.is_present)
    };
    let viewers = [edge.view("live~low"), edge.view("live~low")];
    wait_for("a viewer", PATIENCE, || edge.viewers("live") == 2);
    // The other one is read for two groups, so that it is known what it needs.
    wait_for("the used rendition to be read alone, once", PATIENCE, || read(&origin) == ["low"]);
    assert!(both_can_be_had());
    drop(viewers);
    wait_for("the relay to be left alone", PATIENCE, || read(&origin).is_empty());
    let _viewer = edge.view("live~low");
    wait_for("both renditions again", PATIENCE, both_can_be_had);
    wait_for("the used rendition to be read alone again", PATIENCE, || read(&origin) == ["low"]);
    assert!(both_can_be_had());
    let _other = edge.view("live~main");
    wait_for("the other to be read as well", PATIENCE, || read(&origin) == ["low", "main"]);
    wait_for("pictures for all", PATIENCE, || {
        let viewers = edge.snapshot("live").viewers;
        viewers.len() == 2 && viewers.iter().all(|viewer| viewer.rendition.is_some())
    });
}

/// Pictures as x264 codes them.
fn units() -> Vec<Unit> {
    let arguments = "-nostdin -v error -f lavfi -i testsrc2=size=320x180:rate=25 -frames:v 100 -c:v libx264 -preset ultrafast -tune \
        zerolatency -g 25 -pix_fmt yuv420p -f h264 -";
    let output = Command::new("ffmpeg").args(arguments.split_whitespace()).output().expect("ffmpeg runs");
    let mut demux = Demux::new(Config::default());
    demux.push(&output.stdout);
    demux.finish();
    let unit = |event| match event {
        Ok(Event::Unit(unit)) => Some(unit),
        _ => None,
    };
    demux.filter_map(unit).collect()
}

#[test]
fn capture_times_come_with_the_pictures() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let edge = Scene::edge(&relay);
    let units = units();
    let video = units[0].head.tracks.video.clone().expect("pictures");
    // The pictures were captured seven seconds before they are published.
    let late = Duration::from_secs(7);
    let zero = SystemTime::now() - Duration::from_secs(10);
    let url = relay.url("demo").replace("moq+", "").parse().expect("an address");
    let announcement = edge.runtime.block_on(Announcement::open(&url, "live", zero)).expect("announced");
    let mut writer = announcement.video("main", &video, None).expect("a track");
    announcement.announce().expect("announced");
    let _viewer = edge.view("live");
    wait_for("a viewer", PATIENCE, || writer.demand().is_used());
    for unit in &units {
        let captured = zero.elapsed().expect("time goes on") - late;
        writer.write(captured.as_micros() as u64, unit.bytes.clone()).expect("written");
        // Pause: the pace of the pictures.
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for("pictures", PATIENCE, || edge.units("live") > 20);
    let stream = edge.server.context().hub.find("live").expect("it is configured");
    let (media, captured) = stream.wall_clock().expect("a clock");
    // Media times are those of the publisher's clock, counted from 2020.
    let year_2020 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    let shown = year_2020 + Duration::from_nanos(media.as_nanos() as u64);
    let apart = shown.duration_since(captured).unwrap_or_else(|error| error.duration());
    assert!(apart < Duration::from_millis(1), "{apart:?}");
    let age = captured.elapsed().expect("in the past");
    assert!(age >= late && age < 2 * late, "{age:?}");
}
