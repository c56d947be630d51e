use std::sync::Arc;

use super::*;
use crate::unit::{AudioTrack, MediaTime, UnitHead, VideoCodec, VideoTrack};

/// The tracks of a stream with this codec each.
pub(crate) fn tracks(video: VideoCodec, audio: AudioCodec) -> Tracks {
    Tracks {
        video: Some(VideoTrack { codec: video, width: 320, height: 180 }),
        audio: Some(AudioTrack { codec: audio, rate: 44_100, channels: 2 }),
    }
}

/// H.264 with parameter sets that only their header is true of.
pub(crate) fn h264() -> VideoCodec {
    VideoCodec::H264 { sps: vec![0x67, 0x42, 0xc0, 0x1e, 1], pps: vec![0x68, 1, 2] }
}

pub(crate) fn h265() -> VideoCodec {
    VideoCodec::H265 { vps: vec![0x40, 1, 1], sps: vec![0x42, 1, 2], pps: vec![0x44, 1, 3] }
}

pub(crate) fn aac() -> AudioCodec {
    AudioCodec::Aac { config: vec![0x12, 0x10] }
}

pub(crate) fn av1() -> VideoCodec {
    VideoCodec::Av1 { sequence_header: vec![10, 0] }
}

/// A temporal unit at `pts` ms with OBUs of these headers, without the bit for the size, and payload sizes.
fn av1_unit(tracks: &Arc<Tracks>, pts: i64, obus: &[(&[u8], usize)]) -> (UnitHead, Vec<u8>) {
    let (mut head, mut bytes) = unit(tracks, Kind::Video, pts, &[]);
    for &(header, size) in obus {
        let begin = bytes.len();
        bytes.push(header[0] | 2);
        bytes.extend(&header[1..]);
        let mut rest = size;
        while rest > 127 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes.extend((0..size).map(|at| (at % 251) as u8));
        head.nals.push(begin as u32..bytes.len() as u32);
        head.nal_headers.push([bytes[begin], bytes[begin + 1]]);
    }
    head.len = bytes.len() as u32;
    (head, bytes)
}

/// A unit at `pts` ms with NAL units of these sizes and headers, or of one size without NAL units, and bytes that differ.
pub(crate) fn unit(
    tracks: &Arc<Tracks>,
    kind: Kind,
    pts: i64,
    parts: &[([u8; 2], usize)],
) -> (UnitHead, Vec<u8>) {
    let has_nals = kind == Kind::Video
        && matches!(
            tracks.video.as_ref().map(|video| &video.codec),
            Some(VideoCodec::H264 { .. } | VideoCodec::H265 { .. })
        );
    let (mut bytes, mut nals, mut nal_headers) = (Vec::new(), Vec::new(), Vec::new());
    for &(header, size) in parts {
        if has_nals {
            bytes.extend([0, 0, 0, 1]);
        }
        let begin = bytes.len();
        bytes.extend((0..size).map(|at| (at % 251) as u8 ^ pts as u8));
        if has_nals {
            for (to, from) in bytes[begin..].iter_mut().zip(header) {
                *to = from;
            }
            nals.push(begin as u32..bytes.len() as u32);
            nal_headers.push([header[0], if size > 1 { header[1] } else { 0 }]);
        }
    }
    let time = MediaTime::from_nanos(pts * 1_000_000);
    let head = UnitHead {
        kind,
        pts: time,
        dts: time,
        duration_ns: 1,
        key: pts == 0,
        len: bytes.len() as u32,
        nals,
        nal_headers,
        repeat: None,
        tracks: Arc::clone(tracks),
    };
    (head, bytes)
}

/// Puts units together again, by the payload formats' own words.
pub(crate) struct Depacketizer {
    codec: &'static str,
    /// NAL units or frames; the last one may not be whole yet.
    pub(crate) parts: Vec<Vec<u8>>,
    /// Bytes that the last AAC frame lacks.
    missing: usize,
    /// The last part's fragments have not ended.
    is_open: bool,
}

impl Depacketizer {
    pub(crate) fn new(codec: &'static str) -> Self {
        Self { codec, parts: Vec::new(), missing: 0, is_open: false }
    }

