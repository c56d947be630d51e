//! What the tests of several modules share: the programs of ffmpeg, and plain readers of the streams that they write.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Inputs that a property test tries under `cargo test`, where each is short. A fuzzer tries as many as it is given time
/// for.
pub(crate) const ITERATIONS: usize = 4000;

/// Pictures that [`encode`] makes.
pub(crate) const PICTURES: usize = 64;

/// Runs a program of ffmpeg with these arguments and this standard input. `None` if it is not here, which is an error
/// where `CI` is set.
pub(crate) fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Output> {
    let child = Command::new(program)
        .args(["-v", "error"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            skip(&format!("{program} is not here: {error}"));
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A program that needs no input may close it.
    drop(writer.join().unwrap());
    Some(output)
}

/// What ffmpeg writes with these arguments, made once for all tests. `None` if it or an encoder is not here, which is an
/// error where `CI` is set.
pub(crate) fn made(arguments: &[&str]) -> Option<Vec<u8>> {
    type Made = Arc<OnceLock<Option<Vec<u8>>>>;
    static ALL: Mutex<BTreeMap<String, Made>> = Mutex::new(BTreeMap::new());
    let made = Arc::clone(ALL.lock().unwrap().entry(arguments.join(" ")).or_default());
    let make = || {
        let output = run("ffmpeg", arguments, &[])?;
        if !output.status.success() {
            skip(&format!("ffmpeg {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        Some(output.stdout)
    };
    made.get_or_init(make).clone()
}

fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "needed in CI: {reason}");
    println!("skipped: {reason}");
}

/// A sequence parameter set by x264: H.264, 1280x720, 25 a second, two pictures reordered.
pub(crate) const X264_SEQUENCE: [u8; 26] = [
    0x67, 0x64, 0x00, 0x1f, 0xac, 0xd9, 0x40, 0x50, 0x05, 0xbb, 0x01, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10,
    0x00, 0x00, 0x03, 0x03, 0x20, 0xf1, 0x83, 0x19, 0x60,
];

/// [`PICTURES`] pictures of moving detail, 192x128, 25 a second, encoded with `options`.
pub(crate) fn encode(options: &[&str], muxer: &str) -> Option<Vec<u8>> {
    let source = ["-f", "lavfi", "-i", "testsrc2=size=192x128:rate=25", "-frames:v", "64"];
    made(&[&source[..], &["-threads", "1", "-pix_fmt", "yuv420p"], options, &["-f", muxer, "-"]].concat())
}

/// The checksum of each frame that ffmpeg decodes, in display order, and what it complains about.
pub(crate) fn decode(stream: &[u8], muxer: &str) -> (Vec<String>, String) {
    let arguments = ["-f", muxer, "-i", "-", "-vsync", "passthrough", "-f", "framemd5", "-"];
    let output = run("ffmpeg", &arguments, stream).expect("what encoded decodes");
    let text = String::from_utf8(output.stdout).unwrap();
    let sums = text.lines().filter(|line| !line.starts_with('#'));
    let sums = sums.filter_map(|line| line.rsplit(',').next()).map(|sum| sum.trim().to_owned()).collect();
    (sums, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The frames of an IVF file.
pub(crate) fn ivf(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = &file[32..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(12) {
        let len = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        frames.push(&after[..len]);
        rest = &after[len..];
    }
    frames
}

/// The NAL units of a byte stream, without start codes and the zeros around them.
pub(crate) fn nals(stream: &[u8]) -> Vec<&[u8]> {
    let codes: Vec<usize> = (0..stream.len()).filter(|&at| stream[at..].starts_with(&[0, 0, 1])).collect();
    let ends = codes.iter().skip(1).copied().chain([stream.len()]);
    let nal = |(&code, end): (&usize, usize)| {
        let nal = &stream[code + 3..end];
        &nal[..nal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)]
    };
    codes.iter().zip(ends).map(nal).filter(|nal| !nal.is_empty()).collect()
}

/// Reads `bytes` in parts of `step` bytes: all items up to the first error.
pub(crate) fn read_in_parts<R: Iterator<Item = Result<T, E>>, T, E>(
    reader: &mut R,
    push: impl Fn(&mut R, &[u8]),
    bytes: &[u8],
    step: usize,
) -> (Vec<T>, Option<E>) {
    let mut items = Vec::new();
    for part in bytes.chunks(step) {
        push(reader, part);
        for item in reader.by_ref() {
            match item {
                Ok(item) => items.push(item),
                Err(error) => return (items, Some(error)),
            }
        }
    }
    (items, None)
}
