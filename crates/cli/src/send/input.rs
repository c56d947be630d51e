//! Records to be sent, and the input that they are read from.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::Meta;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// Pieces that are read ahead. A live input is never that far ahead.
const READ_AHEAD: usize = 4;

/// The key of records of which only the newest counts.
pub(super) const ONLY_KEY: u64 = 1;

/// A record to be sent.
#[derive(Clone)]
pub(super) struct NewRecord {
    pub(super) bytes: Vec<u8>,
    pub(super) meta: Meta,
}

/// What a source says when it is asked.
pub(super) enum Polled {
    Record(NewRecord),
    Nothing,
    End,
}

/// Gives records as they come into being.
pub(super) trait Source {
    /// Waits at most `timeout` for the next record.
    fn poll(&mut self, timeout: Duration) -> anyhow::Result<Polled>;
}

/// A file or standard input, read by a thread of its own so that nobody blocks on it.
pub(super) struct Input {
    pub(super) name: String,
    pieces: Receiver<io::Result<Vec<u8>>>,
}

pub(super) enum Piece {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

impl Input {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if is_standard_input(path) {
            return Self::spawn("standard input".to_owned(), io::stdin());
        }
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        Self::spawn(name, file)
    }

    fn spawn(name: String, mut input: impl Read + Send + 'static) -> anyhow::Result<Self> {
        let (sender, pieces) = mpsc::sync_channel(READ_AHEAD);
        let read = move || {
            loop {
                let mut bytes = vec![0; READ_BYTES];
                let piece = match input.read(&mut bytes) {
                    Ok(0) => return,
                    Ok(len) => {
                        bytes.truncate(len);
                        Ok(bytes)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = piece.is_err();
                if sender.send(piece).is_err() || failed {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("input".to_owned()).spawn(read).context("cannot start a thread")?;
        Ok(Self { name, pieces })
    }

    pub(super) fn read(&mut self, timeout: Duration) -> anyhow::Result<Piece> {
        match self.pieces.recv_timeout(timeout) {
            Ok(Ok(bytes)) => Ok(Piece::Bytes(bytes)),
            Ok(Err(error)) => Err(error).with_context(|| format!("cannot read {}", self.name)),
            Err(RecvTimeoutError::Timeout) => Ok(Piece::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Piece::End),
        }
    }
}
