//! Byte streams: from a reader through the demultiplexer to the publisher.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freshwire_media::demux::{self, Demux, Event};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::oneshot;
use tracing::warn;

use super::error::{FIRST_PAUSE, SourceError};
use super::outlet::Outlet;
use super::pace::Pace;
use crate::hub::{HubError, Publisher};

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
    let mut reported = demux.skipped().len();
    let mut watch = Watch::new();
    loop {
        let len = reader
            .read(&mut buffer)
            .await
            .map_err(|error| SourceError::Read { what: what.to_owned(), error })?;
        if len == 0 {
            return Ok(());
        }
        demux.push(&buffer[..len]);
        report_skipped(demux, what, &mut reported);
        let units = drain(demux, pace).await?;
        watch.see(units, demux, what);
    }
}

/// Says once of each track that it is left out.
fn report_skipped(demux: &Demux, what: &str, reported: &mut usize) {
    for track in demux.skipped().iter().skip(*reported) {
        warn!(source = what, track, "a track cannot be carried and is left out");
        *reported += 1;
    }
}

/// Publishes what the demultiplexer has; how many units that is.
pub(super) async fn drain(demux: &mut Demux, pace: &mut Pace) -> Result<u64, SourceError> {
    let mut units = 0;
    for event in demux.by_ref() {
        let event = event?;
        units += u64::from(matches!(event, Event::Unit(_)));
        pace.take(event).await;
    }
    Ok(units)
}

/// Says if bytes come and nothing can be made of them.
struct Watch {
    /// Since when that is so.
    since: Instant,
    reported: bool,
}

/// Bytes that give nothing for this long are worth a message.
const FRUITLESS: Duration = Duration::from_secs(5);

impl Watch {
    fn new() -> Self {
        Self { since: Instant::now(), reported: false }
    }

    /// Bytes have come, and this number of units were made of them.
    fn see(&mut self, units: u64, demux: &Demux, what: &str) {
        if units > 0 {
            *self = Self::new();
        } else if !self.reported && self.since.elapsed() > FRUITLESS {
            self.reported = true;
            warn!(
                source = what,
                reason = demux.complaint(),
                "bytes come, and no picture or sound can be made of them"
            );
        }
    }
}

/// Publishes standard input as it comes.
///
/// A thread reads it: the runtime would hand each read to one of its own and wait for that, which costs more than the read.
pub(super) async fn stdin(outlet: &Outlet) -> Result<(), SourceError> {
    let pace = Pace::immediate(wait_for(outlet, STANDARD_INPUT).await);
    let pace = SharedPace(Arc::new(Mutex::new(Some(pace))));
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
struct SharedPace(Arc<Mutex<Option<Pace>>>);

impl Drop for SharedPace {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn read_stdin(pace: &Mutex<Option<Pace>>) -> Result<(), SourceError> {
    let mut input = std::io::stdin().lock();
    let mut demux = Demux::new(demux::Config::default());
    let mut buffer = vec![0; READ_BYTES];
    let mut reported = 0;
    let mut watch = Watch::new();
    loop {
        let len = input
            .read(&mut buffer)
            .map_err(|error| SourceError::Read { what: STANDARD_INPUT.to_owned(), error })?;
        match len {
            0 => demux.finish(),
            len => demux.push(&buffer[..len]),
        }
        report_skipped(&demux, STANDARD_INPUT, &mut reported);
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pace) = pace.as_mut() else { return Ok(()) };
        let mut units = 0;
        for event in demux.by_ref() {
            let event = event?;
            units += u64::from(matches!(event, Event::Unit(_)));
            pace.publish(event);
        }
        watch.see(units, &demux, STANDARD_INPUT);
        if len == 0 {
            return Ok(());
        }
    }
}

/// The right to publish, as soon as nobody else has it.
pub(super) async fn wait_for(outlet: &Outlet, origin: &str) -> Publisher {
    let mut reported = false;
    loop {
        match outlet.publish(origin, None) {
            Ok(publisher) => return publisher,
            Err(HubError::Busy(_)) if reported => {}
            Err(error) => warn!(stream = outlet.name(), %error, "waiting to publish"),
        }
        reported = true;
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}
