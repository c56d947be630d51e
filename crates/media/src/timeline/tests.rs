use super::*;

const MS: i64 = 1_000_000;

fn ms(value: i64) -> MediaTime {
    MediaTime::from_nanos(value * MS)
}

fn in_ms(times: Times) -> (i64, i64) {
    (times.pts.as_nanos() / MS, times.dts.as_nanos() / MS)
}

fn both(pts: i64, dts: i64) -> Given {
    Given::Both { pts: ms(pts), dts: ms(dts) }
}

#[test]
fn counts_go_on_beyond_a_wrap_in_both_directions() {
    let mut clock = Unwrap::new(33);
    let top = (1 << 33) - 10;
    assert_eq!(clock.extend(top), top as i64);
    assert_eq!(clock.extend(5), top as i64 + 15);
    assert_eq!(clock.extend(top + 3), top as i64 + 3);
    let mut rtp = Unwrap::new(32);
    assert_eq!((rtp.extend(1), rtp.extend(u64::from(u32::MAX))), (1, -1));
}

#[test]
fn any_steps_below_half_the_range_are_followed() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(u32, Vec<i16>)>().for_each(
        |(first, steps)| {
            let mut clock = Unwrap::new(17);
            let mut at = i64::from(*first & 0x1_ffff);
            assert_eq!(clock.extend(at as u64), at);
            for &step in steps {
                at += i64::from(step);
                assert_eq!(clock.extend(at as u64), at);
            }
        },
    );
}

#[test]
fn times_of_a_container_are_kept() {
    let mut timeline = Timeline::default();
    for (pts, dts) in [(1480, 1400), (1640, 1440), (1560, 1480), (1520, 1520), (1600, 1560)] {
        let times = timeline.video(both(pts, dts), &Coding::default());
        assert_eq!((in_ms(times), times.duration_ns), ((pts, dts), 40_000_000));
        assert_eq!(in_ms(timeline.audio(ms(dts), 21_333_333)), (dts, dts));
    }
    assert_eq!(timeline.jumps(), 0);
}

#[test]
fn decoding_times_follow_from_shown_times() {
    let mut timeline = Timeline::default();
    let coding = Coding { reorder: 2, frame_ns: Some(40_000_000), ..Coding::default() };
    let shown = [0, 160, 80, 40, 120, 320, 240, 200, 280];
    let got: Vec<_> =
        shown.iter().map(|&pts| in_ms(timeline.video(Given::Shown(ms(pts)), &coding))).collect();
    let decoded = [-80, -40, 0, 40, 80, 120, 160, 200, 240];
    assert_eq!(got, shown.into_iter().zip(decoded).collect::<Vec<_>>());
}

#[test]
fn a_depth_that_is_too_small_is_found_out() {
    let mut timeline = Timeline::default();
    let coding = Coding { frame_ns: Some(40_000_000), ..Coding::default() };
    let groups = (0..40).flat_map(|group| [160, 80, 40, 120].map(|pts| pts + group * 160));
    let got: Vec<_> =
        groups.map(|pts| (pts, in_ms(timeline.video(Given::Shown(ms(pts)), &coding)))).collect();
    for (pts, (shown, decoded)) in got.iter().skip(4) {
        assert_eq!(pts, shown);
        assert!(decoded <= shown);
    }
    assert_eq!(timeline.jumps(), 0);
}

#[test]
fn pictures_without_times_get_those_of_their_order() {
    // x264 counts two for each picture, others one; a second group begins with a restart.
    for (step, display_step) in [(2, 2), (1, 2), (1, 1), (2, 1)] {
        let mut timeline = Timeline::default();
        let order = [0, 4, 2, 1, 3, 8, 6, 5, 7];
        let mut got = Vec::new();
        for (place, number) in (0..3).flat_map(|group| order.map(|at| group * 9 + at)).zip(0..) {
            let coding = Coding {
                reorder: 2,
                frame_ns: Some(20_000_000),
                display: 100 + place * step,
                display_step,
                restart: number % 9 == 0,
            };
            let times = timeline.video(Given::Nothing, &coding);
            got.push((in_ms(times), (place * 20 + 40, number * 20)));
        }
        let settled = if step == i64::from(display_step) { 0 } else { 9 };
        for (times, expected) in got.into_iter().skip(settled) {
            assert_eq!(times, expected, "step {step}, taken for {display_step}");
        }
    }
}

#[test]
fn pictures_without_reordering_are_shown_when_decoded() {
    let mut timeline = Timeline::default();
    for (number, display) in [0, 1, 2, 4, 5].into_iter().enumerate() {
        let coding = Coding { display, display_step: 2, ..Coding::default() };
        let at = number as i64 * 40;
        assert_eq!(in_ms(timeline.video(Given::Nothing, &coding)), (at, at));
    }
}

/// When a unit was made, in ms, and the decoding time that it got.
type Place = (i64, i64);