    /// Takes the payload of the next packet.
    pub(crate) fn push(&mut self, payload: &[u8]) {
        let first = payload[0];
        match self.codec {
            "h264" if first & 31 == 28 => {
                assert_ne!(payload[1] & 0xc0, 0xc0, "begin and end in one fragment");
                self.fragment(payload[1], vec![first & 0xe0 | payload[1] & 31], &payload[2..]);
            }
            "h265" if first >> 1 & 63 == 49 => {
                assert_ne!(payload[2] & 0xc0, 0xc0, "begin and end in one fragment");
                let header = vec![first & 0x81 | (payload[2] & 63) << 1, payload[1]];
                self.fragment(payload[2], header, &payload[3..]);
            }
            "vp9" => {
                self.fragment((first & 0x0c) << 4, Vec::new(), &payload[1..]);
            }
            "aac" => {
                assert_eq!(payload[..2], [0, 16]);
                if self.missing == 0 {
                    self.missing = usize::from(u16::from_be_bytes([payload[2], payload[3]]) >> 3);
                    self.parts.push(Vec::new());
                }
                self.missing = self.missing.checked_sub(payload.len() - 4).expect("no more than the frame");
                self.parts.last_mut().expect("a first part").extend(&payload[4..]);
            }
            _ => self.parts.push(payload.to_vec()),
        }
    }

    fn fragment(&mut self, ends: u8, header: Vec<u8>, body: &[u8]) {
        assert_eq!(self.is_open, ends & 0x80 == 0, "one begins when the one before has ended");
        if ends & 0x80 != 0 {
            self.parts.push(header);
        }
        self.is_open = ends & 0x40 == 0;
        self.parts.last_mut().expect("a first part").extend(body);
    }
}

/// The parts of a unit that have to arrive: its NAL units, or all of it.
pub(crate) fn parts(head: &UnitHead, bytes: &[u8]) -> Vec<Vec<u8>> {
    if head.nals.is_empty() {
        return vec![bytes.to_vec()];
    }
    head.nals.iter().map(|nal| bytes[nal.start as usize..nal.end as usize].to_vec()).collect()
}

fn assert_whole(codec: &'static str, head: UnitHead, bytes: &[u8], max: usize) {
    let parts = parts(&head, bytes);
    let marks = codec != "opus";
    let mut plan = Packets::new(Arc::new(head), u32::MAX).unwrap();
    let mut arrived = Depacketizer::new(codec);
    let mut ended = false;
    while let Some(packet) = plan.next_packet(max) {
        assert!(!ended, "a packet after the last");
        let mut payload = packet.header.as_bytes().to_vec();
        payload.extend(&bytes[packet.payload.start as usize..packet.payload.end as usize]);
        assert!(payload.len() <= max && !packet.payload.is_empty());
        arrived.push(&payload);
        ended = packet.last;
        assert_eq!(packet.marker, packet.last && marks);
    }
    assert!(ended && !arrived.is_open, "no last packet");
    assert_eq!(arrived.parts, parts);
}

#[test]
fn every_nal_unit_arrives_whole_whatever_the_sizes() {
    let tracks_264 = Arc::new(tracks(h264(), aac()));
    let tracks_265 = Arc::new(tracks(h265(), aac()));
    bolero::check!()
        .with_iterations(crate::testing::ITERATIONS)
        .with_type::<([Option<(u8, u16)>; 4], u16)>()
        .with_iterations(crate::testing::ITERATIONS)
        .for_each(|(nals, max)| {
            let max = usize::from(*max).max(4);
            let of = |least: usize, header: fn(u8) -> [u8; 2]| -> Vec<_> {
                nals.iter()
                    .flatten()
                    .map(|&(kind, size)| (header(kind), usize::from(size % 5000).max(least)))
                    .collect()
            };
            if nals.iter().all(Option::is_none) {
                return;
            }
            let (head, bytes) =
                unit(&tracks_264, Kind::Video, 1, &of(1, |kind| [kind & 0x60 | (kind % 23 + 1), 7]));
            assert_whole("h264", head, &bytes, max);
            let (head, bytes) = unit(&tracks_265, Kind::Video, 1, &of(3, |kind| [(kind % 48) << 1, 1]));
            assert_whole("h265", head, &bytes, max);
        });
}

#[test]
fn frames_without_nal_units_arrive_whole() {
    let vp9 = Arc::new(tracks(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }, aac()));
    let opus = Arc::new(tracks(h264(), AudioCodec::Opus));
    bolero::check!()
        .with_iterations(crate::testing::ITERATIONS)
        .with_type::<(u16, u16)>()
        .with_iterations(500)
        .for_each(|&(size, max)| {
            let (size, max) = (usize::from(size % 8191) + 1, usize::from(max).max(5));
            for (codec, tracks, kind) in
                [("vp9", &vp9, Kind::Video), ("aac", &vp9, Kind::Audio), ("opus", &opus, Kind::Audio)]
            {
                let (head, bytes) = unit(tracks, kind, 3, &[([0, 0], size)]);
                let max = if codec == "opus" { max.max(size) } else { max };
                assert_whole(codec, head, &bytes, max);
            }
        });
}

