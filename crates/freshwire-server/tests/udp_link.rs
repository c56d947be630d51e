//! ffmpeg and GStreamer, as they are, view over RTP/UDP behind a link of 300 kbit/s: their reports set the rate, and the server leaves out
//! what the link cannot carry.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod rtsp_rig;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_link::Config;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::hub::{HubConfig, Stream, ViewerSnapshot};
use freshwire_server::ingest::{self, Outlet, Source};
use rtsp_rig::Server;

/// What a player has to show within this time. ffmpeg reports after 280 kB, which takes 7.5 s on this link.
const PATIENCE: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let players: Vec<_> =
        ["ffmpeg", "gst-launch-1.0"].into_iter().filter(|program| is_there(program)).collect();
    if !players.contains(&"ffmpeg") {
        return ExitCode::SUCCESS;
    }
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(error) if error.is_not_permitted() && std::env::var_os("CI").is_none() => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    // Threads have the namespace of the one that makes them, and so have their sockets.
    let address = format!("{}:0", Namespaces::NEAR_V4);
    let make = || Server::at(&address, Access::open(), Limits::default(), HubConfig::default());
    let server = namespaces.in_near(make).unwrap();
    let stream = server.context.hub.stream("live").unwrap();
    server.runtime.spawn(ingest::run(Source::File(clip), Outlet::from(Arc::clone(&stream))));
    until("the stream", || stream.snapshot().units > 10);
    let down = Config::builder().rate("300kbit".parse().unwrap()).queue_bytes(15_000).build().unwrap();
    let up = Config::builder().build().unwrap();
    // Near to far is up.
    let _emulator = Emulator::start(&namespaces, down, up, EmulatorOptions::default()).unwrap();
    let url = format!("rtsp://{}/live", server.address);
    for player in players {
        views_at_the_rate_of_the_link(&namespaces, &stream, player, &url);
    }
    ExitCode::SUCCESS
}

fn views_at_the_rate_of_the_link(namespaces: &Namespaces, stream: &Stream, player: &str, url: &str) {
    let arguments = match player {
        "ffmpeg" => format!("-v error -rtsp_transport udp -i {url} -an -f null -"),
        _ => {
            format!("-q rtspsrc location={url} latency=0 protocols=udp ! rtph264depay ! h264parse ! fakesink")
        }
    };
    let mut command = Command::new(player);
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _running = Running(namespaces.spawn_far(&mut command).unwrap());
    let viewer = || stream.snapshot().viewers.pop();
    until("the player", || viewer().is_some());
    let rate = |viewer: &ViewerSnapshot| {
        viewer.sink.path.filter(|path| !path.at_least).map_or(0, |path| path.rate.bits_per_sec())
    };
    // The link carries 300 kbit/s; what arrives between two reports is known to within a few packets.
    until("the rate of the link", || {
        viewer().is_some_and(|viewer| (150_000..400_000).contains(&rate(&viewer)))
    });
    let before = viewer().unwrap();
    assert_eq!(before.protocol, "rtp");
    // From now on pictures are left out here, and what is sent arrives.
    until("progress at this rate", || {
        viewer().is_some_and(|now| {
            now.sink.acked > before.sink.acked + 100_000
                && now.sink.drops.iter().map(|(_, count)| count).sum::<u64>() > 50
        })
    });
    let after = viewer().unwrap();
    println!(
        "{player}: {} kbit/s, {} bytes arrived, {:?}",
        rate(&after) / 1000,
        after.sink.acked,
        after.sink.drops
    );
    assert!(rate(&after) < 450_000, "{after:?}");
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, is_met: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_met() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a program that the test needs is there. In CI it has to be.
fn is_there(program: &str) -> bool {
    let is_there = Command::new("which").arg(program).output().is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "{program} is needed in CI");
        println!("skipped: {program} is not on this machine");
    }
    is_there
}

fn clip(folder: &Path) -> PathBuf {
    let path = folder.join("clip.ts");
    let arguments = "-v error -f lavfi -i testsrc2=size=640x360:rate=25:duration=30 -c:v libx264 -preset ultrafast \
                     -g 50 -b:v 1000k -maxrate 1000k -bufsize 500k";
    let output = Command::new("ffmpeg").args(arguments.split_whitespace()).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}
