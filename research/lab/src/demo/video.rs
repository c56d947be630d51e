//! The live stream: encoded once before the run, then emitted access unit by access unit as a camera would.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use freshwire_media::h264::AccessUnits;

use crate::ffmpeg;

/// Frames per second.
pub(super) const FPS: u32 = 25;
/// The encoder's mean rate.
const RATE_KBIT: u32 = 1000;
/// From one key frame to the next: two seconds, the longest that a viewer who lost the chain waits.
const KEY_FRAMES: u32 = 50;

/// One access unit, in decoding order.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) bytes: Vec<u8>,
    /// 0 for I, 1 for P, 2 for a reference B, 3 for a b that nothing depends on.
    pub(super) layer: u8,
    pub(super) group: u32,
    /// Distances back in decoding order to the units it depends on; 0 is none.
    pub(super) refs: [u32; 2],
    /// Its number in display order, from 0: the camera's frame.
    pub(super) frame: usize,
}

/// A stream with constant frame rate.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// In decoding order.
    pub(super) units: Vec<Unit>,
    /// Access units from capture to emission at most: the frames that the encoder looks ahead.
    pub(super) lookahead: usize,
    /// Frames that a decoder holds back to put them in order.
    pub(super) reorder: usize,
}

impl Stream {
    /// Reads an Annex B byte stream.
    pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut splitter = AccessUnits::default();
        splitter.push(bytes);
        splitter.finish();
        let parsed = splitter.collect::<Result<Vec<_>, _>>()?;
        let mut order: Vec<usize> = (0..parsed.len()).collect();
        order.sort_by_key(|&at| parsed[at].display);
        let mut frames = vec![0; parsed.len()];
        for (frame, &at) in order.iter().enumerate() {
            frames[at] = frame;
        }
        let units = parsed.into_iter().zip(frames).map(|(unit, frame)| Unit {
            bytes: unit.bytes,
            layer: unit.layer,
            group: unit.group,
            refs: unit.refs,
            frame,
        });
        Ok(Self::new(units.collect()))
    }

    /// A stream of these units.
    pub(super) fn new(units: Vec<Unit>) -> Self {
        let ahead = units.iter().enumerate().map(|(at, unit)| unit.frame.saturating_sub(at));
        let lookahead = ahead.max().unwrap_or(0);
        Self { reorder: reorder_depth(&units), lookahead, units }
    }

    /// When the camera captures a frame, since the start.
    pub(super) fn captured(&self, frame: usize) -> Duration {
        interval() * frame as u32
    }

    /// When the encoder hands out a unit, since the start.
    pub(super) fn emitted(&self, unit: usize) -> Duration {
        interval() * (unit + self.lookahead) as u32
    }

    /// How many frames there are.
    pub(super) fn frames(&self) -> usize {
        self.units.len()
    }

    /// From the first capture to the end of the last frame.
    pub(super) fn duration(&self) -> Duration {
        interval() * self.units.len() as u32
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.units.iter().map(|unit| unit.bytes.len() as u64).sum()
    }
}

/// From one frame to the next.
pub(super) const fn interval() -> Duration {
    Duration::from_nanos(1_000_000_000 / FPS as u64)
}

/// How many units come, in decoding order, before one that is displayed before them.
fn reorder_depth(units: &[Unit]) -> usize {
    let overtaken = units.iter().enumerate().map(|(at, unit)| {
        units[at.saturating_sub(REORDER_WINDOW)..at].iter().filter(|before| before.frame > unit.frame).count()
    });
    overtaken.max().unwrap_or(0)
}

/// H.264 allows at most 16 frames to be reordered.
const REORDER_WINDOW: usize = 16;

/// Encodes the generated pictures, or the user's file, unless the folder has that stream already. Returns where it is.
pub(super) fn encode(video: Option<&Path>, duration: Duration, out: &Path) -> anyhow::Result<PathBuf> {
    ffmpeg::check()?;
    let frames = (duration.as_secs_f64() * f64::from(FPS)).round() as u32;
    let recipe = Recipe::new(video, frames)?;
    let path = out.join("video.h264");
    let note = out.join("video.txt");
    if path.exists() && std::fs::read_to_string(&note).is_ok_and(|text| text == recipe.note) {
        return Ok(path);
    }
    // A folder with an interrupted encoding has no note, so the stream is made again.
    let _ = std::fs::remove_file(&note);
    let part = out.join("video.h264.part");
    ffmpeg::run(ffmpeg::command().args(&recipe.arguments).arg(ffmpeg::file(&part)), "encode the video")?;
    std::fs::rename(&part, &path).with_context(|| format!("cannot write {}", path.display()))?;
    std::fs::write(&note, &recipe.note).with_context(|| format!("cannot write {}", note.display()))?;
    Ok(path)
}