#[test]
fn fragments_are_as_the_formats_say() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let (head, _) = unit(&tracks, Kind::Video, 1000, &[([0x67, 0x42], 10), ([0x65, 0x88], 250)]);
    let mut plan = Packets::new(Arc::new(head), 5).unwrap();
    let mut next = || plan.next_packet(100).unwrap();
    let packet =
        |marker, header, payload| Packet { marker, timestamp: 90_005, header, payload, last: marker };
    assert_eq!(next(), packet(false, PayloadHeader::default(), 4..14));
    assert_eq!(next().header.as_bytes(), [0x7c, 0x85]);
    assert_eq!(next().header.as_bytes(), [0x7c, 0x05]);
    let last = next();
    assert_eq!((last.header.as_bytes(), last.payload.end, last.marker), (&[0x7c, 0x45][..], 268, true));
    assert_eq!(plan.next_packet(100), None);
}

#[test]
fn vp9_and_aac_headers() {
    let tracks = Arc::new(tracks(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }, aac()));
    let headers = |head: UnitHead, max| {
        let mut plan = Packets::new(Arc::new(head), 0).unwrap();
        std::iter::from_fn(|| plan.next_packet(max))
            .map(|packet| (packet.header.as_bytes().to_vec(), packet.marker))
            .collect::<Vec<_>>()
    };
    let vp9 = |pts| unit(&tracks, Kind::Video, pts, &[([0, 0], 25)]).0;
    assert_eq!(headers(vp9(0), 11), [(vec![0x08], false), (vec![0], false), (vec![0x04], true)]);
    assert_eq!(headers(vp9(1), 100), [(vec![0x4c], true)]);
    let (frame, _) = unit(&tracks, Kind::Audio, 1, &[([0, 0], 300)]);
    assert_eq!(headers(frame, 1000), [(vec![0, 16, 9, 96], true)], "300 is 9 << 5 | 96 >> 3");
}

#[test]
fn obus_go_one_by_one_without_their_sizes() {
    let tracks = Arc::new(tracks(av1(), aac()));
    let obus: [(&[u8], usize); 3] = [(&[0x08], 10), (&[0x34, 0x40], 300), (&[0x28], 0)];
    let packets = |key: bool| {
        let (mut head, bytes) = av1_unit(&tracks, 0, &obus);
        head.key = key;
        let mut plan = Packets::new(Arc::new(head), 0).unwrap();
        assert_eq!(plan.next_packet(1), None, "no room for a header");
        let packets: Vec<_> = std::iter::from_fn(|| plan.next_packet(100)).collect();
        let payload = packets.iter().flat_map(|p| &bytes[p.payload.start as usize..p.payload.end as usize]);
        let expected = (0..10).chain((0..300).map(|at| (at % 251) as u8));
        assert!(payload.copied().eq(expected), "nothing but payload, and all of it");
        assert!(packets.iter().all(|packet| packet.marker == packet.last));
        let last = packets.iter().position(|packet| packet.last);
        assert_eq!(last, Some(packets.len() - 1));
        packets
    };
    let headers: Vec<_> = packets(true)
        .iter()
        .map(|packet| (packet.header.as_bytes().to_vec(), packet.payload.end - packet.payload.start))
        .collect();
    // Z continues, Y continued, one element, N a new sequence; then the OBU's header.
    let expected: [(&[u8], u32); 6] = [
        (&[0b0001_1000, 0x08], 10),
        (&[0b0101_0000, 0x34, 0x40], 97),
        (&[0b1101_0000], 99),
        (&[0b1101_0000], 99),
        (&[0b1001_0000], 5),
        (&[0b0001_0000, 0x28], 0),
    ];
    assert_eq!(headers, expected.map(|(header, len)| (header.to_vec(), len)));
    assert_eq!(packets(false)[0].header.as_bytes(), [0b0001_0000, 0x08]);
}

