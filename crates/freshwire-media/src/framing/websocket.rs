//! WebSocket frames from server to client (RFC 6455, section 5.2): whole messages, not masked.

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Text in UTF-8.
    Text = 1,
    /// Bytes.
    Binary = 2,
    /// The end of the connection; at most 125 bytes.
    Close = 8,
    /// A question whether the peer is there; at most 125 bytes.
    Ping = 9,
    /// The answer to a ping, with its bytes.
    Pong = 10,
}

/// Adds to `out` the header of an unfragmented message of `len` bytes, in the shortest form. The payload follows it as it
/// is.
pub fn header(opcode: Opcode, len: u64, out: &mut Vec<u8>) {
    out.push(FIN | opcode as u8);
    if let Ok(len) = u8::try_from(len)
        && len <= SHORT_MAX
    {
        out.push(len);
    } else if let Ok(len) = u16::try_from(len) {
        out.push(FOLLOWS_16);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(FOLLOWS_64);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

const FIN: u8 = 0x80;
const SHORT_MAX: u8 = 125;
const FOLLOWS_16: u8 = 126;
const FOLLOWS_64: u8 = 127;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Opcode and payload of the message that `bytes` begins with, and what follows it.
    pub(in super::super) fn read(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
        let (&[first, second], rest) = bytes.split_first_chunk::<2>()?;
        assert_eq!(first & 0x70, 0, "no extension was agreed");
        assert!(first & FIN != 0 && second & 0x80 == 0, "whole messages, not masked");
        let (len, rest) = match second {
            126 => {
                let (len, rest) = rest.split_first_chunk::<2>()?;
                let len = u64::from(u16::from_be_bytes(*len));
                assert!(len > 125, "a length in more bytes than it needs");
                (len, rest)
            }
            127 => {
                let (len, rest) = rest.split_first_chunk::<8>()?;
                let len = u64::from_be_bytes(*len);
                assert!(len > 65535, "a length in more bytes than it needs");
                (len, rest)
            }
            len => (u64::from(len), rest),
        };
        let (payload, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        Some((first & 15, payload, rest))
    }

    #[test]
    fn headers_have_the_shortest_length() {
        let of = |opcode, len| {
            let mut out = Vec::new();
            header(opcode, len, &mut out);
            out
        };
        assert_eq!(of(Opcode::Text, 0), [0x81, 0]);
        assert_eq!(of(Opcode::Ping, 125), [0x89, 125]);
        assert_eq!(of(Opcode::Binary, 126), [0x82, 126, 0, 126]);
        assert_eq!(of(Opcode::Binary, 65535), [0x82, 126, 255, 255]);
        assert_eq!(of(Opcode::Binary, 65536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn messages_are_read_back() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(u32, bool)>().for_each(
            |&(len, text)| {
                let len = len % 200_000;
                let opcode = if text { Opcode::Text } else { Opcode::Binary };
                let mut bytes = Vec::new();
                header(opcode, u64::from(len), &mut bytes);
                bytes.resize(bytes.len() + len as usize, 7);
                bytes.extend_from_slice(b"next");
                let (read_opcode, payload, rest) = read(&bytes).expect("it is whole");
                assert_eq!((read_opcode, payload.len(), rest), (opcode as u8, len as usize, &b"next"[..]));
            },
        );
    }
}
