//! The packets of one elementary stream (ISO 13818-1, 2.4.3.6).

/// The payload of a PES packet and the times in its header, in ticks of 90 kHz as they were coded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pes {
    pub(super) pts: Option<u64>,
    /// Only where it differs from the shown time.
    pub(super) dts: Option<u64>,
    pub(super) bytes: Vec<u8>,
}

/// Puts the PES packets of one PID together. Memory: one packet of the limit.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    bytes: Vec<u8>,
    collecting: bool,
    limit: usize,
}

/// What a payload completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completed {
    /// At most two: one that ends where the next begins, and the next.
    pub(super) packets: Vec<Pes>,
    /// Packets that had to be given up.
    pub(super) damaged: u64,
}

impl Assembly {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), collecting: false, limit }
    }

    /// Gives up the packet that is incomplete.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.collecting = false;
    }

    /// Adds a packet's payload.
    pub(super) fn push(&mut self, start: bool, payload: &[u8]) -> Completed {
        let mut completed = Completed::default();
        if start {
            self.end(&mut completed);
            self.collecting = true;
        }
        if !self.collecting {
            return completed;
        }
        self.bytes.extend_from_slice(payload);
        if self.length().is_some_and(|length| self.bytes.len() >= length) {
            self.end(&mut completed);
        } else if self.bytes.len() > self.limit {
            self.clear();
            completed.damaged += 1;
        }
        completed
    }

    /// The packet that is being collected ends here.
    pub(super) fn end(&mut self, completed: &mut Completed) {
        if !std::mem::take(&mut self.collecting) {
            return;
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        let whole = match length(&bytes) {
            Some(length) => {
                let whole = bytes.len() >= length;
                bytes.truncate(length);
                whole
            }
            None => true,
        };
        match Pes::parse(&bytes) {
            Some(pes) if whole => completed.packets.push(pes),
            _ => completed.damaged += 1,
        }
    }

    fn length(&self) -> Option<usize> {
        length(&self.bytes)
    }
}

/// How long the packet is that begins `bytes`, if its header is here and says.
fn length(bytes: &[u8]) -> Option<usize> {
    let &[.., high, low] = bytes.first_chunk::<6>()?;
    Some(usize::from(u16::from_be_bytes([high, low]))).filter(|&length| length > 0).map(|length| length + 6)
}

impl Pes {
    fn parse(packet: &[u8]) -> Option<Self> {
        let (&[0, 0, 1, _, _, _, marker, flags, header_len], rest) = packet.split_first_chunk::<9>()? else {
            return None;
        };
        let (header, payload) = rest.split_at_checked(usize::from(header_len))?;
        if marker & 0xc0 != 0x80 {
            return None;
        }
        let pts = if flags & 0x80 == 0 { None } else { header.first_chunk().map(time) };
        let dts =
            if flags & 0xc0 == 0xc0 { header.get(5..).and_then(<[u8]>::first_chunk).map(time) } else { None };
        Some(Self { pts, dts, bytes: payload.to_vec() })
    }
}

/// A time of 33 bits, spread over 40.
fn time(coded: &[u8; 5]) -> u64 {
    let [a, b, c, d, e] = coded.map(u64::from);
    (a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMED: &[u8] =
        &[0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10, 0x31, 0, 9, 12, 15, 0x11, 0, 7, 0xd8, 0x61, 1, 2];

    #[test]
    fn times_are_read() {
        let pes = Pes::parse(TIMED).expect("valid");
        assert_eq!(pes, Pes { pts: Some(132_615), dts: Some(126_000), bytes: vec![1, 2] });
        assert_eq!(time(&[0x2f, 0xff, 0xff, 0xff, 0xff]), (1 << 33) - 1);
        assert_eq!(time(&[0x21, 0x00, 0x09, 0x0c, 0x0f]), 132_615);
    }

    #[test]
    fn a_packet_of_unknown_length_waits_for_the_next() {
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.push(false, b"middle of something"), Completed::default());
        assert_eq!(assembly.push(true, TIMED), Completed::default());
        let mut short = TIMED.to_vec();
        short[5] = 14;
        let completed = assembly.push(true, &short[..19]);
        assert_eq!((completed.packets.len(), completed.packets[0].bytes.len()), (1, 2));
        let completed = assembly.push(false, &[9, 9, 9]);
        assert_eq!(completed.packets[0].bytes, [9]);
        assembly.clear();
        assert_eq!(assembly.push(false, TIMED), Completed::default());
    }

    #[test]
    fn incomplete_and_oversized_packets_are_damaged() {
        let mut assembly = Assembly::new(30);
        let mut long = TIMED.to_vec();
        long[5] = 200;
        assert_eq!(assembly.push(true, &long), Completed::default());
        assert_eq!(assembly.push(true, TIMED), Completed { packets: Vec::new(), damaged: 1 });
        assert_eq!(assembly.push(false, &[0; 30]), Completed { packets: Vec::new(), damaged: 1 });
        assert_eq!(assembly.push(true, &[0; 20]), Completed::default());
        assert_eq!(assembly.push(true, TIMED), Completed { packets: Vec::new(), damaged: 1 });
    }
}
