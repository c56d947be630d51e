//! `freshwiresrc`: an encoded stream from a sender, or from a server.

mod element;

use gst::glib;
use gst::prelude::*;

use element::FreshwireSrc;

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "freshwiresrc", gst::Rank::PRIMARY, FreshwireSrc::static_type())
}