#[test]
fn units_too_large_to_send_are_refused() {
    let tracks_264 = Arc::new(tracks(h264(), aac()));
    let plan = |head: UnitHead| Packets::new(Arc::new(head), 0).map(|_| ());
    let video = |parts: &[_]| unit(&tracks_264, Kind::Video, 1, parts).0;
    assert_eq!(plan(video(&[])), Err(PlanError::Malformed));
    assert_eq!(plan(video(&[([0x7c, 0], 9)])), Err(PlanError::Malformed), "only a NAL unit of type 28");
    let good = video(&[([0x41, 0], 9), ([0x41, 0], 9)]);
    let mut outside = good.clone();
    outside.nals[1].end += 1;
    assert_eq!(plan(outside), Err(PlanError::Malformed));
    let mut disordered = good.clone();
    disordered.nals.swap(0, 1);
    assert_eq!(plan(disordered), Err(PlanError::Malformed));
    let mut unnamed = good;
    unnamed.nal_headers.pop();
    assert_eq!(plan(unnamed), Err(PlanError::Malformed));
    let (frame, _) = unit(&tracks_264, Kind::Audio, 1, &[([0, 0], 8192)]);
    assert_eq!(plan(frame), Err(PlanError::TooLarge { len: 8192 }));
    let av1 = Arc::new(tracks(av1(), aac()));
    let (frame, _) = av1_unit(&av1, 1, &[(&[0x30], 9)]);
    assert_eq!(plan(frame.clone()), Ok(()));
    for no_length in [1, 1 + 129] {
        let mut cut = frame.clone();
        (cut.nals[0].end, cut.len) = (no_length, 200);
        assert_eq!(plan(cut), Err(PlanError::Malformed), "no size has this length behind it: {no_length}");
    }
    let mut without_size = frame;
    without_size.nal_headers[0][0] &= !2;
    assert_eq!(plan(without_size), Err(PlanError::Malformed));
    assert_eq!(plan(av1_unit(&av1, 1, &[]).0), Err(PlanError::Malformed));
    let (mut frame, _) = unit(&tracks_264, Kind::Audio, 1, &[([0, 0], 9)]);
    frame.tracks = Arc::default();
    assert_eq!(plan(frame), Err(PlanError::NoTrack));
}

#[test]
fn nal_units_that_rtp_has_other_uses_for_are_left_out() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let nals = [([24, 0], 5), ([0x41, 9], 50), ([30, 0], 5), ([0x41, 9], 300), ([31, 0], 5)];
    let (head, bytes) = unit(&tracks, Kind::Video, 1, &nals);
    let all = parts(&head, &bytes);
    let mut plan = Packets::new(Arc::new(head), 0).unwrap();
    let packets: Vec<_> = std::iter::from_fn(|| plan.next_packet(1000)).collect();
    let sent: Vec<_> =
        packets.iter().map(|p| bytes[p.payload.start as usize..p.payload.end as usize].to_vec()).collect();
    assert_eq!(sent, [all[1].clone(), all[3].clone()]);
    assert!(packets[1].last && packets[1].marker && !packets[0].last);
}

#[test]
fn a_wall_clock_is_a_line() {
    let clock = WallClock { media: MediaTime::from_nanos(2_000_000_000), ntp: 10 << 32 };
    assert_eq!(clock.ntp(MediaTime::from_nanos(3_500_000_000)), (11 << 32) + (1 << 31));
    assert_eq!(clock.ntp(MediaTime::from_nanos(1_000_000_000)), 9 << 32);
}

#[test]
fn datagrams_are_all_of_a_unit_or_nothing() {
    let tracks = Arc::new(tracks(h264(), AudioCodec::Opus));
    let identity = Identity { ssrc: 1, seq: 65535, timestamp_offset: 0 };
    let mut video = Stream::new(Kind::Video, identity);
    let mut datagrams = Datagrams::new(100);
    let (head, bytes) = unit(&tracks, Kind::Video, 1, &[([0x67, 0x42], 10), ([0x65, 0x88], 250)]);
    let parts = parts(&head, &bytes);
    let head = Arc::new(head);
    datagrams.write(&mut video, &head, &bytes).unwrap();
    assert_eq!(
        datagrams.write(&mut video, &head, &bytes[1..]).unwrap_err().to_string(),
        "the unit's bytes are 267, its head says 268"
    );
    let mut arrived = Depacketizer::new("h264");
    for (number, datagram) in datagrams.iter().enumerate() {
        assert!(datagram.len() <= 100);
        let packet = rtp_types::RtpPacket::parse(datagram).unwrap();
        assert_eq!(packet.sequence_number(), 65535_u16.wrapping_add(number as u16));
        arrived.push(packet.payload());
    }
    assert_eq!(arrived.parts, parts);
    datagrams.clear();
    let mut audio = Stream::new(Kind::Audio, identity);
    let (frame, bytes) = unit(&tracks, Kind::Audio, 1, &[([0, 0], 89)]);
    let frame = Arc::new(frame);
    assert_eq!(datagrams.write(&mut audio, &frame, &bytes), Err(PlanError::TooLarge { len: 89 }));
    assert_eq!((datagrams.iter().count(), audio.next_seq()), (0, 65535));
    assert_eq!(datagrams.write(&mut audio, &head, &[0; 268]), Err(PlanError::NoTrack));
}
