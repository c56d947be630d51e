//! A real decoder's judgement of the layers that arrived in time: which pictures come out, and how the screen looks beside the camera's picture.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::clip::Clip;
use super::ivf::{decoder, hashes, write};
use crate::ffmpeg::Running;
use crate::results::Decoded;
use crate::ssim::{PICTURE_BYTES, Ssim, black, jpeg, scale};

/// The instants of the kept pictures, as shares of the clip.
const STILLS: [f64; 4] = [0.2, 0.45, 0.7, 0.95];

/// Judges a screen. `shown` has for each picture how many of its spatial layers can be decoded in time; 0 leaves the picture before it on the
/// screen. Pictures of the screen, and the stream for a player (`.ivf`), go to files whose names begin with `stills`.
pub(crate) fn judge(clip: &Clip, shown: &[u8], stills: &Path) -> anyhow::Result<Decoded> {
    let video = clip.read()?;
    let stream = stills.with_extension("ivf");
    write(&stream, &video, shown)?;
    let hashes = hashes(&stream)?;
    let mut decoded = Decoded { pictures: hashes.len() as u64, ..differing(clip, shown, &hashes)? };
    let mut screen = Screen::open(&stream, hashes.is_empty())?;
    // The coded size of the clip is that of the screen.
    let mut ssim = Ssim::start(&clip.source, "yuv4mpegpipe", Some(0..shown.len()))?;
    let at_stills = STILLS.map(|share| (shown.len() as f64 * share) as usize);
    for (picture, layers) in shown.iter().enumerate() {
        if *layers > 0 {
            screen.next()?;
        }
        if let Some(number) = at_stills.iter().position(|&at| at == picture) {
            let path = stills.with_extension(format!("{number}.jpg"));
            std::fs::write(&path, jpeg(&screen.picture)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        ssim.push(&screen.picture)?;
    }
    let mut values = ssim.finish()?;
    ensure!(values.len() == shown.len(), "ffmpeg compared {} of {} pictures", values.len(), shown.len());
    values.sort_by(f64::total_cmp);
    decoded.ssim_mean = values.iter().sum::<f64>() / values.len() as f64;
    decoded.ssim_p5 = values[values.len() / 20];
    Ok(decoded)
}

/// Counts pictures that are not, bit by bit, what the same layers of the whole stream give.
fn differing(clip: &Clip, shown: &[u8], hashes: &BTreeMap<i64, String>) -> anyhow::Result<Decoded> {
    let most = shown.iter().copied().max().unwrap_or(0);
    let whole = |spatial: u8| {
        let path = clip.hashes(spatial);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok(text.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let whole: Vec<Vec<String>> = (1..=most).map(whole).collect::<anyhow::Result<_>>()?;
    let is_same = |(picture, layers): (usize, u8)| {
        let expected = whole.get(usize::from(layers) - 1).and_then(|hashes| hashes.get(picture));
        hashes.get(&(picture as i64)) == expected
    };
    let shown = shown.iter().copied().enumerate().filter(|(_, layers)| *layers > 0);
    Ok(Decoded { differing: shown.filter(|shown| !is_same(*shown)).count() as u64, ..Decoded::default() })
}

/// The screen: decoded pictures at the size of the camera's, one after the other.
struct Screen {
    /// Ends the decoder with the screen.
    running: Option<(Running, BufReader<std::process::ChildStdout>)>,
    picture: Vec<u8>,
}

impl Screen {
    fn open(stream: &Path, is_empty: bool) -> anyhow::Result<Self> {
        let mut screen = Self { running: None, picture: black() };
        if !is_empty {
            let mut command = decoder(stream);
            // As players enlarge pictures.
            let filter = format!("{}:flags=bicubic,format=yuv420p", scale());
            command.args(["-vf", &filter, "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"]);
            let mut running = Running::start(&mut command, false, true)?;
            let output = BufReader::with_capacity(PICTURE_BYTES, running.output()?);
            screen.running = Some((running, output));
        }
        Ok(screen)
    }

    fn next(&mut self) -> anyhow::Result<()> {
        let (_, output) = self.running.as_mut().context("no picture was decoded")?;
        output.read_exact(&mut self.picture).context("a picture is missing")
    }
}
