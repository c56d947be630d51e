//! Standard output carries the result, standard error the talk. A reader who has seen enough is no error.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_record::{Rate, Timestamp};
use serde::Serialize;

/// Version of the JSON lines.
const SCHEMA: u32 = 1;

/// Interval between lines of progress. Chosen, not measured.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Prints a result; a closed pipe ends quietly.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", visible(text.trim_end())).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Tells the person something. Nobody may be listening, and that is as well.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
}

/// A text that may come from a peer, such as the reason of a refusal or a stream's name, without commands to the
/// terminal. Control characters other than line breaks and tabs, and those that change how others are shown, are
/// written as `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_unicode().to_string())
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_plain = |c: char| match c {
        '\n' | '\t' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => false,
        c => !c.is_control(),
    };
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| if is_plain(c) { c.to_string() } else { escape(c) });
    Cow::Owned(shown.collect())
}

/// One JSON line: `{"type": ..., "schema": 1, "data": {...}}`.
pub fn json_line<T: Serialize>(kind: &str, data: &T) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Line<'a, T> {
        r#type: &'a str,
        schema: u32,
        data: &'a T,
    }
    let line = serde_json::to_string(&Line { r#type: kind, schema: SCHEMA, data })
        .context("cannot write the result as JSON")?;
    // They stand in strings only, and none of them takes more than four digits.
    Ok(escaped(&line, |c| format!("\\u{:04x}", u32::from(c))).into_owned())
}

/// A line on standard error each second; on a terminal it stays in its place.
pub struct Progress {
    begin: Timestamp,
    next: Timestamp,
    silent: bool,
    terminal: bool,
    shown: bool,
}

impl Progress {
    /// Begins now.
    pub fn new(silent: bool) -> Self {
        let begin = freshwire_io::now();
        let terminal = io::stderr().is_terminal();
        Self { begin, next: begin + TELL_EVERY, silent, terminal, shown: false }
    }

    /// How long until the next line is due.
    pub fn left(&self, now: Timestamp) -> Duration {
        self.next.saturating_since(now)
    }

    /// Tells the line if it is time. A machine that was asleep gets one line, not many.
    pub fn tell(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if now < self.next {
            return;
        }
        self.next = now + TELL_EVERY;
        if self.silent {
            return;
        }
        let seconds = now.saturating_since(self.begin).as_secs();
        let text = format!("{seconds:>4} s  {}", line());
        if self.terminal {
            // Back to the begin of the line, and nothing left of the former one.
            let _ = write!(io::stderr().lock(), "\r{}\x1b[K", visible(&text));
            self.shown = true;
        } else {
            say(&text);
        }
    }

    /// Leaves the last line behind.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.shown) {
            say("");
        }
    }
}

/// Bytes with three digits or so: `1.4 kB`.
pub fn bytes(count: u64) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..10_000 => format!("{:.1} kB", count as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// A rate with three digits or so: `512 kbit/s`.
pub fn rate(rate: Rate) -> String {
    let bits = rate.bits_per_sec() as f64;
    match rate.bits_per_sec() {
        0..1000 => format!("{bits} bit/s"),
        1000..1_000_000 => format!("{:.0} kbit/s", bits / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit/s", bits / 1e6),
        _ => format!("{:.1} Gbit/s", bits / 1e9),
    }
}

/// A time in milliseconds, or in seconds when it is long.
pub fn millis(time: Duration) -> String {
    match time.as_millis() {
        0..10 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        10..10_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_their_units() {
        for (count, text) in [(0, "0 B"), (1448, "1.4 kB"), (62_000, "62 kB"), (3_500_000, "3.5 MB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(rate(Rate::from_bits_per_sec(512_000)), "512 kbit/s");
        assert_eq!(rate(Rate::from_bits_per_sec(2_500_000_000)), "2.5 Gbit/s");
        assert_eq!(millis(Duration::from_micros(1234)), "1.2 ms");
        assert_eq!(millis(Duration::from_millis(12_300)), "12.3 s");
        assert_eq!(percent(0.9849), "98 %");
        assert_eq!(percent(0.0122), "1.2 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn a_peers_text_commands_no_terminal() {
        assert_eq!(visible("caf\u{e9}\n\ta"), "caf\u{e9}\n\ta");
        assert_eq!(visible("\x1b]0;owned\x07\r\u{9b}2J"), "\\u{1b}]0;owned\\u{7}\\u{d}\\u{9b}2J");
        assert_eq!(visible("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn a_json_line_says_what_it_is() -> anyhow::Result<()> {
        assert_eq!(json_line("send", &[1])?, r#"{"type":"send","schema":1,"data":[1]}"#);
        let said = "a\u{202e}\x1b\u{9b}b";
        let line = json_line("send", &said)?;
        assert_eq!(line, r#"{"type":"send","schema":1,"data":"a\u202e\u001b\u009bb"}"#);
        let read: serde_json::Value = serde_json::from_str(&line)?;
        assert_eq!((&*visible(&line), read["data"].as_str()), (&*line, Some(said)));
        Ok(())
    }
}
