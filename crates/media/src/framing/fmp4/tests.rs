use mp4_atom::{Any, Codec, Moof, Moov, ReadFrom};

use super::super::clip::{self, Random};
use super::super::websocket::tests::read;
use super::*;
use crate::h264::without_reordering;
use crate::testing::{PICTURES, X264_SEQUENCE};
use crate::unit::{Unit, VideoCodec, VideoTrack};

/// A sample as the reader finds it, in ticks of its track.
#[derive(Debug)]
struct Sample {
    track_id: u32,
    decode_time: i64,
    duration: i64,
    presentation_time: i64,
    key: bool,
    bytes: Vec<u8>,
}

/// What the boxes of a stream say: the `moov`s, with how many samples are before each, and the samples.
#[derive(Debug, Default)]
struct Movie {
    moovs: Vec<(usize, Moov)>,
    samples: Vec<Sample>,
}

fn parse(mut bytes: &[u8]) -> Movie {
    let mut movie = Movie::default();
    let mut moof: Option<(usize, Moof)> = None;
    let mut number = None;
    while !bytes.is_empty() {
        let begin = bytes.len();
        match Any::read_from(&mut bytes).unwrap() {
            Any::Ftyp(ftyp) => assert_eq!(ftyp.major_brand, b"iso5".into()),
            Any::Moov(moov) => movie.moovs.push((movie.samples.len(), moov)),
            Any::Moof(found) => {
                assert!(number.is_none_or(|number| number < found.mfhd.sequence_number));
                number = Some(found.mfhd.sequence_number);
                moof = Some((begin, found));
            }
            Any::Mdat(mdat) => {
                let (moof_begin, moof) = moof.take().expect("a moof before each mdat");
                let traf = &moof.traf[0];
                let trun = &traf.trun[0];
                let entry = trun.samples.get(0).unwrap();
                assert_eq!((moof.traf.len(), traf.trun.len(), trun.samples.len()), (1, 1, 1));
                assert_eq!(trun.data_offset, Some((moof_begin - begin + 8) as i32), "the payload's place");
                assert_eq!(entry.size, Some(mdat.data.len() as u32));
                let decode_time = traf.tfdt.as_ref().unwrap().base_media_decode_time as i64;
                movie.samples.push(Sample {
                    track_id: traf.tfhd.track_id,
                    decode_time,
                    duration: entry.duration.unwrap().into(),
                    presentation_time: decode_time + entry.cts.unwrap(),
                    key: entry.flags == Some(0x0200_0000),
                    bytes: mdat.data,
                });
            }
            other => panic!("unexpected {:?}", other.kind()),
        }
    }
    movie
}

/// What a page sees.
#[derive(Debug, Default)]
struct Page {
    texts: Vec<String>,
    video: Vec<u8>,
    audio: Vec<u8>,
    samples: u32,
    /// Parts of a picture whose end is to come.
    parts: Vec<u8>,
}

/// What `mp4.js` makes of a sample's message.
fn add_fragment(number: u32, track_id: u32, message: &[u8], track: &mut Vec<u8>) {
    let (head, bytes) = message.split_first_chunk::<17>().expect("the short form");
    let word = |at: usize| head[at..at + 4].try_into().map(u32::from_be_bytes).unwrap();
    let place = timeline::Place {
        decode_time: u64::from(word(1)) << 32 | u64::from(word(5)),
        duration: word(9),
        offset: word(13) as i32,
    };
    assert!(head[0] <= 1);
    Fragment { number, track_id, place, key: head[0] == 1, size: bytes.len() as u32 }.write_header(track);
    track.extend_from_slice(bytes);
}

fn open(mut bytes: &[u8]) -> Page {
    let mut page = Page::default();
    while !bytes.is_empty() {
        let (opcode, payload, rest) = read(bytes).expect("whole messages");
        bytes = rest;
        match (opcode, payload) {
            (1, text) => page.texts.push(String::from_utf8(text.to_vec()).unwrap()),
            (2, [kind @ (1 | 3), segment @ ..]) => {
                assert_eq!(&segment[4..8], b"ftyp", "type {kind}");
                if *kind == 1 { &mut page.video } else { &mut page.audio }.extend_from_slice(segment);
            }
            (2, [kind @ (2 | 4), sample @ ..]) => {
                let (track, track_id) = match kind {
                    2 => (&mut page.video, init::VIDEO_ID),
                    _ => (&mut page.audio, init::AUDIO_ID),
                };
                page.samples += 1;
                let mut whole = if *kind == 2 { std::mem::take(&mut page.parts) } else { Vec::new() };
                whole.extend_from_slice(sample);
                add_fragment(page.samples, track_id, &whole, track);
            }
            (2, [6, part @ ..]) => page.parts.extend_from_slice(part),
            other => panic!("unexpected message {other:?}"),
        }
    }
    assert!(page.parts.is_empty(), "a picture without its end");
    page
}

