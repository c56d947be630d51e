//! WebSocket (RFC 6455) behind the handshake: frames of the sender, and a reader of the peer's.
//!
//! [`Messages`] writes each record as one message, whatever was dropped before it. [`Reader`] reads what the peer sends,
//! checks it, and makes the answers: pongs, and the closing handshake. They go between two records.
//!
//! A message in progress cannot be given up. Its length is in its first bytes, and a message in fragments has an end only
//! in its final fragment, so a receiver would take a part for the whole. Records therefore stay whole: keep them small
//! on slow paths.

mod frame;
mod messages;
mod reader;

pub use frame::{MAX_CONTROL_BYTES, MessageKind, Opcode, close, header, ping};
pub use messages::Messages;
pub use reader::{Event, Reader, Role, Violation};

#[cfg(test)]
pub(super) mod tests {
    use super::frame::FIN;
    use super::*;
    use crate::framing::Framer as _;

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

    /// The stream of these records, and where other frames may be interjected.
    fn stream(framer: &mut Messages, records: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut boundaries) = (Vec::new(), vec![0]);
        for (seq, record) in (0..).zip(records) {
            framer.begin(seq, record.len() as u32);
            while let Some(piece) = framer.next(1, &mut out) {
                out.extend_from_slice(&record[piece.payload.start as usize..piece.payload.end as usize]);
                if piece.boundary {
                    boundaries.push(out.len());
                }
                if piece.last {
                    break;
                }
            }
        }
        (out, boundaries)
    }

    fn events(bytes: &[u8]) -> Vec<Event> {
        let mut reader = Reader::new(Role::Client, 1 << 20);
        reader.push(bytes);
        reader.map(|event| event.expect("valid frames")).collect()
    }

    #[test]
    fn each_record_is_one_message() {
        let (bytes, _) = stream(&mut Messages::text(), &[b"one", b"", b"three"]);
        let text = |text: &str| Event::Text(text.to_owned());
        assert_eq!(events(&bytes), [text("one"), text(""), text("three")]);
        let odd = |seq: u64| if seq % 2 == 1 { MessageKind::Binary } else { MessageKind::Text };
        let (bytes, _) = stream(&mut Messages::by_number(odd), &[b"a", b"\xff"]);
        assert_eq!(events(&bytes), [text("a"), Event::Binary(vec![0xff])]);
    }

    #[test]
    fn a_ping_fits_between_any_two_pieces() {
        bolero::check!().with_iterations(500).with_type::<(Vec<Vec<u8>>, u8)>().for_each(
            |(records, fragment)| {
                let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
                let mut framer = Messages::binary().fragments(u32::from(*fragment));
                let (bytes, boundaries) = stream(&mut framer, &records);
                let mut pinged = Vec::new();
                for ends in boundaries.windows(2) {
                    ping(b"?", &mut pinged);
                    pinged.extend_from_slice(&bytes[ends[0]..ends[1]]);
                }
                let messages: Vec<_> = events(&pinged)
                    .into_iter()
                    .filter(|event| *event != Event::Ping(b"?".to_vec()))
                    .collect();
                let expected: Vec<_> = records.iter().map(|record| Event::Binary(record.to_vec())).collect();
                assert_eq!(messages, expected);
            },
        );
    }

    #[test]
    fn the_reason_of_a_close_is_cut_between_characters() {
        let mut out = Vec::new();
        close(1013, &"\u{fc}".repeat(70), &mut out);
        assert_eq!(events(&out), [Event::Close { code: Some(1013), reason: "\u{fc}".repeat(61) }]);
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
