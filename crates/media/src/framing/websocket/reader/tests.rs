//! The cases of the Autobahn test suite that matter for a server, and any bytes at all.

use super::*;

const LIMIT: usize = 1000;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A client's frame: the first byte as it is, then length, mask and masked payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header(Opcode::Text, payload.len() as u64, &mut out);
    out[0] = first;
    out[1] |= MASKED;
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// Events, the violation at the end, and the answers, of a stream in pieces of this size.
fn read_in(pieces: usize, bytes: &[u8]) -> (Vec<Event>, Option<Violation>, Vec<u8>) {
    let mut reader = Reader::new(Role::Server, LIMIT);
    let (mut events, mut violation, mut output) = (Vec::new(), None, Vec::new());
    for piece in bytes.chunks(pieces) {
        reader.push(piece);
        for event in reader.by_ref() {
            match event {
                Ok(event) => events.push(event),
                Err(error) => violation = Some(error),
            }
        }
        output.extend(reader.take_output());
    }
    assert_eq!(
        reader.is_closed(),
        violation.is_some() || matches!(events.last(), Some(Event::Close { .. })),
        "what ends the stream is the last item"
    );
    (events, violation, output)
}

fn read(bytes: &[u8]) -> (Vec<Event>, Option<Violation>, Vec<u8>) {
    let whole = read_in(usize::MAX, bytes);
    for pieces in 1..=bytes.len().min(40) {
        let (events, violation, _) = read_in(pieces, bytes);
        assert_eq!((&events, &violation), (&whole.0, &whole.1), "in pieces of {pieces}");
    }
    whole
}

fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

/// What the reader refuses, and the code of its close frame.
fn refusal(frames: &[Vec<u8>]) -> (Violation, u16) {
    let (_, violation, output) = read(&frames.concat());
    let violation = violation.expect("a violation");
    assert_eq!(output[0], 0x88, "a close frame answers it");
    let code = u16::from_be_bytes([output[2], output[3]]);
    assert_eq!(code, violation.code());
    assert_eq!(output.len(), 2 + usize::from(output[1]), "and nothing follows");
    (violation, code)
}

#[test]
fn messages_of_every_length_form_arrive() {
    for len in [0, 1, 125, 126, 127, 128, 999, 1000] {
        let payload = vec![b'x'; len];
        let (events, violation, output) = read(&[frame(0x82, &payload), frame(0x81, &payload)].concat());
        assert_eq!(events, [Event::Binary(payload.clone()), Event::Text("x".repeat(len))]);
        assert_eq!((violation, output.len()), (None, 0));
    }
    // The longest form for a short message is wasteful, and complete.
    let mut long = vec![0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 1];
    long.extend([0, 0, 0, 0, b'a']);
    assert_eq!(read(&long).0, [Event::Binary(b"a".to_vec())]);
}

#[test]
fn pings_are_answered_also_within_a_fragmented_message() {
    let bytes = [frame(0x01, b"frag"), frame(0x89, b"alive?"), frame(0x00, b"men"), frame(0x80, b"ted")];
    let (events, violation, output) = read(&bytes.concat());
    assert_eq!(events, [Event::Ping(b"alive?".to_vec()), text("fragmented")]);
    assert_eq!((violation, &output[..]), (None, &b"\x8a\x06alive?"[..]));
    let (_, _, output) = read(&frame(0x89, &[7; 125]));
    assert_eq!((output.len(), output[0]), (127, 0x8a));
}

#[test]
fn of_pings_at_once_the_last_is_answered() {
    let bytes = [frame(0x89, b"1"), frame(0x8a, b"unasked"), frame(0x89, b"2")].concat();
    let (events, _, output) = read_in(usize::MAX, &bytes);
    assert_eq!(events.len(), 3);
    assert_eq!(output, b"\x8a\x012");
}

#[test]
fn breaches_of_the_framing_end_with_1002() {
    for first in [0xc1, 0xa1, 0x91, 0xf2] {
        assert_eq!(refusal(&[frame(first, b"x")]), (Violation::ReservedBit, 1002), "{first:#x}");
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        assert_eq!(refusal(&[frame(0x80 | opcode, b"x")]), (Violation::Opcode(opcode), 1002));
    }
    assert_eq!(refusal(&[b"\x81\x01x".to_vec()]), (Violation::Mask, 1002), "not masked");
    assert_eq!(refusal(&[frame(0x09, b"x")]), (Violation::Control, 1002), "a ping in fragments");
    assert_eq!(refusal(&[frame(0x89, &[0; 126])]), (Violation::Control, 1002), "a long ping");
    assert_eq!(refusal(&[frame(0x08, b"")]), (Violation::Control, 1002), "a close in fragments");
    assert_eq!(refusal(&[frame(0x80, b"x")]), (Violation::Fragments, 1002), "nothing to continue");
    assert_eq!(refusal(&[frame(0x01, b"x"), frame(0x81, b"y")]), (Violation::Fragments, 1002));
    let endless = [&[0x82, 0xff][..], &u64::MAX.to_be_bytes(), &MASK].concat();
    assert_eq!(refusal(&[endless]), (Violation::Length, 1002));
}

