//! The encoder's output, made once and handed over in real time, so that every subject sends the same pictures.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use freshwire_record::Timestamp;

use super::flv::{self, Tag};
use crate::ffmpeg;
use crate::output::say;
use crate::scenario::wait_until;

const FPS: u32 = 30;
/// From one key picture to the next: what OBS's wizard chooses, and platforms ask for.
pub(super) const KEY_INTERVAL: Duration = Duration::from_secs(2);
/// OBS's default (`ABitrate` in frontend/widgets/OBSBasic.cpp).
const SOUND_BPS: u32 = 160_000;

/// An H.264 and AAC stream as FLV tags.
#[derive(Debug)]
pub(super) struct Clip {
    /// What describes the coding, and goes first.
    heads: Vec<Tag>,
    media: Vec<Tag>,
    /// In the order of presentation.
    pictures: Vec<Picture>,
    sounds: usize,
    by_content: BTreeMap<Vec<u8>, Part>,
    by_look: BTreeMap<String, usize>,
    first_ms: u32,
    reorder_ms: u32,
}

/// What a message is of the clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The place in the order of presentation.
    Picture(usize),
    /// When its first sample was captured.
    Sound(Duration),
}

/// A picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// From the begin of the stream to its capture.
    pub(super) captured: Duration,
}

impl Clip {
    /// Encodes the stream if it is not in the folder, and decodes it, to know how its pictures look.
    pub(super) fn prepare(folder: &Path, length: Duration, rate_bps: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path: PathBuf = folder.join(format!("uplink-{}s-{rate_bps}.flv", length.as_secs()));
        if !path.exists() {
            say("uplink: encoding the stream, once");
            let unfinished = path.with_extension("part");
            encode(&unfinished, length, rate_bps)?;
            std::fs::rename(&unfinished, &path)
                .with_context(|| format!("cannot name the stream {}", path.display()))?;
        }
        let file = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let tags =
            flv::read(file).with_context(|| format!("{} is not the stream; remove it", path.display()))?;
        Self::of(tags, &looks(&path)?)
            .with_context(|| format!("{} is not the stream; remove it", path.display()))
    }

    /// The stream of these tags, whose pictures look like that, in the order of presentation.
    pub(super) fn of(tags: Vec<Tag>, looks: &[String]) -> anyhow::Result<Self> {
        let (heads, mut media): (Vec<Tag>, Vec<Tag>) = tags.into_iter().partition(Tag::is_head);
        // ffmpeg writes that the stream has ended.
        media.retain(|tag| tag.content().is_some());
        let first_ms = media.first().context("the stream is empty")?.dts_ms;
        let mut shown: Vec<(u32, usize)> = Vec::new();
        let mut sounds = 0;
        let mut reorder_ms = 0;
        let mut by_content = BTreeMap::new();
        for (place, tag) in media.iter().enumerate() {
            let since = tag.dts_ms - first_ms;
            if let Some(composition) = tag.composition_ms() {
                reorder_ms = reorder_ms.max(composition);
                shown.push((since + composition, place));
            } else {
                sounds += 1;
                by_content.insert(tag.content().unwrap_or_default(), Part::Sound(milliseconds(since)));
            }
        }
        shown.sort_unstable();
        let mut pictures = Vec::new();
        for (number, (at, place)) in shown.iter().enumerate() {
            by_content.insert(media[*place].content().unwrap_or_default(), Part::Picture(number));
            pictures.push(Picture { captured: milliseconds(*at) });
        }
        ensure!(by_content.len() == media.len(), "pictures or blocks of sound are equal");
        let by_look: BTreeMap<String, usize> = looks.iter().cloned().zip(0..).collect();
        ensure!(looks.len() == pictures.len(), "{} of {} pictures are decoded", looks.len(), pictures.len());
        ensure!(by_look.len() == looks.len(), "pictures look alike");
        Ok(Self { heads, media, pictures, sounds, by_content, by_look, first_ms, reorder_ms })
    }

