//! The live view of the demo: the viewers side by side on a terminal, one line a second elsewhere.

mod big;
mod draw;
mod state;

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::run::Step;
use super::wire::Scheme;

pub(super) use state::State;

/// Shows a run. Dropping it gives the terminal back.
pub(super) struct View {
    state: State,
    terminal: Option<DefaultTerminal>,
    /// The second of the last line without a terminal.
    shown_s: Option<u64>,
}

impl View {
    /// Takes the terminal if standard output is one.
    pub(super) fn open(link: String, duration: Duration) -> anyhow::Result<Self> {
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let state = State { link, duration, sides: Default::default(), coloured };
        let terminal = if std::io::stdout().is_terminal() {
            Some(ratatui::try_init().context("cannot use the terminal")?)
        } else {
            None
        };
        Ok(Self { state, terminal, shown_s: None })
    }

    /// Shows a step; false if the person wants to stop.
    pub(super) fn step(&mut self, step: Step<'_>) -> anyhow::Result<bool> {
        if let Step::Live(scheme, live) = step {
            self.state.sides[scheme.place()].take(live);
        }
        match &mut self.terminal {
            Some(terminal) => {
                terminal
                    .draw(|frame| draw::all(frame, &self.state))
                    .context("cannot draw on the terminal")?;
                wants_to_go_on()
            }
            None => {
                self.tell();
                Ok(true)
            }
        }
    }

    fn tell(&mut self) {
        let at_s = self.state.sides.iter().map(|side| side.live.at_s).fold(f64::INFINITY, f64::min) as u64;
        if at_s == 0 || self.shown_s == Some(at_s) {
            return;
        }
        self.shown_s = Some(at_s);
        let side = |scheme: Scheme| {
            let live = &self.state.sides[scheme.place()].live;
            let dropped: u64 = live.dropped.iter().sum();
            format!("{}: picture {:.1} s old, {dropped} frames dropped", scheme.label(), live.age_s)
        };
        let total_s = self.state.duration.as_secs();
        // A closed standard error is no reason to end the run.
        let _ =
            writeln!(std::io::stderr(), "{at_s:>3} of {total_s} s   {}", Scheme::ALL.map(side).join("   "));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            ratatui::restore();
        }
    }
}

fn wants_to_go_on() -> anyhow::Result<bool> {
    while event::poll(Duration::ZERO).context("cannot read the keyboard")? {
        let Event::Key(key) = event::read().context("cannot read the keyboard")? else { continue };
        let interrupted = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if key.kind == KeyEventKind::Press
            && (interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
