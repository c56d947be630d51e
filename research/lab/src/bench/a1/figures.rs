//! Figures 2 and 3 of the A1 document, drawn again from what was measured.

use plotters::style::RGBColor;

use super::{A1_STREAM, Figures, LINK, LOOPBACK, PLAIN_A1, SIZES, name};
use crate::bench::machine::Machine;
use crate::bench::series::{Report, Spread};
use crate::report::axis_end;
use crate::report::chart::{LineChart, Series, line_chart};
use crate::report::html::{Figure, Section, escape, figures, page, paragraph};
use crate::report::palette::{BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILLION, YELLOW};

/// The page, as HTML.
pub(in crate::bench) fn html(machine: &Machine, report: &Report) -> anyhow::Result<String> {
    let place = |(heading, figures): (&str, &Figures)| section(heading, figures, machine, report);
    let sections = [("Loopback", &LOOPBACK), ("A link of 100 Mbit/s", &LINK)].map(place);
    let sections = sections.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.body.is_empty()).collect();
    Ok(page("A1 beside datagrams, TCP and QUIC", &escape(LEAD), &sections, &machine.text()))
}

fn section(heading: &str, place: &Figures, machine: &Machine, report: &Report) -> anyhow::Result<Section> {
    let drawn = [
        (Some(place.throughput), SIZES[0], "MB/s", 1e-6),
        // The cost of a few bytes would leave no room for the rest.
        (place.cost, 1 << 10, "s/GB", 1.0),
        (Some(place.latency), SIZES[0], "us", 1e-3),
    ];
    let drawn = drawn.into_iter().filter_map(|(bench, from, unit, scale)| {
        let mut series = series(place, bench?, from, scale, report);
        let highest = series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).fold(0.0, f64::max);
        let end = axis_end(highest);
        // One repetition that was disturbed shall not hide all others.
        series.iter_mut().flat_map(|series| &mut series.band).for_each(|(.., most)| *most = most.min(end));
        let title = bench?.to_owned();
        let chart = LineChart::new(("block, KiB", 16.0), (unit, end), series, Vec::new());
        (highest > 0.0).then(|| {
            let drawing = line_chart(&title, &chart)?;
            let (caption, command) = (CAPTION.to_owned(), machine.command.clone());
            Ok(Figure { title, drawing, caption, command })
        })
    });
    let drawn = drawn.collect::<anyhow::Result<Vec<_>>>()?;
    let body = if drawn.is_empty() { String::new() } else { paragraph(place.about) + &figures(&drawn) };
    Ok(Section { heading: heading.to_owned(), body })
}

/// A curve for each subject, in the order of the table, for blocks of at least `from` bytes.
fn series(place: &Figures, bench: &str, from: usize, scale: f64, report: &Report) -> Vec<Series> {
    let curves = place.subjects().map(|(_, label)| {
        let spreads = SIZES.into_iter().filter(|block| *block >= from).filter_map(|block| {
            let measured = &report.series[report.place(bench, &name(label, block))?];
            Some((block as f64 / 1024.0, Spread::of(&measured.samples)))
        });
        let spreads: Vec<(f64, Spread)> = spreads.collect();
        Series {
            name: label.to_owned(),
            colour: colour(label),
            points: spreads.iter().map(|(at, spread)| (*at, spread.median * scale)).collect(),
            band: spreads.iter().map(|(at, spread)| (*at, spread.min * scale, spread.max * scale)).collect(),
        }
    });
    curves.collect()
}

fn colour(label: &str) -> RGBColor {
    match label {
        "TCP" => VERMILLION,
        "QUIC" => PURPLE,
        "A1" => GREEN,
        A1_STREAM => BLUE,
        PLAIN_A1 => ORANGE,
        "A1, no retransmission" => SKY,
        "A1, from a ring" => GREY,
        "A1, datagrams of 1472 B" => YELLOW,
        _ => INK,
    }
}

const LEAD: &str = "Throughput and latency against the size of a block, as in figures 2 and 3 of the A1 document. A1 and \
                    QUIC are encrypted unless a curve says otherwise; datagrams and TCP are not.";
const CAPTION: &str = "Lines are medians of the repetitions, bands smallest to largest as far as they fit. Repetitions of all curves take turns.";

#[cfg(test)]
mod tests {
    use super::super::tests::report_of;
    use super::*;
    use crate::report::palette::css;

    #[test]
    fn every_curve_is_drawn_and_named() {
        let html = html(&Machine::look(), &report_of(&LOOPBACK)).unwrap();
        assert_eq!(html.matches("<svg").count(), 3, "throughput, cost and latency");
        for (_, label) in LOOPBACK.subjects() {
            assert_eq!(html.matches(&format!("{label}</li>")).count(), 3, "{label}");
        }
        assert!(!html.contains("100 Mbit/s"), "nothing was measured there");
    }

    #[test]
    fn no_two_curves_have_the_same_colour() {
        let mut colours: Vec<_> = LOOPBACK.subjects().map(|(_, label)| css(colour(label))).collect();
        colours.sort();
        let count = colours.len();
        colours.dedup();
        assert_eq!(colours.len(), count);
    }
}
