use std::sync::Arc;

use bolero::TypeGenerator;

use super::*;
use crate::rtp::{Datagrams, Identity, Stream};
use crate::unit::{AudioCodec, AudioTrack, Kind, MediaTime, Tracks, UnitHead, VideoCodec, VideoTrack};

fn media(codec: MediaCodec) -> Media {
    let (kind, payload_type, clock_rate) = match codec {
        MediaCodec::Aac { .. } => (Kind::Audio, 97, 44_100),
        MediaCodec::Opus => (Kind::Audio, 97, 48_000),
        _ => (Kind::Video, 96, 90_000),
    };
    Media { kind, codec: Ok(codec), payload_type, clock_rate, channels: 2, control: None }
}

fn depacketizer(codec: MediaCodec) -> Depacketizer {
    let media = media(codec);
    let codec = media.codec.clone().expect("known");
    let mut depacketizer = Depacketizer::new(&media, &codec).expect("supported");
    depacketizer.markers = Markers::Proved;
    depacketizer
}

fn h264() -> MediaCodec {
    MediaCodec::H264 { packetization_mode: 1, sets: Vec::new() }
}

fn h265() -> MediaCodec {
    MediaCodec::H265 { sets: Vec::new(), has_order_numbers: false }
}

fn aac() -> MediaCodec {
    MediaCodec::Aac { config: vec![0x12, 0x10], size_bits: 13, index_bits: 3, index_delta_bits: 3 }
}

fn video(seq: u16, timestamp: u32, marker: bool, payload: &[u8]) -> Packet<'_> {
    Packet { marker, payload_type: 96, seq, timestamp, ssrc: 7, payload }
}

fn audio(seq: u16, timestamp: u32, marker: bool, payload: &[u8]) -> Packet<'_> {
    Packet { payload_type: 97, ..video(seq, timestamp, marker, payload) }
}

fn frames(depacketizer: &mut Depacketizer) -> Vec<(i64, Vec<u8>)> {
    std::iter::from_fn(|| depacketizer.poll_frame()).map(|frame| (frame.ticks, frame.bytes)).collect()
}

/// Sends units the way the server does and puts them together again.
fn round_trip(codec: MediaCodec, tracks: Tracks, units: &[Vec<u8>], nals: &[std::ops::Range<u32>]) {
    let kind = media(codec.clone()).kind;
    let mut stream = Stream::new(kind, Identity { ssrc: 1, seq: 65_530, timestamp_offset: u32::MAX - 3000 });
    let mut datagrams = Datagrams::new(100);
    let tracks = Arc::new(tracks);
    let mut depacketizer = depacketizer(codec);
    let mut got = Vec::new();
    for (index, bytes) in units.iter().enumerate() {
        let header = |nal: &std::ops::Range<u32>| [bytes[nal.start as usize], bytes[nal.start as usize + 1]];
        let head = Arc::new(UnitHead {
            kind,
            pts: MediaTime::from_nanos(index as i64 * 40_000_000),
            dts: MediaTime::from_nanos(index as i64 * 40_000_000),
            duration_ns: 40_000_000,
            key: true,
            len: bytes.len() as u32,
            nals: nals.to_vec(),
            nal_headers: nals.iter().map(header).collect(),
            repeat: None,
            tracks: Arc::clone(&tracks),
        });
        datagrams.clear();
        datagrams.write(&mut stream, &head, bytes).expect("fits");
        for datagram in datagrams.iter() {
            depacketizer.push(&Packet::parse(datagram).expect("a packet"));
        }
        got.extend(frames(&mut depacketizer));
    }
    assert_eq!(got.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), units.iter().collect::<Vec<_>>());
    let steps = got.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let step = i64::from(media_rate(kind)) / 25;
    assert!(steps.into_iter().all(|distance| distance == step));
    assert_eq!(depacketizer.damage(), Damage::default());
}

