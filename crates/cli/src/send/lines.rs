//! Lines on standard input, each a record: text, or JSON of which a field is the key.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use freshwire::Meta;
use freshwire_record::Timestamp;
use serde_json::Value;

use super::input::{Input, NewRecord, ONLY_KEY, Piece, Polled, Source};
use crate::output::say;

/// The longest line in bytes, its end included.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

/// The most different keys. A stream with more has its key in another field. Chosen, not measured.
const MAX_KEYS: usize = 1 << 20;

/// Cuts bytes into lines with their ends.
#[derive(Default)]
struct Cutter {
    bytes: Vec<u8>,
    /// Where the next line begins.
    begin: usize,
    /// Up to where there is no end of a line.
    searched: usize,
}

impl Cutter {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line; `Err` if it is too long.
    fn next(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n');
        self.searched = end.map_or(self.bytes.len(), |end| self.searched + end + 1);
        if self.searched - self.begin > MAX_LINE_BYTES {
            return Err(TooLong);
        }
        let begin = self.begin;
        if end.is_some() {
            self.begin = self.searched;
        }
        Ok(end.map(|_| &self.bytes[begin..self.searched]))
    }

    /// The line that has no end, with one.
    fn last(&mut self) -> Option<Vec<u8>> {
        let mut rest = self.bytes.split_off(self.begin);
        *self = Self::default();
        (!rest.is_empty()).then(|| {
            rest.push(b'\n');
            rest
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct TooLong;

/// Numbers keys by the field of that name, from 1 on.
struct Keys {
    field: String,
    known: BTreeMap<String, u64>,
    has_warned: bool,
}

impl Keys {
    fn new(field: &str) -> Self {
        Self { field: field.to_owned(), known: BTreeMap::new(), has_warned: false }
    }

    /// The key of line `number`; 0, for none, if it has no such field.
    fn of(&mut self, line: &[u8], number: u64) -> anyhow::Result<u64> {
        let field = &self.field;
        let value: Value = serde_json::from_slice(line).with_context(|| {
            format!("line {number} is no JSON, and --key-field looks for {field:?} in it")
        })?;
        let Value::Object(mut members) = value else {
            bail!("line {number} is no JSON object, and --key-field looks for {field:?} in it");
        };
        let Some(value) = members.remove(field) else {
            if !std::mem::replace(&mut self.has_warned, true) {
                say(&format!(
                    "line {number} has no field {field:?}: such lines are sent in their turn, and nothing newer replaces them"
                ));
            }
            return Ok(0);
        };
        let next = self.known.len() as u64 + 1;
        // Written out, a number and the text of its digits are two keys.
        let key = *self.known.entry(value.to_string()).or_insert(next);
        ensure!(
            self.known.len() <= MAX_KEYS,
            "line {number}: the field {field:?} has more than {MAX_KEYS} different values; is it the right one?"
        );
        Ok(key)
    }
}

/// Lines as they come.
pub(super) struct Lines {
    input: Input,
    cutter: Cutter,
    keys: Option<Keys>,
    lifetime: Option<Duration>,
    seq: u64,
    has_ended: bool,
}

impl Lines {
    pub(super) fn new(input: Input, key_field: Option<&str>, lifetime: Option<Duration>) -> Self {
        let keys = key_field.map(Keys::new);
        Self { input, cutter: Cutter::default(), keys, lifetime, seq: 0, has_ended: false }
    }

    /// The next whole line; once the input has ended, also one without its end.
    fn line(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let number = self.seq + 1;
        match self.cutter.next() {
            Ok(Some(line)) => Ok(Some(line.to_owned())),
            Ok(None) if self.has_ended => Ok(self.cutter.last()),
            Ok(None) => Ok(None),
            Err(TooLong) => bail!("line {number} is longer than {MAX_LINE_BYTES} bytes; is the input lines?"),
        }
    }
}

impl Source for Lines {
    fn poll(&mut self, timeout: Duration) -> anyhow::Result<Polled> {
        let Some(bytes) = self.line()? else {
            if self.has_ended {
                return Ok(Polled::End);
            }
            match self.input.read(timeout)? {
                Piece::Bytes(bytes) => self.cutter.push(&bytes),
                Piece::Nothing => {}
                Piece::End => self.has_ended = true,
            }
            return Ok(Polled::Nothing);
        };
        let now = freshwire_io::now();
        let key = match &mut self.keys {
            Some(keys) => keys.of(&bytes, self.seq + 1)?,
            None => ONLY_KEY,
        };
        let meta = Meta {
            seq: self.seq,
            generated: now,
            deadline: self.lifetime.map_or(Timestamp::MAX, |lifetime| now + lifetime),
            key,
            ..Meta::default()
        };
        self.seq += 1;
        Ok(Polled::Record(NewRecord { bytes, meta }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::default();
        let mut lines = Vec::new();
        for piece in pieces {
            cutter.push(piece);
            while let Some(line) = cutter.next().unwrap() {
                lines.push(line.to_owned());
            }
        }
        lines.extend(cutter.last());
        lines
    }

    #[test]
    fn lines_are_cut_wherever_the_input_is() {
        let text = b"one\n\ntwo\r\nthree";
        let lines: [&[u8]; 4] = [b"one\n", b"\n", b"two\r\n", b"three\n"];
        for at in 0..text.len() {
            assert_eq!(cut(&[&text[..at], &text[at..]]), lines, "at {at}");
        }
        assert_eq!(cut(&text.chunks(1).collect::<Vec<_>>()), lines);
        assert!(cut(&[b""]).is_empty());
    }

    #[test]
    fn a_line_without_an_end_is_not_collected_for_ever() {
        let mut cutter = Cutter::default();
        cutter.push(&vec![b'x'; MAX_LINE_BYTES]);
        assert_eq!(cutter.next(), Ok(None));
        cutter.push(b"x");
        assert_eq!(cutter.next(), Err(TooLong));
        let mut whole = vec![b'x'; MAX_LINE_BYTES - 1];
        whole.push(b'\n');
        let mut cutter = Cutter::default();
        cutter.push(&whole);
        assert!(cutter.next().is_ok_and(|line| line.is_some()));
    }

    #[test]
    fn a_key_is_the_fields_value() {
        let mut keys = Keys::new("id");
        for (line, key) in [
            (r#"{"id": "a", "x": 1}"#, 1),
            (r#"{"x": 2, "id": "b"}"#, 2),
            (r#"{"id": "a", "x": 3}"#, 1),
            (r#"{"id": 7}"#, 3),
            (r#"{"id": "7"}"#, 4),
            (r#"{"other": "a"}"#, 0),
        ] {
            assert_eq!(keys.of(line.as_bytes(), 1).unwrap(), key, "{line}");
        }
        for (line, message) in
            [("pos 1 2", "line 9 is no JSON, and --key-field"), ("[1]", "is no JSON object")]
        {
            let error = format!("{:#}", keys.of(line.as_bytes(), 9).unwrap_err());
            assert!(error.contains(message), "{error}");
        }
    }
}
