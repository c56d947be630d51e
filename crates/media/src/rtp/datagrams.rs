use std::sync::Arc;

use crate::unit::UnitHead;

use super::{HEADER_BYTES, PlanError, Stream};

/// Bytes of a datagram that crosses nearly every path in one piece, RTP header included: Ethernet's 1500
/// without IPv6, UDP and a tunnel.
pub const DEFAULT_MAX_DATAGRAM_BYTES: usize = 1400;

/// Whole packets of units, one after the other in one buffer, for RTP over UDP. Reuse it: its buffers are kept.
#[derive(Clone, Debug)]
pub struct Datagrams {
    bytes: Vec<u8>,
    /// Where each datagram ends in `bytes`.
    ends: Vec<usize>,
    max: usize,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_DATAGRAM_BYTES)
    }
}

impl Datagrams {
    /// Datagrams of at most `max` bytes, RTP header included; at least 64.
    pub fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), max: max.max(64) }
    }

    /// Adds the packets of one unit. After an error nothing was added and `stream` is as before.
    ///
    /// # Errors
    ///
    /// If the unit has no RTP payload format, or a packet does not fit.
    pub fn write(
        &mut self,
        stream: &mut Stream,
        head: &Arc<UnitHead>,
        bytes: &[u8],
    ) -> Result<(), PlanError> {
        if bytes.len() != head.len as usize {
            return Err(PlanError::Length { given: bytes.len(), head: head.len });
        }
        let mut packets = stream.packets(Arc::clone(head))?;
        let mut last = false;
        while let Some(packet) = packets.next_packet(self.max - HEADER_BYTES) {
            stream.write_header(&packet, &mut self.bytes);
            self.bytes.extend(&bytes[packet.payload.start as usize..packet.payload.end as usize]);
            self.ends.push(self.bytes.len());
            last = packet.last;
        }
        // Only an Opus packet can fail to fit, and it is the first of its unit.
        if last { Ok(()) } else { Err(PlanError::TooLarge { len: head.len }) }
    }

    /// The datagrams in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }

    /// Forgets the datagrams and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}
