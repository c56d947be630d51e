//! Whether and how a repetition takes a picture's place.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Layers up to this one are what later pictures depend on, up to the next key.
const CHAIN_LAYER: u8 = 1;

/// How a repetition of the picture before it takes a picture's place.
#[derive(Clone, Debug)]
pub struct Repeat {
    pub(crate) place: Arc<dyn Repeatable>,
    pub(crate) in_chain: bool,
}

/// A picture's place among the others, as its codec numbers them.
pub(crate) trait Repeatable: Any + Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// What repetitions know this picture by, if they can repeat it.
    fn number(&self) -> Option<i64>;

    /// The NAL units of a repetition of the picture with the number `newest`, which may give it another one.
    fn repeat(&self, newest: &mut i64) -> Vec<Vec<u8>>;

    fn is_equal(&self, other: &dyn Any) -> bool;
}

impl Repeat {
    pub(crate) fn new(place: Arc<dyn Repeatable>, layer: u8) -> Self {
        Self { place, in_chain: layer <= CHAIN_LAYER }
    }
}

impl PartialEq for Repeat {
    fn eq(&self, other: &Self) -> bool {
        self.in_chain == other.in_chain && self.place.is_equal(&*other.place)
    }
}

impl Eq for Repeat {}
