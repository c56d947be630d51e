//! Several endpoints at one address.

use std::num::NonZeroU32;

use crate::wire::{ID_OFFSET, INITIATION_KIND, KIND_MASK};

/// The place of an endpoint among several that have one address, of which each has a socket and connections of its own. Ids of
/// connections name the endpoint, as the server ids of QUIC load balancers do (draft-ietf-quic-load-balancers, plaintext algorithm).
/// Here the remainder of an id, divided by the number of endpoints, is the name, so that the rest stays random. A packet reaches its
/// endpoint from any address of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    count: NonZeroU32,
}

impl Shard {
    /// Place of the id in every packet except an initiation, in bytes: 32 bits in network order.
    pub const ID_OFFSET: u32 = ID_OFFSET;
    /// Bits of the first byte that name the kind of a packet.
    pub const KIND_MASK: u8 = KIND_MASK;
    /// The kind of an initiation, which has no id of the responder. All initiations from one address and port have to reach one endpoint, since
    /// cookies are its own.
    pub const INITIATION: u8 = INITIATION_KIND;

    /// The endpoint with this number, from 0, of `count`. `None` if there is no such number.
    pub fn new(number: u32, count: u32) -> Option<Self> {
        let count = NonZeroU32::new(count).filter(|count| number < count.get())?;
        Some(Self { number, count })
    }

    /// Whether a connection with this id belongs to the endpoint.
    pub(crate) fn owns(self, id: u32) -> bool {
        id % self.count == self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_belongs_to_one_endpoint_of_any_number_of_them() {
        assert_eq!((Shard::new(0, 0), Shard::new(2, 2)), (None, None));
        for count in [1, 2, 3, 100, 10_000] {
            for id in [0, 1, 99, 0x8000_0001, u32::MAX] {
                let owners = (0..count).filter(|&number| Shard::new(number, count).unwrap().owns(id));
                assert_eq!(owners.collect::<Vec<_>>(), [id % count]);
            }
        }
    }
}
