//! Runs as a table.

use super::schema::{Fates, Metrics, Plan, Reader, Run};
use super::scheme;
use crate::cells;
use crate::metrics::Spread;
use crate::output;
use crate::table::{Table, median, percent, time, with_range};

/// The repetitions of one plan.
pub(super) type Cell<'a> = cells::Cell<'a, Run>;

/// Picks a number of a run.
pub(super) fn metric(cell: &Cell<'_>, pick: impl Fn(&Metrics) -> Option<f64>) -> Option<Spread> {
    cell.spread(|run| pick(run.metrics.as_ref()?))
}

/// The label of the path, common to the schemes that are compared.
pub(super) fn path_label(plan: &Plan) -> String {
    let path = plan.link.as_ref().map_or_else(|| "loopback".to_owned(), cells::link_label);
    format!("{path}, {}, {}", plan.congestion, reader_label(plan.reader))
}

fn reader_label(reader: Reader) -> String {
    match reader {
        Reader::Fast => "a fast reader".to_owned(),
        Reader::Slow { share } => format!("a reader of {} of the source's rate", percent(share)),
        Reader::Stalled { for_s, .. } => format!("a reader that is stalled for {for_s} s"),
        Reader::Bursts { every_ms } => format!("a reader that reads every {every_ms} ms"),
    }
}

pub(super) fn source_label(plan: &Plan) -> String {
    format!("{} objects at {} a second, {} B", plan.objects, plan.updates_per_s, plan.value_bytes)
}

/// One row for all repetitions of a plan.
pub(super) fn table(runs: &[Run]) -> Table {
    Table::new(
        "Age of each object's newest value at the program that reads, from the tick that made it (median [min .. max] of runs). \
                  The longest silence of an object, also in fair rounds: all objects once at the rate that was read. The object that \
                  came least, of the mean. The age when a stalled reader has been back for 100 ms. Most bytes in the kernel, and in \
                  the application. Median time from tick to reading, and to the acknowledgement by the fates.",
        3,
        "source | path and reader | scheme | N | age mean | p95 | worst key | silence | in rounds | least came | values/s | \
         back for 100 ms | refused | kernel, app | read / acked",
        cells::cells(runs).iter().map(row),
    )
}

fn row(cell: &Cell<'_>) -> Vec<String> {
    let plan = &cell.plan;
    let whole = |count: f64| format!("{count:.0}");
    let size = |bytes: f64| output::bytes(bytes as u64);
    let fates = |pick: fn(&Fates) -> Option<f64>| cell.spread(|run| pick(run.sender.fates.as_ref()?));
    let said = fates(|fates| Some(fates.acked_after_us? as f64 * 1e3));
    let lost = fates(|fates| Some(fates.lost as f64)).map_or(0.0, |spread| spread.max);
    let lost = if lost > 0.0 { format!(", {lost:.0} lost") } else { String::new() };
    let held = cell.spread(|run| Some(run.sender.kernel_bytes?.1 as f64));
    vec![
        source_label(plan),
        path_label(plan),
        scheme::label(&plan.scheme).to_owned(),
        cell.runs.len().to_string(),
        with_range(metric(cell, |m| Some(m.age_mean_ns)), time),
        median(metric(cell, |m| Some(m.age_p95_ns)), time),
        median(metric(cell, |m| Some(m.worst_key_age_ns)), time),
        median(metric(cell, |m| Some(m.worst_silence_ns as f64)), time),
        with_range(metric(cell, silence_rounds), |rounds| format!("{rounds:.1}")),
        with_range(metric(cell, |m| m.least_share), percent),
        median(metric(cell, |m| Some(m.values_per_s)), whole),
        with_range(metric(cell, |m| m.after_return_ns), time),
        median(cell.spread(|run| Some(run.sender.refused as f64)), whole),
        format!(
            "{}, {}",
            median(held, size),
            median(cell.spread(|run| Some(run.sender.application_bytes as f64)), size)
        ),
        format!(
            "{} / {}{lost}",
            median(metric(cell, |m| m.delay_p50_ns.map(|ns| ns as f64)), time),
            median(said, time)
        ),
    ]
}

/// The longest silence in fair rounds.
pub(super) fn silence_rounds(metrics: &Metrics) -> Option<f64> {
    Some(metrics.worst_silence_ns as f64 / metrics.fair_round_ns?)
}

#[cfg(test)]
mod tests {
    use super::super::schema::testing::run;
    use super::super::schema::{Arrivals, Fates};
    use super::*;
    use crate::schema::Trust;
    use crate::store::ResultLine as _;

    fn seeded(seed: u64) -> Run {
        let mut run = run("freshwire", Reader::Fast);
        run.plan.seed = seed;
        run
    }

    #[test]
    fn repetitions_make_a_row() {
        let mut runs: Vec<Run> = [1, 2, 3].map(seeded).into();
        for run in &mut runs {
            let read: Vec<_> = (0..20)
                .flat_map(|tick| [0, 1].map(|key| (key, tick, u64::from(tick) * 100_000_000 + 1_000_000)))
                .collect();
            run.arrivals = Arrivals::of(&read);
            run.sender.fates = Some(Fates { acked_after_us: Some(2000), lost: 3, ..Fates::default() });
            run.measure().unwrap();
        }
        runs[2].trust = Trust::of(&["busy".to_owned()]);
        let table = table(&runs);
        assert_eq!(table.rows.len(), 1);
        let row = &table.rows[0];
        assert_eq!(
            row[..4],
            ["2 objects at 10 a second, 64 B", "loopback, cubic, a fast reader", "Freshwire, by key", "2"]
        );
        // From 1 ms to 101 ms, but for the begin.
        assert_eq!(row[4..8], ["51 ms", "96 ms", "51 ms", "100 ms"]);
        assert_eq!(row[8..11], ["1.0", "100 %", "20"]);
        assert_eq!(row[14], "1 ms / 2 ms, 3 lost");
    }
}
