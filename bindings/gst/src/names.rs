//! The values of enumerated properties, with the names of the command's options.

use std::time::Duration;

use freshwire::choice::{self, Choice};
use gst::glib;

/// Which side makes the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstFreshwireMode")]
pub(crate) enum Mode {
    /// This one.
    #[default]
    #[enum_value(name = "Connect to the location", nick = "caller")]
    Caller,
    /// The other one.
    #[enum_value(name = "Listen on the location", nick = "listener")]
    Listener,
}

/// How records lie in a TCP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstFreshwireFraming")]
pub(crate) enum Framing {
    /// Any reader takes it.
    #[default]
    #[enum_value(name = "Payload bytes only, for any reader of H.264, H.265 or ADTS", nick = "raw")]
    Raw,
    /// For `freshwiresrc` and `freshwire recv`.
    #[enum_value(name = "Chunks: a late record can be given up half-way", nick = "chunked")]
    Chunked,
    /// For other programs.
    #[enum_value(name = "A 32-bit big-endian length before each record", nick = "length-prefixed")]
    LengthPrefixed,
}

impl From<Framing> for freshwire::Framing {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Raw => Self::Raw,
            Framing::Chunked => Self::Chunked,
            Framing::LengthPrefixed => Self::LengthPrefixed,
        }
    }
}

/// What chooses records to send or drop on the way to one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstFreshwirePolicy")]
pub(crate) enum Policy {
    /// By the kind of the stream.
    #[default]
    #[enum_value(name = "screen for pictures; for sound deadline, or fifo without one", nick = "auto")]
    Auto,
    /// [`choice::screen`].
    #[enum_value(name = "The freshest and smoothest picture that the path carries", nick = "screen")]
    Screen,
    /// [`choice::fifo`].
    #[enum_value(name = "Everything, in order; a slow path stops the pipeline", nick = "fifo")]
    Fifo,
    /// [`choice::expiring`].
    #[enum_value(name = "In order, without what has expired", nick = "expiring")]
    Expiring,
    /// [`choice::deadline`].
    #[enum_value(name = "In order, without what has expired or would arrive late", nick = "deadline")]
    Deadline,
    /// [`choice::latest`].
    #[enum_value(name = "Only the newest record", nick = "latest")]
    Latest,
    /// [`choice::layered`].
    #[enum_value(name = "The lowest layer first, without what would arrive late", nick = "layered")]
    Layered,
    /// [`choice::frames`].
    #[enum_value(name = "As many whole, decodable frames on time as the path carries", nick = "frames")]
    Frames,
}

impl Policy {
    /// The policy itself, `Auto` resolved.
    pub(crate) fn for_stream(self, is_video: bool, deadline: Option<Duration>) -> Self {
        match (self, is_video, deadline) {
            (Self::Auto, true, _) => Self::Screen,
            (Self::Auto, false, Some(_)) => Self::Deadline,
            (Self::Auto, false, None) => Self::Fifo,
            (policy, ..) => policy,
        }
    }

    /// Whether it means nothing without a deadline.
    pub(crate) fn needs_deadline(self) -> bool {
        matches!(self, Self::Expiring | Self::Deadline | Self::Layered | Self::Frames)
    }

    /// The choice of this name.
    pub(crate) fn choice(self) -> Box<dyn Choice> {
        match self {
            Self::Auto | Self::Screen => Box::new(choice::screen()),
            Self::Fifo => Box::new(choice::fifo()),
            Self::Expiring => Box::new(choice::expiring()),
            Self::Deadline => Box::new(choice::deadline(Duration::ZERO)),
            Self::Latest => Box::new(choice::latest()),
            Self::Layered => Box::new(choice::layered(Duration::ZERO)),
            Self::Frames => Box::new(choice::frames()),
        }
    }
}

/// What the records of a source are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstFreshwireCodec")]
pub(crate) enum Codec {
    /// Recognized by the first bytes.
    #[default]
    #[enum_value(name = "H.264 or H.265, as the first bytes say", nick = "auto")]
    Auto,
    /// H.264.
    #[enum_value(name = "H.264, as a byte stream", nick = "h264")]
    H264,
    /// H.265.
    #[enum_value(name = "H.265, as a byte stream", nick = "h265")]
    H265,
    /// AV1.
    #[enum_value(name = "AV1, temporal units of OBUs", nick = "av1")]
    Av1,
    /// VP9.
    #[enum_value(name = "VP9, superframes", nick = "vp9")]
    Vp9,
    /// Opus.
    #[enum_value(name = "Opus, packets of at most two channels", nick = "opus")]
    Opus,
    /// AAC.
    #[enum_value(name = "AAC, with ADTS headers", nick = "aac")]
    Aac,
}
