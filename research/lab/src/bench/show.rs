//! The report for a person, and for a program.

use std::fmt::Write as _;

use serde::Serialize;

use super::machine::Machine;
use super::series::{Goal, Grid, Ratio, Report, Series, Spread, Unit};
use crate::output::json_line;
use crate::table::Table;

/// Lines for a terminal, one to a number.
pub(super) fn text(machine: &Machine, report: &Report) -> String {
    let mut benches: Vec<&str> = Vec::new();
    for series in &report.series {
        if !benches.contains(&series.bench) {
            benches.push(series.bench);
        }
    }
    let names = report.series.iter().map(|s| &s.name).chain(report.ratios.iter().map(|r| &r.name));
    // Numbers stand indented below their bench.
    let width = 2 + names.map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{}\n", machine.text());
    for bench in benches {
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "\n{bench:<width$}  {:>12}  range of {}", "median", repetitions(report, bench));
        let mut has_grid = false;
        for grid in report.grids.iter().filter(|grid| grid.bench == bench) {
            has_grid = true;
            text += &table(report, grid);
        }
        for series in report.series.iter().filter(|series| series.bench == bench && !has_grid) {
            let _ = writeln!(
                text,
                "  {}",
                line(&series.name, width - 2, &series.samples, |v| number(v, series.unit))
            );
        }
        for ratio in report.ratios.iter().filter(|ratio| ratio.bench == bench) {
            let _ = write!(text, "  {}", line(&ratio.name, width - 2, &ratio.samples, factor));
            text += &verdict(ratio);
            text.push('\n');
        }
    }
    for note in &report.notes {
        let _ = writeln!(text, "\n{note}");
    }
    text
}

/// Series as a table: the median and the range of each.
fn table(report: &Report, grid: &Grid) -> String {
    let cell = |place: &Option<usize>| {
        let Some(series) = place.map(|place| &report.series[place]) else { return "–".to_owned() };
        let Spread { min, median, max } = Spread::of(&series.samples);
        if series.samples.len() > 1 {
            format!("{} [{}]", number(median, series.unit), range(min, max, series.unit))
        } else {
            number(median, series.unit)
        }
    };
    let row = |(name, places): &(String, Vec<Option<usize>>)| {
        std::iter::once(name.clone()).chain(places.iter().map(cell)).collect()
    };
    let head = std::iter::once(String::new()).chain(grid.columns.iter().cloned()).collect();
    Table { caption: grid.caption.clone(), head, rows: grid.rows.iter().map(row).collect(), labels: 1 }
        .to_terminal()
}

/// Both ends of a range, with the unit once where it is the same.
fn range(min: f64, max: f64, unit: Unit) -> String {
    let (from, to) = (number(min, unit), number(max, unit));
    match (from.split_once(' '), to.split_once(' ')) {
        (Some((low, small)), Some((high, large))) if small == large => format!("{low} .. {high}"),
        _ => format!("{from} .. {to}"),
    }
}

fn repetitions(report: &Report, bench: &str) -> usize {
    let lens = report.series.iter().filter(|series| series.bench == bench).map(|series| series.samples.len());
    lens.max().unwrap_or(0)
}

fn line(name: &str, width: usize, samples: &[f64], show: impl Fn(f64) -> String) -> String {
    let Spread { min, median, max } = Spread::of(samples);
    let range = if samples.len() > 1 { format!("{} .. {}", show(min), show(max)) } else { String::new() };
    format!("{name:<width$}  {:>12}  {range:<24}", show(median))
}

fn verdict(ratio: &Ratio) -> String {
    let Some(goal) = ratio.goal else { return String::new() };
    let wanted = match goal {
        Goal::AtMost(limit) => format!("at most {}", factor(limit)),
        Goal::AtLeast(limit) => format!("at least {}", factor(limit)),
    };
    let word = if goal.is_met(Spread::of(&ratio.samples).median) { "met" } else { "MISSED" };
    format!("  goal {wanted}: {word}")
}

/// A number with its unit.
fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Nanoseconds if value < 999.5 => format!("{value:.1} ns"),
        Unit::Nanoseconds if value < 999.5e3 => format!("{:.2} µs", value / 1e3),
        Unit::Nanoseconds => format!("{:.2} ms", value / 1e6),
        Unit::BytesPerSecond if value < 999.5e6 => format!("{:.1} MB/s", value / 1e6),
        Unit::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
        Unit::Bytes => format!("{value:.0} B"),
        Unit::SecondsPerGigabyte => format!("{value:.3} s/GB"),
        Unit::Percent => format!("{value:.3} %"),
        Unit::Count => format!("{value:.4}"),
    }
}

/// A ratio: small ones as a fraction.
fn factor(value: f64) -> String {
    if value > 0.0 && value < 0.5 { format!("1/{:.1}", 1.0 / value) } else { format!("{value:.2}") }
}

/// JSON Lines: the machine, each series, each ratio, each note.
pub(super) fn json(machine: &Machine, report: &Report) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct WithSpread<'a, T> {
        #[serde(flatten)]
        of: &'a T,
        #[serde(flatten)]
        spread: Spread,
        met: Option<bool>,
    }
    let mut lines = vec![json_line("machine", machine)?];
    for series in &report.series {
        let Series { samples, .. } = series;
        lines.push(json_line("number", &WithSpread { of: series, spread: Spread::of(samples), met: None })?);
    }
    for ratio in &report.ratios {
        let spread = Spread::of(&ratio.samples);
        let met = ratio.goal.map(|goal| goal.is_met(spread.median));
        lines.push(json_line("ratio", &WithSpread { of: ratio, spread, met })?);
    }
    for note in &report.notes {
        lines.push(json_line("note", note)?);
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_factors() {
        assert_eq!(number(33.26, Unit::Nanoseconds), "33.3 ns");
        assert_eq!(number(4400.0, Unit::Nanoseconds), "4.40 µs");
        assert_eq!(number(3.2e9, Unit::BytesPerSecond), "3.20 GB/s");
        assert_eq!(factor(0.01), "1/100.0");
        assert_eq!(factor(1.25), "1.25");
        assert_eq!(factor(0.0), "0.00");
    }

    #[test]
    fn a_table_has_medians_and_ranges() {
        let mut report = Report::default();
        for rate in [1e6, 4e6, 2e6] {
            report.add("throughput", "TCP, 64 B", Unit::BytesPerSecond, rate);
        }
        let rows = vec![("64 B".to_owned(), vec![Some(0), None])];
        let columns = vec!["TCP".to_owned(), "A1".to_owned()];
        let grid = Grid { bench: "throughput", caption: "bytes that arrived".to_owned(), columns, rows };
        let text = table(&report, &grid);
        assert!(text.contains("2.0 MB/s [1.0 .. 4.0]") && text.contains('–'), "{text}");
        assert_eq!(range(9e8, 2e9, Unit::BytesPerSecond), "900.0 MB/s .. 2.00 GB/s");
    }

    #[test]
    fn a_missed_goal_is_said_loudly() -> anyhow::Result<()> {
        let mut report = Report::default();
        let series = report.add("stream", "through the ring", Unit::BytesPerSecond, 1e9);
        report.demand(series, Goal::AtLeast(2e9));
        let machine = Machine::look();
        assert!(text(&machine, &report).contains("MISSED"));
        let json = json(&machine, &report)?;
        assert!(json.lines().last().is_some_and(|line| line.contains(r#""met":false"#)), "{json}");
        Ok(())
    }
}
