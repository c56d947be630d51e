//! What GStreamer asks of a plugin.
#![allow(missing_docs, reason = "GStreamer's macro writes no documentation")]

use gst::glib;

use crate::{sink, source};

fn init(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    sink::register(plugin)?;
    source::register(plugin)
}

gst::plugin_define!(
    freshwire,
    env!("CARGO_PKG_DESCRIPTION"),
    init,
    env!("CARGO_PKG_VERSION"),
    // As in GStreamer's list of licences. Apache-2.0 is the other choice.
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY")
);
