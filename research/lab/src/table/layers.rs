use super::{Table, median, never, percent, time, with_range};
use crate::cells::{Cell, by_path, link_label};
use crate::schema::Run;
use crate::scheme;

/// One row for each scheme on each link.
pub(crate) fn layers_summary(cells: &[Cell<'_, Run>]) -> Table {
    let rows = cells.iter().map(|cell| {
        vec![
            link_label(&cell.plan.link),
            cell.plan.congestion.clone(),
            scheme::label(&cell.plan.scheme).to_owned(),
            cell.runs.len().to_string(),
            with_range(cell.layers(|m| m.share_of_ideal), percent),
            base_windows(cell),
            median(cell.layers(|m| Some(m.receive_rate_kibit)), |rate| format!("{rate:.1}")),
            median(cell.layers(|m| Some(never(m.delay.p50_ns))), time),
            median(cell.layers(|m| Some(never(m.delay.p95_ns))), time),
            median(cell.layers(|m| Some(never(m.delay.p99_ns))), time),
            median(cell.layers(|m| Some(m.wasted_share)), percent),
        ]
    });
    Table::new(
        "Layered stream: usable by the deadline, as a share of what the link allows (median [min .. max])",
        3,
        "link | control | scheme | N | of the ideal | base windows | Kibit/s | p50 | p95 | p99 | wasted",
        rows,
    )
}

/// Table 5.1 of Birkedal 2006: bytes received per second, late or not, beside the published numbers. `None`
/// if no published configuration was run with both plain TCP and the thesis's rule.
pub(crate) fn receive_rates(cells: &[Cell<'_, Run>]) -> Option<Table> {
    let mut rows = Vec::new();
    for path in by_path(cells) {
        let rate = |name: &str| {
            let cell = path.iter().find(|cell| cell.plan.scheme == name)?;
            cell.layers(|m| Some(m.receive_rate_kibit)).map(|spread| spread.median)
        };
        let Some(published) = PUBLISHED.iter().find(|published| published.is(&path[0])) else { continue };
        let (Some(tcp), Some(thesis)) = (rate(scheme::TCP), rate(scheme::THESIS)) else { continue };
        rows.push(vec![
            link_label(&path[0].plan.link),
            path[0].plan.congestion.clone(),
            format!("{:.2}", published.tcp_kibit),
            format!("{:.2}", published.ldc_kibit),
            format!("{:.2} %", published.difference_percent),
            format!("{tcp:.2}"),
            format!("{thesis:.2}"),
            format!("{:.2} %", (tcp - thesis) / tcp * 100.0),
        ]);
    }
    let caption = "Receive rate in Kibit/s, late bytes included (thesis, table 5.1; ours are medians)";
    let head =
        "link | control | published TCP | published LDC | lost | our plain TCP | our thesis rule | lost";
    (!rows.is_empty()).then(|| Table::new(caption, 2, head, rows))
}

/// The share of the ideal for each link, congestion control and scheme, with the numbers behind the text.
pub(crate) fn matrix(cells: &[Cell<'_, Run>]) -> (Table, Vec<Vec<Option<f64>>>) {
    let mut schemes: Vec<&str> = cells.iter().map(|cell| cell.plan.scheme.as_str()).collect();
    schemes.sort_by_key(|name| (scheme::rank(name), *name));
    schemes.dedup();
    let (mut rows, mut shares) = (Vec::new(), Vec::new());
    for path in by_path(cells) {
        let spreads: Vec<_> = schemes
            .iter()
            .map(|name| {
                path.iter().find(|c| c.plan.scheme == *name).and_then(|c| c.layers(|m| m.share_of_ideal))
            })
            .collect();
        let mut row = vec![link_label(&path[0].plan.link), path[0].plan.congestion.clone()];
        row.extend(spreads.iter().map(|spread| with_range(*spread, percent)));
        rows.push(row);
        shares.push(spreads.iter().map(|spread| spread.map(|spread| spread.median)).collect());
    }
    let caption = "Share of the ideal that was usable by the deadline (median [min .. max])";
    let mut table = Table::new(caption, 2, "link | control", rows);
    table.head.extend(schemes.iter().map(|name| scheme::label(name).to_owned()));
    (table, shares)
}

/// The total in MiB that the thesis received in 60 s on this cell's link by this cell's scheme. `None` if the
/// thesis published none, or if this cell ran for another time.
pub(crate) fn published_total_mib(cell: &Cell<'_, Run>) -> Option<f64> {
    if cell.plan.duration_s != 60.0 {
        return None;
    }
    let published = PUBLISHED.iter().find(|published| published.is(cell))?;
    match cell.plan.scheme.as_str() {
        scheme::TCP => Some(published.tcp_mib),
        scheme::THESIS => Some(published.ldc_mib),
        _ => None,
    }
}

fn base_windows(cell: &Cell<'_, Run>) -> String {
    let complete = with_range(cell.layers(|m| Some(m.base_windows as f64)), |count| format!("{count:.0}"));
    format!(
        "{complete} of {}",
        median(cell.layers(|m| Some(m.windows as f64)), |count| format!("{count:.0}"))
    )
}

/// The numbers of thesis chapter 5 for one link, each with 5 % loss and no delay.
struct Published {
    rate_bps: u64,
    tcp_kibit: f64,
    ldc_kibit: f64,
    difference_percent: f64,
    tcp_mib: f64,
    ldc_mib: f64,
}

impl Published {
    fn is(&self, cell: &Cell<'_, Run>) -> bool {
        let link = &cell.plan.link;
        link.rate_bps == Some(self.rate_bps)
            && link.loss == 0.05
            && link.delay_ms == 0.0
            && link.burst_packets.is_none()
            && link.steps.is_empty()
    }
}

const fn published(kibit: u64, kibits: [f64; 2], difference_percent: f64, mibs: [f64; 2]) -> Published {
    let ([tcp_kibit, ldc_kibit], [tcp_mib, ldc_mib]) = (kibits, mibs);
    Published { rate_bps: kibit * 1024, tcp_kibit, ldc_kibit, difference_percent, tcp_mib, ldc_mib }
}

const PUBLISHED: [Published; 3] = [
    published(1024, [862.47, 851.96], 1.22, [6.32, 6.24]),
    published(512, [457.72, 456.30], 0.31, [3.35, 3.34]),
    published(256, [235.88, 235.24], 0.27, [1.73, 1.72]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::gather;
    use crate::schema::Experiment;
    use crate::testing::{layers_run, layers_run_on, link};

    fn runs() -> Vec<Run> {
        let slow = || link(Some(262_144), 0.05, 0.0);
        vec![
            layers_run("tcp", 1),
            layers_run("freshwire", 1),
            layers_run_on("tcp", slow(), 1, 5),
            layers_run_on("thesis", slow(), 1, 5),
            layers_run_on("thesis", slow(), 2, 5),
        ]
    }

    #[test]
    fn the_summary_has_a_row_for_each_cell() {
        let runs = runs();
        let table = layers_summary(&gather(&runs, Experiment::Layers));
        assert_eq!(table.rows.len(), 4);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        let freshwire = &table.rows[1];
        assert_eq!(freshwire[2..6], ["Freshwire", "1", "100 %", "5 of 5"]);
        assert_eq!(table.rows[3][3], "2");
    }

    #[test]
    fn published_rates_stand_beside_ours() {
        let mut runs = runs();
        let mut long = layers_run_on("tcp", link(Some(524_288), 0.05, 0.0), 1, 5);
        long.plan.duration_s = 60.0;
        runs.push(long);
        let cells = gather(&runs, Experiment::Layers);
        let table = receive_rates(&cells).unwrap();
        assert_eq!(table.rows.len(), 1, "only one published link was run");
        assert_eq!(table.rows[0][..5], ["256Kibit/s, 5 % loss, 0 ms", "cubic", "235.88", "235.24", "0.27 %"]);
        let totals: Vec<Option<f64>> = cells.iter().map(published_total_mib).collect();
        assert_eq!(totals, [None, None, Some(3.35), None, None], "only what ran for 60 s compares");
        assert_eq!(receive_rates(&cells[..2]), None);
    }

    #[test]
    fn the_matrix_leaves_gaps_where_nothing_was_run() {
        let runs = runs();
        let (table, shares) = matrix(&gather(&runs, Experiment::Layers));
        assert_eq!(table.head, ["link", "control", "plain TCP", "thesis rule", "Freshwire"]);
        assert_eq!(table.rows[0][3], "–");
        assert_eq!(shares[0][2], Some(1.0));
        assert_eq!(shares[1][2], None);
    }
}
