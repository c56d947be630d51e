//! Clips: pictures, scalably coded once, kept in the folder of an experiment.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::file::Video;
use super::ivf::{self, FPS};
use crate::ffmpeg;
use crate::screen::pictures;

/// The size of the pictures, at which a screen is compared with the camera too (`ssim`).
const SIZE: &str = "640:360";
const SPATIAL_LAYERS: u8 = 3;
const TEMPORAL_LAYERS: u8 = 3;

/// The pictures and the settings of an encoding.
#[derive(Clone, Debug)]
pub(crate) struct Recipe<'a> {
    /// A stream of [`crate::screen`], or a file.
    pub(crate) name: &'a str,
    pub(crate) seconds: u32,
    /// Rate of all layers.
    pub(crate) kbits: u32,
    /// Pictures from a key picture to the next.
    pub(crate) key_interval: u32,
}

/// A prepared clip.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Clip {
    /// The file of layer frames.
    pub(crate) file: PathBuf,
    /// The pictures that were encoded, in YUV4MPEG2.
    pub(crate) source: PathBuf,
}

impl Clip {
    /// The clip of a recipe in `folder`, after its encoding where it is missing. `say` gets messages on long steps.
    pub(crate) fn prepare(recipe: &Recipe<'_>, folder: &Path, say: impl Fn(&str)) -> anyhow::Result<Self> {
        let Recipe { name, seconds, kbits, key_interval } = *recipe;
        let stem: String =
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
        let source = folder.join(format!("{stem}-{seconds}s.y4m"));
        let clip =
            Self { file: folder.join(format!("{stem}-{seconds}s-{kbits}k-{key_interval}.fwsv")), source };
        if !clip.source.exists() {
            say(&format!("preparing the pictures of {name}, once"));
            clip.draw(name, seconds, folder, &say)?;
        }
        if !clip.file.exists() {
            say(&format!("encoding {name} in layers, once"));
            clip.encode(recipe, folder)?;
            clip.decode()?;
        }
        Ok(clip)
    }

    /// The layer frames.
    pub(crate) fn read(&self) -> anyhow::Result<Video> {
        let bytes =
            std::fs::read(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        Video::parse(&bytes).with_context(|| format!("{} is damaged; remove it", self.file.display()))
    }

    /// Where the hashes of the pictures are that come of the first `spatial` layers of the whole stream.
    pub(super) fn hashes(&self, spatial: u8) -> PathBuf {
        self.file.with_extension(format!("{spatial}.hashes"))
    }

    fn draw(&self, name: &str, seconds: u32, folder: &Path, say: impl Fn(&str)) -> anyhow::Result<()> {
        let part = self.source.with_extension("part");
        let output = format!(
            "-map 0:v:0 -t {seconds} -vf fps={FPS},scale={SIZE}:force_original_aspect_ratio=increase,crop={SIZE} \
             -pix_fmt yuv420p -f yuv4mpegpipe"
        );
        let mut command = ffmpeg::command();
        command.arg("-y").args(pictures(name, folder, say)?).args(output.split(' ')).arg(ffmpeg::file(&part));
        ffmpeg::run(&mut command, &format!("prepare {name}"))?;
        std::fs::rename(&part, &self.source)
            .with_context(|| format!("cannot write {}", self.source.display()))
    }

    fn encode(&self, recipe: &Recipe<'_>, folder: &Path) -> anyhow::Result<()> {
        let part = self.file.with_extension("part");
        let output = File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
        let input =
            File::open(&self.source).with_context(|| format!("cannot read {}", self.source.display()))?;
        let encoded = Command::new("nice")
            .args(["-n", "19"])
            .arg(build(folder)?)
            .args(
                [u32::from(SPATIAL_LAYERS), u32::from(TEMPORAL_LAYERS), recipe.kbits, recipe.key_interval]
                    .map(|number| number.to_string()),
            )
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::piped())
            .output()
            .context("cannot run the encoder")?;
        let said = String::from_utf8_lossy(&encoded.stderr);
        ensure!(encoded.status.success(), "cannot encode {}: {}", recipe.name, said.trim());
        std::fs::rename(&part, &self.file).with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Decodes each number of spatial layers alone: without the layers above, every picture is there.
    fn decode(&self) -> anyhow::Result<()> {
        let video = self.read()?;
        for spatial in 1..=SPATIAL_LAYERS {
            let stream = self.file.with_extension("ivf");
            ivf::write(&stream, &video, &vec![spatial; video.pictures()])?;
            let hashes = ivf::hashes(&stream)?;
            ensure!(
                hashes.len() == video.pictures(),
                "libvpx decodes {} of {} pictures of {spatial} layers",
                hashes.len(),
                video.pictures()
            );
            let lines: Vec<&str> = hashes.values().map(String::as_str).collect();
            std::fs::write(self.hashes(spatial), lines.join("\n")).context("cannot write hashes")?;
            // It is made again where it is needed.
            let _ = std::fs::remove_file(stream);
        }
        Ok(())
    }
}

const SOURCE: &str = include_str!("../../video/scalable.c");
const ENCODER: &str = "scalable";

/// Compiles the encoder, which uses the C interface of libvpx: ffmpeg has no option for spatial layers.
fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::write(folder.join("scalable.c"), SOURCE).context("cannot write scalable.c")?;
    let built = Command::new("cc")
        .current_dir(folder)
        .args(["-O2", "-Wall", "-Wextra", "-o", ENCODER, "scalable.c", "-lvpx"])
        .output()
        .context("cannot run the C compiler cc")?;
    ensure!(
        built.status.success(),
        "cannot build the encoder; on Debian: apt-get install gcc libc6-dev libvpx-dev\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    folder.join(ENCODER).canonicalize().context("cannot find the encoder")
}
