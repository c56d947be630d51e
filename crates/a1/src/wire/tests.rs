use bolero::check;
use freshwire_choice::Reason;
use freshwire_record::Rate;
use std::time::Duration;

use super::*;
use crate::crypto::ResetToken;

fn frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, Malformed> {
    Frames::new(bytes).collect()
}

fn message() -> Message {
    Message {
        len: 5,
        seq: u64::from(u32::MAX) + 7,
        layer: 3,
        group: 70_000,
        key: 9,
        refs: [1, 0],
        generated_us: -123_456_789,
        lifetime_us: Some(0),
    }
}

fn every_frame() -> Vec<Frame<'static>> {
    let ranges = Ranges(vec![90..=100, 88..=88, 0..=3]);
    let address = "[ff02::1:2]:5004".parse().expect("an address");
    let invitation = Invitation { group: 9, address, key: [7; 32], next: 1 << 40, offset_us: u64::MAX };
    let block = BlockHead { id: 300, offset: 0, start: Some(message()), end: true };
    vec![
        Frame::Ping,
        Frame::Ack(Ack { ranges: ranges.clone(), delay_us: 25_000, at_us: u32::MAX, ce: 2 }),
        Frame::Nack(ranges.clone()),
        Frame::Whole { id: 5 },
        Frame::Group(invitation),
        Frame::GroupNack { group: 9, ranges },
        Frame::GroupGone { group: 9, id: 70_000, reason: Reason::Expired },
        Frame::GroupAt { group: 9, next: 300 },
        Frame::Sync { sent_us: 1 },
        Frame::SyncEcho(Echo { sent_us: 1, arrived_us: 70, held_us: 16_384 }),
        Frame::Gone { id: 77, len: 16_384, reason: Reason::Expired },
        Frame::Dropped { first: 5, count: 3, reason: Reason::LayerShed },
        Frame::Credit { messages: 64, bytes: 1 << 26 },
        Frame::Qos {
            serial: 1,
            qos: Qos { send_average: Some(Rate::from_bits_per_sec(7)), ..Qos::default() },
        },
        Frame::QosAck { serial: 1, qos: Qos::default() },
        Frame::Close { code: 0, reason: "done" },
        Frame::PathChallenge([1; 8]),
        Frame::PathResponse([2; 8]),
        Frame::Padding,
        Frame::Block(Block { head: block, bytes: b"hello" }),
    ]
}

#[test]
fn frames_come_back_as_they_were() {
    let mut bytes = Vec::new();
    let written = every_frame();
    for frame in &written {
        frame.put(&mut bytes);
    }
    assert_eq!(frames(&bytes).as_ref(), Ok(&written));
    for len in 0..bytes.len() {
        // A cut may fall between two frames or into the bytes of the last one; it never invents a frame.
        if let Ok(read) = frames(&bytes[..len]) {
            let same = read.iter().zip(&written).take_while(|(a, b)| a == b).count();
            assert!(same + 1 >= read.len(), "cut at {len}");
        }
    }
}

#[test]
fn a_block_with_a_length_leaves_room_for_more() {
    let head = BlockHead { id: 1, offset: 700, start: None, end: false };
    let mut bytes = Vec::new();
    head.put(None, &mut bytes);
    assert_eq!(bytes.len(), head.len());
    let first = BlockHead { start: Some(message()), offset: 0, ..head };
    bytes.clear();
    first.put(None, &mut bytes);
    assert_eq!(bytes.len(), first.len());
    bytes.clear();
    head.put(Some(2), &mut bytes);
    bytes.extend(b"ab");
    Frame::Ping.put(&mut bytes);
    assert_eq!(frames(&bytes), Ok(vec![Frame::Block(Block { head, bytes: b"ab" }), Frame::Ping]));
}