    /// All pictures, in the order of presentation.
    pub(super) fn pictures(&self) -> &[Picture] {
        &self.pictures
    }

    /// What a message is of the clip; `None` for another's, or a damaged one.
    pub(super) fn identify(&self, tag: &Tag) -> Option<Part> {
        self.by_content.get(&tag.content()?).copied()
    }

    /// The picture that looks so, when it is decoded.
    pub(super) fn seen(&self, look: &str) -> Option<usize> {
        self.by_look.get(look).copied()
    }

    /// When each block of sound was captured, rising.
    pub(super) fn sounds(&self) -> Vec<Duration> {
        let sounds = self.by_content.values().filter_map(|part| match part {
            Part::Sound(captured) => Some(*captured),
            Part::Picture(_) => None,
        });
        let mut sounds: Vec<Duration> = sounds.collect();
        sounds.sort_unstable();
        debug_assert_eq!(sounds.len(), self.sounds);
        sounds
    }

    /// Hands the stream over, each part when an encoder without a delay of its own has it: no picture before its capture, `begin` being
    /// that of the first. Ends when `take` returns `false`; returns by how much the latest was late.
    pub(super) fn feed(&self, begin: Timestamp, mut take: impl FnMut(&Tag) -> bool) -> Duration {
        let mut worst = Duration::ZERO;
        if !self.heads.iter().all(&mut take) {
            return worst;
        }
        for tag in &self.media {
            let due = begin + milliseconds(self.reorder_ms + tag.dts_ms - self.first_ms);
            wait_until(due);
            worst = worst.max(freshwire_io::now().saturating_since(due));
            if !take(tag) {
                break;
            }
        }
        worst
    }
}

fn milliseconds(count: u32) -> Duration {
    Duration::from_millis(count.into())
}

/// How the pictures of a file look: a checksum of each that is decoded, in the order of presentation.
pub(super) fn looks(file: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = ffmpeg::command();
    command.arg("-i").arg(ffmpeg::file(file)).args([
        "-map",
        "0:v",
        "-fps_mode",
        "passthrough",
        "-f",
        "framemd5",
        "-",
    ]);
    // Damaged pictures make it complain, not fail.
    let text = ffmpeg::run(&mut command, "decode the stream")?;
    let text = String::from_utf8_lossy(&text);
    let sums = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit(',').next());
    Ok(sums.map(|sum| sum.trim().to_owned()).collect())
}

/// As OBS has x264 encode: its preset, a constant rate with filler, a buffer of a second, and x264's own B pictures
/// (plugins/obs-x264/obs-x264.c). The noise makes each picture and block of sound differ from all others.
fn encode(path: &Path, length: Duration, rate_bps: u64) -> anyhow::Result<()> {
    let mut command = ffmpeg::command();
    let picture = format!("testsrc2=size=1280x720:rate={FPS},noise=alls=4:allf=t:all_seed=1,format=yuv420p");
    let sound = "anoisesrc=color=pink:amplitude=0.3:sample_rate=48000:seed=1";
    command.args(["-y", "-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", sound]);
    let encoder = format!(
        "-t {} -c:v libx264 -preset veryfast -b:v {rate_bps} -maxrate {rate_bps} -bufsize {rate_bps} -x264-params \
         keyint={}:filler=1 -c:a aac -b:a {SOUND_BPS} -ac 2 -f flv",
        length.as_secs(),
        KEY_INTERVAL.as_secs() * u64::from(FPS),
    );
    ffmpeg::run(command.args(encoder.split(' ')).arg(ffmpeg::file(path)), "encode the stream")?;
    Ok(())
}

/// Writes a file of what arrived.
pub(super) fn write(path: &Path, tags: &[&Tag]) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    file.write_all(&flv::write(tags.iter().copied()))
        .with_context(|| format!("cannot write {}", path.display()))
}
