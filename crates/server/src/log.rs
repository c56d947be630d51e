//! The writer of the log: nobody waits for it and nothing fails because of it.
//!
//! ```text
//!  any task ──line──► queue, bounded ──► a thread of its own ──► standard error
//!               └─ full: lost                          └─ refused: lost
//! ```
//!
//! The reader of a server's log may stop reading, or its disk may be full. Lines that cannot be written then are lost
//! and counted. Lines have names that strangers choose, so long ones are cut.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use crate::counter::Counter;

/// Lines that may wait to be written. More are lost.
pub const MAX_WAITING_LINES: usize = 1024;

/// Bytes of a line of text. The rest is cut, with a mark that says so. A line of the server's own words has fewer.
pub const MAX_LINE_BYTES: usize = 2 << 10;

/// Characters of a text in a line of JSON that would be longer than [`MAX_LINE_BYTES`].
const MAX_JSON_TEXT: usize = 200;

/// Characters of the mark behind such a text, and some more.
const MARK_ROOM: usize = 50;

/// How long the end of the program waits for the lines that are left.
const FAREWELL: Duration = Duration::from_secs(1);

/// Lines of this process's log that were lost. A process has one log, whatever servers are in it.
pub static LOST_LINES: Counter = Counter::new();

/// Takes lines of the log; each write is one. Never fails and never waits. Clones write to the same place.
#[derive(Clone, Debug)]
pub struct LogWriter {
    lines: SyncSender<Line>,
    lost: &'static Counter,
}

/// Dropping it waits a moment for the lines that were taken.
#[derive(Debug)]
pub struct LogEnd(SyncSender<Line>);

#[derive(Debug)]
enum Line {
    Text(Vec<u8>),
    /// Everything before it has been written or lost when this is dropped.
    End(mpsc::Sender<()>),
}

/// A log to `output`, and what to hold until the program ends.
///
/// # Errors
///
/// If no thread can be started.
pub fn to(output: impl Write + Send + 'static) -> io::Result<(LogWriter, LogEnd)> {
    start(output, &LOST_LINES)
}

fn start(mut output: impl Write + Send + 'static, lost: &'static Counter) -> io::Result<(LogWriter, LogEnd)> {
    let (lines, waiting) = mpsc::sync_channel(MAX_WAITING_LINES);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&waiting, &mut output, lost))?;
    Ok((LogWriter { lines: lines.clone(), lost }, LogEnd(lines)))
}

fn write_all(waiting: &Receiver<Line>, output: &mut impl Write, lost: &Counter) {
    for line in waiting {
        match line {
            Line::Text(text) => {
                if output.write_all(&text).and_then(|()| output.flush()).is_err() {
                    lost.add_one();
                }
            }
            Line::End(end) => drop(end),
        }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Line::Text(shortened(line).into_owned())).is_err() {
            self.lost.add_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line, cut if it is too long. One of JSON stays JSON.
fn shortened(line: &[u8]) -> Cow<'_, [u8]> {
    if line.len() <= MAX_LINE_BYTES {
        return Cow::Borrowed(line);
    }
    if let Ok(mut fields) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) {
        // The longest first: the server's own words are short.
        loop {
            let json = format!("{}\n", serde_json::to_string(&fields).unwrap_or_default());
            let longest = fields.values_mut().max_by_key(|value| value.as_str().map_or(0, str::len));
            if json.len() <= MAX_LINE_BYTES || !longest.is_some_and(shorten_text) {
                return Cow::Owned(json.into_bytes());
            }
        }
    }
    let head = line.get(..MAX_LINE_BYTES).unwrap_or(line);
    let mut kept = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    // The end of a color's code would be missing, or the end of the color.
    let is_colored = kept.contains('\x1b');
    if let Some(at) = kept.rfind('\x1b').filter(|&at| !kept.get(at..).unwrap_or_default().contains('m')) {
        kept = kept.get(..at).unwrap_or_default();
    }
    let end = if is_colored { "\x1b[0m" } else { "" };
    Cow::Owned(format!("{kept}{end}... (cut: {} bytes more)\n", line.len() - kept.len()).into_bytes())
}

