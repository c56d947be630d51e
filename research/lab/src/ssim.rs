//! Pictures at one small size: compared with the original by ffmpeg's SSIM, one by one, and kept as JPEG.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::ChildStdin;
use std::thread::JoinHandle;

use anyhow::{Context as _, ensure};

use crate::ffmpeg::{self, Running};

/// Bytes of a picture: YUV 4:2:0.
pub(crate) const PICTURE_BYTES: usize = WIDTH * HEIGHT * 3 / 2;
const WIDTH: usize = 640;
const HEIGHT: usize = 360;
const EVEN_TIMES: &str = "settb=1/25,setpts=N";

/// Compares pictures with the original's, in order.
pub(crate) struct Ssim {
    running: Running,
    input: ChildStdin,
    values: JoinHandle<Vec<f64>>,
}

impl Ssim {
    /// `original` is a coded stream in a file, and `format` ffmpeg's name of the file's format. `pictures`
    /// selects pictures of the original in display order; `None` selects all.
    pub(crate) fn start(
        original: &Path,
        format: &str,
        pictures: Option<Range<usize>>,
    ) -> anyhow::Result<Self> {
        let mut command = ffmpeg::command();
        let input = format!(
            "-f rawvideo -pix_fmt yuv420p -s {WIDTH}x{HEIGHT} -framerate 25 -i pipe:0 -f {format} -i"
        );
        command.args(input.split(' ')).arg(ffmpeg::file(original));
        let cut = pictures.map_or(String::new(), |Range { start, end }| {
            format!("trim=start_frame={start}:end_frame={end},")
        });
        let graph = format!(
            "[0:v]{EVEN_TIMES}[screen];[1:v]{cut}{}[original];[screen][original]ssim=stats_file=-[out]",
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

    /// The next picture, of [`PICTURE_BYTES`].
    pub(crate) fn push(&mut self, picture: &[u8]) -> anyhow::Result<()> {
        self.input.write_all(picture).context("ffmpeg takes no more pictures to compare")
    }

    /// The likeness of each picture, at most 1.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<f64>> {
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

/// A picture as JPEG.
pub(crate) fn jpeg(picture: &[u8]) -> anyhow::Result<Vec<u8>> {
    let words = format!(
        "-f rawvideo -pix_fmt yuv420p -s {WIDTH}x{HEIGHT} -i pipe:0 -frames:v 1 -q:v 5 -f mjpeg pipe:1"
    );
    let mut running = Running::start(ffmpeg::command().args(words.split(' ')), true, true)?;
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

/// The filter that makes pictures of the size at which they are compared and kept. Timestamps are set evenly because those
/// of a raw stream with dropped frames mean nothing, and ffmpeg would repeat or drop pictures to keep to them.
pub(crate) fn shrink() -> String {
    format!("{EVEN_TIMES},{}:flags=area,format=yuv420p", scale())
}

/// The filter that scales pictures to that size; options may follow.
pub(crate) fn scale() -> String {
    format!("scale={WIDTH}:{HEIGHT}")
}

/// A screen with nothing on it.
pub(crate) fn black() -> Vec<u8> {
    let mut picture = vec![16; PICTURE_BYTES];
    picture[WIDTH * HEIGHT..].fill(128);
    picture
}

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
