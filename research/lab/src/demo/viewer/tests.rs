use std::time::Duration;

use super::super::video::tests::ladder;
use super::*;

const START: Timestamp = Timestamp::from_nanos(5_000_000_000);

/// Sends the units whole, unit k at k ms.
fn watch(units: impl IntoIterator<Item = usize>) -> Viewer {
    let stream = Arc::new(ladder());
    let mut viewer = Viewer::new(Arc::clone(&stream), START);
    for at in units {
        viewer.push(START + Duration::from_millis(at as u64), &stream.units[at].bytes);
    }
    viewer.finish(true);
    viewer
}

fn frames(viewer: &Viewer) -> Vec<usize> {
    viewer.shown.iter().map(|shown| shown.frame).collect()
}

#[test]
fn all_frames_come_in_order_and_when_their_turn_is() {
    let viewer = watch(0..18);
    assert_eq!((viewer.torn, viewer.undecodable, viewer.arrivals.len()), (0, 0, 18));
    assert_eq!(frames(&viewer), (0..16).collect::<Vec<_>>());
    // The first frame waits for two more to know that it is the first.
    assert_eq!(viewer.shown[0], Shown { frame: 0, at_ns: 2_000_000 });
    assert!(viewer.shown.is_sorted_by_key(|shown| shown.at_ns));
}

#[test]
fn dropping_what_nothing_depends_on_tears_nothing() {
    let stream = ladder();
    let viewer = watch((0..18).filter(|&at| stream.units[at].layer < 2));
    assert_eq!((viewer.torn, viewer.undecodable), (0, 0));
    assert_eq!(frames(&viewer), [0, 4, 8, 9]);
}

#[test]
fn frames_that_depend_on_a_missing_one_are_not_shown() {
    let viewer = watch((0..18).filter(|&at| at != 1));
    // All but the key frame of the first group hangs on unit 1.
    assert_eq!(viewer.undecodable, 7);
    assert_eq!(frames(&viewer)[..3], [0, 9, 10]);
}

#[test]
fn any_cut_of_the_bytes_is_the_same_to_the_viewer() {
    let stream = Arc::new(ladder());
    let bytes: Vec<u8> = stream.units.iter().flat_map(|unit| unit.bytes.iter().copied()).collect();
    for size in [1, 3, 7, 1000] {
        let mut viewer = Viewer::new(Arc::clone(&stream), START);
        for part in bytes.chunks(size) {
            viewer.push(START, part);
        }
        viewer.finish(true);
        assert_eq!((viewer.torn, viewer.arrivals.len()), (0, 18), "{size}");
    }
}

#[test]
fn a_changed_byte_is_a_torn_unit_and_the_next_one_counts_again() {
    let stream = Arc::new(ladder());
    let mut bytes: Vec<u8> = stream.units.iter().flat_map(|unit| unit.bytes.iter().copied()).collect();
    let place = stream.units[0].bytes.len() + 20;
    bytes[place] ^= 1;
    for size in [1, 11, 4000] {
        let mut viewer = Viewer::new(Arc::clone(&stream), START);
        for part in bytes.chunks(size) {
            viewer.push(START, part);
        }
        viewer.finish(true);
        assert_eq!((viewer.torn, viewer.arrivals.len()), (1, 17), "{size}");
    }
}

#[test]
fn a_truncated_unit_is_torn_unless_the_sender_was_aborted() {
    let stream = Arc::new(ladder());
    let (first, second) = (&stream.units[0].bytes, &stream.units[1].bytes);
    let mut viewer = Viewer::new(Arc::clone(&stream), START);
    viewer.push(START, &[&first[..30], second].concat());
    assert_eq!((viewer.torn, viewer.arrivals.len()), (1, 1));
    for (orderly, torn) in [(true, 1), (false, 0)] {
        let mut viewer = Viewer::new(Arc::clone(&stream), START);
        viewer.push(START, &first[..30]);
        viewer.finish(orderly);
        assert_eq!(viewer.torn, torn);
    }
}

#[test]
fn garbage_never_panics_or_arrives() {
    bolero::check!().with_type::<Vec<Vec<u8>>>().for_each(|parts| {
        let mut viewer = Viewer::new(Arc::new(ladder()), START);
        for part in parts {
            viewer.push(START, part);
        }
        viewer.finish(true);
        assert!(viewer.arrivals.is_empty());
        assert!(viewer.buffer.len() <= viewer.bytes as usize);
    });
}
