use super::*;
use crate::coding::split::Headers as _;
use crate::testing::{self, PICTURES};

type Split = (Vec<AccessUnit>, Option<AnnexBError>);

fn split(stream: &[u8], step: usize, limit: usize) -> Split {
    let mut units = AccessUnits::new(limit);
    let mut result = (Vec::new(), None);
    let mut take = |units: &mut AccessUnits| {
        for item in units {
            match item {
                Ok(unit) => result.0.push(unit),
                Err(error) => result.1 = Some(error),
            }
        }
    };
    for part in stream.chunks(step.max(1)) {
        units.push(part);
        take(&mut units);
    }
    units.finish();
    take(&mut units);
    result
}

fn encode(options: &[&str]) -> Option<Vec<u8>> {
    testing::encode(&[&["-c:v", "libx264"], options].concat(), "h264")
}

fn decode(stream: &[u8]) -> (Vec<String>, String) {
    testing::decode(stream, "h264")
}

const LADDER: [&str; 2] = ["-x264-params", "bframes=3:b-pyramid=strict:b-adapt=0:keyint=32:scenecut=0"];

/// Dropping layers above `highest` leaves each remaining frame as it was.
fn assert_droppable(options: &[&str], highest: u8) {
    let Some(stream) = encode(options) else { return };
    let (units, error) = split(&stream, 1000, usize::MAX);
    assert_eq!((units.len(), error), (PICTURES, None));
    let (all, complaints) = decode(&stream);
    assert_eq!((all.len(), complaints.as_str()), (PICTURES, ""));

    let mut shown: Vec<&AccessUnit> = units.iter().collect();
    shown.sort_by_key(|unit| unit.display);
    let expected: Vec<_> = shown
        .iter()
        .zip(&all)
        .filter(|(unit, _)| unit.layer <= highest)
        .map(|(_, sum)| sum.clone())
        .collect();
    let kept: Vec<u8> =
        units.iter().filter(|unit| unit.layer <= highest).flat_map(|unit| unit.bytes.clone()).collect();
    assert_eq!(decode(&kept), (expected, String::new()), "layers up to {highest} of {options:?}");
}

#[test]
fn without_b_the_rest_is_bit_identical() {
    assert_droppable(&LADDER, 2);
}

#[test]
fn without_any_b_the_rest_is_bit_identical() {
    assert_droppable(&LADDER, 1);
}

#[test]
fn other_structures_lose_their_top_layer_unharmed() {
    assert_droppable(&["-x264-params", "bframes=3:b-pyramid=normal:b-adapt=2:ref=4:keyint=20"], 2);
    assert_droppable(&["-x264-params", "bframes=2:b-pyramid=none:open-gop=1:keyint=16:aud=1:slices=4"], 1);
}

#[test]
fn each_picture_needs_only_what_it_refers_to() {
    let Some(stream) = encode(&LADDER) else { return };
    let (units, _) = split(&stream, usize::MAX, usize::MAX);
    let (all, _) = decode(&stream);
    let mut display: Vec<usize> = (0..units.len()).collect();
    display.sort_by_key(|&at| units[at].display);
    for target in [7, 8, 9, 41, 42] {
        let mut needed = vec![false; units.len()];
        needed[target] = true;
        for at in (0..=target).rev() {
            if needed[at] {
                units[at]
                    .refs
                    .iter()
                    .filter(|&&back| back > 0)
                    .for_each(|&back| needed[at - back as usize] = true);
            }
        }
        let kept: Vec<u8> = units
            .iter()
            .zip(&needed)
            .filter(|(_, needed)| **needed)
            .flat_map(|(unit, _)| unit.bytes.clone())
            .collect();
        let expected: Vec<_> =
            display.iter().zip(&all).filter(|(at, _)| needed[**at]).map(|(_, sum)| sum.clone()).collect();
        assert_eq!(decode(&kept).0, expected, "picture {target}");
    }
}

#[test]
fn the_ladder_of_x264_is_found() {
    let Some(stream) = encode(&LADDER) else { return };
    let (units, _) = split(&stream, 4096, usize::MAX);
    let layers: Vec<u8> = units[..9].iter().map(|unit| unit.layer).collect();
    assert_eq!(layers, [0, 1, 2, 3, 3, 1, 2, 3, 3]);
    let refs: Vec<[u32; 2]> = units[..9].iter().map(|unit| unit.refs).collect();
    assert_eq!(refs, [[0, 0], [1, 0], [2, 1], [3, 1], [2, 3], [4, 0], [5, 1], [6, 1], [2, 3]]);
    let ranks: Vec<u8> = units[..5].iter().map(|unit| unit.ref_idc).collect();
    assert_eq!(ranks, [3, 2, 1, 0, 0]);
    let mut display: Vec<i64> = units.iter().map(|unit| unit.display).collect();
    display.sort_unstable();
    assert!(display.windows(2).all(|pair| pair[0] < pair[1]), "display order is total");
    assert!(units.iter().all(|unit| unit.idr == (unit.layer == 0)));
    assert_eq!(units.last().map(|unit| unit.group), Some(1));
    assert!(units.iter().all(|unit| unit.frame_ns == Some(40_000_000)), "25 pictures a second");
}