/// Both tracks of a source that begins again after `length` ms, audio `lead` ms ahead of the video in arrival.
fn looped(length: i64, lead: i64, origin: impl Fn(i64) -> i64) -> (Timeline, Vec<Place>) {
    let mut timeline = Timeline::default();
    let mut places = Vec::new();
    for at in (0..3 * length).step_by(20) {
        let raw = |at: i64| origin(at / length) + at % length;
        places.push((at, in_ms(timeline.audio(ms(raw(at)), 20_000_000)).1));
        if at >= lead && (at - lead) % 40 == 0 {
            let at = at - lead;
            let times = timeline.video(both(raw(at) + 40, raw(at)), &Coding::default());
            assert_eq!(times.pts.as_nanos() - times.dts.as_nanos(), 40 * MS);
            places.push((at, in_ms(times).1));
        }
    }
    (timeline, places)
}

#[test]
fn a_source_that_begins_again_goes_on_without_a_seam() {
    for origin in [|_: i64| 5000, |turn: i64| turn * 100_000, |turn: i64| -turn * 3_600_000] {
        for lead in [0, 400] {
            let (timeline, places) = looped(4000, lead, origin);
            let start = origin(0);
            for (at, time) in places {
                assert_eq!(time, start + at, "lead {lead}");
            }
            assert_eq!(timeline.jumps(), 2);
        }
    }
}

#[test]
fn a_pause_in_arrival_is_no_jump() {
    let run = |arrival: Option<[u64; 2]>| {
        let mut timeline = Timeline::default();
        let arrive = |timeline: &mut Timeline, at: usize| {
            if let Some(arrival) = arrival {
                timeline.arrive(Timestamp::from_nanos(arrival[at] * 1_000_000));
            }
        };
        arrive(&mut timeline, 0);
        timeline.video(both(0, 0), &Coding::default());
        arrive(&mut timeline, 1);
        let times = timeline.video(both(5000, 5000), &Coding::default());
        (in_ms(times).1, timeline.jumps())
    };
    assert_eq!(run(Some([100, 5100])), (5000, 0));
    assert_eq!(run(Some([100, 140])), (40, 1));
    assert_eq!(run(None), (5000, 0));
}

#[test]
fn a_little_backward_is_inexact_and_much_is_a_jump() {
    let mut timeline = Timeline::default();
    timeline.video(both(1000, 1000), &Coding::default());
    assert_eq!(in_ms(timeline.video(both(960, 960), &Coding::default())), (1000, 1000));
    assert_eq!(in_ms(timeline.video(both(500, 500), &Coding::default())), (1040, 1040));
    assert_eq!(in_ms(timeline.video(both(540, 540), &Coding::default())), (1080, 1080));
    assert_eq!(timeline.jumps(), 1);
}

#[test]
fn tracks_with_different_clocks_are_aligned() {
    let mut timeline = Timeline::default();
    timeline.video(both(1_000_000, 1_000_000), &Coding::default());
    assert_eq!(in_ms(timeline.audio(ms(7), 20_000_000)).1, 1_000_000);
    assert_eq!(in_ms(timeline.video(both(1_000_040, 1_000_040), &Coding::default())).1, 1_000_040);
    assert_eq!(in_ms(timeline.audio(ms(27), 20_000_000)).1, 1_000_020);
    assert_eq!(timeline.jumps(), 0);
}

#[test]
fn the_promise_is_kept_for_any_source() {
    type Step = (u8, i64, i16, u8, u8);
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Vec<Step>>().for_each(|steps| {
        let mut timeline = Timeline::default();
        let mut last = [i64::MIN; 2];
        for &(what, at, ahead, reorder, arrival) in steps {
            if what & 8 != 0 {
                timeline.arrive(Timestamp::from_nanos(u64::from(arrival) * 100_000_000));
            }
            let at = if what & 16 != 0 { at } else { at % (20 * SECOND) };
            let coding = Coding {
                reorder,
                frame_ns: (what & 32 != 0).then_some(u32::from(reorder) << 20),
                display: at,
                display_step: reorder,
                restart: ahead % 16 == 0,
            };
            let pts = MediaTime::from_nanos(at.saturating_add(i64::from(ahead) * MS));
            let (track, times) = match what % 4 {
                0 => (0, timeline.video(Given::Both { pts, dts: MediaTime::from_nanos(at) }, &coding)),
                1 => (0, timeline.video(Given::Shown(pts), &coding)),
                2 => (0, timeline.video(Given::Nothing, &coding)),
                _ => (1, timeline.audio(pts, u32::from(reorder) << 22)),
            };
            assert!(times.dts.as_nanos() >= last[track]);
            assert!(times.pts >= times.dts);
            assert!(times.duration_ns >= 1);
            last[track] = times.dts.as_nanos();
        }
    });
}
