//! What the codecs have in common: bits, parameter sets, dependencies, and units made of NAL units or of whole pieces.

pub(crate) mod arithmetic;
pub(crate) mod bits;
mod coded;
pub(crate) mod depend;
pub(crate) mod nal;
pub(crate) mod sets;
pub(crate) mod split;
pub(crate) mod whole;

pub use self::coded::{Coded, VideoError};
