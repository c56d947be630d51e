use std::sync::Arc;

use super::*;
use crate::testing::{self, PICTURES, decode, ivf};

/// What a parser makes of whole units.
fn parse(format: Format, units: &[&[u8]]) -> (Vec<Coded>, u64) {
    let mut parser = Parser::new(format);
    let mut found = Vec::new();
    for unit in units {
        parser.push(unit);
        parser.complete();
        found.extend(parser.by_ref().map(Result::unwrap));
    }
    (found, parser.dropped())
}

/// Moving detail, encoded.
fn encode(format: Format, options: &[&str]) -> Option<Vec<u8>> {
    testing::encode(options, muxer(format))
}

fn muxer(format: Format) -> &'static str {
    match format {
        Format::H264 => "h264",
        Format::H265 => "hevc",
        Format::Av1 | Format::Vp9 => "ivf",
    }
}

/// The whole stream's units.
fn units_of(format: Format, stream: &[u8]) -> Vec<Coded> {
    let (units, dropped) = match format {
        Format::H264 | Format::H265 => {
            let mut parser = Parser::new(format);
            let mut found = Vec::new();
            for part in stream.chunks(700) {
                parser.push(part);
                found.extend(parser.by_ref().map(Result::unwrap));
            }
            parser.finish();
            found.extend(parser.by_ref().map(Result::unwrap));
            (found, parser.dropped())
        }
        Format::Av1 | Format::Vp9 => parse(format, &ivf(stream)),
    };
    assert_eq!((units.len(), dropped), (PICTURES, 0));
    units
}

/// A file of the units for which `keep` holds.
fn file_of(format: Format, units: &[Coded], keep: impl Fn(usize) -> bool) -> Vec<u8> {
    let kept = units.iter().enumerate().filter(|&(at, _)| keep(at));
    if matches!(format, Format::H264 | Format::H265) {
        return kept.flat_map(|(_, unit)| unit.bytes.clone()).collect();
    }
    let fourcc: &[u8] = if format == Format::Av1 { b"AV01" } else { b"VP90" };
    let mut file =
        [b"DKIF\0\0\x20\0".as_slice(), fourcc, &[192, 0, 128, 0, 25, 0, 0, 0, 1, 0, 0, 0]].concat();
    file.extend([0; 8]);
    for (at, unit) in kept {
        file.extend((unit.bytes.len() as u32).to_le_bytes());
        file.extend((at as u64).to_le_bytes());
        file.extend(&unit.bytes);
    }
    file
}

/// Whatever is dropped, together with what depends on it, leaves each remaining frame as it was. `layers` are those that
/// the stream must have.
fn assert_droppable(format: Format, options: &[&str], layers: &[u8]) {
    let Some(stream) = encode(format, options) else { return };
    let units = units_of(format, &stream);
    for &layer in layers {
        assert!(units.iter().any(|unit| unit.layer == layer), "no layer {layer} in {options:?}");
    }
    let (all, complaints) = decode(&file_of(format, &units, |_| true), muxer(format));
    assert_eq!((all.len(), complaints.as_str()), (PICTURES, ""), "{options:?}");
    let mut shown: Vec<usize> = (0..units.len()).collect();
    shown.sort_by_key(|&at| units[at].display);
    let check = |kept: &[bool], what: &str| {
        let expected: Vec<String> =
            shown.iter().zip(&all).filter(|(at, _)| kept[**at]).map(|(_, sum)| sum.clone()).collect();
        let found = decode(&file_of(format, &units, |at| kept[at]), muxer(format));
        assert!(found.0 == expected, "{what} of {options:?}");
        // The encoder tells the decoder to forget a picture that it never got, which does no harm.
        let complaints: Vec<&str> =
            found.1.lines().filter(|line| !line.contains("mmco: unref short failure")).collect();
        assert_eq!(complaints, [""; 0], "{what} of {options:?}");
    };
    for highest in [2, 1] {
        let kept: Vec<bool> = units.iter().map(|unit| unit.layer <= highest).collect();
        let closed = kept.iter().enumerate().all(|(at, &kept_one)| {
            !kept_one || units[at].refs.iter().all(|&back| back == 0 || kept[at - back as usize])
        });
        assert!(closed, "layers up to {highest} need others in {options:?}");
        check(&kept, "lower layers");
    }
    for lost in [9, 23, 41] {
        let mut kept = vec![true; units.len()];
        kept[lost] = false;
        for at in 0..units.len() {
            kept[at] &= units[at].refs.iter().all(|&back| back == 0 || kept[at - back as usize]);
        }
        check(&kept, "without a unit and its dependants");
    }
}

