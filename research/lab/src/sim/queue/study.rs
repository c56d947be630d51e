//! Every table and figure as numbers; the text, the page and the JSON line are made of these alone.

use freshwire_sim::queue::{
    Cell, Config, ConfigError, Mean, Outcome, PushConfig, Reading, Regression, Spread, mean_of, simulate,
    table_2,
};
use serde::Serialize;

/// Arrival intervals and transaction delays of figure 9, in ticks. The article's axis of delays is lost with its picture.
pub(super) const INTERVALS: [f64; 4] = [1.0, 2.0, 3.0, 4.0];
const DELAYS: [f64; 7] = [1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 10.0];
/// Sizes of the program's buffer in figure 12, in packets. Its axis is lost too.
const BUFFERS: [usize; 7] = [1, 2, 5, 10, 20, 40, 64];
const PROCESSES: [usize; 5] = [1, 2, 3, 5, 10];
/// Figure 12: the share of the takes that the longer delay costs, without and with push. They are quotients of small counts, 15 of 17
/// and 2 of 12, so single experiments that have others are compared with the next thousandth.
const PUBLISHED_DROPS: [f64; 2] = [0.8825, 0.1675];

#[derive(Serialize)]
pub(super) struct Study {
    pub(super) seed: u64,
    pub(super) repetitions: u32,
    /// Table 1, with what the article leaves open.
    pub(super) setting: Setting,
    pub(super) table_2: Vec<Length>,
    /// Interval, delay, interaction.
    pub(super) regression: Vec<Share>,
    pub(super) readings: Vec<Fit>,
    pub(super) curves: Vec<Curve>,
    pub(super) figure_9: Vec<Overflows>,
    pub(super) figure_12: Vec<Takes>,
    pub(super) processes: Vec<Processes>,
}

#[derive(Serialize)]
pub(super) struct Setting {
    pub(super) nic_packets: usize,
    pub(super) socket_packets: usize,
    pub(super) processes: usize,
    pub(super) length_ticks: f64,
    pub(super) reading: &'static str,
    pub(super) recv_ticks: f64,
    pub(super) recv_packets: usize,
    pub(super) push_ticks: f64,
}

/// A cell of table 2.
#[derive(Serialize)]
pub(super) struct Length {
    pub(super) interval: f64,
    pub(super) delay: f64,
    pub(super) published: f64,
    pub(super) mean: f64,
    pub(super) error: f64,
    pub(super) time_mean: f64,
}

#[derive(Serialize)]
pub(super) struct Share {
    pub(super) factor: &'static str,
    pub(super) published: f64,
    pub(super) ours: f64,
}

/// How far a reading is from table 2.
#[derive(Serialize)]
pub(super) struct Fit {
    pub(super) reading: &'static str,
    /// Root of the mean squared distance, in packets: of means over observations, and of means over time.
    pub(super) rms: f64,
    pub(super) rms_over_time: f64,
}

/// The first socket's buffer over time: figures 3, 10, 11a and 11b.
#[derive(Serialize)]
pub(super) struct Curve {
    pub(super) figure: &'static str,
    pub(super) delay: f64,
    pub(super) push: bool,
    /// With the first seed.
    pub(super) overflows: u64,
    pub(super) refused: u64,
    pub(super) pushes: u64,
    /// Over all repetitions.
    pub(super) mean_overflows: f64,
    pub(super) mean_refused: f64,
    pub(super) mean_length: f64,
    pub(super) points: Vec<(f64, usize)>,
}

#[derive(Serialize)]
pub(super) struct Overflows {
    pub(super) interval: f64,
    pub(super) delay: f64,
    pub(super) refused: f64,
    pub(super) refused_with_push: f64,
}

/// How often the program gets packets, at delays of 5 and 10 ticks.
#[derive(Serialize)]
pub(super) struct Takes {
    pub(super) buffer: usize,
    pub(super) plain: [f64; 2],
    pub(super) push: [f64; 2],
    /// The share of single experiments that lose at most what is published, without and with push. An experiment has the same seed
    /// at both delays; those without a take at the short one are left out.
    pub(super) at_most_published: [f64; 2],
}

impl Takes {
    /// The share of the takes that the longer delay costs: without and with push.
    pub(super) fn drops(&self) -> [f64; 2] {
        [self.plain, self.push].map(|[short, long]| if short > 0.0 { 1.0 - long / short } else { 0.0 })
    }
}

#[derive(Serialize)]
pub(super) struct Processes {
    pub(super) processes: usize,
    pub(super) idle_ticks: f64,
    /// Packets taken, if all are for the first socket, and if they are spread evenly.
    pub(super) taken: [f64; 2],
}

impl Study {
    pub(super) fn run(
        config: &Config,
        push: PushConfig,
        seed: u64,
        repetitions: u32,
    ) -> Result<Self, ConfigError> {
        let runs = Runs { config, push, seed, repetitions };
        let cells = table_2(config, seed, repetitions)?;
        Ok(Self {
            seed,
            repetitions,
            setting: Setting {
                nic_packets: config.nic_packets,
                socket_packets: config.socket_packets,
                processes: config.processes,
                length_ticks: config.length_ticks,
                reading: name(config.reading),
                recv_ticks: config.receive_ticks,
                recv_packets: config.receive_packets,
                push_ticks: push.mean_ticks,
            },
            table_2: cells.iter().map(length).collect(),
            regression: shares(&cells),
            readings: runs.readings()?,
            curves: runs.curves()?,
            figure_9: runs.figure_9()?,
            figure_12: runs.figure_12()?,
            processes: runs.processes()?,
        })
    }

    /// Root of the mean squared distance from table 2, in packets.
    pub(super) fn rms(&self) -> f64 {
        rms(self.table_2.iter().map(|cell| cell.mean - cell.published))
    }
}

