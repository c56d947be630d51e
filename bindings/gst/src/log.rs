//! The debug category `freshwire`, and what the server logs on its way there.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The category of both elements and of the server within `freshwiresink`.
pub(crate) static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new(
        "freshwire",
        gst::DebugColorFlags::empty(),
        Some("Freshwire's elements and server"),
    )
});

/// What a server's threads log to. It is set per thread, because the process's own subscriber belongs to the application.
pub(crate) fn bridge() -> Dispatch {
    Dispatch::new(Bridge)
}

struct Bridge;

fn level_of(level: Level) -> gst::DebugLevel {
    match level {
        Level::ERROR => gst::DebugLevel::Error,
        Level::WARN => gst::DebugLevel::Warning,
        Level::INFO => gst::DebugLevel::Info,
        Level::DEBUG => gst::DebugLevel::Debug,
        Level::TRACE => gst::DebugLevel::Trace,
    }
}

impl Subscriber for Bridge {
    /// Each time anew: a category's threshold can be changed.
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        gst::DebugLogger::above_threshold(&*CAT, level_of(*metadata.level()))
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let text = line.0;
        match level_of(*event.metadata().level()) {
            gst::DebugLevel::Error => gst::error!(CAT, "{text}"),
            gst::DebugLevel::Warning => gst::warning!(CAT, "{text}"),
            gst::DebugLevel::Info => gst::info!(CAT, "{text}"),
            gst::DebugLevel::Debug => gst::debug!(CAT, "{text}"),
            _ => gst::trace!(CAT, "{text}"),
        }
    }

    // The server has no spans.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The message, with the other fields behind it.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            let fields = std::mem::take(&mut self.0);
            write!(self.0, "{value:?}{fields}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
    }
}
