use super::{Table, median, percent, time, with_range};
use crate::cells::{Cell, link_label};
use crate::schema::{Order, Run, Source};
use crate::scheme;

/// One row for each scheme on each link.
pub(crate) fn video_summary(cells: &[Cell<'_, Run>]) -> Table {
    let number = |number: f64| format!("{number:.2}");
    let rows = cells.iter().map(|cell| {
        vec![
            clip(cell),
            link_label(&cell.plan.link),
            cell.plan.congestion.clone(),
            scheme::label(&cell.plan.scheme).to_owned(),
            cell.runs.len().to_string(),
            with_range(cell.video(|m| Some(m.pictures_per_s)), |rate| format!("{rate:.1}")),
            with_range(cell.video(|m| Some(m.spatial_layers)), number),
            by_layers(cell),
            freezes(cell),
            median(cell.video(|m| Some(m.age_ns)), time),
            median(cell.video(|m| m.unbuffered_age_ns), time),
            median(cell.video(in_time_share), percent),
            with_range(cell.spread(|run| Some(run.decoded?.ssim_mean)), number),
            median(cell.spread(|run| Some(run.decoded?.ssim_p5)), number),
            median(cell.spread(|run| Some(run.decoded?.differing as f64)), |count| format!("{count:.0}")),
        ]
    });
    Table::new(
        "Scalable video: what a player shows that waits for the deadline (median [min .. max])",
        4,
        "clip | link | control | scheme | N | pictures/s | spatial layers | by layers | freezes | age | age, no wait | bytes in time | SSIM \
         | its p5 | damaged",
        rows,
    )
}

/// The clip, and the order in which it is sent.
fn clip(cell: &Cell<'_, Run>) -> String {
    let Source::Video { clip, order, layers, .. } = &cell.plan.source else { return "–".to_owned() };
    let order = match order {
        Order::Live => "live",
        Order::Window => "by windows",
    };
    // The second layer is a larger picture.
    let is_sharp = layers.get(1).is_some_and(|(spatial, _)| *spatial > 0)
        && layers.iter().any(|(_, temporal)| *temporal > 0);
    format!("{clip}, {order}{}", if is_sharp { ", sharpness first" } else { "" })
}

fn in_time_share(metrics: &crate::results::VideoMetrics) -> Option<f64> {
    let offered = metrics.offered_bytes;
    (offered > 0).then(|| metrics.in_time_layer_bytes.iter().sum::<u64>() as f64 / offered as f64)
}

/// Shares of the pictures with no layer, one, two and so on.
fn by_layers(cell: &Cell<'_, Run>) -> String {
    let counts = |place: usize| {
        cell.video(|m| Some(*m.pictures_by_layers.get(place)? as f64 / m.offered_pictures.max(1) as f64))
    };
    let shares = (0..).map_while(|place| counts(place).map(|spread| format!("{:.0}", spread.median * 100.0)));
    format!("{} %", shares.collect::<Vec<_>>().join("/"))
}

fn freezes(cell: &Cell<'_, Run>) -> String {
    let number = median(cell.video(|m| Some(m.freezes.count as f64)), |count| format!("{count:.0}"));
    format!("{number}, {}", median(cell.video(|m| Some(m.freezes.total_ns as f64)), time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::gather;
    use crate::schema::Experiment;
    use crate::testing::video_run;

    #[test]
    fn rows_show_layers_freezes_and_the_decoders_judgement() {
        let runs = [video_run(Order::Live, |_| true), video_run(Order::Window, |seq| seq != 1)];
        let table = video_summary(&gather(&runs, Experiment::Video));
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        let cells = |row: usize| [0, 5, 6, 7, 11, 12, 14].map(|column| table.rows[row][column].as_str());
        assert_eq!(cells(0), ["bikes, live", "25.0", "2.00", "0/0/100 %", "100 %", "0.97", "0"]);
        assert_eq!(table.rows[1][0], "bikes, by windows");
        assert_eq!(table.rows[1][10], "–");
    }
}
