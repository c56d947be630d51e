//! How much may be in flight, and how fast it leaves.

mod control;
mod copa;
mod cubic;
mod new_reno;

use std::time::Duration;

pub(super) use self::control::{Ack, Congestion, Loss, QUANTUM};
use self::copa::Copa;
use self::cubic::Cubic;
use self::new_reno::NewReno;
use super::types::Controller;

/// A controller for a path of which nothing is known.
pub(super) fn build(controller: Controller, mtu: u64, initial_rtt: Duration) -> Box<dyn Congestion> {
    match controller {
        Controller::Copa => Box::new(Copa::new(mtu, initial_rtt)),
        Controller::Cubic => Box::new(Cubic::new(mtu, initial_rtt)),
        Controller::NewReno => Box::new(NewReno::new(mtu, initial_rtt)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_packets_fit_into_the_window() {
        for controller in [Controller::Copa, Controller::Cubic, Controller::NewReno] {
            let mut congestion = build(controller, 1200, Duration::from_millis(100));
            // As large as loopback carries them.
            congestion.set_mtu(65_507);
            assert!(congestion.cwnd() >= 2 * 65_507, "{controller:?}: {}", congestion.cwnd());
        }
    }
}
