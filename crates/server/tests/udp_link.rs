//! ffmpeg and GStreamer, as they are, view over RTP/UDP behind a link of 300 kbit/s: their reports set the rate, and the server leaves out
//! what the link cannot carry. Behind a link that loses packets, GStreamer gets them again if it asks for it.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod rtsp_rig;
mod testing;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use freshwire_link::{Config, Loss};
use freshwire_netns::testing::namespaces;
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::hub::{HubConfig, Stream, ViewerSnapshot};
use freshwire_server::ingest::{self, Outlet, Source};
use rtsp_rig::Server;
use testing::{Process, is_there, wait_for};

/// What a player has to show within this time. ffmpeg reports after 280 kB, which takes 7.5 s on this link.
const PATIENCE: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let players: Vec<_> =
        ["ffmpeg", "gst-launch-1.0"].into_iter().filter(|program| is_there(program)).collect();
    if !players.contains(&"ffmpeg") {
        return ExitCode::SUCCESS;
    }
    let namespaces = match namespaces().and_then(|first| Ok((first, namespaces()?))) {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    let (namespaces, lossy) = namespaces;
    let folder = tempfile::tempdir().unwrap();
    let clip = clip(folder.path());
    if players.contains(&"gst-launch-1.0") {
        gets_lost_packets_again(&lossy, folder.path(), &clip);
    }
    // Threads have the namespace of the one that makes them, and so have their sockets.
    let (server, stream) = serve(&namespaces, clip);
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

fn serve(namespaces: &Namespaces, clip: PathBuf) -> (Server, Arc<Stream>) {
    let address = format!("{}:0", Namespaces::NEAR_V4);
    let make = || Server::at(&address, Access::open(), Limits::default(), HubConfig::default());
    let server = namespaces.in_near(make).unwrap();
    let stream = server.context.hub.stream("live").unwrap();
    server.runtime.spawn(ingest::run(Source::File(clip), Outlet::from(Arc::clone(&stream))));
    wait_for("the stream", PATIENCE, || stream.snapshot().units > 10);
    (server, stream)
}

/// Two of GStreamer's players, of which one asks for lost packets, at the same time.
fn gets_lost_packets_again(namespaces: &Namespaces, folder: &Path, clip: &Path) {
    // A tenth of the player's latency.
    let late = Duration::from_millis(100);
    measure("udp link: lost packets come again", late, || lost_packets(namespaces, folder, clip));
}

fn lost_packets(namespaces: &Namespaces, folder: &Path, clip: &Path) -> Trial {
    let (server, stream) = serve(namespaces, clip.to_path_buf());
    let link = || Config::builder().rate("8Mbit".parse().unwrap()).delay(Duration::from_millis(20));
    let down = link().loss(Loss::Random { share: 0.02 }).build().unwrap();
    let emulator =
        Emulator::start(namespaces, down, link().build().unwrap(), EmulatorOptions::default()).unwrap();
    let play = |asks: &str| {
        let file = folder.join(asks);
        let url = format!("rtsp://{}/live?retransmission={asks}", server.address);
        let pipeline = format!(
            "-q rtspsrc location={url} latency=1000 protocols=udp ! rtph264depay ! \
             video/x-h264,stream-format=byte-stream,alignment=nal ! filesink buffer-mode=unbuffered location={}",
            file.display()
        );
        let mut command = Command::new("gst-launch-1.0");
        command
            .args(pipeline.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        (Process(namespaces.spawn_far(&mut command).unwrap()), file)
    };
    let players = ["off", "on"].map(play);
    let pictures = pictures(&annex_b(folder, clip));
    let missing = |file: &Path| missing(&pictures, &std::fs::read(file).unwrap_or_default());
    // Counted as soon as a player has enough pictures: those that are left out for it later are not compared.
    let counted = [const { Cell::new(None) }; 2];
    wait_for("ten seconds of pictures", PATIENCE, || {
        for (counted, (asks, (_, file))) in counted.iter().zip([false, true].into_iter().zip(&players)) {
            let count = || Some((missing(file)?, sent(&stream, asks)));
            counted.set(counted.get().or_else(count));
        }
        counted.iter().all(|counted| counted.get().is_some())
    });
    let [(without, plain), (with, asking)] = counted.map(|counted| counted.get().unwrap());
    // A busy machine looks like a slow path; pictures that the server left out are not lost.
    let lost_without = without.saturating_sub(plain.left_out);
    let lost_with = with.saturating_sub(asking.left_out);
    println!(
        "GStreamer, 2 % lost: {lost_without} of {PICTURES} pictures lost ({without} missing), with retransmission of \
         {} of {} packets {lost_with} ({with} missing)",
        asking.repaired, asking.packets
    );
    drop(players);
    let faults = emulator.stop().faults;
    assert!(without >= 5, "the link loses packets");
    // GStreamer may request every seventh packet although it arrives. Such repeats take the pace from new pictures, which are then
    // left out: but so they are on a busy machine, so the cause is counted and not the effect. When all such requests were answered,
    // a fifth of all packets were repeats; with the bounds of today about a fourteenth.
    assert!(asking.repaired * 6 < asking.packets, "repeats take the pace from new pictures: {asking:?}");
    let holds = asking.repaired > 0 && lost_with * 2 < lost_without;
    Trial::new(holds, || format!("{lost_with} pictures lost instead of {lost_without}")).with_faults(faults)
}

/// Packets and bytes that have left for a viewer.
#[derive(Clone, Copy, Debug, Default)]
struct SentTo {
    left_out: usize,
    packets: u64,
    repaired: u64,
}

/// The viewer that asks for lost packets has got some.
fn sent(stream: &Stream, asks: bool) -> SentTo {
    let viewers = stream.snapshot().viewers;
    let sinks = viewers.iter().map(|viewer| &viewer.sink).filter(|sink| (sink.repaired > 0) == asks);
    sinks.fold(SentTo::default(), |sum, sink| SentTo {
        left_out: sum.left_out + sink.drops.iter().map(|(_, count)| *count as usize).sum::<usize>(),
        // At least: the last packet of a picture is shorter.
        packets: sum.packets + sink.bytes / 1400,
        repaired: sum.repaired + sink.repaired,
    })
}

/// Pictures that are compared.
const PICTURES: usize = 250;

/// How many of the first pictures are not in a player's file as they were encoded; `None` while it has too few.
fn missing(encoded: &[Vec<u8>], file: &[u8]) -> Option<usize> {
    let place = |nal: &Vec<u8>| encoded.iter().position(|picture| picture == nal);
    let whole: Vec<usize> = pictures(file).iter().filter_map(place).collect();
    let (mut passed, mut arrived) = (0, 1);
    for pair in whole.windows(2) {
        // The stream begins again at its end.
        passed += (pair[1] + encoded.len() - pair[0]) % encoded.len();
        if passed >= PICTURES {
            return Some(passed - arrived);
        }
        arrived += 1;
    }
    None
}

/// The NAL units of pictures, of one slice each.
fn pictures(annex_b: &[u8]) -> Vec<Vec<u8>> {
    let starts: Vec<usize> = (3..annex_b.len()).filter(|&at| annex_b[at - 3..at] == [0, 0, 1]).collect();
    let ends = starts.iter().skip(1).map(|start| start - 3).chain([annex_b.len()]);
    let nals = starts.iter().zip(ends).map(|(&start, end)| &annex_b[start..end.max(start)]);
    let pictures = nals.filter(|nal| matches!(nal.first().map(|header| header & 0x1f), Some(1 | 5)));
    pictures
        .map(|nal| nal[..nal.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1)].to_vec())
        .collect()
}

/// The clip without its container.
fn annex_b(folder: &Path, clip: &Path) -> Vec<u8> {
    let path = folder.join("clip.h264");
    let output =
        Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(clip).args(["-c", "copy"]).arg(&path).output();
    assert!(output.unwrap().status.success());
    std::fs::read(path).unwrap()
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
    let _running = Process(namespaces.spawn_far(&mut command).unwrap());
    let viewer = || stream.snapshot().viewers.pop();
    wait_for("the player", PATIENCE, || viewer().is_some());
    let rate = |viewer: &ViewerSnapshot| {
        viewer.sink.path.filter(|path| !path.at_least).map_or(0, |path| path.rate.bits_per_sec())
    };
    // The link carries 300 kbit/s; what arrives between two reports is known to within a few packets.
    wait_for("the rate of the link", PATIENCE, || {
        viewer().is_some_and(|viewer| (150_000..400_000).contains(&rate(&viewer)))
    });
    let before = viewer().unwrap();
    assert_eq!(before.protocol, "rtp");
    // From now on pictures are left out here, and what is sent arrives.
    wait_for("progress at this rate", PATIENCE, || {
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

fn clip(folder: &Path) -> PathBuf {
    let path = folder.join("clip.ts");
    let arguments = "-v error -f lavfi -i testsrc2=size=640x360:rate=25:duration=30 -c:v libx264 -preset ultrafast \
                     -g 50 -b:v 1000k -maxrate 1000k -bufsize 500k";
    let output = Command::new("ffmpeg").args(arguments.split_whitespace()).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}
