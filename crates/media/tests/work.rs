//! What a parser costs, whatever it is given: nothing of the size that it takes costs more than [`MOST`] of the processor.
//!
//! Inputs that repeat few pieces up to the largest size show quadratic work. Each property is a fuzz target
//! as well.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use bolero::{check, produce};
use freshwire_media::demux::{Assembler, Config, Demux, Event};
use freshwire_media::depacketize::{Depacketizer, Packet, rtcp};
use freshwire_media::framing::{chunked, length_prefixed};
use freshwire_media::sdp::{self, CodecError, Media, MediaCodec};
use freshwire_media::timeline::Given;
use freshwire_media::unit::{AudioCodec, AudioTrack, Kind, MediaTime};
use freshwire_media::video::{Format, Parser};
use rustix::time::{ClockId, clock_gettime};

/// The bound. The largest inputs cost a tenth of it on a machine of 2020.
const MOST: Duration = Duration::from_millis(50);

/// A datagram, an interleaved packet, a body of a request, and what is read from a pipe at once.
const INPUT: usize = 64 << 10;

/// The processor's time of this thread: what others have it for does not count.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Fails if it costs too much each of three times: a look at the clock may be unlucky, an input is not.
fn assert_cheap<T>(what: &dyn std::fmt::Debug, mut make: impl FnMut() -> T, run: impl Fn(T)) {
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let input = make();
        let began = spent();
        run(input);
        least = least.min(spent() - began);
        if least <= MOST {
            return;
        }
    }
    panic!("{what:?} costs {least:?}");
}

/// Pieces of a dictionary and the number of times for each, over and over up to the size.
type Plan = Vec<(u8, u8)>;

fn filled(begin: &[u8], dictionary: &[&[u8]], plan: &Plan, size: usize) -> Vec<u8> {
    let mut bytes = begin.to_vec();
    let round: Vec<&[u8]> = plan
        .iter()
        .flat_map(|&(piece, times)| {
            std::iter::repeat_n(dictionary[usize::from(piece) % dictionary.len()], 1 << (times % 8))
        })
        .collect();
    let mut pieces = round.iter().cycle();
    while let Some(piece) = pieces.next().filter(|piece| bytes.len() + piece.len() <= size) {
        bytes.extend_from_slice(piece);
    }
    bytes
}

fn plans() -> impl bolero::ValueGenerator<Output = Plan> {
    produce::<Plan>().with().len(1..=6usize)
}

const SESSION: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n";

/// As many payload types as there is room for, and as many parameters. That was 5.2 s before it was linear.
#[test]
fn a_description_of_many_payload_types() {
    let types = |count: usize| (0..count).map(|at| format!(" {}", at % 128)).collect::<String>();
    let wrong = "a=rtpmap:96 H264/90000\r\na=fmtp:96 sprop-parameter-sets=?\r\n";
    let texts = [
        format!("{SESSION}m=video 0 RTP/AVP{}\r\n{}", types(3000), "a=fmtp:96 a=b;c=d\r\n".repeat(2800)),
        format!("{SESSION}m=video 0 RTP/AVP{}\r\n{}", types(3000), "a=rtpmap:1 X/1\r\n".repeat(3000)),
        format!(
            "{SESSION}m=video 0 RTP/AVP{}\r\n{wrong}{}",
            " 96".repeat(10_000),
            "a=fmtp:96 x\r\n".repeat(2000)
        ),
        format!(
            "{SESSION}m=video 0 RTP/AVP{}\r\n{wrong}a=fmtp:96 {}\r\n",
            " 96".repeat(3000),
            "a;".repeat(20_000)
        ),
        format!("{SESSION}{}", "m=video 0 RTP/AVP 96\r\n".repeat(2900)),
    ];
    for text in texts {
        assert!(text.len() <= sdp::MAX_TEXT_BYTES, "{}", text.len());
        assert_cheap(&&text[..200], || (), |()| drop(sdp::parse(text.as_bytes())));
    }
}

#[test]
fn any_description() {
    let pieces: [&[u8]; 12] = [
        b"m=video 0 RTP/AVP 0 1 2 3 4 5 6 7 8 9 96 97 98 99\r\n",
        b"m=audio 0 RTP/AVP 96 96 96 96\r\n",
        b"a=rtpmap:96 H264/90000\r\n",
        b"a=rtpmap:97 MPEG4-GENERIC/48000/2\r\n",
        b"a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LAHgE=,aAEC\r\n",
        b"a=fmtp:97 mode=AAC-hbr;sizelength=13;config=1210;;;;;;;;;\r\n",
        b"a=control:x\r\n",
        b"a=x\r\n",
        b"b=AS:1\r\n",
        b"c=IN IP4 0.0.0.0\r\n",
        b"r=1 1 1 1 1 1 1 1\r\n",
        b"\r\n",
    ];
    check!().with_generator(plans()).with_iterations(300).for_each(|plan| {
        let text = filled(SESSION.as_bytes(), &pieces, plan, sdp::MAX_TEXT_BYTES);
        assert_cheap(plan, || (), |()| drop(sdp::parse(&text)));
    });
}