#[test]
fn messages_before_a_breach_arrive() {
    let (events, violation, _) =
        read(&[frame(0x81, b"fine"), frame(0x83, b""), frame(0x81, b"late")].concat());
    assert_eq!((events, violation), (vec![text("fine")], Some(Violation::Opcode(3))));
}

#[test]
fn text_is_utf8() {
    let valid = "\u{3ba}\u{1f9f}\u{3c3}\u{3bc}\u{3b5} \u{10ffff}";
    let (first, second) = valid.as_bytes().split_at(3);
    let (events, ..) = read(&[frame(0x01, first), frame(0x80, second)].concat());
    assert_eq!(events, [text(valid)], "a character may be cut by a fragment");
    for invalid in [&b"\xce\xba\xed\xa0\x80"[..], b"\xf4\x90\x80\x80", b"\xff", b"a\xce", b"\xc0\xaf"] {
        assert_eq!(refusal(&[frame(0x81, invalid)]), (Violation::Utf8, 1007), "{invalid:x?}");
        assert_eq!(refusal(&[frame(0x01, b""), frame(0x80, invalid)]), (Violation::Utf8, 1007));
    }
}

#[test]
fn a_close_is_answered_with_its_code() {
    let close_with = |payload: &[u8]| read(&[frame(0x88, payload), frame(0x81, b"late")].concat());
    let event = |code, reason: &str| vec![Event::Close { code, reason: reason.to_owned() }];
    assert_eq!(close_with(b""), (event(None, ""), None, b"\x88\x00".to_vec()));
    for code in [1000_u16, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        let payload = [&code.to_be_bytes()[..], b"because"].concat();
        let answer = [&b"\x88\x02"[..], &code.to_be_bytes()].concat();
        assert_eq!(close_with(&payload), (event(Some(code), "because"), None, answer));
    }
    for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
        assert_eq!(refusal(&[frame(0x88, &code.to_be_bytes())]), (Violation::CloseCode, 1002), "{code}");
    }
    assert_eq!(refusal(&[frame(0x88, b"\x03")]), (Violation::CloseCode, 1002), "half a code");
    assert_eq!(refusal(&[frame(0x88, b"\x03\xe8\xff")]), (Violation::Utf8, 1007));
}

#[test]
fn a_message_above_the_limit_is_refused_before_it_is_stored() {
    let announced = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &MASK].concat();
    assert_eq!(refusal(&[announced]), (Violation::TooLarge(LIMIT), 1009));
    assert_eq!(
        refusal(&[frame(0x02, &[0; 600]), frame(0x80, &[0; 401])]),
        (Violation::TooLarge(LIMIT), 1009)
    );
    let full = [frame(0x02, &[0; 600]), frame(0x89, &[0; 125]), frame(0x80, &[0; 400])].concat();
    assert_eq!(read(&full).0.len(), 2, "a ping does not count");
}

/// Any bytes, cut anywhere: the same events, no panic, and memory within the limit.
#[test]
fn any_stream_is_read_alike_in_any_pieces() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u8>, u8)>().for_each(
        |(bytes, pieces)| {
            let whole = read_in(usize::MAX, bytes);
            let cut = read_in(usize::from(*pieces).max(1), bytes);
            assert_eq!((whole.0, whole.1), (cut.0, cut.1));
        },
    );
}

/// Frames that are well formed more often than random bytes are.
#[test]
fn any_frames_are_read_alike_in_any_pieces() {
    type Frames = Vec<(u8, bool, Vec<u8>)>;
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Frames, u8)>().for_each(
        |(frames, pieces)| {
            let opcodes = [0_u8, 0, 1, 1, 2, 2, 9, 10];
            let of = |(kind, fin, payload): &(u8, bool, Vec<u8>)| {
                let opcode = opcodes[usize::from(*kind) % opcodes.len()];
                let fin = *fin || opcode > 7;
                frame(if fin { FIN } else { 0 } | opcode, payload)
            };
            let bytes = frames.iter().flat_map(of).collect::<Vec<_>>();
            let whole = read_in(usize::MAX, &bytes);
            let cut = read_in(usize::from(*pieces).max(1), &bytes);
            assert_eq!((whole.0, whole.1), (cut.0, cut.1));
        },
    );
}
