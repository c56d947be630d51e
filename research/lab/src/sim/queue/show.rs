//! The study as tables.

use super::study::{Curve, INTERVALS, Overflows, Study, Takes};
use crate::table::{Table, percent};

/// Every table, one after the other.
pub(super) fn report(study: &Study) -> String {
    let tables = [
        lengths(study),
        regression(study),
        readings(study),
        curves(&study.curves),
        overflows(&study.figure_9),
        takes(&study.figure_12),
        processes(study),
    ];
    tables.iter().map(Table::to_terminal).collect::<Vec<_>>().join("\n")
}

pub(super) fn lengths(study: &Study) -> Table {
    let rows = study.table_2.iter().map(|cell| {
        vec![
            ticks(cell.interval),
            ticks(cell.delay),
            format!("{:.2}", cell.published),
            format!("{:.2} ± {:.2}", cell.mean, cell.error),
            format!("{:+.2}", cell.mean - cell.published),
            format!("{:.2}", cell.time_mean),
        ]
    });
    let caption = format!(
        "Table 2: mean length of the socket buffer in packets, {} experiments from seed {}; RMS {:.2}",
        study.repetitions,
        study.seed,
        study.rms()
    );
    Table::new(caption, 2, "interval | delay | published | ours ± std. error | off by | ours over time", rows)
}

pub(super) fn regression(study: &Study) -> Table {
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let rows =
        study.regression.iter().map(|row| vec![row.factor.to_owned(), share(row.published), share(row.ours)]);
    Table::new("Section 5.3: share of the variation of table 2", 1, "factor | published | ours", rows)
}

pub(super) fn readings(study: &Study) -> Table {
    let rows = study.readings.iter().map(|fit| {
        vec![fit.reading.to_owned(), format!("{:.2}", fit.rms), format!("{:.2}", fit.rms_over_time)]
    });
    let caption = "What a transaction is of: distance from table 2 (RMS, packets)";
    Table::new(caption, 1, "reading | over observations | over time", rows)
}

pub(super) fn curves(curves: &[Curve]) -> Table {
    let rows = curves.iter().map(|curve| {
        let published = match curve.figure {
            "3" => "2",
            "11a" => "some",
            _ => "0",
        };
        vec![
            curve.figure.to_owned(),
            ticks(curve.delay),
            if curve.push { "yes" } else { "no" }.to_owned(),
            published.to_owned(),
            curve.overflows.to_string(),
            format!("{:.2}", curve.mean_overflows),
            format!("{:.1}", curve.mean_refused),
            format!("{:.1}", curve.mean_length),
            curve.pushes.to_string(),
        ]
    });
    let caption =
        "Figures 3, 10, 11: overflows at an interval of 2 (first seed, and means of all repetitions)";
    let head = "figure | delay | push | published | first seed | mean | packets lost | mean length | pushes";
    Table::new(caption, 1, head, rows)
}

pub(super) fn overflows(cells: &[Overflows]) -> Table {
    let intervals = INTERVALS.map(|interval| format!("interval {interval}"));
    let delays = cells.iter().filter(|cell| cell.interval == INTERVALS[0]).map(|cell| cell.delay);
    let rows = delays.map(|delay| {
        let row: Vec<&Overflows> = cells.iter().filter(|cell| cell.delay == delay).collect();
        let most = row.iter().map(|cell| cell.refused_with_push).fold(0.0, f64::max);
        let numbers = row.iter().map(|cell| cell.refused).chain([most]).map(|number| format!("{number:.1}"));
        [ticks(delay)].into_iter().chain(numbers).collect()
    });
    let caption = "Figure 9: packets that a full socket buffer refused";
    Table::new(caption, 1, &format!("delay | {} | most with push", intervals.join(" | ")), rows)
}

pub(super) fn takes(rows: &[Takes]) -> Table {
    let rows = rows.iter().map(|row| {
        let counts = row.plain.into_iter().chain(row.push).map(|count| format!("{count:.2}"));
        let mut cells: Vec<String> = [row.buffer.to_string()].into_iter().chain(counts).collect();
        let [plain, push] = row.drops().map(|drop| format!("{:.1} %", drop * 100.0));
        cells.insert(3, plain);
        cells.push(push);
        cells.push(row.at_most_published.map(|share| format!("{:.0} %", share * 100.0)).join(", "));
        cells
    });
    let caption = "Figure 12: times at which the program gets packets; the longer delay costs 88.2 % and 16.7 % as published";
    let head = "buffer | UNIX, delay 5 | delay 10 | less by | push, delay 5 | delay 10 | less by | single experiments that lose no more";
    Table::new(caption, 1, head, rows)
}

pub(super) fn processes(study: &Study) -> Table {
    let rows = study.processes.iter().map(|row| {
        let idle = percent(row.idle_ticks / study.setting.length_ticks);
        let [first, even] = row.taken.map(|taken| format!("{taken:.1}"));
        vec![row.processes.to_string(), format!("{:.2}", row.idle_ticks), idle, first, even]
    });
    let caption = "The number of processes: idle time, and packets taken in it";
    Table::new(caption, 1, "processes | idle ticks | share | all for one socket | spread evenly", rows)
}

fn ticks(ticks: f64) -> String {
    format!("{ticks}")
}
