//! Smaller renditions of a stream, which ffmpeg makes of its pictures while somebody views it.
//!
//! ```text
//!  hub::Stream, main ──► Tap ──MPEG-TS──► ffmpeg ──MPEG-TS, a socket for each rung──► demux ──► hub, renditions
//! ```
//!
//! The times of the pictures go through ffmpeg as they are, so the renditions share the clock of the stream.

use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::framing::Framer as _;
use freshwire_media::framing::ts::Ts;
use freshwire_media::unit::{Catalog, Kind, MediaTime, Tracks, UnitHead, VideoCodec};
use freshwire_units::Rate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::error::{FIRST_PAUSE, LONGEST_PAUSE, SourceError};
use super::outlet::Outlet;
use super::program;
use crate::hub::{Publisher, Stream, Tapping};

/// How often to look whether somebody views.
const LOOK: Duration = Duration::from_millis(100);

/// Encoding goes on for this long after the last viewer, who may come back.
const LINGER: Duration = Duration::from_secs(5);

/// Pictures that wait for ffmpeg; one that does not keep up gets no more until the next keyframe.
const WAITING: usize = 64;

/// The size and rate of pictures that ffmpeg makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Largest width of a picture in samples; the stream's proportions stay.
    pub width: u32,
    /// Largest height of a picture in samples.
    pub height: u32,
    /// Bits a second.
    pub rate: Rate,
}

impl Rung {
    /// The rendition's name: `360p`.
    pub fn name(&self) -> String {
        format!("{}p", self.height)
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}bit", self.width, self.height, self.rate.bits_per_sec())
    }
}

/// A text that is no rung of a ladder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rung of a ladder; write WIDTHxHEIGHT@RATE such as 640x360@400k, at least 64x64@20k")]
pub struct RungError(String);

impl FromStr for Rung {
    type Err = RungError;

    fn from_str(text: &str) -> Result<Self, RungError> {
        let read = || {
            let (size, rate) = text.split_once('@')?;
            let (width, height) = size.split_once('x')?;
            let rate = if rate.ends_with(['k', 'M', 'G']) { format!("{rate}bit") } else { rate.to_owned() };
            let (width, height, rate) = (width.parse().ok()?, height.parse().ok()?, rate.parse().ok()?);
            Some(Self { width, height, rate })
        };
        let sizes = 64..=8192;
        let is_possible = |rung: &Self| {
            let bits = rung.rate.bits_per_sec();
            sizes.contains(&rung.width)
                && sizes.contains(&rung.height)
                && (20_000..=1_000_000_000).contains(&bits)
        };
        read().filter(is_possible).ok_or_else(|| RungError(text.chars().take(64).collect()))
    }
}

