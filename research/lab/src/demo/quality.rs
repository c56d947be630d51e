//! The quality of each viewer's pictures: the received bytes through a real decoder, compared with the original at the
//! moment of display.
//!
//! ```text
//!  received.h264 ─► ffmpeg ─► pictures ─► repeated as the screen did ─┐
//!                                                                     ├─► ffmpeg's ssim, playout instant by instant
//!  video.h264 ──────────────► the frame due at that instant ──────────┘
//! ```
//!
//! The original is the encoder's output: what is measured is the path, not the encoder.

use std::io::{BufReader, Read as _};
use std::path::Path;
use std::process::ChildStdout;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::metrics::{percentile, playout};
use super::video::Stream;
use super::wire::Outcome;
use crate::ffmpeg::{self, Running};
use crate::ssim::{PICTURE_BYTES, Ssim, black, jpeg, shrink};

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
    /// The decoder's complaints, and pictures that it did not yield.
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
    let mut ssim = Ssim::start(video, "h264", None)?;
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
