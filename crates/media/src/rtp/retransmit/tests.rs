use std::collections::BTreeMap;

use super::*;

const ROUND_TRIP: RoundTrip = RoundTrip { mean: Duration::from_millis(40), least: Duration::from_millis(30) };
const SSRC: u32 = 0xAABB_CCDD;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// A packet with this number: a marker, a time, a source, and `len` bytes that differ from packet to packet.
fn packet(seq: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x80, 0x80 | 96];
    bytes.extend(seq.to_be_bytes());
    bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    bytes.extend((0..len).map(|place| (place as u16).wrapping_mul(7).wrapping_add(seq) as u8));
    bytes
}

fn picture(seq: u64, group: u32) -> Option<PictureInfo> {
    Some(PictureInfo { seq, group, deadline: Timestamp::MAX })
}

/// The packet that a receiver makes of a retransmission packet (RFC 4588, section 4).
fn restored(repeated: &[u8]) -> Vec<u8> {
    let mut bytes = repeated[..12].to_vec();
    bytes[1] = repeated[1] & 0x80 | 96;
    bytes[2..4].copy_from_slice(&repeated[12..14]);
    bytes[8..12].copy_from_slice(&[5, 6, 7, 8]);
    bytes.extend(&repeated[14..]);
    bytes
}

fn next(retransmitter: &mut Retransmitter, now: Timestamp) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    retransmitter.next_packet(now, ROUND_TRIP, &mut out).then_some(out)
}

/// Three pictures of one group, of two packets each, one picture each 40 ms, across the wrap of the numbers.
fn filled() -> Retransmitter {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 65_535);
    for number in 0..6_u16 {
        let seq = 65_533_u16.wrapping_add(number);
        let of = u64::from(number / 2);
        retransmitter.keep(at(of * 40), picture(of, 1), &packet(seq, 100));
    }
    retransmitter
}

#[test]
fn a_requested_packet_comes_back_as_it_was() {
    let mut retransmitter = filled();
    for (place, seq) in [65_534, 0].into_iter().enumerate() {
        assert_eq!(retransmitter.request(at(100), ROUND_TRIP, seq), Ok(()));
        assert_eq!(retransmitter.queued_bytes(), 112);
        let repeated = next(&mut retransmitter, at(100)).unwrap();
        assert_eq!(repeated[1] & 0x7f, 98);
        assert_eq!(repeated[2..4], 65_535_u16.wrapping_add(place as u16).to_be_bytes(), "its own numbers");
        assert_eq!(repeated[8..12], SSRC.to_be_bytes());
        assert_eq!(restored(&repeated), packet(seq, 100));
    }
    assert_eq!((next(&mut retransmitter, at(100)), retransmitter.queued_bytes()), (None, 0));
    let counts = retransmitter.counts();
    assert_eq!((counts.repaired, counts.repaired_bytes, counts.late), (2, 224, 0));
}

#[test]
fn a_packet_is_repeated_once_in_a_round_trip() {
    let mut retransmitter = filled();
    let mut ask = |ms| retransmitter.request(at(ms), ROUND_TRIP, 65_533);
    assert_eq!(ask(29), Err(Refusal::Recent), "it may still arrive");
    assert_eq!((ask(30), ask(101)), (Ok(()), Err(Refusal::Recent)));
    assert!(next(&mut retransmitter, at(105)).is_some());
    let mut ask = |ms| retransmitter.request(at(ms), ROUND_TRIP, 65_533);
    assert_eq!((ask(144), ask(145)), (Err(Refusal::Recent), Ok(())));
}

#[test]
fn numbers_that_were_never_sent_are_unknown() {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
    assert_eq!(retransmitter.request(at(0), ROUND_TRIP, 7), Err(Refusal::Unknown));
    let mut retransmitter = filled();
    for seq in [3, 65_532, 30_000] {
        assert_eq!(retransmitter.request(at(100), ROUND_TRIP, seq), Err(Refusal::Unknown), "{seq}");
    }
    assert_eq!(retransmitter.counts(), RetransmissionCounts::default());
    // A packet that does not follow begins anew.
    retransmitter.keep(at(100), picture(9, 2), &packet(500, 10));
    assert_eq!(retransmitter.request(at(100), ROUND_TRIP, 0), Err(Refusal::Unknown));
    assert_eq!(retransmitter.request(at(130), ROUND_TRIP, 500), Ok(()));
}

#[test]
fn a_picture_is_given_up_as_a_whole_when_its_deadline_passes() {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
    let info = PictureInfo { seq: 1, group: 1, deadline: at(200) };
    for seq in 0..3 {
        retransmitter.keep(at(0), Some(info), &packet(seq, 100));
    }
    // Half a round trip is the way to the receiver.
    assert_eq!(retransmitter.request(at(180), ROUND_TRIP, 0), Ok(()));
    assert_eq!(retransmitter.request(at(181), ROUND_TRIP, 1), Err(Refusal::Late));
    assert_eq!(
        retransmitter.request(at(100), ROUND_TRIP, 2),
        Err(Refusal::Late),
        "without 1 it is of no use"
    );
    assert_eq!(next(&mut retransmitter, at(181)), None, "nor is what waits");
    let counts = retransmitter.counts();
    assert_eq!((counts.repaired, counts.late, retransmitter.queued_bytes()), (0, 3, 0));
}