#[test]
fn without_b_pictures_the_chain_is_a_line() {
    let Some(stream) = encode(&["-x264-params", "bframes=0:keyint=16:scenecut=0:slices=3"]) else { return };
    let (units, error) = split(&stream, 333, usize::MAX);
    assert_eq!((units.len(), error), (PICTURES, None));
    for (at, unit) in units.iter().enumerate() {
        let expected = if at % 16 == 0 { (0, [0, 0]) } else { (1, [1, 0]) };
        assert_eq!((unit.layer, unit.refs), expected, "unit {at}");
        assert_eq!(
            unit.nals.iter().filter(|nal| matches!(nal.kind, 1 | 5)).count(),
            3,
            "slices of unit {at}"
        );
        assert_eq!(unit.group as usize, at / 16);
    }
}

#[test]
fn headers_go_with_the_picture_after_them() {
    let Some(stream) = encode(&["-x264-params", "aud=1:keyint=8:repeat-headers=1"]) else { return };
    let (units, _) = split(&stream, 64, usize::MAX);
    assert_eq!(units.iter().map(|unit| unit.bytes.len()).sum::<usize>(), stream.len());
    assert_eq!(
        units.iter().flat_map(|unit| unit.bytes.clone()).collect::<Vec<_>>(),
        stream,
        "no byte is lost"
    );
    for unit in &units {
        assert_eq!(unit.nals[0].kind, 9, "an access unit delimiter comes first");
        for nal in &unit.nals {
            assert_eq!(unit.bytes[nal.range.start] & 31, nal.kind);
            assert_eq!(unit.bytes[..nal.range.start].last_chunk(), Some(&[0, 0, 1]));
        }
    }
}

#[test]
fn a_unit_is_there_once_the_next_one_starts() {
    let Some(stream) = encode(&LADDER) else { return };
    let (expected, _) = split(&stream, usize::MAX, usize::MAX);
    let second = expected[0].bytes.len();
    let mut units = AccessUnits::default();
    units.push(&stream[..second + 3]);
    assert!(units.next().is_none());
    units.push(&stream[second + 3..second + 4 + H264::FIRST_BYTES + 3]);
    assert_eq!(units.next(), Some(Ok(expected[0].clone())));
}

#[test]
fn any_split_gives_the_same_units() {
    let Some(stream) =
        encode(&["-x264-params", "bframes=3:b-pyramid=strict:keyint=8:slices=2", "-frames:v", "12"])
    else {
        return;
    };
    let whole = split(&stream, usize::MAX, usize::MAX);
    assert_eq!((whole.0.len(), whole.1), (12, None));
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Vec<u16>>().for_each(|cuts| {
        let mut units = AccessUnits::default();
        let mut found = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts {
            let (part, after) = rest.split_at(usize::from(cut % 700).min(rest.len()));
            units.push(part);
            found.extend(units.by_ref().map(Result::unwrap));
            rest = after;
        }
        units.push(rest);
        units.finish();
        found.extend(units.map(Result::unwrap));
        assert!(found == whole.0);
    });
}

#[test]
fn other_data_than_a_stream_is_refused() {
    assert_eq!(split(b"RIFF....", 3, 100).1, Some(AnnexBError::NoStartCode));
    assert_eq!(split(&[0, 0, 0], 3, 100), (vec![], None));
    let slice = [0, 0, 0, 1, 0x65, 0x88, 0x84, 0, 0x10];
    assert_eq!(split(&slice, 2, 100).1, Some(AnnexBError::NoParameters { at: 4 }));
    assert_eq!(split(&[0, 0, 1, 0x67, 0x42], 9, 100).1, Some(AnnexBError::Parameters { at: 3 }));
    assert_eq!(split(&[0, 0, 1, 0x62, 0x42], 9, 100).1, Some(AnnexBError::Partitioned { at: 3 }));
    let long = [[0, 0, 1, 0x0c].as_slice(), &[7; 200]].concat();
    assert_eq!(split(&long, 9, 100).1, Some(AnnexBError::TooLarge { at: 0, limit: 100 }));
}

#[test]
fn arbitrary_bytes_give_one_result() {
    // A baseline parameter set pair, so that slices of arbitrary bytes are parsed as well.
    const SETS: [u8; 18] = [0, 0, 1, 0x67, 66, 0, 10, 0xf8, 0x41, 0xa2, 0, 0, 1, 0x68, 0xce, 0x38, 0x80, 0];
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u8>, u8, bool)>().for_each(
        |(noise, step, parameters)| {
            let mut bytes = if *parameters { SETS.to_vec() } else { Vec::new() };
            for byte in noise {
                match byte % 8 {
                    0 => bytes.extend([0, 0, 1, 0x41]),
                    1 => bytes.extend([0, 0, 0, 1, 0x65]),
                    2 => bytes.extend([0, 0]),
                    _ => bytes.push(*byte),
                }
            }
            let whole = split(&bytes, usize::MAX, 4096);
            let parts = split(&bytes, usize::from(*step), 4096);
            assert_eq!(parts, whole);
        },
    );
}
