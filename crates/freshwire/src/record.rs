use freshwire_choice::Record;
use freshwire_ring::{Meta, Queued};

/// A record as policies see it.
pub(crate) fn record_of(queued: &Queued) -> Record {
    Record {
        index: queued.index,
        seq: queued.seq,
        len: queued.len,
        layer: queued.layer,
        group: queued.group,
        key: queued.key,
        refs: queued.refs,
        generated: queued.generated,
        deadline: queued.deadline,
    }
}

/// Builds the view that a policy gets of a payload of `len` bytes with this descriptor, before it is in a
/// ring.
pub fn record_without_place(meta: &Meta, len: u32) -> Record {
    let &Meta { seq, generated, deadline, layer, group, key, refs } = meta;
    Record { index: 0, seq, len, layer, group, key, refs, generated, deadline }
}
