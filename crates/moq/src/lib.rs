//! Streams to and from relays of Media over QUIC: the only crate that knows the crates of moq-dev.
//!
//! ```text
//!  unit bytes, times ─► Announcement: catalog, tracks ─► relay ═══ relay ─► Subscription: listing, frames ─► whole frames
//! ```
//!
//! An [`Announcement`] is one broadcast at a relay: a catalog in upstream's format, a track for each rendition of the pictures
//! and one for the sound. A [`Subscription`] reads such a broadcast, whoever publishes it: only the tracks that are asked for.
//! [`relay`] runs upstream's relay in this process. Nothing on the wire is of this project.
//!
//! Times on the wire are microseconds since the broadcast's zero; the catalog says which wall time that is.
//!
//! Needs a Tokio runtime. The crates' versions are pinned: they change often, and what they speak is negotiated.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]
#![allow(
    clippy::disallowed_methods,
    reason = "connections run by the clocks; nothing here has to be replayed"
)]

mod announcement;
mod error;
mod listing;
mod payload;
pub mod relay;
mod session;
mod subscription;
pub mod token;

pub use announcement::{Announcement, Demand, Link, TrackWriter};
pub use error::MoqError;
pub use listing::{Listing, MAX_RENDITIONS, SoundListing, VideoListing};
pub use subscription::{Frame, MAX_FRAME_BYTES, Subscription, TrackReader};
