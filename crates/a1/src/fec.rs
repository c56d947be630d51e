//! Forward error correction: parity shards from which lost blocks of a message can be made again, for messages whose
//! deadline leaves no time for a repair.
//!
//! ```text
//!  message   │ shard 0 │ shard 1 │ … │ shard k-1 │ (the last one padded with zeros)   blocks never cross a border
//!  parity    │ 0 │ 1 │ … │ r-1 │   any k of the k + r shards give the message back (Reed-Solomon)
//! ```

use crate::ranges::RangeSet;

/// The parity shards of `payload`; none if there are too many shards, or it is empty.
//= spec/a1.md A1-FEC-1
pub(crate) fn protect(payload: &[u8], shard: usize, count: usize) -> Vec<Vec<u8>> {
    let shards: Vec<Vec<u8>> = payload.chunks(shard.max(1)).map(|part| padded(part, shard)).collect();
    if shards.is_empty() || shards.len() > MAX_SHARDS || count == 0 {
        return Vec::new();
    }
    reed_solomon_simd::encode(shards.len(), count.min(shards.len()), &shards).unwrap_or_default()
}

/// Whether a path loses enough for parity to help more than it costs.
pub(crate) fn is_worth_it(loss: f64) -> bool {
    loss >= WORTH_PARITY
}

/// The number of parity shards for `shards` shards, so that a message is seldom broken on a path with this
/// share of loss in runs of this mean length. It is the mean number of losses among all of them, and two
/// standard deviations more.
pub(crate) fn parity_for(shards: usize, loss: f64, run: f64) -> usize {
    if !is_worth_it(loss) {
        return 0;
    }
    let loss = loss.min(0.5);
    let mean = shards as f64 * loss / (1.0 - loss);
    // The runs start anywhere and have a random length.
    let spread = (shards as f64 * loss * (2.0 * run - 1.0)).sqrt();
    ((mean + 2.0 * spread).ceil() as usize).clamp(1, shards.max(1))
}

/// Parity that came for a message that is not whole.
#[derive(Debug)]
pub(crate) struct Parities {
    shard: usize,
    count: usize,
    /// The places of those that came.
    places: Vec<u16>,
    /// Their bytes, one behind the other: shards may be small, and many.
    bytes: Vec<u8>,
}

impl Parities {
    /// `count` shards of `shard` bytes were made of a message of `len` bytes; `None` if nobody makes such ones.
    pub(crate) fn new(len: usize, shard: usize, count: usize) -> Option<Self> {
        let is_even = shard > 0 && shard.is_multiple_of(2);
        let total = if is_even { len.div_ceil(shard) } else { 0 };
        // More than the message has itself help nobody, and each costs the decoder time.
        let is_possible = total <= MAX_SHARDS && (1..=total).contains(&count);
        is_possible.then(|| Self {
            shard,
            count,
            places: Vec::new(),
            bytes: Vec::with_capacity(count * shard),
        })
    }

