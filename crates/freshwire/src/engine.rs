//! Engines: an engine asks the policies of its sinks, and writes to their sockets.

mod admit;
mod any_sink;
mod carrier;
mod group;
pub(crate) mod handle;
mod load;
mod scheduler;
pub(crate) mod thread;

pub use freshwire_io::poll::Waker;
pub(crate) use group::GroupShare;
pub use group::{DEFAULT_FILL_FIRST, EngineGroup, EnginePool};
pub use handle::EngineHandle;

pub use crate::tcp::transfer::Transfer;
pub(crate) use handle::NewSink;
pub use thread::{Engine, EngineThread};