/// The sample that a unit has to become.
fn sample_of(unit: &Unit) -> Vec<u8> {
    if unit.head.nals.is_empty() {
        return unit.bytes.clone();
    }
    let mut bytes = Vec::new();
    for nal in &unit.head.nals {
        bytes.extend_from_slice(&(nal.end - nal.start).to_be_bytes());
        bytes.extend_from_slice(&unit.bytes[nal.start as usize..nal.end as usize]);
    }
    bytes
}

/// Likewise, as it is where the initialization has another parameter set.
fn straight_sample_of(unit: &Unit) -> Vec<u8> {
    let mut unit = unit.clone();
    let kinds = unit.head.nal_headers.iter().map(|header| header[0] & 31);
    let mut is_kept = kinds.map(|kind| kind != 7).collect::<Vec<_>>().into_iter();
    unit.head.nals.retain(|_| is_kept.next().unwrap());
    sample_of(&unit)
}

/// Samples of a track are those of the units, and shown when they have to be.
fn check(samples: &[&Sample], units: &[&Unit], rate: u32, origin_ns: i64) {
    assert_eq!(samples.len(), units.len());
    for (sample, unit) in samples.iter().zip(units) {
        let at = MediaTime::from_nanos(unit.head.pts.as_nanos() - origin_ns).ticks(rate);
        assert_eq!(sample.presentation_time, at);
        assert_eq!(sample.key, unit.head.key);
        assert!(sample.bytes == sample_of(unit) || sample.bytes == straight_sample_of(unit));
    }
}

/// Likewise, and each begins where the one before it ends.
fn check_contiguous(samples: &[&Sample], units: &[&Unit], rate: u32, origin_ns: i64) {
    check(samples, units, rate, origin_ns);
    let mut end = None;
    for (sample, unit) in samples.iter().zip(units) {
        assert!(end.is_none_or(|end| end == sample.decode_time), "decode time jumps");
        assert!(sample.duration > 0);
        end = Some(sample.decode_time + sample.duration);
        let true_end = unit.head.dts.as_nanos() + i64::from(unit.head.duration_ns) - origin_ns;
        assert_eq!(end, Some(MediaTime::from_nanos(true_end).ticks(rate)), "it catches up");
    }
}

/// Likewise, and each lasts so long that the next one makes no jump in decode time.
fn check_bridging(samples: &[&Sample], units: &[&Unit], rate: u32, origin_ns: i64) {
    check(samples, units, rate, origin_ns);
    assert!(samples.iter().all(|sample| sample.duration == i64::from(rate) * 3 / 2));
    for pair in samples.windows(2) {
        let step = pair[1].decode_time - pair[0].decode_time;
        assert!(step > 0 && step <= pair[0].duration, "decode time jumps");
    }
}

struct Written<'a> {
    bytes: Vec<u8>,
    video: Vec<&'a Unit>,
    audio: Vec<&'a Unit>,
    origin_ns: i64,
    /// Units that overtook another one.
    overtook: usize,
}

fn write(units: &[Unit], carriage: Carriage, share: u8, seed: u64) -> Written<'_> {
    let mut random = Random(seed);
    let mut framer = Fmp4::new(clip::catalog(units), carriage);
    let kept = clip::kept(units, share, &mut random);
    let mut written =
        Written { bytes: Vec::new(), video: Vec::new(), audio: Vec::new(), origin_ns: 0, overtook: 0 };
    for (with, bytes) in clip::framed_mixed(&mut framer, units, &kept, &mut random) {
        if written.bytes.is_empty() {
            written.origin_ns = units[with[0]].head.dts.as_nanos() - 1_000_000_000;
        }
        if bytes.is_empty() {
            continue;
        }
        written.bytes.extend(bytes);
        written.overtook += with.len() - 1;
        for unit in with.into_iter().map(|index| &units[index]) {
            match unit.head.kind {
                Kind::Video => written.video.push(unit),
                Kind::Audio => written.audio.push(unit),
            }
        }
    }
    written
}

