//! The experiment `video`: that of the layers, with real pictures.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use freshwire_record::{Rate, parse_duration};

use super::args::{LinkArgs, RateArg, check_schemes, framing_of, parse_rate};
use crate::experiment::make_folder;
use crate::output;
use crate::scenario::Output;
use crate::schema::{Experiment, Order, Plan, Source};
use crate::scheme;
use crate::video::{Clip, FPS, Preference, Recipe, layers};

/// A film across links above and below its rate, in 3 spatial and 3 temporal layers by libvpx (VP9 SVC). Their dependencies put them in order.
///
/// libvpx decodes the layers that arrive in time, and the screen is compared with the camera. Needs ffmpeg, a C compiler and libvpx-dev.
#[derive(Args)]
#[command(after_help = "\
Examples:
  freshwire-lab video
  freshwire-lab video --video camera --rate 512Kibit --order live --scheme tcp,freshwire --duration 10s
  freshwire-lab video --video holiday.mp4 --loss 0 --deadline 300ms

The folder has pictures of each screen (stills), and what was sent (clips).

Exit code: 0 done, 1 a run failed or a decoded picture was damaged, 2 it could not be done.")]
pub(crate) struct VideoArgs {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    link: LinkArgs,
    /// Pictures, separated by commas: film, bikes (real film), camera, slides (generated), or a file that ffmpeg reads. They are shown
    /// at 640x360 and 25 pictures a second.
    #[arg(long, value_delimiter = ',', default_value = "bikes")]
    video: Vec<String>,
    /// Rates of the link, separated by commas; `none` is no limit.
    #[arg(long, value_delimiter = ',', default_value = "1536Kibit,1024Kibit,512Kibit,256Kibit", value_parser = parse_rate)]
    rate: Vec<RateArg>,
    /// Schemes to compare, separated by commas: those of `layers`, and freshwire-frames. Default: tcp, min-buf, thesis,
    /// priority-progress, freshwire, freshwire-frames.
    #[arg(long, value_delimiter = ',')]
    scheme: Vec<String>,
    /// When a picture's layers are sent, separated by commas: live, all at its capture; window, as in Birkedal 2006, one layer of a whole
    /// window after the other.
    #[arg(long, value_delimiter = ',', default_value = "live,window")]
    order: Vec<OrderArg>,
    /// The layers that go first where their dependencies leave a choice.
    #[arg(long, default_value = "motion")]
    prefer: Preference,
    /// Rate of all layers together.
    #[arg(long, default_value = "1024Kibit")]
    source_rate: Rate,
    /// From a picture's capture to its time on the screen; with the order window, from a window's first layer to its first picture.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    deadline: Duration,
    /// Length of a window, which begins with a key picture.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    window: Duration,
    /// For how long the source offers pictures.
    #[arg(long, default_value = "20s", value_parser = parse_duration)]
    duration: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    Live,
    Window,
}

/// Runs side by side if not said otherwise: what each received is decoded as soon as it ends.
const JOBS: usize = 2;

/// The share of packets lost if not said otherwise, as in Birkedal 2006.
const LOSS: f64 = 0.05;

/// All that a command line asks for.
pub(super) struct Prepared {
    pub(super) plans: Vec<Plan>,
    /// The clips by their names.
    pub(super) clips: Vec<(String, Clip)>,
    /// The folder for pictures of the screens.
    pub(super) stills: PathBuf,
    pub(super) output: Output,
}

impl Prepared {
    /// The clip of a plan.
    pub(super) fn clip(&self, plan: &Plan) -> Option<Clip> {
        let Source::Video { clip: name, .. } = &plan.source else { return None };
        self.clips.iter().find(|(known, _)| known == name).map(|(_, clip)| clip.clone())
    }
}

impl VideoArgs {
    /// Encodes what is missing of the clips, and plans the runs.
    pub(super) fn prepare(&self) -> anyhow::Result<Prepared> {
        let out = &self.output.out;
        let (clips, stills) = (out.join("clips"), out.join("stills"));
        let schemes = self.schemes()?;
        make_folder(&clips)?;
        make_folder(&stills)?;
        let output = Output { out: out.clone(), jobs: self.output.jobs.or(Some(JOBS)) };
        let mut prepared = Prepared { plans: Vec::new(), clips: Vec::new(), stills, output };
        for name in &self.video {
            let clip = Clip::prepare(&self.recipe(name)?, &clips, output::say)?;
            prepared.plans.extend(self.plans(name, &clip, &schemes)?);
            prepared.clips.push((name.clone(), clip));
        }
        Ok(prepared)
    }

