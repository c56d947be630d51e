use std::collections::BTreeMap;

use super::super::clip::{self, Random};
use super::*;
use crate::mpeg_ts::{PACKET_BYTES, checksum};
use crate::unit::{AudioCodec, AudioTrack, Unit, VideoCodec, VideoTrack};

/// A PES packet as the reader finds it.
#[derive(Debug)]
struct Pes {
    pid: u16,
    pts: i64,
    dts: i64,
    random_access: bool,
    /// The last clock reference before its end.
    pcr: i64,
    payload: Vec<u8>,
}

/// A reader that accepts nothing unusual.
#[derive(Default)]
struct Reader {
    counters: BTreeMap<u16, u8>,
    open: BTreeMap<u16, (Vec<u8>, bool)>,
    pcr: Option<i64>,
    /// Each with the number of PES packets before it.
    pcrs: Vec<(usize, i64)>,
    maps: Vec<(usize, Vec<u8>)>,
    pes: Vec<Pes>,
}

impl Reader {
    fn read(bytes: &[u8]) -> Self {
        let mut reader = Self::default();
        assert_eq!(bytes.len() % PACKET_BYTES, 0);
        for packet in bytes.chunks(PACKET_BYTES) {
            reader.packet(packet);
        }
        assert!(reader.open.is_empty(), "PES packets are whole");
        reader
    }

    fn packet(&mut self, packet: &[u8]) {
        assert_eq!(packet[0], 0x47);
        let start = packet[1] & 0x40 != 0;
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let (control, counter) = (packet[3] >> 4, packet[3] & 15);
        assert!(packet[1] & 0xa0 == 0 && matches!(control, 1..=3));
        let has_payload = control & 1 == 1;
        let step = u8::from(has_payload);
        if let Some(&last) = self.counters.get(&pid) {
            assert_eq!(counter, (last + step) & 15, "continuity of {pid:#x}");
        }
        self.counters.insert(pid, counter);
        let mut random_access = false;
        let mut at = 4;
        if control & 2 != 0 {
            let len = usize::from(packet[4]);
            assert!(len <= 183 && (has_payload || len == 183));
            at = 5 + len;
            if len > 0 {
                random_access = packet[5] & 0x40 != 0;
                self.clock(pid, &packet[5..at]);
            }
        }
        if !has_payload {
            return;
        }
        assert!(at < PACKET_BYTES);
        match pid {
            tables::PAT_PID => self.association(&packet[at..], start),
            tables::PMT_PID => self.map(&packet[at..], start),
            _ => self.part(pid, start, random_access, &packet[at..]),
        }
    }

    fn clock(&mut self, pid: u16, field: &[u8]) {
        let stuffing = if field[0] & 0x10 != 0 {
            let bits = field[1..7].iter().fold(0_u64, |bits, &byte| bits << 8 | u64::from(byte));
            assert_eq!(bits >> 9 & 0x3f, 0x3f);
            let pcr = (bits >> 15) as i64;
            let map = &self.maps.last().expect("a map before the clock").1;
            assert_eq!(u16::from_be_bytes([map[8] & 0x1f, map[9]]), pid, "the clock's PID");
            assert!(self.pcr.is_none_or(|last| last <= pcr), "the clock runs back");
            self.pcr = Some(pcr);
            self.pcrs.push((self.pes.len(), pcr));
            &field[7..]
        } else {
            &field[1..]
        };
        assert!(stuffing.iter().all(|&byte| byte == 0xff));
    }

    fn section(payload: &[u8], start: bool) -> Vec<u8> {
        assert!(start && payload[0] == 0);
        let len = usize::from(u16::from_be_bytes([payload[2] & 15, payload[3]])) + 3;
        let (section, rest) = payload[1..].split_at(len);
        assert!(rest.iter().all(|&byte| byte == 0xff));
        assert_eq!(checksum(section), 0);
        section.to_vec()
    }

    fn association(&mut self, payload: &[u8], start: bool) {
        let section = Self::section(payload, start);
        assert_eq!((section[0], &section[8..12]), (0, &[0, 1, 0xf0, 0][..]));
    }

    fn map(&mut self, payload: &[u8], start: bool) {
        let section = Self::section(payload, start);
        assert_eq!(section[0], 2);
        self.maps.push((self.pes.len(), section));
    }

