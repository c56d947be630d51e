//! Present values, for clients that ask once.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Content, Topic};

/// The present value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// The key.
    pub key: String,
    /// Values that the key has had, this one included.
    pub count: u64,
    /// When it was set: milliseconds since 1970 by the server's clock, with three decimals.
    pub at: String,
    /// The value.
    pub content: Content,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    key: String,
    count: u64,
    #[serde(borrow)]
    at: &'a RawValue,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

impl Topic {
    /// The present value of this key.
    pub fn present(&self, key: &str) -> Option<Present> {
        Present::read(&self.record(key)?)
    }

    /// The present value of the first key after this one in their order, or of the first key of all.
    pub fn present_after(&self, key: Option<&str>) -> Option<Present> {
        Present::read(&self.record_after(key)?)
    }
}

impl Present {
    /// Reads a record as watchers get it. In its line no line feed is left, so that the first one is before bytes.
    fn read(record: &[u8]) -> Option<Self> {
        let end = record.iter().position(|byte| *byte == b'\n');
        let (line, bytes) = record.split_at(end.unwrap_or(record.len()));
        // The value of an envelope is JSON `null`, or missing; as an option both would be the same.
        let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
        let content = match (envelope.value, end) {
            (_, Some(_)) => Content::Bytes(bytes.get(1..)?.to_vec()),
            (Some(json), None) => Content::Json(json.get().to_owned()),
            (None, None) => Content::Json("null".to_owned()),
        };
        Some(Self { key: envelope.key, count: envelope.count, at: envelope.at.get().to_owned(), content })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::envelope::record;
    use super::*;

    #[test]
    fn a_record_says_what_was_set() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_764_000_000_123_045);
        for content in [
            Content::Json("[1,2.50]".to_owned()),
            Content::Json("null".to_owned()),
            Content::Json("{\"a\":\"\\n\"}".to_owned()),
            Content::Bytes(b"\n\xff\n".to_vec()),
            Content::Bytes(Vec::new()),
        ] {
            let present = Present::read(&record("a\"\n", 7, at, Some(&content))).unwrap();
            let at = "1764000000123.045".to_owned();
            assert_eq!(present, Present { key: "a\"\n".to_owned(), count: 7, at, content });
        }
    }
}
