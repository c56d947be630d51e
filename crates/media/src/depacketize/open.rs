//! The access unit that is being put together, and its limits.

/// Largest frame that is put together; a larger one is dropped. Chosen, not measured.
pub const MAX_FRAME_BYTES: usize = 8 << 20;

/// Most NAL units or OBUs of a frame. The levels of the codecs allow a few hundred slices; each costs something to look at, and
/// millions would fit into the largest frame.
const MAX_PARTS: usize = 4096;

/// The access unit that is being put together.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) ticks: Option<i64>,
    pub(super) bytes: Vec<u8>,
    /// A fragment of it has started and not ended.
    pub(super) in_fragment: bool,
    /// Where the NAL unit begins that is being put together of fragments.
    pub(super) nal_at: usize,
    /// NAL units or OBUs in it.
    pub(super) parts: usize,
    /// It holds a picture and not only what belongs before one.
    pub(super) has_picture: bool,
    /// Its newest packet had a marker, which may or may not be its end.
    pub(super) marked: bool,
    pub(super) broken: bool,
}

impl Open {
    /// One more NAL unit or OBU.
    pub(super) fn begin_part(&mut self) -> Result<(), Malformed> {
        self.parts += 1;
        if self.parts > MAX_PARTS { Err(Malformed) } else { Ok(()) }
    }
}

/// The packet breaks its payload format; the frame it belongs to is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;
