//! Drawing the state of both runs on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, LineGauge, Paragraph, Sparkline};

use super::{Side, State, big};
use crate::demo::wire::{LAYERS, Live, Scheme};

/// Draws everything.
pub(super) fn all(frame: &mut Frame<'_>, state: &State) {
    let [title, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let text = Line::from(vec![
        Span::styled(" the same live video, the same link  ", bold),
        Span::raw(state.link.as_str()),
    ]);
    frame.render_widget(Paragraph::new(text), title);
    let columns: [Rect; 2] = Layout::horizontal([Constraint::Fill(1); 2]).areas(body);
    for ((scheme, side), area) in Scheme::BOTH.into_iter().zip(&state.sides).zip(columns) {
        self::side(frame, area, scheme, side, state.coloured);
    }
    progress(frame, foot, state);
}

fn side(frame: &mut Frame<'_>, area: Rect, scheme: Scheme, side: &Side, coloured: bool) {
    let style = colour(side, coloured);
    let block = Block::bordered().border_type(BorderType::Rounded).title(format!(" {} ", scheme.label()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [age, about, curve, ladder, counters] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(LAYERS as u16),
        Constraint::Length(4),
    ])
    .horizontal_margin(1)
    .areas(inner);
    let shown = if side.live.on_air { format!("{:.1} s", side.live.age_s) } else { "...".to_owned() };
    let digits: Vec<Line<'_>> = big::rows(&shown).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(digits).style(style), age);
    frame.render_widget(Paragraph::new("is how old the picture on the screen is"), about);
    curve_of(frame, curve, side, style);
    layers(frame, ladder, &side.live);
    frame.render_widget(Paragraph::new(lines(scheme, side)), counters);
}

fn curve_of(frame: &mut Frame<'_>, area: Rect, side: &Side, style: Style) {
    let width = usize::from(area.width);
    let skip = side.ages_ms.len().saturating_sub(width);
    let data: Vec<u64> = side.ages_ms.iter().skip(skip).copied().collect();
    let highest = data.iter().copied().max().unwrap_or(0).max(2000);
    frame.render_widget(Sparkline::default().data(data).max(highest).style(style), area);
}

fn layers(frame: &mut Frame<'_>, area: Rect, live: &Live) {
    let rows: [Rect; LAYERS] = Layout::vertical([Constraint::Length(1); LAYERS]).areas(area);
    for (layer, row) in rows.into_iter().enumerate() {
        let (arrived, emitted) = (live.arrived[layer], live.emitted[layer]);
        let ratio = (arrived as f64 / emitted.max(1) as f64).clamp(0.0, 1.0);
        let gauge = LineGauge::default()
            .ratio(ratio)
            .label(format!("{} {arrived:>4} of {emitted:<4}", NAMES[layer]))
            .filled_symbol("━")
            .unfilled_symbol("─");
        frame.render_widget(gauge, row);
    }
}

fn lines(scheme: Scheme, side: &Side) -> Vec<Line<'static>> {
    let live = &side.live;
    let mut reasons: Vec<(&String, &u64)> = live.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let why: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let dropped: u64 = live.dropped.iter().sum();
    let dropped = match scheme {
        Scheme::PlainTcp => "dropped   nothing: every frame waits its turn".to_owned(),
        Scheme::Freshwire => format!("dropped   {dropped} frames"),
    };
    vec![
        Line::from(format!("received  {:.0} kbit/s", side.rate_bps / 1e3)),
        Line::from(format!("horizon   {:.1} kB that nobody can take back", live.horizon_bytes as f64 / 1e3)),
        Line::from(dropped),
        Line::from(format!("          {}", why.join(", "))),
    ]
}

fn progress(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let at_s = state.sides.iter().map(|side| side.live.at_s).fold(f64::INFINITY, f64::min);
    let total_s = state.duration.as_secs_f64();
    let gauge = LineGauge::default()
        .ratio((at_s / total_s).clamp(0.0, 1.0))
        .label(format!(" {:.0} of {total_s:.0} s, q stops ", at_s.min(total_s)))
        .filled_symbol("━")
        .unfilled_symbol("─");
    frame.render_widget(gauge, area);
}

fn colour(side: &Side, coloured: bool) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match side.live.age_s {
        _ if !coloured => bold,
        age if age <= 1.0 => bold.fg(Color::Green),
        age if age <= 2.0 => bold.fg(Color::Yellow),
        _ => bold.fg(Color::Red),
    }
}

const NAMES: [&str; LAYERS] = ["I", "P", "B", "b"];