const OPEN_H264: &[u8] = include_bytes!("fixtures/open.h264");
const OPEN_H265: &[u8] = include_bytes!("fixtures/open.h265");
const LAYERS_VP9: &[u8] = include_bytes!("fixtures/layers.vp9.ivf");
const HIERARCHICAL_AV1: &[u8] = include_bytes!("fixtures/hierarchical.av1.ivf");

/// 20 units of a byte stream, cut into parts of `step` bytes.
fn stream(format: Format, bytes: &[u8], step: usize) -> Vec<Coded> {
    let mut parser = Parser::new(format);
    let mut found = Vec::new();
    for part in bytes.chunks(step) {
        parser.push(part);
        found.extend(parser.by_ref().map(Result::unwrap));
    }
    parser.finish();
    found.extend(parser.by_ref().map(Result::unwrap));
    found
}

fn ladder(units: &[Coded]) -> String {
    units.iter().map(|unit| unit.layer.to_string()).collect()
}

/// For the key of each group: the units of the group that depend on the one before it.
fn reaching_back(units: &[Coded]) -> Vec<(usize, Vec<usize>)> {
    let keys = (0..units.len()).filter(|&at| units[at].key);
    keys.map(|key| {
        let members = (key..units.len()).filter(|&at| units[at].group == units[key].group);
        let back = |at: &usize| units[*at].refs.iter().any(|&back| back > 0 && at - (back as usize) < key);
        (key, members.filter(back).collect())
    })
    .collect()
}

#[test]
fn leading_pictures_depend_on_the_group_before() {
    for (format, bytes) in [(Format::H264, OPEN_H264), (Format::H265, OPEN_H265)] {
        let units = stream(format, bytes, 33);
        assert_eq!(units.len(), 20);
        assert_eq!(stream(format, bytes, usize::MAX), units, "cut elsewhere");
        let groups = reaching_back(&units);
        assert!(groups.len() > 1 && groups[1..].iter().any(|(_, back)| !back.is_empty()), "{groups:?}");
        for (key, back) in groups {
            assert_eq!(units[key].refs, [0, 0]);
            for at in back {
                assert!(units[at].display < units[key].display, "unit {at} is shown after key {key}");
            }
        }
    }
}

#[test]
fn a_stream_that_is_joined_late_begins_at_a_key() {
    for (format, bytes) in [(Format::H264, OPEN_H264), (Format::H265, OPEN_H265)] {
        let whole = stream(format, bytes, usize::MAX);
        let key = (1..whole.len()).find(|&at| whole[at].key).unwrap();
        let joined: Vec<u8> = whole[key - 2..].iter().flat_map(|unit| unit.bytes.clone()).collect();
        let mut parser = Parser::new(format);
        parser.push(&joined);
        parser.finish();
        let units: Vec<Coded> = parser.by_ref().map(Result::unwrap).collect();
        assert!(units[0].key);
        assert_eq!(units[0].bytes, whole[key].bytes);
        let expected: Vec<&[u8]> = whole[key..]
            .iter()
            .filter(|unit| unit.group != whole[key].group || unit.display >= whole[key].display)
            .map(|unit| unit.bytes.as_slice())
            .collect();
        let found: Vec<&[u8]> = units.iter().map(|unit| unit.bytes.as_slice()).collect();
        assert!(found == expected, "{format:?}: leading pictures are left out");
        assert_eq!(parser.dropped() as usize, 2 + whole.len() - key - units.len());
    }
}

#[test]
fn units_are_normalised() {
    for (format, bytes) in [(Format::H264, OPEN_H264), (Format::H265, OPEN_H265)] {
        for (at, unit) in stream(format, bytes, 100).iter().enumerate() {
            let mut rebuilt = Vec::new();
            let mut kinds = Vec::new();
            for nal in &unit.nals {
                let nal = &unit.bytes[nal.start as usize..nal.end as usize];
                rebuilt.extend([0, 0, 0, 1]);
                rebuilt.extend(nal);
                kinds.push(if format == Format::H264 { nal[0] & 31 } else { nal[0] >> 1 & 63 });
            }
            assert_eq!(rebuilt, unit.bytes, "unit {at}");
            let (sets, delimiter): (&[u8], u8) =
                if format == Format::H264 { (&[7, 8], 9) } else { (&[32, 33, 34], 35) };
            assert!(!kinds.contains(&delimiter), "unit {at}: {kinds:?}");
            assert_eq!(kinds.starts_with(sets), unit.key, "unit {at}: {kinds:?}");
            assert_eq!((unit.track.width, unit.track.height), (96, 64));
            assert_eq!(unit.frame_ns, Some(40_000_000));
            assert_eq!(unit.reorder, 2);
        }
    }
}

