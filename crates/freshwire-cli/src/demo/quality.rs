//! What each viewer's picture was worth: the received bytes through a real decoder, compared with the original at the
//! moment of display.
//!
//! ```text
//!  received.h264 ─► ffmpeg ─► pictures ─► repeated as the screen did ─┐
//!                                                                     ├─► ffmpeg's ssim, playout instant by instant
//!  video.h264 ──────────────► the frame due at that instant ──────────┘
//! ```
//!
//! The original is the encoder's output: what is measured is the path, not the encoder.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::ffmpeg::{self, Running};
use super::metrics::{percentile, playout};
use super::video::{FPS, Stream};
use super::wire::Outcome;

/// The playout that is judged stays this far behind the camera.
const PLAYOUT_DELAY: Duration = Duration::from_secs(1);

/// How good a viewer's pictures were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Quality {
    /// SSIM against the frame that was due, for each playout instant.
    pub(super) ssim: Vec<f64>,
    /// Its mean.
    pub(super) ssim_mean: f64,
    /// Its 5th percentile.
    pub(super) ssim_p5: f64,
    /// Pictures that came out of the decoder.
    pub(super) decoded: usize,
    /// What the decoder complained of, and pictures that it did not yield.
    pub(super) decoder_errors: usize,
}

/// A JPEG picture; `None` while nothing was on the screen.
pub(super) type Still = Option<Vec<u8>>;

/// Judges what a viewer received.
pub(super) fn judge(
    stream: &Stream,
    outcome: &Outcome,
    received: &Path,
    video: &Path,
) -> anyhow::Result<Quality> {
    let screen = playout(stream, &outcome.shown, PLAYOUT_DELAY);
    let frames = received_frames(stream, outcome);
    let expected = frames.len();
    let mut reel = Reel::open(received, frames)?;
    let mut ssim = Ssim::start(video)?;
    for frame in &screen {
        let picture = match frame {
            Some(frame) => reel.forward_to(*frame)?,
            None => None,
        };
        ssim.push(picture.unwrap_or(&black()))?;
    }
    let (decoded, complaints) = reel.finish()?;
    let ssim = ssim.finish()?;
    ensure!(ssim.len() == screen.len(), "ffmpeg compared {} of {} pictures", ssim.len(), screen.len());
    let mut sorted = ssim.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Quality {
        ssim_mean: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
        ssim_p5: percentile(&sorted, 0.05),
        ssim,
        decoded,
        decoder_errors: complaints + expected.abs_diff(decoded),
    })
}

/// Camera frames that a viewer received, in display order.
pub(super) fn received_frames(stream: &Stream, outcome: &Outcome) -> Vec<usize> {
    let mut frames: Vec<usize> =
        outcome.arrivals.iter().map(|arrival| stream.units[arrival.unit].frame).collect();
    frames.sort_unstable();
    frames
}

/// Pictures out of a stream that holds `frames`; `wanted` is ascending.
pub(super) fn stills(
    path: &Path,
    frames: Vec<usize>,
    wanted: &[Option<usize>],
) -> anyhow::Result<Vec<Still>> {
    let mut reel = Reel::open(path, frames)?;
    let mut still = |frame: &Option<usize>| match frame {
        Some(frame) => reel.forward_to(*frame)?.map(jpeg).transpose(),
        None => Ok(None),
    };
    wanted.iter().map(&mut still).collect()
}

/// The pictures of a stream, decoded one after the other.
struct Reel {
    /// `None`: the stream is empty.
    decoder: Option<(Running, BufReader<ChildStdout>)>,
    /// Camera frames that the decoder yields, in order.
    frames: Vec<usize>,
    /// How many it has yielded.
    decoded: usize,
    picture: Vec<u8>,
}

impl Reel {
    fn open(path: &Path, frames: Vec<usize>) -> anyhow::Result<Self> {
        let decoder = if frames.is_empty() {
            None
        } else {
            let mut command = ffmpeg::command();
            command.args(["-xerror", "-err_detect", "explode", "-f", "h264", "-i"]).arg(ffmpeg::file(path));
            command.args(["-vf", &shrink(), "-f", "rawvideo", "pipe:1"]);
            let mut running = Running::start(&mut command, false, true)?;
            let output = BufReader::with_capacity(PICTURE_BYTES, running.output()?);
            Some((running, output))
        };
        Ok(Self { decoder, frames, decoded: 0, picture: black() })
    }

    /// The picture of a frame that is not before the last one asked for; the last one there is if the decoder does not
    /// come as far. `None`: there is none at all.
    fn forward_to(&mut self, frame: usize) -> anyhow::Result<Option<&[u8]>> {
        while self.decoded == 0 || self.frames.get(self.decoded - 1).is_some_and(|&at| at < frame) {
            if !self.advance()? {
                break;
            }
        }
        Ok((self.decoded > 0).then_some(&self.picture))
    }

