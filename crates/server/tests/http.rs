//! Requests as clients write them, against a running server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod http_rig;
mod http_values;
mod testing;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use freshwire_server::access::{Access, Names, Password, Rights, Rules, User, answer};
use freshwire_server::config::Limits;
use freshwire_server::ingest::PatternConfig;
use http_rig::Server;
use testing::{is_there, wait_for};

/// Everything the server says to these bytes until it closes or is silent for half a second.
fn say(address: SocketAddr, bytes: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.write_all(bytes.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: SocketAddr, path: &str) -> String {
    say(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

fn status(answer: &str) -> &str {
    answer.split_whitespace().nth(1).unwrap_or_default()
}

#[test]
fn requests_get_the_answers_of_the_standard() {
    let server = Server::open();
    server.context.hub.stream("cam").unwrap();
    let at = server.address;
    let index = get(at, "/");
    assert_eq!(status(&index), "200", "{index}");
    assert!(index.contains("content-security-policy: default-src 'none'"), "{index}");
    assert!(index.contains(&format!("rtsp://{}:8554/cam", at.ip())), "{index}");
    assert_eq!(status(&get(at, "/cam")), "200");
    assert_eq!(status(&get(at, "/cam/")), "200");
    assert_eq!(status(&get(at, "/_/player.js")), "200");
    for missing in ["/none", "/none.ts", "/none/ws", "/_/none.js"] {
        assert_eq!(status(&get(at, missing)), "404", "{missing}");
    }
    assert_eq!(status(&get(at, "/cam/ws")), "426");
    assert_eq!(status(&get(at, "/cam.ts?latency=never")), "400");
    let post = say(at, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&post), "405");
    assert!(post.contains("allow: GET, HEAD"), "{post}");
    assert_eq!(status(&say(at, "no request\r\n\r\n")), "400");
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(status(&say(at, &long)), "431");
    let head = say(at, "HEAD /cam HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n") && status(&head) == "200", "{head}");
    let unusual = [
        "GET /cam HTTP/1.1\nHost: x\nConnection: close\n\n",
        "GET /cam?title=tür&x=[a]|b%00% HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET http://cam.example/cam HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /cam HTTP/1.0\r\n\r\n",
    ];
    for request in unusual {
        let answer = say(at, request);
        assert_eq!(status(&answer), "200", "{request}: {answer}");
    }
}

/// `nc`, and clients that have nothing more to say, close their half behind the request.
#[test]
fn a_half_closed_client_is_served() {
    let server = Server::open();
    let page = |path: &str| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        socket
    };
    let mut text = String::new();
    page("/").read_to_string(&mut text).unwrap();
    assert_eq!(status(&text), "200", "{text}");
    if !is_there("ffmpeg") {
        return;
    }
    server.feed("cam", PatternConfig::default());
    for path in ["/cam.ts", "/cam.mp4"] {
        let mut enough = vec![0; 20_000];
        wait_for(path, Duration::from_secs(20), || page(path).read_exact(&mut enough).is_ok());
        assert_eq!(status(&String::from_utf8_lossy(&enough)), "200");
    }
    // Viewers that have really gone are soon removed.
    let gone = || server.context.hub.find("cam").is_some_and(|cam| cam.snapshot().viewers.is_empty());
    wait_for("viewers gone", Duration::from_secs(20), gone);
}

#[test]
fn a_users_name_need_not_be_ascii() {
    let mut rules = Rules::default();
    let rights = Rights { view: Names::all(), ..Rights::default() };
    rules
        .users
        .insert("jürgen".to_owned(), User { password: Password::from_plain("jürgen", "grün"), rights });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::new(listener, Access::new(rules), Limits::default());
    server.context.hub.stream("cam").unwrap();
    let challenged = get(server.address, "/cam");
    assert_eq!(status(&challenged), "401", "{challenged}");
    let challenge = challenged.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).unwrap();
    for (password, expected) in [("grün", "200"), ("grau", "401")] {
        let answer = answer(challenge, "jürgen", password, "GET", "/cam").unwrap();
        let request = format!("GET /cam HTTP/1.0\r\nAuthorization: {answer}\r\n\r\n");
        assert_eq!(status(&say(server.address, &request)), expected);
    }
}

