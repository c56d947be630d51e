use super::chunked::{ChunkError, Event};
use super::length_prefixed::LengthError;
use super::*;
use crate::testing::read_in_parts;

/// Writes records in chunks of `max` bytes; `abandon_after` gives up a record at its n-th chunk boundary.
fn write(framing: Framing, records: &[(u64, Vec<u8>, Option<usize>)], max: usize) -> Vec<u8> {
    let mut stream = framing.preamble().to_vec();
    for (seq, payload, abandon_after) in records {
        let mut position = 0;
        let mut chunks = 0;
        while let Some(chunk) = framing.chunk(*seq, position, payload.len() as u32 - position, max) {
            assert!(chunk.prefix.as_bytes().len() + chunk.body as usize <= max);
            assert_eq!(chunk.prefix.as_bytes().len(), framing.prefix_bytes(position));
            stream.extend_from_slice(chunk.prefix.as_bytes());
            stream.extend_from_slice(&payload[position as usize..(position + chunk.body) as usize]);
            position += chunk.body;
            chunks += 1;
            if payload.is_empty() {
                break;
            }
            if Some(chunks) == *abandon_after && (position as usize) < payload.len() {
                stream.extend_from_slice(framing.abandon().unwrap().as_bytes());
                break;
            }
        }
    }
    stream
}

fn read_chunked(bytes: &[u8], step: usize, limit: usize) -> (Vec<Event>, Result<(), ChunkError>) {
    let mut reader = chunked::Reader::new(limit);
    let (events, error) = read_in_parts(&mut reader, chunked::Reader::push, bytes, step);
    (events, error.map_or_else(|| reader.finish(), Err))
}

fn read_lengths(bytes: &[u8], step: usize, limit: u32) -> (Vec<Vec<u8>>, Result<(), LengthError>) {
    let mut reader = length_prefixed::Reader::new(limit);
    let (records, error) = read_in_parts(&mut reader, length_prefixed::Reader::push, bytes, step);
    (records, error.map_or_else(|| reader.finish(), Err))
}

#[test]
fn chunk_headers_are_laid_out_as_specified() {
    let chunk = Framing::Chunked.chunk(0x1_0203_0405, 0, 1000, 208).unwrap();
    assert_eq!((chunk.prefix.as_bytes(), chunk.body), ([1, 0, 0, 200, 2, 3, 4, 5].as_slice(), 200));
    let chunk = Framing::Chunked.chunk(1, 200, 800, 2000).unwrap();
    assert_eq!((chunk.prefix.as_bytes(), chunk.body), ([2, 0, 3, 32].as_slice(), 800));
    assert_eq!(Framing::Chunked.abandon().unwrap().as_bytes(), [4, 0, 0, 0]);
    assert_eq!(Framing::Chunked.preamble(), b"FWCK\x01\0\0\0");
    assert_eq!(Framing::Chunked.chunk(1, 0, 9, 8), None, "no room for a payload byte");
    assert_eq!(Framing::Chunked.chunk(1, 9, 0, 100), None, "already finished");
}

#[test]
fn a_body_never_exceeds_its_length_field() {
    let chunk = Framing::Chunked.chunk(0, 0, u32::MAX, usize::MAX).unwrap();
    assert_eq!(
        (chunk.prefix.as_bytes(), chunk.body),
        ([1, 255, 255, 255, 0, 0, 0, 0].as_slice(), (1 << 24) - 1)
    );
}

//= spec/framing.md 1
#[test]
fn raw_adds_nothing_and_finishes_what_it_begins() {
    let chunk = Framing::Raw.chunk(5, 10, 100, 30).unwrap();
    assert_eq!((chunk.prefix.as_bytes(), chunk.body), ([].as_slice(), 30));
    assert_eq!((Framing::Raw.abandon(), Framing::LengthPrefixed.abandon()), (None, None));
}

//= spec/framing.md 11
#[test]
fn whole_records_or_abandonment_at_any_split() {
    let records =
        [(7, vec![1; 50], None), (8, vec![2; 90], Some(2)), (9, Vec::new(), None), (11, vec![3; 12], None)];
    let stream = write(Framing::Chunked, &records, 20);
    let expected = vec![
        Event::Record { id: 7, payload: vec![1; 50] },
        Event::Abandoned { id: 8, received: 12 + 16 },
        Event::Record { id: 9, payload: Vec::new() },
        Event::Record { id: 11, payload: vec![3; 12] },
    ];
    for step in [1, 2, 3, 5, 8, 64, 4096] {
        assert_eq!(read_chunked(&stream, step, 100), (expected.clone(), Ok(())), "step {step}");
    }
}

