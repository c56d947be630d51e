//! TCP segments, out of frames.

/// A TCP segment. Two are equal if all is equal that the filter or TCP looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    /// Source and destination port.
    pub(crate) ports: (u16, u16),
    /// The IPv4 packet's identification; raw sockets do not see IPv6 headers.
    pub(crate) id: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    /// Bytes of data.
    pub(crate) payload: u32,
}

impl Segment {
    /// Out of an Ethernet frame; `None` if it is not TCP.
    pub(crate) fn of_frame(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        match frame.get(12..14)? {
            [0x08, 0x00] => Self::of_ipv4(packet),
            [0x86, 0xdd] if packet.get(6) == Some(&TCP) => {
                let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
                Self::of_tcp(packet.get(40..40 + length)?)
            }
            _ => None,
        }
    }

    /// Out of an IPv4 packet; `None` if it is not TCP.
    pub(crate) fn of_ipv4(packet: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
        if packet.get(9) != Some(&TCP) {
            return None;
        }
        let header = usize::from(packet.first()? & 0xf) * 4;
        let segment = Self::of_tcp(packet.get(header..usize::from(half(2)?))?)?;
        Some(Self { id: half(4)?, ..segment })
    }

    /// Out of what an IP packet carries.
    pub(crate) fn of_tcp(bytes: &[u8]) -> Option<Self> {
        let half = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let header = usize::from(bytes.get(12)? >> 4) * 4;
        Some(Self {
            ports: (half(0)?, half(2)?),
            id: 0,
            seq: word(4)?,
            ack: word(8)?,
            flags: *bytes.get(13)?,
            window: half(14)?,
            options: bytes.get(20..header)?.to_vec(),
            payload: (bytes.len() - header) as u32,
        })
    }

    /// It has no options, or timestamps as everybody aligns them.
    pub(crate) fn is_plain(&self) -> bool {
        self.options.is_empty() || self.options.len() == 12 && self.options.starts_with(&[1, 1, 8, 10])
    }

    /// It has selective acknowledgements.
    pub(crate) fn has_sack(&self) -> bool {
        let mut options = &self.options[..];
        while let [kind, rest @ ..] = options {
            let length = match kind {
                0 => return false,
                1 => 1,
                5 => return true,
                _ => usize::from(rest.first().copied().unwrap_or(0)).max(2),
            };
            options = options.get(length..).unwrap_or_default();
        }
        false
    }
}

const TCP: u8 = 6;