    fn part(&mut self, pid: u16, start: bool, random_access: bool, payload: &[u8]) {
        if start {
            let before = self.open.insert(pid, (Vec::new(), random_access));
            assert!(before.is_none(), "a PES packet that is not whole");
        }
        let (bytes, random_access) = self.open.get_mut(&pid).expect("a PES packet begins first");
        bytes.extend_from_slice(payload);
        let len = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        assert!(len > 0, "small units have a length");
        if bytes.len() < len + 6 {
            return;
        }
        assert_eq!(bytes.len(), len + 6);
        assert_eq!((&bytes[..3], bytes[6] >> 6), (&[0, 0, 1][..], 2));
        let time = |at: usize| {
            let bits = bytes[at..at + 5].iter().fold(0_i64, |bits, &byte| bits << 8 | i64::from(byte));
            assert_eq!(bits & 0x1_0001_0001, 0x1_0001_0001, "marker bits");
            bits >> 3 & 0x1_c000_0000 | bits >> 2 & 0x3fff_8000 | bits >> 1 & 0x7fff
        };
        let pts = time(9);
        let dts = if bytes[7] & 0x40 != 0 { time(14) } else { pts };
        let payload = bytes[9 + usize::from(bytes[8])..].to_vec();
        let pcr = self.pcr.expect("a clock");
        self.pes.push(Pes { pid, pts, dts, random_access: *random_access, pcr, payload });
        self.open.remove(&pid);
    }
}

fn write<'a>(tracks: &Arc<Tracks>, units: &'a [Unit], share: u8, seed: u64) -> (Vec<u8>, Vec<&'a Unit>) {
    let mut random = Random(seed);
    let mut framer = Ts::new(clip::catalog(units), Arc::clone(tracks)).unwrap();
    let kept = clip::kept(units, share, &mut random);
    let mut bytes = Vec::new();
    for &index in &kept {
        bytes.extend(clip::framed(&mut framer, index, &units[index], &mut random));
    }
    (bytes, kept.into_iter().map(|index| &units[index]).collect())
}

fn lead(unit: &Unit) -> Vec<u8> {
    match (unit.head.kind, &unit.head.tracks.video, &unit.head.tracks.audio) {
        (Kind::Video, Some(VideoTrack { codec: VideoCodec::H264 { .. }, .. }), _) => {
            vec![0, 0, 0, 1, 9, 0xf0]
        }
        (Kind::Video, ..) => vec![0, 0, 0, 1, 0x46, 1, 0x50],
        (Kind::Audio, _, Some(AudioTrack { codec: AudioCodec::Opus, .. })) => vec![0x7f, 0xe0, 3],
        (Kind::Audio, ..) => vec![0xff, 0xf1, 0x4c, 0x80, 0x02, 0x1f, 0xfc],
    }
}

/// Every unit that was sent is there, whole and in its time; the clock and the tables keep their intervals.
fn check(bytes: &[u8], units: &[&Unit]) -> Reader {
    let reader = Reader::read(bytes);
    assert_eq!(reader.pes.len(), units.len());
    let origin = units[0].head.dts.as_nanos() - 1_000_000_000;
    let ticks = |nanos: i64| MediaTime::from_nanos(nanos - origin).ticks(90_000);
    for (pes, unit) in reader.pes.iter().zip(units) {
        let head = &unit.head;
        let pid = if head.kind == Kind::Video { 0x100 } else { 0x101 };
        assert_eq!((pes.pid, pes.random_access), (pid, head.key));
        assert_eq!((pes.pts, pes.dts), (ticks(head.pts.as_nanos()), ticks(head.dts.as_nanos())));
        assert!(pes.dts - pes.pcr >= 18_000, "the clock leads");
        assert!(pes.dts - pes.pcr <= 18_000 + 9_000, "the clock is not old");
        assert_eq!(pes.payload, [lead(unit), unit.bytes.clone()].concat());
    }
    for (index, unit) in units.iter().enumerate() {
        let begins = unit.head.key && unit.head.kind == Kind::Video;
        assert!(
            !begins || reader.maps.iter().any(|&(before, _)| before == index),
            "tables before a key unit"
        );
        let until = unit.head.dts.as_nanos();
        let &(last, _) = reader.maps.iter().rfind(|&&(before, _)| before <= index).unwrap();
        let since = until - units[last].head.dts.as_nanos();
        assert!(since <= 500_000_000, "no tables for {since} ns");
    }
    reader
}

#[test]
fn the_stream_is_whole_despite_drops() {
    let Some(video) = clip::h264() else { return };
    let (tracks, units) = clip::stream(Some(video), Some(clip::aac()));
    for seed in 0..40 {
        let (bytes, units) = write(&tracks, &units, (seed * 6) as u8, seed);
        check(&bytes, &units);
    }
    let pictures: Vec<_> = units.iter().filter(|unit| unit.head.kind == Kind::Video).cloned().collect();
    let (bytes, pictures) = write(&tracks, &pictures, 30, 9);
    check(&bytes, &pictures);
}

