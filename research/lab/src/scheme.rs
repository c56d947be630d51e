//! The schemes that the experiments compare: their names in the result file, their labels, and the order in which
//! they are listed.

/// `send()` into the kernel's buffer, as any program does it.
pub(crate) const TCP: &str = "tcp";
/// Plain TCP with a small fixed send buffer.
pub(crate) const TCP_SMALL_BUFFER: &str = "tcp-small-buffer";
/// A send buffer kept at A x CWND + B packets (thesis, section 3.2.4).
pub(crate) const MIN_BUF: &str = "min-buf";
/// A small reserve alone: nothing is ever dropped.
pub(crate) const RESERVE: &str = "reserve";
/// An encoder's rule: drop while more than a fixed time is queued, blind to the kernel's queue.
pub(crate) const ENCODER: &str = "encoder";
/// The thesis's rule: at a window's end, unsent records from the highest layer down.
pub(crate) const THESIS: &str = "thesis";
/// The thesis's rule with a window of one layer, which drops the middle layers (thesis, figure 5.5).
pub(crate) const THESIS_IMPROPER: &str = "thesis-improper";
/// Priority-progress streaming: in a window the lowest layer first, and the rest dropped at its end (thesis, section 3.2.3).
pub(crate) const PRIORITY_PROGRESS: &str = "priority-progress";
/// Datagrams at once, without congestion control or repairs (paper, section 7).
pub(crate) const UDP: &str = "udp";
/// The same at the link's rate, which the sender is configured with; the rest of a window is dropped at its end.
pub(crate) const UDP_LIMITED: &str = "udp-limited";
/// The best policy, on a raw byte stream.
pub(crate) const FRESHWIRE: &str = "freshwire";
/// The policy for frames with deadlines, on a raw byte stream, where the best policy is another.
pub(crate) const FRESHWIRE_FRAMES: &str = "freshwire-frames";
/// The best policy, with framing that lets an in-progress record be abandoned.
pub(crate) const FRESHWIRE_CHUNKED: &str = "freshwire-chunked";

/// The best policy, over A1.
pub(crate) const A1: &str = "a1";
/// The same with CUBIC for congestion control.
pub(crate) const A1_CUBIC: &str = "a1-cubic";
/// The same with NewReno for congestion control.
pub(crate) const A1_NEWRENO: &str = "a1-newreno";

/// Whether the scheme is carried by A1.
pub(crate) fn is_a1(scheme: &str) -> bool {
    [A1, A1_CUBIC, A1_NEWRENO].contains(&scheme)
}

/// Whether the scheme drops what is left of a window at its end.
pub(crate) fn ends_windows(scheme: &str) -> bool {
    [THESIS, THESIS_IMPROPER, PRIORITY_PROGRESS].contains(&scheme)
}

/// Another QUIC: quinn, a stream for each record, with priorities and resets.
pub(crate) const QUIC: &str = "quic";

/// Another live transport over UDP: libsrt.
pub(crate) const SRT: &str = "srt";
/// SCTP with partial reliability: usrsctp, over UDP.
pub(crate) const SCTP: &str = "sctp";

/// Other people's transports. SRT and SCTP know no other congestion control than their own.
pub(crate) const PEERS: [&str; 3] = [SRT, SCTP, QUIC];

/// A scheme's label. An unknown name is its own label.
pub(crate) fn label(scheme: &str) -> &str {
    find(scheme).map_or(scheme, |(_, label)| label)
}

/// The place of a scheme in a list; unknown ones come last.
pub(crate) fn rank(scheme: &str) -> usize {
    LISTED.iter().position(|(name, _)| *name == scheme).unwrap_or(LISTED.len())
}

fn find(scheme: &str) -> Option<(&'static str, &'static str)> {
    LISTED.iter().copied().find(|(name, _)| *name == scheme)
}

const LISTED: [(&str, &str); 22] = [
    (TCP, "plain TCP"),
    (TCP_SMALL_BUFFER, "TCP, small buffer"),
    (MIN_BUF, "MIN_BUF"),
    ("min-buf-1-0", "MIN_BUF(1,0)"),
    ("min-buf-1-3", "MIN_BUF(1,3)"),
    ("min-buf-2-0", "MIN_BUF(2,0)"),
    (RESERVE, "reserve alone"),
    (ENCODER, "encoder's rule"),
    (UDP, "UDP"),
    (UDP_LIMITED, "UDP at the link's rate"),
    (SRT, "SRT"),
    (SCTP, "SCTP"),
    (QUIC, "QUIC (quinn)"),
    (THESIS, "thesis rule"),
    (THESIS_IMPROPER, "thesis rule, misused"),
    (PRIORITY_PROGRESS, "priority-progress"),
    (FRESHWIRE, "Freshwire"),
    (FRESHWIRE_FRAMES, "Freshwire, frames"),
    (FRESHWIRE_CHUNKED, "Freshwire, chunked"),
    (A1, "A1"),
    (A1_CUBIC, "A1, CUBIC"),
    (A1_NEWRENO, "A1, NewReno"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_schemes_have_labels_and_an_order() {
        assert_eq!(label(TCP), "plain TCP");
        assert_eq!(label("another"), "another");
        assert!(rank(TCP) < rank(THESIS) && rank(THESIS) < rank(FRESHWIRE));
        assert_eq!(rank("another"), LISTED.len());
    }
}
