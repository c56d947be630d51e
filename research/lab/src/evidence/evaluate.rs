//! From result lines to the numbers of rows, and to the truth of claims. `research/python/freshwire_lab/evidence.py` does the same
//! on its own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::catalogue::{Abscissa, Claim, Item, Order, Row};
use crate::metrics::Spread;

/// A number, with its range over the lines that it is the median of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A row with its numbers.
pub(super) struct Numbered<'a> {
    pub(super) row: &'a Row,
    pub(super) points: Vec<Point>,
    /// Ours divided by the published number, by point.
    pub(super) ratios: Vec<f64>,
    /// None without an expectation.
    pub(super) as_expected: Option<bool>,
    /// Results at a place of the axis that count, and those of a busy machine, which count where there is no other: the most of each.
    pub(super) lines: usize,
    pub(super) busy: usize,
}

pub(super) struct Judged<'a> {
    pub(super) claim: &'a Claim,
    /// None where a row has no numbers, or the claim is for the long form.
    pub(super) holds: Option<bool>,
}

#[derive(Default)]
pub(super) struct Evaluated<'a> {
    pub(super) rows: Vec<Numbered<'a>>,
    pub(super) claims: Vec<Judged<'a>>,
}

impl Evaluated<'_> {
    pub(super) fn is_as_expected(&self) -> bool {
        self.rows.iter().all(|row| row.as_expected != Some(false))
            && self.claims.iter().all(|claim| claim.holds != Some(false))
    }
}

/// The numbers of an item, from the lines of its runs that are there.
pub(super) fn evaluate<'a>(
    item: &'a Item,
    lines: &BTreeMap<&str, Vec<Value>>,
    is_short: bool,
) -> Evaluated<'a> {
    let mut found: BTreeMap<&str, (Vec<Point>, usize, usize)> = BTreeMap::new();
    for row in &item.row {
        let lines = lines.get(run_of(item, row));
        found.insert(&row.name, lines.map_or_else(Default::default, |lines| of_row(row, lines)));
    }
    let points = |row: &Row| -> Vec<Point> {
        let of = |name: &String| found[name.as_str()].0.as_slice();
        let own = &found[row.name.as_str()].0;
        match (&row.over, &row.below) {
            (Some(other), _) => combined(own, of(other), |ours, theirs| ours / theirs),
            (_, Some(other)) => combined(own, of(other), |ours, theirs| 100.0 * (1.0 - ours / theirs)),
            _ => own.clone(),
        }
    };
    let number = |row: &'a Row| {
        let mut numbered = numbered(row, points(row), &found[row.name.as_str()]);
        if row.long && is_short {
            numbered.as_expected = None;
        } else if numbered.points.is_empty() && lines.contains_key(run_of(item, row)) {
            // The run was made, and has no such number.
            numbered.as_expected = Some(false);
        }
        numbered
    };
    let rows: Vec<Numbered<'a>> = item.row.iter().map(number).collect();
    let claims = item.claim.iter().map(|claim| {
        let of = |name: &str| rows.iter().find(|row| row.row.name == name).map_or(&[][..], |row| &row.points);
        let holds = (!(claim.long && is_short))
            .then(|| holds(claim, of(&claim.row), claim.above.as_deref().map(of)))
            .flatten();
        Judged { claim, holds }
    });
    Evaluated { claims: claims.collect(), rows }
}

fn run_of<'a>(item: &'a Item, row: &'a Row) -> &'a str {
    row.run.as_deref().unwrap_or(&item.run[0].name)
}

fn numbered<'a>(row: &'a Row, points: Vec<Point>, found: &(Vec<Point>, usize, usize)) -> Numbered<'a> {
    let published = row.published.as_ref().map_or(&[][..], |numbers| numbers.as_slice());
    let ratios: Vec<f64> =
        points.iter().zip(published).map(|(point, published)| point.y / published).collect();
    let as_expected = row.ratio.filter(|_| !points.is_empty()).map(|[least, most]| {
        ratios.len() == published.len() && ratios.iter().all(|ratio| (least..=most).contains(ratio))
    });
    Numbered { row, points, ratios, as_expected, lines: found.1, busy: found.2 }
}

/// By place on the axis: numbers, and whether the machine kept to the times of their runs.
type Samples = Vec<(f64, Vec<(f64, bool)>)>;

