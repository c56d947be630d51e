//! Answers.

use std::fmt::Write as _;

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    status: u16,
    reason: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::refuse(200, "OK")
    }

    /// An answer that says why not; clients show the reason to people.
    pub(super) fn refuse(status: u16, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), headers: Vec::new(), body: String::new() }
    }

    /// Adds a header. The same name may be added again.
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the body.
    pub(super) fn body(mut self, kind: &'static str, body: String) -> Self {
        self.headers.push(("Content-Type", kind.to_owned()));
        self.body = body;
        self
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// The bytes. `cseq` is that of the request.
    pub(super) fn to_bytes(&self, cseq: Option<&str>) -> Vec<u8> {
        let mut text = format!("RTSP/1.0 {} {}\r\n", self.status, one_line(&self.reason));
        let own = [("CSeq", cseq), ("Server", Some("freshwire"))];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let given = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in own.chain(given) {
            // Writing to a string does not fail.
            let _ = write!(text, "{name}: {}\r\n", one_line(value));
        }
        if !self.body.is_empty() {
            let _ = write!(text, "Content-Length: {}\r\n", self.body.len());
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }
}

/// Clients' own words come back in answers and may not begin new lines.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_answer() {
        let reply =
            Reply::refuse(404, "no stream a\r\nb").header("X", "1").header("X", "2").body("t/p", "hi".into());
        let expected = "RTSP/1.0 404 no stream a  b\r\nCSeq: 7\r\nServer: freshwire\r\nX: 1\r\nX: 2\r\n\
            Content-Type: t/p\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(String::from_utf8(reply.to_bytes(Some("7"))).expect("text"), expected);
    }
}