fn media_rate(kind: Kind) -> u32 {
    if kind == Kind::Video { 90_000 } else { 44_100 }
}

fn video_tracks(codec: VideoCodec) -> Tracks {
    Tracks { video: Some(VideoTrack { codec, width: 64, height: 64 }), audio: None }
}

#[test]
fn packets_of_the_server_come_back() {
    let set = vec![0x67, 1, 2, 3];
    let unit = |header: [u8; 2], fill: u8| {
        let mut bytes = vec![0, 0, 0, 1, header[0], header[1], 1, 0, 0, 0, 1, header[0], header[1]];
        bytes.extend(std::iter::repeat_n(fill, 500));
        bytes
    };
    let nals = [4..7, 11..513];
    let units = [unit([0x65, 9], 1), unit([0x61, 9], 2), unit([0x41, 9], 3)];
    let codec = VideoCodec::H264 { sps: set.clone(), pps: set.clone() };
    round_trip(h264(), video_tracks(codec), &units, &nals);
    let units = [unit([0x26, 1], 1), unit([0x02, 1], 2)];
    let codec = VideoCodec::H265 { vps: set.clone(), sps: set.clone(), pps: set };
    round_trip(h265(), video_tracks(codec), &units, &nals);
    let units = [vec![0x82; 300], vec![0x86; 20]];
    round_trip(MediaCodec::Vp9, video_tracks(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }), &units, &[]);
    let unit = |fill: u8| [&[0x0a, 3, 1, 2, 3, 0x36, 0x40, 0xac, 2], &[fill; 300][..]].concat();
    let codec = VideoCodec::Av1 { sequence_header: vec![0x0a, 3, 1, 2, 3] };
    round_trip(MediaCodec::Av1, video_tracks(codec), &[unit(1), unit(2)], &[0..5, 5..309]);
    let sound = AudioTrack { codec: AudioCodec::Aac { config: vec![0x12, 0x10] }, rate: 44_100, channels: 2 };
    let tracks = Tracks { video: None, audio: Some(sound) };
    round_trip(aac(), tracks, &[vec![1; 60], vec![2; 400], vec![3; 1]], &[]);
}

#[test]
fn aggregated_nal_units_are_parted() {
    let mut depacketizer = depacketizer(h264());
    depacketizer.push(&video(0, 90, false, &[24, 0, 2, 0x67, 1, 0, 2, 0x68, 2]));
    depacketizer.push(&video(1, 90, true, &[0x65, 3]));
    let expected = vec![0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2, 0, 0, 0, 1, 0x65, 3];
    assert_eq!(frames(&mut depacketizer), [(90, expected)]);
}

#[test]
fn parameter_sets_with_a_marker_belong_to_the_next_picture() {
    let mut depacketizer = depacketizer(h264());
    depacketizer.push(&video(0, 90, true, &[0x67, 1]));
    depacketizer.push(&video(1, 3690, true, &[0x65, 3]));
    assert_eq!(frames(&mut depacketizer), [(3690, vec![0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x65, 3])]);
}

#[test]
fn a_frame_without_marker_ends_with_the_next_timestamp() {
    let mut depacketizer = depacketizer(h264());
    depacketizer.push(&video(0, 0, false, &[0x65, 3]));
    assert_eq!(frames(&mut depacketizer), []);
    depacketizer.push(&video(1, 3600, false, &[0x41, 4]));
    assert_eq!(frames(&mut depacketizer), [(0, vec![0, 0, 0, 1, 0x65, 3])]);
}

#[test]
fn a_frame_that_lost_a_packet_is_dropped_whole() {
    let mut depacketizer = depacketizer(h264());
    depacketizer.push(&video(0, 0, false, &[28, 0x81, 1]));
    depacketizer.push(&video(2, 0, true, &[28, 0x41, 3]));
    depacketizer.push(&video(3, 3600, true, &[0x41, 4]));
    let frame = depacketizer.poll_frame().expect("the next one");
    assert_eq!((frame.ticks, frame.gap), (3600, true));
    assert_eq!(depacketizer.damage(), Damage { lost: 1, late: 0, malformed: 1, frames: 1 });
    depacketizer.push(&video(4, 7200, true, &[0x41, 4]));
    assert!(!depacketizer.poll_frame().expect("whole").gap);
}

