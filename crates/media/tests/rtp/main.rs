//! Conversations over RTP with ffmpeg and GStreamer, which read what was sent on their own account.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod fixture;
mod player;

use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use freshwire_media::framing::Framer;
use freshwire_media::framing::interleaved::{
    Config, DEFAULT_MAX_PACKET_BYTES, Interleaved, MAX_PACKET_BYTES, MIN_PACKET_BYTES, TrackChannel,
};
use freshwire_media::rtp::{Datagrams, Identity, Stream, WallClock};
use freshwire_media::sdp;
use freshwire_media::unit::{
    AudioCodec, AudioTrack, Catalog, Kind, MediaTime, Tracks, VideoCodec, VideoTrack,
};

use fixture::{Coded, Frame, encode, nals, size_and_sum, units};
use player::{Player, has, serve};

const PICTURES: &str = "testsrc2=s=320x180:r=25:d=2";
const SOUND: &str = "sine=r=48000:d=2";
const X264: [&str; 8] = ["-c:v", "libx264", "-g", "10", "-bf", "2", "-x264-params", "slices=2"];
const IDENTITY: Identity = Identity { ssrc: 0xfeed, seq: 65_500, timestamp_offset: 0xffff_8000 };

fn tracks(video: VideoCodec, audio: Option<AudioCodec>) -> Arc<Tracks> {
    let audio = audio.map(|codec| AudioTrack { codec, rate: 48_000, channels: 1 });
    Arc::new(Tracks { video: Some(VideoTrack { codec: video, width: 320, height: 180 }), audio })
}

fn h264(frames: &[Frame]) -> VideoCodec {
    let find = |kind| {
        let found = nals(&frames[0].bytes).into_iter().find(|nal| nal[0] & 31 == kind);
        found.expect("a parameter set").to_vec()
    };
    VideoCodec::H264 { sps: find(7), pps: find(8) }
}

fn h265(frames: &[Frame]) -> VideoCodec {
    let find = |kind| {
        let found = nals(&frames[0].bytes).into_iter().find(|nal| nal[0] >> 1 & 63 == kind);
        found.expect("a parameter set").to_vec()
    };
    VideoCodec::H265 { vps: find(32), sps: find(33), pps: find(34) }
}

fn describe(tracks: &Tracks) -> String {
    let address = "127.0.0.1".parse().unwrap();
    let session = sdp::Session {
        name: "test".to_owned(),
        id: 1,
        version: 1,
        address,
        key_on_request: false,
        retransmission: None,
    };
    sdp::describe(tracks, &session).unwrap()
}

/// The first unit of each track, and two of three of the others; in decoding order.
fn dropped_at_random(mut units: Vec<Coded>) -> Vec<Coded> {
    units.sort_by_key(|(head, _)| head.dts);
    let (mut state, mut seen) = (7_u32, [false; 2]);
    units.retain(|(head, _)| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let is_first = !std::mem::replace(&mut seen[head.kind as usize], true);
        is_first || state >> 24 < 170
    });
    units
}

/// The interleaved stream of these units, in pieces of many sizes.
fn interleave(units: &[Coded]) -> Vec<u8> {
    interleave_in(units, DEFAULT_MAX_PACKET_BYTES, |seq, piece| 300 + seq * 97 + piece * 211)
}

/// The interleaved stream of these units in packets of at most this size. `wanted` gives the room for each unit's pieces.
fn interleave_in(
    units: &[Coded],
    max_packet_bytes: usize,
    wanted: impl Fn(usize, usize) -> usize,
) -> Vec<u8> {
    let catalog = Arc::new(Catalog::new(units.len()));
    let track = |channel| Some(TrackChannel { channel, identity: IDENTITY });
    let config = Config {
        video: track(0),
        audio: track(2),
        clock: WallClock { media: MediaTime::default(), ntp: 3_900_000_000 << 32 },
        cname: "freshwire".to_owned(),
        max_packet_bytes,
        report_interval: freshwire_media::rtp::DEFAULT_REPORT_INTERVAL,
    };
    let mut framer = Interleaved::new(Arc::clone(&catalog), &config);
    let mut stream = Vec::new();
    for (seq, (head, bytes)) in units.iter().enumerate() {
        catalog.add(seq as u64, Arc::clone(head));
        framer.begin(seq as u64, head.len);
        let mut pieces = 0;
        while let Some(piece) = framer.next(wanted(seq, pieces), &mut stream) {
            stream.extend(&bytes[piece.payload.start as usize..piece.payload.end as usize]);
            pieces += 1;
        }
    }
    stream
}