/// The points of a row, the lines that count for it, and those that were set aside.
fn of_row(row: &Row, lines: &[Value]) -> (Vec<Point>, usize, usize) {
    let elements: Vec<(&Value, bool)> = lines.iter().flat_map(|line| elements(row, line)).collect();
    let sets: Vec<Option<f64>> = match &row.x {
        Some(Abscissa::Values(values)) => values.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    let mut samples: Samples = Vec::new();
    for x in sets {
        let matching: Vec<(&Value, bool)> =
            elements.iter().copied().filter(|(element, _)| matches(row, element, x)).collect();
        matching.into_iter().for_each(|(element, is_trusted)| add(&mut samples, row, element, x, is_trusted));
    }
    let (mut counted, mut busy) = (0, 0);
    let factor = row.scale.unwrap_or(1.0);
    let mut points = Vec::new();
    for (x, samples) in samples {
        let trusted: Vec<f64> =
            samples.iter().filter(|(_, is_trusted)| *is_trusted).map(|(y, _)| *y).collect();
        busy = busy.max(samples.len() - trusted.len());
        // By place: setting all of a place aside would leave a gap, and the published numbers go by place.
        let counting = if trusted.is_empty() { samples.iter().map(|(y, _)| *y).collect() } else { trusted };
        counted = counted.max(counting.len());
        if let Some(Spread { min, median, max, .. }) = Spread::of(counting) {
            points.push(Point { x, y: median * factor, least: min * factor, most: max * factor });
        }
    }
    if matches!(row.x, Some(Abscissa::Path(_))) {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    (points, counted, busy)
}

/// The line, or the elements of its list `each`; and whether the machine kept to the run's times.
fn elements<'v>(row: &Row, line: &'v Value) -> Vec<(&'v Value, bool)> {
    let is_trusted = at(line, "trust.trustworthy") != Some(&Value::Bool(false));
    match &row.each {
        None => vec![(line, is_trusted)],
        Some(path) => {
            let list = at(line, path).and_then(Value::as_array);
            list.into_iter().flatten().map(|element| (element, is_trusted)).collect()
        }
    }
}

fn matches(row: &Row, element: &Value, x: Option<f64>) -> bool {
    row.filter.iter().all(|(path, wanted)| match (at(element, path), wanted) {
        (None | Some(Value::Null), Value::String(text)) => text == "none",
        (Some(Value::String(there)), Value::String(text)) => {
            *there == x.map_or_else(|| text.clone(), |x| text.replace("{x}", &x.to_string()))
        }
        (Some(there), wanted) => {
            there == wanted || there.as_f64().zip(wanted.as_f64()).is_some_and(|(a, b)| a == b)
        }
        (None, _) => false,
    })
}

/// Adds the numbers of a line to those with the same place on the axis.
fn add(samples: &mut Samples, row: &Row, element: &Value, x: Option<f64>, is_trusted: bool) {
    let mut put = |x: f64, y: f64| match samples.iter_mut().find(|(at, _)| *at == x) {
        Some((_, of_x)) => of_x.push((y, is_trusted)),
        None => samples.push((x, vec![(y, is_trusted)])),
    };
    let x = match &row.x {
        Some(Abscissa::Path(path)) => at(element, path).and_then(Value::as_f64),
        _ => x,
    };
    match at(element, &row.y) {
        Some(Value::Array(list)) => {
            for (place, one) in list.iter().enumerate() {
                let pair =
                    one.as_array().and_then(|pair| Some((pair.first()?.as_f64()?, pair.get(1)?.as_f64()?)));
                if let Some((x, y)) = pair.or_else(|| Some((place as f64 + 1.0, one.as_f64()?))) {
                    put(x, y);
                }
            }
        }
        Some(value) => {
            if let Some(y) = value.as_f64() {
                put(x.unwrap_or(1.0), y);
            }
        }
        None => {}
    }
}

/// The value at a path of keys and places, within `data` where a line has it.
fn at<'v>(line: &'v Value, path: &str) -> Option<&'v Value> {
    let data = line.get("data").unwrap_or(line);
    path.split('.').try_fold(data, |value, key| match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => value.get(key),
    })
}

/// Point by point; a single point of the other row is for all.
fn combined(own: &[Point], other: &[Point], of: impl Fn(f64, f64) -> f64) -> Vec<Point> {
    let partner = |point: &Point| match other {
        [single] => Some(single.y),
        _ => other.iter().find(|theirs| theirs.x == point.x).map(|theirs| theirs.y),
    };
    let combine = |point: &Point| {
        let theirs = partner(point)?;
        let [y, one, two] = [point.y, point.least, point.most].map(|value| of(value, theirs));
        Some(Point { x: point.x, y, least: one.min(two), most: one.max(two) })
    };
    own.iter().filter_map(combine).collect()
}

fn holds(claim: &Claim, points: &[Point], above: Option<&[Point]>) -> Option<bool> {
    if points.is_empty() || above.is_some_and(<[Point]>::is_empty) {
        return None;
    }
    if let Some(other) = above {
        let pairs = combined(points, other, |ours, theirs| ours - claim.times * theirs);
        return Some(!pairs.is_empty() && pairs.iter().all(|pair| pair.y >= 0.0));
    }
    if let Some([least, most]) = claim.between {
        return Some(points.iter().all(|point| (least..=most).contains(&point.y)));
    }
    let values = || points.iter().map(|point| point.y);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let allowed = claim.slack * most.abs();
    let steps = || points.windows(2).map(|pair| pair[1].y - pair[0].y);
    let ends = points.last()?.y - points.first()?.y;
    match claim.order? {
        Order::Rises => Some(ends > 0.0 && steps().all(|step| step >= -allowed)),
        Order::Falls => Some(ends < 0.0 && steps().all(|step| step <= allowed)),
        Order::Flat => Some(most - least <= allowed),
    }
}

#[cfg(test)]
mod tests;
