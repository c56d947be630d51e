//! The options of `viewers` and `isolation`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use freshwire_record::{Rate, parse_duration};

use super::load::Datagrams;
use super::process::Subject;
use crate::output::say;
use crate::viewers::clip::Clip;
use crate::viewers::server::Server;

/// A clip is longer than the measured time by this and the times to begin: the server's start and some reserve.
const RESERVE: Duration = Duration::from_secs(4);
/// How many viewers a server connects in a second, at least.
const CONNECTS_PER_SECOND: u32 = 40;
/// A viewer may take so much of the server's memory.
pub(super) const VIEWER_BYTES: f64 = 16384.0;
/// Files besides three for each viewer.
pub(super) const OTHER_FILES: u64 = 100;

/// A baseline of the live server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Against {
    /// A loop of writes.
    Bare,
    /// GStreamer's RTSP server.
    Gstreamer,
    /// The live server, with RTP over UDP.
    Udp,
    /// The same, to viewers that take the datagrams of one call in one piece (`UDP_GRO`). The system does not cut them in the server's
    /// time, as it does for other viewers on the same machine.
    UdpWhole,
    /// The live server, with WebRTC. Each viewer has a thread of this program: for some hundreds.
    Whep,
    /// The live server as the edge of a relay; only the edge counts. Needs `freshwire` with the feature `moq`.
    Edge,
}

impl Against {
    pub(super) fn subject(self) -> Subject {
        match self {
            Self::Bare => Subject::Bare,
            Self::Gstreamer => Subject::Server(Server::Gstreamer),
            Self::Udp => Subject::Udp(Datagrams::Single),
            Self::UdpWhole => Subject::Udp(Datagrams::Whole),
            Self::Whep => Subject::Whep,
            Self::Edge => Subject::Edge,
        }
    }
}

/// The options of `viewers` and `isolation`.
#[derive(Debug, Args)]
pub(in crate::bench) struct ViewersArgs {
    /// Numbers of viewers, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,32,256,1000", value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub(super) viewers: Vec<u32>,
    /// Rate of the stream that `viewers` and `isolation` serve: 720p25.
    #[arg(long, default_value = "1Mbit")]
    pub(in crate::bench) rate: Rate,
    /// How long each repetition of `viewers` and `isolation` counts.
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = parse_duration)]
    pub(super) duration: Duration,
    /// How long viewers have to begin before that, and the senders of `uplink`; from one key picture to the next it is 2 s.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    pub(in crate::bench) settle: Duration,
    /// Baselines of `viewers`, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bare,gstreamer,udp,udp-whole")]
    pub(super) against: Vec<Against>,
    /// Viewers of `isolation` that read as fast as they can.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) fast: u32,
    /// Viewers of `isolation` that read nothing while the server's memory is looked at.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) stalled: u32,
    /// Folder where `viewers`, `isolation` and `uplink` keep the encoded streams and the servers' log.
    #[arg(long, value_name = "FOLDER", default_value = "freshwire-bench")]
    pub(in crate::bench) clips: PathBuf,
}

impl ViewersArgs {
    /// The stream, long enough for that number of viewers and encoded if it is not in the folder, and where the servers' log
    /// goes.
    pub(in crate::bench) fn prepare(&self, viewers: u32) -> anyhow::Result<(Arc<Clip>, PathBuf)> {
        let connecting = Duration::from_secs((viewers / CONNECTS_PER_SECOND).into());
        self.clip(self.duration + self.settle * 3 + connecting + RESERVE)
    }

    /// The stream, of at least that length, and where the servers' log goes.
    pub(in crate::bench) fn clip(&self, length: Duration) -> anyhow::Result<(Arc<Clip>, PathBuf)> {
        std::fs::create_dir_all(&self.clips)
            .with_context(|| format!("cannot make the folder {}", self.clips.display()))?;
        let rate = self.rate.bits_per_sec();
        let path = self.clips.join(format!("stream-{}s-{rate}.ts", length.as_secs()));
        if !path.exists() {
            say("encoding the stream, once");
        }
        Ok((Arc::new(Clip::prepare(&path, length, rate)?), self.clips.join("server.log")))
    }
}