    fn advance(&mut self) -> anyhow::Result<bool> {
        let Some((_, output)) = &mut self.decoder else { return Ok(false) };
        let mut next = Vec::with_capacity(PICTURE_BYTES);
        let read =
            output.take(PICTURE_BYTES as u64).read_to_end(&mut next).context("cannot read pictures")?;
        if read < PICTURE_BYTES {
            return Ok(false);
        }
        self.picture = next;
        self.decoded += 1;
        Ok(true)
    }

    /// Decodes the rest. Returns how many pictures there were and how many complaints.
    fn finish(mut self) -> anyhow::Result<(usize, usize)> {
        while self.advance()? {}
        let Some((running, _)) = self.decoder else { return Ok((0, 0)) };
        let ended = running.wait()?;
        Ok((self.decoded, ended.complaints.len().max(usize::from(!ended.success))))
    }
}

/// Compares pictures with the original's, frame by frame.
struct Ssim {
    running: Running,
    input: std::process::ChildStdin,
    values: std::thread::JoinHandle<Vec<f64>>,
}

impl Ssim {
    fn start(video: &Path) -> anyhow::Result<Self> {
        let (size, rate) = (format!("{WIDTH}x{HEIGHT}"), FPS.to_string());
        let mut command = ffmpeg::command();
        command.args([
            "-f",
            "rawvideo",
            "-pix_fmt",
            "yuv420p",
            "-s",
            &size,
            "-framerate",
            &rate,
            "-i",
            "pipe:0",
        ]);
        command.args(["-f", "h264", "-i"]).arg(ffmpeg::file(video));
        let graph = format!(
            "[0:v]{EVEN_TIMES}[screen];[1:v]{}[original];[screen][original]ssim=stats_file=-[out]",
            shrink()
        );
        command.args(["-filter_complex", &graph, "-map", "[out]", "-f", "null", "-"]);
        let mut running = Running::start(&mut command, true, true)?;
        let (input, output) = (running.input()?, running.output()?);
        let values = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).filter_map(|line| value(&line)).collect()
        });
        Ok(Self { running, input, values })
    }

    fn push(&mut self, picture: &[u8]) -> anyhow::Result<()> {
        self.input.write_all(picture).context("ffmpeg takes no more pictures to compare")
    }

    fn finish(self) -> anyhow::Result<Vec<f64>> {
        drop(self.input);
        let values =
            self.values.join().map_err(|_| anyhow::anyhow!("the reader of the comparison panicked"))?;
        let ended = self.running.wait()?;
        ensure!(ended.success, "ffmpeg cannot compare pictures: {}", ended.complaints.join("; "));
        Ok(values)
    }
}

/// `n:1 Y:0.98 U:0.99 V:0.99 All:0.985 (18.2)`.
fn value(line: &str) -> Option<f64> {
    line.split_once("All:")?.1.split_whitespace().next()?.parse().ok()
}

fn jpeg(picture: &[u8]) -> anyhow::Result<Vec<u8>> {
    let size = format!("{WIDTH}x{HEIGHT}");
    let mut command = ffmpeg::command();
    command.args(["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", &size, "-i", "pipe:0"]);
    command.args(["-frames:v", "1", "-q:v", "5", "-f", "mjpeg", "pipe:1"]);
    let mut running = Running::start(&mut command, true, true)?;
    let mut input = running.input()?;
    // It reads all of one picture before it writes, so neither side waits for the other.
    input.write_all(picture).context("ffmpeg takes no picture")?;
    drop(input);
    let mut bytes = Vec::new();
    running.output()?.read_to_end(&mut bytes).context("cannot read a still")?;
    let ended = running.wait()?;
    ensure!(ended.success, "ffmpeg cannot write a still: {}", ended.complaints.join("; "));
    Ok(bytes)
}

/// The size at which pictures are compared and kept. Timestamps are set evenly because those of a raw stream with
/// dropped frames mean nothing, and ffmpeg would repeat or drop pictures to keep to them.
fn shrink() -> String {
    format!("{EVEN_TIMES},scale={WIDTH}:{HEIGHT}:flags=area,format=yuv420p")
}

fn black() -> Vec<u8> {
    let mut picture = vec![16; PICTURE_BYTES];
    picture[WIDTH * HEIGHT..].fill(128);
    picture
}

const EVEN_TIMES: &str = "settb=1/25,setpts=N";
const _: () = assert!(FPS == 25);
const WIDTH: usize = 640;
const HEIGHT: usize = 360;
const PICTURE_BYTES: usize = WIDTH * HEIGHT * 3 / 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_statistics_is_read() {
        assert_eq!(value("n:12 Y:0.98 U:0.99 V:1.0 All:0.985000 (18.239)"), Some(0.985));
        assert_eq!(value("n:1 Y:1.0 U:1.0 V:1.0 All:1.000000 (inf)"), Some(1.0));
        assert_eq!(value(""), None);
    }

    #[test]
    fn black_is_black() {
        let picture = black();
        assert_eq!((picture[0], picture[WIDTH * HEIGHT - 1], picture[WIDTH * HEIGHT]), (16, 16, 128));
    }
}