#[test]
fn late_and_repeated_packets_are_ignored() {
    let mut depacketizer = depacketizer(h264());
    for seq in [5, 4, 5] {
        depacketizer.push(&video(seq, 0, true, &[0x65, 3]));
    }
    assert_eq!(frames(&mut depacketizer).len(), 1);
    assert_eq!(depacketizer.damage().late, 2);
}

#[test]
fn timestamps_go_back_and_forth_and_wrap() {
    let mut depacketizer = depacketizer(h264());
    let start = u32::MAX - 3600;
    let steps = [0u32, 10_800, 3600, 7200];
    for (seq, step) in steps.iter().enumerate() {
        depacketizer.push(&video(seq as u16, start.wrapping_add(*step), true, &[0x41, 1]));
    }
    let ticks: Vec<i64> =
        frames(&mut depacketizer).iter().map(|(ticks, _)| ticks - i64::from(start)).collect();
    assert_eq!(ticks, [0, 10_800, 3600, 7200]);
    assert_eq!(depacketizer.place(start), i64::from(start));
}

/// Pictures of two packets with what senders put between; each has to come out as it was.
#[test]
fn meaningless_packets_are_passed_over() {
    let between: [&[u8]; 8] =
        [&[], &[0, 1, 2], &[30, 1, 2], &[31], &[25, 0, 0], &[29, 0x81, 1], &[24, 0, 0], &[24, 0, 0, 0]];
    for odd in between {
        let mut depacketizer = depacketizer(h264());
        let mut seq = 0..;
        let mut push = |timestamp, marker, payload: &[u8]| {
            depacketizer.push(&video(seq.next().expect("endless"), timestamp, marker, payload));
        };
        for timestamp in [0, 3600, 7200] {
            push(timestamp, false, odd);
            push(timestamp, false, &[0x65, 0x88, 1]);
            push(timestamp, false, odd);
            push(timestamp, true, &[0x65, 0x08, 2]);
            push(timestamp, false, odd);
        }
        let bytes = vec![0, 0, 0, 1, 0x65, 0x88, 1, 0, 0, 0, 1, 0x65, 0x08, 2];
        let expected = [0, 3600, 7200].map(|ticks| (ticks, bytes.clone()));
        assert_eq!(frames(&mut depacketizer), expected, "{odd:?}");
        assert_eq!(depacketizer.damage(), Damage::default(), "{odd:?}");
    }
}

#[test]
fn start_codes_within_packets_part_nal_units() {
    let unit = [0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2, 0, 0, 0, 1, 0x65, 0x88];
    let mut depacketizer = depacketizer(h264());
    // With the code in front and without, whole and in fragments; each is a picture, and ends with its marker.
    depacketizer.push(&video(0, 0, true, &unit));
    depacketizer.push(&video(1, 1, true, &unit[4..]));
    depacketizer.push(&video(2, 2, false, &[&[0x7c, 0x87], &unit[5..9]].concat()));
    depacketizer.push(&video(3, 2, true, &[&[0x7c, 0x47], &unit[9..]].concat()));
    let expected = [0, 1, 2].map(|ticks| (ticks, unit.to_vec()));
    assert_eq!(frames(&mut depacketizer), expected);
    // Aggregates, with zeroes behind them.
    depacketizer.push(&video(4, 3, true, &[24, 0, 6, 0, 0, 0, 1, 0x65, 0x88, 0, 0, 0]));
    assert_eq!(frames(&mut depacketizer), [(3, vec![0, 0, 0, 1, 0x65, 0x88])]);
}

