use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

/// What a parser makes of whole units.
fn parse(format: Format, units: &[&[u8]]) -> (Vec<Coded>, u64) {
    let mut parser = Parser::new(format);
    let mut found = Vec::new();
    for unit in units {
        parser.push(unit);
        parser.complete();
        found.extend(parser.by_ref().map(Result::unwrap));
    }
    (found, parser.dropped())
}

/// The frames of an IVF file.
fn ivf(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = &file[32..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(12) {
        let len = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        frames.push(&after[..len]);
        rest = &after[len..];
    }
    frames
}

/// Runs ffmpeg; `None` if it or the encoder is not there, which is an error where `CI` is set.
fn ffmpeg(arguments: &[&str], input: Vec<u8>) -> Option<(Vec<u8>, String)> {
    let child = Command::new("ffmpeg")
        .args(["-v", "error"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let outcome = child.and_then(|mut child| {
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        // ffmpeg may end before it has read everything.
        let _ = writer.join().unwrap();
        Ok(output)
    });
    match outcome {
        Ok(output) if output.status.success() => {
            Some((output.stdout, String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        other => {
            assert!(std::env::var_os("CI").is_none(), "ffmpeg {arguments:?} is needed: {other:?}");
            println!("skipped: ffmpeg {arguments:?} does not work here: {other:?}");
            None
        }
    }
}

/// Moving detail of 64 frames, encoded.
fn encode(format: Format, options: &[&str]) -> Option<Vec<u8>> {
    let muxer = muxer(format);
    let source = ["-f", "lavfi", "-i", "testsrc2=size=192x128:rate=25", "-frames:v", "64", "-threads", "1"];
    let arguments = [&source, options, &["-f", muxer, "-"]].concat();
    ffmpeg(&arguments, Vec::new()).map(|(bytes, _)| bytes)
}

fn muxer(format: Format) -> &'static str {
    match format {
        Format::H264 => "h264",
        Format::H265 => "hevc",
        Format::Av1 | Format::Vp9 => "ivf",
    }
}

/// The whole stream's units.
fn units_of(format: Format, stream: &[u8]) -> Vec<Coded> {
    let (units, dropped) = match format {
        Format::H264 | Format::H265 => {
            let mut parser = Parser::new(format);
            let mut found = Vec::new();
            for part in stream.chunks(700) {
                parser.push(part);
                found.extend(parser.by_ref().map(Result::unwrap));
            }
            parser.finish();
            found.extend(parser.by_ref().map(Result::unwrap));
            (found, parser.dropped())
        }
        Format::Av1 | Format::Vp9 => parse(format, &ivf(stream)),
    };
    assert_eq!((units.len(), dropped), (64, 0));
    units
}

/// A file of the units for which `keep` holds.
fn file_of(format: Format, units: &[Coded], keep: impl Fn(usize) -> bool) -> Vec<u8> {
    let kept = units.iter().enumerate().filter(|&(at, _)| keep(at));
    if matches!(format, Format::H264 | Format::H265) {
        return kept.flat_map(|(_, unit)| unit.bytes.clone()).collect();
    }
    let fourcc: &[u8] = if format == Format::Av1 { b"AV01" } else { b"VP90" };
    let mut file =
        [b"DKIF\0\0\x20\0".as_slice(), fourcc, &[192, 0, 128, 0, 25, 0, 0, 0, 1, 0, 0, 0]].concat();
    file.extend([0; 8]);
    for (at, unit) in kept {
        file.extend((unit.bytes.len() as u32).to_le_bytes());
        file.extend((at as u64).to_le_bytes());
        file.extend(&unit.bytes);
    }
    file
}

/// The checksum of each decoded frame, in display order, and what the decoder complained about.
fn decode(format: Format, file: Vec<u8>) -> (Vec<String>, String) {
    let arguments = ["-f", muxer(format), "-i", "-", "-vsync", "passthrough", "-f", "framemd5", "-"];
    let (text, complaints) = ffmpeg(&arguments, file).expect("what encoded decodes");
    let text = String::from_utf8(text).unwrap();
    let sums = text.lines().filter(|line| !line.starts_with('#'));
    let sums = sums.filter_map(|line| line.rsplit(',').next()).map(|sum| sum.trim().to_owned()).collect();
    (sums, complaints)
}

/// Whatever is dropped, together with what depends on it, leaves each remaining frame as it was. `layers` are those that
/// the stream must have.
fn assert_droppable(format: Format, options: &[&str], layers: &[u8]) {
    let Some(stream) = encode(format, options) else { return };
    let units = units_of(format, &stream);
    for &layer in layers {
        assert!(units.iter().any(|unit| unit.layer == layer), "no layer {layer} in {options:?}");
    }
    let (all, complaints) = decode(format, file_of(format, &units, |_| true));
    assert_eq!((all.len(), complaints.as_str()), (64, ""), "{options:?}");
    let mut shown: Vec<usize> = (0..units.len()).collect();
    shown.sort_by_key(|&at| units[at].display);
    let check = |kept: &[bool], what: &str| {
        let expected: Vec<String> =
            shown.iter().zip(&all).filter(|(at, _)| kept[**at]).map(|(_, sum)| sum.clone()).collect();
        let found = decode(format, file_of(format, &units, |at| kept[at]));
        assert!(found.0 == expected, "{what} of {options:?}");
        // The encoder tells the decoder to forget a picture that it never got, which does no harm.
        let complaints: Vec<&str> =
            found.1.lines().filter(|line| !line.contains("mmco: unref short failure")).collect();
        assert_eq!(complaints, [""; 0], "{what} of {options:?}");
    };
    for highest in [2, 1] {
        let kept: Vec<bool> = units.iter().map(|unit| unit.layer <= highest).collect();
        let closed = kept.iter().enumerate().all(|(at, &kept_one)| {
            !kept_one || units[at].refs.iter().all(|&back| back == 0 || kept[at - back as usize])
        });
        assert!(closed, "layers up to {highest} need others in {options:?}");
        check(&kept, "lower layers");
    }
    for lost in [9, 23, 41] {
        let mut kept = vec![true; units.len()];
        kept[lost] = false;
        for at in 0..units.len() {
            kept[at] &= units[at].refs.iter().all(|&back| back == 0 || kept[at - back as usize]);
        }
        check(&kept, "without a unit and its dependants");
    }
}

#[test]
fn h265_without_what_is_droppable() {
    let x265 = |parameters| ["-c:v", "libx265", "-x265-params", parameters];
    assert_droppable(
        Format::H265,
        &x265("log-level=error:bframes=4:b-pyramid=1:keyint=16:min-keyint=16:ref=3:pools=1"),
        &[0, 1, 3],
    );
    assert_droppable(
        Format::H265,
        &x265("log-level=error:bframes=3:temporal-layers=2:keyint=20:open-gop=0:pools=1:slices=2:aud=1"),
        &[0, 1, 3],
    );
}

#[test]
fn h264_without_what_is_droppable() {
    let x264 = |parameters| ["-c:v", "libx264", "-x264-params", parameters];
    assert_droppable(
        Format::H264,
        &x264("bframes=3:b-pyramid=strict:b-adapt=0:keyint=32:scenecut=0"),
        &[0, 1, 2, 3],
    );
    assert_droppable(
        Format::H264,
        &x264("bframes=3:b-pyramid=normal:keyint=16:min-keyint=16:open-gop=1:ref=3:aud=1"),
        &[0, 1, 3],
    );
}

/// What libvpx makes of one frame in two.
const TWO_LAYERS: &str = "ts_number_layers=2:ts_target_bitrate=100,200:ts_rate_decimator=2,1:ts_periodicity=2:ts_layer_id=0,1:ts_layering_mode=2";

#[test]
fn vp9_without_what_is_droppable() {
    let vpx = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "32", "-b:v", "200k"];
    let layered = ["-error-resilient", "1", "-ts-parameters", TWO_LAYERS];
    assert_droppable(Format::Vp9, &[&vpx[..], &layered].concat(), &[0, 1, 3]);
    assert_droppable(Format::Vp9, &vpx, &[0, 1]);
}

#[test]
fn av1_without_what_is_droppable() {
    let aom = ["-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "16", "-g", "24", "-b:v", "200k"];
    assert_droppable(Format::Av1, &aom, &[0, 1]);
    assert_droppable(Format::Av1, &["-c:v", "libsvtav1", "-preset", "10", "-g", "31"], &[0, 1, 3]);
}