/// ffmpeg plays what is left of a stream over RTSP and has to tell exactly what was sent.
fn ffmpeg_gets_what_is_sent(tracks: &Tracks, units: Vec<Coded>) {
    let sent = dropped_at_random(units);
    ffmpeg_gets(tracks, &sent, &interleave(&sent));
}

fn ffmpeg_gets(tracks: &Tracks, sent: &[Coded], stream: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "warning", "-rtsp_transport", "tcp", "-i"]);
    command.arg(format!("rtsp://{}/test", listener.local_addr().unwrap()));
    let player = Player::start(command.args(["-map", "0", "-c", "copy", "-copyinkf", "-f", "framecrc", "-"]));
    serve(&listener, &describe(tracks), stream);
    let output = player.wait();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    for complaint in ["missed", "error", "Error", "invalid", "Invalid", "corrupt"] {
        assert!(!messages.contains(complaint), "{messages}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let is_h265 = matches!(&tracks.video, Some(VideoTrack { codec: VideoCodec::H265 { .. }, .. }));
    for (index, kind) in [Kind::Video, Kind::Audio].into_iter().enumerate() {
        let of_track = sent.iter().filter(|(head, _)| head.kind == kind).map(|(_, bytes)| bytes.clone());
        let mut expected: Vec<Vec<u8>> = of_track.collect();
        if is_h265 && kind == Kind::Video {
            as_ffmpeg_cuts_h265(&mut expected);
        }
        let expected: Vec<_> = expected.iter().map(|bytes| size_and_sum(bytes)).collect();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{index},")));
        let arrived: Vec<_> = lines.map(sizes_and_sums).collect();
        assert_eq!(arrived, expected, "{kind:?}: {messages}");
    }
}

/// Its parser has start codes of three bytes: the zero before belongs to the picture before.
fn as_ffmpeg_cuts_h265(pictures: &mut [Vec<u8>]) {
    let count = pictures.len();
    for (at, picture) in pictures.iter_mut().enumerate() {
        if at > 0 {
            picture.remove(0);
        }
        if at + 1 < count {
            picture.push(0);
        }
    }
}

fn sizes_and_sums(line: &str) -> (usize, u32) {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    (fields[4].parse().unwrap(), u32::from_str_radix(&fields[5][2..], 16).unwrap())
}

#[test]
fn h264_and_aac_over_an_rtsp_connection() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let pictures = encode(PICTURES, &X264);
    // AAC-LC, 48 kHz, one channel.
    let sound = encode(SOUND, &["-c:a", "aac"]);
    let tracks = tracks(h264(&pictures), Some(AudioCodec::Aac { config: vec![0x11, 0x88] }));
    let mut all = units(pictures, Kind::Video, &tracks, true);
    all.extend(units(sound, Kind::Audio, &tracks, false));
    ffmpeg_gets_what_is_sent(&tracks, all);
}

#[test]
fn h265_and_opus_over_an_rtsp_connection() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let pictures = encode(PICTURES, &["-c:v", "libx265", "-x265-params", "log-level=none:keyint=10"]);
    let sound = encode(SOUND, &["-c:a", "libopus"]);
    let tracks = tracks(h265(&pictures), Some(AudioCodec::Opus));
    let mut all = units(pictures, Kind::Video, &tracks, true);
    all.extend(units(sound, Kind::Audio, &tracks, false));
    ffmpeg_gets_what_is_sent(&tracks, all);
}

