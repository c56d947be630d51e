//! `freshwire link`: any program behind an emulated link, without root.

mod account;
mod args;
mod children;
mod reach;
mod refused;

use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use freshwire_link::Direction;
use freshwire_netns::{Account, Emulator, EmulatorOptions, Enclosure, Namespaces, Signals};

use crate::output::say;
use children::Starter;

pub(crate) use args::LinkArgs;

/// How long a peer may take until it listens.
const PEER_PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command behind the link; the exit code is the command's.
///
/// Call it while the process has a single thread.
pub(crate) fn run(args: LinkArgs) -> anyhow::Result<ExitCode> {
    let up = args.config(Direction::Up).context("direction up")?;
    let down = args.config(Direction::Down).context("direction down")?;
    let signals = Signals::take_over().context("cannot take over the signals")?;
    let namespaces = Namespaces::create()?;
    let options = EmulatorOptions { packet_log: args.pcap.clone(), no_udp_from: args.no_udp };
    let begin = freshwire_io::now();
    let emulator = Emulator::start(&namespaces, up, down, options)?;
    let outcome = thread::scope(|scope| {
        let starter = Starter::new(scope)?;
        let outcome = run_programs(&args, &namespaces, &signals, &starter);
        children::end_all(starter.keeper());
        outcome
    });
    let account = emulator.stop();
    let elapsed = freshwire_io::now().saturating_since(begin);
    let code = outcome?;
    if code != 0
        && let Some(text) = refused::explanation(&namespaces)
    {
        say(text.trim_end());
    }
    report(&args, &account, elapsed, code)?;
    Ok(ExitCode::from(code))
}

fn run_programs<'env>(
    args: &'env LinkArgs,
    namespaces: &'env Namespaces,
    signals: &Signals,
    starter: &Starter<'env>,
) -> anyhow::Result<u8> {
    for route in &args.reach {
        reach::open(namespaces, route)?;
    }
    if let Some(peer) = &args.peer {
        start_peer(namespaces, peer, starter)?;
    }
    let (program, arguments) = args.command.split_first().context("there is no command to run")?;
    // Programs: own
    let mut command = Command::new(program);
    command.args(arguments);
    set_environment(namespaces, &mut command);
    let start = move |enclosure: &Enclosure| {
        enclosure.show_processes(&mut command);
        namespaces.spawn_near(&mut command)
    };
    let child = starter.start(start).with_context(|| format!("cannot run {}", program.display()))?;
    children::look_after(&child, signals)
}

/// Starts the peer and waits until it listens, or for a second if it does not.
fn start_peer<'env>(
    namespaces: &'env Namespaces,
    shell_command: &str,
    starter: &Starter<'env>,
) -> anyhow::Result<()> {
    let before = listening(namespaces)?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(shell_command);
    set_environment(namespaces, &mut command);
    children::detach(&mut command).context("cannot prepare the peer's output")?;
    let start = move |enclosure: &Enclosure| {
        enclosure.show_processes(&mut command);
        namespaces.spawn_far(&mut command)
    };
    starter.start(start).context("cannot run the peer with /bin/sh")?;
    let until = freshwire_io::now() + PEER_PATIENCE;
    while listening(namespaces)? <= before && freshwire_io::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How many sockets wait for a peer in the far namespace.
fn listening(namespaces: &Namespaces) -> anyhow::Result<usize> {
    const LISTEN: &str = "0A";
    const UNCONNECTED: &str = "07";
    let tables = [("tcp", LISTEN), ("tcp6", LISTEN), ("udp", UNCONNECTED), ("udp6", UNCONNECTED)];
    let count = namespaces.in_far(|| {
        let lines = |(table, state): (&str, &str)| {
            // A kernel without IPv6 lacks half of the tables.
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
            text.lines().filter(|line| line.split_whitespace().nth(3) == Some(state)).count()
        };
        tables.into_iter().map(lines).sum()
    })?;
    Ok(count)
}

fn set_environment(namespaces: &Namespaces, command: &mut Command) {
    command.env("FRESHWIRE_NEAR", Namespaces::NEAR_V4.to_string());
    command.env("FRESHWIRE_FAR", Namespaces::FAR_V4.to_string());
    if namespaces.has_ipv6() {
        command.env("FRESHWIRE_NEAR_V6", Namespaces::NEAR_V6.to_string());
        command.env("FRESHWIRE_FAR_V6", Namespaces::FAR_V6.to_string());
    }
}

fn report(args: &LinkArgs, account: &Account, elapsed: Duration, code: u8) -> anyhow::Result<()> {
    let text = match args.account {
        args::AccountFormat::Text => account::text(account, elapsed),
        args::AccountFormat::Json => account::json(args, account, elapsed, code)?,
        args::AccountFormat::None => account::faults(account),
    };
    match &args.account_file {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => {
            if !text.is_empty() {
                say(text.trim_end());
            }
            Ok(())
        }
    }
}