//= spec/framing.md 5, 8..10, 12, 14
#[test]
fn each_breach_has_its_error() {
    let after = |bytes: &[u8]| {
        let stream = [chunked::PREAMBLE.as_slice(), bytes].concat();
        read_chunked(&stream, 3, 10).1
    };
    assert_eq!(read_chunked(b"FWLR\x01\0\0\0", 8, 10).1, Err(ChunkError::Magic(*b"FWLR")));
    assert_eq!(read_chunked(b"FWCK\x02\0\0\0", 8, 10).1, Err(ChunkError::Version(2)));
    assert_eq!(read_chunked(b"FWCK\x01\0\0\x01", 8, 10).1, Err(ChunkError::Reserved { at: 0 }));
    assert_eq!(after(&[8, 0, 0, 1]), Err(ChunkError::Reserved { at: 8 }));
    assert_eq!(after(&[2, 0, 0, 1]), Err(ChunkError::NotStarted { at: 8 }));
    assert_eq!(after(&[4, 0, 0, 0]), Err(ChunkError::NotStarted { at: 8 }));
    assert_eq!(after(&[4, 0, 0, 1]), Err(ChunkError::Shape { at: 8, flags: 4, body: 1 }));
    assert_eq!(after(&[1, 0, 0, 0, 0, 0, 0, 0]), Err(ChunkError::Shape { at: 8, flags: 1, body: 0 }));
    let nested = [1, 0, 0, 1, 0, 0, 0, 9, 55, 1, 0, 0, 1, 0, 0, 0, 10];
    assert_eq!(after(&nested), Err(ChunkError::Nested { at: 17, open: 9 }));
    let large = [1, 0, 0, 11, 0, 0, 0, 9];
    assert_eq!(after(&large), Err(ChunkError::TooLarge { at: 8, id: 9, bytes: 11, limit: 10 }));
    assert_eq!(after(&[1, 0, 0, 2, 0, 0, 0, 9, 1]), Err(ChunkError::Torn { at: 17, inside: "a record" }));
    assert_eq!(after(&[1, 0]), Err(ChunkError::Torn { at: 10, inside: "a chunk header" }));
    assert_eq!(read_chunked(b"FWC", 8, 10).1, Err(ChunkError::Torn { at: 3, inside: "the preamble" }));
    assert_eq!(read_chunked(b"", 8, 10).1, Ok(()));
}

#[test]
fn length_prefixed_records_at_any_split() {
    let records = [(0, vec![1; 5], None), (1, Vec::new(), None), (2, vec![2; 3], None)];
    let stream = write(Framing::LengthPrefixed, &records, 6);
    assert_eq!(stream, [0, 0, 0, 5, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 3, 2, 2, 2]);
    for step in [1, 3, 4, 5, 100] {
        assert_eq!(
            read_lengths(&stream, step, 5),
            (vec![vec![1; 5], vec![], vec![2; 3]], Ok(())),
            "step {step}"
        );
    }
    assert_eq!(read_lengths(&stream, 4, 4).1, Err(LengthError::TooLarge { at: 0, bytes: 5, limit: 4 }));
    assert_eq!(read_lengths(&stream[..15], 4, 5).1, Err(LengthError::Torn { at: 15, begin: 13 }));
    assert_eq!(read_lengths(&stream[..18], 4, 5).1, Err(LengthError::Torn { at: 18, begin: 13 }));
}

#[test]
fn written_values_are_read_back() {
    type Input = (Vec<(u32, Vec<u8>, Option<u8>)>, u8, u8);
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Input>().for_each(
        |(records, max, step)| {
            let records: Vec<_> = records
                .iter()
                .map(|(seq, payload, abandon)| {
                    (u64::from(*seq), payload.clone(), abandon.map(|n| usize::from(n).max(1)))
                })
                .collect();
            let max = usize::from(*max).max(9);
            let stream = write(Framing::Chunked, &records, max);
            let (events, end) = read_chunked(&stream, usize::from(*step).max(1), usize::MAX);
            assert_eq!(end, Ok(()));
            assert_eq!(events.len(), records.len());
            for (event, (seq, payload, abandon)) in events.iter().zip(&records) {
                match event {
                    Event::Record { id, payload: read } => assert_eq!((*id, read), (*seq as u32, payload)),
                    Event::Abandoned { id, received } => {
                        assert_eq!(*id, *seq as u32);
                        assert!(abandon.is_some() && *received < payload.len());
                    }
                }
            }
        },
    );
}

#[test]
fn arbitrary_bytes_and_splits_give_one_result() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u8>, u8, bool)>().for_each(
        |(noise, step, valid_start)| {
            let mut bytes = if *valid_start { chunked::PREAMBLE.to_vec() } else { Vec::new() };
            bytes.extend(noise.iter().map(|byte| if *valid_start { byte % 8 } else { *byte }));
            let (step, all) = (usize::from(*step).max(1), bytes.len().max(1));
            assert_eq!(read_chunked(&bytes, step, 1000), read_chunked(&bytes, all, 1000));
            assert_eq!(read_lengths(&bytes, step, 1000), read_lengths(&bytes, all, 1000));
        },
    );
}

#[test]
fn a_record_is_complete_however_little_room_there_is() {
    for framing in [Framing::Raw, Framing::LengthPrefixed, Framing::Chunked] {
        for max in 0..12 {
            let mut framer: Box<dyn Framer> = framing.into();
            framer.begin(7, 20);
            let mut prefix = Vec::new();
            let pieces = std::iter::from_fn(|| framer.next(max, &mut prefix));
            let payload: u32 = pieces.map(|piece| piece.payload.end - piece.payload.start).sum();
            assert_eq!(payload, 20, "{framing:?} in pieces of {max}");
        }
    }
}
