//! Clients that say nothing, hang, or leave without a word.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use freshwire::websocket::Event;
use freshwire_server::access::Access;
use freshwire_server::config::Limits;

use super::client::{Events, Socket};
use super::{PATIENCE, set};
use crate::http_rig::Server;
use crate::testing::wait_for;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn server(keepalive: Duration, keepalive_timeout: Duration) -> Server {
    let limits = Limits { keepalive, keepalive_timeout, ..Limits::default() };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::new(listener, Access::open(), limits);
    server.context.topics.keep(["state".to_owned()]);
    server.context.hub.stream("cam").unwrap();
    server
}

#[test]
fn a_silent_websocket_is_pinged_and_stays_as_long_as_it_answers() {
    let server = server(SECOND, 2 * SECOND);
    for path in ["/state/values", "/state/push", "/cam/ws"] {
        let mut socket = Socket::open(&server, path);
        let mut pings = 0;
        while pings < 4 {
            match socket.event() {
                Event::Ping(payload) => {
                    socket.send(0x8a, &payload);
                    pings += 1;
                }
                // How it is served.
                Event::Text(_) if path == "/cam/ws" => {}
                other => panic!("{path}: {other:?}"),
            }
        }
        // Four pings take longer than an unanswered one would be waited for.
        let last = loop {
            match socket.event() {
                Event::Text(_) | Event::Ping(_) => {}
                other => break other,
            }
        };
        let Event::Close { code, reason } = last else { panic!("{path}: {last:?}") };
        assert_eq!((code, reason.contains("keepalive_timeout")), (Some(1011), true), "{path}: {reason}");
    }
    let topic = server.context.topics.find("state").unwrap();
    wait_for("free places", PATIENCE, || {
        let snapshot = topic.snapshot();
        snapshot.publishers == 0 && snapshot.watchers.is_empty() && server.context.admission.open() == 0
    });
}

/// Its system acknowledges pings, but its program does not read; behind values that it reads a ping is late.
#[test]
fn a_reader_that_is_slow_is_not_taken_for_gone() {
    let server = server(SECOND, 2 * SECOND);
    let topic = server.context.topics.find("state").unwrap();
    // It answers no ping at all.
    let mut slow = Socket::open(&server, "/state/values");
    for number in 0..20 {
        set(&server, "key", &number.to_string());
        assert_eq!(slow.value()["value"], number);
        // Pause: values that come now and then, for longer than a ping may stay without an answer.
        std::thread::sleep(SECOND / 4);
    }
    assert_eq!(topic.snapshot().watchers.len(), 1);
}

/// A comment at once shows whether a client that says nothing more still listens.
#[test]
fn a_departed_reader_of_events_is_noticed_before_a_send() {
    let server = server(HOUR, HOUR);
    let topic = server.context.topics.find("state").unwrap();
    let left: Vec<_> = (0..20).map(|_| Events::open(&server, "/state/events", "")).collect();
    let (mut stays, half) = Events::open_and_keep(&server, "/state/events");
    assert_eq!(topic.snapshot().watchers.len(), 21);
    half.shutdown(Shutdown::Write).unwrap();
    drop(left);
    wait_for("readers that left", PATIENCE, || topic.snapshot().watchers.len() == 1);
    wait_for("their connections", PATIENCE, || server.context.admission.open() == 1);
    // The half-closed one goes on.
    for number in 0..3 {
        // Pause: more than one look at whether it is there.
        std::thread::sleep(SECOND);
        set(&server, "key", &number.to_string());
        assert_eq!(stays.next().1["value"], number);
    }
}

/// Nothing is sent to viewers of a stream without a source, nor to those who only ask.
#[test]
fn clients_of_silent_streams_are_found_out_by_the_system() {
    let server = server(HOUR, HOUR);
    let topic = server.context.topics.find("state").unwrap();
    let places = || server.context.admission.open();
    let clients: Vec<_> = (0..16).map(|_| Socket::open(&server, "/state/push")).collect();
    let viewers: Vec<_> = (0..16).map(|_| Socket::open(&server, "/cam/ws")).collect();
    wait_for("publishers", PATIENCE, || topic.snapshot().publishers == 16);
    drop((clients, viewers));
    wait_for("free places", PATIENCE, || topic.snapshot().publishers == 0 && places() == 0);
    assert!(TcpStream::connect(server.address).is_ok());
}

/// What costs no bytes costs time.
#[test]
fn frames_without_content_count() {
    let server = server(HOUR, HOUR);
    let empty_fragments = |socket: &mut Socket| {
        socket.send(0x01, b"");
        for _ in 0..10_000 {
            socket.send(0x00, b"");
        }
    };
    let mut reader = Socket::open(&server, "/state/values");
    empty_fragments(&mut reader);
    let Event::Close { code, reason } = reader.event() else { panic!("a close frame") };
    assert_eq!((code, reason.as_str()), (Some(1008), "too many messages"));
    let limits = Limits { max_publish_rate: "100kbit".parse().unwrap(), ..Limits::default() };
    let slow = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), limits);
    slow.context.topics.keep(["state".to_owned()]);
    // 50 kB are allowed in four seconds. These have 6 kB, and count as 70.
    let mut publisher = Socket::open(&slow, "/state/push");
    publisher.send(0x01, b"");
    for _ in 0..1000 {
        publisher.send(0x00, b"");
    }
    let Event::Close { code, reason } = publisher.event() else { panic!("a close frame") };
    assert_eq!((code, reason.contains("max_publish_rate")), (Some(1008), true), "{reason}");
}
