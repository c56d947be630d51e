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
