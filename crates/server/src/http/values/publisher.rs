//! A publisher over WebSocket: each message is a change.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire::now;
use freshwire::websocket::{Event, Keepalive, KeepaliveStep, Reader, Role};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::coop::consume_budget;

use crate::context::Context;
use crate::http::shutdown::stopped;
use crate::http::socket::{NO_ANSWER, UNEXPECTED, farewell, ping, withdrawn};
use crate::lease::{AWAY, Lease, POLICY, Withdrawal};
use crate::net::{Conn, Meter};
use crate::values::{Change, Topic, ValueError};

/// Beside the value, a message has the key and its syntax.
const SYNTAX_BYTES: usize = 4 << 10;

/// Why a publisher is disconnected.
const TOO_FAST: &str = "faster than limits.max_publish_rate";

/// How often to see whether a silent publisher has to be asked.
const LOOK: Duration = Duration::from_millis(500);

/// Bytes that a frame counts for besides its own: those without content cost time as well. The smallest change is half as long.
const FRAME_COST: usize = 64;

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

// The registry of RFC 6455, section 11.7.
const TRY_AGAIN_LATER: u16 = 1013;

/// Carries out the changes that come, until the publisher leaves, breaks a rule, or the server stops. A change that is refused
/// ends the connection with the reason: a publisher that does not read has to notice.
pub(super) async fn run(
    mut conn: Conn,
    early: &[u8],
    topic: &Arc<Topic>,
    head: &[u8],
    mut lease: Lease,
    context: &Context,
) -> io::Result<()> {
    conn.write_all(head).await?;
    let permit = match topic.publisher() {
        Ok(permit) => permit,
        Err(error) => return leave(&mut conn, &farewell(TRY_AGAIN_LATER, &error.to_string())).await,
    };
    let mut reader = Reader::new(Role::Server, context.hub.config().max_value_bytes + SYNTAX_BYTES);
    let mut shutdown = context.shutdown.clone();
    let mut buffer = vec![0; READ_BYTES];
    let mut meter = Meter::new();
    let (mut cost, mut counted) = (0, 0);
    let limits = context.limits();
    let mut keepalive = Keepalive::new(limits.keepalive, limits.keepalive_timeout, now());
    let mut look = tokio::time::interval(LOOK);
    reader.push(early);
    loop {
        let refused = carry_out(&mut reader, topic).await;
        cost += FRAME_COST * usize::try_from(reader.frames() - counted).unwrap_or(0);
        counted = reader.frames();
        if !meter.allows(cost, context.limits().max_publish_rate) {
            drop(permit);
            return leave(&mut conn, &farewell(POLICY, TOO_FAST)).await;
        }
        cost = 0;
        if let Some(error) = refused {
            // Its place is free while it reads why.
            drop(permit);
            let last = match error {
                ValueError::Removed => withdrawn(Withdrawal::Removed),
                error => farewell(POLICY, &error.to_string()),
            };
            return leave(&mut conn, &last).await;
        }
        let output = reader.take_output();
        if reader.is_closed() {
            drop(permit);
            return leave(&mut conn, &output).await;
        }
        if !output.is_empty() {
            write(&mut conn, &output, context).await?;
        }
        tokio::select! {
            read = conn.read(&mut buffer) => match read {
                Ok(count @ 1..) => {
                    keepalive.heard(now());
                    context.counters.published_bytes.add(count as u64);
                    cost = count;
                    reader.push(&buffer[..count]);
                }
                // Many programs hang up without a word, also within TLS.
                Ok(0) | Err(_) => return Ok(()),
            },
            _ = look.tick() => match keepalive.step(now()) {
                KeepaliveStep::Wait => {}
                KeepaliveStep::Ping => write(&mut conn, &ping(), context).await?,
                KeepaliveStep::End => {
                    drop(permit);
                    return leave(&mut conn, &farewell(UNEXPECTED, NO_ANSWER)).await;
                }
            },
            why = lease.withdrawn(context) => {
                drop(permit);
                return leave(&mut conn, &withdrawn(why)).await;
            }
            _ = stopped(&mut shutdown) => {
                return leave(&mut conn, &farewell(AWAY, "the server stops")).await;
            }
        }
    }
}

/// Carries out the changes that have come. Returns why one is refused; those behind it are not carried out.
async fn carry_out(reader: &mut Reader, topic: &Arc<Topic>) -> Option<ValueError> {
    for event in reader.by_ref() {
        let change = match event {
            Ok(Event::Text(text)) => Change::of_text(&text),
            Ok(Event::Binary(bytes)) => Change::of_bytes(&bytes),
            Ok(_) => continue,
            Err(violation) => {
                tracing::debug!(%violation, "a WebSocket publisher broke the protocol");
                continue;
            }
        };
        // A change takes a while with many watchers, and a read may have hundreds.
        consume_budget().await;
        let result = change.and_then(|change| topic.apply(&change));
        // Deleting what is not there is no mistake of a program that starts again.
        match result {
            Ok(()) | Err(ValueError::NoKey(_)) => {}
            Err(error) => return Some(error),
        }
    }
    None
}

/// Writes an answer; a publisher that does not take it within the time for answers is left.
async fn write(conn: &mut Conn, frames: &[u8], context: &Context) -> io::Result<()> {
    let write = conn.write_all(frames);
    let written = tokio::time::timeout(context.limits().answer_timeout, write).await;
    written.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Sends the close frame and closes, once the publisher has had the time to read it.
async fn leave(conn: &mut Conn, last: &[u8]) -> io::Result<()> {
    let farewell = async {
        conn.write_all(last).await?;
        conn.shutdown().await?;
        // Unread data would reset the connection, and the publisher would not see why.
        let mut ignored = [0; 4096];
        while conn.read(&mut ignored).await? > 0 {}
        Ok(())
    };
    tokio::time::timeout(LINGER, farewell).await.unwrap_or(Ok(()))
}

/// A publisher that was refused gets this long to read why.
const LINGER: Duration = Duration::from_millis(500);
