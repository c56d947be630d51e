//! What Freshwire and A1 have beside what plain TCP has in their place.

use super::kind::{self, Kind};
use super::schema::{Metrics, Run};
use super::show;
use crate::cells::{self, Cell, link_label};
use crate::metrics::Spread;
use crate::table::{Table, percent, with_range};

/// One row for each scene that was also run with plain TCP in the place of Freshwire and A1. `None` if there is no such scene.
pub(super) fn table(runs: &[Run]) -> Option<Table> {
    let cells = cells::cells(runs);
    let rows: Vec<Vec<String>> = cells.iter().filter_map(|cell| row(cell, &cells)).collect();
    let head = "link | queue | flows | in their place | N | share, theirs : plain TCP's | share, the others | lost of theirs | \
         lost in their place | wait p50 | wait p95 | used";
    let caption = "Beside plain TCP in the same place, ratio of runs with the same seed (median [min .. max]): 1.00 is no difference";
    (!rows.is_empty()).then(|| Table::new(caption, 3, head, rows))
}

fn row(cell: &Cell<'_, Run>, cells: &[Cell<'_, Run>]) -> Option<Vec<String>> {
    let flows = &cell.plan.flows;
    let replaced = kind::in_place(flows)?;
    let plain = cells.iter().find(|other| {
        other.plan.flows == replaced
            && other.plan == super::Plan { flows: replaced.clone(), ..cell.plan.clone() }
    })?;
    let pairs: Vec<(&Run, &Run)> = cell
        .runs
        .iter()
        .filter_map(|run| {
            let seed = run.plan.link.seed;
            Some((*run, *plain.runs.iter().find(|other| other.plan.link.seed == seed)?))
        })
        .collect();
    let is_ours = |place: &usize| Kind::of(&flows[*place]) != Kind::Tcp;
    let (ours, others): (Vec<usize>, Vec<usize>) = (0..flows.len()).partition(is_ours);
    let share = |of: &[usize], metrics: &Metrics| of.iter().map(|flow| metrics.shares[*flow]).sum::<f64>();
    let ratio = |pick: &dyn Fn(&Metrics) -> Option<f64>| {
        let ratios = pairs.iter().filter_map(|(run, plain)| {
            let (ours, theirs) = (pick(run.metrics.as_ref()?)?, pick(plain.metrics.as_ref()?)?);
            (theirs > 0.0).then_some(ours / theirs)
        });
        with_range(Spread::of(ratios), |ratio| format!("{ratio:.2}"))
    };
    let lost = |pick: &dyn Fn(&(&Run, &Run)) -> Vec<f64>| {
        let means = pairs.iter().filter_map(|pair| {
            let lost = pick(pair);
            let mean = ours.iter().map(|flow| lost.get(*flow)).sum::<Option<f64>>();
            mean.map(|sum| sum / ours.len() as f64)
        });
        with_range(Spread::of(means), percent)
    };
    let wait = |place: usize| ratio(&move |metrics| Some(metrics.wait_ns?[place] as f64));
    Some(vec![
        link_label(&cell.plan.link),
        show::queue_label(&cell.plan.link),
        show::flows_label(flows),
        show::flows_label(&replaced),
        pairs.len().to_string(),
        ratio(&|metrics| Some(share(&ours, metrics))),
        if others.is_empty() { "–".to_owned() } else { ratio(&|metrics| Some(share(&others, metrics))) },
        lost(&|(run, _)| run.lost.clone()),
        lost(&|(_, plain)| plain.lost.clone()),
        wait(0),
        wait(1),
        ratio(&|metrics| Some(metrics.used)),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::run;
    use super::*;
    use crate::store::ResultLine as _;

    #[test]
    fn a_ratio_is_of_runs_with_the_same_seed() {
        let scenes = [
            ([("freshwire-cubic", 300_000), ("cubic", 1_100_000)], 1, 0.01),
            ([("cubic", 600_000), ("cubic", 550_000)], 1, 0.04),
            ([("freshwire-cubic", 500_000), ("cubic", 500_000)], 2, 0.03),
            ([("cubic", 500_000), ("cubic", 500_000)], 2, 0.04),
            ([("freshwire-cubic", 900_000), ("cubic", 1)], 3, 0.9),
        ];
        let runs: Vec<Run> = scenes
            .into_iter()
            .map(|(flows, seed, lost)| {
                let mut run = run(&flows);
                run.plan.link.seed = seed;
                run.lost = vec![lost, 0.5];
                run.measure().unwrap();
                run
            })
            .collect();
        let table = table(&runs).unwrap();
        assert_eq!(table.rows.len(), 1);
        assert_eq!(
            table.rows[0][2..9],
            [
                "freshwire-cubic + cubic",
                "2*cubic",
                "2",
                "0.75 [0.50 .. 1.00]",
                "1.50 [1.00 .. 2.00]",
                "2.0 % [1.0 % .. 3.0 %]",
                "4.0 %"
            ]
        );
        assert_eq!(super::table(&runs[1..2]), None, "plain TCP alone compares with nothing");
    }
}
