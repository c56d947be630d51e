//! `freshwiresink`: an encoded stream into a server within the pipeline, or to one receiver.

mod element;
mod session;
mod settings;
mod track;

use gst::glib;
use gst::prelude::*;

use element::FreshwireSink;

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "freshwiresink", gst::Rank::NONE, FreshwireSink::static_type())
}
