//! A real decoder's judgement: what the viewer received, decoded, against the same pictures decoded from the whole stream, and
//! the screen against the camera at the same instant.
//!
//! ```text
//!  received ─► ffmpeg ─► a hash of each picture ─┬─ equal? torn, damaged, or repeated if not
//!  whole stream ─► ffmpeg ─► hashes ─────────────┘
//!  received ─► ffmpeg ─► pictures, each for as long as it is on the screen ─► SSIM ◄─ the camera's at that instant
//! ```
//!
//! The camera's pictures are those of the whole stream: what is measured is the path, not the encoder.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;

use anyhow::{Context as _, ensure};

use super::schema::{Decoded, Window};
use super::source::{Codec, Source, TICKS};
use crate::ffmpeg::{self, Running};
use crate::ssim::{PICTURE_BYTES, Ssim, black, jpeg, shrink};

/// The instants of the kept pictures, as shares of the window.
pub(super) const STILLS: [f64; 4] = [0.2, 0.45, 0.7, 0.95];

/// Complaints whose words are kept.
const KEPT_WORDS: usize = 5;

/// A received picture.
pub(super) struct ReceivedPicture<'a> {
    pub(super) ticks: i64,
    pub(super) bytes: &'a [u8],
    /// Its position in the stream, if it is of it.
    pub(super) place: Option<usize>,
    /// From when on it can be decoded, by its references, if it can; in nanoseconds of the source's clock.
    pub(super) decodable_ns: Option<u64>,
}

/// The stream as a whole, decoded.
pub(super) struct Whole<'a> {
    source: &'a Source,
    window: Window,
    file: PathBuf,
    /// By presentation time.
    hashes: BTreeMap<i64, String>,
}

impl<'a> Whole<'a> {
    /// Decodes the stream once; what came of it is kept beside `file`, the prepared stream.
    pub(super) fn of(source: &'a Source, window: Window, file: &Path) -> anyhow::Result<Self> {
        let whole = file.with_extension("whole.ivf");
        let hashes = file.with_extension("hashes");
        if !hashes.exists() {
            let origin = origin(source);
            let mine = format!("{}.part", std::process::id());
            let pictures = source.pictures.iter().map(|picture| (picture.ticks - origin, &picture.bytes[..]));
            let part = whole.with_extension(&mine);
            write_ivf(&part, source.codec, pictures)?;
            let complaints = hash(&part, &hashes.with_extension(&mine))?;
            ensure!(complaints.is_empty(), "the stream cannot be decoded: {}", complaints.join("; "));
            // Others may do the same side by side; what they leave is equal.
            std::fs::rename(&part, &whole).with_context(|| format!("cannot write {}", whole.display()))?;
            std::fs::rename(hashes.with_extension(&mine), &hashes)
                .with_context(|| format!("cannot write {}", hashes.display()))?;
        }
        Ok(Self { source, window, file: whole, hashes: read_hashes(&hashes)?.into_iter().collect() })
    }

    /// Leaves what the camera saw at each instant of [`STILLS`] in files whose names begin with `name`.
    pub(super) fn stills(&self, name: &Path) -> anyhow::Result<()> {
        let camera = Camera::of(self.source, self.window);
        let mut reel = Reel::open(&self.file, self.hashes.keys().copied().collect())?;
        for (number, at_ns) in stills(self.window).enumerate() {
            let path = still(name, number);
            let newest = camera.all.iter().rev().find(|(captured_ns, _)| *captured_ns <= at_ns);
            if let (false, Some((_, ticks))) = (path.exists(), newest)
                && let Some(picture) = reel.forward_to(*ticks)?
            {
                save(&path, picture)?;
            }
        }
        Ok(())
    }

