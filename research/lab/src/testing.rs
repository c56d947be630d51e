//! Small made-up runs for tests.

use std::collections::BTreeMap;

use super::results::Decoded;
use super::schema::{
    Environment, Experiment, LinkConfig, Order, Plan, RecordFate, Run, SenderStats, Source, Totals, Trust,
};
use super::store::{self, ResultLine};

const MS: u64 = 1_000_000;

/// The reference file `name` of the independent check (`research/python/tests`), which holds both to one schema and one set of definitions, is what
/// this program writes for `runs`, after `adjust`. `FRESHWIRE_BLESS=1` writes it anew.
pub(crate) fn assert_reference<R: ResultLine + PartialEq + std::fmt::Debug>(
    name: &str,
    runs: &mut [R],
    adjust: impl Fn(&R, &mut R),
) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/data");
    let path = folder.join(name).with_extension("jsonl");
    if std::env::var_os("FRESHWIRE_BLESS").is_some() {
        std::fs::write(&path, "").unwrap();
        let (mut writer, _) = store::Writer::resume(&path).unwrap();
        runs.iter_mut().for_each(|run| writer.append(run).unwrap());
    }
    let mut known: Vec<R> = store::read(&path).unwrap();
    for (run, known) in runs.iter_mut().zip(&mut known) {
        run.measure().unwrap();
        adjust(run, known);
    }
    assert_eq!(known, runs);
}

/// A small generator of numbers for tests (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

pub(crate) fn link(rate_bps: Option<u64>, loss: f64, delay_ms: f64) -> LinkConfig {
    LinkConfig { delay_ms, ..LinkConfig::steady(rate_bps, loss, std::time::Duration::ZERO, None, 1) }
}

pub(crate) fn run(plan: Plan, records: Vec<RecordFate>) -> Run {
    let arrived = |until_ns: u64| {
        let in_time = records.iter().filter(|r| r.arrived_ns.is_some_and(|at| at <= until_ns));
        in_time.map(|r| u64::from(r.bytes)).sum()
    };
    let mut drops = BTreeMap::new();
    for record in &records {
        if let Some(reason) = record.fate.strip_prefix("dropped: ") {
            *drops.entry(reason.to_owned()).or_default() += 1;
        }
    }
    let totals = Totals {
        received_bytes: arrived(plan.duration_ns()),
        received_all_bytes: arrived(u64::MAX),
        sent_bytes: records.iter().filter(|r| r.committed_ns.is_some()).map(|r| u64::from(r.bytes)).sum(),
    };
    let mut run = Run {
        plan,
        environment: Environment {
            commit: "0123456789ab".to_owned(),
            kernel: "6.12.0".to_owned(),
            cpu: "made up".to_owned(),
            cores: 2,
            freshwire: "0.1.0".to_owned(),
            command: "freshwire-lab layers --matrix thesis".to_owned(),
        },
        trust: Trust::of(&[]),
        totals,
        sender: SenderStats {
            horizon_max_bytes: 2896,
            horizon_mean_bytes: 1400.5,
            drops,
            ..SenderStats::default()
        },
        records,
        decoded: None,
        metrics: None,
    };
    run.measure().unwrap();
    run
}

pub(crate) fn layers_plan(scheme: &str, link: LinkConfig, windows: u32) -> Plan {
    Plan {
        experiment: Experiment::Layers,
        scheme: scheme.to_owned(),
        congestion: "cubic".to_owned(),
        framing: "raw".to_owned(),
        link,
        source: Source::Layers { layers: 8, record_bytes: 16384, window_ms: 1000, per_layer: 1 },
        deadline_ms: 1000.0,
        duration_s: f64::from(windows),
    }
}

/// An offered record of the layered source, not sent.
pub(crate) fn layer_record(window: u32, layer: u8) -> RecordFate {
    let start_ns = u64::from(window) * 1000 * MS;
    RecordFate {
        seq: u64::from(window) * 8 + u64::from(layer),
        group: window,
        layer,
        bytes: 16384,
        generated_ns: start_ns + u64::from(layer) * 125 * MS,
        deadline_ns: start_ns + 1000 * MS,
        committed_ns: None,
        arrived_ns: None,
        fate: "dropped: deadline".to_owned(),
        refs: Vec::new(),
        picture: None,
    }
}

impl RecordFate {
    pub(crate) fn sent(mut self, committed_ns: u64, arrived_ns: Option<u64>) -> Self {
        self.committed_ns = Some(committed_ns);
        self.arrived_ns = arrived_ns;
        self.fate = "sent".to_owned();
        self
    }
}

/// Five windows of eight layers on a link of 512 Kibit/s without loss. `tcp` sends all of it in order and
/// falls behind; every other scheme sends the lowest layers of each window while they fit.
pub(crate) fn layers_run(scheme: &str, seed: u64) -> Run {
    layers_run_on(scheme, link(Some(524_288), 0.0, 0.0), seed, 5)
}

