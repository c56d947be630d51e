use std::time::Duration;

use freshwire_link::Direction;

use crate::flow::{FlowConfig, Side};
use crate::outcome::{self, FlowOutcome, Outcome, path_misses};
use crate::scenario::{Happening, Scenario};
use crate::world::{FlowId, PathId, World};

/// Plays a scenario to its end, and on until everything is settled, for a minute at most.
pub fn run(scenario: &Scenario, seed: u64) -> Outcome {
    let mut world = World::new(seed);
    let paths: Vec<PathId> =
        scenario.paths.iter().map(|path| world.add_path(path.up.clone(), path.down.clone())).collect();
    let flows = add_flows(&mut world, scenario, &paths);
    for &(at, happening) in &scenario.events {
        world.run_until(World::START + at);
        apply(&mut world, scenario, &flows, happening);
    }
    world.run_until(World::START + scenario.length);
    world.stop_offers();
    let end = world.now() + PATIENCE;
    while !world.is_settled() && world.now() < end {
        world.run_for(STEP);
    }
    // A settled record may still be on its way to the application of a far end.
    world.run_for(STEP);
    outcome(&world, scenario, &paths, &flows)
}

fn add_flows(world: &mut World, scenario: &Scenario, paths: &[PathId]) -> Vec<FlowId> {
    let mut nodes = Vec::new();
    let mut flows = Vec::new();
    for plan in &scenario.flows {
        let known = nodes.iter().find(|(name, _)| *name == &plan.near).map(|(_, node)| *node);
        let near = known.unwrap_or_else(|| {
            let node = world.add_near();
            nodes.push((&plan.near, node));
            node
        });
        let offer = Some((plan.offer, World::START + plan.start, World::START + scenario.length));
        let offers = match plan.from {
            Side::Near => [offer, None],
            Side::Far => [None, offer],
        };
        let config = FlowConfig {
            near: plan.connection.clone(),
            far: plan.connection.clone(),
            qos: plan.qos,
            policy: plan.policy,
            offers,
            ..FlowConfig::default()
        };
        flows.push(world.add_flow(near, paths[plan.path], config));
    }
    flows
}

fn apply(world: &mut World, scenario: &Scenario, flows: &[FlowId], happening: Happening) {
    let receiver = |flow: usize| scenario.flows[flow].from.other();
    match happening {
        Happening::Rebind(flow) => world.rebind(flows[flow]),
        Happening::Restart(flow, side) => world.restart(flows[flow], side),
        Happening::Stall(flow) => world.consume(flows[flow], receiver(flow), false),
        Happening::Resume(flow) => world.consume(flows[flow], receiver(flow), true),
        Happening::UpdateKeys(flow) => {
            if let Some(connection) = world.connection_mut(flows[flow], scenario.flows[flow].from) {
                connection.update_keys();
            }
        }
    }
}

fn outcome(world: &World, scenario: &Scenario, paths: &[PathId], flows: &[FlowId]) -> Outcome {
    let ways: Vec<_> = paths
        .iter()
        .map(|path| Direction::BOTH.map(|direction| world.path_stats(*path, direction)))
        .collect();
    let mut misses = path_misses(scenario, &ways);
    let (mut faults, mut outcomes) = (Vec::new(), Vec::new());
    for (plan, flow) in scenario.flows.iter().zip(flows) {
        let feed = world.feed(*flow, plan.from);
        let mut outcome = FlowOutcome::of(plan, scenario, feed, World::START);
        outcome.connections = world.flow(*flow).connected_at(Side::Near).len();
        faults.extend(outcome::faults(&plan.name, feed));
        misses.extend(outcome.misses(plan, scenario.trouble.is_some()));
        outcomes.push(outcome);
    }
    misses.extend_from_slice(&faults);
    Outcome {
        flows: outcomes,
        paths: ways,
        misses,
        faults,
        datagrams: world.datagrams(),
        fingerprint: world.fingerprint(),
    }
}

/// Time that a world may take after the last record. Chosen, not measured.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_secs(1);