#[test]
fn vp9_over_an_rtsp_connection() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let pictures = encode(PICTURES, &["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]);
    let tracks = tracks(VideoCodec::Vp9 { profile: 0, bit_depth: 8 }, None);
    let all = units(pictures, Kind::Video, &tracks, false);
    ffmpeg_gets_what_is_sent(&tracks, all);
}

#[test]
fn gstreamer_reads_an_rtsp_connection() {
    if !has("ffmpeg", "-version") || !has("gst-launch-1.0", "--version") {
        return;
    }
    let pictures = encode(PICTURES, &X264);
    let tracks = tracks(h264(&pictures), None);
    let sent = dropped_at_random(units(pictures, Kind::Video, &tracks, true));
    gstreamer_gets(&tracks, &sent, &interleave(&sent));
}

fn gstreamer_gets(tracks: &Tracks, sent: &[Coded], stream: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pictures.h264");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "-e", "rtspsrc", "protocols=tcp", "latency=0"]);
    command.arg(format!("location=rtsp://{}/test", listener.local_addr().unwrap()));
    command.args(["!", "rtph264depay", "!", "video/x-h264,stream-format=byte-stream,alignment=nal"]);
    command.args(["!", "filesink", &format!("location={}", file.display())]);
    let player = Player::start(&mut command);
    serve(&listener, &describe(tracks), stream);
    let output = player.wait();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let read = std::fs::read(file).unwrap();
    let arrived = nals(&read);
    let expected: Vec<&[u8]> = sent.iter().flat_map(|(_, bytes)| nals(bytes)).collect();
    // The description's parameter sets come before.
    let extra = arrived.len().checked_sub(expected.len()).unwrap_or_else(|| panic!("{messages}"));
    assert!(
        extra <= 2 && arrived[extra..] == expected,
        "{} of {}: {messages}",
        arrived.len(),
        expected.len()
    );
}

/// Keyframes of several 100 kB, as a camera of 4K has them, in packets of every size that can be configured.
#[test]
fn large_pictures_arrive_in_packets_of_any_size() {
    if !has("ffmpeg", "-version") || !has("gst-launch-1.0", "--version") {
        return;
    }
    let noise = "testsrc2=s=960x540:r=5:d=2,noise=alls=60:allf=t";
    let constant = ["-preset", "ultrafast", "-g", "5"];
    let pictures = encode(noise, &[&["-c:v", "libx264", "-qp", "18"], &constant[..]].concat());
    let tracks_264 = tracks(h264(&pictures), None);
    let film = units(pictures, Kind::Video, &tracks_264, true);
    let x265 = ["-c:v", "libx265", "-x265-params", "log-level=none:keyint=5:bframes=0:qp=18"];
    let pictures = encode(noise, &[&x265, &constant[..]].concat());
    let tracks_265 = tracks(h265(&pictures), None);
    let camera = units(pictures, Kind::Video, &tracks_265, true);
    for (tracks, sent) in [(&tracks_264, &film), (&tracks_265, &camera)] {
        let largest = sent.iter().map(|(head, _)| head.len).max();
        assert!(largest > Some(300_000), "{largest:?}");
        for max_packet in [MIN_PACKET_BYTES, 1400, 16_384, MAX_PACKET_BYTES] {
            ffmpeg_gets(tracks, sent, &interleave_in(sent, max_packet, |_, _| usize::MAX));
        }
    }
    for max_packet in [1400, 16_384, MAX_PACKET_BYTES] {
        gstreamer_gets(&tracks_264, &film, &interleave_in(&film, max_packet, |_, _| usize::MAX));
    }
}

#[test]
fn ffmpeg_decodes_datagrams_without_an_error() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let pictures = encode(PICTURES, &X264);
    let tracks = tracks(h264(&pictures), None);
    let sent = units(pictures, Kind::Video, &tracks, true);
    let port = free_ports();
    let description = describe(&tracks)
        .replace("m=video 0", &format!("m=video {port}"))
        .replace("c=IN IP4 0.0.0.0", "c=IN IP4 127.0.0.1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stream.sdp");
    std::fs::write(&file, description).unwrap();
    let wanted = sent.len() - 10;
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "warning", "-protocol_whitelist", "file,udp,rtp", "-i"]).arg(&file);
    let frames = wanted.to_string();
    let player = Player::start(command.args(["-frames:v", &frames, "-f", "framecrc", "-"]));
    // The port is taken as soon as ffmpeg listens on it.
    let listens = (0..2000).any(|_| {
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(5));
        UdpSocket::bind(("127.0.0.1", port + 1)).is_err()
    });
    assert!(listens, "ffmpeg does not listen");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut stream = Stream::new(Kind::Video, IDENTITY);
    let mut datagrams = Datagrams::default();
    for (head, bytes) in &sent {
        datagrams.clear();
        datagrams.write(&mut stream, head, bytes).unwrap();
        for datagram in datagrams.iter() {
            // An error is that of an earlier datagram, which reached the player after its end.
            let _ = socket.send_to(datagram, ("127.0.0.1", port));
        }
        // Pause: the pace of the source.
        std::thread::sleep(Duration::from_millis(4));
    }
    let output = player.wait();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "a decoder error");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("0,")).count(), wanted);
}

/// An even port that is free with the next one.
fn free_ports() -> u16 {
    for _ in 0..100 {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() & !1;
        if [port, port + 1].iter().all(|&port| UdpSocket::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
    panic!("no two free ports");
}
