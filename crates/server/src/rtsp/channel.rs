//! The place of a packet: its track, and whether it is RTP or RTCP.

/// The track and kind of a packet, by either transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// The packets of the track at this place of the description.
    Rtp(usize),
    /// Its reports.
    Rtcp(usize),
}

impl Channel {
    /// The place of its track in the description.
    pub(super) fn track(self) -> usize {
        let (Self::Rtp(index) | Self::Rtcp(index)) = self;
        index
    }
}
