use super::limits::{MAX_JSON_DEPTH, MAX_KEY_BYTES};

/// A value, a publisher or a watcher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The key is empty, too long or has control characters.
    #[error("{0:?} cannot be a key: use 1 to {MAX_KEY_BYTES} bytes of text without control characters")]
    Key(String),
    /// Another key would exceed the limit.
    #[error("the stream has {0} keys, which is the limit: delete some, or raise hub.max_keys")]
    TooManyKeys(usize),
    /// The value exceeds the limit.
    #[error("the value has {bytes} bytes, and {limit} is the limit: raise hub.max_value")]
    TooLarge {
        /// Bytes of the value as it would be sent.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The key to delete does not exist.
    #[error("there is no key {0:?}")]
    NoKey(String),
    /// The server has removed the stream, or replaced it by one of the same name.
    #[error("the stream was removed")]
    Removed,
    /// The value is neither JSON nor UTF-8.
    #[error("the value is not UTF-8: send bytes as application/octet-stream")]
    NotText,
    /// The value is declared as JSON and is not.
    #[error("the value is not JSON: {0}")]
    NotJson(String),
    /// The value has too many arrays and objects in one another.
    #[error(
        "the value has more than {MAX_JSON_DEPTH} arrays and objects in one another, which is the limit: send it flatter, or as a string"
    )]
    TooDeep,
    /// A line of a batch, or a message, is not what it has to be.
    #[error("{0}; write {{\"key\":\"NAME\",\"value\":JSON}} or {{\"key\":\"NAME\",\"delete\":true}}")]
    Malformed(String),
    /// A line of a batch is refused; those before it were taken.
    #[error("line {line}: {error}; the lines before it were taken")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// Why.
        error: Box<ValueError>,
    },
    /// Another publisher would exceed the limit.
    #[error("the stream has {0} publishers, which is the limit: raise hub.max_publishers")]
    TooManyPublishers(usize),
    /// Another watcher would exceed the limit.
    #[error("the stream has {0} watchers, which is the limit: raise hub.max_viewers")]
    TooManyWatchers(usize),
    /// The connection does not take its settings, or memory is missing.
    #[error("{0}")]
    Io(String),
}
