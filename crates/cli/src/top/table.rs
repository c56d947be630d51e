use std::collections::BTreeMap;
use std::time::Instant;

use freshwire_record::Rate;
use freshwire_server::report::{
    PathReport, RateReport, StreamReport, TargetReport, TopicReport, ViewerReport, WatcherReport,
};
use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::style::{Style, Stylize as _};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::fetch::Look;
use crate::output;

const COLUMNS: usize = 12;
const HEAD: [&str; COLUMNS] = [
    "STREAM / VIEWER",
    "PROTOCOL",
    "USER",
    "SINCE",
    "MBIT/S",
    "PATH",
    "RTT",
    "AGE",
    "MAX",
    "ASKED",
    "DROPPED",
    "RENDITION",
];

/// How fast each viewer and reader was served between the last two looks, by the stream's name and their number in it.
#[derive(Default)]
pub(super) struct Rates {
    seen: BTreeMap<(String, u64), (Instant, u64)>,
    rates: BTreeMap<(String, u64), f64>,
}

impl Rates {
    pub(super) fn look(&mut self, look: &Look, now: Instant) {
        let viewers = look.streams.iter().flat_map(|stream| {
            stream.viewers.iter().map(|viewer| ((stream.name.clone(), viewer.id), viewer.path.bytes))
        });
        let watchers = look.topics.iter().flat_map(|topic| {
            topic.watchers.iter().map(|watcher| ((topic.name.clone(), watcher.id), watcher.path.bytes))
        });
        let (mut seen, mut rates) = (BTreeMap::new(), BTreeMap::new());
        for (whose, bytes) in viewers.chain(watchers) {
            if let Some((then, before)) = self.seen.get(&whose) {
                let seconds = now.duration_since(*then).as_secs_f64().max(1e-3);
                rates.insert(whose.clone(), bytes.saturating_sub(*before) as f64 * 8.0 / seconds);
            }
            seen.insert(whose, (now, bytes));
        }
        (self.seen, self.rates) = (seen, rates);
    }

    /// Between two looks, or since the viewer came.
    fn of(&self, stream: &str, id: u64, path: &PathReport, age_s: f64) -> f64 {
        let whole = path.bytes as f64 * 8.0 / age_s.max(1e-3);
        self.rates.get(&(stream.to_owned(), id)).copied().unwrap_or(whole)
    }
}

/// The rows: each stream with its viewers below, then each stream of values with its readers. A stream's path is that of the slowest
/// viewer.
pub(super) fn rows(look: &Look, rates: &Rates) -> Vec<[String; COLUMNS]> {
    let mut rows = Vec::new();
    // A stream of a broker's values is shown with them.
    let has_broker =
        |name: &str| look.topics.iter().any(|topic| topic.name == name && topic.broker.is_some());
    let is_shown = |stream: &&StreamReport| {
        stream.origin.is_some() || !stream.viewers.is_empty() || !has_broker(&stream.name)
    };
    for stream in look.streams.iter().filter(is_shown) {
        let mut row = [const { String::new() }; COLUMNS];
        let state = stream.source.as_ref().map(|source| format!("{}, {}", source.address, source.state));
        let origin = state.as_deref().or(stream.origin.as_deref()).unwrap_or("nobody publishes");
        row[0] = format!("{} ({origin})", stream.name);
        row[1] = format!("{} viewers", stream.viewers.len());
        row[2] = format!("{} units", stream.units);
        row[3] = format!("{} keys", stream.keys);
        row[4] = format!("{}%", stream.arena_used_bytes * 100 / stream.arena_bytes.max(1));
        let present = stream.renditions.iter().filter(|rendition| rendition.present).count();
        row[11] = if present > 1 { format!("{present} to choose from") } else { String::new() };
        row[5] = stream.fit.map_or_else(String::new, |fit| path_rate(fit.slowest));
        rows.push(row);
        let viewer = |id: Option<u64>| stream.viewers.iter().find(|viewer| Some(viewer.id) == id);
        rows.extend(stream.targets.iter().map(|target| {
            target_row(target, viewer(target.viewer).map(|viewer| viewer_row(&stream.name, viewer, rates)))
        }));
        let is_target = |id: u64| stream.targets.iter().any(|target| target.viewer == Some(id));
        let viewers = stream.viewers.iter().filter(|viewer| !is_target(viewer.id));
        rows.extend(viewers.map(|viewer| viewer_row(&stream.name, viewer, rates)));
    }
    for topic in &look.topics {
        rows.push(topic_row(topic));
        rows.extend(topic.watchers.iter().map(|watcher| watcher_row(&topic.name, watcher, rates)));
    }
    rows
}

fn topic_row(topic: &TopicReport) -> [String; COLUMNS] {
    let mut row = [const { String::new() }; COLUMNS];
    let source = topic.broker.as_ref().map_or("values", |broker| broker.address.as_str());
    row[0] = format!("{} ({source})", topic.name);
    row[1] = format!("{} readers", topic.watchers.len());
    row[2] = format!("{} changes", topic.changes);
    row[3] = format!("{} keys", topic.keys);
    if let Some(broker) = &topic.broker {
        let state = broker.reason.as_ref().or(broker.protocol.as_ref()).unwrap_or(&broker.state);
        let refused: u64 = broker.refused.values().sum();
        row[10] = if refused > 0 { format!("{refused} refused") } else { String::new() };
        row[11].clone_from(state);
    }
    row
}

