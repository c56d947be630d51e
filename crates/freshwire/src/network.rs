//! Service that a sink or a node asks of the network and of the host's queues: DSCP, priority, pacing rate, departure times.
//!
//! ```
//! use freshwire::network::NetworkQos;
//! use freshwire::{SinkConfig, choice};
//!
//! let network = NetworkQos::default().dscp(Some("AF41".parse()?));
//! let config = SinkConfig::new(choice::fifo()).network(network);
//! # Ok::<(), freshwire::network::UnknownDscp>(())
//! ```

pub use freshwire_io::network::{Dscp, MAX_FREE_PRIORITY, NetworkQos, NetworkQosError, UnknownDscp};
