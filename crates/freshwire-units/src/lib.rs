//! Time, rate, size and share, each with its unit in the type and in its text form.
//!
//! Every other crate counts in these. `kbit` is 1000 bit and `Kibit` is 1024 bit; both may be written, and neither is
//! ever taken for the other.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod parse;
mod rate;
mod timestamp;

pub use parse::{ParseUnitError, parse_duration, parse_share, parse_size};
pub use rate::Rate;
pub use timestamp::Timestamp;
