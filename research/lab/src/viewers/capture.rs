//! A server's TCP connections in a capture (pcapng, as the emulated link writes it).

use std::collections::BTreeMap;

use anyhow::Context as _;
use freshwire_netns::{Place, logged_packets};

/// The data of one connection, from its first segment with payload on.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// The bytes, each once.
    pub(super) stream: Vec<u8>,
    /// The segments as they were sent, those that were repeated as well.
    pub(super) segments: Vec<Sent>,
}

/// A segment with payload, counted before the link drops any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it was sent, in nanoseconds of `CLOCK_REALTIME`.
    pub(super) sent_ns: u64,
    /// When its last byte was sent for the first time.
    pub(super) first_ns: u64,
    /// Payload in bytes.
    pub(super) bytes: usize,
    /// Where it ends in the stream.
    pub(super) end: usize,
}

/// The connections from `port` at the near end.
pub(super) fn connections(capture: &[u8], port: u16) -> anyhow::Result<Vec<Connection>> {
    let mut opened: BTreeMap<u16, (u32, Connection)> = BTreeMap::new();
    for packet in logged_packets(capture)?.into_iter().filter(|packet| packet.place == Place::Near) {
        let Some(segment) = Segment::of(packet.frame) else { continue };
        if segment.from != port || segment.payload.is_empty() {
            continue;
        }
        let (first, connection) =
            opened.entry(segment.to).or_insert_with(|| (segment.number, Connection::default()));
        let begin = segment.number.wrapping_sub(*first) as usize;
        connection.add(packet.real_ns, begin, segment.payload)?;
    }
    Ok(opened.into_values().map(|(_, connection)| connection).collect())
}

impl Connection {
    fn add(&mut self, at_ns: u64, begin: usize, payload: &[u8]) -> anyhow::Result<()> {
        let known = self.stream.len();
        let new = known.checked_sub(begin).context("the capture misses segments")?;
        let end = begin + payload.len();
        let first = self.segments.iter().find(|sent| sent.end >= end).map_or(at_ns, |sent| sent.first_ns);
        self.stream.extend(payload.get(new..).unwrap_or_default());
        self.segments.push(Sent { sent_ns: at_ns, first_ns: first, bytes: payload.len(), end });
        Ok(())
    }
}

/// A TCP segment over IPv4.
struct Segment<'a> {
    from: u16,
    to: u16,
    number: u32,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        let [0x45, _, high, low, ..] = packet else { return None };
        if *packet.get(9)? != TCP {
            return None;
        }
        let segment = packet.get(20..usize::from(u16::from_be_bytes([*high, *low])))?;
        let (&[f0, f1, t0, t1, n0, n1, n2, n3], _) = segment.split_first_chunk()?;
        let header = usize::from(*segment.get(12)? >> 4) * 4;
        Some(Self {
            from: u16::from_be_bytes([f0, f1]),
            to: u16::from_be_bytes([t0, t1]),
            number: u32::from_be_bytes([n0, n1, n2, n3]),
            payload: segment.get(header..)?,
        })
    }
}

const TCP: u8 = 6;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ENHANCED_PACKET: u32 = 6;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() + 12) as u32;
        [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), body, &length.to_ne_bytes()].concat()
    }

    /// The begin of a capture.
    pub(in super::super) fn begin() -> Vec<u8> {
        block(0x0a0d_0d0a, &[0; 16])
    }

    /// A packet on an interface at a time in milliseconds: TCP from a port, no options.
    pub(in super::super) fn packet(
        interface: u32,
        at: u64,
        port: u16,
        number: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut ip = [0; 40];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        ip[9] = TCP;
        ip[20..22].copy_from_slice(&port.to_be_bytes());
        ip[24..28].copy_from_slice(&number.to_be_bytes());
        ip[32] = 5 << 4;
        let frame = [&[0; 14], &ip[..], payload].concat();
        let length = frame.len() as u32;
        let at = at * 1_000_000;
        let words = [interface, (at >> 32) as u32, at as u32, length, length];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        block(ENHANCED_PACKET, &body)
    }

    #[test]
    fn a_connection_is_put_together() {
        let first = u32::MAX - 1;
        let capture = [
            begin(),
            packet(0, 1, 80, first, b"abc"),
            packet(0, 2, 80, 1, b""),
            packet(0, 3, 81, 7, b"of another port"),
            packet(1, 4, 80, 1, b"of the other side"),
            packet(0, 5, 80, 1, b"de"),
            packet(0, 6, 80, 0, b"cdef"),
        ];
        let connections = connections(&capture.concat(), 80).unwrap();
        assert_eq!(connections.len(), 1);
        assert_eq!(connections[0].stream, b"abcdef");
        let sent: Vec<_> = connections[0]
            .segments
            .iter()
            .map(|sent| (sent.first_ns / 1_000_000, sent.bytes, sent.end))
            .collect();
        assert_eq!(sent, [(1, 3, 3), (5, 2, 5), (6, 4, 6)]);
        let hole = [begin(), packet(0, 1, 80, 0, b"abc"), packet(0, 2, 80, 4, b"e")].concat();
        assert!(super::connections(&hole, 80).is_err());
    }

    #[test]
    fn a_broken_capture_is_an_error_and_never_a_panic() {
        let capture = packet(0, 0, 80, 0, b"payload");
        for length in 1..capture.len() {
            assert!(connections(&capture[..length], 80).is_err(), "{length}");
        }
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = connections(bytes, 80);
            let _ = Segment::of(bytes).map(|segment| segment.payload.len());
        });
    }
}