#[test]
fn parameter_sets_that_came_once_are_in_each_key() {
    let units = stream(Format::H264, OPEN_H264, usize::MAX);
    let mut bare = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        for nal in &unit.nals {
            let nal = &unit.bytes[nal.start as usize..nal.end as usize];
            if at == 0 || !matches!(nal[0] & 31, 7 | 8) {
                bare.extend([0, 0, 1]);
                bare.extend(nal);
            }
        }
    }
    assert_eq!(stream(Format::H264, &bare, usize::MAX), units);
}

#[test]
fn a_missing_reference_shuts_the_stream_until_a_key() {
    for (format, bytes) in [(Format::H264, OPEN_H264), (Format::H265, OPEN_H265)] {
        let units = stream(format, bytes, usize::MAX);
        let lost = units.iter().position(|unit| unit.layer == 1).unwrap();
        let rest: Vec<&[u8]> =
            (0..units.len()).filter(|&at| at != lost).map(|at| &units[at].bytes[..]).collect();
        let (found, dropped) = parse(format, &rest);
        assert!(dropped > 0);
        let next = (1..units.len()).find(|&at| units[at].key).unwrap();
        let second = found.iter().position(|unit| unit.group == 1).unwrap();
        assert!(second < lost + 1, "{format:?}: {second}");
        assert_eq!(found[second].bytes, units[next].bytes);
    }
}

#[test]
fn a_too_large_unit_is_an_error_and_not_the_end() {
    let units = stream(Format::H265, OPEN_H265, usize::MAX);
    let mut parser = Parser::with_limit(Format::H265, 4000);
    parser.push(&units[0].bytes);
    parser.push(&[7; 5000]);
    assert_eq!(parser.next(), Some(Err(VideoError::TooLarge { limit: 4000 })));
    for unit in &units {
        parser.push(&unit.bytes);
    }
    parser.finish();
    assert!(parser.next().unwrap().unwrap().key);

    let frames = ivf(LAYERS_VP9);
    let mut parser = Parser::with_limit(Format::Vp9, 4000);
    parser.push(&[7; 5000]);
    parser.complete();
    assert_eq!(parser.next(), Some(Err(VideoError::TooLarge { limit: 4000 })));
    parser.push(frames[0]);
    parser.complete();
    assert!(parser.next().unwrap().unwrap().key);
}

#[test]
fn whole_units_have_their_ladder() {
    let (vp9, dropped) = parse(Format::Vp9, &ivf(LAYERS_VP9));
    assert_eq!((ladder(&vp9).as_str(), dropped), ("03131313130313131313", 0));
    assert_eq!(vp9[3].refs, [1, 0]);
    assert_eq!((vp9[0].track.width, vp9[0].track.height), (96, 64));
    let (av1, dropped) = parse(Format::Av1, &ivf(HIERARCHICAL_AV1));
    assert_eq!((av1.len(), dropped), (20, 0));
    assert_eq!((av1[0].track.width, av1[0].track.height), (96, 64));
    assert!(av1.iter().all(|unit| unit.bytes.first() != Some(&0x12)), "no temporal delimiter");
    assert_eq!(av1.iter().filter(|unit| unit.key).count(), 2);
    assert!(av1.iter().any(|unit| unit.layer == 3));
    let later = av1.iter().rposition(|unit| unit.key).unwrap();
    let (joined, dropped) = parse(Format::Av1, &ivf(HIERARCHICAL_AV1)[later - 2..]);
    assert_eq!((joined.len(), dropped), (20 - later, 2));
}

#[test]
fn an_av1_key_without_sequence_header_gets_the_last_one() {
    let frames = ivf(HIERARCHICAL_AV1);
    let (whole, _) = parse(Format::Av1, &frames);
    let key = whole.iter().rposition(|unit| unit.key).unwrap();
    let bare = &whole[key].bytes[2 + usize::from(whole[key].bytes[1])..];
    let (units, dropped) = parse(Format::Av1, &[&frames[..key], &[bare]].concat());
    assert_eq!((units.last().map(|unit| &unit.bytes), dropped), (Some(&whole[key].bytes), 0));
}

#[test]
fn a_changed_picture_size_is_a_new_track() {
    let mut other = OPEN_H264.to_vec();
    other.extend(OPEN_H264);
    let units = stream(Format::H264, &other, usize::MAX);
    assert!(units.iter().all(|unit| Arc::ptr_eq(&unit.track, &units[0].track)), "one allocation");
    let display: Vec<i64> = units.iter().map(|unit| unit.display).collect();
    assert!(display[..20].iter().max() < display[20..].iter().min());

    let frames = ivf(LAYERS_VP9);
    let mut larger = frames[0].to_vec();
    // The width follows the synchronisation code and four bits of colours.
    let at = larger.windows(3).position(|bytes| bytes == [0x49, 0x83, 0x42]).unwrap() + 3;
    larger[at + 1] ^= 1;
    let (units, _) = parse(Format::Vp9, &[frames[0], &larger]);
    assert_ne!(units[0].track, units[1].track);
}

