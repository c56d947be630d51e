use super::*;
use crate::testing::read_in_parts;

fn stream(source: Source, records: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for seq in 0..records {
        source.record(seq).write(Timestamp::from_nanos(7), &mut bytes);
    }
    bytes
}

fn read_all(limit: u32, bytes: &[u8], step: usize) -> (Vec<Received>, Result<(), ReadError>) {
    let mut reader = Reader::new(limit);
    let (records, error) = read_in_parts(&mut reader, Reader::push, bytes, step);
    (records, error.map_or_else(|| reader.finish(), Err))
}

#[test]
fn the_header_is_laid_out_as_specified() {
    let header = Header {
        layer: 3,
        window: 0x0102_0304,
        record_bytes: 0x4000,
        seq: 0x1112_1314_1516_1718,
        submitted: Timestamp::from_nanos(0x2122_2324_2526_2728),
    };
    let bytes = header.encode();
    assert_eq!(&bytes[..8], b"FWLR\x01\x03\x00\x20");
    assert_eq!(bytes[8..16], [1, 2, 3, 4, 0, 0, 0x40, 0]);
    assert_eq!(bytes[16..24], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(bytes[24..], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
    assert_eq!(Header::decode(&bytes), Ok(header));
}

#[test]
fn each_wrong_field_has_its_error() {
    let good = Source::default().record(0).header(Timestamp::ZERO).encode();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Header::decode(&bytes)
    };
    assert_eq!(Header::decode(&good[..31]), Err(HeaderError::Short(31)));
    assert_eq!(with(3, b'X'), Err(HeaderError::Magic(*b"FWLX")));
    assert_eq!(with(4, 2), Err(HeaderError::Version(2)));
    assert_eq!(with(7, 33), Err(HeaderError::HeaderSize(33)));
    assert_eq!(with(14, 0), Err(HeaderError::RecordSize(0)));
}

#[test]
fn the_default_source_is_the_experiment() {
    let source = Source::default();
    assert_eq!(source.spacing(), Duration::from_millis(125));
    let base = source.record(8);
    assert_eq!((base.window, base.layer, base.refs, base.due), (1, 0, [0, 0], Duration::from_secs(1)));
    let top = source.record(15);
    assert_eq!((top.window, top.layer, top.refs, top.due), (1, 7, [1, 0], Duration::from_millis(1875)));
    assert_eq!(u64::from(source.record_bytes()) * 8, 128 * 1024);
}

#[test]
fn uneven_spacing_does_not_drift() {
    let source = Source::new(3, 64, Duration::from_secs(1)).unwrap();
    assert_eq!(source.record(3_000_000).due, Duration::from_secs(1_000_000));
    assert_eq!(source.record(u64::MAX).due, Duration::from_nanos(u64::MAX));
}

#[test]
fn a_source_that_cannot_be_is_refused() {
    let second = Duration::from_secs(1);
    assert_eq!(Source::new(0, 64, second), Err(SourceError::NoLayer));
    assert_eq!(Source::new(1, 31, second), Err(SourceError::SmallRecord(31)));
    assert_eq!(
        Source::new(8, 64, Duration::from_nanos(7)).map(|_| ()),
        Err(SourceError::ShortWindow(Duration::from_nanos(7)))
    );
}

#[test]
fn whole_records_come_out_at_any_split() {
    let source = Source::new(4, 100, Duration::from_secs(1)).unwrap();
    let bytes = stream(source, 20);
    let (expected, end) = read_all(100, &bytes, bytes.len());
    assert_eq!((expected.len(), end), (20, Ok(())));
    for step in [1, 7, 31, 32, 33, 100, 101] {
        assert_eq!(read_all(100, &bytes, step), (expected.clone(), Ok(())), "step {step}");
    }
}

#[test]
fn a_torn_record_is_found_at_its_byte() {
    let source = Source::new(4, 100, Duration::from_secs(1)).unwrap();
    let mut bytes = stream(source, 3);
    bytes.drain(150..170);
    assert_eq!(
        read_all(100, &bytes, 9),
        (read_all(100, &bytes[..100], 9).0, Err(ReadError::Payload { at: 150, seq: 1 }))
    );
    let bytes = &stream(source, 3)[..250];
    assert_eq!(read_all(100, bytes, 9).1, Err(ReadError::Torn { at: 200, bytes: 50 }));
    assert_eq!(read_all(100, &bytes[..210], 9).1, Err(ReadError::Torn { at: 200, bytes: 10 }));
}

#[test]
fn a_record_above_the_limit_is_refused_before_it_is_stored() {
    let bytes = stream(Source::default(), 1);
    let expected = ReadError::TooLarge { at: 0, record_bytes: 16384, limit: 16383 };
    assert_eq!(read_all(16383, &bytes[..32], 32).1, Err(expected));
}

#[test]
fn arbitrary_bytes_and_splits_give_one_result() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u8>, u8, bool)>().for_each(
        |(noise, step, valid_start)| {
            let mut bytes = if *valid_start {
                stream(Source::new(2, 40, Duration::from_secs(1)).unwrap(), 2)
            } else {
                Vec::new()
            };
            bytes.extend_from_slice(noise);
            let whole = read_all(4096, &bytes, bytes.len().max(1));
            assert_eq!(read_all(4096, &bytes, usize::from(*step).max(1)), whole);
        },
    );
}

/// Values of an independent reading of `spec/framing.md`.
//= spec/framing.md 18
#[test]
fn the_payload_is_as_specified() {
    let mut payload = [0; 20];
    fill_payload(3, &mut payload);
    assert_eq!(payload, PAYLOAD_OF_3);
    payload[17] ^= 1;
    assert_eq!(first_wrong_byte(3, &payload), Some(17));
}

const PAYLOAD_OF_3: [u8; 20] =
    [109, 136, 227, 1, 55, 167, 117, 126, 87, 167, 184, 208, 247, 213, 14, 77, 191, 189, 97, 237];