#[test]
fn sound_may_come_between_the_packets_of_a_picture() {
    let Some(video) = clip::h264() else { return };
    let (tracks, units) = clip::stream(Some(video), Some(clip::aac()));
    let mut overtook = 0;
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut framer = Ts::new(clip::catalog(&units), Arc::clone(&tracks)).unwrap();
        let kept = clip::kept(&units, (seed * 9) as u8, &mut random);
        let framed = clip::framed_mixed(&mut framer, &units, &kept, &mut random);
        overtook += framed.iter().map(|(with, _)| with.len() - 1).sum::<usize>();
        let bytes: Vec<u8> = framed.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let reader = Reader::read(&bytes);
        for (kind, pid) in [(Kind::Video, VIDEO_PID), (Kind::Audio, AUDIO_PID)] {
            let payloads = reader.pes.iter().filter(|pes| pes.pid == pid).map(|pes| pes.payload.clone());
            let sent = kept.iter().map(|&index| &units[index]).filter(|unit| unit.head.kind == kind);
            let expected = sent.map(|unit| [lead(unit), unit.bytes.clone()].concat());
            assert!(payloads.eq(expected), "{kind:?}");
        }
        assert!(reader.pes.iter().all(|pes| pes.dts - pes.pcr >= 18_000), "the clock leads");
    }
    assert!(overtook > 20, "{overtook}");
}

#[test]
fn sound_alone_has_the_clock() {
    let (tracks, units) = clip::stream(None, Some(clip::opus()));
    let (bytes, units) = write(&tracks, &units, 60, 5);
    check(&bytes, &units);
    assert!(clip::decoded(&bytes, "mpegts", "0:a").is_none_or(|frames| frames == units.len()));
}

#[test]
fn ffmpeg_plays_what_is_left() {
    let clips = [
        (clip::h264(), clip::aac(), 40),
        (clip::h264(), clip::opus(), 70),
        (clip::h265(), clip::opus(), 12),
        (clip::h265(), clip::aac(), 0),
    ];
    for (video, sound, share) in clips {
        let Some(video) = video else { return };
        let (tracks, units) = clip::stream(Some(video), Some(sound));
        let (bytes, units) = write(&tracks, &units, share, share.into());
        check(&bytes, &units);
        for (kind, specifier) in [(Kind::Video, "v"), (Kind::Audio, "a")] {
            let units = units.iter().filter(|unit| unit.head.kind == kind);
            let count = units.clone().count();
            assert!(count > 4, "{count}");
            let Some(mut times) = clip::probed(&bytes, "mpegts", specifier) else { return };
            let mut expected: Vec<_> = units.map(|unit| unit.head.pts.as_nanos() as f64 / 1e9).collect();
            let shift = times[0] - expected[0];
            expected.iter_mut().for_each(|time| *time += shift);
            times.iter_mut().zip(&expected).for_each(|(time, expected)| *time -= expected);
            assert_eq!(times.len(), count);
            assert!(times.iter().all(|error| error.abs() < 1e-4), "{times:?}");
            assert_eq!(clip::decoded(&bytes, "mpegts", &format!("0:{specifier}")), Some(count));
        }
    }
}

/// A stream of units without content, of these sizes.
fn filled(sizes: &[u32]) -> (Arc<Tracks>, Vec<Unit>) {
    let codec = VideoCodec::H264 { sps: Vec::new(), pps: Vec::new() };
    let tracks = Arc::new(Tracks { video: Some(VideoTrack { codec, width: 16, height: 16 }), audio: None });
    let unit = |(index, &len): (usize, &u32)| {
        let at = MediaTime::from_ticks(index as i64, 25);
        let head = UnitHead {
            kind: Kind::Video,
            pts: at,
            dts: at,
            duration_ns: 40_000_000,
            key: index % 4 == 0,
            len,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::clone(&tracks),
        };
        let refs = [u32::from(index % 4 != 0), 0];
        Unit { head, layer: 0, group: 0, refs, bytes: vec![index as u8; len as usize] }
    };
    let units = sizes.iter().enumerate().map(unit).collect();
    (tracks, units)
}

#[test]
fn units_of_any_size_fill_whole_packets() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<(Vec<u16>, u8)>().for_each(
        |(sizes, share)| {
            let sizes: Vec<_> = sizes.iter().take(20).map(|&size| u32::from(size % 2000) + 1).collect();
            let (tracks, units) = filled(&sizes);
            let (bytes, units) = write(&tracks, &units, *share, 1);
            if !units.is_empty() {
                check(&bytes, &units);
            }
        },
    );
}

