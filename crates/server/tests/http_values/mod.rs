//! Values by key, as publishers and watchers of any make exchange them with a running server.

mod client;
mod present;
mod room;
mod silence;
mod sites;
mod tls;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use freshwire::websocket::Event;
use freshwire_server::access::{Access, Names, Password, Rights, Rules, User};
use freshwire_server::config::Limits;
use freshwire_server::values::{Content, ValueError, WatcherSnapshot};
use serde_json::{Value, json};

use crate::http_rig::Server;
use crate::testing::wait_for;
use crate::{get, say, status};
use client::{Events, Socket};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with a stream of values of this name.
fn server(name: &str) -> Server {
    let server = Server::open();
    server.context.topics.keep([name.to_owned()]);
    server
}

/// The answer to a request with a body.
fn send(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}",
        server.address
    );
    say(server.address, &request)
}

fn post(server: &Server, path: &str, body: &str) -> String {
    let answer = send(server, "POST", path, "", body);
    status(&answer).to_owned()
}

fn set(server: &Server, key: &str, value: &str) {
    server.context.topics.find("state").unwrap().set(key, &Content::Json(value.to_owned())).unwrap();
}

fn keys(server: &Server) -> usize {
    server.context.topics.find("state").unwrap().snapshot().keys
}

#[test]
fn changes_are_carried_out_or_refused_with_a_reason() {
    let server = server("state");
    assert_eq!(post(&server, "/state/door", "open"), "204");
    assert_eq!(post(&server, "/state/a%2Fb", "{\"x\": [1, 2]}"), "204");
    assert_eq!(
        post(&server, "/state", "{\"key\":\"a\",\"value\":1}\n\n{\"key\":\"door\",\"delete\":true}\n"),
        "204"
    );
    assert_eq!(keys(&server), 2);
    assert_eq!(status(&send(&server, "PUT", "/state/a", "", "2")), "204");
    assert_eq!(status(&send(&server, "DELETE", "/state/a", "", "")), "204");
    assert_eq!(keys(&server), 1);
    let refused = [
        ("POST", "/state/", "", "1", "400", "cannot be a key"),
        ("POST", "/other/door", "", "1", "404", "source publish"),
        ("POST", "/", "", "1", "405", "only GET"),
        ("DELETE", "/state/none", "", "", "404", "there is no key"),
        ("DELETE", "/state", "", "", "400", "name the key"),
        ("POST", "/state/a", "Content-Type: application/json\r\n", "{", "400", "not JSON"),
        ("POST", "/state", "", "{\"key\":\"a\",\"value\":1}\n{}", "400", "line 2: missing field"),
        ("POST", "/state", "", "{\"key\":\"a\"}", "400", "neither a value nor delete"),
    ];
    for (method, path, headers, body, expected, why) in refused {
        let answer = send(&server, method, path, headers, body);
        assert!(status(&answer) == expected && answer.contains(why), "{method} {path}: {answer}");
    }
    let large = "x".repeat((64 << 10) + 1);
    assert_eq!(post(&server, "/state/a", &large), "413", "above the limit of a body");
    let escaped = "\u{1}".repeat(20 << 10);
    assert_eq!(post(&server, "/state/a", &escaped), "413", "above the limit of a value once it is JSON");
    for key in 0..300 {
        let expected = if keys(&server) < 256 { "204" } else { "507" };
        assert_eq!(post(&server, &format!("/state/k{key}"), "1"), expected);
    }
    assert_eq!(post(&server, "/state/k0", "2"), "204", "a key that is there has its place");
}

#[test]
fn a_newcomer_gets_the_current_values_and_then_the_changes() {
    let server = server("live/state");
    let topic = server.context.topics.find("live/state").unwrap();
    let set = |key: &str, value: Value| topic.set(key, &Content::Json(value.to_string())).unwrap();
    set("a", json!(1));
    set("b", json!({"x": "ä"}));
    set("a", json!(2));
    topic.set("c", &Content::Bytes(vec![0xff, 0x0a])).unwrap();
    topic.set("gone", &Content::Json("1".to_owned())).unwrap();
    topic.delete("gone").unwrap();
    let mut all = Socket::open(&server, "/live/state/values");
    let mut one = Socket::open(&server, "/live/state/values?key=b&key=d");
    let current = [all.value(), all.value(), all.value()];
    let seen =
        current.clone().map(|value| (value["key"].clone(), value["count"].clone(), value["value"].clone()));
    let expected = [("b", 1, json!({"x": "ä"})), ("a", 2, json!(2)), ("c", 1, json!([0xff, 0x0a]))];
    assert_eq!(seen, expected.map(|(key, count, value)| (json!(key), json!(count), value)));
    assert!(current[0]["at"].as_f64() > Some(1.7e12), "{current:?}");
    assert_eq!(one.value()["key"], "b");
    topic.delete("a").unwrap();
    let deleted = all.value();
    assert_eq!(
        (&deleted["key"], &deleted["deleted"], &deleted["count"]),
        (&json!("a"), &json!(true), &json!(3))
    );
    set("a", json!(3));
    let again = all.value();
    assert_eq!(
        (&again["value"], &again["count"]),
        (&json!(3), &json!(1)),
        "a key that comes again begins anew"
    );
    set("d", json!(null));
    assert_eq!(one.value()["value"], Value::Null);
}

