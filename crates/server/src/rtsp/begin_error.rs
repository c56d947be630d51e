use std::io;

use crate::hub::HubError;

/// Why viewing could not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error("cannot hand over the connection: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hub(#[from] HubError),
}
