//! A line of the result file `screen.jsonl`.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::scheme::Scheme;
use crate::cells::{self, measurement};
use crate::schema::{Environment, LinkConfig, Trust};

/// Everything that was chosen before a run; runs with equal plans repeat each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The stream.
    pub(super) stream: StreamId,
    /// The sender.
    pub(super) scheme: Scheme,
    /// The link; its rate counts whole IP packets.
    pub(super) link: LinkConfig,
    /// For how long the screen counts, in seconds.
    pub(super) duration_s: f64,
    /// The time before that, from the capture of the first keyframe on, in seconds.
    pub(super) skip_s: f64,
}

/// Tells one prepared stream from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct StreamId {
    /// Its name, or its file.
    pub(super) name: String,
    /// Bytes of the prepared file.
    pub(super) bytes: u64,
    /// Mean rate of its pictures and its sound, in bits per second, without any framing.
    pub(super) rate_bps: u64,
}

/// A plan and its outcome. Instants are in nanoseconds of the source's clock, which begins shortly before the
/// first capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// Whether the machine kept up with the run.
    pub(super) trust: Trust,
    /// At its begin the screen is empty.
    pub(super) window: Window,
    /// Every picture that was handed to the sender from that keyframe on and within the window, in decoding order.
    pub(super) pictures: Vec<Picture>,
    /// Bytes that the viewer read within the window, framing included.
    pub(super) received_bytes: u64,
    /// Frames of sound within the window, where the stream has sound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sound: Option<Sound>,
    /// A decoder's judgement of the received pictures.
    pub(super) decoded: Decoded,
    /// The numbers that follow; filled in when the run is appended to a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<Metrics>,
}

/// The time that counts, and the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    /// When the first keyframe is captured.
    pub(super) begin_ns: u64,
    /// From when on it counts.
    pub(super) from_ns: u64,
    /// The end.
    pub(super) until_ns: u64,
}

impl Window {
    /// How long the time that counts is.
    pub(super) fn seconds(self) -> f64 {
        (self.until_ns - self.from_ns) as f64 / 1e9
    }
}

/// A picture and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Picture {
    /// When it was captured: its presentation time, as late as the encoder's reordering allows.
    pub(super) captured_ns: u64,
    /// When the sender had all of it.
    pub(super) offered_ns: u64,
    /// Bytes of the coded picture.
    pub(super) bytes: u32,
    /// Positions of the pictures that it refers to, all smaller; none is one from before the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refs: Vec<Option<u32>>,
    /// When the viewer had all of it, if it did within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arrived_ns: Option<u64>,
}

/// Frames of sound that fall due within the window, and that arrived within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sound {
    pub(super) offered: u64,
    pub(super) arrived: u64,
}

/// The judgement of ffmpeg's decoder on all received pictures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Decoded {
    /// Pictures that came out.
    pub(super) pictures: usize,
    /// Pictures whose references had all arrived, and which did not come out as from the whole stream, bit by bit.
    pub(super) differing: usize,
    /// Pictures that the server put in: each shows the one before it once more.
    pub(super) repeated: usize,
    /// Pictures that are neither of the stream nor a repetition, and packets that were missing or broken.
    pub(super) torn: u64,
    /// Lines in which the decoder complained.
    pub(super) complaints: usize,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) words: Vec<String>,
    /// SSIM of the screen and the camera's picture, whenever the camera has a new one, in the mean; a black screen
    /// before the first picture.
    pub(super) ssim_mean: f64,
    /// Its 5th percentile.
    pub(super) ssim_p5: f64,
}

/// The numbers that follow from a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// The viewer's screen.
    pub(super) screen: Screen,
    /// The screen with a sender that knows all pictures and the link.
    pub(super) oracle: Screen,
    /// Received bytes as a share of the link's capacity (1448 bytes of 1500, less losses).
    pub(super) link_used: f64,
}

/// A screen over the time that counts, as [`freshwire::choice::screen`](mod@freshwire::choice::screen) defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Screen {
    /// Now minus the capture of the newest picture that can be decoded, in seconds: mean.
    pub(super) age_mean_s: f64,
    /// Its 95th percentile over time.
    pub(super) age_p95_s: f64,
    /// Pictures a second that arrived and can be decoded.
    pub(super) pictures_per_s: f64,
    /// Seconds in which the picture had stood for more than 0.5 s.
    pub(super) frozen_s: f64,
    /// Times that it stood for longer than that.
    pub(super) freezes: usize,
    /// The longest time without another picture.
    pub(super) longest_gap_s: f64,
    /// Mean distance between the captures of the pictures shown, as it counts in the cost.
    pub(super) motion_s: f64,
    /// The live policy's objective.
    pub(super) cost: f64,
}

