//! `freshwiresink`: an encoded stream into a server within the pipeline, or to one receiver.

mod element;
mod session;
mod settings;
mod track;

use gst::glib;
use gst::prelude::*;

glib::wrapper! {
    pub(crate) struct FreshwireSink(ObjectSubclass<element::Element>)
        @extends gst::Bin, gst::Element, gst::Object,
        @implements gst::ChildProxy;
}

glib::wrapper! {
    struct TrackSink(ObjectSubclass<track::Track>) @extends gst_base::BaseSink, gst::Element, gst::Object;
}

pub(crate) fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "freshwiresink", gst::Rank::NONE, FreshwireSink::static_type())
}
