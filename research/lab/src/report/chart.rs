//! Drawings as inline SVG. Text and axes take the colour of the page; the legend is HTML beside the drawing, so that it
//! wraps on a narrow screen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::anyhow;
use plotters::chart::{ChartContext, MeshStyle};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::html::escape;
use super::palette::{self, INK};

/// An axis: what it measures, with the unit, and from where to where.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Its quantity and unit.
    pub(crate) label: String,
    /// Its lower end.
    pub(crate) from: f64,
    /// Its upper end, above the lower.
    pub(crate) to: f64,
}

/// A curve, with the spread that it is the middle of.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Its colour.
    pub(crate) colour: RGBColor,
    /// Its corners.
    pub(crate) points: Vec<(f64, f64)>,
    /// Lowest and highest value at each x, drawn as a band; empty for none.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

/// A straight line to compare with, dashed in the colour of the text.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Its two ends.
    pub(crate) ends: [(f64, f64); 2],
}

/// Curves over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct LineChart {
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// The curves; later ones lie on top.
    pub(crate) series: Vec<Series>,
    /// Lines to compare with.
    pub(crate) references: Vec<Reference>,
}

impl LineChart {
    /// Curves over axes from 0 to the number beside each label.
    pub(crate) fn new(
        x: (&str, f64),
        y: (&str, f64),
        series: Vec<Series>,
        references: Vec<Reference>,
    ) -> Self {
        let axis = |(label, to): (&str, f64)| Axis { label: label.to_owned(), from: 0.0, to };
        Self { x: axis(x), y: axis(y), series, references }
    }
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Their name in the legend.
    pub(crate) name: String,
    /// Their colour.
    pub(crate) colour: RGBColor,
    /// Where they are.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Points over one pair of axes.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// The points; later kinds lie on top.
    pub(crate) marks: Vec<Mark>,
    /// Lines to compare with.
    pub(crate) references: Vec<Reference>,
}

/// One bar in each category.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// Their name in the legend.
    pub(crate) name: String,
    /// Their colour.
    pub(crate) colour: RGBColor,
    /// Height, and the lowest and highest value it is the middle of; none for no bar.
    pub(crate) values: Vec<Option<(f64, f64, f64)>>,
}

/// Bars side by side in categories.
#[derive(Clone, Debug)]
pub(crate) struct BarChart {
    /// The name of the categories.
    pub(crate) x_label: String,
    /// The categories' names.
    pub(crate) categories: Vec<String>,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// The bars, as many values to each as there are categories.
    pub(crate) bars: Vec<Bars>,
    /// A height to compare with, and its name.
    pub(crate) level: Option<(String, f64)>,
}

/// Draws curves; `about` describes the drawing for screen readers.
pub(crate) fn line_chart(about: &str, chart: &LineChart) -> anyhow::Result<String> {
    let svg = draw(about, |area| {
        let mut canvas = axes(area, &chart.x, &chart.y)?;
        for series in &chart.series {
            let low = series.band.iter().map(|(x, low, _)| (*x, *low));
            let high = series.band.iter().rev().map(|(x, _, high)| (*x, *high));
            let outline: Vec<_> = low.chain(high).collect();
            canvas.draw_series(std::iter::once(Polygon::new(outline, series.colour.mix(0.18))))?;
        }
        draw_references(&mut canvas, &chart.references)?;
        for series in &chart.series {
            let style = series.colour.stroke_width(2 * SCALE);
            canvas.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
        }
        Ok(())
    })?;
    let keys = chart.series.iter().map(|series| ("", series.colour, series.name.as_str()));
    Ok(legend(keys, &chart.references) + &svg)
}

/// Draws points; `about` describes the drawing for screen readers.
pub(crate) fn scatter(about: &str, chart: &Scatter) -> anyhow::Result<String> {
    let svg = draw(about, |area| {
        let mut canvas = axes(area, &chart.x, &chart.y)?;
        draw_references(&mut canvas, &chart.references)?;
        for mark in &chart.marks {
            let style = mark.colour.mix(0.75).filled();
            let visible = thinned(&mark.points, &chart.x, &chart.y);
            canvas.draw_series(visible.into_iter().map(|point| Circle::new(point, DOT, style)))?;
        }
        Ok(())
    })?;
    let keys = chart.marks.iter().map(|mark| (" dot", mark.colour, mark.name.as_str()));
    Ok(legend(keys, &chart.references) + &svg)
}

/// The points inside the axes, one of those that would cover each other.
fn thinned(points: &[(f64, f64)], x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    let place = |axis: &Axis, at: f64| ((at - axis.from) / (axis.to - axis.from) * 300.0).round() as i64;
    let mut taken = BTreeSet::new();
    let inside =
        points.iter().filter(|(at_x, at_y)| (x.from..=x.to).contains(at_x) && (y.from..=y.to).contains(at_y));
    inside.filter(|(at_x, at_y)| taken.insert((place(x, *at_x), place(y, *at_y)))).copied().collect()
}