#[test]
fn a_message_like_the_one_before_it_has_a_short_head() {
    let head = |id, message| BlockHead { id, offset: 0, start: Some(message), end: true };
    let first = head(300, message());
    let alike = Message { seq: message().seq + 1, ..message() };
    let later =
        Message { seq: alike.seq + 1, generated_us: alike.generated_us - 3, len: 2, key: 70, ..alike };
    let mut bytes = Vec::new();
    first.put(Some(5), &mut bytes);
    bytes.extend(b"hello");
    let begin = bytes.len();
    let mut before = first;
    for (place, (message, text, len)) in [(alike, "again", 1), (later, "by", 5)].into_iter().enumerate() {
        let now = head(301 + place as u64, message);
        let next = Next::between(&before, &BlockHead { end: false, ..now }).expect("alike");
        let at = bytes.len();
        next.put(&mut bytes);
        assert_eq!((bytes.len() - at, next.encoded_len()), (len, len));
        bytes.extend(text.as_bytes());
        before = now;
    }
    Frame::Ping.put(&mut bytes);
    let block = |head, bytes| Frame::Block(Block { head, bytes });
    let read = vec![
        block(first, b"hello"),
        block(head(301, alike), b"again"),
        block(head(302, later), b"by"),
        Frame::Ping,
    ];
    assert_eq!(frames(&bytes), Ok(read));
    // It says nothing without the block before it.
    let unlike = Err(Malformed::OutOfBounds("what a message is like"));
    assert_eq!(frames(&bytes[begin..]), unlike);
    let mut apart = bytes[..begin].to_vec();
    Frame::Ping.put(&mut apart);
    apart.extend(&bytes[begin..]);
    assert_eq!(frames(&apart), unlike);
    let mut middle = Vec::new();
    BlockHead { start: None, offset: 7, ..first }.put(Some(0), &mut middle);
    middle.extend(&bytes[begin..]);
    assert_eq!(frames(&middle), unlike);
    assert_eq!(frames(&bytes[..begin + 3]), Err(Malformed::Truncated));
}

#[test]
fn a_head_names_only_what_is_not_as_usual() {
    let usual = Message {
        len: 100,
        seq: 9,
        layer: 0,
        group: 0,
        key: 0,
        refs: [0; 2],
        generated_us: 0,
        lifetime_us: None,
    };
    let cases = [
        (usual, 3),
        (Message { seq: 8, ..usual }, 4),
        (Message { seq: (1 << 62) - 1, ..usual }, 4),
        (Message { seq: (1 << 61) + 8, ..usual }, 11),
        (Message { seq: (1 << 61) + 9, ..usual }, 11),
        (Message { layer: 255, ..usual }, 4),
        (Message { group: 1, ..usual }, 4),
        (Message { key: 64, ..usual }, 5),
        (Message { refs: [1, 0], ..usual }, 4),
        (Message { refs: [0, u32::MAX], ..usual }, 11),
        (Message { generated_us: -1, ..usual }, 4),
        (Message { lifetime_us: Some(0), ..usual }, 4),
    ];
    for (message, len) in cases {
        let head = BlockHead { id: 9, offset: 0, start: Some(message), end: false };
        let mut bytes = Vec::new();
        head.put(None, &mut bytes);
        assert_eq!((bytes.len() - 2, head.len() - 2), (len, len), "{message:?}");
        assert_eq!(frames(&bytes), Ok(vec![Frame::Block(Block { head, bytes: b"" })]));
    }
}

#[test]
fn a_whole_message_is_as_long_as_its_head_says() {
    let head = BlockHead { id: 300, offset: 0, start: Some(message()), end: true };
    for len in [None, Some(5)] {
        let mut bytes = Vec::new();
        head.put(len, &mut bytes);
        assert_eq!(bytes.len(), head.len());
        bytes.extend(b"hello");
        Frame::Ping.put(&mut bytes);
        assert_eq!(frames(&bytes), Ok(vec![Frame::Block(Block { head, bytes: b"hello" }), Frame::Ping]));
        assert_eq!(frames(&bytes[..head.len() + 4]), Err(Malformed::Truncated));
        // There is no whole message with another length.
        bytes[0] |= 4;
        assert_eq!(frames(&bytes), Err(Malformed::UnknownType(0x0f)));
    }
}

