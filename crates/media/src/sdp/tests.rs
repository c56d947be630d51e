use std::time::Duration;

use super::*;
use crate::rtp::tests::{aac, h264, h265, tracks};
use crate::unit::{AudioCodec, Kind, Tracks, VideoCodec};

fn session() -> Session {
    let address = "192.0.2.1".parse().unwrap();
    Session {
        name: "yard\r\ncamera".to_owned(),
        id: 7,
        version: 2,
        address,
        key_on_request: true,
        retransmission: None,
    }
}

#[test]
fn a_description_is_as_players_know_it() {
    let text = describe(&tracks(h264(), aac()), &session()).unwrap();
    let expected = "v=0\r
o=- 7 2 IN IP4 192.0.2.1\r
s=yard  camera\r
c=IN IP4 0.0.0.0\r
t=0 0\r
a=type:broadcast\r
a=control:*\r
a=range:npt=now-\r
m=video 0 RTP/AVP 96\r
a=rtpmap:96 H264/90000\r
a=fmtp:96 packetization-mode=1;profile-level-id=42C01E;sprop-parameter-sets=Z0LAHgE=,aAEC\r
a=control:trackID=0\r
a=rtcp-fb:96 nack pli\r
m=audio 0 RTP/AVP 97\r
a=rtpmap:97 MPEG4-GENERIC/44100/2\r
a=fmtp:97 streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3;config=1210\r
a=control:trackID=1\r
";
    assert_eq!(text, expected);
}

#[test]
fn retransmission_is_offered_in_a_profile_of_its_own() {
    let offer = Session { retransmission: Some(Duration::from_secs(1)), key_on_request: false, ..session() };
    let text = describe(&tracks(h264(), aac()), &offer).unwrap();
    let video = "m=video 0 RTP/AVPF 96 98\r
b=RR:10000\r
a=rtpmap:96 H264/90000\r
a=fmtp:96 packetization-mode=1;profile-level-id=42C01E;sprop-parameter-sets=Z0LAHgE=,aAEC\r
a=control:trackID=0\r
a=rtcp-fb:96 nack\r
a=rtpmap:98 rtx/90000\r
a=fmtp:98 apt=96;rtx-time=1000\r
";
    assert!(text.contains(video), "{text}");
    let audio = ["m=audio 0 RTP/AVPF 97 99", "a=rtpmap:99 rtx/44100/2", "a=fmtp:99 apt=97;rtx-time=1000"];
    for line in audio {
        assert!(text.contains(&format!("{line}\r\n")), "{line}: {text}");
    }
    let media = parse(text.as_bytes()).unwrap();
    assert_eq!((media[0].payload_type, media[0].clock_rate), (96, 90_000));
    assert!(matches!(media[0].codec, Ok(MediaCodec::H264 { .. })));
}

#[test]
fn a_description_is_read_back() {
    let read = |video, audio| parse(describe(&tracks(video, audio), &session()).unwrap().as_bytes()).unwrap();
    let media = read(h264(), aac());
    let sets = vec![vec![0x67, 0x42, 0xc0, 0x1e, 1], vec![0x68, 1, 2]];
    let video = Media {
        kind: Kind::Video,
        codec: Ok(MediaCodec::H264 { packetization_mode: 1, sets }),
        payload_type: 96,
        clock_rate: 90_000,
        channels: 1,
        control: Some("trackID=0".to_owned()),
    };
    let codec =
        MediaCodec::Aac { config: vec![0x12, 0x10], size_bits: 13, index_bits: 3, index_delta_bits: 3 };
    let audio = Media {
        kind: Kind::Audio,
        codec: Ok(codec),
        payload_type: 97,
        clock_rate: 44_100,
        channels: 2,
        control: Some("trackID=1".to_owned()),
    };
    assert_eq!(media, [video, audio]);
    let media = read(h265(), AudioCodec::Opus);
    let sets = vec![vec![0x40, 1, 1], vec![0x42, 1, 2], vec![0x44, 1, 3]];
    assert_eq!(media[0].codec, Ok(MediaCodec::H265 { sets, has_order_numbers: false }));
    assert_eq!((&media[1].codec, media[1].clock_rate, media[1].channels), (&Ok(MediaCodec::Opus), 48_000, 2));
    let media = read(VideoCodec::Vp9 { profile: 2, bit_depth: 10 }, AudioCodec::Opus);
    assert_eq!(media[0].codec, Ok(MediaCodec::Vp9));
}

