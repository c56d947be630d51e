//! The demo's report: one HTML file with everything in it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::metrics::ages;
use super::quality::Still;
use super::result::{Demo, Viewing, link_text, seconds};
use super::video::Stream;
use super::wire::{LAYERS, Scheme};
use crate::report::chart::{
    Axis, BarChart, Bars, LineChart, Mark, Reference, Scatter, Series, bar_chart, line_chart, scatter,
};
use crate::report::html::{
    Figure, Image, Number, Section, escape, figures, image_grid, numbers, page, paragraph, table,
};
use crate::report::palette::{BLUE, GREEN, VERMILLION};

/// The same instants, as each viewer and the camera saw them.
pub(super) struct Stills {
    /// Seconds since the start.
    pub(super) instants_s: Vec<f64>,
    /// The camera at that instant.
    pub(super) camera: Vec<Still>,
    /// The viewers, in the order of the result: how old the picture is in seconds, and the picture.
    pub(super) viewers: Vec<Vec<(f64, Still)>>,
}

/// The page.
pub(super) fn html(demo: &Demo, stream: &Stream, stills: &Stills) -> anyhow::Result<String> {
    let lead = format!(
        "<p>The same live H.264 stream ({:.0} kbit/s) went to three viewers over the same emulated link ({}): by \
         plain TCP, by Freshwire over TCP, and by Freshwire over A1. The first two receivers are ordinary TCP programs.</p>\n{}",
        demo.stream_kbit,
        escape(&link_text(&demo.link)),
        numbers(&headline(demo))
    );
    let command = &demo.environment.command;
    let mut sections = vec![
        Section { heading: "What each viewer saw".to_owned(), body: pictures(stills) },
        Section { heading: "How it went".to_owned(), body: over_time(demo, stream)? },
        Section { heading: "Numbers".to_owned(), body: table(&demo.table(), command, |_, _| None) },
        Section {
            heading: "How it was measured".to_owned(),
            body: METHOD.iter().copied().map(paragraph).collect(),
        },
    ];
    let faults = demo.faults();
    if !faults.is_empty() {
        let text = format!("These numbers are not exact: {}.", faults.join("; "));
        sections[0].body.insert_str(0, &format!("<p class=\"notice\">{}</p>\n", escape(&text)));
    }
    let footer = format!("{}, seed {}. Made by: {command}", demo.environment.line(), demo.link.seed);
    Ok(page("Live video over a bad link", &lead, &sections, &footer))
}

fn headline(demo: &Demo) -> Vec<Number> {
    let mut all = Vec::new();
    for viewing in &demo.viewers {
        let label = viewing.outcome.scheme.label();
        all.push(Number {
            value: seconds(viewing.metrics.age_p95_s),
            meaning: format!("{label}: age of the picture, 95th percentile"),
        });
        all.push(Number {
            value: format!("{:.2}", viewing.quality.ssim_mean),
            meaning: format!("{label}: likeness (SSIM) to what should be on the screen"),
        });
    }
    all
}

fn pictures(stills: &Stills) -> String {
    let image = |picture: &Still, caption: String| Image {
        data_uri: picture
            .as_ref()
            .map(|jpeg| format!("data:image/jpeg;base64,{}", BASE64_STANDARD.encode(jpeg))),
        caption,
    };
    let now = stills.camera.iter().zip(&stills.instants_s);
    let mut rows =
        vec![("the camera".to_owned(), now.map(|(still, at)| image(still, format!("{at:.1} s"))).collect())];
    for (scheme, pictures) in Scheme::ALL.iter().zip(&stills.viewers) {
        let then = pictures.iter().zip(&stills.instants_s);
        let images = then.map(|((age_s, still), at)| image(still, format!("{at:.1} s: {age_s:.1} s old")));
        rows.push((scheme.label().to_owned(), images.collect::<Vec<_>>()));
    }
    paragraph("Each column is one instant, as the camera and the viewers saw it.") + &image_grid(&rows)
}

fn over_time(demo: &Demo, stream: &Stream) -> anyhow::Result<String> {
    let duration_s = stream.duration().as_secs_f64();
    let x = |label: &str| Axis { label: label.to_owned(), from: 0.0, to: duration_s };
    let age_series = demo.viewers.iter().map(|viewing| series(viewing, ages(stream, &viewing.outcome.shown)));
    let age_series: Vec<Series> = age_series.collect();
    let oldest = age_series.iter().flat_map(|one| one.points.iter().map(|(_, age)| *age)).fold(1.0, f64::max);
    let deadline_s = demo.deadline_ms as f64 / 1e3;
    let age = LineChart {
        x: x("time, s"),
        y: Axis { label: "age of the picture, s".to_owned(), from: 0.0, to: (oldest * 1.05).ceil() },
        series: age_series,
        references: vec![Reference {
            name: "deadline".to_owned(),
            ends: [(0.0, deadline_s), (duration_s, deadline_s)],
        }],
    };
    let ssim = LineChart {
        x: x("time, s"),
        y: Axis { label: "SSIM, mean of a second".to_owned(), from: 0.0, to: 1.0 },
        series: demo
            .viewers
            .iter()
            .map(|viewing| series(viewing, by_second(&viewing.quality.ssim, demo.fps)))
            .collect(),
        references: Vec::new(),
    };
    let latest = demo.viewers.iter().flat_map(arrivals_s(demo)).map(|(_, at)| at).fold(duration_s, f64::max);
    let marks = demo.viewers.iter().map(|viewing| Mark {
        name: viewing.outcome.scheme.label().to_owned(),
        colour: colour(viewing.outcome.scheme),
        points: arrivals_s(demo)(viewing),
    });
    let line = |buffer_s: f64, name: &str| Reference {
        name: name.to_owned(),
        ends: [(0.0, buffer_s), (duration_s, duration_s + buffer_s)],
    };
    let arrival = Scatter {
        x: x("capture of the frame, s"),
        y: Axis { label: "arrival, s".to_owned(), from: 0.0, to: latest + 1.0 },
        marks: marks.collect(),
        references: vec![line(0.0, "no delay"), line(deadline_s, "deadline")],
    };
    let age = line_chart("Age of the picture on the screen over time", &age)?;
    let ssim = line_chart("SSIM over time for all viewers", &ssim)?;
    let arrival = scatter("Arrival against capture time", &arrival)?;
    Ok(figures(&[
        figure(demo, "Age of the picture", age, AGE_CAPTION),
        figure(demo, "Likeness to the original", ssim, SSIM_CAPTION),
        figure(demo, "Arrival against playout", arrival, ARRIVAL_CAPTION),
        layers(demo)?,
    ]))
}