#[test]
fn operators_see_health_and_numbers() {
    let server = Server::open();
    server.context.hub.stream("cam").unwrap();
    assert_eq!(status(&get(server.internal, "/health")), "200");
    server.expected.send_replace(vec!["cam".to_owned()]);
    let ill = get(server.internal, "/health");
    assert!(status(&ill) == "503" && ill.contains(r#""reason":"no source is connected""#), "{ill}");
    if !is_there("ffmpeg") {
        return;
    }
    server.feed("cam", PatternConfig::default());
    wait_for("a healthy server", Duration::from_secs(10), || {
        status(&get(server.internal, "/health")) == "200"
    });
    for (path, begin) in [("/cam.ts", "\r\n\r\nG@"), ("/cam.mp4", "ftyp"), ("/cam.fw", "\r\n\r\nFW")] {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        let mut buffer = [0; 2048];
        while !text.contains(begin) {
            let count = socket.read(&mut buffer).unwrap_or(0);
            assert!(count > 0 && text.len() < 100_000, "{path}: {text:?}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        let numbers = get(server.internal, "/metrics");
        assert!(numbers.contains("freshwire_stream_units_total{stream=\"cam\"}"), "{numbers}");
        assert!(numbers.contains("freshwire_viewer_sent_bytes_total{stream=\"cam\""), "{numbers}");
    }
    let streams = get(server.internal, "/api/streams");
    assert!(streams.contains(r#""name":"cam""#), "{streams}");
}

/// A client that asks for much, and reads nothing of what it is answered.
fn deaf(address: SocketAddr, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for _ in 0..100 {
        if socket.write_all(request.repeat(100).as_bytes()).is_err() {
            break;
        }
    }
    socket
}

#[test]
fn a_probe_of_the_internal_address_has_always_a_place() {
    let server = Server::open();
    let deaf: Vec<_> = (0..40).map(|_| deaf(server.internal, "/metrics")).collect();
    for path in ["/health", "/metrics"] {
        assert_eq!(status(&get(server.internal, path)), "200", "{path}");
    }
    drop(deaf);
}

#[test]
fn a_client_that_takes_no_answers_is_disconnected() {
    let limits = Limits { answer_timeout: Duration::from_millis(300), ..Limits::default() };
    let server = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), limits);
    let deaf = deaf(server.address, "/_/player.js");
    wait_for("the end of a client that reads nothing", Duration::from_secs(20), || {
        server.context.admission.open() == 0
    });
    drop(deaf);
}

/// A request's head has its time, and a client that rests between two requests has another.
#[test]
fn a_client_may_rest_between_two_requests() {
    let limits = Limits { request_timeout: Duration::from_millis(1500), ..Limits::default() };
    let server = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), limits);
    let request = b"GET /_/none HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut buffer = [0; 65536];
    for _ in 0..2 {
        socket.write_all(request).unwrap();
        assert!(socket.read(&mut buffer).unwrap() > 0);
        // Pause: longer than a head may take.
        std::thread::sleep(Duration::from_millis(2500));
    }
    // The beginning of a head, and of another client's first.
    let mut other = TcpStream::connect(server.address).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for socket in [&mut socket, &mut other] {
        socket.write_all(&request[..10]).unwrap();
        let ended = socket.read(&mut buffer);
        assert!(matches!(ended, Ok(0)), "{ended:?}");
    }
}

#[test]
fn a_client_that_only_asks_is_disconnected_in_the_end() {
    let limits = Limits { max_connection_age: Duration::from_millis(600), ..Limits::default() };
    let server = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), Access::open(), limits);
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let began = Instant::now();
    let mut buffer = [0; 65536];
    let mut answers = 0;
    while socket.write_all(b"GET /_/none HTTP/1.1\r\nHost: localhost\r\n\r\n").is_ok() {
        match socket.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(_) => answers += 1,
        }
        assert!(began.elapsed() < Duration::from_secs(20), "after {answers} answers");
        // Pause: the pace of the requests.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(answers > 0);
}

/// A page of somebody else's whose name was made to lead here (DNS rebinding) is in a browser on this machine.
#[test]
fn the_name_of_somebody_elses_page_opens_nothing() {
    let access = Access::new(Rules { local: Rights::all(), ..Rules::default() });
    let server = Server::new(TcpListener::bind("127.0.0.1:0").unwrap(), access, Limits::default());
    server.context.hub.stream("cam").unwrap();
    let ask = |at, path: &str, host: &str| {
        let socket = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let headers = format!("Host: {host}\r\nOrigin: http://{host}\r\nConnection: upgrade\r\n{socket}");
        // The first of the answer only: a WebSocket goes on.
        let mut socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).unwrap();
        status(&String::from_utf8_lossy(&first)).to_owned()
    };
    for path in ["/cam", "/cam/ws", "/cam.ts"] {
        assert_eq!(ask(server.address, path, "evil.example"), "403", "{path}");
    }
    assert_eq!(ask(server.address, "/cam/ws", "localhost"), "101");
    assert_eq!(ask(server.address, "/cam/ws", &server.address.to_string()), "101");
    let index = say(server.address, "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert!(!index.contains("/cam"), "{index}");
    for path in ["/health", "/metrics", "/api/streams", "/api/values"] {
        assert_eq!(ask(server.internal, path, "evil.example"), "403", "{path}");
        assert_eq!(ask(server.internal, path, "localhost"), "200", "{path}");
    }
}