impl cells::Plan for Plan {
    fn cell(&self) -> Self {
        Self { link: self.link.without_seed(), ..self.clone() }
    }
}

measurement!(Run, Plan);

impl Run {
    /// Fails when the run contradicts itself.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Window { begin_ns, from_ns, until_ns } = self.window;
        ensure!(begin_ns <= from_ns && from_ns < until_ns, "a window from {from_ns} to {until_ns} ns");
        for (place, picture) in self.pictures.iter().enumerate() {
            ensure!(
                picture.refs.iter().flatten().all(|&reference| (reference as usize) < place),
                "picture {place} refers to one that is not before it"
            );
            if let Some(arrived) = picture.arrived_ns {
                ensure!(arrived >= picture.offered_ns, "picture {place} arrived before it was offered");
                ensure!(arrived <= until_ns, "picture {place} arrived after the window");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ResultLine as _;
    use crate::testing;

    const MS: u64 = 1_000_000;

    /// Five seconds of a keyframe each two seconds, P pictures each 80 ms and B pictures between, of which some are lost.
    fn run(scheme: &str, lost: impl Fn(usize) -> bool, late_ms: u64) -> Run {
        let picture = |place: usize| {
            let is_key = place.is_multiple_of(50);
            let is_between = place.is_multiple_of(2) && !is_key;
            let number = if is_between { place - 1 } else { place + usize::from(!is_key) } as u64;
            let refs = match place % 50 {
                0 => Vec::new(),
                1 => vec![place.checked_sub(1)],
                _ if is_between => {
                    vec![place.checked_sub(1), Some(place - if place % 50 == 2 { 2 } else { 3 })]
                }
                2.. => vec![place.checked_sub(2)],
            };
            let offered_ns = (4080 + 40 * place as u64) * MS;
            let arrived_ns = offered_ns + (late_ms + place as u64 % 7) * MS;
            Picture {
                captured_ns: (4000 + 40 * number) * MS,
                offered_ns,
                bytes: if is_key { 20_000 } else { 3000 },
                refs: refs.into_iter().map(|place| place.map(|place| place as u32)).collect(),
                arrived_ns: Some(arrived_ns).filter(|at| !lost(place) && *at <= 9000 * MS),
            }
        };
        Run {
            plan: Plan {
                stream: StreamId { name: "test".to_owned(), bytes: 500_000, rate_bps: 736_000 },
                scheme: scheme.parse().unwrap(),
                link: testing::link(Some(800_000), 0.0, 10.0),
                duration_s: 4.0,
                skip_s: 1.0,
            },
            environment: Environment::default(),
            trust: Trust::of(&[]),
            window: Window { begin_ns: 4000 * MS, from_ns: 5000 * MS, until_ns: 9000 * MS },
            pictures: (0..120).map(picture).collect(),
            received_bytes: 400_000,
            sound: Some(Sound { offered: 188, arrived: 187 }),
            decoded: Decoded { pictures: 100, ssim_mean: 0.75, ssim_p5: 0.5, ..Decoded::default() },
            metrics: None,
        }
    }

    /// The oracle's result is not checked elsewhere, and may get better.
    #[test]
    fn the_reference_file_is_what_this_program_writes() {
        let mut runs = [
            run("freshwire", |place| (20..50).contains(&place) || place % 9 == 8, 30),
            run("tcp", |_| false, 700),
            run("650ms", |_| true, 0),
        ];
        testing::assert_reference("screen", &mut runs, |run, known| {
            let (metrics, known) = (run.metrics.as_ref().unwrap(), known.metrics.as_mut().unwrap());
            assert!(metrics.oracle.cost <= metrics.screen.cost);
            known.oracle = metrics.oracle;
        });
    }

    #[test]
    fn a_contradictory_run_is_refused() {
        let good = run("tcp", |_| false, 100);
        let refused = |change: fn(&mut Run)| {
            let mut run = good.clone();
            change(&mut run);
            run.measure().unwrap_err().to_string()
        };
        assert!(refused(|run| run.pictures[3].refs = vec![Some(3)]).contains("not before it"));
        assert!(refused(|run| run.pictures[3].arrived_ns = Some(1)).contains("before it was offered"));
        assert!(refused(|run| run.pictures[3].arrived_ns = Some(u64::MAX)).contains("after the window"));
        assert!(refused(|run| run.window.until_ns = 0).contains("a window from"));
    }
}
