use super::{Table, median, never, percent, time, with_range};
use crate::cells::{Cell, link_label};
use crate::schema::Run;
use crate::scheme;

/// One row for each scheme on each link.
pub(crate) fn frames_summary(cells: &[Cell<'_, Run>]) -> Table {
    let count = |count: f64| format!("{count:.0}");
    let rows = cells.iter().map(|cell| {
        let oracle = median(cell.frames(|m| Some(m.oracle_frames as f64)), count);
        vec![
            link_label(&cell.plan.link),
            cell.plan.congestion.clone(),
            scheme::label(&cell.plan.scheme).to_owned(),
            cell.runs.len().to_string(),
            format!("{} of {oracle}", with_range(cell.frames(|m| Some(m.on_time_frames as f64)), count)),
            with_range(cell.frames(|m| m.share_of_oracle), percent),
            median(cell.frames(|m| Some(m.age.mean_ns)), time),
            median(cell.frames(|m| Some(m.age.peak_ns as f64)), time),
            freezes(cell),
            median(cell.frames(|m| m.recovery.as_ns()), time),
            median(cell.frames(|m| Some(never(m.delay.p95_ns))), time),
        ]
    });
    Table::new(
        "Frames: whole, decodable and on time, against what an oracle delivers (median [min .. max])",
        3,
        "link | control | scheme | N | frames on time | of the oracle | mean age | peak age | freezes | recovery | p95",
        rows,
    )
}

fn freezes(cell: &Cell<'_, Run>) -> String {
    let number = median(cell.frames(|m| Some(m.freezes.count as f64)), |count| format!("{count:.0}"));
    format!("{number}, {}", median(cell.frames(|m| Some(m.freezes.total_ns as f64)), time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::gather;
    use crate::schema::Experiment;
    use crate::store::ResultLine as _;
    use crate::testing::frames_run;

    #[test]
    fn the_summary_compares_with_the_oracle() {
        let mut steady = frames_run("freshwire", 1);
        steady.plan.link.steps.clear();
        steady.measure().unwrap();
        let runs = [frames_run("tcp", 1), frames_run("freshwire", 1), steady];
        let table = frames_summary(&gather(&runs, Experiment::Frames));
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        assert_eq!(table.rows[0][9], "–", "a steady link has no dip");
        assert_ne!(table.rows[1][9], "–");
        assert!(table.rows[1][4].contains(" of "));
    }
}