/// A program that does not read gets the newest value once it does, and meanwhile takes no memory.
#[test]
fn a_slow_watcher_gets_the_newest_value() {
    slow_watcher(&server("state"));
}

/// Sets many values while a watcher does not read.
fn slow_watcher(server: &Server) {
    const VALUES: u64 = 5000;
    let topic = server.context.topics.find("state").unwrap();
    let mut slow = Socket::open_with_buffer(server, "/state/values", 4 << 10);
    let mut other = Socket::open(server, "/state/values?key=other");
    let long = "x".repeat(2000);
    for number in 1..=VALUES {
        set(server, "fast", &json!([number, long]).to_string());
    }
    set(server, "other", "true");
    assert_eq!(other.value()["value"], true, "one who waits does not disturb the others");
    assert!(topic.snapshot().arena_used <= 2 << 20, "{} bytes", topic.snapshot().arena_used);
    let (mut received, mut last) = (0, 0);
    let mut has_other = false;
    while last < VALUES || !has_other {
        let value = slow.value();
        received += 1;
        match value["value"][0].as_u64() {
            Some(number) => {
                assert!(number > last && value["count"] == number, "{last}, then {number}");
                last = number;
            }
            None => has_other = true,
        }
    }
    assert!(received < VALUES / 2, "{received} values went into the buffers of TCP");
    wait_for("every value to be sent or dropped", PATIENCE, || {
        let dropped = |watcher: &WatcherSnapshot| watcher.dropped == VALUES + 1 - received;
        topic.snapshot().watchers.iter().any(dropped)
    });
}

