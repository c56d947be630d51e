//! Drawing the state of the runs on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, LineGauge, Paragraph, Sparkline};

use super::big;
use super::state::{Side, State};
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
    let columns: [Rect; Scheme::ALL.len()] =
        Layout::horizontal([Constraint::Fill(1); Scheme::ALL.len()]).areas(body);
    for ((scheme, side), area) in Scheme::ALL.into_iter().zip(&state.sides).zip(columns) {
        self::side(frame, area, scheme, side, state);
    }
    progress(frame, foot, state);
}

fn side(frame: &mut Frame<'_>, area: Rect, scheme: Scheme, side: &Side, state: &State) {
    let style = colour(side, state.coloured);
    let block = Block::bordered().border_type(BorderType::Rounded).title(format!(" {} ", scheme.label()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [age, about, curve, ladder, counters] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(LAYERS as u16),
        Constraint::Length(6),
    ])
    .horizontal_margin(1)
    .areas(inner);
    let shown = if side.live.on_air { format!("{:.1} s", side.live.age_s) } else { "...".to_owned() };
    let digits: Vec<Line<'_>> = big::rows(&shown).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(digits).style(style), age);
    frame.render_widget(Paragraph::new("is how old the picture is; so far:"), about);
    frame.render_widget(curve_of(side, state, curve.width).style(style), curve);
    layers(frame, ladder, &side.live);
    frame.render_widget(Paragraph::new(lines(scheme, side, counters.width)), counters);
}

/// The whole run over the width, on the same scale for both sides.
fn curve_of(side: &Side, state: &State, width: u16) -> Sparkline<'static> {
    let highest =
        state.sides.iter().flat_map(|side| side.ages.iter().map(|(_, age)| *age)).max().unwrap_or(0);
    let per_column_s = state.duration.as_secs_f64() / f64::from(width.max(1));
    let mut columns: Vec<u64> = Vec::new();
    for &(at_s, age) in &side.ages {
        let column = ((at_s / per_column_s) as usize).min(usize::from(width.saturating_sub(1)));
        // A column without a sample of its own shows what was there before.
        let before = columns.last().copied().unwrap_or(0);
        if columns.len() <= column {
            columns.resize(column, before);
            columns.push(age);
        } else if let Some(last) = columns.last_mut() {
            *last = age.max(before);
        }
    }
    Sparkline::default().data(columns).max(highest.max(LOWEST_TOP_MS))
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

fn lines(scheme: Scheme, side: &Side, width: u16) -> Vec<Line<'static>> {
    let live = &side.live;
    let mut reasons: Vec<(&String, &u64)> = live.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let why: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let dropped: u64 = live.dropped.iter().sum();
    let dropped = match scheme {
        Scheme::PlainTcp => "dropped   nothing: all frames wait".to_owned(),
        Scheme::Freshwire | Scheme::A1 => format!("dropped   {dropped} frames:"),
    };
    let mut lines = vec![
        Line::from(format!("received  {:.0} kbit/s, {} torn", side.rate_bps / 1e3, live.torn)),
        Line::from(format!("horizon   {:.1} kB for good", live.horizon_bytes as f64 / 1e3)),
        Line::from(dropped),
    ];
    let in_a_line = if width < TWO_REASONS { 1 } else { 2 };
    lines.extend(why.chunks(in_a_line).map(|two| Line::from(format!("          {}", two.join(", ")))));
    lines
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

/// The columns that two reasons take side by side.
const TWO_REASONS: u16 = 46;
/// The curve's scale shows at least two seconds, so that a good run does not look restless.
const LOWEST_TOP_MS: u64 = 2000;
const NAMES: [&str; LAYERS] = ["I", "P", "B", "b"];
