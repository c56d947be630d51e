//! What receivers say in RTCP (RFC 3550, section 6; RFC 4585): reports, requests for lost packets, farewells.

/// One report block of a sender's or a receiver's report (RFC 3550, 6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// The source that it is about.
    pub ssrc: u32,
    /// Share of packets lost since the last report, in 256ths.
    pub fraction_lost: u8,
    /// Packets lost in all; below zero if more arrived than were sent.
    pub lost: i32,
    /// Highest sequence number received, with the number of its cycles in the upper half.
    pub highest: u32,
    /// Jitter between arrivals, in ticks of the track's clock.
    pub jitter: u32,
    /// The middle 32 bits of the last sender report's wall time; 0 for none.
    pub last_report: u32,
    /// Time from that report's arrival to this one's departure, in 65536ths of a second.
    pub delay: u32,
}

/// One thing that a receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// How a source is received.
    Report(ReportBlock),
    /// Packets of a source are missing (generic NACK, RFC 4585, 6.2.1).
    Nack {
        /// The source.
        ssrc: u32,
        /// The first missing packet.
        first: u16,
        /// Bit i: packet `first + 1 + i` is missing too.
        others: u16,
    },
    /// The receiver has left.
    Bye,
}

impl Feedback {
    /// Sequence numbers that a [`Nack`](Self::Nack) names; none for anything else.
    pub fn missing(self) -> impl Iterator<Item = u16> {
        let named = match self {
            Self::Nack { first, others, .. } => Some((first, others)),
            _ => None,
        };
        named.into_iter().flat_map(|(first, others)| {
            let rest = (0..16_u16).filter(move |bit| others >> bit & 1 == 1);
            std::iter::once(first).chain(rest.map(move |bit| first.wrapping_add(1 + bit)))
        })
    }
}

/// Reads a compound packet and calls `said` for each item, in order. Packets of unknown types are skipped; what follows a malformed
/// header is ignored.
pub fn read_feedback(mut bytes: &[u8], mut said: impl FnMut(Feedback)) {
    while let Some((&[flags, kind, high, low], rest)) = bytes.split_first_chunk() {
        let length = 4 * usize::from(u16::from_be_bytes([high, low]));
        if flags >> 6 != VERSION || length > rest.len() {
            return;
        }
        let (body, behind) = rest.split_at(length);
        bytes = behind;
        let count = flags & 0x1f;
        match (kind, count) {
            (SENDER_REPORT, _) => reports(body.get(24..), count, &mut said),
            (RECEIVER_REPORT, _) => reports(body.get(4..), count, &mut said),
            (TRANSPORT_FEEDBACK, GENERIC_NACK) => nacks(body, &mut said),
            (BYE, _) => said(Feedback::Bye),
            _ => {}
        }
    }
}

fn reports(blocks: Option<&[u8]>, count: u8, said: &mut impl FnMut(Feedback)) {
    let (blocks, _) = blocks.unwrap_or_default().as_chunks::<BLOCK_BYTES>();
    for block in blocks.iter().take(usize::from(count)) {
        let word = |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        said(Feedback::Report(ReportBlock {
            ssrc: word(0),
            fraction_lost: block[4],
            // 24 bits, of which the highest is the sign.
            lost: (word(4) << 8) as i32 >> 8,
            highest: word(8),
            jitter: word(12),
            last_report: word(16),
            delay: word(20),
        }));
    }
}

fn nacks(body: &[u8], said: &mut impl FnMut(Feedback)) {
    let (words, _) = body.as_chunks::<4>();
    let [_receiver, source, missing @ ..] = words else { return };
    let ssrc = u32::from_be_bytes(*source);
    for &[a, b, c, d] in missing {
        said(Feedback::Nack { ssrc, first: u16::from_be_bytes([a, b]), others: u16::from_be_bytes([c, d]) });
    }
}

pub(super) const VERSION: u8 = 2;
const SENDER_REPORT: u8 = 200;
pub(super) const RECEIVER_REPORT: u8 = 201;
pub(super) const BYE: u8 = 203;
const TRANSPORT_FEEDBACK: u8 = 205;
const GENERIC_NACK: u8 = 1;
const BLOCK_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Feedback> {
        let mut items = Vec::new();
        read_feedback(bytes, |item| items.push(item));
        items
    }

    /// A receiver's report with one block, as ffmpeg sends it, with its description.
    const REPORT: [u8; 52] = [
        0x81, 201, 0, 7, 0, 0, 0, 9, // receiver 9
        0, 0, 0, 5, 64, 0xff, 0xff, 0xfe, 0, 1, 0, 2, // source 5: a quarter, -2, cycle 1 and number 2
        0, 0, 0, 90, 0x12, 0x34, 0x56, 0x78, 0, 1, 0, 0, // jitter 90, report, 1 s
        0x81, 202, 0, 4, 0, 0, 0, 9, 1, 6, b'f', b'f', b'm', b'p', b'e', b'g', 0, 0, 0, 0,
    ];

    #[test]
    fn a_report_among_other_packets() {
        let block = ReportBlock {
            ssrc: 5,
            fraction_lost: 64,
            lost: -2,
            highest: 0x1_0002,
            jitter: 90,
            last_report: 0x1234_5678,
            delay: 1 << 16,
        };
        assert_eq!(all(&REPORT), [Feedback::Report(block)]);
        let twice = [&REPORT[..], &REPORT[..]].concat();
        assert_eq!(all(&twice).len(), 2);
    }

    #[test]
    fn a_nack_names_packets_across_the_wrap() {
        let nack = [0x81, 205, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0xff, 0xff, 0x80, 0x01];
        let items = all(&nack);
        assert_eq!(items, [Feedback::Nack { ssrc: 5, first: 0xffff, others: 0x8001 }]);
        assert_eq!(items[0].missing().collect::<Vec<_>>(), [0xffff, 0, 15]);
        assert_eq!(Feedback::Bye.missing().count(), 0);
    }

    #[test]
    fn a_farewell_and_what_is_not_known() {
        let app = [0x80, 204, 0, 2, 0, 0, 0, 9, b'N', b'A', b'M', b'E'];
        let bye = [0x81, 203, 0, 1, 0, 0, 0, 9];
        assert_eq!(all(&[&app[..], &bye[..]].concat()), [Feedback::Bye]);
        // A count that promises more blocks than there are, a wrong version, a length beyond the end.
        let promised = [&[0x9f_u8][..], &REPORT[1..]].concat();
        assert_eq!(all(&promised).len(), 1);
        assert_eq!(all(&[0x41, 201, 0, 1, 0, 0, 0, 9]), []);
        assert_eq!(all(&REPORT[..31]), []);
    }

    #[test]
    fn any_bytes() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let items = all(bytes);
            // Nothing is read twice: an item needs at least four bytes.
            assert!(items.len() * 4 <= bytes.len());
        });
    }
}
