//! Control packets of MQTT 3.1.1 and 5, as far as a subscriber with QoS 0 needs them. Section numbers are those of MQTT 5.0.

/// The kinds that are read or written: the upper half of a packet's first byte (section 2.1.2).
pub(super) mod kind {
    pub(in super::super) const CONNACK: u8 = 2;
    pub(in super::super) const PUBLISH: u8 = 3;
    pub(in super::super) const PUBACK: u8 = 4;
    pub(in super::super) const SUBACK: u8 = 9;
    pub(in super::super) const PINGRESP: u8 = 13;
    pub(in super::super) const DISCONNECT: u8 = 14;
}

/// The bytes do not follow the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) &'static str);

const SHORT: Malformed = Malformed("a packet is shorter than its content");

/// Cuts the bytes of a connection into packets. A packet above the limit is passed over and never kept.
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Bytes in front that have been read.
    read: usize,
    /// Bytes to come of a packet that is too large.
    passing: usize,
    most: usize,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// The first byte, and what follows the length.
    Whole(u8, &'a [u8]),
    /// The first byte of a packet above the limit.
    TooLarge(u8),
}

impl Input {
    /// Keeps at most this number of bytes of a packet.
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), read: 0, passing: 0, most }
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        if self.passing > 0 {
            let passed = self.passing.min(bytes.len());
            self.passing -= passed;
            bytes = bytes.get(passed..).unwrap_or_default();
        }
        self.bytes.drain(..std::mem::take(&mut self.read));
        self.bytes.extend_from_slice(bytes);
    }

    /// The first byte of the next packet.
    pub(super) fn head(&self) -> Option<u8> {
        self.bytes.get(self.read).copied()
    }

    /// The next packet; `None` if more bytes have to come.
    pub(super) fn next(&mut self) -> Result<Option<Packet<'_>>, Malformed> {
        let Self { bytes, read, passing, most } = self;
        let rest = bytes.get(*read..).unwrap_or_default();
        let Some((&head, after)) = rest.split_first() else { return Ok(None) };
        let Some((length, digits)) = variable(after)? else { return Ok(None) };
        let begin = *read + 1 + digits;
        if length > *most {
            let there = bytes.len() - begin;
            *passing = length.saturating_sub(there);
            *read = begin + length.min(there);
            return Ok(Some(Packet::TooLarge(head)));
        }
        let Some(body) = bytes.get(begin..begin + length) else { return Ok(None) };
        *read = begin + length;
        Ok(Some(Packet::Whole(head, body)))
    }
}

/// A number of up to four bytes, and how many it has; `None` if more have to come (section 1.5.5).
fn variable(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        number |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((number, at + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Malformed("a packet's length has more than four bytes")) }
}

/// The content of a packet.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// The properties of a packet that matter here (section 2.2.2.2).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Properties<'a> {
    pub(super) reason: Option<&'a str>,
    pub(super) keep_alive: Option<u16>,
    pub(super) has_no_qos: bool,
    pub(super) has_no_retain: bool,
    pub(super) has_alias: bool,
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.bytes(1).map(|bytes| bytes.first().copied().unwrap_or_default())
    }

    pub(super) fn short(&mut self) -> Result<u16, Malformed> {
        let bytes: [u8; 2] = self.bytes(2)?.try_into().map_err(|_| SHORT)?;
        Ok(u16::from_be_bytes(bytes))
    }

    /// Bytes with their length in front.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.short()?;
        self.bytes(length.into())
    }

    /// The properties, which only MQTT 5 has. They may be missing at the end of a packet that is short (section 3.4.2.2.1).
    pub(super) fn properties(&mut self) -> Result<Properties<'a>, Malformed> {
        let mut found = Properties::default();
        if self.0.is_empty() {
            return Ok(found);
        }
        let (length, digits) = variable(self.0)?.ok_or(SHORT)?;
        self.bytes(digits)?;
        let mut fields = Fields(self.bytes(length)?);
        while !fields.0.is_empty() {
            match fields.byte()? {
                0x13 => found.keep_alive = Some(fields.short()?),
                0x24 => found.has_no_qos = fields.byte()? == 0,
                0x25 => found.has_no_retain = fields.byte()? == 0,
                0x1f => found.reason = str::from_utf8(fields.counted()?).ok(),
                0x23 => found.has_alias = fields.short().map(|_| true)?,
                0x01 | 0x17 | 0x19 | 0x28 | 0x29 | 0x2a => drop(fields.byte()?),
                0x21 | 0x22 => drop(fields.short()?),
                0x02 | 0x11 | 0x18 | 0x27 => drop(fields.bytes(4)?),
                0x0b => {
                    let (_, digits) = variable(fields.0)?.ok_or(SHORT)?;
                    fields.bytes(digits)?;
                }
                0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c => drop(fields.counted()?),
                0x26 => {
                    fields.counted()?;
                    fields.counted()?;
                }
                _ => return Err(Malformed("a packet has an unknown property")),
            }
        }
        Ok(found)
    }
}

