//! Pages of other sites: of those that are trusted, and of all others.

use freshwire_server::config::{BasePath, Origins};

use super::*;

const TRUSTED: &str = "https://portal.example";
const FOREIGN: &str = "https://evil.example";

fn trusting() -> Server {
    let server = server("state");
    let mut origins = Origins::default();
    for origin in [TRUSTED, "http://home.example:8123"] {
        origins.trust(origin).unwrap();
    }
    server.context.set_origins(origins);
    server.context.hub.stream("cam").unwrap();
    server
}

/// What the headers of an answer let browsers do.
#[derive(Debug, PartialEq)]
struct Grants {
    origin: Option<String>,
    credentials: bool,
    elsewhere: bool,
}

fn grants(answer: &str) -> Grants {
    let head = answer.split("\r\n\r\n").next().unwrap();
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Grants {
        origin: value("access-control-allow-origin").map(str::to_owned),
        credentials: value("access-control-allow-credentials") == Some("true"),
        elsewhere: value("cross-origin-resource-policy") != Some("same-origin"),
    }
}

/// All kinds of requests: method, path, body, the status that a trusted page gets, and the one of a page that is not.
const REQUESTS: [(&str, &str, &str, &str, &str); 17] = [
    ("GET", "/", "", "200", "200"),
    ("GET", "/cam", "", "200", "200"),
    ("GET", "/none", "", "404", "404"),
    ("GET", "/cam?latency=x", "", "400", "400"),
    ("GET", "/_/main.js", "", "200", "200"),
    ("GET", "/cam/ws", "", "426", "426"),
    ("GET", "/state", "", "200", "200"),
    ("GET", "/state/a", "", "404", "404"),
    ("HEAD", "/state", "", "200", "200"),
    ("GET", "/state/watch", "", "200", "200"),
    ("GET", "/state/events", "", "200", "403"),
    ("POST", "/state/b", "1", "204", "403"),
    ("POST", "/state/", "1", "400", "403"),
    ("POST", "/none/a", "1", "404", "403"),
    ("DELETE", "/state/none", "", "404", "403"),
    ("PUT", "/", "1", "405", "405"),
    ("PATCH", "/state/a", "1", "405", "405"),
];

#[test]
fn every_answer_may_be_read_by_trusted_pages_and_by_no_others() {
    let server = trusting();
    for (method, path, body, trusted, foreign) in REQUESTS {
        for (origin, status_expected, expected) in [
            (
                TRUSTED,
                trusted,
                Grants { origin: Some(TRUSTED.to_owned()), credentials: true, elsewhere: true },
            ),
            (FOREIGN, foreign, Grants { origin: None, credentials: false, elsewhere: false }),
        ] {
            let answer = send(&server, method, path, &format!("Origin: {origin}\r\n"), body);
            assert_eq!(status(&answer), status_expected, "{origin} {method} {path}: {answer}");
            assert_eq!(grants(&answer), expected, "{origin} {method} {path}: {answer}");
            assert!(answer.to_lowercase().contains("vary: origin\r\n"), "{answer}");
        }
    }
    for path in ["/health", "/metrics", "/api/streams", "/api/values", "/none"] {
        let ask = |origin: &str| {
            say(
                server.internal,
                &format!(
                    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: {origin}\r\n\r\n"
                ),
            )
        };
        assert_eq!(grants(&ask(TRUSTED)).origin.as_deref(), Some(TRUSTED), "{path}");
        assert_eq!(grants(&ask(FOREIGN)).origin, None, "{path}");
    }
}

#[test]
fn streams_may_be_read_too() {
    if !crate::testing::is_there("ffmpeg") {
        return;
    }
    let server = trusting();
    server.feed("cam", freshwire_server::ingest::PatternConfig::default());
    for path in ["/cam.mp4", "/cam.ts", "/cam.fw"] {
        for origin in [TRUSTED, FOREIGN] {
            let is_trusted = origin == TRUSTED;
            let expected = is_trusted.then(|| TRUSTED.to_owned());
            let expected = Grants { origin: expected, credentials: is_trusted, elsewhere: is_trusted };
            let mut answer = String::new();
            // Up to the first picture it is refused, and a trusted page may read that too.
            wait_for(path, PATIENCE, || {
                answer = client::head(
                    &server,
                    &format!("GET {path} HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\n\r\n"),
                );
                assert_eq!(grants(&answer), expected, "{path}: {answer}");
                status(&answer) == "200"
            });
            assert!(answer.contains("x-accel-buffering: no\r\n"), "{answer}");
        }
    }
}

