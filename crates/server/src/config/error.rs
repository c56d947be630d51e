use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The configuration cannot be used; the text names the place and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    place: Option<(PathBuf, Option<usize>)>,
    message: String,
}

impl ConfigError {
    pub(super) fn new(path: &Path, line: Option<usize>, message: String) -> Self {
        Self { place: Some((path.to_owned(), line)), message }
    }

    /// An error of no single line.
    pub(super) fn general(message: String) -> Self {
        Self { place: None, message }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((path, Some(line))) => write!(f, "{}:{line}: {}", path.display(), self.message),
            Some((path, None)) => write!(f, "{}: {}", path.display(), self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// An error at these bytes of the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) place: Range<usize>,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(place: Range<usize>, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }

    pub(super) fn in_file(self, text: &str, path: &Path) -> ConfigError {
        let before = text.as_bytes().get(..self.place.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        ConfigError::new(path, Some(line), self.message)
    }
}
