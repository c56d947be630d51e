//! What a receiver needs of RTCP (RFC 3550, 6): a sender's clock, and requests for key pictures (RFC 4585, 6.3.1).

/// Which wall time a timestamp of a track is, by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderClock {
    /// The sender.
    pub ssrc: u32,
    /// NTP seconds since 1900 and 32 bits of fraction. Some senders count from elsewhere; between the tracks of one
    /// sender only differences count.
    pub ntp: u64,
    /// The timestamp then.
    pub timestamp: u32,
}

/// The first sender report in a compound packet.
pub fn sender_clock(mut bytes: &[u8]) -> Option<SenderClock> {
    while let Some((&[flags, kind, high, low], rest)) = bytes.split_first_chunk() {
        let body = rest.get(..4 * usize::from(u16::from_be_bytes([high, low])))?;
        if flags >> 6 != 2 {
            return None;
        }
        if kind == SENDER_REPORT {
            let (&ssrc, body) = body.split_first_chunk()?;
            let (&ntp, body) = body.split_first_chunk()?;
            let &timestamp = body.first_chunk()?;
            return Some(SenderClock {
                ssrc: u32::from_be_bytes(ssrc),
                ntp: u64::from_be_bytes(ntp),
                timestamp: u32::from_be_bytes(timestamp),
            });
        }
        bytes = rest.get(body.len()..)?;
    }
    None
}

/// A compound packet of `receiver` that asks `sender` for a key picture: an empty report and a picture loss indication.
pub fn picture_loss(receiver: u32, sender: u32) -> [u8; 20] {
    let mut packet = [0; 20];
    let words = [
        0x80 << 24 | u32::from(RECEIVER_REPORT) << 16 | 1,
        receiver,
        0x81 << 24 | u32::from(PAYLOAD_FEEDBACK) << 16 | 2,
        receiver,
        sender,
    ];
    for (bytes, word) in packet.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    packet
}

/// A compound packet of `receiver` that says that it is there: an empty report and its name.
pub fn receiver_alive(receiver: u32) -> [u8; 28] {
    let mut packet = [0; 28];
    let (headers, name) = packet.split_at_mut(16);
    let words = [
        0x80 << 24 | u32::from(RECEIVER_REPORT) << 16 | 1,
        receiver,
        0x81 << 24 | u32::from(SOURCE_DESCRIPTION) << 16 | 4,
        receiver,
    ];
    for (bytes, word) in headers.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    // CNAME, its length, its characters, and the end of the chunk.
    name.copy_from_slice(b"\x01\x09freshwire\0");
    packet
}

const SENDER_REPORT: u8 = 200;
const SOURCE_DESCRIPTION: u8 = 202;
const RECEIVER_REPORT: u8 = 201;
const PAYLOAD_FEEDBACK: u8 = 206;