    /// Judges what a viewer received. `work` is for files that go with it; the stills' names begin with `name`.
    pub(super) fn judge(
        &self,
        received: &[ReceivedPicture<'_>],
        work: &Path,
        name: &Path,
    ) -> anyhow::Result<Decoded> {
        let Some(origin) = received.iter().map(|picture| picture.ticks).min() else {
            return self.judge_screen(name, None, &[]);
        };
        let file = work.join("received.ivf");
        let pictures = received.iter().map(|picture| (picture.ticks - origin, picture.bytes));
        write_ivf(&file, self.source.codec, pictures)?;
        let hashes = work.join("received.hashes");
        let complaints = hash(&file, &hashes)?;
        let hashes: BTreeMap<i64, String> = read_hashes(&hashes)?.into_iter().collect();
        let shown = received.iter().filter_map(|picture| {
            let captured_ns = self.source.pictures[picture.place?].captured_ns;
            Some((picture.decodable_ns?, captured_ns, picture.ticks - origin))
        });
        let mut shown: Vec<(u64, u64, i64)> =
            shown.filter(|(_, _, ticks)| hashes.contains_key(ticks)).collect();
        shown.sort_unstable();
        let reel = Reel::open(&file, hashes.keys().copied().collect())?;
        let mut decoded = self.judge_screen(name, Some(reel), &shown)?;
        self.count(received, &hashes, origin, &mut decoded);
        decoded.pictures = hashes.len();
        decoded.complaints = complaints.len();
        decoded.words = complaints.into_iter().take(KEPT_WORDS).collect();
        Ok(decoded)
    }

    fn count(
        &self,
        received: &[ReceivedPicture<'_>],
        hashes: &BTreeMap<i64, String>,
        first: i64,
        counts: &mut Decoded,
    ) {
        let origin = origin(self.source);
        for picture in received {
            let ticks = picture.ticks - first;
            let decoded = hashes.get(&ticks);
            match picture.place {
                Some(place) if picture.decodable_ns.is_some() => {
                    let expected = self.hashes.get(&(self.source.pictures[place].ticks - origin));
                    counts.differing += usize::from(decoded != expected);
                }
                Some(_) => {}
                None => {
                    // A repetition is of the picture that the decoder had last, which may be one that is shown later.
                    let is_repetition = decoded
                        .is_some_and(|hash| hashes.iter().any(|(at, other)| *at != ticks && other == hash));
                    if is_repetition { counts.repeated += 1 } else { counts.torn += 1 }
                }
            }
        }
    }

    /// SSIM of the screen, and its stills. `shown` has from when on each picture is there, when it was captured and its time
    /// in the reel, in order.
    fn judge_screen(
        &self,
        name: &Path,
        mut reel: Option<Reel>,
        shown: &[(u64, u64, i64)],
    ) -> anyhow::Result<Decoded> {
        let camera = Camera::of(self.source, self.window);
        let mut ssim = Ssim::start(&self.file, "ivf", Some(camera.counted.clone()))?;
        let mut left = shown.iter().peekable();
        let mut newest: Option<(u64, i64)> = None;
        let mut at_stills = stills(self.window).enumerate().peekable();
        let instants: Vec<u64> = camera.all[camera.counted.clone()].iter().map(|(at_ns, _)| *at_ns).collect();
        for &now in &instants {
            while let Some(&(_, captured_ns, ticks)) = left.next_if(|(at, ..)| *at <= now) {
                // The screen is empty at the window's begin.
                let is_newer = newest.is_none_or(|(before, _)| captured_ns > before);
                if captured_ns >= self.window.begin_ns && is_newer {
                    newest = Some((captured_ns, ticks));
                }
            }
            let picture = match (&mut reel, newest) {
                (Some(reel), Some((_, ticks))) => reel.forward_to(ticks)?,
                _ => None,
            };
            while let Some((number, _)) = at_stills.next_if(|(_, at)| *at <= now) {
                if let Some(picture) = picture {
                    save(&still(name, number), picture)?;
                }
            }
            ssim.push(picture.unwrap_or(&black()))?;
        }
        let mut values = ssim.finish()?;
        let due = instants.len();
        ensure!(values.len() == due && due > 0, "ffmpeg compared {} of {due} pictures", values.len());
        values.sort_by(f64::total_cmp);
        let ssim_mean = values.iter().sum::<f64>() / due as f64;
        Ok(Decoded { ssim_mean, ssim_p5: values[due / 20], ..Decoded::default() })
    }
}

/// Where a still is.
pub(super) fn still(name: &Path, number: usize) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(format!("-{number}.jpg"));
    path.into()
}

/// The instants of the stills, in nanoseconds of the source's clock.
pub(super) fn stills(window: Window) -> impl Iterator<Item = u64> {
    STILLS.into_iter().map(move |share| window.from_ns + (window.seconds() * share * 1e9) as u64)
}

/// The camera's pictures, in the order of their capture.
struct Camera {
    /// When each was captured, and its time in the decoded file.
    all: Vec<(u64, i64)>,
    /// Positions of those within the window.
    counted: std::ops::Range<usize>,
}

impl Camera {
    fn of(source: &Source, window: Window) -> Self {
        let origin = origin(source);
        let mut all: Vec<(u64, i64)> =
            source.pictures.iter().map(|picture| (picture.captured_ns, picture.ticks - origin)).collect();
        all.sort_unstable();
        let place = |ns: u64| all.partition_point(|(captured_ns, _)| *captured_ns < ns);
        let counted = place(window.from_ns)..place(window.until_ns);
        Self { all, counted }
    }
}

/// The time of the first picture that is shown.
fn origin(source: &Source) -> i64 {
    source.pictures.iter().map(|picture| picture.ticks).min().unwrap_or(0)
}

fn save(path: &Path, picture: &[u8]) -> anyhow::Result<()> {
    std::fs::write(path, jpeg(picture)?).with_context(|| format!("cannot write {}", path.display()))
}

/// The pictures of a file, decoded one after the other.
struct Reel {
    /// Ends the decoder with the reel.
    _running: Running,
    output: BufReader<ChildStdout>,
    /// Their times.
    times: Vec<i64>,
    decoded: usize,
    picture: Vec<u8>,
}

impl Reel {
    /// `times` are those of the pictures that the decoder yields, in order.
    fn open(file: &Path, times: Vec<i64>) -> anyhow::Result<Self> {
        let mut command = ffmpeg::command();
        command.args(["-f", "ivf", "-i"]).arg(ffmpeg::file(file));
        command.args(["-vf", &shrink(), "-fps_mode", "passthrough", "-f", "rawvideo", "pipe:1"]);
        let mut running = Running::start(&mut command, false, true)?;
        let output = BufReader::with_capacity(PICTURE_BYTES, running.output()?);
        Ok(Self { _running: running, output, times, decoded: 0, picture: Vec::new() })
    }

