//! Values for clients that ask once.

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
