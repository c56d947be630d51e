//! A value as watchers get it.

use std::fmt::Write as _;
use std::time::SystemTime;

use super::Content;

/// The record of a value; `None` deletes the key.
pub(super) fn record(key: &str, count: u64, at: SystemTime, value: Option<&Content>) -> Vec<u8> {
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut text = String::with_capacity(64 + key.len());
    // Writing to a string does not fail.
    let _ = write!(text, "{{\"key\":{},\"count\":{count},\"at\":", serde_json::Value::from(key));
    let _ = write!(text, "{}.{:03}", at.as_millis(), at.subsec_micros() % 1000);
    match value {
        None => text.push_str(",\"deleted\":true}"),
        Some(Content::Json(json)) => {
            text.push_str(",\"value\":");
            text.push_str(json);
            text.push('}');
        }
        Some(Content::Bytes(bytes)) => {
            text.push_str("}\n");
            let mut record = text.into_bytes();
            record.extend_from_slice(bytes);
            return record;
        }
    }
    text.into_bytes()
}

/// The number of a record; its lowest bit says whether it is bytes.
pub(super) fn number(count: u64, is_bytes: bool) -> u64 {
    count << 1 | u64::from(is_bytes)
}

/// Whether the record with this number is bytes.
pub(super) fn is_bytes(number: u64) -> bool {
    number & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_envelope_is_a_line_of_json() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_764_000_000_123_045);
        let of = |value: Option<Content>| String::from_utf8(record("a\"b", 7, at, value.as_ref())).unwrap();
        let begin = "{\"key\":\"a\\\"b\",\"count\":7,\"at\":1764000000123.045";
        assert_eq!(of(Some(Content::Json("[1]".to_owned()))), format!("{begin},\"value\":[1]}}"));
        assert_eq!(of(None), format!("{begin},\"deleted\":true}}"));
        assert_eq!(of(Some(Content::Bytes(b"x\ny".to_vec()))), format!("{begin}}}\nx\ny"));
        assert!(is_bytes(number(3, true)) && !is_bytes(number(3, false)));
    }
}