#[test]
fn a_watcher_with_a_window_gets_no_more_than_it_handles() {
    let server = server("state");
    let mut watcher = Socket::open(&server, "/state/values?window=2");
    for number in 1..=5 {
        set(&server, "a", &number.to_string());
        set(&server, "b", &number.to_string());
    }
    let mut newest = BTreeMap::new();
    let mut take = |watcher: &mut Socket| {
        let value = watcher.value();
        newest.insert(value["key"].to_string(), value["value"].clone());
        newest == BTreeMap::from([("\"a\"".to_owned(), json!(6)), ("\"b\"".to_owned(), json!(5))])
    };
    let has_newest = [take(&mut watcher), take(&mut watcher)];
    assert_eq!(has_newest, [false; 2], "the first is out of date");
    set(&server, "a", "6");
    watcher.say(r#"{"type":"ping","at":1.5}"#);
    assert_eq!(watcher.json()["type"], "pong", "nothing else is on the way");
    for received in 2.. {
        watcher.say(&json!({"type": "ack", "received": received}).to_string());
        if take(&mut watcher) {
            assert!(received <= 4, "{received} old values before the newest");
            break;
        }
    }
}

#[test]
fn every_value_within_a_deadline_comes_in_order() {
    let server = server("state");
    let mut watcher = Socket::open(&server, "/state/values?within=20s");
    for number in 1..=200 {
        set(&server, "trade", &number.to_string());
    }
    for number in 1..=200 {
        assert_eq!(watcher.value()["value"], number);
    }
    for wrong in ["within=0s", "window=0", "within=1h"] {
        assert_eq!(status(&get(server.address, &format!("/state/events?{wrong}"))), "400", "{wrong}");
    }
}

/// A deadline is for changes. Current values are news to a newcomer.
#[test]
fn a_newcomer_with_a_deadline_gets_old_values() {
    let server = server("state");
    set(&server, "front door", "1");
    // Pause: longer than the deadline.
    std::thread::sleep(Duration::from_millis(150));
    let mut watcher = Socket::open(&server, "/state/values?within=100ms&key=front+door");
    assert_eq!(watcher.value()["value"], 1);
}

/// Watchers that read nothing share one copy of their queued values. Changes without room in their rings stay
/// true: no bytes in a stream of events, and a deletion of a value that they have, under its own number.
#[test]
fn watchers_that_do_not_read_take_no_room_from_others() {
    const KEYS: u64 = 40;
    let server = server("state");
    let topic = server.context.topics.find("state").unwrap();
    let long = "x".repeat(60_000);
    let key = |key: u64| format!("k{key:03}");
    for number in 0..KEYS {
        set(&server, &key(number), &json!([0, long]).to_string());
    }
    let path = "/state/events";
    let mut stalled: Vec<_> = (0..20).map(|_| Events::open_with_buffer(&server, path, 4 << 10)).collect();
    let bytes = KEYS as usize * 62_000;
    assert!(topic.snapshot().arena_used < 2 * bytes, "{} bytes", topic.snapshot().arena_used);
    assert!(topic.snapshot().watchers.iter().all(|watcher| watcher.waiting_keys > 0), "their rings are full");
    topic.set(&key(KEYS - 1), &Content::Bytes(vec![0xff; 10])).unwrap();
    topic.set(&key(KEYS - 1), &Content::Bytes(vec![0xff; 11])).unwrap();
    topic.delete(&key(KEYS - 2)).unwrap();
    wait_for("the first value to be on its way to each", Duration::from_secs(20), || {
        topic.snapshot().watchers.iter().all(|watcher| watcher.sink.committed > 0)
    });
    topic.delete(&key(0)).unwrap();
    let mut other = Socket::open(&server, "/state/values?key=other");
    set(&server, "other", "true");
    assert_eq!(other.value()["value"], true);
    let changes = topic.snapshot().changes;
    // One of them reads on, and the others leave.
    let mut reader = stalled.swap_remove(0);
    drop(stalled);
    let mut seen = BTreeMap::new();
    let has_deletion =
        |seen: &BTreeMap<String, Value>| seen.get(&key(0)).is_some_and(|value| value["deleted"] == true);
    // "other" among them; the two that ended before it got them are not mentioned.
    while seen.len() < KEYS as usize - 1 || !has_deletion(&seen) {
        let (_, value) = reader.next();
        seen.insert(value["key"].as_str().unwrap().to_owned(), value);
    }
    assert_eq!(seen[&key(0)]["count"], 2);
    assert_eq!(seen["other"]["value"], true);
    assert!(!seen.contains_key(&key(KEYS - 1)), "bytes are no event");
    assert!(!seen.contains_key(&key(KEYS - 2)));
    assert_eq!(topic.snapshot().changes, changes);
}

#[test]
fn a_publisher_of_a_removed_stream_gets_an_error() {
    let server = server("state");
    let mut publisher = Socket::open(&server, "/state/push");
    server.context.topics.keep([]);
    server.context.topics.keep(["state".to_owned()]);
    publisher.say("{\"key\":\"a\",\"value\":1}");
    let Event::Close { code, reason } = publisher.event() else { panic!("a close frame") };
    assert!(code == Some(1001) && reason == "the stream was removed", "{code:?} {reason}");
}

#[test]
fn events_begin_with_the_current_values_after_every_reconnect() {
    let server = server("state");
    set(&server, "a", "1");
    set(&server, "b", "\"two\\nlines\"");
    server.context.topics.find("state").unwrap().set("bytes", &Content::Bytes(vec![1])).unwrap();
    let mut events = Events::open(&server, "/state/events", "");
    assert!(events.head.contains("content-type: text/event-stream\r\n"), "{}", events.head);
    assert_eq!(events.next().1["value"], 1);
    let (id, value) = events.next();
    assert_eq!(value["value"], "two\nlines");
    set(&server, "a", "2");
    let (newer, value) = events.next();
    assert_eq!((&value["value"], &value["count"]), (&json!(2), &json!(2)), "bytes are no event");
    assert!(newer > id);
    let topic = server.context.topics.find("state").unwrap();
    for byte in [1, 2] {
        topic.set("a", &Content::Bytes(vec![byte])).unwrap();
    }
    let (newest, value) = events.next();
    assert!(newest > newer && value["deleted"] == true, "its text is gone: {value}");
    set(&server, "a", "2");
    assert_eq!(events.next().1["count"], 5);
    drop(events);
    set(&server, "b", "3");
    let mut again = Events::open(&server, "/state/events", &format!("Last-Event-ID: {newer}\r\n"));
    let values = [again.next().1, again.next().1].map(|value| value["value"].clone());
    assert_eq!(values, [json!(2), json!(3)], "the state, and no history");
    let head = send(&server, "HEAD", "/state/events", "", "");
    assert!(head.contains("text/event-stream"), "{head}");
}

#[test]
fn a_websocket_publisher_sets_values_until_it_breaks_a_rule() {
    let server = server("state");
    let mut watcher = Socket::open(&server, "/state/values");
    let mut publisher = Socket::open(&server, "/state/push");
    publisher.say(r#"{"key":"a","value":{"x":1}}"#);
    assert_eq!(watcher.value()["value"], json!({"x": 1}));
    publisher.send(0x82, b"{\"key\":\"b\"}\n\x00\xff");
    assert_eq!(watcher.value()["value"], json!([0, 0xff]));
    publisher.say(r#"{"key":"none","delete":true}"#);
    publisher.send(0x89, b"there?");
    assert_eq!(publisher.event(), Event::Pong(b"there?".to_vec()));
    publisher.say("no change");
    let Event::Close { code, reason } = publisher.event() else { panic!("a close frame") };
    assert!(code == Some(1008) && reason.starts_with("expected"), "{code:?} {reason}");
    assert!(publisher.is_at_end());
    let full: Vec<_> = (0..16).map(|_| Socket::open(&server, "/state/push")).collect();
    wait_for("publishers", PATIENCE, || topic_publishers(&server) == full.len());
    let Event::Close { code, reason } = Socket::open(&server, "/state/push").event() else {
        panic!("a close frame")
    };
    assert!(code == Some(1013) && reason.contains("max_publishers"), "{reason}");
    drop(full);
    wait_for("places", PATIENCE, || topic_publishers(&server) == 0);
}

fn topic_publishers(server: &Server) -> usize {
    server.context.topics.find("state").unwrap().snapshot().publishers
}

/// The library's answers over a connection: between whole messages, and the close frame last.
#[test]
fn a_watchers_frames_are_answered_between_messages() {
    let server = server("state");
    let mut watcher = Socket::open(&server, "/state/values");
    watcher.send(0x01, b"{\"type\":\"pi");
    watcher.send(0x89, b"within a message");
    watcher.send(0x80, b"ng\",\"at\":7}");
    set(&server, "a", "1");
    let mut events = [watcher.event(), watcher.event(), watcher.event()].map(|event| match event {
        Event::Text(text) if text.contains("\"pong\"") => "answer",
        Event::Text(text) if text.contains("\"key\":\"a\"") => "value",
        Event::Pong(payload) if payload == b"within a message" => "pong",
        other => panic!("{other:?}"),
    });
    events.sort_unstable();
    assert_eq!(events, ["answer", "pong", "value"]);
    watcher.send(0x88, &[0x03, 0xe9, b'b', b'y', b'e']);
    set(&server, "a", "2");
    while let Event::Text(_) = watcher.event() {}
    assert_eq!(watcher.last(), Some(Event::Close { code: Some(1001), reason: String::new() }));
    assert!(watcher.is_at_end(), "nothing comes behind the close frame");
}

#[test]
fn a_watcher_that_breaks_the_protocol_hears_why() {
    let server = server("state");
    let long = [0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
    let masked = |first: u8, byte: u8| vec![first, 0x81, 0, 0, 0, 0, byte];
    let cases: [(Vec<u8>, u16); 6] = [
        (vec![0x81, 0x01, b'x'], 1002),
        (masked(0xc1, b'x'), 1002),
        (masked(0x83, b'x'), 1002),
        (masked(0x09, b'x'), 1002),
        (masked(0x81, 0xff), 1007),
        (long.to_vec(), 1009),
    ];
    for (bytes, expected) in cases {
        let mut watcher = Socket::open(&server, "/state/values");
        watcher.write(&bytes);
        let Event::Close { code, .. } = watcher.event() else { panic!("a close frame") };
        assert_eq!(code, Some(expected), "{bytes:x?}");
        assert!(watcher.is_at_end());
    }
    let mut talker = Socket::open(&server, "/state/values");
    for _ in 0..200 {
        talker.say(r#"{"type":"ping","at":1}"#);
    }
    let close =
        std::iter::from_fn(|| Some(talker.event())).find(|event| matches!(event, Event::Close { .. }));
    assert!(matches!(close, Some(Event::Close { code: Some(1008), .. })), "{close:?}");
    wait_for("watchers gone", PATIENCE, || {
        server.context.topics.find("state").unwrap().snapshot().watchers.is_empty()
    });
}

#[test]
fn viewing_and_publishing_need_their_rights() {
    let mut rules = Rules::default();
    let user = |name: &str, view: Names, publish: Names| {
        (
            name.to_owned(),
            User {
                password: Password::from_plain(name, "secret"),
                rights: Rights { view, publish, ..Rights::default() },
            },
        )
    };
    rules.users.extend([
        user("sensor", Names::default(), Names::all()),
        user("person", Names::all(), Names::default()),
    ]);
    let server =
        Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::new(rules), Limits::default());
    server.context.topics.keep(["state".to_owned()]);
    let answer = |name: &str, method: &str, path: &str| {
        let challenged = send(&server, "POST", "/state/a", "", "1");
        assert_eq!(status(&challenged), "401", "{challenged}");
        let challenge = challenged.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).unwrap();
        let answer = freshwire_server::access::answer(challenge, name, "secret", method, path).unwrap();
        format!("Authorization: {answer}\r\n")
    };
    let as_user = |name: &str, method: &str, path: &str| {
        let head = answer(name, method, path);
        status(&send(&server, method, path, &head, if method == "POST" { "1" } else { "" })).to_owned()
    };
    // Somebody on the way copies a request and puts another value into it.
    let head = answer("sensor", "POST", "/state/door");
    assert_eq!(status(&send(&server, "POST", "/state/door", &head, "\"shut\"")), "204");
    let copied = send(&server, "POST", "/state/door", &head, "\"open\"");
    assert!(status(&copied) == "401" && copied.contains("stale=true"), "{copied}");
    let value = server.context.topics.find("state").unwrap().present("door").unwrap();
    assert_eq!(value.content, Content::Json("\"shut\"".to_owned()));
    // The answer to a password that everybody on the way could read says what to do.
    let basic = send(&server, "POST", "/state/a", "Authorization: Basic c2Vuc29yOnNlY3JldA==\r\n", "1");
    assert!(status(&basic) == "401" && basic.contains("use digest authentication (curl --digest"), "{basic}");
    assert_eq!(as_user("sensor", "POST", "/state/a"), "204");
    assert_ne!(as_user("person", "POST", "/state/a"), "204");
    assert_eq!(as_user("person", "GET", "/state/watch"), "200");
    assert_ne!(as_user("sensor", "GET", "/state/watch"), "200");
    assert_ne!(as_user("person", "GET", "/state/push"), "426", "the right is asked for first");
}

#[test]
fn pages_of_other_sites_are_refused() {
    let server = server("state");
    let foreign = "Origin: http://evil.example\r\n";
    assert_eq!(status(&send(&server, "POST", "/state/a", foreign, "1")), "403");
    assert_eq!(status(&send(&server, "GET", "/state/events", foreign, "")), "403");
    for path in ["/state/values", "/state/push"] {
        let request = client::handshake(&server.address.to_string(), path, foreign);
        assert_eq!(status(&say(server.address, &request)), "403", "{path}");
        assert_eq!(status(&get(server.address, path)), "426", "{path}");
    }
    let own = format!("Origin: http://{}\r\n", server.address);
    assert_eq!(status(&send(&server, "POST", "/state/a", &own, "1")), "204");
    let events = Events::open(&server, "/state/events", &own);
    assert!(events.head.contains(&format!("access-control-allow-origin: http://{}\r\n", server.address)));
    assert_eq!(status(&get(server.address, "/none/values")), "404");
    assert_eq!(status(&get(server.address, "/state/watch")), "200");
}

#[test]
fn the_library_has_the_same_limits() {
    let server = server("state");
    let topic = server.context.topics.find("state").unwrap();
    let json = |text: &str| Content::Json(text.to_owned());
    assert!(matches!(topic.set("", &json("1")), Err(ValueError::Key(_))));
    assert!(matches!(topic.set(&"k".repeat(257), &json("1")), Err(ValueError::Key(_))));
    assert!(matches!(
        topic.set("a", &Content::Bytes(vec![0; 65537])),
        Err(ValueError::TooLarge { limit: 65536, .. })
    ));
    assert_eq!(topic.set("a", &Content::Bytes(vec![0; 65536])), Ok(()));
    let mut watcher = Socket::open(&server, "/state/values");
    assert_eq!(watcher.value()["value"].as_array().map(Vec::len), Some(65536), "the largest value arrives");
    server.context.topics.keep(["other".to_owned()]);
    assert!(server.context.topics.find("state").is_none());
    assert_eq!(topic.set("a", &json("2")), Err(ValueError::Removed));
    assert_eq!(topic.delete("a"), Err(ValueError::Removed));
    let Event::Close { code, reason } = watcher.event() else { panic!("a close frame") };
    assert!(code == Some(1001) && reason == "the stream was removed", "{code:?} {reason}");
}
