//! What a person sees while the demo runs: the viewers side by side on a terminal, one line a second elsewhere.

mod big;
mod draw;

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::run::Step;
use super::wire::{Live, Scheme};

/// What is known of the runs.
pub(super) struct State {
    /// What the link is, in words.
    pub(super) link: String,
    pub(super) duration: Duration,
    pub(super) sides: [Side; Scheme::ALL.len()],
    /// Colours may be used.
    pub(super) coloured: bool,
}

/// What is known of one run.
#[derive(Default)]
pub(super) struct Side {
    pub(super) live: Live,
    /// Instants in seconds, and the age of the picture in milliseconds.
    pub(super) ages: Vec<(f64, u64)>,
    /// Received bits per second, over the last second.
    pub(super) rate_bps: f64,
    /// Instants and received bytes of the last second.
    received: VecDeque<(f64, u64)>,
}

impl Side {
    fn take(&mut self, live: &Live) {
        self.live = live.clone();
        self.ages.push((live.at_s, (live.age_s * 1e3) as u64));
        self.received.push_back((live.at_s, live.received_bytes));
        while self.received.len() > 2 && self.received.front().is_some_and(|(at, _)| live.at_s - at > 1.0) {
            self.received.pop_front();
        }
        if let (Some(first), Some(last)) = (self.received.front(), self.received.back())
            && last.0 > first.0
        {
            self.rate_bps = (last.1 - first.1) as f64 * 8.0 / (last.0 - first.0);
        }
    }
}

/// Shows a run. Dropping it gives the terminal back.
pub(super) struct View {
    state: State,
    terminal: Option<DefaultTerminal>,
    /// The second that was last told of without a terminal.
    told_s: Option<u64>,
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
        Ok(Self { state, terminal, told_s: None })
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
        if at_s == 0 || self.told_s == Some(at_s) {
            return;
        }
        self.told_s = Some(at_s);
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