fn watcher_row(topic: &str, watcher: &WatcherReport, rates: &Rates) -> [String; COLUMNS] {
    let path = &watcher.path;
    let dropped = watcher.dropped * 100 / (watcher.sent + watcher.dropped).max(1);
    let held = watcher.held_by.as_ref().map(|by| match watcher.held_unread_s {
        Some(seconds) if by != "acknowledgements" => format!("held: {by} {seconds:.0} s"),
        _ => format!("held: {by}"),
    });
    let waiting = (watcher.waiting_keys > 0).then(|| format!("{} keys wait", watcher.waiting_keys));
    let waiting: Vec<_> = held.into_iter().chain(waiting).collect();
    [
        format!("  {}", watcher.peer),
        watcher.protocol.clone(),
        String::new(),
        format!("{:.0} s", watcher.age_s),
        format!("{:.2}", rates.of(topic, watcher.id, path, watcher.age_s) / 1e6),
        path.carries.map_or_else(String::new, path_rate),
        format!("{:.0} ms", path.rtt_ms),
        format!("{:.0} ms", path.age_at_commit_mean_ms),
        format!("{:.0} ms", path.age_at_commit_max_ms),
        watcher.within_ms.map_or_else(String::new, |within| format!("{within:.0} ms")),
        format!("{dropped}%"),
        waiting.join(", "),
    ]
}

/// A target's row, made of that of the viewer that it is. Its age is that of what has arrived.
fn target_row(target: &TargetReport, viewer: Option<[String; COLUMNS]>) -> [String; COLUMNS] {
    let mut row = viewer.unwrap_or_else(|| {
        let mut row = [const { String::new() }; COLUMNS];
        row[1].clone_from(&target.state);
        row[3] = format!("{:.0} s", target.since_s);
        row[11] = target.reason.clone().unwrap_or_default();
        row
    });
    row[0] = format!("  to {}", target.address);
    if let Some(behind) = target.behind_ms {
        row[7] = format!("{behind:.0} ms");
    }
    row
}

/// The viewer's protocol, and whether most of its bytes are sent without a copy.
fn protocol(viewer: &ViewerReport) -> String {
    let is_by_reference = viewer.path.bytes_by_reference > viewer.path.bytes / 2;
    format!("{}{}", viewer.protocol, if is_by_reference { ", by reference" } else { "" })
}

fn viewer_row(stream: &str, viewer: &ViewerReport, rates: &Rates) -> [String; COLUMNS] {
    let path = &viewer.path;
    let offered: u64 = viewer.offered.iter().sum();
    let sent: u64 = viewer.sent.iter().sum();
    let dropped = offered.saturating_sub(sent) * 100 / offered.max(1);
    let reason = viewer.drops.iter().max_by_key(|(_, count)| **count).map_or("", |(reason, _)| reason);
    [
        format!("  {}", viewer.peer),
        protocol(viewer),
        viewer.user.clone().unwrap_or_default(),
        format!("{:.0} s", viewer.age_s),
        format!("{:.2}", rates.of(stream, viewer.id, path, viewer.age_s) / 1e6),
        path.carries.map_or_else(String::new, path_rate),
        format!("{:.0} ms", path.rtt_ms),
        format!("{:.0} ms", path.age_at_commit_mean_ms),
        format!("{:.0} ms", path.age_at_commit_max_ms),
        viewer.latency_ms.map_or_else(String::new, |latency| format!("{latency:.0} ms")),
        format!("{dropped}% {reason}"),
        rendition(viewer),
    ]
}

/// Which rendition a viewer has, and why.
fn rendition(viewer: &ViewerReport) -> String {
    let Some(name) = &viewer.rendition else { return String::new() };
    let next = viewer.wanted.as_ref().map(|wanted| format!(" > {wanted}")).unwrap_or_default();
    format!("{name}{next} ({})", viewer.why)
}

/// With a mark where the path has shown no limit.
fn path_rate(path: RateReport) -> String {
    let mark = if path.at_least { "\u{2265} " } else { "" };
    format!("{mark}{}", output::rate(Rate::from_bits_per_sec(path.bps)))
}

/// Everything as plain text.
pub(super) fn text(look: &Look) -> String {
    let mut rows = rows(look, &Rates::default());
    rows.insert(0, HEAD.map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

pub(super) fn draw(
    frame: &mut Frame<'_>,
    title: &str,
    answer: &Result<Look, String>,
    rates: &Rates,
    scroll: usize,
) {
    let block = Block::bordered().title(title.to_owned());
    let look = match answer {
        Ok(look) => look,
        Err(error) => return frame.render_widget(Paragraph::new(error.as_str()).block(block), frame.area()),
    };
    let all = rows(look, rates);
    let is_stream = |row: &[String; COLUMNS]| !row[0].starts_with("  ");
    let shown = all.iter().skip(scroll.min(all.len().saturating_sub(1))).map(|row| {
        let style = if is_stream(row) { Style::new().bold() } else { Style::new() };
        Row::new(row.to_vec()).style(style)
    });
    let widths = [32, 12, 12, 10, 8, 14, 8, 8, 8, 8, 20, 20].map(Constraint::Min);
    let table = Table::new(shown, widths).header(Row::new(HEAD).reversed()).block(block);
    frame.render_widget(table, frame.area());
}
