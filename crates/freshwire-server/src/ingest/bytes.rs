//! Byte streams: from a reader through the demultiplexer to the publisher.

use std::sync::Arc;

use freshwire_media::demux::{self, Demux};
use tokio::io::{AsyncRead, AsyncReadExt as _};
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
    loop {
        let len = reader
            .read(&mut buffer)
            .await
            .map_err(|error| SourceError::Read { what: what.to_owned(), error })?;
        if len == 0 {
            return Ok(());
        }
        demux.push(&buffer[..len]);
        drain(demux, pace).await?;
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
pub(super) async fn stdin(stream: &Arc<Stream>) -> Result<(), SourceError> {
    let publisher = wait_for(stream, "standard input").await;
    let mut pace = Pace::immediate(publisher);
    let mut demux = Demux::new(demux::Config::default());
    read(&mut tokio::io::stdin(), "standard input", &mut demux, &mut pace).await?;
    demux.finish();
    drain(&mut demux, &mut pace).await
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
