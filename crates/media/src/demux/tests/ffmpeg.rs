//! Streams that ffmpeg makes, compared packet by packet with what ffprobe finds in them.

use super::*;
use crate::testing::{made, nals, run};

/// What ffprobe says of one packet.
#[derive(Debug, Default)]
struct Packet {
    pts: i64,
    dts: i64,
    bytes: Vec<u8>,
}

/// A stream with two seconds of a test picture, and of a tone if `sound` has options.
fn make(video: &str, sound: Option<&str>, format: &str) -> Option<Vec<u8>> {
    let mut arguments = vec!["-f", "lavfi", "-i", "testsrc=s=128x96:r=25"];
    if let Some(options) = sound {
        arguments.extend(["-f", "lavfi", "-i", "sine=r=48000"]);
        arguments.extend(options.split(' '));
    }
    arguments.extend(["-t", "2", "-pix_fmt", "yuv420p"]);
    arguments.extend(video.split(' '));
    arguments.extend(["-f", format, "-"]);
    made(&arguments)
}

/// The packets of a track: `v` or `a`.
fn probe(stream: &[u8], track: &str) -> Vec<Packet> {
    let file = std::env::temp_dir().join(format!("freshwire-demux-{}-{}", std::process::id(), next_number()));
    std::fs::write(&file, stream).unwrap();
    let name = file.to_str().unwrap();
    let arguments = ["-show_packets", "-show_data", "-select_streams", track, name];
    let text = run("ffprobe", &arguments, &[]).expect("comes with ffmpeg").stdout;
    std::fs::remove_file(&file).unwrap();
    let mut packets: Vec<Packet> = Vec::new();
    for line in String::from_utf8_lossy(&text).lines() {
        if line == "[PACKET]" {
            packets.push(Packet::default());
        }
        let Some(packet) = packets.last_mut() else { continue };
        match line.split_once('=') {
            Some(("pts", value)) => packet.pts = value.parse().unwrap(),
            Some(("dts", value)) => packet.dts = value.parse().unwrap(),
            _ => packet.bytes.extend(dumped(line)),
        }
    }
    packets
}

