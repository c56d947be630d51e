use bolero::{check, produce};

use super::*;
use crate::testing::ITERATIONS;

const BOUNDS: Bounds = Bounds { message: 1 << 16, chunk_streams: 4 };

fn message(timestamp: u32, kind: u8, body: &[u8]) -> Message {
    Message { timestamp, kind, stream: 1, body: body.to_vec() }
}

fn read(bytes: &[u8], step: usize) -> (Vec<Message>, Option<ChunkError>) {
    crate::testing::read_in_parts(&mut MessageReader::new(BOUNDS), MessageReader::push, bytes, step)
}

/// The bytes of a header in hexadecimal digits, and a payload.
fn chunk(header: &str, payload: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = header.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let text = |pair: &[u8]| String::from_utf8(pair.to_vec()).unwrap();
    let mut bytes: Vec<u8> =
        digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).unwrap()).collect();
    bytes.extend(payload);
    bytes
}

#[test]
fn messages_come_back_whatever_their_size_and_time() {
    let times = produce::<Vec<(u32, u16, u8)>>().with().len(0..6usize);
    check!().with_iterations(ITERATIONS).with_generator((times, 1..3000usize, 1..5000usize)).for_each(
        |(parts, chunk_bytes, step)| {
            let mut bytes = Vec::new();
            let size = u32::try_from(*chunk_bytes).unwrap().to_be_bytes();
            let mut expected = vec![message(0, kind::SET_CHUNK_SIZE, &size)];
            expected[0].write(2, DEFAULT_CHUNK_BYTES, &mut bytes);
            for (timestamp, len, kind) in parts {
                let sent = message(*timestamp, 4 + kind % 16, &vec![*kind; usize::from(*len)]);
                sent.write(3 + kind % 3, *chunk_bytes, &mut bytes);
                expected.push(sent);
            }
            assert_eq!(read(&bytes, *step), (expected, None));
        },
    );
}

#[test]
fn later_headers_refer_to_earlier_ones() {
    let bytes = [
        chunk("03 00000a 000002 08 01000000", b"ab"),
        // A difference of 5 ms, and a length of its own.
        chunk("43 000005 000001 08", b"c"),
        chunk("83 000007", b"d"),
        // The same difference again.
        chunk("c3", b"e"),
    ]
    .concat();
    let (messages, error) = read(&bytes, 1);
    let seen: Vec<_> = messages.iter().map(|it| (it.timestamp, it.stream, &it.body[..])).collect();
    assert_eq!(error, None);
    assert_eq!(seen, [(10, 1, &b"ab"[..]), (15, 1, b"c"), (22, 1, b"d"), (29, 1, b"e")]);
}

#[test]
fn chunk_streams_interleave() {
    let bytes = [
        chunk("04 000000 000081 09 01000000", &[9; 128]),
        chunk("05 000000 000001 08 01000000", b"s"),
        chunk("c4", b"v"),
    ]
    .concat();
    let (messages, error) = read(&bytes, 7);
    assert_eq!((messages.len(), error), (2, None));
    assert_eq!((messages[0].kind, messages[1].kind, messages[1].body.len()), (8, 9, 129));
}

#[test]
fn long_times_may_be_left_out_where_a_message_continues() {
    let begin = chunk("04 ffffff 000081 09 01000000 01000000", &[9; 128]);
    for header in ["c4 01000000", "c4"] {
        let bytes = [begin.clone(), chunk(header, b"v"), chunk("04 ffffff 000000 09 01000000 fffffffe", b"")];
        let (messages, error) = read(&bytes.concat(), 3);
        assert_eq!(error, None);
        assert_eq!(messages[0].timestamp, 1 << 24);
        assert_eq!((messages[0].body.len(), messages[1].timestamp), (129, u32::MAX - 1));
    }
    // Without a whole header before it: librtmp.
    let (messages, error) = read(&chunk("42 000000 000004 05", &[0, 0, 0, 1]), 9);
    assert_eq!((messages[0].stream, error), (0, None));
}

#[test]
fn an_aborted_message_makes_room() {
    let bytes = [
        chunk("04 000000 000081 09 01000000", &[9; 128]),
        chunk("02 000000 000004 02 00000000", &[0, 0, 0, 4]),
        chunk("04 000000 000001 08 01000000", b"s"),
    ]
    .concat();
    let (messages, error) = read(&bytes, 5);
    let kinds: Vec<_> = messages.iter().map(|message| message.kind).collect();
    assert_eq!((&kinds[..], error), (&[kind::ABORT, kind::AUDIO][..], None));
}