#[test]
fn av1_says_its_profile_level_and_tier() {
    // As libaom makes it for 320x180: main profile, level 2.0.
    let sequence_header = vec![0x0a, 0x0b, 0, 0, 0, 0x04, 0x3c, 0xfe, 0xcc, 0xda, 0xf9, 0, 0x40];
    let text = describe(&tracks(VideoCodec::Av1 { sequence_header }, aac()), &session()).unwrap();
    assert!(text.contains("a=rtpmap:96 AV1/90000\r\n"), "{text}");
    assert!(text.contains("a=fmtp:96 profile=0;level-idx=0;tier=0\r\n"), "{text}");
}

#[test]
fn an_impossible_description_has_a_reason() {
    let describe = |tracks: &Tracks| describe(tracks, &session()).unwrap_err();
    assert_eq!(describe(&Tracks::default()), DescribeError::Empty);
    assert_eq!(describe(&tracks(VideoCodec::Av1 { sequence_header: vec![] }, aac())), DescribeError::Config);
    let short = VideoCodec::H264 { sps: vec![0x67, 1], pps: vec![0x68] };
    assert_eq!(describe(&tracks(short, aac())), DescribeError::Config);
    assert_eq!(describe(&tracks(h264(), AudioCodec::Aac { config: vec![1] })), DescribeError::Config);
    let mut surround = tracks(h264(), AudioCodec::Opus);
    surround.audio.as_mut().unwrap().channels = 6;
    assert_eq!(describe(&surround), DescribeError::OpusChannels(6));
}

/// As cameras send it: no `t=`, spaces after semicolons, base 64 without padding, data besides the pictures, G.711 sound.
#[test]
fn a_camera_is_understood() {
    let text = b"v=0\no=- 1 1 IN IP4 10.0.0.2\ns=Media Presentation\na=control:rtsp://10.0.0.2/\n\
        m=video 0 RTP/AVP 96\nb=AS:5000\na=rtpmap:96 H264/90000 \n\
        a=fmtp:96 profile-level-id=42C01E; packetization-mode=1; sprop-parameter-sets=Z0LAHgE,aAEC,\n\
        a=control:rtsp://10.0.0.2/trackID=1\nm=audio 0 RTP/AVP 0\na=control:trackID=2\n\
        m=application 0 RTP/AVP 107\na=rtpmap:107 vnd.onvif.metadata/90000\n";
    let media = parse(text).unwrap();
    assert_eq!(media.len(), 2);
    assert!(
        matches!(&media[0].codec, Ok(MediaCodec::H264 { packetization_mode: 1, sets }) if sets.len() == 2)
    );
    assert_eq!(media[0].control.as_deref(), Some("rtsp://10.0.0.2/trackID=1"));
    let error = media[1].codec.as_ref().unwrap_err().to_string();
    assert_eq!(error, "codec \"PCMU\" is not supported; send H.264, H.265, AV1, VP9, AAC or Opus");
}

#[test]
fn the_first_supported_payload_type_counts() {
    let text = b"v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 8 111\r\n\
        a=rtpmap:8 PCMA/8000\r\na=rtpmap:111 opus/48000/2\r\n";
    let media = parse(text).unwrap();
    assert_eq!((media[0].payload_type, &media[0].codec), (111, &Ok(MediaCodec::Opus)));
}

#[test]
fn errors_say_what_is_wrong() {
    let of =
        |media: &str| parse(format!("v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n{media}").as_bytes());
    let codec = |media: &str| of(media).unwrap()[0].codec.clone().unwrap_err();
    assert_eq!(codec("m=video 0 RTP/AVP 96\r\n"), CodecError::NoMap(96));
    let aac = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 mpeg4-generic/48000/2\r\na=fmtp:97 mode=AAC-hbr";
    for (param, fmtp) in [("config", ";sizelength=13;config=1"), ("sizelength", ";sizelength=99;config=1210")]
    {
        let error = codec(&format!("{aac}{fmtp}\r\n"));
        assert_eq!(error, CodecError::Param { codec: "MPEG4-GENERIC", param });
    }
    assert_eq!(of(""), Err(SdpError::Empty));
    assert_eq!(of("m=video 0 RTP/AVP x\r\n"), Err(SdpError::NoPayloadType(0)));
    assert_eq!(of(&"m=video 0 RTP/AVP 96\r\n".repeat(17)), Err(SdpError::TooManyMedia(17)));
    assert_eq!(parse(b"hello"), Err(SdpError::Empty));
    assert_eq!(parse(&[b' '; MAX_TEXT_BYTES + 1]), Err(SdpError::TooLong(MAX_TEXT_BYTES + 1)));
}

