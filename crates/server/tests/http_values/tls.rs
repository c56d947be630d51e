//! Values by key over TLS: `wss://` and `https://`.

use freshwire::websocket::Event;
use freshwire_server::values::Content;
use serde_json::{Value, json};

use super::client::{Events, Socket, ask};
use super::{set, slow_watcher};
use crate::http_rig::Server;
use crate::status;

/// A server over TLS with a stream of values.
fn server() -> Server {
    let server = Server::encrypted();
    server.context.topics.keep(["state".to_owned()]);
    server
}

fn request(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    ask(
        server,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}",
            server.address.port()
        ),
    )
}

#[test]
fn values_over_wss_are_sent_acknowledged_and_answered() {
    let server = server();
    set(&server, "a", "1");
    let mut watcher = Socket::open(&server, "/state/values?window=2");
    assert_eq!(watcher.value()["value"], 1);
    let topic = server.context.topics.find("state").unwrap();
    topic.set("b", &Content::Bytes(vec![0, 0xff])).unwrap();
    assert_eq!(watcher.value()["value"], json!([0, 0xff]));
    for number in 2..=5 {
        set(&server, "a", &number.to_string());
    }
    watcher.send(0x89, b"there?");
    assert_eq!(watcher.event(), Event::Pong(b"there?".to_vec()), "no value: two are on the way");
    watcher.say(r#"{"type":"ack","received":2}"#);
    assert_eq!(watcher.value()["value"], 5, "the newest");
    watcher.send(0x88, &[0x03, 0xe8]);
    assert_eq!(watcher.event(), Event::Close { code: Some(1000), reason: String::new() });
    assert!(watcher.ends_in_order(), "with an alert that says so");
}

#[test]
fn a_slow_watcher_over_wss_gets_the_newest_value() {
    slow_watcher(&server());
}

#[test]
fn events_over_https_are_the_state_and_its_changes() {
    let server = server();
    assert_eq!(status(&request(&server, "PUT", "/state/a", "", "1")), "204");
    let own = format!("Origin: https://localhost:{}\r\n", server.address.port());
    // The client's request names the server by its address.
    let named = format!("Origin: https://{}\r\n", server.address);
    let mut events = Events::open(&server, "/state/events", &named);
    assert!(events.head.contains("content-type: text/event-stream\r\n"), "{}", events.head);
    assert_eq!(events.next().1["value"], 1);
    assert_eq!(status(&request(&server, "POST", "/state", &own, "{\"key\":\"a\",\"value\":[2]}")), "204");
    assert_eq!(events.next().1["value"], json!([2]));
    let mut publisher = Socket::open(&server, "/state/push");
    publisher.say(r#"{"key":"a","value":null}"#);
    assert_eq!(events.next().1["value"], Value::Null);
    assert_eq!(status(&request(&server, "DELETE", "/state/a", "", "")), "204");
    assert_eq!(events.next().1["deleted"], true);
    let foreign = "Origin: https://evil.example\r\n";
    assert_eq!(status(&request(&server, "GET", "/state/events", foreign, "")), "403");
}

#[test]
fn a_server_that_stops_says_so_over_wss() {
    let server = server();
    set(&server, "a", "1");
    let mut watcher = Socket::open(&server, "/state/values");
    assert_eq!(watcher.value()["value"], 1);
    server.shutdown.send(true).unwrap();
    let Event::Close { code, .. } = watcher.event() else { panic!("a close frame") };
    assert_eq!(code, Some(1001));
    assert!(watcher.ends_in_order(), "with an alert that says so");
}
