use super::names::Names;

/// A use of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Get it.
    View,
    /// Feed it.
    Publish,
    /// Send values to the broker that feeds it.
    Broker,
}

/// Which streams somebody may view and publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Streams to view.
    pub view: Names,
    /// Streams to publish.
    pub publish: Names,
    /// Streams to whose broker values may be sent.
    pub broker: Names,
}

impl Rights {
    /// Everything.
    pub fn all() -> Self {
        Self { view: Names::all(), publish: Names::all(), broker: Names::all() }
    }

    pub(super) fn allow(&self, right: Right, stream: &str) -> bool {
        match right {
            Right::View => self.view.contain(stream),
            Right::Publish => self.publish.contain(stream),
            Right::Broker => self.broker.contain(stream),
        }
    }
}
