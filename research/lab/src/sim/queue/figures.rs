//! The study as one HTML page.

use super::show;
use super::study::{Curve, INTERVALS, Study};
use crate::report::axis_end;
use crate::report::chart::{Axis, LineChart, Reference, Series, line_chart};
use crate::report::html::{Figure, Section, figures, page as html_page, paragraph, table};
use crate::report::palette::{BLUE, GREEN, ORANGE, VERMILLION};

/// The whole report.
pub(super) fn page(study: &Study) -> anyhow::Result<String> {
    let command = format!("freshwire-lab sim queue --seed {} --repeat {}", study.seed, study.repetitions);
    let curves = study.curves.iter().map(|curve| over_time(study, curve, &command));
    let curves = curves.collect::<anyhow::Result<Vec<_>>>()?;
    let plain = |table_of| table(&table_of, &command, |_, _| None);
    let sections = [
        Section {
            heading: "Length of the buffer".to_owned(),
            body: plain(show::lengths(study))
                + &plain(show::regression(study))
                + &plain(show::readings(study)),
        },
        Section {
            heading: "The buffer over time".to_owned(),
            body: figures(&curves) + &plain(show::curves(&study.curves)),
        },
        Section {
            heading: "Overflows".to_owned(),
            body: figures(&[refusals(study, &command)?]) + &plain(show::overflows(&study.figure_9)),
        },
        Section {
            heading: "Throughput of the program".to_owned(),
            body: figures(&[throughput(study, &command)?]) + &plain(show::takes(&study.figure_12)),
        },
        Section { heading: "Number of processes".to_owned(), body: plain(show::processes(study)) },
    ];
    let lead = paragraph(
        "The simulation of Choi, Kim and Yoo, \"Self-prevention of socket buffer overflow\" (2007), ours beside what they published.",
    );
    let setting = &study.setting;
    let footer = format!(
        "NIC queue {}, socket buffers {}, {} processes, {} ticks; transactions: {}; recv() {} ticks, {} packets; push {} ticks",
        setting.nic_packets,
        setting.socket_packets,
        setting.processes,
        setting.length_ticks,
        setting.reading,
        setting.recv_ticks,
        setting.recv_packets,
        setting.push_ticks
    );
    Ok(html_page("The receive queue", &lead, &sections, &footer))
}

fn over_time(study: &Study, curve: &Curve, command: &str) -> anyhow::Result<Figure> {
    let size = study.setting.socket_packets as f64;
    // A buffer keeps its length until the next observation.
    let (mut points, mut last) = (vec![(0.0, 0.0)], 0.0);
    for (at, length) in &curve.points {
        points.push((*at, last));
        last = *length as f64;
        points.push((*at, last));
    }
    points.push((study.setting.length_ticks, last));
    let (system, colour) = if curve.push { ("packet push", BLUE) } else { ("UNIX", VERMILLION) };
    let chart = LineChart {
        x: Axis { label: "time (ticks)".to_owned(), from: 0.0, to: study.setting.length_ticks },
        y: Axis { label: "socket buffer (packets)".to_owned(), from: 0.0, to: axis_end(size * 1.1) },
        series: vec![Series { name: system.to_owned(), colour, points, band: Vec::new() }],
        references: vec![Reference {
            name: "size of the buffer".to_owned(),
            ends: [(0.0, size), (study.setting.length_ticks, size)],
        }],
    };
    let title = format!("Figure {}: {system}, transactions of {} ticks", curve.figure, curve.delay);
    Ok(Figure {
        drawing: line_chart(&title, &chart)?,
        title,
        caption: format!(
            "Seed {}: {} overflows, {} packets lost, {} pushes. Over {} experiments {:.2} overflows.",
            study.seed, curve.overflows, curve.refused, curve.pushes, study.repetitions, curve.mean_overflows
        ),
        command: command.to_owned(),
    })
}

fn refusals(study: &Study, command: &str) -> anyhow::Result<Figure> {
    let colours = [VERMILLION, ORANGE, GREEN, BLUE];
    let series = INTERVALS.into_iter().zip(colours).map(|(interval, colour)| {
        let cells = study.figure_9.iter().filter(|cell| cell.interval == interval);
        let points = cells.map(|cell| (cell.delay, cell.refused)).collect();
        Series { name: format!("interval {interval}"), colour, points, band: Vec::new() }
    });
    let longest = study.figure_9.iter().map(|cell| cell.delay).fold(0.0, f64::max);
    let most = study.figure_9.iter().map(|cell| cell.refused).fold(0.0, f64::max);
    let with_push = study.figure_9.iter().map(|cell| cell.refused_with_push).fold(0.0, f64::max);
    let chart = LineChart::new(
        ("transaction delay (ticks)", longest),
        ("packets refused", axis_end(most)),
        series.collect(),
        Vec::new(),
    );
    let title = "Figure 9: overflows by arrival interval and transaction delay".to_owned();
    Ok(Figure {
        drawing: line_chart(&title, &chart)?,
        title,
        caption: format!("With packet push at most {with_push:.1} in any of these settings."),
        command: command.to_owned(),
    })
}

fn throughput(study: &Study, command: &str) -> anyhow::Result<Figure> {
    let named = [
        ("UNIX, delay 5", VERMILLION, false, 0),
        ("UNIX, delay 10", ORANGE, false, 1),
        ("push, delay 5", BLUE, true, 0),
        ("push, delay 10", GREEN, true, 1),
    ];
    let series = named.map(|(name, colour, push, place)| {
        let takes = study.figure_12.iter();
        let count = |row: &super::study::Takes| if push { row.push[place] } else { row.plain[place] };
        let points = takes.map(|row| (row.buffer as f64, count(row))).collect();
        Series { name: name.to_owned(), colour, points, band: Vec::new() }
    });
    let highest = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max);
    let widest = study.figure_12.iter().map(|row| row.buffer).max().unwrap_or(1);
    let chart = LineChart::new(
        ("buffer of the program (packets)", widest as f64),
        ("takes", axis_end(highest)),
        series.to_vec(),
        Vec::new(),
    );
    let title = "Figure 12: how often the program gets packets".to_owned();
    Ok(Figure {
        drawing: line_chart(&title, &chart)?,
        title,
        caption: "By recv(), or by a push, in 300 ticks.".to_owned(),
        command: command.to_owned(),
    })
}
