//! Sinks: the configuration of a destination, its handle, and its end.

pub(crate) mod config;
pub(crate) mod departures;
pub(crate) mod ended;
pub(crate) mod handle;
pub(crate) mod id;
pub(crate) mod reserve;
pub(crate) mod seal;
pub(crate) mod shared;
pub(crate) mod signal;

pub use crate::carrier::{Carrier, CarrierError, CarrierInUse};
pub use config::{DEFAULT_LINGER, DEFAULT_MAX_UNREAD, DEFAULT_QUEUE_TARGET, SinkConfig};
pub use ended::{CloseMode, Ended, SinkError};
pub use freshwire_io::kernel_ring::Horizon;
pub use handle::{Monitor, Sink};
pub use id::{SinkId, StaleSink};
pub use reserve::{MAX_RESERVE, Reserve};
pub use seal::Seal;
