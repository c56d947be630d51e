use super::{Table, median, never, percent, time, with_range};
use crate::cells::{Cell, by_path};
use crate::results::LayersMetrics;
use crate::schema::Run;
use crate::scheme;

/// One row for each scheme on each link.
pub(crate) fn layers_summary(cells: &[Cell<'_, Run>]) -> Table {
    let rows = cells.iter().map(|cell| {
        vec![
            cell.link_label(),
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
            path[0].link_label(),
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

/// Paper figure 7 on the published links: what arrived of each layer by the end of its window, and what arrived later. `None` if no such
/// link was run.
pub(crate) fn in_time(cells: &[Cell<'_, Run>]) -> Option<Table> {
    let shown: Vec<&Cell<'_, Run>> = cells.iter().filter(|cell| is_published(cell)).collect();
    let layers = shown.iter().filter_map(|cell| cell.layers(|m| Some(m.in_time_layer_bytes.len() as f64)));
    let layers = layers.map(|spread| spread.max as usize).max()?;
    let rows = shown.iter().map(|cell| {
        let kilobytes = |bytes: f64| format!("{:.0}", bytes / 1000.0);
        let of_layer = |layer: usize| {
            let in_time = cell.layers(|m| Some(*m.in_time_layer_bytes.get(layer)? as f64));
            let late = cell.layers(|m| {
                Some(m.received_layer_bytes.get(layer)?.checked_sub(*m.in_time_layer_bytes.get(layer)?)?
                    as f64)
            });
            format!("{} + {}", median(in_time, kilobytes), median(late, kilobytes))
        };
        let sum = |m: &LayersMetrics| m.in_time_layer_bytes.iter().sum::<u64>() as f64;
        let mut row = vec![
            cell.link_label(),
            cell.plan.congestion.clone(),
            scheme::label(&cell.plan.scheme).to_owned(),
            median(
                cell.layers(|m| Some(sum(m) / (m.received_layer_bytes.iter().sum::<u64>() as f64).max(1.0))),
                percent,
            ),
        ];
        row.extend((0..layers).map(of_layer));
        row
    });
    let caption = "kB of each layer received by the end of its window + later (paper, figure 7; medians)";
    let mut table = Table::new(caption, 3, "link | control | scheme | in time", rows);
    table.head.extend((1..=layers).map(|layer| format!("layer {layer}")));
    Some(table)
}

/// Paper figure 8 in numbers, on the published links. `None` if no such link was run.
pub(crate) fn start_up(cells: &[Cell<'_, Run>]) -> Option<Table> {
    let rows: Vec<Vec<String>> = cells
        .iter()
        .filter(|cell| is_published(cell))
        .map(|cell| {
            vec![
                cell.link_label(),
                cell.plan.congestion.clone(),
                scheme::label(&cell.plan.scheme).to_owned(),
                with_range(cell.layers(|m| Some(m.start_up.none)), percent),
                with_range(cell.layers(|m| Some(m.start_up.ten_s)), percent),
                with_range(cell.layers(|m| Some(m.start_up.twenty_s)), percent),
            ]
        })
        .collect();
    let caption = "Share of the offered bytes in time for a player with a start-up buffer (paper, figure 8; median [min .. max])";
    let head = "link | control | scheme | no buffer | 10 s | 20 s";
    (!rows.is_empty()).then(|| Table::new(caption, 3, head, rows))
}

/// The time from socket to socket, where a send buffer follows the congestion window (thesis, section 3.2.4). `None` if no such scheme was
/// run.
pub(crate) fn transit(cells: &[Cell<'_, Run>]) -> Option<Table> {
    let mut rows = Vec::new();
    for path in by_path(cells) {
        if path.iter().all(|cell| !cell.plan.scheme.starts_with(scheme::MIN_BUF)) {
            continue;
        }
        let rate = |cell: &Cell<'_, Run>| cell.layers(|m| Some(m.receive_rate_kibit)).map(|rate| rate.median);
        let tcp = path.iter().find(|cell| cell.plan.scheme == scheme::TCP).and_then(rate);
        for cell in path {
            let lost = tcp.zip(rate(cell)).map(|(tcp, ours)| format!("{:.1} %", (tcp - ours) / tcp * 100.0));
            rows.push(vec![
                cell.link_label(),
                cell.plan.congestion.clone(),
                scheme::label(&cell.plan.scheme).to_owned(),
                cell.runs.len().to_string(),
                with_range(cell.layers(|m| Some(never(m.transit.delay.p50_ns))), time),
                median(cell.layers(|m| Some(never(m.transit.delay.p95_ns))), time),
                with_range(cell.layers(|m| Some(m.transit.within_200_ms)), percent),
                with_range(cell.layers(|m| Some(m.transit.within_500_ms)), percent),
                median(cell.layers(|m| Some(m.receive_rate_kibit)), |rate| format!("{rate:.1}")),
                lost.unwrap_or_else(|| "–".to_owned()),
                published_loss(&cell.plan.scheme).to_owned(),
            ]);
        }
    }
    let caption = "From the sender's socket to the receiver's, and the throughput (thesis, section 3.2.4; median [min .. max])";
    let head = "link | control | scheme | N | p50 | p95 | within 200 ms | within 500 ms | Kibit/s | lost of TCP's | published: lost";
    (!rows.is_empty()).then(|| Table::new(caption, 3, head, rows))
}

/// The throughput that a buffer costs, as the thesis reports it.
fn published_loss(name: &str) -> &'static str {
    match name {
        "min-buf-1-0" => "30 %",
        scheme::MIN_BUF | "min-buf-1-3" => "less than 10 %",
        _ => "–",
    }
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
        let mut row = vec![path[0].link_label(), path[0].plan.congestion.clone()];
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

/// Whether the cell is of one of the four links of thesis and paper.
fn is_published(cell: &Cell<'_, Run>) -> bool {
    let link = &cell.plan.link;
    let is_clean = link.rate_bps.is_none() && link.loss == 0.0 && link.delay_ms == 0.0;
    is_clean || PUBLISHED.iter().any(|published| published.is(cell))
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
    use crate::schema::{Experiment, Source};
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
    fn packet_sizes_are_rows_of_their_own() {
        let slow = || link(Some(262_144), 0.05, 0.0);
        let mut runs = Vec::new();
        for per_layer in [1, 8, 32] {
            for name in ["thesis", "tcp"] {
                let mut run = layers_run_on(name, slow(), 1, 5);
                run.plan.source =
                    Source::Layers { layers: 8, record_bytes: 16384 / per_layer, window_ms: 1000, per_layer };
                runs.push(run);
            }
        }
        let cells = gather(&runs, Experiment::Layers);
        assert_eq!(by_path(&cells).map(<[_]>::len).collect::<Vec<_>>(), [2, 2, 2]);
        let rows = receive_rates(&cells).unwrap().rows;
        let labels: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let link = "256Kibit/s, 5 % loss, 0 ms";
        assert_eq!(
            labels,
            [&format!("{link}, records of 512 B"), &format!("{link}, records of 2048 B"), link]
        );
    }

    #[test]
    fn published_links_have_in_time_and_late_apart() {
        let runs = runs();
        let cells = gather(&runs, Experiment::Layers);
        let table = in_time(&cells).unwrap();
        assert_eq!(table.rows.len(), 2, "one published link was run with two schemes");
        assert_eq!(table.head[3..5], ["in time", "layer 1"]);
        let late = |row: &[String]| row[4].split_once(" + ").map(|(_, late)| late != "0");
        assert_eq!(late(&table.rows[0]), Some(true), "plain TCP: {:?}", table.rows[0]);
        assert_eq!(late(&table.rows[1]), Some(false), "late choice: {:?}", table.rows[1]);
        let buffers = start_up(&cells).unwrap();
        assert_eq!(buffers.rows.len(), 2);
        assert_eq!(start_up(&cells[..2]), None, "without loss and with a limit nothing was published");
    }

    #[test]
    fn buffers_that_follow_the_window_are_compared_with_plain_tcp() {
        let mut runs = runs();
        assert_eq!(transit(&gather(&runs, Experiment::Layers)), None);
        runs.push(layers_run("min-buf-1-0", 1));
        let rows = transit(&gather(&runs, Experiment::Layers)).unwrap().rows;
        let names: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(names, ["plain TCP", "MIN_BUF(1,0)", "Freshwire"]);
        assert_eq!((rows[0][9].as_str(), rows[1][10].as_str()), ("0.0 %", "30 %"));
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
