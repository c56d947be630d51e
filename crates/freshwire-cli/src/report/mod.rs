//! Self-contained HTML reports: one file, no script, nothing loaded from anywhere, light or dark as the reader likes.

mod chart;
mod frames;
mod html;
mod layers;
mod palette;

pub(crate) use chart::{Axis, BarChart, Bars, LineChart, Mark, Reference, Scatter, Series};
pub(crate) use chart::{bar_chart, line_chart, scatter};
pub(crate) use frames::frames_html;
pub(crate) use html::{Figure, Image, Number, Section};
pub(crate) use html::{escape, figures, image_grid, numbers, page, paragraph, table};
pub(crate) use layers::layers_html;
pub(crate) use palette::{BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, scheme_colour};