fn media(codec: MediaCodec) -> Media {
    let kind = match codec {
        MediaCodec::Aac { .. } | MediaCodec::Opus => Kind::Audio,
        _ => Kind::Video,
    };
    let codec: Result<_, CodecError> = Ok(codec);
    Media { kind, codec, payload_type: 96, clock_rate: 48_000, channels: 2, control: None }
}

/// A source of this codec, from packets to units.
fn source(codec: &MediaCodec) -> (Depacketizer, Assembler) {
    let depacketizer = Depacketizer::new(&media(codec.clone()), codec).unwrap();
    let sound = |codec| Some(AudioTrack { codec, rate: 48_000, channels: 2 });
    let (format, sound) = match codec {
        MediaCodec::H264 { .. } => (Some(Format::H264), None),
        MediaCodec::H265 { .. } => (Some(Format::H265), None),
        MediaCodec::Av1 => (Some(Format::Av1), None),
        MediaCodec::Vp9 => (Some(Format::Vp9), None),
        MediaCodec::Aac { config, .. } => (None, sound(AudioCodec::Aac { config: config.clone() })),
        _ => (None, sound(AudioCodec::Opus)),
    };
    (depacketizer, Assembler::new(Config::default(), format, sound))
}

/// Packets of these payloads as one frame, up to the units that come of it. Markers are not believed at first: the frame ends where the
/// next one begins.
fn receive((mut depacketizer, mut assembler): (Depacketizer, Assembler), payloads: &[&[u8]]) -> usize {
    const DELIMITER: &[u8] = &[0x09, 0x10];
    let frame = payloads.iter().map(|&payload| (payload, 0));
    for (at, (payload, timestamp)) in frame.chain([(DELIMITER, 3600)]).enumerate() {
        let marker = at + 1 == payloads.len();
        let seq = at as u16;
        depacketizer.push(&Packet { marker, payload_type: 96, seq, timestamp, ssrc: 1, payload });
    }
    while let Some(frame) = depacketizer.poll_frame() {
        let time = MediaTime::from_nanos(frame.ticks);
        assembler.video(&frame.bytes, Given::Shown(time));
        assembler.audio(frame.bytes, time);
    }
    assembler.filter(|event| matches!(event, Event::Unit(_))).count()
}

fn codecs() -> [MediaCodec; 6] {
    let config = vec![0x11, 0x90];
    [
        MediaCodec::H264 { packetization_mode: 1, sets: Vec::new() },
        MediaCodec::H265 { sets: Vec::new(), has_order_numbers: false },
        MediaCodec::Av1,
        MediaCodec::Vp9,
        MediaCodec::Aac { config, size_bits: 1, index_bits: 0, index_delta_bits: 0 },
        MediaCodec::Opus,
    ]
}

/// Parameter sets, slices and other NAL units of both codecs, OBUs and frames, whole and cut short, with the
/// bytes before them in packets.
const CODED: [&[u8]; 18] = [
    &[0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x47, 0xfe, 0xc8],
    &[0x68, 0xce, 0x38, 0x80],
    &[0x65, 0x88, 0x80],
    &[0x41, 0x9a, 0x01],
    &[0x09, 0xf0],
    &[0x40, 0x01, 0x0c],
    &[0x42, 0x01, 0x01, 0x01, 0x60, 0, 0, 3, 0, 0x90],
    &[0x44, 0x01, 0xc1, 0x72],
    &[0x26, 0x01, 0xaf],
    &[0x02, 0x01, 0xd0],
    &[0x12, 0x00],
    &[0x0a, 0x0b, 0, 0, 0, 0x04, 0x3c, 0xfe, 0xcc, 0xda, 0xf9, 0, 0x40],
    &[0x32, 0x01, 0x10],
    &[0, 0, 1],
    &[0, 0, 0, 1],
    &[0x00],
    &[0xff],
    &[0x00, 0x01],
];

