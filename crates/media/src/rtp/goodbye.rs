use super::feedback::{BYE, RECEIVER_REPORT, VERSION};

/// Largest reason of a [`goodbye`] in bytes (RFC 3550, section 6.6).
pub const MAX_REASON_BYTES: usize = 255;

/// The compound RTCP packet that ends the source `ssrc`: an empty report, which has to come first, and BYE (RFC 3550, section 6.6).
/// `reason` is cut to [`MAX_REASON_BYTES`].
pub fn goodbye(ssrc: u32, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let reason = &reason.as_bytes()[..end];
    let ssrc = ssrc.to_be_bytes();
    let mut packet = vec![VERSION << 6, RECEIVER_REPORT, 0, 1];
    packet.extend(ssrc);
    let words = 1 + (1 + reason.len()).div_ceil(4);
    packet.extend([VERSION << 6 | 1, BYE, 0, u8::try_from(words).unwrap_or(u8::MAX)]);
    packet.extend(ssrc);
    packet.push(u8::try_from(reason.len()).unwrap_or(u8::MAX));
    packet.extend(reason);
    packet.resize(8 + 4 * (1 + words), 0);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::{Feedback, read_feedback};

    #[test]
    fn a_goodbye_has_a_reason() {
        let packet = goodbye(0x0102_0304, "gone");
        let expected = [
            &[0x80, 201, 0, 1, 1, 2, 3, 4][..],
            &[0x81, 203, 0, 3, 1, 2, 3, 4, 4, b'g', b'o', b'n', b'e', 0, 0, 0],
        ];
        assert_eq!(packet, expected.concat());
        for length in [0, 1, 2, 3, 4, 254, 255, 256, 1000] {
            let packet = goodbye(9, &"é".repeat(length));
            let words = usize::from(packet[11]);
            assert_eq!(packet.len(), 8 + 4 * (1 + words), "{length}");
            let mut heard = Vec::new();
            read_feedback(&packet, |item| heard.push(item));
            assert_eq!(heard, [Feedback::Bye], "{length}");
        }
    }
}