#[test]
fn a_browser_that_asks_first_is_answered() {
    let server = trusting();
    let ask = |path: &str, origin: &str, more: &str| {
        let headers = format!("Origin: {origin}\r\nAccess-Control-Request-Method: DELETE\r\n{more}");
        send(&server, "OPTIONS", path, &headers, "")
    };
    let more = "Access-Control-Request-Headers: content-type, x-mine\r\nAccess-Control-Request-Private-Network: true\r\n";
    for path in ["/state/a", "/state", "/cam.mp4", "/none", "/"] {
        let answer = ask(path, TRUSTED, more);
        assert_eq!(status(&answer), "204", "{answer}");
        assert_eq!(grants(&answer).origin.as_deref(), Some(TRUSTED));
        assert!(grants(&answer).credentials, "{answer}");
        for expected in [
            "access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n",
            "access-control-allow-headers: content-type, x-mine\r\n",
            "access-control-max-age: 600\r\n",
            "access-control-allow-private-network: true\r\n",
            "vary: origin\r\n",
        ] {
            assert!(answer.contains(expected), "{expected} in {answer}");
        }
        let refused = ask(path, FOREIGN, more);
        assert!(status(&refused) == "405" && !refused.contains("access-control-"), "{refused}");
        let own = ask(path, &format!("http://{}", server.address), "");
        assert_eq!(status(&own), "405", "a page of the server's own asks for nothing first");
    }
    let none = send(&server, "OPTIONS", "/state/a", &format!("Origin: {TRUSTED}\r\n"), "");
    assert_eq!(status(&none), "405");
}

#[test]
fn trusted_sites_may_frame_the_pages() {
    let policy = |server: &Server, path: &str| {
        let answer = get(server.address, path);
        let line = answer.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
        line.split("frame-ancestors ").nth(1).unwrap().to_owned()
    };
    for path in ["/cam", "/state/watch", "/"] {
        let expected = "'self' http://home.example:8123 https://portal.example";
        assert_eq!(policy(&trusting(), path), expected, "{path}");
        assert_eq!(policy(&server("state"), path), "'none'", "{path}");
    }
}

/// A browser signs the path that it sees, and the proxy may have removed its beginning.
#[test]
fn a_password_is_taken_below_a_path_of_a_proxy() {
    for (base, expected) in [("/cam", "204"), ("", "401")] {
        let rights = Rights { view: Names::all(), publish: Names::all(), ..Rights::default() };
        let user = User { password: Password::from_plain("anna", "sesame"), rights };
        let rules = Rules { users: [("anna".to_owned(), user)].into(), ..Rules::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_path = BasePath::parse(base).unwrap();
        let server = Server::below(listener, base_path, Access::new(rules), Limits::default());
        server.context.topics.keep(["state".to_owned()]);
        let post = |path: &str, signed: &str| {
            let challenged = send(&server, "POST", path, "", "1");
            let challenge =
                challenged.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).unwrap();
            let answer =
                freshwire_server::access::answer(challenge, "anna", "sesame", "POST", signed).unwrap();
            status(&send(&server, "POST", path, &format!("Authorization: {answer}\r\n"), "1")).to_owned()
        };
        assert_eq!(post("/state/a", "/cam/state/a"), expected, "removed from the front");
        assert_eq!(post("/state/a", "/state/a"), "204", "asked for directly");
        if !base.is_empty() {
            assert_eq!(post("/cam/state/a", "/cam/state/a"), "204", "left in front");
            assert_eq!(post("/state/a", "/cam/state/b"), "401");
            let slash = get(server.address, "/cam?a=b");
            assert!(status(&slash) == "308" && slash.contains("location: /cam/?a=b\r\n"), "{slash}");
        }
    }
}

/// A browser closes a WebSocket whose offer of subprotocols is not answered with one of them.
#[test]
fn a_subprotocol_that_a_page_names_is_echoed() {
    let server = server("state");
    let answered = |offer: &str| {
        let request = client::handshake(&server.address.to_string(), "/state/values", offer);
        let answer = say(server.address, &request);
        assert_eq!(status(&answer), "101", "{answer}");
        answer.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: ")).map(str::to_owned)
    };
    assert_eq!(answered(""), None);
    for (offer, expected) in [
        ("mse", Some("mse")),
        ("a.b, c", Some("a.b")),
        (" v1\r\nSec-WebSocket-Protocol: v2", Some("v1")),
        ("\"x y\"", None),
        ("", None),
    ] {
        assert_eq!(answered(&format!("Sec-WebSocket-Protocol: {offer}\r\n")).as_deref(), expected, "{offer}");
    }
}