/// With the begins of real streams.
fn coded() -> Vec<&'static [u8]> {
    let h264 = include_bytes!("../src/video/fixtures/open.h264").as_slice();
    let h265 = include_bytes!("../src/video/fixtures/open.h265").as_slice();
    let vp9 = include_bytes!("../src/video/fixtures/layers.vp9.ivf").as_slice();
    let av1 = include_bytes!("../src/video/fixtures/hierarchical.av1.ivf").as_slice();
    let real = [h264, h265, &vp9[44..], &av1[44..]];
    CODED.into_iter().chain(real.into_iter().flat_map(|stream| [&stream[..60], &stream[..400]])).collect()
}

#[test]
fn any_packet() {
    let begins: [&[u8]; 8] =
        [&[], &[24], &[28, 0x85], &[0x60, 1], &[0x62, 1, 0x93], &[0x10], &[0x8f], &[0xff, 0xff]];
    let generator = (0..6u8, 0..8u8, plans());
    check!().with_generator(generator).with_iterations(600).for_each(|(codec, begin, plan)| {
        let codec = &codecs()[usize::from(*codec)];
        let payload = filled(begins[usize::from(*begin)], &coded(), plan, INPUT);
        assert_cheap(
            &(codec, begin, plan),
            || source(codec),
            |source| {
                receive(source, &[&payload]);
            },
        );
    });
}

/// Each byte of a packet would be a frame of sound.
#[test]
fn a_packet_of_many_frames_of_sound() {
    let payload = [&[0xff, 0xff][..], &[0xff; 8192], &[1; 50_000]].concat();
    for size_bits in [1, 2, 8] {
        let codec =
            MediaCodec::Aac { config: vec![0x11, 0x90], size_bits, index_bits: 0, index_delta_bits: 0 };
        assert_cheap(
            &size_bits,
            || source(&codec),
            |source| {
                let units = receive(source, &[&payload]);
                assert!(units <= 64, "{units} frames of a packet");
            },
        );
    }
}

/// The NAL units of the first picture of a byte stream: all up to the second slice.
fn first_picture(stream: &[u8], is_slice: impl Fn(u8) -> bool) -> Vec<&[u8]> {
    let codes: Vec<usize> =
        stream.windows(3).enumerate().filter(|(_, at)| *at == [0, 0, 1]).map(|(at, _)| at).collect();
    let ends = codes.iter().skip(1).copied().chain([stream.len()]);
    let nals = codes.iter().zip(ends).map(|(code, end)| trimmed(&stream[code + 3..end]));
    let mut slices = 0;
    nals.take_while(|nal| {
        slices += usize::from(is_slice(nal[0]));
        slices < 2
    })
    .collect()
}

/// Without the zeros that belong to the next start code.
fn trimmed(nal: &[u8]) -> &[u8] {
    let end = nal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &nal[..end]
}

/// A picture of nearly the largest size that has millions of the smallest NAL units before it.
#[test]
fn a_picture_of_many_nal_units() {
    let h264 = include_bytes!("../src/video/fixtures/open.h264").as_slice();
    let h265 = include_bytes!("../src/video/fixtures/open.h265").as_slice();
    let aggregate = |header: &[u8], nal: &[u8]| {
        let part = [&[0, nal.len() as u8][..], nal].concat();
        [header.to_vec(), part.repeat(60_000 / part.len())].concat()
    };
    let streams = [
        (
            &codecs()[0],
            aggregate(&[24], &[0x06, 5]),
            first_picture(h264, |header| (1..=5).contains(&(header & 31))),
        ),
        (
            &codecs()[1],
            aggregate(&[0x60, 1], &[0x4e, 1]),
            first_picture(h265, |header| header >> 1 & 63 < 32),
        ),
    ];
    for (codec, many, picture) in streams {
        assert_eq!(receive(source(codec), &picture), 1, "a picture without anything before it");
        assert_cheap_behind(codec, &many, picture);
    }
}

/// So it is with OBUs.
#[test]
fn a_picture_of_many_obus() {
    let av1 = include_bytes!("../src/video/fixtures/hierarchical.av1.ivf").as_slice();
    let codec = &codecs()[2];
    // The temporal unit behind the headers of file and frame, as elements of a packet without their size fields.
    let size = u32::from_le_bytes(av1[32..36].try_into().unwrap()) as usize;
    let mut rest = &av1[44..44 + size];
    let mut packet = vec![0];
    while let [header, low, high, after @ ..] = rest {
        assert!(header & 6 == 2, "a size field and no extension");
        // Two bytes of a size at most.
        let is_long = low & 0x80 != 0;
        let size = usize::from(low & 0x7f) | if is_long { usize::from(*high) << 7 } else { 0 };
        let body = if is_long { after } else { &rest[2..] };
        let element = size + 1;
        packet.extend([element as u8 | 0x80, (element >> 7) as u8, header & !2]);
        packet.extend(&body[..size]);
        rest = &body[size..];
    }
    assert_eq!(receive(source(codec), &[&packet]), 1, "a picture without anything before it");
    // Metadata.
    let many = [&[0][..], &[2, 0x28, 1].repeat(20_000)].concat();
    assert_cheap_behind(codec, &many, vec![&packet]);
}

