//! Engines, which serve sinks.

mod admit;
mod choose;
mod destination;
mod group;
mod handle;
pub(crate) mod listing;
mod load;
pub(crate) mod offer;
mod scheduler;
mod thread;
pub(crate) mod turn;

pub(crate) use group::GroupShare;
pub use group::{DEFAULT_FILL_FIRST, EngineGroup, EnginePool};
pub(crate) use handle::Added;
pub use handle::Handle;
pub use thread::{Engine, EngineThread};
