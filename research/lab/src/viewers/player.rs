//! The players that look at a server across the link: two that nobody changed, and a probe that sees access units.

use std::io::BufReader;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anyhow::Context as _;
use freshwire_netns::Namespaces;
use freshwire_record::Timestamp;
use serde::{Deserialize, Serialize};

use super::clip::{self, CODE_ROWS, CODE_SIZE, HEIGHT, WIDTH};
use super::server::{self, Server};
use crate::child::ChildGuard;

/// Complaints whose text is kept; the others are counted.
const KEPT_COMPLAINTS: usize = 20;

/// The buffer in which a player gets a lost packet again at a round trip of 160 ms, twice over.
const BUFFER_MS: u32 = 500;

/// A viewer's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Player {
    /// ffmpeg, RTSP over TCP.
    Ffmpeg,
    /// GStreamer's rtspsrc, RTSP over TCP.
    Gstreamer,
    /// ffmpeg, RTP over UDP.
    FfmpegUdp,
    /// GStreamer's rtspsrc, RTP over UDP.
    GstreamerUdp,
    /// The same with a buffer of 500 ms.
    GstreamerBuffered,
    /// The same with a buffer of 500 ms, and lost packets are sent again.
    GstreamerRepaired,
    /// Our own reader: when each access unit is whole, and whether it is as it was encoded.
    Probe,
}

impl Player {
    /// Its name for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Ffmpeg => "ffmpeg",
            Self::Gstreamer => "GStreamer",
            Self::FfmpegUdp => "ffmpeg, UDP",
            Self::GstreamerUdp => "GStreamer, UDP",
            Self::GstreamerBuffered => "GStreamer, UDP, 500 ms",
            Self::GstreamerRepaired => "GStreamer, UDP, 500 ms, repaired",
            Self::Probe => "probe",
        }
    }
}

/// The pictures that were seen.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// When each picture was there, and its number; in order of arrival.
    pub(crate) seen: Vec<(Timestamp, u32)>,
    /// Pictures whose number could not be read, or access units that are not as they were encoded.
    pub(crate) damaged: u64,
    /// When the player complained.
    pub(super) complaints: Vec<Timestamp>,
    /// The words of the first complaints.
    pub(super) words: Vec<String>,
}

/// A player at work, as its own process. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: ChildGuard,
    pictures: Option<JoinHandle<Sight>>,
    complaints: Option<JoinHandle<(Vec<Timestamp>, Vec<String>)>>,
}

impl Running {
    /// Starts an unmodified player in the far namespace.
    pub(super) fn start(player: Player, server: Server, namespaces: &Namespaces) -> anyhow::Result<Self> {
        let mut command = match player {
            Player::Gstreamer => gstreamer(&server::url(), "tcp", 0),
            Player::GstreamerUdp => gstreamer(&server::url(), "udp", 0),
            Player::GstreamerBuffered => gstreamer(&server::url(), "udp", BUFFER_MS),
            Player::GstreamerRepaired => gstreamer(&server.repaired_url(), "udp", BUFFER_MS),
            Player::FfmpegUdp => ffmpeg("udp"),
            Player::Ffmpeg | Player::Probe => ffmpeg("tcp"),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = namespaces
            .spawn_far(&mut command)
            .with_context(|| format!("cannot start the player {}", player.label()))?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let pictures = output.map(|output| std::thread::spawn(move || watch(output)));
        let complaints = errors.map(|errors| std::thread::spawn(move || listen(BufReader::new(errors))));
        Ok(Self { child: ChildGuard(child), pictures, complaints })
    }

    /// Ends it; what it had shown by then.
    pub(super) fn stop(mut self) -> Sight {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let mut sight = self.pictures.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let complaints = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        (sight.complaints, sight.words) = complaints;
        sight
    }
}

/// Shows nothing, so the number's rows are all that it has to give.
fn ffmpeg(transport: &str) -> Command {
    let mut command = Command::new("ffmpeg");
    let (width, height) = CODE_SIZE;
    // The session's description makes probing needless.
    let words = format!(
        "-hide_banner -nostdin -loglevel repeat+level+warning -threads 1 -rtsp_transport {transport} -fflags nobuffer \
         -flags low_delay -probesize 32 -analyzeduration 0 -fpsprobesize 0 -i {} -an \
         -vf crop={WIDTH}:{CODE_ROWS}:0:0,scale={width}:{height}:flags=area,format=gray \
         -fps_mode passthrough -f rawvideo -flush_packets 1 pipe:1",
        server::url()
    );
    command.args(words.split(' '));
    command
}

fn gstreamer(url: &str, transport: &str, latency_ms: u32) -> Command {
    let mut command = Command::new("gst-launch-1.0");
    command
        .env("GST_DEBUG_NO_COLOR", "1")
        .env("GST_DEBUG", "libav:2,rtph264depay:2,videodecoder:1,h264parse:2");
    let (width, height) = CODE_SIZE;
    let pipeline = format!(
        "-q rtspsrc location={url} latency={latency_ms} protocols={transport} ! rtph264depay ! avdec_h264 max-threads=1 \
         ! videocrop bottom={} ! videoscale ! videoconvert ! video/x-raw,format=GRAY8,width={width},height={height} \
         ! fdsink fd=1 sync=false",
        HEIGHT - CODE_ROWS
    );
    command.args(pipeline.split_whitespace());
    command
}

fn watch(mut output: impl std::io::Read) -> Sight {
    let (width, height) = CODE_SIZE;
    let mut luma = vec![0; width * height];
    let mut sight = Sight::default();
    while output.read_exact(&mut luma).is_ok() {
        match clip::number(&luma) {
            Some(number) => sight.seen.push((freshwire_io::now(), number)),
            None => sight.damaged += 1,
        }
    }
    sight
}

fn listen(errors: impl std::io::BufRead) -> (Vec<Timestamp>, Vec<String>) {
    let (mut times, mut words) = (Vec::new(), Vec::new());
    for line in errors.lines().map_while(Result::ok).filter(|line| is_complaint(line)) {
        times.push(freshwire_io::now());
        if words.len() < KEPT_COMPLAINTS {
            words.push(line);
        }
    }
    (times, words)
}

/// Lines of ffmpeg and of GStreamer that tell of an error or a warning of the decoder or of what feeds it.
fn is_complaint(line: &str) -> bool {
    ["[error]", "[fatal]", "[warning]", " ERROR ", " WARN ", "ERROR: "].iter().any(|mark| line.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_distinguished_from_other_output() {
        let text = "Input #0, rtsp\n[h264 @ 0x1] [error] mmco: unref short failure\n\
                    0:00:01 1 0x2 WARN libav :0:: x\nProgress: (request) Sent PLAY request\n";
        let (times, words) = listen(text.as_bytes());
        assert_eq!((times.len(), words.len()), (2, 2));
    }

    #[test]
    fn whole_pictures_are_counted_and_a_torn_end_is_not() {
        let sight = watch(&[0u8; 300][..]);
        assert_eq!((sight.seen.len(), sight.damaged), (0, 2));
    }
}
