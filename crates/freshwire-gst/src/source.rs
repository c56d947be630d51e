//! `freshwiresrc`: an encoded stream from a sender, or from a server.

mod element;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub(crate) struct FreshwireSrc(ObjectSubclass<element::Element>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "freshwiresrc", gst::Rank::NONE, FreshwireSrc::static_type())
}
