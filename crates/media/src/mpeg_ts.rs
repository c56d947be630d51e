//! What the reader and the writer of MPEG transport streams (ISO 13818-1) have in common.

/// Bytes of a packet.
pub(crate) const PACKET_BYTES: usize = 188;

/// First byte of each packet.
pub(crate) const SYNC: u8 = 0x47;

/// The checksum of a table (annex A); 0 over a table that ends with its own.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

const POLYNOMIAL: u32 = 0x04c1_1db7;
