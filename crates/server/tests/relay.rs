//! Streams over a relay of Media over QUIC: origin, relay, edge, viewers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits in real time")]

#[path = "relay/hostile.rs"]
mod hostile;
mod relay_rig;
#[path = "relay/renditions.rs"]
mod renditions;
mod testing;

use relay_rig::{PATIENCE, RelayScene, Scene, open_relay};
use testing::{has, wait_for};

#[test]
fn a_stream_comes_to_viewers_of_an_edge() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let origin = Scene::origin(&relay);
    let edge = Scene::edge(&relay);
    wait_for("the source", PATIENCE, || origin.units("live") > 50);
    assert_eq!((origin.viewers("live"), edge.units("live")), (0, 0), "nobody views");
    let (frames, errors) = edge.watch("live", 3);
    assert!(frames >= 50 && errors.is_empty(), "{frames}: {errors}");
    wait_for("the origin to be left alone", PATIENCE, || origin.viewers("live") == 0);
    let units = edge.units("live");
    // Pause: until what was on its way is there.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(edge.units("live"), units, "nobody views any more");
}

/// Without relays between them, and without a viewer at the first edge.
#[test]
fn an_edge_announces_what_it_reads() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let _origin = Scene::origin(&relay);
    let (near, far) = (relay.url("demo/live"), relay.url("far"));
    let _middle = Scene::new(&format!("[streams.live]\nsource = \"{near}\"\nrelay = [\"{far}\"]\n"));
    let last = Scene::new(&format!("[streams.live]\nsource = \"{}\"\n", relay.url("far/live")));
    let _viewer = last.view("live");
    wait_for("pictures behind two edges", PATIENCE, || last.units("live") > 50);
}

/// A reader that comes back within a group does not have the broadcast begin anew.
#[test]
fn readers_come_and_go_within_a_group() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let origin = Scene::origin(&relay);
    let edge = Scene::edge(&relay);
    for _ in 0..3 {
        let before = edge.units("live");
        let viewer = edge.view("live");
        wait_for("pictures", PATIENCE, || edge.units("live") > before + 10);
        drop(viewer);
        wait_for("the origin to be left alone", PATIENCE, || origin.viewers("live") == 0);
    }
    let streams = origin.get("/api/streams");
    assert!(streams.contains("\"connections\":1,"), "one connection for all: {streams}");
}