fn of_track(movie: &Movie, track_id: u32) -> Vec<&Sample> {
    movie.samples.iter().filter(|sample| sample.track_id == track_id).collect()
}

#[test]
fn a_page_gets_tracks_without_jumps_despite_drops() {
    let Some(video) = clip::h264() else { return };
    let (_, units) = clip::stream(Some(video), Some(clip::aac()));
    let mut overtook = 0;
    for seed in 0..40 {
        let written = write(&units, Carriage::WebSocket, (seed * 6) as u8, seed);
        overtook += written.overtook;
        let page = open(&written.bytes);
        let (video, audio) = (parse(&page.video), parse(&page.audio));
        check_bridging(&of_track(&video, 1), &written.video, 90_000, written.origin_ns);
        check_contiguous(&of_track(&audio, 2), &written.audio, 48_000, written.origin_ns);
        assert_eq!(audio.moovs.len(), usize::from(!written.audio.is_empty()), "one initialization");
        assert_eq!(video.moovs.is_empty(), written.video.is_empty());
        assert_eq!(page.texts[0], format!(r#"{{"type":"origin","media_ns":{}}}"#, written.origin_ns));
        let aac = r#"{"type":"track","kind":"audio","mime":"audio/mp4; codecs=\"mp4a.40.2\""}"#;
        assert!(page.texts.iter().any(|text| text == aac), "{:?}", page.texts);
    }
    assert!(overtook > 40, "{overtook}");
}

/// The first group goes without what is reordered, the second one whole.
#[test]
fn where_nothing_is_reordered_a_decoder_holds_nothing_back() {
    let Some(video) = clip::h264() else { return };
    let (_, units) = clip::stream(Some(video), None);
    let mut random = Random(1);
    let mut framer = Fmp4::new(clip::catalog(&units), Carriage::WebSocket);
    let (mut bytes, mut sent) = (Vec::new(), Vec::new());
    for (index, unit) in units.iter().enumerate() {
        if index < 16 && unit.layer > 1 {
            continue;
        }
        let framed = clip::framed(&mut framer, index, unit, &mut random);
        let is_left_out = (16..32).contains(&index) && unit.layer > 1;
        assert_eq!(framed.is_empty(), is_left_out, "picture {index}");
        if !is_left_out {
            sent.push(unit);
        }
        bytes.extend(framed);
    }
    let page = open(&bytes);
    let movie = parse(&page.video);
    check_bridging(&of_track(&movie, 1), &sent, 90_000, units[0].head.dts.as_nanos() - 1_000_000_000);
    let described = movie.moovs.iter().map(|(place, moov)| {
        let Codec::Avc3(avc) = &moov.trak[0].mdia.minf.stbl.stsd.codecs[0] else { panic!("avc3") };
        let is_straight = without_reordering(&avc.avcc.sequence_parameter_sets[0]).is_none();
        assert_eq!(avc.colr.is_some(), is_straight);
        (*place, is_straight)
    });
    let keys: Vec<_> = (0..sent.len()).filter(|&at| sent[at].head.key).collect();
    let expected = [(keys[0], false), (keys[1], true), (keys[2], false)];
    assert_eq!(described.collect::<Vec<_>>(), expected);
    let straight = &movie.samples[keys[1]];
    assert_eq!(straight.bytes, straight_sample_of(sent[keys[1]]));
    assert_eq!(clip::decoded(&page.video, "mp4", "0:v"), Some(sent.len()));
}

#[test]
fn ffmpeg_plays_what_is_left() {
    let Some(video) = clip::h264() else { return };
    let (_, units) = clip::stream(Some(video), Some(clip::aac()));
    for seed in 0..4 {
        let written = write(&units, Carriage::Plain, 20 + 50 * seed as u8, seed);
        let movie = parse(&written.bytes);
        assert_eq!((movie.moovs.len(), movie.moovs[0].1.trak.len()), (1, 2));
        check_contiguous(&of_track(&movie, 1), &written.video, 90_000, written.origin_ns);
        check_contiguous(&of_track(&movie, 2), &written.audio, 48_000, written.origin_ns);
        for (specifier, units) in [("v", &written.video), ("a", &written.audio)] {
            let Some(times) = clip::probed(&written.bytes, "mp4", specifier) else { return };
            assert_eq!(times.len(), units.len());
            for (time, unit) in times.iter().zip(units) {
                let expected = (unit.head.pts.as_nanos() - written.origin_ns) as f64 / 1e9;
                assert!((time - expected).abs() < 1e-4, "{time} is not {expected}");
            }
            assert_eq!(clip::decoded(&written.bytes, "mp4", &format!("0:{specifier}")), Some(units.len()));
        }
    }
}

#[test]
fn other_codecs_play_as_well() {
    let clips = [
        (clip::h265(), clip::opus(), "hev1.1.6.L60.90"),
        (clip::vp9(), clip::opus(), "vp09.00.11.08"),
        (clip::av1(), clip::aac(), "av01.0.00M.08"),
    ];
    for (video, sound, name) in clips {
        let Some(video) = video else { return };
        let (tracks, units) = clip::stream(Some(video), Some(sound));
        let mime = mime(&tracks).unwrap();
        assert!(mime.contains(name), "{mime}");
        let written = write(&units, Carriage::Plain, 12, 7);
        let movie = parse(&written.bytes);
        check_contiguous(&of_track(&movie, 1), &written.video, 90_000, written.origin_ns);
        assert!(written.video.len() > 10 && written.video.len() < PICTURES, "{}", written.video.len());
        assert_eq!(clip::decoded(&written.bytes, "mp4", "0:v"), Some(written.video.len()), "{name}");
        assert_eq!(clip::decoded(&written.bytes, "mp4", "0:a"), Some(written.audio.len()), "{name}");
    }
}

#[test]
fn the_initialization_says_what_the_stream_is() {
    let Some(video) = clip::h264() else { return };
    let VideoCodec::H264 { sps, pps } = video.0.codec.clone() else { panic!("H.264") };
    let (_, units) = clip::stream(Some(video), Some(clip::opus()));
    let movie = parse(&write(&units, Carriage::Plain, 0, 0).bytes);
    let [video, audio] = movie.moovs[0].1.trak.as_slice() else { panic!("two tracks") };
    let Codec::Avc3(avc) = &video.mdia.minf.stbl.stsd.codecs[0] else { panic!("avc3") };
    assert_eq!((avc.visual.width, avc.visual.height, avc.avcc.length_size), (192, 128, 4));
    assert_eq!((&avc.avcc.sequence_parameter_sets[0], &avc.avcc.picture_parameter_sets[0]), (&sps, &pps));
    let Codec::Opus(opus) = &audio.mdia.minf.stbl.stsd.codecs[0] else { panic!("Opus") };
    assert_eq!((opus.dops.output_channel_count, audio.mdia.mdhd.timescale), (2, 48_000));
}

/// A stream of pictures without content.
fn pictures(tracks: &[&Arc<Tracks>]) -> Vec<Unit> {
    let unit = |(index, tracks): (usize, &&Arc<Tracks>)| {
        let at = MediaTime::from_ticks(index as i64, 25);
        let head = UnitHead {
            kind: Kind::Video,
            pts: at,
            dts: at,
            duration_ns: 40_000_000,
            key: index % 4 == 0,
            len: 5,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::clone(tracks),
        };
        Unit { head, layer: 0, group: 0, refs: [0, 0], bytes: vec![index as u8; 5] }
    };
    tracks.iter().enumerate().map(unit).collect()
}

fn vp9(width: u32) -> Arc<Tracks> {
    let codec = VideoCodec::Vp9 { profile: 0, bit_depth: 8 };
    Arc::new(Tracks { video: Some(VideoTrack { codec, width, height: 90 }), audio: None })
}

#[test]
fn new_tracks_are_described_at_the_next_key_unit() {
    let (small, same, large) = (vp9(160), vp9(160), vp9(320));
    let units = pictures(&[&small, &small, &small, &small, &same, &same, &large, &large, &large, &large]);
    let written = write(&units, Carriage::WebSocket, 0, 1);
    let page = open(&written.bytes);
    let movie = parse(&page.video);
    let places: Vec<_> =
        movie.moovs.iter().map(|(place, moov)| (*place, moov.trak[0].tkhd.width.integer())).collect();
    assert_eq!(places, [(0, 160), (8, 320)]);
    check_bridging(&of_track(&movie, 1), &written.video, 90_000, written.origin_ns);
    assert_eq!(page.texts.len(), 3);
}

#[test]
fn undecodable_units_are_skipped() {
    let tracks = vp9(160);
    let huge = vp9(100_000);
    let units = pictures(&[&tracks, &tracks, &tracks, &tracks, &huge, &huge, &tracks, &tracks, &tracks]);
    let mut random = Random(3);
    let mut framer = Fmp4::new(clip::catalog(&units), Carriage::WebSocket);
    let mut skipped = |seq: usize, unit: &Unit| clip::framed(&mut framer, seq, unit, &mut random).is_empty();
    assert!(skipped(1, &units[1]), "nothing before a key unit");
    assert!(!skipped(0, &units[0]));
    assert!(skipped(77, &units[2]), "not in the catalog");
    assert!(skipped(3, &units[3]), "needs what was skipped");
    assert!(skipped(4, &units[4]), "cannot be described");
    assert!(skipped(6, &units[6]), "needs what was skipped");
    assert!(!skipped(8, &units[8]));
}

/// A key picture of this many bytes, with its parameter sets.
fn key_picture(len: u32) -> Unit {
    let codec = VideoCodec::H264 { sps: X264_SEQUENCE.to_vec(), pps: vec![0x68, 1, 2] };
    let tracks =
        Arc::new(Tracks { video: Some(VideoTrack { codec, width: 1280, height: 720 }), audio: None });
    let [unit] = pictures(&[&tracks]).try_into().expect("one");
    let nals = vec![4..30, 34..37, 41..len];
    let nal_headers = vec![[0x67, 0x64], [0x68, 1], [0x65, 0x88]];
    Unit { head: UnitHead { len, nals, nal_headers, ..unit.head }, bytes: vec![0; len as usize], ..unit }
}

/// The fewest pieces that there can be, as the bytes between two NAL units differ: so a write by reference has few calls.
#[test]
fn a_picture_has_a_header_and_a_piece_for_each_nal_unit() {
    for carriage in [Carriage::WebSocket, Carriage::Plain] {
        for len in [100, 40_000, 400_000, 4_000_000] {
            let units = [key_picture(len)];
            let mut framer = Fmp4::new(clip::catalog(&units), carriage);
            framer.begin(0, len);
            let mut pieces = Vec::new();
            loop {
                let mut prefix = Vec::new();
                let piece = framer.next(usize::MAX, &mut prefix).expect("until the last");
                let is_last = piece.last;
                pieces.push((piece.payload, prefix.len()));
                if is_last {
                    break;
                }
            }
            let payload: Vec<_> = pieces.iter().map(|(payload, _)| payload.clone()).collect();
            assert_eq!(payload, units[0].head.nals, "{carriage:?}, {len}");
            assert!(pieces[1..].iter().all(|(_, header)| *header == LENGTH_BYTES as usize), "{pieces:?}");
        }
    }
}

#[test]
fn without_room_there_is_no_piece() {
    let units = pictures(&[&vp9(160)]);
    let mut framer = Fmp4::new(clip::catalog(&units), Carriage::Plain);
    framer.begin(0, 5);
    let first = framer.next(0, &mut Vec::new());
    assert_eq!(
        first,
        Some(Piece { payload: 0..0, last: false, boundary: false }),
        "framing bytes come at once"
    );
    assert_eq!(framer.next(0, &mut Vec::new()), None);
    assert_eq!(framer.next(3, &mut Vec::new()), Some(Piece { payload: 0..3, last: false, boundary: false }));
    assert_eq!(framer.next(3, &mut Vec::new()), Some(Piece { payload: 3..5, last: true, boundary: true }));
}

#[test]
fn any_parameter_sets() {
    bolero::check!().with_iterations(crate::testing::ITERATIONS).for_each(|bytes: &[u8]| {
        let set = || bytes.to_vec();
        let codecs = [
            VideoCodec::H264 { sps: set(), pps: set() },
            VideoCodec::H265 { vps: set(), sps: set(), pps: set() },
            VideoCodec::Av1 { sequence_header: set() },
        ];
        for codec in codecs {
            let video = Some(VideoTrack { codec, width: 160, height: 90 });
            if let Some(tracks) = descriptions(&Tracks { video, audio: None }) {
                let segment = init::segment(tracks);
                assert!(segment.is_none_or(|segment| parse(&segment).moovs.len() == 1));
            }
        }
    });
}
