//! Engines, which serve sinks.

mod admit;
mod choose;
mod destination;
mod group;
mod handle;
mod load;
pub(crate) mod offer;
pub(crate) mod queue;
mod scheduler;
mod thread;
pub(crate) mod turn;

pub(crate) use group::GroupShare;
pub use group::{DEFAULT_FILL_FIRST, EngineGroup, EnginePool};
pub(crate) use handle::Added;
pub use handle::Handle;
pub use thread::{Engine, EngineThread};
