//! What the next block of a packet may be, behind those that are in it.

use std::ops::Range;

use crate::wire::{BlockHead, Message, Next, OpenRun};

/// A part of a message that is in a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: u64,
    pub(crate) range: Range<u64>,
}

/// A block with where its bytes are.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) head: BlockHead,
    pub(crate) shape: Shape,
    pub(crate) part: Part,
    pub(crate) token: u64,
    pub(crate) bytes: u32,
}

/// How a block is written.
#[derive(Debug)]
pub(crate) enum Shape {
    /// With all of its head.
    Block,
    /// As a whole message that is like the one before it.
    Next(Next),
    /// As the first of a run of messages that are like this one.
    Run(Message),
    /// As a further message of the run that is open.
    More(Message),
}

/// The last block of a packet that is being made.
#[derive(Debug)]
pub(crate) enum LastBlock {
    Nothing,
    Block(BlockHead),
    Run(OpenRun),
}

impl LastBlock {
    /// Whether the unsent message with this number is worth the rest of the packet. The rest must have room
    /// for a good part of any message, or for one that is like this block's.
    pub(crate) fn takes(&self, id: u64, message: &Message, left: usize) -> bool {
        match self {
            Self::Nothing => true,
            Self::Block(before) => {
                let head = BlockHead { id, offset: 0, start: Some(*message), end: false };
                let fits = |next: Next| next.encoded_len() + message.len as usize <= left;
                left >= WORTH_A_BLOCK || Next::between(before, &head).is_some_and(fits)
            }
            Self::Run(run) => run.takes(id, message) || left >= WORTH_A_BLOCK + self.closing_len(),
        }
    }

    /// Bytes that [`Self::close`] adds.
    pub(crate) fn closing_len(&self) -> usize {
        match self {
            Self::Run(run) => run.closing_len(),
            Self::Nothing | Self::Block(_) => 0,
        }
    }

    /// Lets something follow that is not of the run that is open.
    pub(crate) fn close(&self, out: &mut Vec<u8>) {
        if let Self::Run(run) = self {
            run.close(out);
        }
    }

    /// Whether anything may be worth so much room.
    pub(crate) fn has_use_for(&self, left: usize) -> bool {
        match self {
            Self::Nothing => true,
            Self::Block(before) => {
                let whole = before.start.filter(|_| before.end);
                left >= WORTH_A_BLOCK || whole.is_some_and(|message| left >= message.len as usize + NEXT_HEAD)
            }
            // A message that is cut in two costs no head in either packet.
            Self::Run(_) => left > 0,
        }
    }
}

/// A smaller rest of a packet is left empty rather than filled with a block, whose head takes up to a third
/// of it. Chosen, not measured.
pub(crate) const WORTH_A_BLOCK: usize = 96;
/// What the head of another message takes at most if it is like the one before it.
const NEXT_HEAD: usize = 8;