#[test]
fn a_fragment_without_an_end_ends_with_what_follows() {
    let mut depacketizer = depacketizer(h264());
    depacketizer.push(&video(0, 0, false, &[0x7c, 0x85, 0x88]));
    depacketizer.push(&video(1, 0, false, &[0x7c, 0x05, 1]));
    depacketizer.push(&video(2, 0, true, &[0x65, 0x08]));
    assert_eq!(frames(&mut depacketizer), [(0, vec![0, 0, 0, 1, 0x65, 0x88, 1, 0, 0, 0, 1, 0x65, 0x08])]);
}

/// Markers that stand on slices, or nowhere, or where they belong, and the first pictures with each.
#[test]
fn a_picture_ends_where_its_timestamp_does() {
    // H.264 and H.265: the first slice of a picture and another one.
    let codecs: [(MediaCodec, [&[u8]; 2]); 2] =
        [(h264(), [&[0x65, 0x88], &[0x65, 0x08]]), (h265(), [&[0x26, 1, 0x88], &[0x26, 1, 0x08]])];
    for (codec, [first, second]) in codecs {
        for markers in [[true, true], [false, false], [false, true]] {
            let media = media(codec.clone());
            let mut depacketizer = Depacketizer::new(&media, &codec).expect("supported");
            let mut got = Vec::new();
            for picture in 0..9u32 {
                let slices = [first, second];
                for (at, (slice, marker)) in slices.into_iter().zip(markers).enumerate() {
                    let seq = (picture * 2) as u16 + at as u16;
                    depacketizer.push(&video(seq, picture * 3600, marker, slice));
                    got.extend(std::iter::from_fn(|| depacketizer.poll_frame()));
                }
            }
            assert!(got.len() >= 8, "{markers:?}: {}", got.len());
            let whole = [&[0, 0, 0, 1], first, &[0, 0, 0, 1], second].concat();
            for (frame, picture) in got.iter().zip(0..) {
                assert_eq!((frame.ticks, &frame.bytes), (picture * 3600, &whole), "{markers:?}");
            }
            // Markers that are where they belong cost no time once they have proved it.
            let prompt = got.iter().filter(|frame| !frame.is_overdue).count();
            assert_eq!(prompt, if markers == [false, true] { 6 } else { 0 }, "{markers:?}");
            assert_eq!(depacketizer.damage(), Damage::default());
        }
    }
}

#[test]
fn pictures_with_one_timestamp_are_parted_by_their_markers() {
    let media = media(h264());
    let mut depacketizer = Depacketizer::new(&media, &h264()).expect("supported");
    for seq in 0..6 {
        depacketizer.push(&video(seq, 0, true, &[0x65, 0x88]));
    }
    assert_eq!(frames(&mut depacketizer).len(), 5);
}

#[test]
fn a_source_that_counts_anew_is_followed() {
    let mut depacketizer = depacketizer(h264());
    let mut push = |seq: u16, ssrc| {
        let packet = Packet { ssrc, ..video(seq, u32::from(seq), true, &[0x65, 0x88]) };
        depacketizer.push(&packet);
        depacketizer.poll_frame().map(|frame| frame.gap)
    };
    assert_eq!([push(4000, 7), push(4001, 7)], [Some(false), Some(false)]);
    // Far back: one may be chance, two in a row are not.
    assert_eq!([push(10, 7), push(11, 7), push(12, 7)], [None, Some(true), Some(false)]);
    // Another source that goes on with the count is none that lost anything.
    assert_eq!([push(13, 8), push(14, 8), push(500, 9)], [Some(false), Some(false), Some(true)]);
}

