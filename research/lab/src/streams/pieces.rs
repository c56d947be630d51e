//! Records in pieces, for transports whose messages or datagrams are smaller than a record.

use freshwire_media::layered::Header;

/// The header of a piece: the record's sequence and the place of the bytes in it.
pub(super) const PIECE_HEADER: usize = 8;

pub(super) fn piece_header(seq: u64, offset: usize) -> [u8; PIECE_HEADER] {
    ((seq << 32) | offset as u64).to_be_bytes()
}

/// Records out of pieces, which come in order and with gaps.
#[derive(Default)]
pub(super) struct Pieces {
    seq: u64,
    record: Vec<u8>,
}

impl Pieces {
    /// Takes the next piece; gives the record that it completes.
    pub(super) fn take(&mut self, place: u64, piece: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let (seq, offset) = (place >> 32, (place & u64::from(u32::MAX)) as usize);
        if offset == 0 {
            *self = Self { seq, record: Vec::new() };
        }
        if (seq, offset) != (self.seq, self.record.len()) {
            return Ok(None);
        }
        self.record.extend_from_slice(piece);
        let whole = Header::decode(&self.record)?.record_bytes as usize == self.record.len();
        Ok(whole.then(|| std::mem::take(&mut self.record)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use freshwire_media::layered::HEADER_BYTES;
    use freshwire_record::Timestamp;

    use super::super::offer::OfferedRecord;
    use super::super::pace::payload;
    use super::*;

    #[test]
    fn a_record_with_a_gap_is_not_whole() {
        let record = |seq: u64| {
            let offered = OfferedRecord {
                seq,
                group: 0,
                layer: 0,
                bytes: 100,
                refs: Vec::new(),
                at: Duration::ZERO,
                deadline: Duration::ZERO,
                coded: None,
            };
            payload(&offered, Timestamp::from_nanos(7))
        };
        let mut pieces = Pieces::default();
        let mut whole = Vec::new();
        let lost = [(4, HEADER_BYTES), (5, 0), (6, 2 * HEADER_BYTES)];
        for seq in 3..8 {
            for (place, piece) in record(seq).chunks(HEADER_BYTES).enumerate() {
                let offset = place * HEADER_BYTES;
                if lost.contains(&(seq, offset)) {
                    continue;
                }
                let place = u64::from_be_bytes(piece_header(seq, offset));
                whole.extend(pieces.take(place, piece).unwrap());
            }
        }
        assert_eq!(whole, [record(3), record(7)]);
    }
}
