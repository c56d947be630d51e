//! A value on the stream: magic, key and tick, big-endian, and bytes that follow from them.

use std::ops::RangeInclusive;

use anyhow::{Context as _, ensure};

/// Permitted sizes of a value.
pub(super) const SIZES: RangeInclusive<u32> = 16..=65_536;

const MAGIC: [u8; 4] = *b"FWST";

/// Appends the value.
pub(super) fn write(key: u32, tick: u32, bytes: u32, out: &mut Vec<u8>) {
    let end = out.len() + bytes as usize;
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&tick.to_be_bytes());
    out.resize(end, filler(key, tick));
}

/// Key and tick of a whole value. Fails on a wrong byte.
pub(super) fn read(bytes: &[u8]) -> anyhow::Result<(u32, u32)> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (key, tick) = number(4).zip(number(8)).context("a value is cut off")?;
    ensure!(bytes.starts_with(&MAGIC), "the stream is torn: a value does not begin with {MAGIC:?}");
    ensure!(
        bytes[12..].iter().all(|&byte| byte == filler(key, tick)),
        "a byte of object {key}'s value of tick {tick} is wrong"
    );
    Ok((key, tick))
}

fn filler(key: u32, tick: u32) -> u8 {
    // Fibonacci hashing: each bit of both counts.
    ((key ^ tick.rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_and_a_wrong_byte_is_found() {
        let mut bytes = Vec::new();
        write(7, 300, 64, &mut bytes);
        assert_eq!((bytes.len(), read(&bytes).unwrap()), (64, (7, 300)));
        for at in [0, 5, 11, 63] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert!(read(&wrong).is_err(), "byte {at}");
        }
        assert!(read(&bytes[..10]).is_err());
    }
}