#[test]
fn padding_may_be_all_there_is() {
    let head = [0xa0, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    for (padding, left) in [(&[0, 0, 0, 4][..], 0), (&[9, 9, 0], 3)] {
        let bytes = [&head, padding].concat();
        assert_eq!(Packet::parse(&bytes).map(|packet| packet.payload.len()), Ok(left), "{padding:?}");
    }
}

#[test]
fn several_aac_frames_in_a_packet_have_times_of_their_own() {
    let mut depacketizer = depacketizer(aac());
    // two headers of 16 bits: sizes 2 and 1
    depacketizer.push(&audio(0, 500, true, &[0, 32, 0, 16, 0, 8, 1, 2, 3]));
    assert_eq!(frames(&mut depacketizer), [(500, vec![1, 2]), (1524, vec![3])]);
}

#[test]
fn obus_get_size_fields_and_no_delimiters() {
    let mut depacketizer = depacketizer(MediaCodec::Av1);
    // a delimiter; the begin of a frame of five bytes; its rest
    depacketizer.push(&video(0, 0, false, &[0x40 | 2 << 4, 1, 0x10, 0x30, 1, 2]));
    depacketizer.push(&video(1, 0, true, &[0x80 | 1 << 4, 3, 4, 5]));
    assert_eq!(frames(&mut depacketizer), [(0, vec![0x32, 5, 1, 2, 3, 4, 5])]);
}

#[test]
fn a_vp9_structure_is_left_out() {
    let mut depacketizer = depacketizer(MediaCodec::Vp9);
    // picture number of 15 bits, begin, structure: one layer with its size, one picture with one reference
    depacketizer.push(&video(0, 0, true, &[0x8A, 0x81, 2, 0x18, 0, 64, 0, 64, 1, 4, 1, 0x82, 9]));
    assert_eq!(frames(&mut depacketizer), [(0, vec![0x82, 9])]);
}

#[test]
fn a_sender_report_is_found_behind_others() {
    let request = rtcp::picture_loss(1, 2);
    assert_eq!(rtcp::sender_clock(&request), None);
    let mut compound = request.to_vec();
    compound.extend([0x80, 200, 0, 6, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
    compound.extend([0; 8]);
    let clock = rtcp::SenderClock { ssrc: 9, ntp: 1 << 32 | 2, timestamp: 3 };
    assert_eq!(rtcp::sender_clock(&compound), Some(clock));
}

#[derive(Debug, TypeGenerator)]
struct Sent {
    marker: bool,
    step: u8,
    skipped: u8,
    payload: Vec<u8>,
}

#[test]
fn no_packet_makes_it_panic_or_grow() {
    let codecs = [h264(), h265(), MediaCodec::Av1, MediaCodec::Vp9, aac(), MediaCodec::Opus];
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(u8, Vec<Sent>)>().for_each(
        |(codec, packets)| {
            let codec = codecs[usize::from(*codec) % codecs.len()].clone();
            let payload_type = media(codec.clone()).payload_type;
            let mut depacketizer = depacketizer(codec);
            let (mut seq, mut timestamp) = (0u16, 0u32);
            let mut sent = 0;
            for packet in packets {
                seq = seq.wrapping_add(u16::from(packet.skipped % 3));
                timestamp = timestamp.wrapping_add(u32::from(packet.step % 2));
                let (marker, payload) = (packet.marker, &packet.payload[..]);
                depacketizer.push(&Packet { payload_type, ..video(seq, timestamp, marker, payload) });
                // A byte can at most become a NAL unit, an OBU or a frame of its own.
                sent += payload.len() * 8 + 8;
                let frames = std::iter::from_fn(|| depacketizer.poll_frame());
                assert!(frames.map(|frame| frame.bytes.len()).sum::<usize>() <= sent);
                assert!(depacketizer.open.bytes.len() <= sent);
            }
        },
    );
}

#[test]
fn no_bytes_make_the_headers_panic() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Vec<u8>>().for_each(|bytes| {
        if let Ok(packet) = Packet::parse(bytes) {
            assert!(packet.payload.len() + 12 <= bytes.len());
        }
        let _ = rtcp::sender_clock(bytes);
    });
}
