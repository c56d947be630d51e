/// An RTP packet (RFC 3550, 5.1). Padding, contributing sources and extensions are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The last packet of a frame.
    pub marker: bool,
    /// Which codec of the session description.
    pub payload_type: u8,
    /// Sequence number.
    pub seq: u16,
    /// Timestamp in ticks of the track's clock.
    pub timestamp: u32,
    /// Synchronisation source.
    pub ssrc: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Bytes that are no RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Less than its header.
    #[error("an RTP packet ends within its header")]
    Short,
    /// Another version.
    #[error("RTP version {0}; only version 2 is supported")]
    Version(u8),
    /// More padding than payload.
    #[error("an RTP packet's padding is longer than what it carries")]
    Padding,
}

impl<'a> Packet<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// If the packet is too short, of another version, or its padding or extension exceeds it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let (&[flags, marked_type, seq_high, seq_low, ref words @ ..], rest) =
            bytes.split_first_chunk::<12>().ok_or(PacketError::Short)?;
        let version = flags >> 6;
        if version != 2 {
            return Err(PacketError::Version(version));
        }
        let mut payload = rest.get(4 * usize::from(flags & 0x0F)..).ok_or(PacketError::Short)?;
        if flags & 0x10 != 0 {
            let (&[_, _, high, low], rest) = payload.split_first_chunk().ok_or(PacketError::Short)?;
            let words = usize::from(u16::from_be_bytes([high, low]));
            payload = rest.get(4 * words..).ok_or(PacketError::Short)?;
        }
        if flags & 0x20 != 0 {
            let padding = usize::from(*payload.last().ok_or(PacketError::Padding)?);
            let end = payload.len().checked_sub(padding).ok_or(PacketError::Padding)?;
            payload = payload.get(..end).unwrap_or_default();
        }
        let &[t0, t1, t2, t3, s0, s1, s2, s3] = words;
        Ok(Self {
            marker: marked_type & 0x80 != 0,
            payload_type: marked_type & 0x7F,
            seq: u16::from_be_bytes([seq_high, seq_low]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([s0, s1, s2, s3]),
            payload,
        })
    }
}
