//! What the commands of Freshwire print: results on standard output, messages and progress on standard error, JSON lines, percentiles.
#![forbid(unsafe_code)]

pub mod histogram;
pub mod output;
