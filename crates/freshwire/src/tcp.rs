//! Sinks over TCP: one engine serves many rings, the 'kernel side' of Birkedal's figure in user space.

mod admit;
mod batch;
mod choose;
mod command;
mod committed;
mod datagrams;
mod destination;
mod direct;
mod engine;
mod estimate;
mod group;
mod kernel;
mod listing;
mod load;
mod next;
mod output;
mod payload;
mod scheduler;
mod scratch;
mod sink;
mod target;
mod unread;

pub(crate) use direct::Direct;
pub(crate) use engine::Added;
pub use engine::{Engine, EngineThread, Handle};
pub(crate) use group::GroupShare;
pub use group::{DEFAULT_FILL_FIRST, EngineGroup, EnginePool};
#[cfg(feature = "fanout")]
pub use target::Target;
#[cfg(feature = "fanout")]
pub(crate) use target::{OfferRoom, Offered};
