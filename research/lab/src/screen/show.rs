//! Runs as a table, as a line, and as a page with pictures side by side.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use freshwire_record::Rate;

use super::decode;
use super::metrics;
use super::run::{STILLS_FOLDER, camera_name, picture_name};
use super::schema::{Metrics, Plan, Run, Screen, StreamId};
use super::scheme::Scheme;
use super::source::Source;
use crate::cells::{Plan as _, counted, groups, link_label};
use crate::metrics::Spread;
use crate::report::chart::{LineChart, Series, line_chart};
use crate::report::html::{self, Figure, Image, Section};
use crate::report::palette::{BLUE, GREEN, INK, ORANGE, VERMILLION};
use crate::table::{Table, percent, time, with_range};

/// A prepared stream in a line.
pub(super) fn stream(id: &StreamId, source: &Source) -> String {
    let keys: Vec<usize> =
        source.pictures.iter().filter(|picture| picture.key).map(|picture| picture.bytes.len()).collect();
    let mean = keys.iter().sum::<usize>() as f64 / keys.len().max(1) as f64;
    format!(
        "{}: {}/s, {} pictures, {} keyframes of {:.0} kB in the mean",
        id.name,
        Rate::from_bits_per_sec(id.rate_bps / 1000 * 1000),
        source.pictures.len(),
        keys.len(),
        mean / 1e3
    )
}

/// The distinguishing name of a run.
pub(super) fn describe(plan: &Plan) -> String {
    format!("{}, {}, {}, seed {}", plan.stream.name, link(plan), plan.scheme.label(), plan.link.seed)
}

/// A run in a line.
pub(super) fn in_short(run: &Run) -> String {
    let trust = run.trust.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let Some(Metrics { screen, .. }) = run.metrics else { return describe(&run.plan) };
    format!(
        "{}: age {} mean, {} p95; {:.1} pictures/s; frozen {:.1} s{trust}",
        describe(&run.plan),
        time(screen.age_mean_s * 1e9),
        time(screen.age_p95_s * 1e9),
        screen.pictures_per_s,
        screen.frozen_s
    )
}

/// The link with its share of the stream's rate.
fn link(plan: &Plan) -> String {
    let share = plan.link.rate_bps.map_or(0.0, |rate| rate as f64 / plan.stream.rate_bps.max(1) as f64);
    format!("{} of the stream: {}", percent(share), link_label(&plan.link))
}

/// One row for all repetitions of a stream, link and scheme, and one for the oracle.
pub(super) fn table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for same_link in groups(runs, |a, b| cell(a) == cell(b)) {
        for group in groups(same_link.iter().copied(), |a, b| a.scheme == b.scheme) {
            rows.push(row(&group));
        }
        rows.push(oracle_row(&same_link));
    }
    let mut table = Table::new(
        "Age of the screen: now minus the capture of the newest picture that can be decoded. Frozen: time in which the \
                  picture had stood for more than 0.5 s.\nCost: the live policy's objective. SSIM: against the camera at the \
                  same instant. Differing: decoded to other bits than in the whole stream.\n(median [min .. max] over runs)",
        3,
        "stream | link | sender | N | age | age p95 | pictures/s | frozen | freezes | longest | cost | link used | SSIM | sound | \
         differing | torn",
        rows,
    );
    // The oracle's rows are shorter.
    table.rows.iter_mut().for_each(|row| row.resize(table.head.len(), String::new()));
    table
}

fn row(group: &[&Run]) -> Vec<String> {
    let plan = &group[0].plan;
    let counted = counted(group.to_vec());
    let spread = |pick: &dyn Fn(&Run) -> Option<f64>, show: fn(f64) -> String| {
        with_range(Spread::of(counted.iter().filter_map(|run| pick(run))), show)
    };
    let sound = |run: &Run| run.sound.map(|sound| sound.arrived as f64 / sound.offered.max(1) as f64);
    let mut row = vec![plan.stream.name.clone(), link(plan), plan.scheme.label(), counted.len().to_string()];
    row.extend(screen_cells(&counted, |metrics| metrics.screen));
    row.extend([
        spread(&|run| Some(run.metrics.as_ref()?.link_used), percent),
        spread(&|run| Some(run.decoded.ssim_mean), |ssim| format!("{ssim:.3}")),
        spread(&sound, percent),
        spread(&|run| Some(run.decoded.differing as f64), whole),
        spread(&|run| Some(run.decoded.torn as f64), whole),
    ]);
    row
}

fn oracle_row(group: &[&Run]) -> Vec<String> {
    let plan = &group[0].plan;
    // The oracle of each seed is the same: it knows neither the losses nor the sender.
    let first = &group[..1];
    let mut row = vec![plan.stream.name.clone(), link(plan), "the oracle".to_owned(), String::new()];
    row.extend(screen_cells(first, |metrics| metrics.oracle));
    row
}

fn screen_cells(runs: &[&Run], of: fn(&Metrics) -> Screen) -> [String; 7] {
    let spread = |pick: fn(Screen) -> f64, show: fn(f64) -> String| {
        let values = runs.iter().filter_map(|run| Some(pick(of(run.metrics.as_ref()?))));
        with_range(Spread::of(values), show)
    };
    [
        spread(|screen| screen.age_mean_s * 1e9, time),
        spread(|screen| screen.age_p95_s * 1e9, time),
        spread(|screen| screen.pictures_per_s, |rate| format!("{rate:.1}")),
        spread(|screen| screen.frozen_s * 1e9, time),
        spread(|screen| screen.freezes as f64, whole),
        spread(|screen| screen.longest_gap_s * 1e9, time),
        spread(|screen| screen.cost, |cost| format!("{cost:.2}")),
    ]
}

