use std::time::Duration;

use freshwire::Meta;
use freshwire_media::unit::{Kind, MediaTime};
use freshwire_record::Timestamp;

/// A unit as the viewers' queues see it.
#[derive(Clone)]
pub(super) struct UnitInfo {
    pub(super) meta: Meta,
    /// Whose picture it is; of sound it says nothing.
    pub(super) rendition: usize,
    pub(super) kind: Kind,
    /// A viewer can begin here.
    pub(super) begins: bool,
    /// Nothing depends on it.
    pub(super) is_leaf: bool,
    /// When it is shown or heard.
    pub(super) shown: MediaTime,
    /// When it was published.
    pub(super) published: Timestamp,
    /// How much older than others it may be when it arrives.
    pub(super) grace: Duration,
}

impl UnitInfo {
    /// The numbers of the units that it depends on.
    pub(super) fn references(&self) -> impl Iterator<Item = u64> {
        let Meta { seq, refs, .. } = self.meta;
        refs.into_iter()
            .filter(|&distance| distance != 0)
            .map(move |distance| seq.saturating_sub(distance.into()))
    }
}