/// Any damage to a stream: no panic, no reference to what was not yielded, groups that begin with keys.
fn assert_survives(format: Format, units: &[&[u8]]) {
    let units: Vec<Vec<u8>> = units.iter().map(|unit| unit.to_vec()).collect();
    bolero::check!().with_iterations(150).with_type::<(Vec<(u16, u8)>, u8, bool)>().for_each(
        |(damage, lost, whole)| {
            let mut units = units.clone();
            for &(at, byte) in damage {
                let count = units.len();
                let unit = &mut units[usize::from(at) % count];
                let len = unit.len().min(64);
                if len > 0 {
                    unit[usize::from(at) / 7 % len] = byte;
                }
            }
            let mut parser = Parser::with_limit(format, 20_000);
            let mut yielded = 0;
            let mut group = None;
            for (at, unit) in units.iter().enumerate().filter(|&(at, _)| at != usize::from(*lost)) {
                parser.push(unit);
                if *whole || matches!(format, Format::Av1 | Format::Vp9) {
                    parser.complete();
                }
                if at == usize::from(lost / 2) {
                    parser.lost();
                }
                for unit in parser.by_ref().filter_map(Result::ok) {
                    assert!(unit.refs.iter().all(|&back| back <= yielded));
                    assert_eq!(unit.key, unit.layer == 0);
                    assert_eq!(unit.key, group != Some(unit.group));
                    group = Some(unit.group);
                    yielded += 1;
                }
            }
        },
    );
}

#[test]
fn damaged_h264_is_survived() {
    let units = stream(Format::H264, OPEN_H264, usize::MAX);
    assert_survives(Format::H264, &units.iter().map(|unit| unit.bytes.as_slice()).collect::<Vec<_>>());
}

#[test]
fn damaged_h265_is_survived() {
    let units = stream(Format::H265, OPEN_H265, usize::MAX);
    assert_survives(Format::H265, &units.iter().map(|unit| unit.bytes.as_slice()).collect::<Vec<_>>());
}

#[test]
fn damaged_vp9_is_survived() {
    assert_survives(Format::Vp9, &ivf(LAYERS_VP9));
}

#[test]
fn damaged_av1_is_survived() {
    assert_survives(Format::Av1, &ivf(HIERARCHICAL_AV1));
}

#[test]
fn h265_without_what_is_droppable() {
    let x265 = |parameters| ["-c:v", "libx265", "-x265-params", parameters];
    assert_droppable(
        Format::H265,
        &x265("log-level=error:bframes=4:b-pyramid=1:keyint=16:min-keyint=16:ref=3:pools=1"),
        &[0, 1, 3],
    );
    assert_droppable(
        Format::H265,
        &x265("log-level=error:bframes=3:temporal-layers=2:keyint=20:open-gop=0:pools=1:slices=2:aud=1"),
        &[0, 1, 3],
    );
}

#[test]
fn h264_without_what_is_droppable() {
    let x264 = |parameters| ["-c:v", "libx264", "-x264-params", parameters];
    assert_droppable(
        Format::H264,
        &x264("bframes=3:b-pyramid=strict:b-adapt=0:keyint=32:scenecut=0"),
        &[0, 1, 2, 3],
    );
    assert_droppable(
        Format::H264,
        &x264("bframes=3:b-pyramid=normal:keyint=16:min-keyint=16:open-gop=1:ref=3:aud=1"),
        &[0, 1, 3],
    );
}

/// What libvpx makes of one frame in two.
const TWO_LAYERS: &str = "ts_number_layers=2:ts_target_bitrate=100,200:ts_rate_decimator=2,1:ts_periodicity=2:ts_layer_id=0,1:ts_layering_mode=2";

#[test]
fn vp9_without_what_is_droppable() {
    let vpx = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "32", "-b:v", "200k"];
    let layered = ["-error-resilient", "1", "-ts-parameters", TWO_LAYERS];
    assert_droppable(Format::Vp9, &[&vpx[..], &layered].concat(), &[0, 1, 3]);
    assert_droppable(Format::Vp9, &vpx, &[0, 1]);
}

#[test]
fn av1_without_what_is_droppable() {
    let aom = ["-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "16", "-g", "24", "-b:v", "200k"];
    assert_droppable(Format::Av1, &aom, &[0, 1]);
    assert_droppable(Format::Av1, &["-c:v", "libsvtav1", "-preset", "10", "-g", "31"], &[0, 1, 3]);
}