#[test]
fn a_message_that_differs_otherwise_has_a_head_of_its_own() {
    let head = |id, message| BlockHead { id, offset: 0, start: Some(message), end: false };
    let before = head(300, message());
    let alike = Message { seq: message().seq + 1, ..message() };
    assert!(Next::between(&before, &head(301, alike)).is_some());
    for unlike in [
        head(302, alike),
        head(301, message()),
        head(301, Message { layer: 0, ..alike }),
        head(301, Message { group: 1, ..alike }),
        head(301, Message { refs: [0; 2], ..alike }),
        head(301, Message { lifetime_us: None, ..alike }),
        BlockHead { start: None, ..before },
    ] {
        assert_eq!(Next::between(&before, &unlike), None);
        assert_eq!(Next::between(&BlockHead { start: None, ..before }, &unlike), None);
    }
}

#[test]
fn parity_fits_the_room_that_is_kept_for_it() {
    let usual = Message {
        len: 1 << 20,
        seq: 1 << 28,
        generated_us: 1 << 40,
        lifetime_us: Some(2_000_000),
        ..message()
    };
    let parity = Parity { id: 1 << 28, message: usual, index: 9, count: 10, bytes: b"shard" };
    assert!(parity.len() <= PARITY_HEAD + parity.bytes.len());
    for parity in [parity, Parity { id: 7, message: message(), ..parity }] {
        let mut bytes = Vec::new();
        Frame::Repair(parity).put(&mut bytes);
        assert_eq!(bytes.len(), parity.len());
        assert_eq!(frames(&bytes), Ok(vec![Frame::Repair(parity)]));
    }
}

#[test]
fn a_block_stays_within_its_message() {
    let long = BlockHead { id: 1, offset: 0, start: Some(message()), end: false };
    let mut bytes = Vec::new();
    long.put(None, &mut bytes);
    bytes.extend(b"longer");
    assert_eq!(frames(&bytes), Err(Malformed::OutOfBounds("reach of a block")));
    let far = BlockHead { id: 1, offset: u32::MAX, start: None, end: true };
    bytes.clear();
    far.put(None, &mut bytes);
    bytes.push(0);
    assert_eq!(frames(&bytes), Err(Malformed::OutOfBounds("reach of a block")));
}

#[test]
fn handshake_packets_and_headers_come_back_as_they_were() {
    let header =
        DataHeader { to: 7, number: 8, phase: true, retransmitted: true, control: false, ack_now: true };
    let packets = [
        Packet::Initiation { version: VERSION, from: 9, cookie: b"cookie", noise: &[5; 400] },
        Packet::Retry { to: 9, cookie: &[3; 40] },
        Packet::Response { to: 9, from: 10, noise: &[6; 200] },
        Packet::Version { to: 9, version: VERSION },
        Packet::Data(header, b"sealed"),
        Packet::Group { group: 3, number: 4, sealed: b"sealed" },
        Packet::Reset { to: 7, token: ResetToken::from_bytes([9; 16]) },
    ];
    for packet in packets {
        let mut bytes = Vec::new();
        packet.put(&mut bytes);
        assert_eq!(Packet::parse(&bytes), Ok(packet));
        if let Packet::Initiation { .. } = packet {
            assert_eq!(bytes.len(), MIN_INITIATION);
            assert_eq!(Packet::parse(&bytes[..MIN_INITIATION - 1]), Err(Malformed::Truncated));
        }
        if let Packet::Retry { .. } | Packet::Version { .. } = packet {
            assert!(bytes.len() * 3 < MIN_INITIATION);
        }
    }
    let mut bytes = Vec::new();
    Packet::Data(header, b"").put(&mut bytes);
    assert!(is_urgent(&bytes));
    for (retransmitted, control) in [(true, false), (false, true)] {
        let mut bytes = Vec::new();
        Packet::Data(DataHeader { retransmitted, control, ..header }, b"").put(&mut bytes);
        assert!(is_urgent(&bytes), "retransmitted: {retransmitted}, control: {control}");
    }
    Packet::Data(DataHeader { retransmitted: false, control: false, ..header }, b"").put(&mut bytes);
    assert!(!is_urgent(&bytes[DATA_HEADER..]));
}

