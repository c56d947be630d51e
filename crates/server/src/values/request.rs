//! Requests of publishers: one value, a batch of lines, or messages of a WebSocket.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{MAX_JSON_DEPTH, ValueError};

/// Programs on Windows write it in front of text, and JSON has none (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The content of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// JSON on one line.
    Json(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its new value; `None` deletes it.
    pub value: Option<Content>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    key: Cow<'a, str>,
    // `null` is a value, and not the lack of one.
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(default)]
    delete: bool,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

impl Content {
    /// The value of a request's body. JSON stays JSON, other text becomes a string, and `application/octet-stream` stays as
    /// it is. A byte order mark in front of text is skipped.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotJson`], [`ValueError::NotText`].
    pub fn of_body(content_type: Option<&str>, body: &[u8]) -> Result<Self, ValueError> {
        let essence = content_type.and_then(|value| value.split(';').next()).map(str::trim);
        let is = |name: &str| essence.is_some_and(|essence| essence.eq_ignore_ascii_case(name));
        if is("application/octet-stream") {
            return Ok(Self::Bytes(body.to_vec()));
        }
        let body = body.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(body);
        match serde_json::from_slice::<&RawValue>(body) {
            Ok(json) => one_line(json).map(Self::Json),
            Err(error) if is("application/json") => Err(ValueError::NotJson(error.to_string())),
            Err(_) => {
                let text = str::from_utf8(body).map_err(|_| ValueError::NotText)?;
                Ok(Self::Json(serde_json::Value::from(text).to_string()))
            }
        }
    }
}

impl Change {
    /// Reads `{"key":"NAME","value":JSON}` or `{"key":"NAME","delete":true}`.
    ///
    /// # Errors
    ///
    /// [`ValueError::Malformed`].
    pub fn of_text(text: &str) -> Result<Self, ValueError> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let line: Line<'_> =
            serde_json::from_str(text).map_err(|error| ValueError::Malformed(error.to_string()))?;
        let value = match (line.value, line.delete) {
            (Some(json), false) => Some(Content::Json(one_line(json)?)),
            (None, true) => None,
            (Some(_), true) => return Err(ValueError::Malformed("both a value and delete".to_owned())),
            (None, false) => return Err(ValueError::Malformed("neither a value nor delete".to_owned())),
        };
        Ok(Self { key: line.key.into_owned(), value })
    }

    /// Reads a binary message: `{"key":"NAME"}`, a line feed, and the value's bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError::Malformed`].
    pub fn of_bytes(message: &[u8]) -> Result<Self, ValueError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Head {
            key: String,
        }
        let malformed =
            |why: String| ValueError::Malformed(format!("a binary message without its line: {why}"));
        let end = message.iter().position(|byte| *byte == b'\n');
        let (head, bytes) = message.split_at(end.ok_or_else(|| malformed("no line feed".to_owned()))?);
        let head: Head = serde_json::from_slice(head).map_err(|error| malformed(error.to_string()))?;
        Ok(Self { key: head.key, value: Some(Content::Bytes(bytes[1..].to_vec())) })
    }
}

/// In valid JSON a line break is only ever between tokens.
fn one_line(json: &RawValue) -> Result<String, ValueError> {
    if depth(json.get()) > MAX_JSON_DEPTH {
        return Err(ValueError::TooDeep);
    }
    Ok(json.get().replace(['\n', '\r'], " "))
}

