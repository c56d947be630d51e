//! The stream that is read, the payload's destination, and the progress for the user.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::a1;
use crate::interrupt::Interrupt;
use crate::output::Progress;

/// The longest wait of one read, so that progress is printed meanwhile. Chosen, not measured: progress is
/// printed each second.
pub(super) const WATCH: Duration = Duration::from_millis(200);

/// The source of records.
pub(super) enum Input {
    /// Bytes in which the framing says where records are.
    Stream(TcpStream),
    /// Records one by one.
    Messages(a1::OpenConnection),
}

/// The user's side: progress on the terminal and signals.
pub(super) struct Console<'a> {
    pub(super) progress: &'a mut Progress,
    pub(super) interrupt: &'a Interrupt,
}

/// Where the payload goes.
pub(super) struct Output {
    name: String,
    pub(super) is_standard: bool,
    file: Box<dyn Write>,
}

impl Output {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            let name = "standard output".to_owned();
            return Ok(Self { name, is_standard: true, file: Box::new(io::stdout()) });
        }
        let name = path.display().to_string();
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("cannot create {name}"))?;
        Ok(Self { name, is_standard: false, file: Box::new(file) })
    }

    /// Forgets what was in the file; pipes and devices hold nothing.
    pub(super) fn clear(path: &Path) -> anyhow::Result<()> {
        if path != Path::new("-") && path.is_file() {
            let emptied = File::create(path);
            emptied.with_context(|| format!("cannot empty {}", path.display()))?;
        }
        Ok(())
    }

    /// False: nobody reads standard output any more.
    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        match self.file.write_all(bytes).and_then(|()| self.file.flush()) {
            Ok(()) => Ok(true),
            Err(error) if self.is_standard && error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot write {}", self.name)),
        }
    }
}
