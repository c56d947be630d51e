//! A stream at a relay of Media over QUIC, read while somebody views it.
//!
//! ```text
//!  relay ─► freshwire_moq::TrackReader, one for each rendition that is used ─► Assembler ─► hub::Publisher
//!                            and one for the sound, for all of them
//! ```
//!
//! The catalog is always read: it is a few hundred bytes whenever it changes. Media is asked for by the first viewer, and no more after the
//! last. Media times are the publisher's wall clock, so renditions share it, and the age of pictures is known here.

mod edge;
mod names;
mod silence;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use freshwire_moq::{MoqError, Subscription};
use tracing::{info, warn};

use self::edge::Edge;
use self::silence::Silence;
use super::outlet::Outlet;
use crate::config::RelayAddress;
use crate::failures::Failures;
use crate::hub::{SourceSnapshot, SourceState};

/// The pauses before a relay is tried again. Viewers are to be back within 2 s of its restart.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A relay that has refused a token is asked again after this long: its rules may change. Chosen, not measured.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// How long a publisher may take for its first catalog. As for the broadcast itself.
const FIRST_CATALOG: Duration = Duration::from_secs(5);

/// How often to see whether somebody views. Chosen, not measured.
const LOOK: Duration = Duration::from_millis(50);

/// Feeds the stream from the relay. Never returns; drop the future to stop.
pub(super) async fn pull(address: &RelayAddress, outlet: &Outlet) {
    let mut pause = FIRST_PAUSE;
    let mut failures = Failures::default();
    let said = Said { address, outlet };
    let mut silence = Silence::default();
    loop {
        said.state(SourceState::Connecting);
        let Err(error) = follow(&said, &mut silence).await;
        if silence.ended(matches!(error, MoqError::Silent(_))) {
            (pause, failures) = (FIRST_PAUSE, Failures::default());
        }
        let text = error.to_string();
        said.state(SourceState::Retrying { reason: text.clone() });
        if failures.is_news(&text, Instant::now()) {
            warn!(stream = outlet.name(), relay = %address, %error, "no stream from the relay; it is tried again and again");
        }
        if matches!(error, MoqError::Refused(_)) {
            pause = REFUSED_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What people see of the connection, for as long as the source is configured.
struct Said<'a> {
    address: &'a RelayAddress,
    outlet: &'a Outlet,
}

impl Said<'_> {
    fn state(&self, state: SourceState) {
        let address = self.address.to_string();
        self.outlet.stream().set_source(Some(SourceSnapshot { address, state }));
    }
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        self.outlet.stream().set_source(None);
        if !self.outlet.is_rendition() {
            // Nothing of it keeps a place: without names there is none that lacks one.
            let _ = self.outlet.stream().offer_renditions(&[]);
        }
    }
}

/// One connection.
async fn follow(said: &Said<'_>, silence: &mut Silence) -> Result<Infallible, MoqError> {
    let Said { address, outlet } = *said;
    let (url, name) = address.broadcast().map_err(|error| MoqError::Catalog(error.to_string()))?;
    let mut subscription = Subscription::open(&url, &name).await?;
    let mut edge = Edge::new(outlet, address.to_string());
    let first = tokio::time::timeout(FIRST_CATALOG, subscription.listing()).await;
    edge.list(first.map_err(|_| MoqError::Catalog(format!("none came within {FIRST_CATALOG:?}")))??);
    info!(stream = outlet.name(), relay = %address, "the relay has the stream; it is read while somebody views it");
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            listing = subscription.listing() => edge.list(listing?),
            read = edge.next() => {
                if read.has_frame() {
                    silence.heard(Instant::now());
                }
                edge.take(read)?;
            }
            _ = look.tick() => {
                edge.follow_demand(&subscription);
                silence.reads(edge.is_reading(), Instant::now());
                if let Some(silence) = silence.is_too_long(Instant::now()) {
                    return Err(MoqError::Silent(silence));
                }
                said.state(if edge.is_resting() { SourceState::Resting } else { SourceState::Reading });
            }
        }
    }
}
