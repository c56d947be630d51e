//! A scenario that was played.

use freshwire_sim::{Outcome, Scenario};

/// A scenario with what it has reached.
pub(super) struct PlayedScenario {
    pub(super) name: String,
    pub(super) scenario: Scenario,
    pub(super) outcome: Outcome,
}