/// How many arrays and objects are in one another, in valid JSON.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Content {
        Content::Json(text.to_owned())
    }

    #[test]
    fn a_body_is_json_text_or_bytes() {
        let of = Content::of_body;
        assert_eq!(of(None, b"21.50"), Ok(json("21.50")), "numbers keep their digits");
        assert_eq!(of(Some("application/x-www-form-urlencoded"), b"{\"a\":\n1}"), Ok(json("{\"a\": 1}")));
        assert_eq!(of(Some("text/plain"), b"two\nlines"), Ok(json("\"two\\nlines\"")));
        assert_eq!(of(None, b""), Ok(json("\"\"")));
        assert_eq!(of(Some("application/json"), b"\xef\xbb\xbf{\"n\":1}"), Ok(json("{\"n\":1}")));
        assert_eq!(of(None, "\u{feff}open".as_bytes()), Ok(json("\"open\"")));
        let bytes = of(Some("Application/Octet-Stream; v=1"), b"\xff1");
        assert_eq!(bytes, Ok(Content::Bytes(b"\xff1".to_vec())));
        assert!(matches!(of(Some("application/json; charset=utf-8"), b"{"), Err(ValueError::NotJson(_))));
        assert_eq!(of(None, b"\xff"), Err(ValueError::NotText));
    }

    #[test]
    fn nesting_has_a_limit() {
        for (opening, closing) in [("[", "]"), ("{\"a\":", "}"), ("[{\"[\\\"{\":", "}]")] {
            let levels = opening.matches('[').count().min(1) + opening.matches(':').count();
            for depth in [1, MAX_JSON_DEPTH - 1, MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1, 100 * MAX_JSON_DEPTH] {
                let times = depth / levels;
                let text = opening.repeat(times) + "1" + &closing.repeat(times);
                let expected =
                    if times * levels <= MAX_JSON_DEPTH { Ok(()) } else { Err(ValueError::TooDeep) };
                assert_eq!(Content::of_body(None, text.as_bytes()).map(drop), expected, "{opening} {depth}");
                let line = format!("{{\"key\":\"a\",\"value\":{text}}}");
                assert_eq!(Change::of_text(&line).map(drop), expected, "{opening} {depth}");
                let is_read = serde_json::from_str::<serde_json::Value>(&line).is_ok();
                assert_eq!(is_read, expected.is_ok(), "a reader in Rust: {opening} {depth}");
            }
        }
        let flat = format!("[{}[]]", "[],".repeat(10_000));
        assert!(Content::of_body(None, flat.as_bytes()).is_ok(), "long is not deep");
        assert!(Content::of_body(None, format!("\"{}\"", "[".repeat(1000)).as_bytes()).is_ok(), "a string");
    }

    #[test]
    fn a_line_sets_or_deletes_a_key() {
        let set = Change::of_text(" {\"value\": [1,\n 2], \"key\":\"a\\u00e4\"}");
        assert_eq!(set, Ok(Change { key: "aä".to_owned(), value: Some(json("[1,  2]")) }));
        assert_eq!(Change::of_text("\u{feff}{\"key\":\"a\",\"value\":1}").unwrap().value, Some(json("1")));
        let null = Change::of_text("{\"key\":\"a\",\"value\":null}");
        assert_eq!(null, Ok(Change { key: "a".to_owned(), value: Some(json("null")) }));
        let delete = Change::of_text("{\"key\":\"a\",\"delete\":true}");
        assert_eq!(delete, Ok(Change { key: "a".to_owned(), value: None }));
        let both = "{\"key\":\"a\",\"value\":1,\"delete\":true}";
        for wrong in
            ["", "1", "{}", "{\"key\":\"a\"}", "{\"key\":1,\"value\":1}", both, "{\"key\":\"a\",\"valu\":1}"]
        {
            assert!(matches!(Change::of_text(wrong), Err(ValueError::Malformed(_))), "{wrong}");
        }
    }

    #[test]
    fn a_binary_message_has_a_line_in_front() {
        let change = Change::of_bytes(b"{\"key\":\"a\"}\n\xff\n\x00");
        assert_eq!(
            change,
            Ok(Change { key: "a".to_owned(), value: Some(Content::Bytes(b"\xff\n\x00".to_vec())) })
        );
        for wrong in [&b""[..], b"{\"key\":\"a\"}", b"\n", b"{\"key\":\"a\",\"value\":1}\n"] {
            assert!(Change::of_bytes(wrong).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Change::of_bytes(bytes);
            if let Ok(Content::Json(json)) = Content::of_body(None, bytes) {
                assert!(!json.contains(['\n', '\r']), "{json:?}");
                assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json:?}");
            }
        });
    }
}