    /// The picture of this time, which is not before the last one that was asked for.
    fn forward_to(&mut self, ticks: i64) -> anyhow::Result<Option<&[u8]>> {
        while self.decoded == 0 || self.times.get(self.decoded - 1).is_some_and(|at| *at < ticks) {
            self.picture.resize(PICTURE_BYTES, 0);
            if self.output.read_exact(&mut self.picture).is_err() {
                return Ok(None);
            }
            self.decoded += 1;
        }
        Ok(Some(&self.picture))
    }
}

/// Hashes every picture that the decoder yields into a file; what it complained of.
fn hash(file: &Path, hashes: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = ffmpeg::command();
    command.args(["-copyts", "-f", "ivf", "-i"]).arg(ffmpeg::file(file));
    // The times are those of the file, whatever rate ffmpeg takes it for.
    command.args(["-fps_mode", "passthrough", "-enc_time_base", "-1", "-f", "framemd5", "-y"]);
    let running = Running::start(command.arg(ffmpeg::file(hashes)), false, false)?;
    let ended = running.wait()?;
    let mut complaints = ended.complaints;
    if !ended.success && complaints.is_empty() {
        complaints.push("the decoder gave up".to_owned());
    }
    Ok(complaints)
}

/// Lines as `0,  3600,  3600,  1,  1382400, 89153d011174f2b402427fa580b1e45c`.
fn read_hashes(path: &Path) -> anyhow::Result<Vec<(i64, String)>> {
    // A decoder that yields nothing leaves nothing.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let fields = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (Some(time), Some(hash)) = (fields.get(2), fields.last()) else { anyhow::bail!("{line:?}") };
        Ok((time.parse()?, (*hash).to_owned()))
    });
    fields.collect::<anyhow::Result<_>>().with_context(|| format!("cannot read {}", path.display()))
}

/// Coded pictures with their times. ffmpeg reads more codecs from IVF than others write to it.
fn write_ivf<'a>(
    path: &Path,
    codec: Codec,
    pictures: impl Iterator<Item = (i64, &'a [u8])>,
) -> anyhow::Result<()> {
    let mut file = Vec::from(*b"DKIF\0\0\x20\0");
    file.extend(codec.letters());
    // Width and height are the stream's own affair.
    file.extend([0x10, 0, 0x10, 0]);
    file.extend(TICKS.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend([0; 8]);
    for (ticks, bytes) in pictures {
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(ticks.to_le_bytes());
        file.extend_from_slice(bytes);
    }
    let mut output =
        std::fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    output.write_all(&file).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_with_their_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hashes");
        std::fs::write(
            &path,
            "#format: frame checksums\n0,  -3600,   3600,  1,  12, ab\n0, 0, 7200, 1, 12, cd\n",
        )
        .unwrap();
        let read = read_hashes(&path).unwrap();
        assert_eq!(read, [(3600, "ab".to_owned()), (7200, "cd".to_owned())]);
        assert_eq!(read_hashes(&folder.path().join("nothing")).unwrap(), []);
        std::fs::write(&path, "not a hash\n").unwrap();
        assert!(read_hashes(&path).is_err());
    }
}