#[test]
fn a_group_is_over_once_the_next_keyframe_has_arrived() {
    let mut retransmitter = filled();
    for seq in 3..5 {
        retransmitter.keep(at(120), picture(3, 2), &packet(seq, 100));
    }
    // The keyframe of the next group is complete when the picture behind it comes.
    retransmitter.keep(at(160), picture(4, 2), &packet(5, 100));
    let last = at(160) + ROUND_TRIP.mean + REPORTING;
    assert_eq!(retransmitter.request(last - Duration::from_millis(1), ROUND_TRIP, 2), Ok(()));
    assert_eq!(retransmitter.request(last, ROUND_TRIP, 1), Err(Refusal::Late));
    assert_eq!(retransmitter.request(last, ROUND_TRIP, 3), Ok(()), "the new group is not over");
    // Later groups do not put off the end of earlier ones.
    retransmitter.keep(last, picture(5, 3), &packet(6, 100));
    retransmitter.keep(last, picture(6, 3), &packet(7, 100));
    assert_eq!(retransmitter.request(last, ROUND_TRIP, 0), Err(Refusal::Late));
}

#[test]
fn kept_packets_are_bounded_in_time_and_bytes() {
    let mut retransmitter = filled();
    let late = at(0) + RETRANSMISSION_TIME + Duration::from_millis(1);
    assert_eq!(retransmitter.request(late, ROUND_TRIP, 65_533), Err(Refusal::Late));
    assert_eq!(retransmitter.kept_bytes(), 4 * 112);
    for seq in 3..3 + 2000_u16 {
        retransmitter.keep(at(100), picture(9, 1), &packet(seq, 1388));
    }
    assert!(retransmitter.kept_bytes() <= MAX_RETRANSMISSION_BYTES);
    assert!(retransmitter.kept_bytes() > MAX_RETRANSMISSION_BYTES - 1400);
    assert_eq!(retransmitter.request(at(100), ROUND_TRIP, 3), Err(Refusal::Late));
}

#[test]
fn allocation_is_bounded() {
    for (len, count) in [(0, 3 * MAX_PACKETS), (1388, 2000), (60_000, 50)] {
        let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
        for number in 0..count {
            let picture = picture(number as u64, 1);
            retransmitter.keep(at(0), picture, &packet(number as u16, len));
            assert!(retransmitter.bytes.capacity() <= MAX_RETRANSMISSION_BYTES);
            assert!(retransmitter.packets.capacity() <= MAX_PACKETS);
            assert!(retransmitter.pictures.capacity() <= MAX_PACKETS);
        }
        assert!(retransmitter.packets.len() >= MAX_PACKETS.min(MAX_RETRANSMISSION_BYTES / (len + 12)));
    }
}

#[test]
fn forgotten_packets_leave_the_queue() {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
    retransmitter.reported(1000);
    for seq in 0..MAX_QUEUE as u16 + 1 {
        retransmitter.keep(at(0), picture(1, 1), &packet(seq, 100));
    }
    let mut ask = |seq| retransmitter.request(at(100), ROUND_TRIP, seq);
    assert!((0..MAX_QUEUE as u16).all(|seq| ask(seq) == Ok(())));
    assert_eq!(ask(MAX_QUEUE as u16), Err(Refusal::TooMuch), "the queue is full");
    let late = at(0) + RETRANSMISSION_TIME + Duration::from_millis(1);
    retransmitter.keep(late, picture(2, 1), &packet(MAX_QUEUE as u16 + 1, 100));
    assert_eq!((retransmitter.queued_bytes(), retransmitter.counts().late), (0, MAX_QUEUE as u64));
    let now = late + ROUND_TRIP.least;
    assert_eq!(retransmitter.request(now, ROUND_TRIP, MAX_QUEUE as u16 + 1), Ok(()));
    assert!(next(&mut retransmitter, now).is_some());
}

#[test]
fn repeated_bytes_are_a_share_of_what_is_sent() {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
    let mut repeated = 0;
    retransmitter.reported(1000);
    for seq in 0..1000_u16 {
        retransmitter.keep(at(u64::from(seq)), picture(seq.into(), 1), &packet(seq, 1388));
        let now = at(u64::from(seq) + 30);
        for missing in 0..=seq {
            let _ = retransmitter.request(now, ROUND_TRIP, missing);
        }
        while next(&mut retransmitter, now).is_some() {
            repeated += 1400;
        }
    }
    let most = MAX_ALLOWANCE / 2 + 1000 * 1400 / SENT_PER_REPEATED;
    assert!(repeated <= most && repeated > most - 2 * 1400, "{repeated} of {most}");
    assert_eq!(retransmitter.counts().repaired_bytes, repeated);
    assert!(retransmitter.counts().too_much > 0);
}

