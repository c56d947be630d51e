use freshwire_choice::Record;
use freshwire_ring::Queued;

/// A record as policies see it.
pub(crate) fn record_of(queued: &Queued) -> Record {
    Record {
        index: queued.index,
        seq: queued.user_seq,
        len: queued.len,
        layer: queued.layer,
        group: queued.group,
        key: queued.key,
        refs: queued.refs,
        generated: queued.generated,
        deadline: queued.deadline,
    }
}