/// Writes a packet: its first byte, its length, its content.
pub(super) fn write(head: u8, parts: &[&[u8]], out: &mut Vec<u8>) {
    out.push(head);
    let mut length: usize = parts.iter().map(|part| part.len()).sum();
    loop {
        let digit = (length & 0x7f) as u8;
        length >>= 7;
        out.push(if length > 0 { digit | 0x80 } else { digit });
        if length == 0 {
            break;
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Bytes with their length in front. Longer ones are cut; the parser of the configuration takes none.
pub(super) fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut field = length.to_be_bytes().to_vec();
    field.extend(bytes.iter().take(length.into()));
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_cut_wherever_the_bytes_are_split() {
        let mut bytes = Vec::new();
        write(0x30, &[b"abc", &[b'x'; 200]], &mut bytes);
        write(0xd0, &[], &mut bytes);
        write(0x31, &[&[b'y'; 301]], &mut bytes);
        write(0x40, &[b"\x00\x01"], &mut bytes);
        for step in [1, 2, 3, 7, 100, 1000] {
            let mut input = Input::new(300);
            let mut found = Vec::new();
            for piece in bytes.chunks(step) {
                input.push(piece);
                while let Some(packet) = input.next().unwrap() {
                    found.push(match packet {
                        Packet::Whole(head, body) => (head, Some(body.len())),
                        Packet::TooLarge(head) => (head, None),
                    });
                }
            }
            assert_eq!(found, [(0x30, Some(203)), (0xd0, Some(0)), (0x31, None), (0x40, Some(2))], "{step}");
        }
        let mut input = Input::new(300);
        input.push(b"\x30\xff\xff\xff\xff\x01");
        assert!(input.next().is_err());
    }

    #[test]
    fn a_packet_above_the_limit_is_not_kept() {
        let mut input = Input::new(1000);
        input.push(b"\x30\xff\xff\xff\x7f");
        assert_eq!(input.next(), Ok(Some(Packet::TooLarge(0x30))));
        for _ in 0..100 {
            input.push(&[0; 10_000]);
            assert_eq!(input.next(), Ok(None));
            assert!(input.bytes.is_empty());
        }
    }

    #[test]
    fn properties_are_read_or_refused() {
        let of = |bytes: &[u8]| {
            let mut all = vec![bytes.len() as u8];
            all.extend_from_slice(bytes);
            let mut fields = Fields(&all);
            fields
                .properties()
                .map(|found| (found.keep_alive, found.reason.map(str::to_owned), found.has_no_qos))
        };
        assert_eq!(of(b""), Ok((None, None, false)));
        assert_eq!(of(b"\x13\x00\x0a\x24\x00\x1f\x00\x02no"), Ok((Some(10), Some("no".to_owned()), true)));
        assert_eq!(
            of(b"\x26\x00\x01a\x00\x01b\x0b\x80\x01\x11\x00\x00\x00\x01\x24\x01"),
            Ok((None, None, false))
        );
        for wrong in [&b"\x13\x00"[..], b"\x05", b"\x26\x00\x01a", b"\x1f\x00\x09x", b"\x0b\xff"] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn any_bytes_are_packets_or_refused() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut input = Input::new(64);
            input.push(bytes);
            while let Ok(Some(packet)) = input.next() {
                if let Packet::Whole(_, body) = packet {
                    assert!(body.len() <= 64);
                    let _ = Fields(body).properties();
                }
            }
        });
    }
}
