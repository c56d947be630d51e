//! Opus packets: how long they last (RFC 6716, 3.1), and how they lie in a transport stream, each behind a control header
//! with its length.

/// How long a packet lasts in nanoseconds; `None` if it is malformed.
pub(super) fn duration_ns(packet: &[u8]) -> Option<u32> {
    let &toc = packet.first()?;
    let config = usize::from(toc >> 3);
    let frame_us = match config {
        0..12 => [10_000, 20_000, 40_000, 60_000][config % 4],
        12..16 => [10_000, 20_000][config % 2],
        _ => [2_500, 5_000, 10_000, 20_000][config % 4],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(packet.get(1)? & 63),
    };
    let us = frame_us * frames;
    (1..=LONGEST_US).contains(&us).then_some(us * 1000)
}

/// Takes the first packet of a PES payload: the packet and what comes after it.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[prefix, flags], mut rest) = bytes.split_first_chunk::<2>()?;
    if prefix != 0x7f || flags & 0xe0 != 0xe0 {
        return None;
    }
    let mut len = 0;
    loop {
        let (&part, after) = rest.split_first()?;
        (len, rest) = (len + usize::from(part), after);
        if part != u8::MAX {
            break;
        }
    }
    let trims = 2 * (usize::from(flags >> 4 & 1) + usize::from(flags >> 3 & 1));
    rest = rest.get(trims..)?;
    if flags & 4 != 0 {
        let (&extension, after) = rest.split_first()?;
        rest = after.get(usize::from(extension)..)?;
    }
    rest.split_at_checked(len)
}

/// No packet is longer (RFC 6716, section 3.2.5).
const LONGEST_US: u32 = 120_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_say_how_long_they_last() {
        let ms = |bytes: &[u8]| duration_ns(bytes).map(|ns| f64::from(ns) / 1e6);
        assert_eq!(ms(&[0x78]), Some(20.0));
        assert_eq!(ms(&[0x18]), Some(60.0));
        assert_eq!(ms(&[0x81]), Some(5.0));
        assert_eq!(ms(&[0xfb, 6]), Some(120.0));
        assert_eq!((ms(&[0xfb, 7]), ms(&[0xfb]), ms(&[0xfb, 0]), ms(&[])), (None, None, None, None));
    }

    #[test]
    fn packets_are_split() {
        let long = [vec![0x7f, 0xe0, 255, 2], vec![5; 257]].concat();
        assert_eq!(split(&long), Some((&[5; 257][..], &[][..])));
        let trimmed = [0x7f, 0xfc, 1, 1, 2, 3, 4, 1, 9, b'a', b'b'];
        assert_eq!(split(&trimmed), Some((&b"a"[..], &b"b"[..])));
        assert_eq!((split(&long[..100]), split(b"\x7f\x00\x00")), (None, None));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).for_each(|bytes| {
            duration_ns(bytes);
            let mut rest = bytes;
            while let Some((_, after)) = split(rest) {
                rest = after;
            }
        });
    }
}