    fn schemes(&self) -> anyhow::Result<Vec<&str>> {
        let schemes: Vec<&str> = if self.scheme.is_empty() {
            vec![
                scheme::TCP,
                scheme::MIN_BUF,
                scheme::THESIS,
                scheme::PRIORITY_PROGRESS,
                scheme::FRESHWIRE,
                scheme::FRESHWIRE_FRAMES,
            ]
        } else {
            self.scheme.iter().map(String::as_str).collect()
        };
        check_schemes(&schemes)?;
        Ok(schemes)
    }

    fn recipe<'a>(&self, name: &'a str) -> anyhow::Result<Recipe<'a>> {
        let pictures = self.window.as_secs_f64() * f64::from(FPS);
        ensure!(
            pictures >= 1.0 && (pictures - pictures.round()).abs() < 1e-6,
            "a window of {:?} is not whole pictures of 1/{FPS} s; take for instance --window 1s",
            self.window
        );
        Ok(Recipe {
            name,
            seconds: u32::try_from(self.duration.as_secs_f64().ceil() as u64)?,
            kbits: u32::try_from(self.source_rate.bits_per_sec() / 1000)?,
            key_interval: pictures.round() as u32,
        })
    }

    fn plans(&self, name: &str, clip: &Clip, schemes: &[&str]) -> anyhow::Result<Vec<Plan>> {
        let layers = layers(&clip.read()?, self.prefer)?;
        let window_ms = u32::try_from(self.window.as_millis()).context("a window of more than 49 days")?;
        let source = |order: OrderArg| Source::Video {
            clip: name.to_owned(),
            rate_bps: self.source_rate.bits_per_sec(),
            fps: f64::from(FPS),
            order: match order {
                OrderArg::Live => Order::Live,
                OrderArg::Window => Order::Window,
            },
            window_ms,
            layers: layers.clone(),
        };
        let mut plans = Vec::new();
        for seed in self.link.repetitions.seeds(1) {
            for rate in &self.rate {
                for congestion in &self.link.congestion {
                    for order in &self.order {
                        plans.extend(schemes.iter().map(|scheme| Plan {
                            experiment: Experiment::Video,
                            scheme: (*scheme).to_owned(),
                            congestion: congestion.clone(),
                            framing: framing_of(scheme),
                            link: self.link.config(
                                rate.0.map(Rate::bits_per_sec),
                                self.link.loss.unwrap_or(LOSS),
                                self.link.delay,
                                seed,
                            ),
                            source: source(*order),
                            deadline_ms: self.deadline.as_secs_f64() * 1e3,
                            duration_s: self.duration.as_secs_f64(),
                        }));
                    }
                }
            }
        }
        Ok(plans)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: VideoArgs,
    }

    fn args(arguments: &[&str]) -> VideoArgs {
        Cli::try_parse_from(std::iter::once("x").chain(arguments.iter().copied())).unwrap().args
    }

    #[test]
    fn a_window_is_whole_pictures() {
        let interval =
            |window: &str| args(&["--window", window]).recipe("a").map(|recipe| recipe.key_interval);
        assert_eq!(
            (interval("1s").unwrap(), interval("40ms").unwrap(), interval("2s").unwrap()),
            (25, 1, 50)
        );
        for window in ["0s", "50ms", "1001ms"] {
            assert!(interval(window).unwrap_err().to_string().contains("whole pictures"), "{window}");
        }
    }

    #[test]
    fn an_unknown_scheme_or_clip_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_str().unwrap();
        for (arguments, reason) in [
            (["--scheme", "fast"], "there is no scheme"),
            (["--video", "no-such-film"], "neither a file nor a stream"),
        ] {
            let args = args(&[&arguments[..], &["--out", out]].concat());
            let error = args.prepare().map(|prepared| prepared.plans.len()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
