//! Sources that ffmpeg reads or encodes for us, as a child with pipes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use freshwire_media::demux::{self, Demux};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::{Instant, MissedTickBehavior};

use super::bytes;
use super::error::SourceError;
use super::outlet::Outlet;
use super::pace::Pace;
use super::pattern::{Pattern, PatternConfig};
use crate::priority;

pub(super) const FFMPEG: &str = "ffmpeg";
const FFPROBE: &str = "ffprobe";

/// The most bytes of ffmpeg's error text.
const MESSAGE_BYTES: u64 = 4096;

/// MPEG-TS without the delays that a broadcast wants.
const TS: [&str; 11] = [
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
    "pipe:1",
];

/// Fragmented MP4, a fragment for each frame. `frag_every_frame` would give two frames of sound the same time, and `empty_moov`
/// the first picture another duration.
const MP4: [&str; 7] =
    ["-movflags", "delay_moov+default_base_moof", "-frag_duration", "1", "-f", "mp4", "pipe:1"];

/// The properties of a file that decide how ffmpeg is called.
#[derive(Debug, Default, PartialEq, Eq)]
struct Probe {
    video: Option<String>,
    audio: Option<String>,
}

/// Plays a file through ffmpeg, in real time, again and again.
pub(super) async fn copy(path: &Path, outlet: &Outlet) -> Result<(), SourceError> {
    let probe = probe(path).await?;
    let arguments =
        copy_arguments(&probe).ok_or_else(|| SourceError::NothingToCarry(path.display().to_string()))?;
    let mut command = command();
    command.args(["-stream_loop", "-1", "-i"]).arg(path).args(arguments).stdin(Stdio::null());
    let name = path.display().to_string();
    let mut pace = Pace::real_time(bytes::wait_for(outlet, &name).await);
    let child = start(command)?;
    run(child, None, &mut pace).await?;
    pace.finish().await;
    Ok(())
}

/// How ffmpeg hands a file's tracks over; `None` if there is none that can be carried.
fn copy_arguments(probe: &Probe) -> Option<Vec<&'static str>> {
    let mut arguments = Vec::new();
    // MPEG-TS has no place for AV1 and VP9.
    let container = match probe.video.as_deref() {
        Some("av1" | "vp9") => &MP4[..],
        _ => &TS[..],
    };
    if let Some("h264" | "hevc" | "av1" | "vp9") = probe.video.as_deref() {
        arguments.extend(["-map", "0:v:0", "-c:v", "copy"]);
    }
    match probe.audio.as_deref() {
        Some("aac" | "opus") => arguments.extend(["-map", "0:a:0", "-c:a", "copy"]),
        Some(_) => arguments.extend(["-map", "0:a:0", "-c:a", "aac", "-b:a", "128k"]),
        None => {}
    }
    if arguments.is_empty() {
        return None;
    }
    arguments.extend(container);
    Some(arguments)
}

async fn probe(path: &Path) -> Result<Probe, SourceError> {
    let output = Command::new(FFPROBE)
        .args(["-v", "error", "-show_entries", "stream=codec_type,codec_name", "-of", "json"])
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| SourceError::Program { program: FFMPEG, error })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(SourceError::Failed { program: FFPROBE, message });
    }
    Ok(read_probe(&output.stdout))
}

fn read_probe(json: &[u8]) -> Probe {
    let document: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
    let codec = |kind: &str| {
        let streams = document["streams"].as_array()?;
        let stream = streams.iter().find(|stream| stream["codec_type"] == kind)?;
        stream["codec_name"].as_str().map(str::to_owned)
    };
    Probe { video: codec("video"), audio: codec("audio") }
}

/// Encodes the test picture live.
pub(super) async fn test(config: &PatternConfig, outlet: &Outlet) -> Result<(), SourceError> {
    let mut command = command();
    command.args(config.encoder_arguments()).args(TS).stdin(Stdio::piped());
    let mut pace = Pace::immediate(bytes::wait_for(outlet, "test").await);
    let mut child = start(command)?;
    let Some(input) = child.stdin.take() else { return Ok(()) };
    run(child, Some((input, config)), &mut pace).await
}

pub(super) fn command() -> Command {
    let mut command = Command::new(FFMPEG);
    command.args(["-hide_banner", "-nostdin", "-loglevel", "error"]).kill_on_drop(true);
    command
}

pub(super) fn start(mut command: Command) -> Result<Child, SourceError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| SourceError::Program { program: FFMPEG, error })?;
    priority::leave_behind(child.id());
    Ok(child)
}

/// The program's error text until its end. Beyond the limit it is read and forgotten, or the program would
/// block.
pub(super) async fn listen(mut errors: ChildStderr) -> String {
    let mut message = Vec::new();
    // Unreadable text is left out.
    let _ = (&mut errors).take(MESSAGE_BYTES).read_to_end(&mut message).await;
    let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&message).trim().to_owned()
}

/// Publishes what the program writes until it ends.
async fn run(
    mut child: Child,
    pictures: Option<(ChildStdin, &PatternConfig)>,
    pace: &mut Pace,
) -> Result<(), SourceError> {
    let (Some(mut output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else { return Ok(()) };
    let draw = async {
        match pictures {
            Some((input, config)) => draw(input, config).await,
            None => std::future::pending().await,
        }
    };
    let listening = tokio::spawn(listen(errors));
    let mut demux = Demux::new(demux::Config::default());
    let result = tokio::select! {
        result = bytes::read(&mut output, FFMPEG, &mut demux, pace) => result,
        () = draw => Ok(()),
    };
    result?;
    demux.finish();
    bytes::drain(&mut demux, pace).await?;
    // It has closed its output or its input; it ends by itself or is killed when it is dropped.
    let ended = tokio::time::timeout(Duration::from_secs(2), child.wait()).await;
    match ended {
        Ok(Ok(status)) if !status.success() => {
            let message = listening.await.unwrap_or_default();
            Err(SourceError::Failed { program: FFMPEG, message })
        }
        _ => Ok(()),
    }
}

/// Draws a picture each time one is due, until the encoder takes no more.
async fn draw(mut input: ChildStdin, config: &PatternConfig) {
    let mut pattern = Pattern::new(config);
    let mut ticks = tokio::time::interval_at(Instant::now(), config.interval());
    // An encoder that is too slow gets fewer pictures and not older ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if input.write_all(pattern.draw(std::time::SystemTime::now())).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_tracks_are_copied_and_other_sound_is_encoded() {
        let probe = |json: &str| read_probe(json.as_bytes());
        let film = probe(
            r#"{"streams":[{"codec_name":"h264","codec_type":"video"},{"codec_name":"ac3","codec_type":"audio"}]}"#,
        );
        let arguments = copy_arguments(&film).expect("has tracks").join(" ");
        assert!(arguments.starts_with("-map 0:v:0 -c:v copy -map 0:a:0 -c:a aac"), "{arguments}");
        let av1 = probe(
            r#"{"streams":[{"codec_name":"av1","codec_type":"video"},{"codec_name":"opus","codec_type":"audio"}]}"#,
        );
        let arguments = copy_arguments(&av1).expect("has tracks").join(" ");
        assert!(arguments.starts_with("-map 0:v:0 -c:v copy -map 0:a:0 -c:a copy -movflags"), "{arguments}");
        assert_eq!(copy_arguments(&probe(r#"{"streams":[]}"#)), None);
        assert_eq!(probe("no json"), Probe::default());
    }
}
