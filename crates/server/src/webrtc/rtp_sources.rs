//! The sources (SSRCs) from which a client sends RTP packets.

/// Sources of a publisher in one session: pictures, sound and their repetitions take four, and an encoder that begins anew takes others.
const MOST_SOURCES: usize = 16;

/// The sources of one session. The protocol makes a track for each one and keeps it, before it knows whether the packet is authentic.
pub(super) struct RtpSources {
    known: Vec<[u8; 4]>,
    most: usize,
}

impl RtpSources {
    /// A viewer has none: it sends reports only.
    pub(super) fn of_viewer() -> Self {
        Self { known: Vec::new(), most: 0 }
    }

    pub(super) fn of_publisher() -> Self {
        Self { known: Vec::new(), most: MOST_SOURCES }
    }

    /// Whether the protocol may have this packet: any that is not RTP, and RTP of a known source or of one for which there is a place.
    pub(super) fn admit(&mut self, packet: &[u8]) -> bool {
        let Some(source) = source_of(packet) else { return true };
        if self.known.contains(&source) {
            return true;
        }
        let has_place = self.known.len() < self.most;
        self.known.extend(has_place.then_some(source));
        has_place
    }
}

/// The source of an RTP packet (RFC 3550); `None` for STUN, DTLS and the like (RFC 7983), and for RTCP (RFC 5761).
fn source_of(packet: &[u8]) -> Option<[u8; 4]> {
    let (128..=191, kind) = (*packet.first()?, packet.get(1)? & 0x7f) else { return None };
    let source = packet.get(8..12)?.try_into().ok()?;
    (!(64..=95).contains(&kind)).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtp(source: u32) -> Vec<u8> {
        let mut packet = vec![0x90, 96, 0, 1, 0, 0, 0, 1];
        packet.extend(source.to_be_bytes());
        packet.extend([0; 40]);
        packet
    }

    #[test]
    fn a_client_sends_from_few_sources() {
        for most in [0, 1, MOST_SOURCES] {
            let mut sources = RtpSources { known: Vec::new(), most };
            for source in 0..10_000 {
                assert_eq!(sources.admit(&rtp(source)), (source as usize) < most);
                // The known ones go on.
                assert!((0..source.min(most as u32)).all(|known| sources.admit(&rtp(known))));
            }
            assert_eq!(sources.known.len(), most);
        }
    }

    #[test]
    fn other_packets_pass() {
        let mut sources = RtpSources { known: Vec::new(), most: 0 };
        for first in (0..=127).chain(192..=255) {
            assert!(sources.admit(&[first; 20]));
        }
        // Reports: sender and receiver, feedback, extended ones.
        for kind in [200, 201, 205, 206, 207] {
            assert!(sources.admit(&[[0x81, kind].as_slice(), &[0; 26]].concat()));
        }
        for short in [&[][..], &[0x80], &[0x80, 96, 0, 0]] {
            assert!(sources.admit(short), "the protocol refuses it");
        }
    }
}
