//! Colours that people with any colour vision can tell apart (Okabe and Ito), each scheme keeping its own.

use plotters::style::RGBColor;

use crate::scheme;

pub(crate) const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub(crate) const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
pub(crate) const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub(crate) const YELLOW: RGBColor = RGBColor(0xd1, 0xc4, 0x2a);
pub(crate) const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub(crate) const VERMILLION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
pub(crate) const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
/// For what is there for comparison.
pub(crate) const GREY: RGBColor = RGBColor(0x99, 0x99, 0x99);

/// The colour of text and axes. No palette has it, so that it can be found in the finished drawing and handed to the
/// page, which is light or dark.
pub(crate) const INK: RGBColor = RGBColor(1, 1, 1);

/// The colour of a scheme, the same in every figure.
pub(crate) fn scheme_colour(name: &str) -> RGBColor {
    match name {
        scheme::TCP => VERMILLION,
        scheme::TCP_SMALL_BUFFER => ORANGE,
        scheme::MIN_BUF | "min-buf-1-3" => PURPLE,
        "min-buf-1-0" => SKY,
        "min-buf-2-0" => YELLOW,
        scheme::PRIORITY_PROGRESS => SKY,
        scheme::UDP => GREY,
        scheme::UDP_LIMITED => ORANGE,
        scheme::RESERVE => YELLOW,
        scheme::ENCODER => ORANGE,
        scheme::THESIS => GREEN,
        scheme::THESIS_IMPROPER => PURPLE,
        scheme::FRESHWIRE => BLUE,
        scheme::FRESHWIRE_CHUNKED => SKY,
        scheme::A1 => GREEN,
        scheme::QUIC => PURPLE,
        scheme::SRT => YELLOW,
        scheme::SCTP => ORANGE,
        _ => INK,
    }
}

/// A colour as CSS; the ink is whatever colour the page's text has.
pub(crate) fn css(colour: RGBColor) -> String {
    if colour == INK { "currentColor".to_owned() } else { hex(colour) }
}

/// A colour as `#RRGGBB`, the form that drawings have.
pub(crate) fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}