/// No kind of message is free, however it is cut.
#[test]
fn all_bytes_and_chunks_cost() {
    for kind in 1..=22 {
        for len in [0, 4, 100, 1000, 20_000] {
            for chunk_bytes in [1_usize, 2, 63, 64, 128, 20_000] {
                let size = u32::try_from(chunk_bytes).unwrap().to_be_bytes();
                let (mut bytes, mut body) = (Vec::new(), vec![1; len]);
                message(0, kind::SET_CHUNK_SIZE, &size).write(2, DEFAULT_CHUNK_BYTES, &mut bytes);
                // The largest size of chunks there is.
                body.iter_mut().take(1).for_each(|first| *first = 0x7f);
                message(u32::MAX, kind, &body).write(3, chunk_bytes, &mut bytes);
                let mut reader = MessageReader::new(BOUNDS);
                reader.push(&bytes);
                assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2, "{kind} {len} {chunk_bytes}");
                let chunks = 1 + len.div_ceil(chunk_bytes).max(1);
                let least = bytes.len().max(chunks * LEAST_CHUNK_COST) as u64;
                let most = (bytes.len() + chunks * LEAST_CHUNK_COST) as u64;
                assert!((least..=most).contains(&reader.cost()), "{kind} {len} {chunk_bytes}");
            }
        }
    }
}

/// Whole chunks of programs' usual size cost their bytes only.
#[test]
fn media_cost_little_more_than_their_bytes() {
    for chunk_bytes in [DEFAULT_CHUNK_BYTES, 4096] {
        let mut bytes = Vec::new();
        let size = u32::try_from(chunk_bytes).unwrap().to_be_bytes();
        message(0, kind::SET_CHUNK_SIZE, &size).write(2, DEFAULT_CHUNK_BYTES, &mut bytes);
        message(0, kind::VIDEO, &[0; 60_000]).write(6, chunk_bytes, &mut bytes);
        let mut reader = MessageReader::new(BOUNDS);
        reader.push(&bytes);
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
        let extra = reader.cost() - bytes.len() as u64;
        assert!(extra <= 2 * LEAST_CHUNK_COST as u64, "{extra}");
    }
}

#[test]
fn hostile_chunks_are_refused() {
    let cases = [
        (chunk("83 000000", b"x"), ChunkError::NoHeader(3)),
        (chunk("03 000000 010001 09 01000000", b""), ChunkError::TooLarge { len: 65537, limit: 65536 }),
        (chunk("02 000000 000004 01 00000000", &[0x80, 0, 0, 0]), ChunkError::ChunkSize),
        (
            [chunk("04 000000 000081 09 01000000", &[9; 128]), chunk("04 000000 000001 08 01000000", b"s")]
                .concat(),
            ChunkError::Torn(4),
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(read(&bytes, 2), (Vec::new(), Some(error)));
    }
    let many: Vec<u8> =
        (3..8).flat_map(|id| chunk(&format!("{id:02x} 000000 000000 09 01000000"), b"")).collect();
    assert_eq!(read(&many, 9).1, Some(ChunkError::TooMany(4)));
}

/// Announcements of the largest message on each chunk stream take no more than the limit of one.
#[test]
fn incomplete_messages_are_bounded_together() {
    let mut bytes = chunk("02 000000 000004 01 00000000", &[0, 0, 0x70, 0]);
    for id in 3..6 {
        bytes.extend(chunk(&format!("{id:02x} 000000 010000 09 01000000"), &[9; 0x7000]));
    }
    let (messages, error) = read(&bytes, 4096);
    assert!(messages.len() == 1 && matches!(error, Some(ChunkError::TooLarge { .. })), "{error:?}");
}

#[test]
fn an_aggregate_has_messages() {
    let tag = |kind: u8, time: u8, body: &[u8]| {
        let head = [kind, 0, 0, body.len() as u8, 0, 0, time, 0, 0, 0, 0];
        [&head[..], body, &[0, 0, 0, 11 + body.len() as u8]].concat()
    };
    let body = [tag(8, 5, b"ab"), tag(9, 9, b"c"), vec![8, 0, 0, 9]].concat();
    let whole = Message { timestamp: 1000, kind: kind::AGGREGATE, stream: 1, body };
    let parts: Vec<_> = whole.parts().collect();
    let seen: Vec<_> = parts.iter().map(|it| (it.kind, it.timestamp, &it.body[..])).collect();
    assert_eq!(seen, [(8, 1000, &b"ab"[..]), (9, 1004, b"c")]);
}

/// Any bytes give messages or an error, and hold no more than the bounds.
#[test]
fn any_bytes() {
    check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let mut reader = MessageReader::new(BOUNDS);
        for part in bytes.chunks(11) {
            reader.push(part);
            while let Some(Ok(message)) = reader.next() {
                assert!(message.body.len() <= BOUNDS.message);
            }
            let held: usize = reader.streams.values().map(|stream| stream.body.len()).sum();
            assert!(held == reader.incomplete && held <= BOUNDS.message || reader.buffer.has_failed());
            assert!(reader.streams.len() <= BOUNDS.chunk_streams);
        }
    });
}