#[test]
fn a_request_for_a_packet_not_reported_lost_needs_a_second_one() {
    let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 0);
    for seq in 0..40 {
        retransmitter.keep(at(0), picture(1, 1), &packet(seq, 100));
    }
    let mut ask = |seq| retransmitter.request(at(100), ROUND_TRIP, seq);
    // One for each sixteen that were sent, besides.
    assert!((0..18).all(|seq| ask(seq) == Ok(())));
    assert_eq!((ask(18), ask(18)), (Err(Refusal::Unconfirmed), Ok(())));
    // Two packets for each that is reported as lost.
    retransmitter.reported(2);
    let mut ask = |seq| retransmitter.request(at(100), ROUND_TRIP, seq);
    assert_eq!((ask(19), ask(20)), (Ok(()), Err(Refusal::Unconfirmed)));
}

#[test]
fn a_report_has_the_counts_of_the_retransmission_stream() {
    let mut report = vec![0x80, 200, 0, 6];
    report.extend((4..28).map(|place| place as u8));
    report.extend([0x81, 202, 0, 3, 32, 33, 34, 35, 1, 2, b'n', b'm', 0, 0, 0, 0]);
    let mut retransmitter = filled();
    assert_eq!(retransmitter.report(&report), None, "nothing was repeated");
    retransmitter.request(at(100), ROUND_TRIP, 0).unwrap();
    next(&mut retransmitter, at(100)).unwrap();
    let own = retransmitter.report(&report).unwrap();
    assert_eq!((&own[4..8], &own[32..36]), (&SSRC.to_be_bytes()[..], &SSRC.to_be_bytes()[..]));
    assert_eq!((&own[20..24], &own[24..28]), (&[0, 0, 0, 1][..], &[0, 0, 0, 102][..]));
    assert_eq!((&own[8..20], &own[36..]), (&report[8..20], &report[36..]), "the times and the name");
    assert_eq!(retransmitter.report(&report[..33]), None);
}

/// What a test does next.
#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Step {
    Keep { len: u16, new_picture: bool, new_group: bool, in_time_ms: u16 },
    Request { back: u16, others: u16 },
    Report { lost: u16 },
    Next,
    Pass { ms: u8 },
}

#[test]
fn any_requests_get_what_was_sent_within_all_bounds() {
    bolero::check!().with_type::<(u16, Vec<Step>)>().for_each(|(first, steps)| {
        let mut retransmitter = Retransmitter::new(Kind::Video, SSRC, 9);
        let (mut seq, mut now, mut info) =
            (*first, 0, PictureInfo { seq: 0, group: 0, deadline: Timestamp::MAX });
        let mut sent = BTreeMap::new();
        let mut repeated_at = BTreeMap::new();
        let (mut kept, mut repeated) = (0, 0);
        for &step in steps {
            match step {
                Step::Keep { len, new_picture, new_group, in_time_ms } => {
                    info.seq += u64::from(new_picture);
                    info.group += u32::from(new_picture && new_group);
                    info.deadline = if new_picture { at(now + u64::from(in_time_ms)) } else { info.deadline };
                    let bytes = packet(seq, usize::from(len % 1400));
                    kept += bytes.len() as u64;
                    retransmitter.keep(at(now), Some(info), &bytes);
                    sent.insert(seq, (bytes, info.deadline, now));
                    seq = seq.wrapping_add(1);
                }
                Step::Request { back, others } => {
                    let first = seq.wrapping_sub(back % 600);
                    for missing in
                        (0..16).filter(|bit| others >> bit & 1 == 1).map(|bit| first.wrapping_add(bit))
                    {
                        let result = retransmitter.request(at(now), ROUND_TRIP, missing);
                        assert!(result.is_err() || sent.contains_key(&missing), "{missing} was never sent");
                    }
                }
                Step::Report { lost } => retransmitter.reported(lost.into()),
                Step::Next => {
                    let Some(packet) = next(&mut retransmitter, at(now)) else { continue };
                    let restored = restored(&packet);
                    let seq = u16::from_be_bytes([restored[2], restored[3]]);
                    let (bytes, deadline, sent_at) = &sent[&seq];
                    assert_eq!(&restored, bytes);
                    assert!(at(now) + ROUND_TRIP.mean / 2 <= *deadline);
                    assert!(at(now) >= at(*sent_at) + ROUND_TRIP.least);
                    assert!(at(now) <= at(*sent_at) + RETRANSMISSION_TIME);
                    let before = repeated_at.insert(seq, now);
                    assert!(before.is_none_or(|before| at(now) >= at(before) + ROUND_TRIP.mean));
                    repeated += bytes.len() as u64;
                }
                Step::Pass { ms } => now += u64::from(ms),
            }
            assert!(repeated + retransmitter.queued_bytes() <= MAX_ALLOWANCE / 2 + kept / SENT_PER_REPEATED);
            assert!(retransmitter.kept_bytes() <= MAX_RETRANSMISSION_BYTES);
        }
        let counts = retransmitter.counts();
        assert_eq!((counts.repaired, counts.repaired_bytes), (counts.repaired, repeated));
    });
}
