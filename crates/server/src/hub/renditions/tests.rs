use freshwire_media::unit::{AudioCodec, UnitHead, VideoTrack};

use super::*;

const STREAM: &str = "live";

fn h264() -> VideoCodec {
    VideoCodec::H264 { sps: vec![0x67], pps: vec![0x68] }
}

fn tracks(codec: Option<VideoCodec>, rate: Option<u32>) -> Arc<Tracks> {
    let audio = rate.map(|rate| AudioTrack { codec: AudioCodec::Aac { config: vec![1] }, rate, channels: 1 });
    Arc::new(Tracks { video: codec.map(|codec| VideoTrack { codec, width: 64, height: 64 }), audio })
}

fn unit(kind: Kind, key: bool, ms: i64, tracks: &Arc<Tracks>) -> Unit {
    let at = MediaTime::from_nanos(ms * 1_000_000);
    let head = UnitHead {
        kind,
        pts: at,
        dts: at,
        duration_ns: 1,
        key,
        len: 1,
        nals: Vec::new(),
        nal_headers: Vec::new(),
        repeat: None,
        tracks: Arc::clone(tracks),
    };
    Unit { head, layer: 0, group: 0, refs: [0; 2], bytes: vec![0] }
}

/// A stream with these renditions.
fn two(main: &Arc<Tracks>, low: &Arc<Tracks>) -> Renditions {
    let mut renditions = Renditions::default();
    assert_eq!(renditions.publish(MAIN, "test", None).unwrap(), 0);
    assert_eq!(renditions.publish("low", "test", None).unwrap(), 1);
    renditions.declare(STREAM, 0, Arc::clone(main));
    renditions.declare(STREAM, 1, Arc::clone(low));
    renditions
}

#[test]
fn one_of_another_codec_is_left_out_and_says_why() {
    let other = tracks(Some(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }), None);
    let mut renditions = two(&tracks(Some(h264()), None), &other);
    assert_eq!(renditions.all()[1].refused.as_deref(), Some("it is VP9 where the stream is H.264"));
    assert!(!renditions.take(1, &mut unit(Kind::Video, true, 0, &other), Instant::now()));
    // The rendition under the stream's own name decides, also when it comes later.
    let mut renditions = Renditions::default();
    renditions.publish("low", "test", None).unwrap();
    renditions.declare(STREAM, 1, other);
    assert_eq!(renditions.all()[1].refused, None);
    renditions.publish(MAIN, "test", None).unwrap();
    renditions.declare(STREAM, 0, tracks(Some(h264()), None));
    assert!(renditions.all()[1].refused.is_some() && renditions.all()[0].refused.is_none());
    assert!(two(&tracks(Some(h264()), None), &tracks(None, Some(48_000))).all()[1].refused.is_some());
}

#[test]
fn one_without_keyframes_is_left_out() {
    let tracks = tracks(Some(h264()), None);
    let mut renditions = two(&tracks, &tracks);
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    for second in 0..20 {
        assert!(renditions.take(0, &mut unit(Kind::Video, true, second * 1000, &tracks), at(second as u64)));
        assert!(!renditions.take(
            1,
            &mut unit(Kind::Video, false, second * 1000, &tracks),
            at(second as u64)
        ));
        renditions.changes(STREAM, at(second as u64));
    }
    assert_eq!(renditions.all()[1].refused.as_deref(), Some("it had no keyframe in 15 s"));
    assert!(renditions.all()[0].is_present);
}

#[test]
fn one_that_stalls_is_away_until_it_goes_on() {
    let tracks = tracks(Some(h264()), None);
    let mut renditions = two(&tracks, &tracks);
    let start = Instant::now();
    let mut push = |index, ms: u64| {
        let at = start + Duration::from_millis(ms);
        renditions.take(index, &mut unit(Kind::Video, true, ms as i64, &tracks), at);
        renditions.changes(STREAM, at)
    };
    assert_eq!(push(0, 0), [(0, true)]);
    assert_eq!(push(1, 10), [(1, true)]);
    assert_eq!(push(1, 1900), []);
    assert_eq!(push(1, 2100), [(0, false)]);
    assert_eq!(push(0, 3000), [(0, true)]);
}

