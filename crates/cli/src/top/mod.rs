//! `freshwire top`: who views what, and how fresh it is.

mod fetch;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::output::print;
use fetch::Look;
use table::Rates;

/// Interval of requests to the server. Chosen, not measured.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct TopArgs {
    /// The server's internal address.
    #[arg(default_value = "http://127.0.0.1:9464")]
    url: String,
    /// Print once and end; so it is too when the output is no terminal.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let server = fetch::Server::parse(&args.url)?;
    if args.once || !std::io::stdout().is_terminal() {
        print(&table::text(&server.look()?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init().context("cannot use the terminal; try --once")?;
    let shown = watch(&server, &mut terminal);
    ratatui::restore();
    shown.map(|()| ExitCode::SUCCESS)
}

fn watch(server: &fetch::Server, terminal: &mut ratatui::DefaultTerminal) -> anyhow::Result<()> {
    let mut rates = Rates::default();
    let mut scroll = 0;
    loop {
        let asked = Instant::now();
        let answer: Result<Look, String> = server.look().map_err(|error| format!("{error:#}"));
        if let Ok(look) = &answer {
            rates.look(look, asked);
        }
        loop {
            terminal.draw(|frame| table::draw(frame, &args_title(server), &answer, &rates, scroll))?;
            let left = EVERY.saturating_sub(asked.elapsed());
            if left.is_zero() || !event::poll(left)? {
                break;
            }
            let Event::Key(key) = event::read()? else { continue };
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Down => scroll = usize::saturating_add(scroll, 1),
                KeyCode::Up => scroll = scroll.saturating_sub(1),
                _ => {}
            }
        }
    }
}

fn args_title(server: &fetch::Server) -> String {
    format!(" freshwire top {server}   q ends, arrows scroll ")
}

#[cfg(test)]
mod tests;