/// Lines that nobody needs, as cameras and encoders write them.
#[test]
fn unneeded_lines_are_no_reason_to_refuse() {
    let media = "m=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\na=control:streamid=0\n";
    let head = "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=t\nc=IN IP4 127.0.0.1\nt=0 0\n";
    let without = |line: &str, with: &str| format!("{}{media}", head.replace(line, with));
    let texts = [
        media.to_owned(),
        without("IN IP4 127.0.0.1\ns", "IN IPV4 10.10.10.10\ns"),
        without("o=- 1 1", "o=RTSP 19599440071187478912 -1"),
        without("o=- 1 1 IN IP4 127.0.0.1\n", ""),
        without("c=IN IP4 127.0.0.1", "c=IN "),
        without("c=IN IP4 127.0.0.1", "c="),
        without("t=0 0", "t=now-"),
        without("t=0 0\n", "c=x\nb=y\nk=\nz=1\nr=\ne=\nt=\n=\nq\n\n"),
        format!("{head}{media}m=application/TP-LINK 0 RTP/AVP smart/1/90000\n"),
        format!("{head}{media}m=audio\nm=\nm=audio 0 RTP/AVP\n"),
        format!("{head}{}", media.replace("video 0 RTP", "VIDEO 0/1  RTP")),
        format!("{head}{media}\0\0"),
        format!("{head}{media}").replace('\n', "\r"),
        format!("{head}{media}a=fmtp:96 ;; sprop-parameter-sets=!!!,Z0LAHgE=,;\n"),
    ];
    for text in texts {
        let media = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(media.len(), 1, "{text:?}");
        let Ok(MediaCodec::H264 { sets, .. }) = &media[0].codec else { panic!("{text:?}: {media:?}") };
        assert!(sets.len() <= 1 && sets.iter().all(|set| set.len() == 5), "{sets:?}");
        assert_eq!(media[0].control.as_deref(), Some("streamid=0"));
    }
    let latin = [b"v=0\ns=Stra\xdfe\n", media.as_bytes()].concat();
    assert_eq!(parse(&latin).map(|media| media.len()), Ok(1));
}

#[test]
fn other_media_keep_their_controls() {
    let text =
        b"a=control:rtsp://cam/all\nm=application 0 RTP/AVP 97\na=control:data\nm=video 0 RTP/AVP 96\n\
        a=rtpmap:96 VP9/90000\na=control:pictures\nm=text 0 RTP/AVP 98\nm=audio 0 RTP/AVP x\na=control:odd\n";
    let description = parse_whole(text).unwrap();
    assert_eq!(description.control.as_deref(), Some("rtsp://cam/all"));
    assert_eq!(description.media[0].control.as_deref(), Some("pictures"));
    let others = [Some("data".to_owned()), None, Some("odd".to_owned())];
    assert_eq!((description.media.len(), description.others.as_slice()), (1, others.as_slice()));
}

#[test]
fn any_text_is_read_or_refused() {
    let text = describe(&tracks(h264(), aac()), &session()).unwrap();
    bolero::check!()
        .with_iterations(crate::testing::ITERATIONS)
        .with_type::<(Vec<u8>, u16, bool)>()
        .for_each(|(bytes, at, is_bare)| {
            let mut changed = text.clone().into_bytes();
            let at = usize::from(*at) % changed.len();
            let end = changed.len().min(at + bytes.len());
            changed.splice(at..end, bytes.iter().copied());
            if let Ok(media) = parse(if *is_bare { bytes } else { &changed }) {
                assert!(!media.is_empty() && media.len() <= MAX_MEDIA);
            }
        });
}