/// The same on any link, with some chance in it.
pub(crate) fn layers_run_on(scheme: &str, mut link: LinkConfig, seed: u64, windows: u32) -> Run {
    link.seed = seed;
    let mut random = Random::new(seed);
    let capacity = link.rate_bps.map_or(1e12, |rate| rate as f64 * (1.0 - link.loss) * 1448.0 / 1500.0);
    let record_ns = (16384.0 * 8.0 / capacity * 1e9) as u64;
    let mut free_ns = 0;
    let mut records = Vec::new();
    for window in 0..windows {
        for layer in 0..8 {
            let record = layer_record(window, layer);
            let start_ns = record.generated_ns.max(free_ns);
            let jitter_ns = if link.loss > 0.0 { random.below(60) * MS } else { 0 };
            let end_ns = start_ns + record_ns;
            let late = end_ns + jitter_ns + link.delay_ns() > record.deadline_ns;
            let waits = scheme != "tcp";
            let skipped = scheme == "thesis-improper" && (2..6).contains(&layer) && random.below(10) < 8;
            if waits && (late || skipped) {
                records.push(record);
                continue;
            }
            free_ns = end_ns;
            let arrived_ns = end_ns + jitter_ns + link.delay_ns();
            records.push(record.sent(start_ns, Some(arrived_ns)));
        }
    }
    run(layers_plan(scheme, link, windows), records)
}

/// Ten seconds of 30 frames a second, I P P ... in groups of 30, on a link that dips from 6 to 1 Mbit/s and
/// back. `tcp` sends every frame and falls behind; every other scheme drops a group's tail when it would be
/// late.
pub(crate) fn frames_run(scheme: &str, seed: u64) -> Run {
    let mut link = link(Some(6_000_000), 0.0, 0.0);
    link.seed = seed;
    let step =
        |at_s: u64, rate_bps| super::schema::RateStep { at_ns: at_s * 1000 * MS, rate_bps: Some(rate_bps) };
    link.steps = vec![step(3, 1_000_000), step(6, 6_000_000)];
    let mut random = Random::new(seed);
    let (mut free_ns, mut broken) = (0_u64, false);
    let mut records = Vec::new();
    for seq in 0..300_u64 {
        let generated_ns = seq * 33_333_333;
        let first = seq % 30 == 0;
        let bytes = if first { 60_000 } else { 13_000 + random.below(4000) as u32 };
        let rate = if (3..6).contains(&(generated_ns / (1000 * MS))) { 1e6 } else { 6e6 };
        let start_ns = generated_ns.max(free_ns);
        let end_ns = start_ns + (f64::from(bytes) * 8.0 / rate * 1e9) as u64;
        let deadline_ns = generated_ns + 300 * MS;
        broken = if first { end_ns > deadline_ns } else { broken || end_ns > deadline_ns };
        let record = RecordFate {
            seq,
            group: (seq / 30) as u32,
            layer: u8::from(!first),
            bytes,
            generated_ns,
            deadline_ns,
            committed_ns: None,
            arrived_ns: None,
            fate: "dropped: predicted late".to_owned(),
            refs: if first { Vec::new() } else { vec![seq - 1] },
            picture: None,
        };
        if scheme != "tcp" && broken {
            records.push(record);
        } else {
            free_ns = end_ns;
            records.push(record.sent(start_ns, Some(end_ns)));
        }
    }
    let plan = Plan {
        experiment: Experiment::Frames,
        scheme: scheme.to_owned(),
        congestion: "cubic".to_owned(),
        framing: "raw".to_owned(),
        link,
        source: Source::Frames { fps: 30.0, mean_rate_bps: 4_000_000, gop: 30 },
        deadline_ms: 300.0,
        duration_s: 10.0,
    };
    run(plan, records)
}

/// A second of 25 pictures in two spatial layers, each record on its way for 10 ms if it is `sent`.
pub(crate) fn video_run(order: Order, sent: impl Fn(u64) -> bool) -> Run {
    let record = |seq: u64| {
        let (picture, spatial) = (seq / 2, (seq % 2) as u8);
        let captured_ns = picture * 40 * MS;
        let below = (spatial > 0).then(|| seq - 1);
        let record = RecordFate {
            seq,
            group: 0,
            layer: spatial,
            bytes: 2000 * (1 + u32::from(spatial)),
            generated_ns: captured_ns,
            deadline_ns: captured_ns + 300 * MS,
            committed_ns: None,
            arrived_ns: None,
            fate: "dropped: expired".to_owned(),
            refs: below.into_iter().chain(seq.checked_sub(2)).collect(),
            picture: Some(picture as u32),
        };
        if sent(seq) { record.sent(captured_ns, Some(captured_ns + 10 * MS)) } else { record }
    };
    let plan = Plan {
        experiment: Experiment::Video,
        scheme: "freshwire".to_owned(),
        congestion: "cubic".to_owned(),
        framing: "raw".to_owned(),
        link: link(Some(1_000_000), 0.0, 0.0),
        source: Source::Video {
            clip: "bikes".to_owned(),
            rate_bps: 1_200_000,
            fps: 25.0,
            order,
            window_ms: 1000,
            layers: vec![(0, 0), (1, 0)],
        },
        deadline_ms: 300.0,
        duration_s: 1.0,
    };
    let mut run = run(plan, (0..50).map(record).collect());
    run.decoded = Some(Decoded { pictures: 25, differing: 0, ssim_mean: 0.97, ssim_p5: 0.93 });
    run
}
