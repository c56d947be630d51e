/// Bytes that are read bit by bit, the highest bit first. `None` at the end.
pub(crate) struct Bits {
    bytes: Vec<u8>,
    position: usize,
}

impl Bits {
    /// Reads the payload of `nal` without its emulation prevention bytes and its header of `header` bytes.
    pub(crate) fn nal(nal: &[u8], header: usize) -> Self {
        let mut bytes = Vec::with_capacity(nal.len());
        let mut zeros = 0;
        for &byte in nal.iter().skip(header) {
            if zeros >= 2 && byte == 3 {
                zeros = 0;
                continue;
            }
            zeros = if byte == 0 { zeros + 1 } else { 0 };
            bytes.push(byte);
        }
        Self { bytes, position: 0 }
    }

    /// Reads `bytes` as they are: a bitstream without emulation prevention.
    pub(crate) fn plain(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), position: 0 }
    }

    /// How many bits were read or left out.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.position / 8)?;
        let bit = byte >> (7 - self.position % 8) & 1;
        self.position += 1;
        Some(bit == 1)
    }

    /// Leaves `count` bits out.
    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.position = self.position.checked_add(count)?;
        (self.position <= self.bytes.len() * 8).then_some(())
    }

    /// The next eight bits.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bits(8).map(|bits| bits as u8)
    }

    /// The next `count` bits, at most 32.
    pub(crate) fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value: u64 = 0;
        for _ in 0..count {
            value = value << 1 | u64::from(self.bit()?);
        }
        u32::try_from(value).ok()
    }

    /// An unsigned Exp-Golomb number.
    pub(crate) fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.bit()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let rest = u64::from(self.bits(zeros)?);
        u32::try_from((1 << zeros) - 1 + rest).ok()
    }

    /// A signed Exp-Golomb number.
    pub(crate) fn se(&mut self) -> Option<i32> {
        let code = i64::from(self.ue()?);
        let magnitude = (code + 1) / 2;
        i32::try_from(if code % 2 == 1 { magnitude } else { -magnitude }).ok()
    }
}

/// A NAL unit that is written bit by bit.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits written of the last byte, 0 if it is full.
    used: u32,
}

impl BitWriter {
    pub(crate) fn bit(&mut self, bit: bool) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (7 - self.used);
        }
        self.used = (self.used + 1) % 8;
    }

    /// An unsigned Exp-Golomb number.
    pub(crate) fn ue(&mut self, value: u32) {
        let code = u64::from(value) + 1;
        let digits = u64::BITS - code.leading_zeros();
        for _ in 1..digits {
            self.bit(false);
        }
        for digit in (0..digits).rev() {
            self.bit(code >> digit & 1 == 1);
        }
    }

    /// The lowest `count` bits of `value`.
    pub(crate) fn bits(&mut self, value: u32, count: u32) {
        for place in (0..count).rev() {
            self.bit(value >> place & 1 == 1);
        }
    }

    /// A signed Exp-Golomb number, from -2^30 to 2^30.
    pub(crate) fn se(&mut self, value: i32) {
        self.ue(value.unsigned_abs() * 2 - u32::from(value > 0));
    }

    /// The NAL unit with this header: with its trailing bits and with emulation prevention bytes.
    pub(crate) fn into_nal(mut self, header: u8) -> Vec<u8> {
        self.bit(true);
        escaped(&[header], self.bytes)
    }

    /// Fills the last byte up with this bit.
    pub(crate) fn align(&mut self, bit: bool) {
        while self.used > 0 {
            self.bit(bit);
        }
    }

    /// The NAL unit with this header and with `data` behind what was written, both of whole bytes: nothing is added but emulation
    /// prevention bytes.
    pub(crate) fn into_nal_with(mut self, header: &[u8], data: &[u8]) -> Vec<u8> {
        self.bytes.extend_from_slice(data);
        escaped(header, self.bytes)
    }

    /// The written bits, filled up to a whole byte with zeros.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn escaped(header: &[u8], bytes: Vec<u8>) -> Vec<u8> {
    let mut nal = header.to_vec();
    let mut zeros = 0;
    for byte in bytes {
        if zeros >= 2 && byte <= 3 {
            nal.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        nal.push(byte);
    }
    nal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_golomb() {
        // 1 | 010 | 011 | 00100 | 00101, then padding
        let mut bits = Bits::nal(&[0, 0b1010_0110, 0b0100_0010, 0b1000_0000], 1);
        assert_eq!((bits.ue(), bits.ue(), bits.ue(), bits.ue()), (Some(0), Some(1), Some(2), Some(3)));
        assert_eq!(bits.se(), Some(-2));
        assert_eq!((bits.bits(7), bits.bit()), (Some(0), None));
    }

    #[test]
    fn emulation_prevention_is_removed() {
        let mut bits = Bits::nal(&[0x67, 0, 0, 3, 1, 0, 0, 3], 1);
        assert_eq!((bits.bits(24), bits.bits(16), bits.bit()), (Some(1), Some(0), None));
    }

    #[test]
    fn written_values_are_read_back() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Vec<(u8, u32)>>().for_each(
            |values| {
                let signed = |value: u32| value as i32 / 2;
                let mut writer = BitWriter::default();
                for &(kind, value) in values {
                    match kind % 4 {
                        0 => writer.bit(value % 2 == 1),
                        1 => writer.ue(value.min(u32::MAX - 1)),
                        2 => writer.se(signed(value)),
                        _ => writer.bits(value, u32::from(kind / 8)),
                    }
                }
                let nal = writer.into_nal(0x67);
                assert!(nal.windows(3).all(|bytes| bytes[..2] != [0, 0] || bytes[2] > 2));
                let mut bits = Bits::nal(&nal, 1);
                for &(kind, value) in values {
                    match kind % 4 {
                        0 => assert_eq!(bits.bit(), Some(value % 2 == 1)),
                        1 => assert_eq!(bits.ue(), Some(value.min(u32::MAX - 1))),
                        2 => assert_eq!(bits.se(), Some(signed(value))),
                        _ => {
                            let count = u32::from(kind / 8);
                            let lowest = value & ((1 << count) - 1);
                            assert_eq!(bits.bits(count), Some(lowest));
                        }
                    }
                }
                assert_eq!(bits.bit(), Some(true), "the trailing bit");
                while let Some(bit) = bits.bit() {
                    assert!(!bit);
                }
            },
        );
    }

    #[test]
    fn a_number_too_long_is_refused() {
        assert_eq!(Bits::plain(&[0; 20]).ue(), None);
        let mut largest = Bits::plain(&[0, 0, 0, 1, 255, 255, 255, 255]);
        assert_eq!(largest.ue(), Some(u32::MAX - 1));
    }
}
