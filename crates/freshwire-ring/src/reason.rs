//! Why a record was dropped: the raw byte of the ABI (`spec/ring.md`, "Reasons"). Values from 128 on are the
//! application's own.

/// Not dropped.
pub const NONE: u8 = 0;
/// Its deadline had passed.
pub const EXPIRED: u8 = 1;
/// It was predicted to arrive after its deadline.
pub const PREDICTED_LATE: u8 = 2;
/// Its window ended before its sending started.
pub const WINDOW_END: u8 = 3;
/// Its layer was shed to fit the rate.
pub const LAYER_SHED: u8 = 4;
/// A newer record with the same key took its place.
pub const SUPERSEDED: u8 = 5;
/// A record that it depends on was dropped.
pub const REFERENCE_LOST: u8 = 6;
/// The application, or a second party, dropped it.
pub const APPLICATION: u8 = 7;
/// Its sending was abandoned at a chunk boundary.
pub const ABANDONED: u8 = 8;
/// The sender closed the ring.
pub const CLOSED: u8 = 9;
/// The sender ended while it had the record in hand.
pub const SENDER_LOST: u8 = 10;
/// The process that was editing it ended.
pub const HOLDER_LOST: u8 = 11;
/// Its descriptor was not valid.
pub const INVALID: u8 = 12;
/// The connection broke.
pub const CONNECTION_LOST: u8 = 13;
/// The first value that is the application's own.
pub const FIRST_CUSTOM: u8 = 128;

/// The word for a reason, as logs and metrics print it.
pub const fn name(reason: u8) -> &'static str {
    match reason {
        NONE => "none",
        EXPIRED => "expired",
        PREDICTED_LATE => "predicted_late",
        WINDOW_END => "window_end",
        LAYER_SHED => "layer_shed",
        SUPERSEDED => "superseded",
        REFERENCE_LOST => "reference_lost",
        APPLICATION => "application",
        ABANDONED => "abandoned",
        CLOSED => "closed",
        SENDER_LOST => "sender_lost",
        HOLDER_LOST => "holder_lost",
        INVALID => "invalid",
        CONNECTION_LOST => "connection_lost",
        FIRST_CUSTOM.. => "custom",
        _ => "unknown",
    }
}