/// The picture behind as many packets like this as nearly fill a frame.
fn assert_cheap_behind(codec: &MediaCodec, many: &[u8], picture: Vec<&[u8]>) {
    let packets = (5 << 20) / many.len();
    let payloads: Vec<&[u8]> = std::iter::repeat_n(many, packets).chain(picture).collect();
    assert_cheap(
        codec,
        || source(codec),
        |source| {
            receive(source, &payloads);
        },
    );
}

#[test]
fn any_piece_of_a_byte_stream() {
    let generator = (0..4u8, plans());
    check!().with_generator(generator).with_iterations(400).for_each(|(format, plan)| {
        let format = [Format::H264, Format::H265, Format::Av1, Format::Vp9][usize::from(*format)];
        let bytes = filled(&[], &coded(), plan, INPUT);
        assert_cheap(
            &(format, plan),
            || Parser::new(format),
            |mut parser| {
                parser.push(&bytes);
                parser.complete();
                parser.by_ref().for_each(drop);
            },
        );
    });
}

#[test]
fn any_piece_of_a_container() {
    let mut packet = [0xff; 188];
    packet[..12].copy_from_slice(&[0x47, 0x40, 0, 0x10, 0, 0, 0xb0, 13, 0, 1, 0xc1, 0]);
    let mut elementary = [0; 188];
    elementary[..13].copy_from_slice(&[0x47, 0x41, 0, 0x10, 0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0]);
    let pieces: [&[u8]; 12] = [
        &packet,
        &elementary,
        &[0x47],
        b"DKIF\0\0\x20\0AV01",
        &[0, 0, 0, 8, b'm', b'o', b'o', b'v'],
        &[0, 0, 0, 8, b'm', b'o', b'o', b'f'],
        &[0, 0, 0, 8, b'f', b'r', b'e', b'e'],
        &[0, 0, 0, 16, b't', b'r', b'u', b'n', 0, 0, 0, 0, 0, 0, 0xff, 0xff],
        &[
            0, 0, 0, 24, b'f', b't', b'y', b'p', b'i', b's', b'o', b'5', 0, 0, 0, 0, b'i', b's', b'o', b'm',
            0, 0, 0, 0,
        ],
        &[0, 0, 0, 1, 0x67],
        &[0xff, 0xf1, 0x4c, 0x80, 0x01, 0x1f, 0xfc],
        &[0],
    ];
    check!().with_generator(plans()).with_iterations(400).for_each(|plan| {
        let bytes = filled(&[], &pieces, plan, INPUT);
        assert_cheap(
            plan,
            || Demux::new(Config::default()),
            |mut demux| {
                demux.push(&bytes);
                demux.by_ref().for_each(drop);
                demux.finish();
                demux.by_ref().for_each(drop);
            },
        );
    });
}

#[test]
fn any_piece_of_our_own_framings() {
    let pieces: [&[u8]; 6] = [b"FW", &[0], &[0, 0, 0, 1], &[0xff; 4], &[1, 0, 0, 0, 0, 0, 0, 0], b"x"];
    check!().with_generator(plans()).with_iterations(300).for_each(|plan| {
        let bytes = filled(&[], &pieces, plan, INPUT);
        assert_cheap(
            plan,
            || (),
            |()| {
                let mut chunks = chunked::Reader::new(INPUT);
                chunks.push(&bytes);
                chunks.by_ref().for_each(drop);
                let mut records = length_prefixed::Reader::new(INPUT as u32);
                records.push(&bytes);
                while records.next().is_some() {}
            },
        );
    });
}

#[test]
fn any_report() {
    let pieces: [&[u8]; 4] = [&[0x80, 201, 0, 0], &[0x80, 202, 0, 1], &[0x80, 200, 0, 0], &[0; 4]];
    check!().with_generator(plans()).with_iterations(200).for_each(|plan| {
        let bytes = filled(&[], &pieces, plan, INPUT);
        assert_cheap(
            plan,
            || (),
            |()| {
                let _ = rtcp::sender_clock(&bytes);
            },
        );
    });
}