/// The bytes of a line such as `00000010: 73a0 b1  s..`.
fn dumped(line: &str) -> Vec<u8> {
    let hex = line.get(10..50).filter(|_| line.get(8..10) == Some(": "));
    let digits: Vec<u32> = hex.unwrap_or("").chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn next_number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// NAL units without start codes, delimiters and parameter sets.
fn pictures(bytes: &[u8], is_h265: bool) -> Vec<&[u8]> {
    let mut nals = nals(bytes);
    nals.retain(|nal| match nal[0] {
        header if is_h265 => !(32..=35).contains(&(header >> 1 & 63)),
        header => !(7..=9).contains(&(header & 31)),
    });
    nals
}

fn compare_video(events: &[Event], packets: &[Packet], is_h265: bool) {
    let video = units(events, Kind::Video);
    assert_eq!(video.len(), packets.len());
    for (number, (unit, packet)) in video.into_iter().zip(packets).enumerate() {
        let times = (unit.head.pts.ticks(90_000), unit.head.dts.ticks(90_000));
        assert_eq!(times, (packet.pts, packet.dts), "picture {number}");
        let (ours, theirs) = (pictures(&unit.bytes, is_h265), pictures(&packet.bytes, is_h265));
        let lengths = |nals: &[&[u8]]| nals.iter().map(|nal| (nal[0], nal.len())).collect::<Vec<_>>();
        assert_eq!(lengths(&ours), lengths(&theirs), "picture {number}");
        assert!(ours == theirs, "picture {number}");
    }
}

fn compare_audio(events: &[Event], packets: &[Packet], header: usize) {
    let audio = units(events, Kind::Audio);
    assert_eq!(audio.len(), packets.len());
    for (number, (unit, packet)) in audio.into_iter().zip(packets).enumerate() {
        assert!((unit.head.pts.ticks(90_000) - packet.pts).abs() <= 1, "frame {number}");
        assert!(unit.bytes == packet.bytes[header..], "frame {number}");
    }
}

const X264: &str = "-c:v libx264 -preset veryfast -bf 3 -g 25 -x264-params b-pyramid=strict";
const X265: &str = "-c:v libx265 -preset ultrafast -x265-params bframes=3:keyint=25:log-level=none:pools=1";

#[test]
fn h264_with_b_pictures_and_aac() {
    let Some(stream) = make(X264, Some("-c:a aac -b:a 64k"), "mpegts") else { return };
    let events = read(&stream);
    check_promises(&events);
    let video = probe(&stream, "v");
    assert!(video.iter().any(|packet| packet.pts > packet.dts + 3600));
    compare_video(&events, &video, false);
    compare_audio(&events, &probe(&stream, "a"), 7);
}

#[test]
fn h265_and_opus() {
    let Some(stream) = make(X265, Some("-c:a libopus -b:a 32k"), "mpegts") else { return };
    let events = read(&stream);
    check_promises(&events);
    compare_video(&events, &probe(&stream, "v"), true);
    compare_audio(&events, &probe(&stream, "a"), 0);
}

#[test]
fn vp9_in_ivf() {
    let options = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 200k";
    let Some(stream) = make(options, None, "ivf") else { return };
    let events = read(&stream);
    check_promises(&events);
    let packets = probe(&stream, "v");
    let video = units(&events, Kind::Video);
    assert_eq!(video.len(), packets.len());
    for (unit, packet) in video.into_iter().zip(&packets) {
        assert_eq!((unit.head.pts.ticks(25), &unit.bytes), (packet.pts, &packet.bytes));
    }
}

/// In fragments of a frame, and in fragments of a second, which have one track behind the other.
#[test]
fn vp9_and_av1_in_mp4_with_sound() {
    let vp9 = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 200k";
    let av1 = "-c:v libaom-av1 -usage realtime -cpu-used 8 -b:v 200k";
    for (video, sound, micros) in [
        (vp9, "-c:a libopus", 1),
        (av1, "-c:a aac", 1),
        (vp9, "-c:a aac", 1_000_000),
        (av1, "-c:a libopus", 1_000_000),
    ] {
        let fragments = format!("{video} -movflags delay_moov+default_base_moof -frag_duration {micros}");
        let Some(stream) = make(&fragments, Some(sound), "mp4") else { return };
        let events = read(&stream);
        check_promises(&events);
        for (kind, track, clock) in [(Kind::Video, "v", 12_800), (Kind::Audio, "a", 48_000)] {
            let (units, packets) = (units(&events, kind), probe(&stream, track));
            assert_eq!(units.len(), packets.len(), "{fragments} {sound}");
            for (unit, packet) in units.into_iter().zip(&packets) {
                assert_eq!(
                    (unit.head.pts.ticks(clock), &unit.bytes),
                    (packet.pts, &packet.bytes),
                    "{fragments}"
                );
            }
        }
    }
}

/// A bare stream gets the times that the same pictures have in a transport stream, but for the origin.
#[test]
fn bare_streams_get_the_times_of_their_order() {
    for (options, format) in [(X264, "h264"), (X265, "hevc")] {
        let (Some(bare), Some(stream)) = (make(options, None, format), make(options, None, "mpegts")) else {
            return;
        };
        let (events, packets) = (read(&bare), probe(&stream, "v"));
        check_promises(&events);
        let video = units(&events, Kind::Video);
        assert_eq!(video.len(), packets.len(), "{format}");
        let origin = packets[0].dts - video[0].head.dts.ticks(90_000);
        for (number, (unit, packet)) in video.into_iter().zip(&packets).enumerate() {
            let times = (unit.head.pts.ticks(90_000) + origin, unit.head.dts.ticks(90_000) + origin);
            assert_eq!(times, (packet.pts, packet.dts), "{format}, picture {number}");
        }
    }
}

/// Pictures whose source says only when they are shown, as RTP does.
#[test]
fn frames_without_decoding_times_get_those_of_the_container() {
    let Some(stream) = make(X264, None, "mpegts") else { return };
    let packets = probe(&stream, "v");
    let mut assembler = Assembler::new(Config::default(), Some(Format::H264), None);
    for packet in &packets {
        assembler.video(&packet.bytes, Given::Shown(MediaTime::from_ticks(packet.pts, 90_000)));
    }
    assembler.finish();
    let events: Vec<_> = assembler.collect();
    check_promises(&events);
    compare_video(&events, &packets, false);
}

#[test]
fn tracks_that_cannot_be_used_are_named() {
    let Some(stream) = make("-c:v mpeg2video", Some("-c:a ac3"), "mpegts") else { return };
    let mut demux = Demux::new(Config::default());
    demux.push(&stream);
    demux.finish();
    assert_eq!(demux.by_ref().collect::<Vec<_>>(), [Err(DemuxError::Nothing)]);
    assert_eq!(demux.skipped(), ["MPEG-1 or MPEG-2 video (PID 256)", "AC-3 audio (PID 257)"]);
}