fn figure(demo: &Demo, title: &str, drawing: String, caption: &str) -> Figure {
    Figure {
        title: title.to_owned(),
        drawing,
        caption: caption.to_owned(),
        command: demo.environment.command.clone(),
    }
}

fn layers(demo: &Demo) -> anyhow::Result<Figure> {
    let mut offered = [0_u64; LAYERS];
    for unit in &demo.units {
        offered[usize::from(unit.layer).min(LAYERS - 1)] += 1;
    }
    let bars = demo.viewers.iter().map(|viewing| {
        let mut arrived = [0_u64; LAYERS];
        for arrival in &viewing.outcome.arrivals {
            if let Some(unit) = demo.units.get(arrival.unit) {
                arrived[usize::from(unit.layer).min(LAYERS - 1)] += 1;
            }
        }
        let share = |(&arrived, &offered): (&u64, &u64)| {
            let share = 100.0 * arrived as f64 / offered.max(1) as f64;
            (offered > 0).then_some((share, share, share))
        };
        Bars {
            name: viewing.outcome.scheme.label().to_owned(),
            colour: colour(viewing.outcome.scheme),
            values: arrived.iter().zip(&offered).map(share).collect(),
        }
    });
    let chart = BarChart {
        x_label: "kind of frame".to_owned(),
        categories: LAYER_NAMES.map(str::to_owned).to_vec(),
        y: Axis { label: "arrived, %".to_owned(), from: 0.0, to: 105.0 },
        bars: bars.collect(),
        level: None,
    };
    let drawing = bar_chart("Share of the frames of each kind that arrived", &chart)?;
    Ok(figure(demo, "Frames that arrived, by kind", drawing, LAYERS_CAPTION))
}

fn series(viewing: &Viewing, points: Vec<(f64, f64)>) -> Series {
    Series {
        name: viewing.outcome.scheme.label().to_owned(),
        colour: colour(viewing.outcome.scheme),
        points,
        band: Vec::new(),
    }
}

fn by_second(values: &[f64], fps: u32) -> Vec<(f64, f64)> {
    let mean = |(second, part): (usize, &[f64])| {
        let mean = part.iter().sum::<f64>() / part.len().max(1) as f64;
        (second as f64 + 0.5, mean)
    };
    values.chunks(fps.max(1) as usize).enumerate().map(mean).collect()
}

fn arrivals_s(demo: &Demo) -> impl Fn(&Viewing) -> Vec<(f64, f64)> + '_ {
    |viewing| {
        let point = |arrival: &super::viewer::Arrival| {
            let unit = demo.units.get(arrival.unit)?;
            Some((unit.captured_ns as f64 / 1e9, arrival.at_ns as f64 / 1e9))
        };
        viewing.outcome.arrivals.iter().filter_map(point).collect()
    }
}

fn colour(scheme: Scheme) -> plotters::style::RGBColor {
    match scheme {
        Scheme::PlainTcp => VERMILLION,
        Scheme::Freshwire => BLUE,
        Scheme::A1 => GREEN,
    }
}

const LAYER_NAMES: [&str; LAYERS] = ["I", "P", "B (reference)", "b"];

const AGE_CAPTION: &str = "The time since the camera captured what is on the screen. A steady picture climbs with slope \
    one until the next frame comes.";
const SSIM_CAPTION: &str = "What a player that stays one second behind the camera shows, against the frame that is due. \
    What has not come by then is replaced by the last frame before it. 1 is equal.";
const ARRIVAL_CAPTION: &str = "One point for each frame that arrived whole; frames that were not sent leave gaps. Above \
    the deadline line a frame comes too late.";
const LAYERS_CAPTION: &str = "Plain TCP sends every kind alike, and late. Freshwire leaves out what nothing depends on \
    first.";
const METHOD: [&str; 3] = [
    "Each viewer is in a network namespace of its own, behind the same emulated link with the same seed: two plain TCP \
     readers, and a receiver of A1's messages in their order. A frame counts when its last byte was read and all its bytes are those that the encoder made; a frame that is \
     anything else is torn. Frames are held back as long as the stream's order asks, as ffmpeg does, and shown as soon \
     as their turn has come.",
    "A freeze is a gap between shown frames above max(3 x mean, mean + 150 ms). The received bytes of all viewers were \
     decoded by ffmpeg, which stops at the first error.",
    "The original is the encoder's output, so the encoder's own loss is not counted against any viewer.",
];