#[test]
fn a_picture_too_long_for_the_length_field_leaves_it_open() {
    let (tracks, units) = filled(&[70_000]);
    let (bytes, _) = write(&tracks, &units, 0, 0);
    assert_eq!(bytes.len(), 188 * (2 + (70_000 + 14 + 6 + 8_usize).div_ceil(184)));
    let pes = &bytes[2 * 188 + 4 + 8..];
    assert_eq!(pes[..6], [0, 0, 1, 0xe0, 0, 0]);
}

#[test]
fn new_tracks_make_a_new_map() {
    let (tracks, mut units) = filled(&[100; 8]);
    let codec = VideoCodec::H265 { vps: Vec::new(), sps: Vec::new(), pps: Vec::new() };
    let other = Arc::new(Tracks { video: Some(VideoTrack { codec, width: 16, height: 16 }), audio: None });
    for unit in &mut units[4..] {
        unit.head.tracks = Arc::clone(&other);
    }
    let (bytes, written) = write(&tracks, &units, 0, 0);
    let reader = check(&bytes, &written);
    let maps: Vec<_> = reader.maps.iter().map(|(before, map)| (*before, map[5] >> 1 & 31, map[12])).collect();
    assert_eq!(maps, [(0, 0, 0x1b), (4, 1, 0x24)]);
}

#[test]
fn unsupported_units_are_reported_or_skipped() {
    let (_, mut units) = filled(&[10; 9]);
    let refused = |video: Option<VideoCodec>, audio: Option<AudioTrack>| {
        let video = video.map(|codec| VideoTrack { codec, width: 16, height: 16 });
        Ts::new(clip::catalog(&[]), Arc::new(Tracks { video, audio })).err()
    };
    let vp9 = VideoCodec::Vp9 { profile: 0, bit_depth: 8 };
    assert_eq!(refused(Some(vp9.clone()), None), Some(TsError::Codec { name: "VP9" }));
    let av1 = VideoCodec::Av1 { sequence_header: Vec::new() };
    assert_eq!(refused(Some(av1), None), Some(TsError::Codec { name: "AV1" }));
    let opus = AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels: 9 };
    assert_eq!(refused(None, Some(opus)), Some(TsError::OpusChannels { channels: 9 }));
    let aac = AudioCodec::Aac { config: vec![0x17, 0x80] };
    assert_eq!(refused(None, Some(AudioTrack { codec: aac, rate: 1, channels: 1 })), Some(TsError::Aac));
    assert_eq!(refused(None, None), Some(TsError::NoTrack));

    let other =
        Arc::new(Tracks { video: Some(VideoTrack { codec: vp9, width: 16, height: 16 }), audio: None });
    units[4].head.tracks = other;
    let mut random = Random(3);
    let mut framer = Ts::new(clip::catalog(&units), Arc::clone(&units[0].head.tracks)).unwrap();
    let mut skipped = |seq: usize, unit: &Unit| clip::framed(&mut framer, seq, unit, &mut random).is_empty();
    assert!(skipped(1, &units[1]), "nothing before a key unit");
    assert!(!skipped(0, &units[0]));
    assert!(skipped(77, &units[1]), "not in the catalog");
    assert!(skipped(2, &units[2]), "needs what was skipped");
    assert!(skipped(4, &units[4]), "cannot be carried");
    assert!(skipped(5, &units[5]), "needs what was skipped");
    assert!(!skipped(8, &units[8]));
}

#[test]
fn repetitions_take_the_place_of_pictures_that_are_dropped() {
    let (Some(h264), Some(h265)) = (clip::h264(), clip::h265()) else { return };
    for (video, sent) in
        [h264, h265].into_iter().flat_map(|video| [1, 2, 5].map(|sent| (video.clone(), sent)))
    {
        let (tracks, units) = clip::stream(Some(video), None);
        let mut framer = Ts::new(clip::catalog(&units), Arc::clone(&tracks)).unwrap();
        let (bytes, sent_pictures, replaced) =
            clip::framed_beginnings(&mut framer, &units, sent, &mut Random(sent as u64));
        assert_eq!(sent_pictures, sent * 4);
        assert!((20..=4 * (16 - sent)).contains(&replaced), "{replaced} for {sent} of each group");
        assert_eq!(Reader::read(&bytes).pes.len(), sent_pictures + replaced);
        assert_eq!(clip::decoded(&bytes, "mpegts", "0:v").unwrap(), sent_pictures + replaced);
    }
}