struct Runs<'a> {
    config: &'a Config,
    push: PushConfig,
    seed: u64,
    repetitions: u32,
}

impl Runs<'_> {
    fn means<const N: usize>(
        &self,
        config: &Config,
        values: impl Fn(&Outcome) -> [f64; N],
    ) -> Result<[f64; N], ConfigError> {
        Ok(mean_of(config, self.seed, self.repetitions, values)?.map(|mean: Mean| mean.value))
    }

    fn readings(&self) -> Result<Vec<Fit>, ConfigError> {
        let fit = |reading| {
            let cells = table_2(&Config { reading, ..self.config.clone() }, self.seed, self.repetitions)?;
            Ok(Fit {
                reading: name(reading),
                rms: rms(cells.iter().map(|cell| cell.mean.value - cell.published)),
                rms_over_time: rms(cells.iter().map(|cell| cell.time_mean.value - cell.published)),
            })
        };
        [Reading::Batch, Reading::Serial, Reading::Overlapping].into_iter().map(fit).collect()
    }

    fn curves(&self) -> Result<Vec<Curve>, ConfigError> {
        let figures = [("3", 5.0, false), ("10", 5.0, true), ("11a", 10.0, false), ("11b", 10.0, true)];
        let curve = |(figure, delay, push): (&'static str, f64, bool)| {
            let plain = self.config.with_factors(2.0, delay);
            let config = if push { plain.with_push(self.push) } else { plain };
            let Outcome { overflows, refused, pushes, lengths, .. } = simulate(&config, self.seed)?;
            let [mean_overflows, mean_refused, mean_length] = self.means(&config, |outcome| {
                [outcome.overflows as f64, outcome.refused as f64, outcome.mean_length]
            })?;
            let points = lengths;
            Ok(Curve {
                figure,
                delay,
                push,
                overflows,
                refused,
                pushes,
                mean_overflows,
                mean_refused,
                mean_length,
                points,
            })
        };
        figures.into_iter().map(curve).collect()
    }

    fn figure_9(&self) -> Result<Vec<Overflows>, ConfigError> {
        let pairs = INTERVALS.into_iter().flat_map(|interval| DELAYS.map(|delay| (interval, delay)));
        let overflows = |(interval, delay)| {
            let plain = self.config.with_factors(interval, delay);
            let refused = |config: &Config| self.means(config, |outcome| [outcome.refused as f64]);
            let ([without], [with]) = (refused(&plain)?, refused(&plain.with_push(self.push))?);
            Ok(Overflows { interval, delay, refused: without, refused_with_push: with })
        };
        pairs.map(overflows).collect()
    }

    fn figure_12(&self) -> Result<Vec<Takes>, ConfigError> {
        let row = |buffer: usize| {
            let (mut means, mut at_most_published) = ([[0.0; 2]; 2], [0.0; 2]);
            let pushes = [None, Some(PushConfig { packets: buffer, ..self.push })];
            for (place, push) in pushes.into_iter().enumerate() {
                let of = |delay| {
                    let config = self.config.with_factors(2.0, delay);
                    self.takes(&Config { receive_packets: buffer, push, ..config })
                };
                let (short, long) = (of(5.0)?, of(10.0)?);
                means[place] = [mean(&short), mean(&long)];
                let drops = short.iter().zip(&long).filter(|(short, _)| **short > 0.0);
                let drops: Vec<f64> = drops.map(|(short, long)| 1.0 - long / short).collect();
                let within = drops.iter().filter(|drop| **drop <= PUBLISHED_DROPS[place]).count();
                at_most_published[place] = within as f64 / drops.len().max(1) as f64;
            }
            let [plain, push] = means;
            Ok(Takes { buffer, plain, push, at_most_published })
        };
        BUFFERS.into_iter().map(row).collect()
    }

    /// The takes of each experiment.
    fn takes(&self, config: &Config) -> Result<Vec<f64>, ConfigError> {
        let of = |repetition| Ok(simulate(config, self.seed.wrapping_add(repetition))?.takes as f64);
        (0..u64::from(self.repetitions)).map(of).collect()
    }

    fn processes(&self) -> Result<Vec<Processes>, ConfigError> {
        let of = |processes: usize| {
            let means = |spread| {
                let config = Config { processes, spread, ..self.config.clone() };
                self.means(&config, |outcome| [outcome.idle_ticks, outcome.taken as f64])
            };
            let ([idle_ticks, first], [_, even]) = (means(Spread::First)?, means(Spread::Even)?);
            Ok(Processes { processes, idle_ticks, taken: [first, even] })
        };
        PROCESSES.into_iter().map(of).collect()
    }
}

fn length(cell: &Cell) -> Length {
    Length {
        interval: cell.arrival_ticks,
        delay: cell.transaction_ticks,
        published: cell.published,
        mean: cell.mean.value,
        error: cell.mean.error,
        time_mean: cell.time_mean.value,
    }
}

fn shares(cells: &[Cell; 4]) -> Vec<Share> {
    let ours = Regression::of(cells.map(|cell| cell.mean.value)).shares();
    let published =
        [("arrival interval", 0.8075), ("transaction delay", 0.1875), ("their interaction", 0.0052)];
    let rows = published.into_iter().zip(ours);
    rows.map(|((factor, published), ours)| Share { factor, published, ours }).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn rms(distances: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = distances.len().max(1) as f64;
    (distances.map(|distance| distance * distance).sum::<f64>() / count).sqrt()
}

fn name(reading: Reading) -> &'static str {
    match reading {
        Reading::Batch => "batch",
        Reading::Serial => "serial",
        Reading::Overlapping => "overlapping",
    }
}
