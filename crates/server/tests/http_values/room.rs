//! Values that found no room in a watcher's ring.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::stats::UnreadBy;
use freshwire::websocket::{Event, Reader, Role};
use freshwire_server::report::WatcherReport;
use freshwire_server::values::{HoldReason, WatchRequest};
use serde_json::{Value, json};

use super::client::{Events, Socket};
use super::{server, set};
use crate::testing::wait_for;

const KEYS: usize = 40;

/// Bytes of each value: fewer than half of them fit into a ring.
const VALUE_BYTES: usize = 60_000;

const PATIENCE: Duration = Duration::from_secs(20);

/// A watcher that stalled while large values were set reads on, and nothing is published any more. The values
/// that found no room come as soon as there is some, and the newest of each.
#[test]
fn values_without_room_follow_when_there_is_some() {
    let server = server("state");
    let topic = server.context.topics.find("state").unwrap();
    let long = "x".repeat(VALUE_BYTES);
    let mut socket = Socket::open_with_buffer(&server, "/state/values", 4 << 10);
    let mut events = Events::open_with_buffer(&server, "/state/events", 4 << 10);
    wait_for("watchers", PATIENCE, || topic.snapshot().watchers.len() == 2);
    for round in 0..3 {
        for key in 0..KEYS {
            set(&server, &format!("k{key}"), &json!([round, long]).to_string());
        }
    }
    assert!(topic.snapshot().watchers.iter().all(|watcher| watcher.waiting_keys > 0), "their rings are full");
    // And it is said why nothing goes to them.
    wait_for("what holds them back", PATIENCE, || {
        topic.snapshot().watchers.iter().all(|watcher| {
            let report = WatcherReport::from(watcher);
            report.held_by.as_deref() == Some(HoldReason::Unread(UnreadBy::Queue).name())
                && report.held_unread_s.is_some()
                && report.times_held_unread > 0
        })
    });
    let changes = topic.snapshot().changes;
    catch_up(|| socket.value());
    catch_up(|| events.next().1);
    assert_eq!(topic.snapshot().changes, changes);
    wait_for("nothing to wait any more", PATIENCE, || {
        topic.snapshot().watchers.iter().all(|watcher| watcher.waiting_keys == 0)
    });
    wait_for("nobody to be held back", PATIENCE, || {
        topic.snapshot().watchers.iter().all(|watcher| watcher.held_unread.is_none())
    });
}

/// Nothing is published and no snapshot taken: only the engine's notice of room can deliver the values that found none.
#[test]
fn room_alone_brings_the_values_that_found_none() {
    let server = server("state");
    let topic = server.context.topics.find("state").unwrap();
    let long = "x".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        set(&server, &format!("k{key}"), &json!([2, long]).to_string());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let (socket, peer) = listener.accept().unwrap();
    let watcher = topic.watch(WatchRequest {
        socket,
        preface: Vec::new(),
        seal: None,
        framer: WatchRequest::messages(),
        takes_bytes: true,
        within: None,
        window: None,
        keys: None,
        protocol: "test",
        peer,
    });
    let watcher = watcher.unwrap();
    assert!(topic.snapshot().watchers.iter().all(|watcher| watcher.waiting_keys > 0), "its ring is full");
    server.runtime.spawn(async move { watcher.offer_missed().await });
    let (mut reader, mut buffer) = (Reader::new(Role::Client, 1 << 20), vec![0; 64 << 10]);
    catch_up(|| {
        loop {
            if let Some(event) = reader.next() {
                let Event::Text(text) = event.unwrap() else { panic!("values are text") };
                return serde_json::from_str(&text).unwrap();
            }
            let count = far.read(&mut buffer).expect("a value in time");
            assert!(count > 0, "the topic closed");
            reader.push(&buffer[..count]);
        }
    });
}

/// Reads until the newest value of each key has come.
fn catch_up(mut next: impl FnMut() -> Value) {
    let mut rounds = BTreeMap::new();
    while rounds.values().filter(|round| **round == json!(2)).count() < KEYS {
        let value = next();
        rounds.insert(value["key"].to_string(), value["value"][0].clone());
    }
}