#[test]
fn parameters_come_back_as_they_were_and_are_bounded() {
    let parameters = Parameters {
        idle_timeout: Duration::from_secs(30),
        ack_delay: Duration::from_millis(25),
        max_datagram: 1472,
        protection: 1,
        maximum: Qos::default(),
        qos: Qos { outstanding: 3, checksum: false, ..Qos::default() },
        reset: None,
    };
    let mut bytes = Vec::new();
    parameters.put(&mut bytes);
    assert_eq!(Parameters::read(&mut Cursor::new(&bytes)), Ok(parameters));
    let parameters = Parameters { reset: Some(ResetToken::from_bytes([7; 16])), ..parameters };
    bytes.clear();
    parameters.put(&mut bytes);
    assert_eq!(Parameters::read(&mut Cursor::new(&bytes)), Ok(parameters));
    let cut = &bytes[..bytes.len() - 1];
    assert_eq!(Parameters::read(&mut Cursor::new(cut)), Err(Malformed::Truncated));
    bytes.extend([1, 2, 3]);
    assert_eq!(Parameters::read(&mut Cursor::new(&bytes)), Ok(parameters), "the rest is of a later version");
    let all = Qos::default();
    for (qos, what) in [
        (Qos { max_receive_message: Qos::MAX_MESSAGE + 1, ..all }, "largest message"),
        (Qos { outstanding: Qos::MAX_OUTSTANDING + 1, ..all }, "outstanding messages"),
        (Qos { outstanding: 0, ..all }, "outstanding messages"),
    ] {
        bytes.clear();
        qos.put(&mut bytes);
        assert_eq!(Qos::read(&mut Cursor::new(&bytes)), Err(Malformed::OutOfBounds(what)));
    }
}

#[test]
fn qos_narrows_and_mirrors() {
    let wide = Qos { send_average: None, priority: 9, ..Qos::default() };
    let narrow = Qos {
        send_average: Some(Rate::from_bits_per_sec(1000)),
        retransmission: false,
        outstanding: 2,
        ..Qos::default()
    };
    let both = wide.within(&narrow);
    assert_eq!(both, Qos { priority: 0, ..narrow });
    assert_eq!(both.mirrored().receive_average, both.send_average);
    assert_eq!(both.mirrored().mirrored(), both);
}

#[test]
fn an_invalid_quality_is_an_error_with_field_value_and_bounds() {
    let all = Qos {
        max_send_message: Qos::MAX_MESSAGE,
        max_receive_message: 0,
        outstanding: Qos::MAX_OUTSTANDING,
        ..Qos::default()
    };
    assert_eq!(all.check_range(), Ok(()));
    for (qos, text) in [
        (Qos { outstanding: 0, ..all }, "the number of outstanding messages: 0 is not from 1 to 65536"),
        (
            Qos { outstanding: 65_537, ..all },
            "the number of outstanding messages: 65537 is not from 1 to 65536",
        ),
        (
            Qos { max_send_message: 65 << 20, ..all },
            "the largest message to send: 68157440 is not from 0 to 67108864",
        ),
        (
            Qos { max_receive_message: 65 << 20, ..all },
            "the largest message to accept: 68157440 is not from 0 to 67108864",
        ),
    ] {
        assert_eq!(qos.check_range().map_err(|error| error.to_string()), Err(text.to_owned()));
        assert_eq!(qos.check(&qos), qos.check_range());
    }
}

#[test]
fn any_bytes_are_read_without_a_panic_and_written_alike() {
    check!().for_each(|bytes: &[u8]| {
        if let Ok(packet) = Packet::parse(bytes) {
            let mut again = Vec::new();
            packet.put(&mut again);
            assert_eq!(Packet::parse(&again), Ok(packet));
        }
        if let Ok(read) = frames(bytes) {
            let mut again = Vec::new();
            let sized = read
                .iter()
                .filter(|frame| {
                    matches!(
                        frame,
                        Frame::Block(_) | Frame::Run(_) | Frame::Repair(_) | Frame::GroupBlock { .. }
                    )
                })
                .count();
            for frame in &read {
                frame.put(&mut again);
            }
            if sized == 0 {
                assert_eq!(frames(&again), Ok(read));
            }
        }
    });
}
