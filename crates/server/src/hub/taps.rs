use freshwire_media::unit::UnitHead;

/// Takes the units of a stream's main rendition as they are published, without a queue: makes other renditions of them.
pub(crate) trait TapSink: Send {
    /// Takes the unit. Must not block. False: nobody needs them any more.
    fn send(&mut self, head: &UnitHead, bytes: &[u8]) -> bool;
}

/// The taps of a stream.
#[derive(Default)]
pub(super) struct Taps(Vec<Tap>);

struct Tap {
    sink: Box<dyn TapSink>,
    started: bool,
}

impl Taps {
    pub(super) fn add(&mut self, sink: Box<dyn TapSink>) {
        self.0.push(Tap { sink, started: false });
    }

    /// Gives the unit to everyone who has had a keyframe, or gets one now.
    pub(super) fn send(&mut self, head: &UnitHead, bytes: &[u8], begins: bool) {
        self.0.retain_mut(|tap| {
            tap.started |= begins;
            !tap.started || tap.sink.send(head, bytes)
        });
    }
}
