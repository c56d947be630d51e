//! Shared by the commands of Freshwire: results on standard output, messages and progress on standard error, JSON lines, percentiles,
//! an orderly end at Ctrl-C, man pages and completions.
#![forbid(unsafe_code)]

pub mod generate;
pub mod histogram;
pub mod interrupt;
pub mod output;
