//! The writer of the log: nobody waits for it and nothing fails because of it.
//!
//! ```text
//!  any task ──line──► queue, bounded ──► a thread of its own ──► standard error
//!               └─ full: lost                          └─ refused: lost
//! ```
//!
//! The reader of a server's log may stop reading, or its disk may be full. Lines that cannot be written then are lost
//! and counted.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use crate::counter::Counter;

/// Lines that may wait to be written. More are lost.
pub const MAX_WAITING_LINES: usize = 1024;

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
        if self.lines.try_send(Line::Text(line.to_vec())).is_err() {
            self.lost.add_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
