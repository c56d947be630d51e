//! Units of live streams that come whole: what AV1 and VP9 have in common.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::coded::{Coded, VideoError};
use super::depend::{Dependencies, Use};
use super::nal::Gate;
use crate::unit::VideoTrack;

/// What differs between the codecs.
pub(crate) trait WholeCodec: Default {
    /// Reads a unit with the state that the units before left. `None` if it cannot be read or refers to a
    /// missing unit. Later units depend on this one by `number`. After `None` comes a key unit or nothing.
    fn read(&mut self, bytes: &[u8], number: u64) -> Option<Frame>;

    /// Whether frames may still refer to a unit.
    fn holds(&self, number: u64) -> bool;

    /// Whether a unit can be one where decoding begins, before it is read.
    fn is_key(&mut self, bytes: &[u8]) -> bool;
}

/// A unit that was read.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Its bytes as they are passed on.
    pub(crate) bytes: Vec<u8>,
    /// The OBUs among them, if it consists of such.
    pub(crate) obus: Vec<Range<u32>>,
    pub(crate) key: bool,
    pub(crate) temporal_id: u8,
    /// Nothing depends on it.
    pub(crate) droppable: bool,
    /// Numbers of the units it depends on.
    pub(crate) on: Vec<u64>,
    /// The track, for a key.
    pub(crate) track: Option<VideoTrack>,
    pub(crate) frame_ns: Option<u32>,
}

impl Frame {
    /// A unit with these bytes that nothing is known of yet.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            obus: Vec::new(),
            key: false,
            temporal_id: 0,
            droppable: true,
            on: Vec::new(),
            track: None,
            frame_ns: None,
        }
    }
}

/// The frame buffers that frames refer to: the number of the unit that filled each one last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots([Option<u64>; 8]);

impl Slots {
    /// The number of the unit that was decoded into slot `at`.
    pub(crate) fn get(&self, at: u32) -> Option<u64> {
        self.0.get(usize::try_from(at).ok()?).copied().flatten()
    }

    /// All units that slots hold.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied().flatten()
    }

    /// Whether any of them holds a frame of this unit.
    pub(crate) fn hold(&self, number: u64) -> bool {
        self.0.contains(&Some(number))
    }

    /// Fills the slots whose bits are set.
    pub(crate) fn refresh(&mut self, flags: u32, number: u64) {
        for (at, slot) in self.0.iter_mut().enumerate() {
            if flags >> at & 1 == 1 {
                *slot = Some(number);
            }
        }
    }
}

/// Makes units of what was pushed between two calls of `complete`.
#[derive(Clone, Debug)]
pub(crate) struct WholeUnits<C> {
    codec: C,
    bytes: Vec<u8>,
    limit: usize,
    dependencies: Dependencies,
    track: Option<Arc<VideoTrack>>,
    pub(crate) gate: Gate,
    ready: VecDeque<Result<Coded, VideoError>>,
}

impl<C: WholeCodec> WholeUnits<C> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            codec: C::default(),
            bytes: Vec::new(),
            limit,
            dependencies: Dependencies::default(),
            track: None,
            gate: Gate::default(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // One byte more tells a unit that is too large.
        let room = self.limit.saturating_add(1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(crate) fn complete(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.len() > self.limit {
            self.gate.lose();
            self.ready.push_back(Err(VideoError::TooLarge { limit: self.limit }));
        } else if !bytes.is_empty() {
            match self.unit(&bytes) {
                Some(unit) => self.ready.push_back(Ok(unit)),
                None => self.gate.lose(),
            }
        }
    }

    pub(crate) fn lose(&mut self) {
        self.bytes.clear();
        self.gate.lose();
    }

    fn unit(&mut self, bytes: &[u8]) -> Option<Coded> {
        if self.gate.is_shut && !self.codec.is_key(bytes) {
            return None;
        }
        let number = self.dependencies.next_number();
        let frame = self.codec.read(bytes, number).filter(|frame| frame.key || !self.gate.is_shut)?;
        let part = match &frame {
            Frame { key: true, .. } => Use::Key,
            Frame { droppable: true, .. } => Use::Leaf,
            _ => Use::Reference,
        };
        let links = self.dependencies.add(part, &frame.on, |number| self.codec.holds(number))?;
        self.gate.is_shut = false;
        if let Some(track) = frame.track.filter(|track| self.track.as_deref() != Some(track)) {
            self.track = Some(Arc::new(track));
        }
        Some(Coded {
            bytes: frame.bytes,
            nals: frame.obus,
            key: frame.key,
            layer: match part {
                Use::Key => 0,
                Use::Leaf => 3,
                _ => 1 + frame.temporal_id.min(1),
            },
            group: links.group,
            refs: links.refs,
            // Hidden frames travel in the unit of one that is shown, so units come in display order.
            display: i64::try_from(number).ok()?,
            track: Arc::clone(self.track.as_ref()?),
            reorder: 0,
            frame_ns: frame.frame_ns,
            repeat: None,
        })
    }
}

impl<C> Iterator for WholeUnits<C> {
    type Item = Result<Coded, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.ready.pop_front()
    }
}
