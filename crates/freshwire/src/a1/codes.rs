//! Codes with which a node closes connections.

/// The code of a connection that ends as it should.
pub(super) const CODE_DONE: u64 = 0;

/// The code of a connection whose owner gives up what is not delivered.
pub(super) const CODE_ABORTED: u64 = 256;