    /// Takes a parity shard; false if it does not go with the others.
    pub(crate) fn add(&mut self, index: usize, count: usize, bytes: &[u8]) -> bool {
        let fits = index < count && count == self.count && bytes.len() == self.shard;
        let place = index as u16;
        if fits && !self.places.contains(&place) {
            self.places.push(place);
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + 2 * self.places.capacity()
    }

    /// Makes what is missing of a message of `len` bytes, if enough came.
    pub(crate) fn recover(&self, data: &mut Vec<u8>, have: &mut RangeSet, len: usize) -> bool {
        let total = len.div_ceil(self.shard);
        let whole = |at: &usize| have.covers(&range(*at, self.shard, len));
        let present: Vec<usize> = (0..total).filter(whole).collect();
        if present.len() + self.places.len() < total {
            return false;
        }
        data.resize(len, 0);
        let original = present.iter().filter_map(|&at| {
            let range = range(at, self.shard, len);
            let part = data.get(range.start as usize..range.end as usize)?;
            Some((at, padded(part, self.shard)))
        });
        let parity = self.places.iter().map(|&at| usize::from(at)).zip(self.bytes.chunks(self.shard));
        let Ok(made) = reed_solomon_simd::decode(total, self.count, original, parity) else { return false };
        for (at, bytes) in made {
            let range = range(at, self.shard, len);
            let place = data.get_mut(range.start as usize..range.end as usize);
            if let (Some(place), Some(bytes)) = (place, bytes.get(..(range.end - range.start) as usize)) {
                place.copy_from_slice(bytes);
            }
        }
        have.insert(0..len as u64);
        true
    }
}

fn range(at: usize, shard: usize, len: usize) -> std::ops::Range<u64> {
    (at * shard) as u64..((at + 1) * shard).min(len) as u64
}

fn padded(part: &[u8], shard: usize) -> Vec<u8> {
    let mut bytes = part.to_vec();
    bytes.resize(shard, 0);
    bytes
}

/// The most shards of a message (A1-FEC-1): larger messages get no parity.
const MAX_SHARDS: usize = 1024;
/// Below this share of loss parity costs more than it helps. Chosen, not measured.
const WORTH_PARITY: f64 = 0.002;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 256) as u8).collect()
    }

    //= spec/a1.md A1-FEC-1
    #[test]
    fn any_k_shards_give_the_message_back() {
        for len in [1, 99, 100, 101, 1000, 16_384] {
            let payload = message(len);
            let total = len.div_ceil(100);
            let count = total.min(3);
            let parity = protect(&payload, 100, count);
            for first in 0..total {
                let lost: Vec<usize> = (first..total.min(first + count)).collect();
                let (mut data, mut have) = (payload.clone(), RangeSet::default());
                have.insert(0..len as u64);
                for &at in &lost {
                    let range = range(at, 100, len);
                    have.remove(&range);
                    data[range.start as usize..range.end as usize].fill(0xee);
                }
                let mut parities = Parities::new(len, 100, count).expect("possible");
                for (index, bytes) in parity.iter().enumerate().take(lost.len() - 1) {
                    assert!(parities.add(index, count, bytes));
                }
                assert!(!parities.recover(&mut data, &mut have.clone(), len), "one too few");
                assert!(parities.add(count - 1, count, &parity[count - 1]));
                assert!(parities.recover(&mut data, &mut have, len));
                assert_eq!(data, payload);
                assert!(have.covers(&(0..len as u64)));
            }
        }
    }

    #[test]
    fn parity_follows_the_loss() {
        assert_eq!(parity_for(12, 0.0, 1.0), 0);
        assert_eq!(parity_for(1, 0.05, 1.0), 1);
        assert_eq!(parity_for(12, 0.05, 1.0), 3);
        assert_eq!(parity_for(12, 0.05, 4.0), 5);
        assert_eq!(parity_for(12, 0.9, 1.0), 12);
        assert!(parity_for(100, 0.05, 1.0) < 12);
    }

    #[test]
    fn shards_that_do_not_belong_together_are_refused() {
        assert!(Parities::new(1000, 101, 3).is_none());
        assert!(Parities::new(1000, 0, 3).is_none());
        assert!(Parities::new(MAX_SHARDS * 100 + 1, 100, 3).is_none());
        assert!(Parities::new(200, 100, 3).is_none(), "more parity than data");
        assert!(Parities::new(0, 100, 3).is_none(), "nothing would make it whole");
        let mut parities = Parities::new(MAX_SHARDS * 100, 100, 3).expect("possible");
        assert!(!parities.add(3, 3, &[0; 100]));
        assert!(!parities.add(0, 4, &[0; 100]));
        assert!(!parities.add(0, 3, &[0; 98]));
        assert!(protect(&message(200_000), 100, 3).is_empty(), "too many shards");
    }
}
