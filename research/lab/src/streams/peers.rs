//! Other people's transports, each set up as its own documents advise.

mod build;
mod program;
mod quic;

use std::path::Path;

use super::offer::OfferedRecord;
use super::pace::Ends;
use crate::scenario::TestLink;
use crate::schema::Plan;
use crate::scheme;

pub(super) use build::build;

/// Sends the offered records across the link and receives them; `programs` is where [`build()`] put them.
pub(super) fn run(
    link: &TestLink,
    plan: &Plan,
    offered: &[OfferedRecord],
    programs: Option<&Path>,
) -> anyhow::Result<Ends> {
    match plan.scheme.as_str() {
        scheme::QUIC => quic::run(link, plan, offered),
        _ => program::run(link, plan, offered, programs),
    }
}