/// Reads an encoded stream.
pub(super) fn read(path: &Path) -> anyhow::Result<Stream> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let stream = Stream::parse(&bytes).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(stream.frames() > FPS as usize, "{} holds less than a second of video", path.display());
    Ok(stream)
}

/// The arguments of ffmpeg.
struct Recipe {
    arguments: Vec<std::ffi::OsString>,
    /// Tells one stream from another.
    note: String,
}

impl Recipe {
    fn new(video: Option<&Path>, frames: u32) -> anyhow::Result<Self> {
        let mut arguments: Vec<std::ffi::OsString> = vec!["-y".into()];
        let mut identity = String::from("generated");
        match video {
            None => arguments.extend(["-filter_complex".into(), scene().into()]),
            Some(path) => {
                let about =
                    std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
                if !about.is_file() {
                    bail!("{} is not a file", path.display());
                }
                identity = format!("{} {} {:?}", path.display(), about.len(), about.modified().ok());
                arguments.extend(["-stream_loop".into(), "-1".into(), "-i".into()]);
                arguments.push(ffmpeg::file(path).as_ref().to_owned());
                arguments.extend(["-filter_complex".into(), fit().into()]);
            }
        }
        let ladder = format!(
            "bframes=3:b-adapt=0:b-pyramid=strict:scenecut=0:open-gop=0:keyint={KEY_FRAMES}:min-keyint={KEY_FRAMES}:\
             ref=2:weightp=0:mbtree=0:rc-lookahead=20:repeat-headers=1:aud=1:vbv-maxrate={}:vbv-bufsize={}:{QUANTISERS}",
            RATE_KBIT * 11 / 10,
            RATE_KBIT * 3 / 10
        );
        let encoder = format!(
            "-map [v] -frames:v {frames} -an -c:v libx264 -preset veryfast -profile:v high -pix_fmt yuv420p \
             -b:v {RATE_KBIT}k -x264-params {ladder} -f h264"
        );
        arguments.extend(encoder.split(' ').map(Into::into));
        let note = format!("{identity}\n{arguments:?}\n");
        Ok(Self { arguments, note })
    }
}

/// A camera that pans over a fractal, a drifting window of life, and the camera's clock. The clock is testsrc2's, which
/// needs no font.
fn scene() -> String {
    format!(
        "mandelbrot=s=2560x1440:rate={FPS}:start_scale=0.03:end_scale=0.03:maxiter=300,gblur=1.2,format=yuv420p,\
         trim=end_frame=1,loop=loop=-1:size=1:start=0,settb=1/{FPS},setpts=N,\
         crop=1280:720:x='640+600*sin(t*0.25)':y='360+340*sin(t*0.19)'[ground];\
         life=s=240x136:rate={FPS}:seed=7:ratio=0.3:mold=20:life_color=#ffd030:mold_color=#103060:death_color=#000000,\
         scale=480:272:flags=neighbor,format=yuv420p[life];\
         testsrc2=s=1280x720:rate={FPS},crop=104:40:0:0,scale=416:160:flags=neighbor,format=yuv420p[clock];\
         [ground][life]overlay=x='(W-w)/2+280*sin(t)':y='(H-h)/2+150*cos(t*1.3)'[both];\
         [both][clock]overlay=20:20[v]"
    )
}

/// The user's pictures at our size and pace, with black bars where the shape differs.
fn fit() -> String {
    format!(
        "[0:v:0]fps={FPS},scale=1280:720:force_original_aspect_ratio=decrease,pad=1280:720:(ow-iw)/2:(oh-ih)/2,\
         setsar=1,format=yuv420p[v]"
    )
}

/// Frames of all kinds about equally fine: then leaving some out saves the bytes that one would expect.
const QUANTISERS: &str = "ipratio=1.1:pbratio=1.0";

#[cfg(test)]
pub(super) mod tests;