/// Returns `false` if it is no long text.
fn shorten_text(value: &mut serde_json::Value) -> bool {
    let serde_json::Value::String(text) = value else { return false };
    let mut characters = text.char_indices().map(|(at, _)| at).skip(MAX_JSON_TEXT);
    // One that was cut has the mark behind it, and is not cut again.
    let (Some(end), true) = (characters.next(), characters.nth(MARK_ROOM).is_some()) else { return false };
    let more = text.len() - end;
    text.truncate(end);
    *text += &format!("... (cut: {more} bytes more)");
    true
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        let (end, ended) = mpsc::channel();
        // A full queue is of one who does not read: nobody is left to write for.
        if self.0.try_send(Line::End(end)).is_ok() {
            // An error is the end, too: what is waited for has been dropped.
            let _ = ended.recv_timeout(FAREWELL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Refuses;

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn counted(output: impl Write + Send + 'static) -> (LogWriter, LogEnd, &'static Counter) {
        let lost: &'static Counter = Box::leak(Box::default());
        let (writer, end) = start(output, lost).unwrap();
        (writer, end, lost)
    }

    #[test]
    fn lines_are_written_before_the_end() {
        let kept = Kept::default();
        let (mut writer, end, lost) = counted(kept.clone());
        for _ in 0..100 {
            writer.write_all(b"line\n").unwrap();
        }
        drop(end);
        assert_eq!((kept.0.lock().unwrap().len(), lost.value()), (500, 0));
    }

    /// Lines of every length around the limit, with characters of one to four bytes.
    #[test]
    fn long_lines_are_cut_between_characters() {
        for character in ["x", "\u{e9}", "\u{20ac}", "\u{1f600}"] {
            for len in [1, 100, 2000, 2047, 2048, 2049, 2051, 4000, 60_000] {
                for shift in 0..4 {
                    let line = format!("{}{}\n", "a".repeat(shift), character.repeat(len / character.len()));
                    let cut =
                        String::from_utf8(shortened(line.as_bytes()).into_owned()).expect("whole characters");
                    if line.len() <= MAX_LINE_BYTES {
                        assert_eq!(cut, line);
                        continue;
                    }
                    let (kept, mark) = cut.split_once("... (cut: ").expect("a mark");
                    let more: usize =
                        mark.strip_suffix(" bytes more)\n").expect("a line").parse().expect("a number");
                    assert!(line.starts_with(kept) && kept.len() + more == line.len() && kept.len() > 2000);
                    assert!(kept.len() <= MAX_LINE_BYTES, "{}", kept.len());
                }
            }
        }
        let colored = format!("\x1b[3m{}\x1b[0m\n", "\x1b[2m=\x1b[0mx".repeat(400));
        for start in 0..12 {
            let cut = shortened(&colored.as_bytes()[start..]).into_owned();
            let cut = String::from_utf8(cut).expect("text");
            let kept = cut.split_once("\x1b[0m... (cut").expect("no color is left on").0;
            assert!(kept.rfind('\x1b').is_none_or(|at| kept[at..].contains('m')), "a whole code");
        }
    }

    #[test]
    fn a_long_line_of_json_stays_json() {
        for len in [10, 2000, 2100, 60_000] {
            let (name, why) = ("\n\u{e9}".repeat(len), "no right");
            let line = serde_json::json!({ "level": "INFO", "stream": name, "peers": 3, "why": why });
            let cut = shortened(format!("{line}\n").as_bytes()).into_owned();
            assert!(cut.len() <= MAX_LINE_BYTES && cut.ends_with(b"\n"), "{}", cut.len());
            let cut: serde_json::Value = serde_json::from_slice(&cut).expect("JSON");
            assert_eq!(
                cut["stream"].as_str().map_or(0, |text| text.matches("(cut: ").count()),
                usize::from(len > 700)
            );
            assert_eq!((&cut["why"], &cut["peers"]), (&line["why"], &line["peers"]));
            let stream = cut["stream"].as_str().and_then(|stream| stream.split("... (cut").next());
            assert!(stream.is_some_and(|stream| name.starts_with(stream)));
        }
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let (mut writer, end, lost) = counted(Refuses);
        for _ in 0..7 {
            writer.write_all(b"line\n").unwrap();
        }
        drop(end);
        assert_eq!(lost.value(), 7);
    }

    #[test]
    fn a_stalled_reader_blocks_no_writer() {
        // Nobody reads: the pipe takes 64 KiB, and the thread blocks in its next write.
        let (unread, pipe) = io::pipe().unwrap();
        let (mut writer, end, lost) = counted(pipe);
        let begin = Instant::now();
        let line = [b'x'; 1024];
        for _ in 0..4 * MAX_WAITING_LINES {
            writer.write_all(&line).unwrap();
        }
        assert!(lost.value() > MAX_WAITING_LINES as u64, "{}", lost.value());
        drop(end);
        assert!(begin.elapsed() < FAREWELL + Duration::from_secs(4), "{:?}", begin.elapsed());
        drop(unread);
    }
}
