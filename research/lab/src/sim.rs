//! `freshwire-lab sim`: scenarios of the A1 transport in virtual time, its speed, and the receive queue.

mod json;
mod played;
mod queue;
mod show;
mod speed;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use freshwire_sim::{SCENARIOS, Scenario};

use crate::output;
use played::PlayedScenario;

/// A scenario is a world of A1 endpoints and paths in a text file, with what has to be reached in it. It is played in
/// virtual time: the same scenario and seed give the same datagrams on every machine.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 all that was expected was reached, 1 something was not, 2 usage or failure.",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    model: Option<Model>,
    /// The name of a scenario, or a TOML file; without it all that come with the program, in one table.
    scenario: Option<String>,
    /// Seed of the links' losses and of all else that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print a JSON line for each scenario instead of tables.
    #[arg(long)]
    json: bool,
    /// Print the scenario's text, to make another one of it, instead of playing it.
    #[arg(long, requires = "scenario", conflicts_with = "json")]
    text: bool,
}

/// Models beside the scenarios.
#[derive(clap::Subcommand)]
enum Model {
    /// The receive queue and packet push of Choi, Kim and Yoo (2007), beside their numbers.
    Queue(queue::QueueArgs),
    /// A1's congestion control on paths of up to 10 Gbit/s.
    Speed(speed::SpeedArgs),
}

/// Runs `freshwire-lab sim`. Exit code 1: something was not reached.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    match &args.model {
        Some(Model::Queue(args)) => return queue::run(args),
        Some(Model::Speed(args)) => return speed::run(args),
        None => {}
    }
    if let Some(name) = args.scenario.as_ref().filter(|_| args.text) {
        output::print(&text_of(name)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let played = match &args.scenario {
        Some(name) => vec![play(name, &text_of(name)?, args.seed)?],
        None => {
            SCENARIOS.iter().map(|(name, text)| play(name, text, args.seed)).collect::<anyhow::Result<_>>()?
        }
    };
    let text = if args.json { json::lines(&played, args.seed)? } else { show::report(&played, args.seed) };
    output::print(&text)?;
    let is_reached = played.iter().all(|played| played.outcome.misses.is_empty());
    Ok(if is_reached { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn play(name: &str, text: &str, seed: u64) -> anyhow::Result<PlayedScenario> {
    let scenario = Scenario::parse(text, seed).with_context(|| format!("scenario {name}"))?;
    let outcome = freshwire_sim::run(&scenario, seed);
    Ok(PlayedScenario { name: name.to_owned(), scenario, outcome })
}

/// The text of a scenario that comes with the program, or of a file.
fn text_of(name: &str) -> anyhow::Result<String> {
    if let Some(text) = Scenario::text_of(name) {
        return Ok(text.to_owned());
    }
    if Path::new(name).extension().is_none() {
        let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        anyhow::bail!("there is no scenario {name:?}; there are {}, and TOML files", names.join(", "));
    }
    std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))
}