fn whole(count: f64) -> String {
    format!("{count:.0}")
}

/// The pictures, the age over time, and all numbers, as one page.
pub(super) fn html(runs: &[Run], folder: &Path) -> anyhow::Result<String> {
    let command = &runs[0].environment.command;
    let (mut figures, mut grids) = (Vec::new(), String::new());
    for of_stream in groups(runs, |a, b| a.stream == b.stream) {
        let links = groups(of_stream.iter().copied(), |a, b| cell(a) == cell(b));
        for same in &links {
            figures.push(age(same, command)?);
        }
        // A page of all pictures would be too large; the others are in the folder.
        if let Some(same) = links.get(links.len() / 2) {
            grids += &pictures(same, folder);
        }
    }
    let sections = [
        Section {
            heading: "The same instants".to_owned(),
            body: html::paragraph(
                "Each column is one instant, as the camera and the viewers saw it, on the middle one of the links of each \
                 stream; those of all runs are in the folder stills.",
            ) + &grids,
        },
        Section {
            heading: "Age of what is on the screen".to_owned(),
            body: html::paragraph(
                "Now minus the capture of the newest picture that can be decoded. The screen is empty at the begin.",
            ) + &html::figures(&figures),
        },
        Section { heading: "All numbers".to_owned(), body: html::table(&table(runs), command, |_, _| None) },
    ];
    let lead = format!("<p class=\"soft\">{} runs.</p>\n", runs.len());
    Ok(html::page("On the screen", &lead, &sections, &runs[0].environment.line()))
}

/// The camera and the first run of each scheme.
fn pictures(same: &[&Run], folder: &Path) -> String {
    let plan = &same[0].plan;
    let folder = folder.join(STILLS_FOLDER);
    let images = |name: &str, run: Option<&Run>| -> Vec<Image> {
        let path = folder.join(name);
        let window = same[0].window;
        let image = |(number, at_ns): (usize, u64)| Image {
            data_uri: std::fs::read(decode::still(&path, number))
                .ok()
                .map(|jpeg| format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(jpeg))),
            caption: caption(run, at_ns, window.begin_ns),
        };
        decode::stills(window).enumerate().map(image).collect()
    };
    let mut rows = vec![("the camera".to_owned(), images(&camera_name(plan), None))];
    for run in firsts(same) {
        rows.push((run.plan.scheme.label(), images(&picture_name(&run.plan), Some(run))));
    }
    format!("<h3>{}</h3>\n", html::escape(&format!("{}, {}", plan.stream.name, link(plan))))
        + &html::image_grid(&rows)
}

fn caption(run: Option<&Run>, at_ns: u64, begin_ns: u64) -> String {
    let at = format!("{:.1} s", (at_ns - begin_ns) as f64 / 1e9);
    let Some(run) = run else { return at };
    let stretches = metrics::stretches(&metrics::shown(&run.pictures), run.window);
    let now = stretches.iter().find(|(from, to, _)| (*from..*to).contains(&at_ns));
    match now {
        Some((_, _, captured_ns)) => format!("{at}: {:.1} s old", (at_ns - captured_ns) as f64 / 1e9),
        None => at,
    }
}

/// The first run of each scheme.
fn firsts<'a>(runs: &[&'a Run]) -> Vec<&'a Run> {
    groups(runs.iter().copied(), |a, b| a.scheme == b.scheme).into_iter().map(|group| group[0]).collect()
}

fn age(runs: &[&Run], command: &str) -> anyhow::Result<Figure> {
    let plan = &runs[0].plan;
    let series: Vec<Series> = firsts(runs).into_iter().map(series).collect();
    let oldest =
        series.iter().flat_map(|series| series.points.iter().map(|(_, age)| *age)).fold(1.0, f64::max);
    let chart = LineChart::new(
        ("time, s", plan.skip_s + plan.duration_s),
        ("age, s", (oldest * 1.05).ceil()),
        series,
        Vec::new(),
    );
    let title = format!("{}, {}", plan.stream.name, link(plan));
    Ok(Figure {
        drawing: line_chart(&format!("Age of the screen, {title}"), &chart)?,
        caption: "The first run of each sender.".to_owned(),
        command: command.to_owned(),
        title,
    })
}

fn series(run: &Run) -> Series {
    let since = |ns: u64| ns.saturating_sub(run.window.begin_ns) as f64 / 1e9;
    let stretches = metrics::stretches(&metrics::shown(&run.pictures), run.window);
    let points = stretches.iter().flat_map(|&(from, to, captured_ns)| {
        [from, to].map(|at| (since(at), at.saturating_sub(captured_ns) as f64 / 1e9))
    });
    Series {
        name: run.plan.scheme.label(),
        colour: match run.plan.scheme {
            Scheme::Freshwire => BLUE,
            Scheme::Deadline(latency) if latency.as_millis() < 1000 => ORANGE,
            Scheme::Deadline(_) => GREEN,
            Scheme::Tcp => VERMILLION,
            Scheme::Gstreamer => INK,
        },
        points: points.collect(),
        band: Vec::new(),
    }
}

/// The common part of plans over the same link.
fn cell(plan: &Plan) -> Plan {
    Plan { scheme: Scheme::Freshwire, ..plan.cell() }
}
