//! Smaller renditions of a stream, which ffmpeg makes of its pictures while somebody views it.
//!
//! ```text
//!  hub::Stream, main ──► Tap ──MPEG-TS──► ffmpeg ──MPEG-TS, a socket for each rung──► demux ──► hub, renditions
//! ```
//!
//! The times of the pictures go through ffmpeg as they are, so the renditions share the clock of the stream.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::framing::Framer as _;
use freshwire_media::framing::ts::Ts;
use freshwire_media::unit::{Catalog, Kind, MediaTime, Tracks, UnitHead};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::error::{FIRST_PAUSE, LONGEST_PAUSE, SourceError};
use super::outlet::Outlet;
use super::program;
use crate::config::{Encoder, Rung};
use crate::hub::{Publisher, Stream, TapSink};

/// How often to look whether somebody views.
const LOOK: Duration = Duration::from_millis(100);

/// Encoding goes on for this long after the last viewer, who may come back.
const LINGER: Duration = Duration::from_secs(5);

/// An encoder hangs if it gets pictures but produces none of a rung for this long. The limit is just less
/// than three of its keyframe intervals ([`output_arguments`]), so the encoder is ended within them.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The same before its first picture: opening a graphics processor takes seconds, and so does the start of ffmpeg on a busy machine.
const PATIENCE_AT_START: Duration = Duration::from_secs(10);

/// A source whose pictures are further apart pauses as far as the encoder is concerned.
const BETWEEN_PICTURES: Duration = Duration::from_secs(1);

/// Pictures that wait for ffmpeg; one that does not keep up gets no more until the next keyframe.
const WAITING: usize = 64;

/// The renditions that ffmpeg makes of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Their sizes and rates.
    pub rungs: Vec<Rung>,
    /// Their encoder; `None` for libx264 or libx265, as the stream is H.264 or H.265.
    pub encoder: Option<Encoder>,
}

impl From<Vec<Rung>> for Ladder {
    fn from(rungs: Vec<Rung>) -> Self {
        Self { rungs, encoder: None }
    }
}

