//! Runs as a table.

use freshwire_record::Rate;

use super::kind::Kind;
use super::schema::{Metrics, Run};
use crate::cells;
use crate::metrics::Spread;
use crate::schema::LinkConfig;
use crate::table::{Table, percent, time, with_range};

/// One row for all repetitions of a link and its flows.
pub(super) fn table(runs: &[Run]) -> Table {
    Table::new(
        "Goodput as a multiple of the fair share after the warm-up (median [min .. max] over flows and runs), \
                  what each lost, Jain's index, and the wait in the bottleneck's queue",
        3,
        "link | queue | flows | N | share of each, in this order | ours | plain TCP | ours, from the begin | lost of each | Jain | \
         used | wait p50 | wait p95",
        cells::cells(runs).iter().map(row),
    )
}

fn row(cell: &cells::Cell<'_, Run>) -> Vec<String> {
    let cells::Cell { plan, runs: group, .. } = cell;
    let measured: Vec<&Metrics> = group.iter().filter_map(|run| run.metrics.as_ref()).collect();
    let each = |pick: fn(&Metrics) -> &[f64], of: &dyn Fn(&str) -> bool| {
        let shares = measured.iter().flat_map(|metrics| {
            plan.flows.iter().zip(pick(metrics)).filter(|(name, _)| of(name)).map(|(_, share)| *share)
        });
        with_range(Spread::of(shares), multiple)
    };
    let one = |pick: &dyn Fn(&Metrics) -> Option<f64>, show: fn(f64) -> String| {
        with_range(Spread::of(measured.iter().filter_map(|metrics| pick(metrics))), show)
    };
    let medians = (0..plan.flows.len()).filter_map(|flow| {
        Spread::of(measured.iter().map(|metrics| metrics.shares[flow])).map(|spread| multiple(spread.median))
    });
    let lost = (0..plan.flows.len()).filter_map(|flow| {
        Spread::of(group.iter().filter_map(|run| run.lost.get(flow).copied()))
            .map(|spread| percent(spread.median))
    });
    let wait = |place: usize| one(&move |metrics| Some(metrics.wait_ns?[place] as f64), time);
    vec![
        cells::link_label(&plan.link),
        queue_label(&plan.link),
        flows_label(&plan.flows),
        group.len().to_string(),
        medians.collect::<Vec<_>>().join(" "),
        each(|metrics| &metrics.shares, &is_ours),
        each(|metrics| &metrics.shares, &|name| !is_ours(name)),
        each(|metrics| &metrics.shares_in_all, &is_ours),
        lost.collect::<Vec<_>>().join(", "),
        one(&|metrics| Some(metrics.jain), multiple),
        one(&|metrics| Some(metrics.used), percent),
        wait(0),
        wait(1),
    ]
}

/// Whether a flow is of A1 or Freshwire.
fn is_ours(name: &str) -> bool {
    Kind::of(name) != Kind::Tcp
}

/// Flows as on the command line: `4*cubic + bbr`.
pub(super) fn flows_label(flows: &[String]) -> String {
    let alike = flows.chunk_by(|a, b| a == b);
    let names = alike.map(|flows| match flows {
        [one] => one.clone(),
        several => format!("{}*{}", several.len(), several[0]),
    });
    names.collect::<Vec<_>>().join(" + ")
}

/// A link and its queue as a person reads them.
pub(super) fn link_label(link: &LinkConfig) -> String {
    format!("{}, {}", cells::link_label(link), queue_label(link))
}

/// The longest wait in the queue.
pub(super) fn queue_label(link: &LinkConfig) -> String {
    match link.queue_bytes.zip(link.rate_bps) {
        None => "queue of the emulation's choice".to_owned(),
        Some((bytes, rate)) => {
            let wait = Rate::from_bits_per_sec(rate).time_for(bytes);
            format!("queue {bytes} B, {}", time(wait.as_nanos() as f64))
        }
    }
}

fn multiple(share: f64) -> String {
    format!("{share:.2}")
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::run;
    use super::*;
    use crate::schema::Trust;
    use crate::store::ResultLine as _;

    #[test]
    fn repetitions_make_a_row() {
        let mut runs =
            [("a1", 362_000), ("a1", 434_400), ("a1", 0)].map(|a1| run(&[a1, ("cubic", 1_086_000)]));
        runs[2].trust = Trust::of(&["busy".to_owned()]);
        runs[1].lost = vec![0.04, 0.0];
        for (run, seed) in runs.iter_mut().zip(1..) {
            run.plan.link.seed = seed;
            run.plan.link.queue_bytes = Some(15_000);
            run.measure().unwrap();
        }
        let table = table(&runs);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(
            table.rows[0][..9],
            [
                "12Mbit/s, no loss, 20 ms",
                "queue 15000 B, 10 ms",
                "a1 + cubic",
                "2",
                "0.55 1.50",
                "0.55 [0.50 .. 0.60]",
                "1.50",
                "0.55 [0.50 .. 0.60]",
                "3.0 %, 1.0 %"
            ]
        );
    }
}