/// Draws bars; `about` describes the drawing for screen readers.
pub(crate) fn bar_chart(about: &str, chart: &BarChart) -> anyhow::Result<String> {
    let x = Axis { label: chart.x_label.clone(), from: 0.0, to: chart.categories.len() as f64 };
    let references: Vec<Reference> = chart
        .level
        .iter()
        .map(|(name, level)| Reference { name: name.clone(), ends: [(x.from, *level), (x.to, *level)] })
        .collect();
    let svg = draw(about, |area| {
        let mut canvas = plane(area, &x, &chart.y)?;
        let mut mesh = canvas.configure_mesh();
        style_mesh(&mut mesh, &x, &chart.y);
        mesh.disable_x_mesh().disable_x_axis().x_labels(0).draw()?;
        draw_categories(area, &canvas, chart)?;
        let width = 0.8 / chart.bars.len().max(1) as f64;
        for (place, bars) in chart.bars.iter().enumerate() {
            for (category, value) in bars.values.iter().enumerate() {
                let Some((height, low, high)) = *value else { continue };
                let left = category as f64 + 0.1 + place as f64 * width;
                let corners = [(left + 0.04 * width, 0.0), (left + 0.96 * width, height)];
                canvas.draw_series(std::iter::once(Rectangle::new(corners, bars.colour.filled())))?;
                if high > low {
                    let middle = left + width / 2.0;
                    let whisker = vec![(middle, low), (middle, high)];
                    let style = INK.stroke_width(SCALE + SCALE / 2);
                    canvas.draw_series(std::iter::once(PathElement::new(whisker, style)))?;
                }
            }
        }
        draw_references(&mut canvas, &references)
    })?;
    let keys = chart.bars.iter().map(|bars| (" box", bars.colour, bars.name.as_str()));
    Ok(legend(keys, &references) + &svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Canvas<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Lets `paint` draw, and fits the result into the page.
fn draw(about: &str, paint: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH * SCALE, HEIGHT * SCALE)).into_drawing_area();
        paint(&area)?;
        area.present()?;
    }
    let body = svg.find('>').map(|end| &svg[end + 1..]).ok_or_else(|| anyhow!("the drawing is empty"))?;
    let body = body.replace(&palette::hex(INK), "currentColor");
    let (width, height) = (WIDTH * SCALE, HEIGHT * SCALE);
    Ok(format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{body}", escape(about)))
}

/// The plane between two axes, without any marks.
fn plane<'a, 'b>(area: &'a Area<'b>, x: &Axis, y: &Axis) -> anyhow::Result<Canvas<'a, 'b>> {
    let canvas = ChartBuilder::on(area)
        .margin(6 * SCALE)
        .margin_top(12 * SCALE)
        .margin_right(14 * SCALE)
        .x_label_area_size(if x.label.is_empty() { 28 } else { 50 } * SCALE)
        .y_label_area_size(62 * SCALE)
        .build_cartesian_2d(x.from..x.to, y.from..y.to)?;
    Ok(canvas)
}

fn axes<'a, 'b>(area: &'a Area<'b>, x: &Axis, y: &Axis) -> anyhow::Result<Canvas<'a, 'b>> {
    let mut canvas = plane(area, x, y)?;
    let mut mesh = canvas.configure_mesh();
    style_mesh(&mut mesh, x, y);
    mesh.draw()?;
    Ok(canvas)
}

fn text_style() -> TextStyle<'static> {
    ("sans-serif", FONT * f64::from(SCALE)).into_font().color(&INK)
}

fn style_mesh(
    mesh: &mut MeshStyle<'_, '_, RangedCoordf64, RangedCoordf64, SVGBackend<'_>>,
    x: &Axis,
    y: &Axis,
) {
    let text = text_style();
    mesh.x_desc(x.label.clone())
        .y_desc(y.label.clone())
        .x_labels(8)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(INK.mix(0.12).stroke_width(SCALE))
        .axis_style(INK.mix(0.6).stroke_width(SCALE))
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_label_formatter(&|at| tick(*at))
        .y_label_formatter(&|at| tick(*at));
}

/// Writes each category's name below the middle of its bars.
fn draw_categories(area: &Area<'_>, canvas: &Canvas<'_, '_>, chart: &BarChart) -> anyhow::Result<()> {
    let style = text_style().pos(Pos::new(HPos::Center, VPos::Top));
    for (place, name) in chart.categories.iter().enumerate() {
        let (x, y) = canvas.backend_coord(&(place as f64 + 0.5, chart.y.from));
        area.draw_text(name, &style, (x, y + 6 * SCALE as i32))?;
    }
    Ok(())
}

