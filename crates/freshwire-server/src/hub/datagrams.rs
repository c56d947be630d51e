use freshwire_media::unit::UnitHead;

/// A viewer over datagrams: gets each unit when it is published, without a queue and so without a choice.
pub trait DatagramSink: Send {
    /// Sends the unit. Must not block. False: the viewer is gone.
    fn send(&mut self, head: &UnitHead, bytes: &[u8]) -> bool;

    /// The viewer is gone: its place is free for another one, also while nothing is published.
    fn is_gone(&self) -> bool {
        false
    }
}

/// The datagram viewers of a stream.
#[derive(Default)]
pub(super) struct Datagrams(Vec<Place>);

struct Place {
    sink: Box<dyn DatagramSink>,
    started: bool,
}

impl Datagrams {
    pub(super) fn add(&mut self, sink: Box<dyn DatagramSink>) {
        self.0.push(Place { sink, started: false });
    }

    /// Frees the places of viewers that are gone.
    pub(super) fn forget_gone(&mut self) {
        self.0.retain(|place| !place.sink.is_gone());
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sends the unit to everyone who has had a keyframe, or gets one now.
    pub(super) fn send(&mut self, head: &UnitHead, bytes: &[u8], begins: bool) {
        self.0.retain_mut(|place| {
            place.started |= begins;
            !place.started || place.sink.send(head, bytes)
        });
    }
}
