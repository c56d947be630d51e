//! Values for clients that ask once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;

/// The answer's header of this name.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn a_value_is_there_for_those_that_ask_once() {
    let server = server("live/state");
    let topic = server.context.topics.find("live/state").unwrap();
    let ask = |method: &str, path: &str, headers: &str| send(&server, method, path, headers, "");
    assert_eq!(body(&ask("GET", "/live/state", "")), "{}");
    for (key, path, value) in [
        ("counter", "counter", "{\"n\": 7.50}"),
        ("a/b \u{fc}", "a%2Fb%20%C3%BC", "null"),
        ("film.ts", "film.ts", "\"x\""),
    ] {
        let missing = ask("GET", &format!("/live/state/{path}"), "");
        assert!(status(&missing) == "404" && missing.contains("no such key"), "{missing}");
        topic.set(key, &Content::Json(value.to_owned())).unwrap();
        let answer = ask("GET", &format!("/live/state/{path}"), "");
        assert_eq!((status(&answer), body(&answer)), ("200", value), "{answer}");
        assert_eq!(header(&answer, "content-type"), Some("application/json"), "{answer}");
        assert_eq!(header(&answer, "freshwire-count"), Some("1"));
    }
    let head = ask("HEAD", "/live/state/counter", "");
    assert!(status(&head) == "200" && body(&head).is_empty(), "{head}");
    assert_eq!(header(&head, "content-length"), Some("11"), "{head}");
    topic.set("bytes", &Content::Bytes(b"\n{raw}\n".to_vec())).unwrap();
    let bytes = ask("GET", "/live/state/bytes", "");
    assert_eq!(
        (header(&bytes, "content-type"), body(&bytes)),
        (Some("application/octet-stream"), "\n{raw}\n")
    );
    let all = ask("GET", "/live/state", "Accept: */*\r\n");
    let expected = json!({"counter": {"n": 7.5}, "a/b \u{fc}": null, "film.ts": "x"});
    assert_eq!(serde_json::from_str::<Value>(body(&all)).unwrap(), expected, "bytes are no JSON");
    let some = ask("GET", "/live/state?key=counter&key=none", "Accept: application/json\r\n");
    assert_eq!(body(&some), "{\"counter\":{\"n\": 7.50}}");
    server.context.hub.stream("live/state").unwrap();
    let page = ask("GET", "/live/state", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n");
    assert!(header(&page, "content-type").is_some_and(|kind| kind.starts_with("text/html")), "{page}");
    topic.delete("counter").unwrap();
    assert_eq!(status(&ask("GET", "/live/state/counter", "")), "404");
}

#[test]
fn a_client_that_has_the_value_gets_no_copy() {
    let server = server("state");
    let ask = |headers: &str| send(&server, "GET", "/state/a", headers, "");
    set(&server, "a", "1");
    let first = ask("");
    let tag = header(&first, "etag").unwrap().to_owned();
    let known = ask(&format!("If-None-Match: \"x\", W/{tag}\r\n"));
    assert!(status(&known) == "304" && body(&known).is_empty(), "{known}");
    set(&server, "a", "2");
    let newer = ask(&format!("If-None-Match: {tag}\r\n"));
    assert_eq!((status(&newer), body(&newer), header(&newer, "freshwire-count")), ("200", "2", Some("2")));
    // A key that is deleted and set again counts from one.
    server.context.topics.find("state").unwrap().delete("a").unwrap();
    set(&server, "a", "3");
    let again = ask(&format!("If-None-Match: {tag}\r\n"));
    assert_eq!((status(&again), body(&again)), ("200", "3"));
}

/// A stream of that very name goes before a key.
#[test]
fn pictures_are_where_they_were() {
    let server = server("state");
    server.context.hub.stream("state/cam").unwrap();
    set(&server, "cam", "1");
    let page = send(&server, "GET", "/state/cam", "", "");
    assert!(page.contains("<video"), "{page}");
    set(&server, "other", "1");
    assert_eq!(body(&send(&server, "GET", "/state/other", "", "")), "1");
    assert_eq!(status(&send(&server, "GET", "/none/other", "", "")), "404");
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let server = server("state");
    let mark = "\u{feff}";
    assert_eq!(post(&server, "/state/bom", &format!("{mark}{{\"n\":1}}")), "204");
    assert_eq!(body(&send(&server, "GET", "/state/bom", "", "")), "{\"n\":1}");
    let lines = format!("{mark}{{\"key\":\"a\",\"value\":1}}\r\n{{\"key\":\"b\",\"value\":2}}\r\n");
    assert_eq!(post(&server, "/state", &lines), "204");
    assert_eq!(body(&send(&server, "GET", "/state?key=a&key=b", "", "")), "{\"a\":1,\"b\":2}");
    let mut publisher = Socket::open(&server, "/state/push");
    publisher.say(&format!("{mark}{{\"key\":\"a\",\"value\":3}}"));
    wait_for("the value", PATIENCE, || body(&send(&server, "GET", "/state/a", "", "")) == "3");
}

/// The body of an answer in chunks.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n").expect("a chunk's length");
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend(&body[end + 2..][..length]);
        body = &body[end + 2 + length + 2..];
    }
}

/// All values, from none to more than the system's buffers take, without a copy of them for a client that does not read.
#[test]
fn a_client_that_takes_its_time_gets_what_is_present_then() {
    for (keys, length) in [(0, 0), (1, 10), (250, 10), (3, 20_000), (250, 60_000)] {
        let server = server("state");
        let topic = server.context.topics.find("state").unwrap();
        let value = |mark: &str| format!("\"{}\"", mark.repeat(length));
        for key in 0..keys {
            topic.set(&format!("{key:03}"), &Content::Json(value("a"))).unwrap();
        }
        // Bytes are left out.
        topic.set("bytes", &Content::Bytes(vec![0; length])).unwrap();
        let mut socket = TcpStream::connect(server.address).unwrap();
        let request = format!("GET /state HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![0; 1];
        socket.read_exact(&mut answer).unwrap();
        let is_large = keys * length > 12 << 20;
        if is_large {
            set(&server, "249", &value("b"));
        }
        socket.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let body = &answer[end + 4..];
        let is_short = head.contains(&format!("content-length: {}", body.len()));
        assert!(is_short || head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(is_short, keys * length < 10_000, "{keys} values of {length} bytes: {head}");
        let text = if is_short { body.to_vec() } else { unchunked(body) };
        let present: BTreeMap<String, String> = serde_json::from_slice(&text).unwrap();
        let expected = (0..keys).map(|key| {
            let mark = if is_large && key == 249 { "b" } else { "a" };
            (format!("{key:03}"), mark.repeat(length))
        });
        assert_eq!(present, expected.collect(), "{keys} values of {length} bytes");
    }
}