/// Makes renditions of the stream's main one while somebody views it, until the caller drops the future. An encoder
/// that ends is restarted, after a growing pause.
pub async fn run(stream: Arc<Stream>, rungs: Vec<Rung>) {
    for rung in &rungs {
        if let Err(error) = stream.expect_rendition(&rung.name()) {
            return warn!(stream = stream.name(), rendition = rung.name(), %error, "no ladder is made");
        }
    }
    let mut pause = FIRST_PAUSE;
    loop {
        while stream.choosing_viewers() == 0 {
            tokio::time::sleep(LOOK).await;
        }
        let began = Instant::now();
        info!(stream = stream.name(), rungs = rungs.len(), "encodes renditions");
        let result = tokio::select! {
            result = encode(&stream, &rungs) => result,
            () = nobody(&stream) => {
                info!(stream = stream.name(), "encodes no more: nobody views");
                continue;
            }
        };
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        match result {
            Ok(()) => warn!(stream = stream.name(), again_in = ?pause, "the encoder of renditions has ended"),
            Err(error) => {
                warn!(stream = stream.name(), %error, again_in = ?pause, "renditions cannot be encoded");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns when nobody has viewed for some time.
async fn nobody(stream: &Stream) {
    let mut since = Instant::now();
    while since.elapsed() < LINGER {
        tokio::time::sleep(LOOK).await;
        if stream.choosing_viewers() > 0 {
            since = Instant::now();
        }
    }
}

/// Hands pictures over to the task that feeds ffmpeg.
struct Tap(mpsc::Sender<(UnitHead, Vec<u8>)>, bool);

impl Tapping for Tap {
    fn send(&mut self, head: &UnitHead, bytes: &[u8]) -> bool {
        let Self(pictures, is_whole) = self;
        if head.kind == Kind::Video && (head.key || *is_whole) {
            *is_whole = pictures.try_send((head.clone(), bytes.to_vec())).is_ok();
        }
        !pictures.is_closed()
    }
}

async fn encode(stream: &Arc<Stream>, rungs: &[Rung]) -> Result<(), SourceError> {
    let (tap, mut pictures) = mpsc::channel(WAITING);
    stream.tap(Box::new(Tap(tap, false)));
    let Some((head, bytes)) = pictures.recv().await else { return Ok(()) };
    let mut feed = Feed::new(&head)?;
    let folder = Folder::new().map_err(failed)?;
    let encoder = feed.encoder()?;
    let mut command = program::command();
    command.args(input_arguments()).args(["-filter_complex", &filter(rungs)]).stdin(Stdio::piped());
    let mut sockets = Vec::new();
    for (number, rung) in rungs.iter().enumerate() {
        let path = folder.0.join(number.to_string());
        sockets.push(UnixListener::bind(&path).map_err(failed)?);
        command.args(output_arguments(number, rung, encoder, &path));
    }
    let mut child = program::start(command)?;
    let (Some(mut input), Some(mut errors)) = (child.stdin.take(), child.stderr.take()) else {
        return Ok(());
    };
    let mut readers = JoinSet::new();
    for (socket, rung) in sockets.into_iter().zip(rungs) {
        let outlet = Outlet::rendition(Arc::clone(stream), &rung.name());
        let origin = feed.origin;
        readers.spawn(async move { read(socket, outlet, origin).await });
    }
    let write = async {
        feed.write(head, &bytes, &mut input).await?;
        while let Some((head, bytes)) = pictures.recv().await {
            feed.write(head, &bytes, &mut input).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let mut message = String::new();
    let result = tokio::select! {
        written = write => written.map_err(failed),
        Some(read) = readers.join_next() => read.unwrap_or(Ok(())),
        _ = errors.read_to_string(&mut message) => Ok(()),
    };
    // It has closed its input or an output, and says why.
    let _ = tokio::time::timeout(Duration::from_secs(1), errors.read_to_string(&mut message)).await;
    if !message.trim().is_empty() {
        return Err(SourceError::Failed { program: program::FFMPEG, message: message.trim().to_owned() });
    }
    result
}

fn failed(error: std::io::Error) -> SourceError {
    SourceError::Read { what: "a rendition".to_owned(), error }
}

/// Writes the pictures that ffmpeg gets.
struct Feed {
    catalog: Arc<Catalog>,
    framer: Ts,
    /// The tracks as they came, and without sound.
    tracks: (Arc<Tracks>, Arc<Tracks>),
    number: u64,
    /// The time that is 0 in the transport stream.
    origin: MediaTime,
    out: Vec<u8>,
}

impl Feed {
    fn new(first: &UnitHead) -> Result<Self, SourceError> {
        let tracks = (Arc::clone(&first.tracks), without_sound(&first.tracks));
        let catalog = Arc::new(Catalog::new(4));
        let framer =
            Ts::new(Arc::clone(&catalog), Arc::clone(&tracks.1)).map_err(|error| SourceError::Failed {
                program: program::FFMPEG,
                message: format!("no ladder of this stream: {error}"),
            })?;
        let origin = Ts::origin_of(first);
        Ok(Self { catalog, framer, tracks, number: 0, origin, out: Vec::new() })
    }

    /// What encodes to the codec of the stream: its renditions are of one.
    fn encoder(&self) -> Result<&'static str, SourceError> {
        match self.tracks.0.video.as_ref().map(|video| &video.codec) {
            Some(VideoCodec::H264 { .. }) => Ok("libx264"),
            Some(VideoCodec::H265 { .. }) => Ok("libx265"),
            _ => Err(SourceError::NothingToCarry(
                "a ladder, which is made of H.264 or H.265: this stream".into(),
            )),
        }
    }

    async fn write(
        &mut self,
        mut head: UnitHead,
        bytes: &[u8],
        input: &mut ChildStdin,
    ) -> std::io::Result<()> {
        if !Arc::ptr_eq(&head.tracks, &self.tracks.0) {
            self.tracks = (Arc::clone(&head.tracks), without_sound(&head.tracks));
        }
        head.tracks = Arc::clone(&self.tracks.1);
        self.number += 1;
        let len = head.len;
        self.catalog.add(self.number, Arc::new(head));
        self.framer.begin(self.number, len);
        self.out.clear();
        while let Some(piece) = self.framer.next(usize::MAX, &mut self.out) {
            let payload = piece.payload.start as usize..piece.payload.end as usize;
            self.out.extend_from_slice(bytes.get(payload).unwrap_or_default());
            if piece.last {
                break;
            }
        }
        input.write_all(&self.out).await
    }
}

fn without_sound(tracks: &Tracks) -> Arc<Tracks> {
    Arc::new(Tracks { video: tracks.video.clone(), audio: None })
}

/// Publishes what ffmpeg writes to the socket.
async fn read(socket: UnixListener, outlet: Outlet, origin: MediaTime) -> Result<(), SourceError> {
    let (mut connection, _): (UnixStream, _) = socket.accept().await.map_err(failed)?;
    let mut publisher: Option<Publisher> = None;
    let mut demux = Demux::new(demux::Config::default());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = connection.read(&mut buffer).await.map_err(failed)?;
        if len == 0 {
            return Ok(());
        }
        demux.push(&buffer[..len]);
        for event in demux.by_ref() {
            let publisher = match &mut publisher {
                Some(publisher) => publisher,
                None => {
                    let mut new = outlet.publish("ladder", None).map_err(|error| {
                        let message = format!("{}: {error}", outlet.name());
                        SourceError::Failed { program: program::FFMPEG, message }
                    })?;
                    new.shares_clock();
                    publisher.insert(new)
                }
            };
            match event? {
                Event::Tracks(tracks) => publisher.tracks(tracks),
                Event::Unit(mut unit) => {
                    let moved = |time: MediaTime| {
                        MediaTime::from_nanos(time.as_nanos().saturating_add(origin.as_nanos()))
                    };
                    (unit.head.pts, unit.head.dts) = (moved(unit.head.pts), moved(unit.head.dts));
                    publisher.push(unit);
                }
            }
        }
    }
}

fn input_arguments() -> [&'static str; 15] {
    [
        "-fflags",
        "nobuffer",
        "-flags",
        "low_delay",
        "-probesize",
        "32768",
        "-analyzeduration",
        "0",
        "-copyts",
        "-f",
        "mpegts",
        "-i",
        "pipe:0",
        "-an",
        "-sn",
    ]
}

fn filter(rungs: &[Rung]) -> String {
    let labels: String = (0..rungs.len()).map(|number| format!("[s{number}]")).collect();
    let scales = rungs.iter().enumerate().map(|(number, rung)| {
        let Rung { width, height, .. } = rung;
        format!(
            ";[s{number}]scale={width}:{height}:force_original_aspect_ratio=decrease:force_divisible_by=2,\
             format=yuv420p[v{number}]"
        )
    });
    format!("[0:v]split={}{labels}{}", rungs.len(), scales.collect::<String>())
}

/// A keyframe a second, of which none is larger than what passes in less than half a second.
fn output_arguments(number: usize, rung: &Rung, encoder: &str, socket: &Path) -> Vec<String> {
    let rate = rung.rate.bits_per_sec();
    let quiet = match encoder {
        "libx265" => vec!["-x265-params", "log-level=error:bframes=0:repeat-headers=1"],
        _ => vec![],
    };
    let fixed =
        ["-c:v", encoder, "-preset", "veryfast", "-tune", "zerolatency", "-bf", "0", "-sc_threshold", "0"];
    let keys = ["-force_key_frames", "expr:if(isnan(prev_forced_t),1,gte(t,prev_forced_t+1))"];
    let container = [
        "-muxdelay",
        "0",
        "-muxpreload",
        "0",
        "-omit_video_pes_length",
        "0",
        "-flush_packets",
        "1",
        "-f",
        "mpegts",
    ];
    let mut arguments = vec!["-map".to_owned(), format!("[v{number}]")];
    arguments.extend(fixed.into_iter().chain(quiet).chain(keys).map(str::to_owned));
    for (option, bits) in [("-b:v", rate), ("-maxrate", rate), ("-bufsize", rate * 2 / 5)] {
        arguments.extend([option.to_owned(), bits.to_string()]);
    }
    arguments.extend(container.map(str::to_owned));
    arguments.push(format!("unix:{}", socket.display()));
    arguments
}

/// A folder that only we can look into; it goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let path = std::env::temp_dir().join(format!("freshwire-{:016x}", u64::from_ne_bytes(random)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is empty sockets of ours.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_read() {
        let rung: Rung = "640x360@400k".parse().unwrap();
        assert_eq!((rung.width, rung.height, rung.rate.bits_per_sec()), (640, 360, 400_000));
        assert_eq!((rung.name(), rung.to_string()), ("360p".to_owned(), "640x360@400000bit".to_owned()));
        assert_eq!("1280x720@1.5Mbit".parse::<Rung>().unwrap().rate.bits_per_sec(), 1_500_000);
        for wrong in ["", "640x360", "640@1M", "x@1M", "640x360@", "640x360@1", "640x9999999@1M", "1x1@1M"] {
            assert!(wrong.parse::<Rung>().is_err(), "{wrong}");
        }
    }
}