#[test]
fn sound_comes_from_one_as_long_as_that_has_it() {
    let tracks = tracks(Some(h264()), Some(48_000));
    let mut renditions = two(&tracks, &tracks);
    let start = Instant::now();
    let mut push = |index, kind, ms: u64| {
        let at = start + Duration::from_millis(ms);
        renditions.take(index, &mut unit(kind, kind == Kind::Video, ms as i64, &tracks), at)
    };
    assert!(push(0, Kind::Video, 0) && push(1, Kind::Video, 0));
    assert!(push(0, Kind::Audio, 20) && !push(1, Kind::Audio, 20));
    assert!(!push(1, Kind::Audio, 900));
    assert!(push(1, Kind::Audio, 1100), "the other one is silent");
    assert!(!push(0, Kind::Audio, 1000), "that was heard already");
    renditions.leave(1);
    assert!(renditions.take(0, &mut unit(Kind::Audio, true, 1200, &tracks), start));
}

#[test]
fn other_sound_is_not_used() {
    let other = tracks(Some(h264()), Some(8000));
    let mut renditions = two(&tracks(Some(h264()), Some(48_000)), &other);
    let now = Instant::now();
    let mut picture = unit(Kind::Video, true, 0, &other);
    assert!(renditions.take(1, &mut picture, now), "its pictures are");
    assert_eq!(picture.head.tracks.audio.as_ref().map(|audio| audio.rate), Some(48_000));
    assert!(!renditions.take(1, &mut unit(Kind::Audio, true, 0, &other), now + Duration::from_secs(60)));
}

#[test]
fn times_are_joined_by_when_keyframes_come() {
    let tracks = tracks(Some(h264()), None);
    let mut renditions = two(&tracks, &tracks);
    let start = Instant::now();
    let mut time = |index, own: i64, ms: u64| {
        let mut unit = unit(Kind::Video, true, own, &tracks);
        renditions.take(index, &mut unit, start + Duration::from_millis(ms));
        renditions.changes(STREAM, start + Duration::from_millis(ms));
        unit.head.pts.as_nanos() / 1_000_000
    };
    assert_eq!(time(0, 5000, 0), 5000);
    assert_eq!(time(1, 777_000, 40), 5040, "another clock");
    assert_eq!(time(1, 777_900, 1000), 5940, "it came 60 ms late");
    assert_eq!(time(0, 7000, 2000), 7000);
    assert_eq!(time(1, 10, 2000), 7000, "it begins again");
}

#[test]
fn names_are_checked_and_places_are_used_again() {
    for wrong in ["", "all", "none", "a b", "a/b", "a~b", "name-that-is-longer-than-thirty-two-bytes"] {
        assert!(check_rendition_name(wrong).is_err(), "{wrong}");
    }
    let mut renditions = Renditions::default();
    for number in 1..MAX_RENDITIONS {
        renditions.publish(&format!("r{number}"), "test", None).unwrap();
    }
    assert!(matches!(renditions.publish("more", "test", None), Err(HubError::TooManyRenditions(_))));
    assert!(matches!(renditions.publish("r3", "test", None), Err(HubError::Busy(_))));
    renditions.leave(3);
    assert_eq!(renditions.publish("more", "test", None).unwrap(), 3);
}

#[test]
fn a_rendition_keeps_its_place_while_it_is_configured() {
    let mut renditions = Renditions::default();
    renditions.expect_only(["a", "b"]).unwrap();
    for number in 3..MAX_RENDITIONS {
        renditions.publish(&format!("r{number}"), "test", None).unwrap();
    }
    assert!(matches!(renditions.publish("more", "test", None), Err(HubError::TooManyRenditions(_))));
    renditions.leave(5);
    assert_eq!(renditions.publish("more", "test", None).unwrap(), 5);
    renditions.expect_only(["b"]).unwrap();
    assert_eq!(renditions.publish("another", "test", None).unwrap(), 1);
    assert_eq!(renditions.publish("b", "test", None).unwrap(), 2);
    assert!(renditions.expect_only(["b", "c"]).is_err());
}