fn draw_references(canvas: &mut Canvas<'_, '_>, references: &[Reference]) -> anyhow::Result<()> {
    for (place, reference) in references.iter().enumerate() {
        let style = INK.mix(0.75).stroke_width(SCALE + SCALE / 2);
        let (dash, gap) = dashes(references, place);
        canvas.draw_series(DashedLineSeries::new(reference.ends, dash * SCALE, gap * SCALE, style))?;
    }
    Ok(())
}

/// The dash and the gap of a reference: another one for each name.
fn dashes(references: &[Reference], place: usize) -> (u32, u32) {
    let name = &references[place].name;
    let mut names: Vec<&str> = Vec::new();
    for reference in &references[..place] {
        if reference.name != *name && !names.contains(&reference.name.as_str()) {
            names.push(&reference.name);
        }
    }
    DASHES[names.len() % DASHES.len()]
}

fn legend<'a>(keys: impl Iterator<Item = (&'a str, RGBColor, &'a str)>, references: &[Reference]) -> String {
    let mut html = "<ul class=\"legend\">".to_owned();
    for (kind, colour, name) in keys {
        let property = if kind.is_empty() { "border-color" } else { "background" };
        let colour = palette::css(colour);
        // Writing to a `String` cannot fail.
        let _ = write!(
            html,
            "<li><span class=\"key{kind}\" style=\"{property}:{colour}\"></span>{}</li>",
            escape(name)
        );
    }
    for (place, reference) in references.iter().enumerate() {
        if references[..place].iter().any(|earlier| earlier.name == reference.name) {
            continue;
        }
        let (dash, gap) = dashes(references, place);
        let _ = write!(
            html,
            "<li><svg class=\"line\" viewBox=\"0 0 30 4\" aria-hidden=\"true\"><path d=\"M0 2H30\" \
             stroke=\"currentColor\" stroke-width=\"1.5\" stroke-dasharray=\"{dash} {gap}\"/></svg>{}</li>",
            escape(&reference.name)
        );
    }
    html + "</ul>\n"
}

/// A number on an axis, with no more digits than it needs.
fn tick(at: f64) -> String {
    let rounded = (at * 1000.0).round() / 1000.0;
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

const WIDTH: u32 = 520;
const HEIGHT: u32 = 320;
/// The drawing's own units to a point of the page: positions are whole numbers, and points alone would show steps.
const SCALE: u32 = 4;
const FONT: f64 = 19.0;
const DASHES: [(u32, u32); 4] = [(6, 4), (2, 3), (14, 4), (1, 6)];
const DOT: u32 = 2 * SCALE + SCALE / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::{BLUE, ORANGE};

    fn axis(label: &str, to: f64) -> Axis {
        Axis { label: label.to_owned(), from: 0.0, to }
    }

    #[test]
    fn every_bar_is_drawn_and_named() {
        let bars = |name: &str, colour| Bars {
            name: name.to_owned(),
            colour,
            values: vec![Some((3.0, 2.0, 4.0)), None, Some((1.0, 1.0, 1.0))],
        };
        let chart = BarChart {
            x_label: "layer".to_owned(),
            categories: vec!["eins".to_owned(), "zwei".to_owned(), "drei".to_owned()],
            y: axis("bytes", 5.0),
            bars: vec![bars("a & b", BLUE), bars("c", ORANGE)],
            level: Some(("all".to_owned(), 4.5)),
        };
        let html = bar_chart("bars", &chart).unwrap();
        assert_eq!(html.matches(&palette::hex(BLUE)).count(), 2 + 1, "two bars and a key");
        for text in ["a &amp; b", "eins", "zwei", "drei", "layer", "bytes", "all"] {
            assert!(html.contains(text), "{text} is missing");
        }
        assert!(html.contains("currentColor") && !html.contains("#010101"));
    }

    #[test]
    fn points_outside_or_on_top_of_each_other_are_left_out() {
        let points = [(1.0, 1.0), (1.001, 1.001), (5.0, 5.0), (11.0, 5.0), (5.0, -1.0)];
        assert_eq!(thinned(&points, &axis("x", 10.0), &axis("y", 10.0)), [(1.0, 1.0), (5.0, 5.0)]);
    }

    #[test]
    fn references_of_one_name_share_a_key() {
        let reference =
            |name: &str, at: f64| Reference { name: name.to_owned(), ends: [(at, 0.0), (at, 1.0)] };
        let references = [reference("deadline", 1.0), reference("change", 2.0), reference("change", 3.0)];
        assert_eq!(dashes(&references, 1), dashes(&references, 2));
        assert_ne!(dashes(&references, 0), dashes(&references, 1));
        assert_eq!(legend(std::iter::empty(), &references).matches("change").count(), 1);
    }

    #[test]
    fn numbers_on_axes_are_short() {
        assert_eq!([0.1 + 0.2, 1000.0, -0.0, 2.5].map(tick), ["0.3", "1000", "0", "2.5"]);
    }
}
