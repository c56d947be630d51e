//! What `freshwire send` asks of the network.

use clap::Args;
use freshwire::network::{Dscp, NetworkQos};
use freshwire_record::Rate;

/// Service asked of the network and of this host's queues.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct NetworkArgs {
    /// Differentiated services code point of each packet: EF, VA, LE, DF, CS0 to CS7, AF11 to AF43, or 0 to 63. The ECN bits stay
    /// [default: the system's].
    #[arg(long, global = true, value_name = "DSCP")]
    dscp: Option<Dscp>,
    /// Priority in this host's queueing disciplines, from 0; more than 6 needs CAP_NET_ADMIN [default: by the DSCP].
    #[arg(long, global = true, value_name = "NUMBER")]
    priority: Option<u32>,
    /// Largest rate at which packets leave: TCP paces itself; over A1 the interface needs the queueing discipline fq [default: no
    /// limit].
    #[arg(long, global = true, value_name = "RATE")]
    pacing_rate: Option<Rate>,
    /// With A1: give each datagram a departure time, at --pacing-rate; the interface needs fq.
    #[arg(long, global = true, requires = "pacing_rate")]
    departure_times: bool,
}

impl NetworkArgs {
    /// What the arguments ask for.
    pub(super) fn qos(self) -> NetworkQos {
        NetworkQos::default()
            .dscp(self.dscp)
            .priority(self.priority)
            .max_rate(self.pacing_rate)
            .departure_times(self.departure_times)
    }
}