/// Makes renditions of the stream's main one while somebody views it, until the caller drops the future. An encoder
/// that ends or hangs is restarted, after a growing pause.
pub async fn run(stream: Arc<Stream>, ladder: impl Into<Ladder>) {
    let ladder = ladder.into();
    for rung in &ladder.rungs {
        if let Err(error) = stream.expect_rendition(&rung.name()) {
            warn!(stream = stream.name(), rendition = rung.name(), %error, "the ladder has to wait for a place");
        }
    }
    // An encoder that this machine lacks is reported before somebody views.
    if let Some(encoder) = &ladder.encoder
        && let Err(error) = encoder.check().await
    {
        warn!(stream = stream.name(), %error, "the ladder cannot be made");
    }
    let mut pause = FIRST_PAUSE;
    loop {
        while stream.choosing_viewers() == 0 {
            tokio::time::sleep(LOOK).await;
        }
        let began = Instant::now();
        info!(stream = stream.name(), rungs = ladder.rungs.len(), "encodes renditions");
        let result = tokio::select! {
            result = encode(&stream, &ladder) => result,
            () = nobody(&stream) => {
                info!(stream = stream.name(), "encodes no more: nobody views");
                continue;
            }
        };
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        stream.count_encoder_failure(matches!(result, Err(SourceError::Hangs { .. })));
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

impl TapSink for Tap {
    fn send(&mut self, head: &UnitHead, bytes: &[u8]) -> bool {
        let Self(pictures, is_whole) = self;
        if head.kind == Kind::Video && (head.key || *is_whole) {
            *is_whole = pictures.try_send((head.clone(), bytes.to_vec())).is_ok();
        }
        !pictures.is_closed()
    }
}

async fn encode(stream: &Arc<Stream>, ladder: &Ladder) -> Result<(), SourceError> {
    let rungs = &ladder.rungs;
    // Before pictures wait for it: what waits is old when viewers get it.
    if let Some(encoder) = &ladder.encoder {
        encoder.check().await?;
    }
    let (tap, mut pictures) = mpsc::channel(WAITING);
    stream.tap(Box::new(Tap(tap, false)));
    let Some((head, bytes)) = pictures.recv().await else { return Ok(()) };
    let mut feed = Feed::new(&head)?;
    let encoder = feed.encoder(ladder.encoder.as_ref())?;
    let folder = Folder::new().map_err(failed)?;
    let mut command = program::command();
    command.args(encoder.device_arguments()).args(input_arguments()).stdin(Stdio::piped());
    command.args(["-filter_complex", &filter(rungs, &encoder)]);
    let mut sockets = Vec::new();
    for (number, rung) in rungs.iter().enumerate() {
        let path = folder.0.join(number.to_string());
        sockets.push(UnixListener::bind(&path).map_err(failed)?);
        command.args(output_arguments(number, rung, &encoder, &path));
    }
    // Dropping it ends it, and so does each way out of this function.
    let mut child = program::start(command)?;
    let (Some(mut input), Some(errors)) = (child.stdin.take(), child.stderr.take()) else {
        return Ok(());
    };
    let progress = Progress::new(rungs.len());
    let mut readers = JoinSet::new();
    for (number, (socket, rung)) in sockets.into_iter().zip(rungs).enumerate() {
        let outlet = Outlet::rendition(Arc::clone(stream), &rung.name());
        let (origin, progress) = (feed.origin, Arc::clone(&progress));
        let pictures = move || progress.came(number);
        readers.spawn(async move { read(socket, outlet, origin, pictures).await });
    }
    let write = async {
        let mut next = Some((head, bytes));
        while let Some((head, bytes)) = next {
            progress.set_writing(true);
            feed.write(head, &bytes, &mut input).await?;
            progress.set_writing(false);
            next = pictures.recv().await;
        }
        Ok::<(), std::io::Error>(())
    };
    let (mut said, mut message) = (std::pin::pin!(program::listen(errors)), None);
    let result = tokio::select! {
        written = write => written.map_err(failed),
        Some(read) = readers.join_next() => read.unwrap_or(Ok(())),
        text = &mut said => {
            message = Some(text);
            Ok(())
        }
        number = progress.hang() => Err(SourceError::Hangs {
            program: program::FFMPEG,
            what: rungs.get(number).map(Rung::name).unwrap_or_default(),
        }),
    };
    if message.is_none() && !matches!(result, Err(SourceError::Hangs { .. })) {
        // It has closed its input or an output, and says why.
        message = tokio::time::timeout(Duration::from_secs(1), said).await.ok();
    }
    let Some(message) = message.filter(|message| !message.is_empty()) else { return result };
    // That it lacks the encoder says more than its words.
    encoder.check().await?;
    Err(SourceError::Failed { program: program::FFMPEG, message })
}

/// Input and output of an encoder, to detect one that hangs. A source that pauses is none: then it gets nothing.
struct Progress {
    writes: AtomicBool,
    /// Pictures that it got.
    written: AtomicU64,
    /// Pictures that it gave, by rung.
    came: Vec<AtomicU64>,
}

impl Progress {
    fn new(rungs: usize) -> Arc<Self> {
        let came = (0..rungs).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { writes: AtomicBool::new(false), written: AtomicU64::new(0), came })
    }

    fn set_writing(&self, writes: bool) {
        self.writes.store(writes, Ordering::Relaxed);
        self.written.fetch_add(u64::from(!writes), Ordering::Relaxed);
    }

    fn came(&self, rung: usize) {
        if let Some(came) = self.came.get(rung) {
            came.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a rung that got no picture for [`PATIENCE`] although the encoder got some, or does not take what it should get.
    async fn hang(&self) -> usize {
        let mut silences = vec![Silence::default(); self.came.len()];
        let (mut written, mut idle) = (0, Duration::ZERO);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.written.load(Ordering::Relaxed);
            let gets = self.writes.load(Ordering::Relaxed) || now != written;
            (written, idle) = (now, if gets { Duration::ZERO } else { idle + LOOK });
            for (rung, (silence, came)) in silences.iter_mut().zip(&self.came).enumerate() {
                if silence.hangs(came.load(Ordering::Relaxed), idle < BETWEEN_PICTURES) {
                    return rung;
                }
            }
        }
    }
}

/// For how long a rung has had no picture. Counted in looks: while this process is stopped or starved, so is the encoder.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    came: u64,
    lasts: Duration,
}

impl Silence {
    /// Whether it is too long by now. `is_fed`: the encoder has something to encode.
    fn hangs(&mut self, came: u64, is_fed: bool) -> bool {
        if came != self.came {
            *self = Self { came, lasts: Duration::ZERO };
        } else if is_fed {
            self.lasts += LOOK;
        }
        self.lasts >= if came == 0 { PATIENCE_AT_START } else { PATIENCE }
    }
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

    /// The encoder for the codec of the stream: its renditions are of one.
    fn encoder(&self, named: Option<&Encoder>) -> Result<Encoder, SourceError> {
        let codec = self.tracks.0.video.as_ref().map(|video| &video.codec);
        let default = codec.and_then(Encoder::default_for);
        let (Some(codec), Some(default)) = (codec, default) else {
            return Err(SourceError::NothingToCarry(
                "a ladder, which is made of H.264 or H.265: this stream".into(),
            ));
        };
        let encoder = named.cloned().unwrap_or(default);
        encoder.check_codec(codec).map(|()| encoder)
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

/// Publishes what ffmpeg writes to the socket. `came` is called for each picture.
async fn read(
    socket: UnixListener,
    outlet: Outlet,
    origin: MediaTime,
    came: impl Fn(),
) -> Result<(), SourceError> {
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
                    came();
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
        // Microseconds. 0 is ffmpeg's default of 5 s or more, which a quiet picture takes to fill the probe.
        "-analyzeduration",
        "1",
        "-copyts",
        "-f",
        "mpegts",
        "-i",
        "pipe:0",
        "-an",
        "-sn",
    ]
}

fn filter(rungs: &[Rung], encoder: &Encoder) -> String {
    let labels: String = (0..rungs.len()).map(|number| format!("[s{number}]")).collect();
    let scales = rungs.iter().enumerate().map(|(number, rung)| {
        let Rung { width, height, .. } = rung;
        format!(
            ";[s{number}]scale={width}:{height}:force_original_aspect_ratio=decrease:force_divisible_by=2,\
             {}[v{number}]",
            encoder.filter()
        )
    });
    format!("[0:v]split={}{labels}{}", rungs.len(), scales.collect::<String>())
}

/// A keyframe a second, of which none is larger than what passes in less than half a second.
fn output_arguments(number: usize, rung: &Rung, encoder: &Encoder, socket: &Path) -> Vec<String> {
    let rate = rung.rate.bits_per_sec();
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
    arguments.extend(encoder.arguments().into_iter().chain(keys).map(str::to_owned));
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
        // Only empty sockets of ours are left in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many looks it takes until an encoder hangs that gets pictures at these looks and gives them at those.
    fn looks(gets: impl Fn(u32) -> bool, gives: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut silence, mut came) = (Silence::default(), 0);
        (0..1000).find(|&look| {
            came += u64::from(gives(look));
            silence.hangs(came, gets(look))
        })
    }

    #[test]
    fn an_encoder_hangs_that_gets_pictures_and_gives_none() {
        let second = 10;
        // It stops after 5 s, and its end is due within three keyframe intervals.
        let stops = looks(|_| true, |look| look < 5 * second).expect("it is noticed");
        assert!(stops < 8 * second, "{stops}");
        assert_eq!(looks(|_| true, |look| look % 24 == 0), None, "a picture each 2.4 s");
        assert!((9 * second..=10 * second).contains(&looks(|_| true, |_| false).expect("it is noticed")));
        assert_eq!(looks(|look| look < 5 * second, |look| look < 5 * second), None, "the source pauses");
        // A picture that waits in the encoder through a pause is none that it owes.
        let goes_on = |look: u32| !(50..900).contains(&look);
        assert_eq!(looks(|look| !(59..900).contains(&look), goes_on), None);
    }
}
