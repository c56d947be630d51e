//! How often and how long the command waits for something.

use std::time::Duration;

/// How often a full ring, or the end of the last record, is looked for.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// How often a broken connection is looked for while the source is silent.
pub(super) const WATCH: Duration = Duration::from_millis(100);

/// How long the engine may take to end a connection that has nothing left to deliver.
pub(super) const CLOSE: Duration = Duration::from_secs(5);
