use freshwire_a1::Qos;

/// Limits of a [`BufferSink`](super::BufferSink).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Records queued or in progress. Default: 1024.
    pub records: usize,
    /// Payload bytes queued or in progress. A single record is accepted whatever its size. Default: 16 MiB.
    pub bytes: usize,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self { records: 1024, bytes: 16 << 20 }
    }
}

/// Reason for which a buffer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// No room within the [`BufferLimits`].
    #[error("the sender holds as many records or bytes as it may: wait, drop or replace a record")]
    Full,
    /// The connection or group is over.
    #[error("the sender takes nothing any more: its connection is over, or is being closed")]
    Closed,
    /// No message can be so large.
    #[error("a message of {bytes} bytes is larger than the {most} that one can have", most = Qos::MAX_MESSAGE)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}
