//! Results as tables, for the terminal and for the HTML report alike.

mod frames;
mod layers;
mod video;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

pub(crate) use frames::frames_summary;
pub(crate) use layers::{
    in_time, layers_summary, matrix, published_total_mib, receive_rates, start_up, transit,
};
pub(crate) use video::video_summary;

use crate::metrics::Spread;
pub(crate) use crate::output::percent;

/// A table of text: the first `labels` columns name the row, the others are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// The content of the table, in one line.
    pub(crate) caption: String,
    /// The columns' heads, with units.
    pub(crate) head: Vec<String>,
    /// The rows, as long as the head.
    pub(crate) rows: Vec<Vec<String>>,
    /// How many columns from the left are labels.
    pub(crate) labels: usize,
}

impl Table {
    /// A table whose heads are in one text, separated by ` | `.
    pub(crate) fn new(
        caption: impl Into<String>,
        labels: usize,
        head: &str,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let head = head.split(" | ").map(str::to_owned).collect();
        Self { caption: caption.into(), head, rows: rows.into_iter().collect(), labels }
    }

    /// The table as lines for a terminal. Where more than two columns are labels, the last names the row and those
    /// before it become a line above the rows that share them.
    pub(crate) fn to_terminal(&self) -> String {
        let groups = if self.labels > 2 { self.labels - 1 } else { 0 };
        let mut table = comfy_table::Table::new();
        table.load_style(LINES).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.head[groups..]);
        let mut group: &[String] = &[];
        for row in &self.rows {
            let (labels, cells) = row.split_at(groups);
            if labels != group {
                group = labels;
                table.add_row([labels.join(", ")]);
            }
            let indent = if groups > 0 { "  " } else { "" };
            table.add_row(cells.iter().enumerate().map(|(column, text)| match column {
                0 => format!("{indent}{text}"),
                _ => text.clone(),
            }));
        }
        for column in table.column_iter_mut().skip(self.labels - groups) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n{table}\n", self.caption)
    }
}

/// A time in nanoseconds as milliseconds or seconds; infinite is `never`.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        _ if ns.is_infinite() => "never".to_owned(),
        _ if ns >= 9.9995e9 => format!("{:.1} s", ns / 1e9),
        _ => format!("{:.0} ms", ns / 1e6),
    }
}

/// A delay percentile as a number to take the spread of: never is infinite.
pub(crate) fn never(ns: Option<u64>) -> f64 {
    ns.map_or(f64::INFINITY, |ns| ns as f64)
}

/// A median, with the range it came from where there was more than one number: `98 % [96 % .. 99 %]`.
pub(crate) fn with_range(spread: Option<Spread>, show: impl Fn(f64) -> String) -> String {
    match spread {
        None => "–".to_owned(),
        Some(spread) if show(spread.min) == show(spread.max) => show(spread.median),
        Some(spread) => format!("{} [{} .. {}]", show(spread.median), show(spread.min), show(spread.max)),
    }
}

/// A median alone.
pub(crate) fn median(spread: Option<Spread>, show: impl Fn(f64) -> String) -> String {
    spread.map_or("–".to_owned(), |spread| show(spread.median))
}

const LINES: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_their_units() {
        assert_eq!(time(812.4e6), "812 ms");
        assert_eq!(time(30e9), "30.0 s");
        assert_eq!(time(never(None)), "never");
        assert_eq!(with_range(Spread::of([0.5, 0.6, 0.9]), percent), "60 % [50 % .. 90 %]");
        assert_eq!(with_range(Spread::of([0.5]), percent), "50 %");
        assert_eq!(with_range(None, percent), "–");
    }

    #[test]
    fn a_table_lines_up_on_a_terminal() {
        let rows = [["plain TCP", "1 %"], ["Freshwire", "100 %"]].map(|row| row.map(str::to_owned).to_vec());
        let table = Table::new("shares", 1, "scheme | share", rows);
        let text = table.to_terminal();
        assert!(text.starts_with("shares\n"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().any(|line| line.contains("plain TCP     1 %")), "{text}");
        assert_eq!(lines.len(), 1 + 3 + 1 + 2, "no line between rows");
    }

    #[test]
    fn rows_that_share_their_path_stand_under_it() {
        let rows = [
            ["fast", "cubic", "plain TCP", "1 %"],
            ["fast", "cubic", "Freshwire", "9 %"],
            ["slow", "cubic", "plain TCP", "1 %"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let table = Table::new("", 3, "link | control | scheme | share", rows);
        let text = table.to_terminal();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[2], " scheme        share");
        assert_eq!(lines[4..6], [" fast, cubic", "   plain TCP     1 %"]);
        assert_eq!(lines[7..9], [" slow, cubic", "   plain TCP     1 %"]);
    }
}
