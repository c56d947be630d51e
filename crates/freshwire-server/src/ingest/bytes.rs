//! Byte streams: from a reader through the demultiplexer to the publisher.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use freshwire_media::demux::{self, Demux};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tracing::warn;

use super::SourceError;
use super::pace::Pace;
use crate::hub::{HubError, Publisher, Stream};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Reads to the end.
pub(super) async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    what: &str,
    demux: &mut Demux,
    pace: &mut Pace,
) -> Result<(), SourceError> {
    let mut buffer = vec![0; READ_BYTES];
    let mut told = demux.skipped().len();
    loop {
        let len = reader
            .read(&mut buffer)
            .await
            .map_err(|error| SourceError::Read { what: what.to_owned(), error })?;
        if len == 0 {
            return Ok(());
        }
        demux.push(&buffer[..len]);
        tell_skipped(demux, what, &mut told);
        drain(demux, pace).await?;
    }
}

/// Says once of each track that it is left out.
fn tell_skipped(demux: &Demux, what: &str, told: &mut usize) {
    for track in demux.skipped().iter().skip(*told) {
        warn!(source = what, track, "a track cannot be carried and is left out");
        *told += 1;
    }
}

/// Publishes what the demultiplexer has.
pub(super) async fn drain(demux: &mut Demux, pace: &mut Pace) -> Result<(), SourceError> {
    for event in demux.by_ref() {
        pace.take(event?).await;
    }
    Ok(())
}

/// Publishes standard input as it comes.
///
/// A thread reads it: the runtime would hand each read to one of its own and wait for that, which costs more than the read.
pub(super) async fn stdin(stream: &Arc<Stream>) -> Result<(), SourceError> {
    let pace = Pace::immediate(wait_for(stream, STANDARD_INPUT).await);
    let pace = Ours(Arc::new(Mutex::new(Some(pace))));
    let theirs = Arc::clone(&pace.0);
    let (done, result) = oneshot::channel();
    let failed = |error| SourceError::Read { what: STANDARD_INPUT.to_owned(), error };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        // Fails only when nobody waits for it any more.
        .spawn(move || drop(done.send(catch_unwind(AssertUnwindSafe(|| read_stdin(&theirs))))))
        .map_err(failed)?;
    match result.await {
        Ok(Ok(result)) => result,
        // As if it had happened here: whoever runs this task counts it and begins again.
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(failed(std::io::ErrorKind::Other.into())),
    }
}

const STANDARD_INPUT: &str = "standard input";

/// The right to publish, which is taken back when nobody waits for the source any more.
struct Ours(Arc<Mutex<Option<Pace>>>);

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn read_stdin(pace: &Mutex<Option<Pace>>) -> Result<(), SourceError> {
    let mut input = std::io::stdin().lock();
    let mut demux = Demux::new(demux::Config::default());
    let mut buffer = vec![0; READ_BYTES];
    let mut told = 0;
    loop {
        let len = input
            .read(&mut buffer)
            .map_err(|error| SourceError::Read { what: STANDARD_INPUT.to_owned(), error })?;
        match len {
            0 => demux.finish(),
            len => demux.push(&buffer[..len]),
        }
        tell_skipped(&demux, STANDARD_INPUT, &mut told);
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pace) = pace.as_mut() else { return Ok(()) };
        for event in demux.by_ref() {
            pace.publish(event?);
        }
        if len == 0 {
            return Ok(());
        }
    }
}

/// The right to publish, as soon as nobody else has it.
pub(super) async fn wait_for(stream: &Arc<Stream>, origin: &str) -> Publisher {
    let mut told = false;
    loop {
        match stream.publish(origin, None) {
            Ok(publisher) => return publisher,
            Err(HubError::Busy(_)) if told => {}
            Err(error) => warn!(stream = stream.name(), %error, "waiting to publish"),
        }
        told = true;
        tokio::time::sleep(super::FIRST_PAUSE).await;
    }
}
