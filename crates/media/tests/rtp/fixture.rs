//! Streams made by ffmpeg, as units.

use std::process::Command;
use std::sync::Arc;

use freshwire_media::unit::{Kind, MediaTime, Tracks, UnitHead};

/// A unit and its bytes.
pub(crate) type Coded = (Arc<UnitHead>, Vec<u8>);

/// One coded frame as ffmpeg's encoder gives it.
pub(crate) struct Frame {
    dts: i64,
    pts: i64,
    pub(crate) bytes: Vec<u8>,
}

/// What ffmpeg's encoder makes of a generated source.
pub(crate) fn encode(source: &str, arguments: &[&str]) -> Vec<Frame> {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-f", "lavfi", "-i", source, "-threads", "1"]).args(arguments);
    command.args(["-map", "0", "-f", "tee"]);
    let output = command.arg(format!("[f=data]{}|[f=framecrc]pipe\\:1", data.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut data = std::fs::read(data).unwrap();
    let mut base = 1;
    let mut frames = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some(rate) = line.strip_prefix("#tb 0: 1/") {
            base = rate.parse().unwrap();
        }
        if !line.starts_with('#') {
            let fields: Vec<i64> =
                line.split(',').take(5).map(|field| field.trim().parse().unwrap()).collect();
            let rest = data.split_off(fields[4] as usize);
            let nanos = |ticks: i64| ticks * 1_000_000_000 / base;
            frames.push(Frame { dts: nanos(fields[1]), pts: nanos(fields[2]), bytes: data });
            data = rest;
        }
    }
    assert!(data.is_empty() && !frames.is_empty());
    frames
}

/// The NAL units of an Annex B byte stream.
pub(crate) fn nals(bytes: &[u8]) -> Vec<&[u8]> {
    let codes: Vec<usize> =
        bytes.windows(3).enumerate().filter(|(_, code)| *code == [0, 0, 1]).map(|(at, _)| at).collect();
    let ends = codes.iter().skip(1).copied().chain([bytes.len()]);
    codes
        .iter()
        .zip(ends)
        .map(|(&code, end)| {
            let nal = &bytes[code + 3..end];
            let zeroes = nal.iter().rev().take_while(|&&byte| byte == 0).count();
            &nal[..nal.len() - zeroes]
        })
        .collect()
}

/// Frames as units of a track; with NAL units if `is_annexb`.
pub(crate) fn units(frames: Vec<Frame>, kind: Kind, tracks: &Arc<Tracks>, is_annexb: bool) -> Vec<Coded> {
    let unit = |(at, frame): (usize, Frame)| {
        let (mut bytes, mut ranges, mut nal_headers) = (Vec::new(), Vec::new(), Vec::new());
        if is_annexb {
            for nal in nals(&frame.bytes) {
                bytes.extend([0, 0, 0, 1]);
                ranges.push(bytes.len() as u32..(bytes.len() + nal.len()) as u32);
                nal_headers.push([nal[0], nal[1]]);
                bytes.extend(nal);
            }
        } else {
            bytes = frame.bytes;
        }
        let head = UnitHead {
            kind,
            pts: MediaTime::from_nanos(frame.pts),
            dts: MediaTime::from_nanos(frame.dts),
            duration_ns: 1,
            key: at == 0,
            len: bytes.len() as u32,
            nals: ranges,
            nal_headers,
            repeat: None,
            tracks: Arc::clone(tracks),
        };
        (Arc::new(head), bytes)
    };
    frames.into_iter().enumerate().map(unit).collect()
}

/// What ffmpeg's `framecrc` says of a packet: its size, and Adler-32 that begins with 0.
pub(crate) fn size_and_sum(bytes: &[u8]) -> (usize, u32) {
    let (low, high) = bytes.iter().fold((0_u32, 0_u32), |(low, high), &byte| {
        let low = (low + u32::from(byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    (bytes.len(), high << 16 | low)
}
