//! Outcomes of scenarios as text.

use std::time::Duration;

use freshwire_sim::{FlowOutcome, SLOTS, Scenario, Slot};

use super::played::PlayedScenario;
use crate::output::{bytes, millis, rate};
use crate::table::{Table, percent};

/// A table, a time line where there is one scenario, and what was missed.
pub(super) fn report(played: &[PlayedScenario], seed: u64) -> String {
    let mut text = String::new();
    if let [PlayedScenario { scenario, .. }] = played {
        text += &format!("{}\n\n", scenario.tells);
    }
    text += &table(played, seed).to_terminal();
    if let [PlayedScenario { scenario, outcome, .. }] = played {
        for (path, ways) in scenario.paths.iter().zip(&outcome.paths) {
            for (direction, way) in ["up", "down"].iter().zip(ways) {
                text += &format!(
                    "path {} {direction}: {} packets, {} lost, {} dropped by the queue, which held p95 {}\n",
                    path.name,
                    way.link.offered_packets,
                    way.link.lost_packets,
                    way.link.queue_full_packets,
                    millis(way.wait_p95),
                );
            }
        }
        text += &format!("\n{}", time_line(scenario, &outcome.flows));
        text += &format!("\n{} datagrams, fingerprint {:016x}\n", outcome.datagrams, outcome.fingerprint);
    }
    let misses = played.iter().flat_map(|played| {
        played.outcome.misses.iter().map(|miss| format!("not reached in {}: {miss}\n", played.name))
    });
    text += &misses.collect::<String>();
    text
}

fn table(played: &[PlayedScenario], seed: u64) -> Table {
    let rows = played.iter().flat_map(|played| {
        played.outcome.flows.iter().map(|flow| {
            let recovery = match (played.scenario.trouble, flow.recovery) {
                (None, _) => String::new(),
                (Some(_), None) => "never".to_owned(),
                (Some(_), Some(recovery)) => millis(recovery),
            };
            let [p50, p95, _, max] = flow.delays.map(millis);
            vec![
                played.name.clone(),
                flow.name.clone(),
                flow.offered.to_string(),
                percent(flow.on_time),
                percent(flow.base),
                flow.late.to_string(),
                flow.dropped.to_string(),
                flow.abandoned.to_string(),
                rate(flow.goodput),
                p50,
                p95,
                max,
                recovery,
                bytes(flow.held_peak),
            ]
        })
    });
    let caption =
        format!("Seed {seed}; records on time with all that they depend on, and how long records took");
    let head = "scenario | flow | records | on time | base | late | dropped | given up | of use | p50 | p95 | max | recovery | held";
    Table::new(caption, 2, head, rows)
}

/// For each flow a line of how much of what was made in each part of the time came on time, and one of how long the slowest
/// took.
fn time_line(scenario: &Scenario, flows: &[FlowOutcome]) -> String {
    let width = flows.iter().map(|flow| flow.name.len()).max().unwrap_or(0).max("trouble".len());
    let each = scenario.length / SLOTS as u32;
    let mut text = format!("{:width$}  {}\n", "seconds", axis(each));
    if let Some((from, to)) = scenario.trouble {
        let is_in = |slot: usize| each * (slot as u32 + 1) > from && each * slot as u32 <= to;
        let marks: String = (0..SLOTS).map(|slot| if is_in(slot) { '!' } else { ' ' }).collect();
        text += &format!("{:width$}  {}\n", "trouble", marks.trim_end());
    }
    for flow in flows {
        let slowest = flow.timeline.iter().map(|slot| slot.slowest).max().unwrap_or_default();
        let shares: String = flow.timeline.iter().map(share_mark).collect();
        let delays: String = flow.timeline.iter().map(|slot| delay_mark(slot, slowest)).collect();
        text += &format!("{:width$}  {shares}  on time\n", flow.name);
        text += &format!("{:width$}  {delays}  slowest, up to {}\n", "", millis(slowest));
    }
    text
}

/// Seconds over every tenth part.
fn axis(each: Duration) -> String {
    let label = |slot: usize| format!("{:<10}", format!("{:.1}", (each * slot as u32).as_secs_f64()));
    (0..SLOTS).step_by(10).map(label).collect::<String>().trim_end().to_owned()
}

fn share_mark(slot: &Slot) -> char {
    match (slot.offered, slot.on_time) {
        (0, _) => ' ',
        (_, 0) => '×',
        (offered, on_time) => level(on_time as f64 / offered as f64),
    }
}

fn delay_mark(slot: &Slot, most: Duration) -> char {
    if slot.slowest.is_zero() { ' ' } else { level(slot.slowest.as_secs_f64() / most.as_secs_f64()) }
}

/// A bar as high as the share.
fn level(share: f64) -> char {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    LEVELS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::play;

    const OUTAGE: &str = r#"
        tells = "A test."
        length = "12s"
        trouble = { from = "4s", to = "6s" }
        [path.p]
        both = { rate = "1Mbit", delay = "10ms", outages = [{ at = "4s", length = "2s" }] }
        [flow.game]
        path = "p"
        offer = { kind = "positions", objects = 1, bytes = "40", every = "20ms", lifetime = "100ms" }
        policy = "latest"
        expect = { on_time = 0.99 }
    "#;

    #[test]
    fn a_time_line_shows_where_the_trouble_was() {
        let played = [play("test", OUTAGE, 1).unwrap()];
        let text = report(&played, 1);
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap().to_owned();
        let marks = |text: &str| text.chars().skip("trouble  ".len()).take(SLOTS).collect::<Vec<_>>();
        let (trouble, game) = (marks(&line("trouble")), marks(&line("game   ")));
        assert_eq!((game[4], game[19], game[25], game[40]), (' ', '█', '×', '█'), "{text}");
        assert_eq!((trouble[19], trouble[20], trouble[30]), (' ', '!', '!'), "{text}");
        assert!(text.contains("not reached in test: game: 0.8"), "{text}");
        assert_eq!(text, report(&[play("test", OUTAGE, 1).unwrap()], 1));
    }

    #[test]
    fn bars_are_as_high_as_shares() {
        assert_eq!([0.0, 0.01, 0.5, 0.51, 1.0].map(level), ['▁', '▁', '▄', '▅', '█']);
    }
}
