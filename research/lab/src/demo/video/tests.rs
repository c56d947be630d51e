use super::*;

/// Two groups of `I P B b b P B b b`, each unit with bytes of its own.
pub(in crate::demo) fn ladder() -> Stream {
    let group = [(0, [0, 0], 0), (1, [1, 0], 4), (2, [2, 1], 2), (3, [3, 1], 1), (3, [3, 2], 3)];
    let tail = [(1, [4, 0], 8), (2, [5, 1], 6), (3, [6, 1], 5), (3, [3, 2], 7)];
    let units = (0..2).flat_map(|round| {
        group.iter().chain(&tail).enumerate().map(move |(at, &(layer, refs, frame))| Unit {
            bytes: unit_bytes(round * 9 + at),
            layer,
            group: round as u32,
            refs,
            frame: round * 9 + frame,
        })
    });
    Stream::new(units.collect())
}

/// Begins like every other unit, as real ones do.
fn unit_bytes(at: usize) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 1, 9, 0x10, 0, 0, 0, 1, 0x41];
    bytes.extend((0..40 + at).map(|place| 0x40 + (place * 7 + at * 31) as u8 % 0x7f));
    bytes
}

#[test]
fn a_ladder_is_emitted_no_frame_before_its_capture() {
    let stream = ladder();
    assert_eq!((stream.lookahead, stream.reorder), (3, 2));
    for (at, unit) in stream.units.iter().enumerate() {
        assert!(stream.emitted(at) >= stream.captured(unit.frame));
    }
    assert_eq!(stream.emitted(1), stream.captured(4));
}

#[test]
fn a_stream_without_reordering_is_emitted_at_once() {
    let mut units = ladder().units;
    for (at, unit) in units.iter_mut().enumerate() {
        unit.frame = at;
    }
    let stream = Stream::new(units);
    assert_eq!((stream.lookahead, stream.reorder), (0, 0));
}

#[test]
fn other_formats_than_h264_are_refused() {
    assert!(Stream::parse(b"RIFF....").is_err());
}

#[test]
fn another_file_or_length_is_another_recipe() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.mp4");
    std::fs::write(&file, b"x").unwrap();
    let note = |video: Option<&Path>, frames| Recipe::new(video, frames).unwrap().note;
    assert_eq!(note(None, 100), note(None, 100));
    assert_ne!(note(None, 100), note(None, 200));
    assert_ne!(note(None, 100), note(Some(&file), 100));
    assert!(Recipe::new(Some(folder.path()), 1).is_err(), "a folder");
    let missing = Recipe::new(Some(&folder.path().join("none")), 1).err().unwrap();
    assert!(missing.to_string().contains("cannot read"), "{missing}");
}
