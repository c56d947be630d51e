//! What the server says.

use freshwire_media::rtmp::amf0::{Value, object};
use freshwire_media::rtmp::{Message, kind};

use super::wire::{CHUNK_BYTES, COMMANDS, CONTROL, Command, FOUR_CC, control};

/// Messages with their chunk streams.
pub(super) type Answers = Vec<(u8, Message)>;

/// Number of the one message stream that a connection has.
pub(super) const STREAM: u32 = 1;

/// Bytes after which a publisher may wait for an acknowledgement, as other servers have it.
const WINDOW_BYTES: u32 = 2_500_000;
/// The publisher may decide by itself how much it sends before it waits.
const DYNAMIC: u8 = 2;

/// The end of a command well done.
pub(super) fn result(transaction: f64, values: [Value; 2]) -> (u8, Message) {
    command("_result", transaction, 0, values.into())
}

/// The answer to `connect`.
pub(super) fn connected(transaction: f64) -> Answers {
    let mut bandwidth = control(kind::SET_PEER_BANDWIDTH, WINDOW_BYTES);
    bandwidth.body.push(DYNAMIC);
    let chunk_bytes = u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX);
    let server = object([("fmsVer", "FMS/3,0,1,123".into()), ("capabilities", 31.0.into())]);
    let state = object([
        ("level", "status".into()),
        ("code", "NetConnection.Connect.Success".into()),
        ("description", "connected".into()),
        ("objectEncoding", 0.0.into()),
        ("fourCcList", Value::Array(FOUR_CC.map(Value::from).into())),
    ]);
    vec![
        (CONTROL, control(kind::WINDOW_ACKNOWLEDGEMENT_SIZE, WINDOW_BYTES)),
        (CONTROL, bandwidth),
        (CONTROL, control(kind::SET_CHUNK_SIZE, chunk_bytes)),
        result(transaction, [server, state]),
    ]
}

/// A command that is refused.
pub(super) fn refused(transaction: f64, code: &str, why: &str) -> (u8, Message) {
    command("_error", transaction, 0, vec![Value::Null, status_of("error", code, why)])
}

/// The state of a stream.
pub(super) fn status(stream: u32, code: &str, description: &str) -> (u8, Message) {
    command("onStatus", 0.0, stream, vec![Value::Null, status_of("status", code, description)])
}

/// Why a stream is not, or not any more.
pub(super) fn failure(stream: u32, code: &str, why: &str) -> (u8, Message) {
    command("onStatus", 0.0, stream, vec![Value::Null, status_of("error", code, why)])
}

/// An event of a user control message.
pub(super) fn event(event: u16, value: &[u8]) -> (u8, Message) {
    let body = [&event.to_be_bytes(), value].concat();
    (CONTROL, Message { timestamp: 0, kind: kind::USER_CONTROL, stream: 0, body })
}

fn command(name: &str, transaction: f64, stream: u32, values: Vec<Value>) -> (u8, Message) {
    let command = Command { name: name.to_owned(), transaction, values, stream };
    (COMMANDS, command.message())
}

fn status_of(level: &str, code: &str, description: &str) -> Value {
    object([("level", level.into()), ("code", code.into()), ("description", description.into())])
}
