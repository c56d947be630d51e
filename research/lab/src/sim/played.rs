//! A scenario that was played.

use freshwire_sim::{Outcome, Scenario};

/// A scenario with its outcome.
pub(super) struct PlayedScenario {
    pub(super) name: String,
    pub(super) scenario: Scenario,
    pub(super) outcome: Outcome,
}
