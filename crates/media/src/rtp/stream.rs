use std::sync::Arc;
use std::time::Duration;

use crate::unit::{Kind, MediaTime, UnitHead};

use super::{HEADER_BYTES, Packet, Packets, PayloadHeader, PlanError, clock_rate, payload_type};

/// What tells a stream of packets from others. All are to be random (RFC 3550, 5.1); the caller draws them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Synchronisation source.
    pub ssrc: u32,
    /// The first packet's sequence number.
    pub seq: u16,
    /// The RTP timestamp of media time 0.
    pub timestamp_offset: u32,
}

/// Which wall time a media time is: what sender reports tell players, so that they can bring tracks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// A media time.
    pub media: MediaTime,
    /// The wall time then: NTP seconds since 1900 and 32 bits of fraction (RFC 3550, 4).
    pub ntp: u64,
}

impl WallClock {
    /// The wall time of `media`, as NTP.
    pub fn ntp(&self, media: MediaTime) -> u64 {
        let nanos = i128::from(media.as_nanos()) - i128::from(self.media.as_nanos());
        let fraction = (nanos << 32).div_euclid(1_000_000_000);
        self.ntp.wrapping_add(fraction as u64)
    }
}

/// What the sender reports of a viewer's streams have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    clock: WallClock,
    cname: String,
}

impl Reports {
    /// Reports by this clock and with this canonical name. It must be the same for all tracks of a viewer and
    /// not identify them (RFC 7022). Only the first 255 bytes of a longer name count.
    pub fn new(clock: WallClock, cname: &str) -> Self {
        let mut end = cname.len().min(usize::from(u8::MAX));
        while !cname.is_char_boundary(end) {
            end -= 1;
        }
        Self { clock, cname: cname[..end].to_owned() }
    }

    /// Bytes of one report with its source description.
    pub fn report_bytes(&self) -> usize {
        SENDER_REPORT_BYTES + 4 + self.chunk_bytes()
    }

    /// The description's only chunk: source, item, at least one zero byte, and more up to a multiple of four.
    fn chunk_bytes(&self) -> usize {
        (4 + 2 + self.cname.len() + 1).next_multiple_of(4)
    }
}

/// The packets of one track to one viewer: numbers, counters and reports of what is really sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    kind: Kind,
    identity: Identity,
    next_seq: u16,
    packets: u32,
    octets: u32,
    /// Decoding time at the last report.
    reported: Option<MediaTime>,
    report_interval: Duration,
}

impl Stream {
    /// A stream without packets so far.
    pub fn new(kind: Kind, identity: Identity) -> Self {
        Self {
            kind,
            identity,
            next_seq: identity.seq,
            packets: 0,
            octets: 0,
            reported: None,
            report_interval: DEFAULT_REPORT_INTERVAL,
        }
    }

    /// Sets the media time between two reports. Default: [`DEFAULT_REPORT_INTERVAL`].
    #[must_use]
    pub fn report_interval(mut self, interval: Duration) -> Self {
        self.report_interval = interval;
        self
    }

    /// The sequence number of the next packet, for `RTP-Info`.
    pub fn next_seq(&self) -> u16 {
        self.next_seq
    }

    /// The plan for a unit of this track.
    ///
    /// # Errors
    ///
    /// If the unit is of another kind of track, has no RTP payload format, or does not follow its own.
    pub fn packets(&self, head: Arc<UnitHead>) -> Result<Packets, PlanError> {
        if head.kind != self.kind {
            return Err(PlanError::NoTrack);
        }
        Packets::new(head, self.identity.timestamp_offset)
    }

    /// Adds the RTP header and the payload header of the next packet to `out` and counts it as sent.
    pub fn write_header(&mut self, packet: &Packet, out: &mut Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        header[0] = 0x80;
        header[1] = u8::from(packet.marker) << 7 | payload_type(self.kind);
        header[2..4].copy_from_slice(&self.next_seq.to_be_bytes());
        header[4..8].copy_from_slice(&packet.timestamp.to_be_bytes());
        header[8..].copy_from_slice(&self.identity.ssrc.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(packet.header.as_bytes());
        self.next_seq = self.next_seq.wrapping_add(1);
        self.packets = self.packets.wrapping_add(1);
        let octets = packet.header.as_bytes().len() as u32 + (packet.payload.end - packet.payload.start);
        self.octets = self.octets.wrapping_add(octets);
    }

    /// Adds the packet of a NAL unit in the place of the unit with this head to `out` and counts it as sent.
    pub(crate) fn write_nal(&mut self, head: &UnitHead, nal: &[u8], last: bool, out: &mut Vec<u8>) {
        let rate = clock_rate(&head.tracks, self.kind).unwrap_or(1);
        let packet = Packet {
            marker: last,
            timestamp: (head.pts.ticks(rate) as u32).wrapping_add(self.identity.timestamp_offset),
            header: PayloadHeader::default(),
            payload: 0..u32::try_from(nal.len()).unwrap_or(u32::MAX),
            last,
        };
        self.write_header(&packet, out);
        out.extend_from_slice(nal);
    }

    /// True if a report has to go before the first packet of this unit. That is so if none was sent yet, the interval
    /// of media time has passed since, or the time has jumped back.
    pub fn report_is_due(&self, head: &UnitHead) -> bool {
        self.reported.is_none_or(|then| {
            let passed = i128::from(head.dts.as_nanos()) - i128::from(then.as_nanos());
            !(0..self.report_interval.as_nanos() as i128).contains(&passed)
        })
    }

    /// Adds a sender report and the source's description (RFC 3550, 6.4.1 and 6.5) at this unit's decoding time to `out`,
    /// and counts it as sent.
    pub fn write_report(&mut self, reports: &Reports, head: &UnitHead, out: &mut Vec<u8>) {
        self.reported = Some(head.dts);
        // Without a track nothing is sent; 1 keeps the report's form.
        let rate = clock_rate(&head.tracks, self.kind).unwrap_or(1);
        let timestamp = (head.dts.ticks(rate) as u32).wrapping_add(self.identity.timestamp_offset);
        let ssrc = self.identity.ssrc.to_be_bytes();
        out.extend([0x80, SENDER_REPORT, 0, (SENDER_REPORT_BYTES / 4 - 1) as u8]);
        out.extend(ssrc);
        out.extend(reports.clock.ntp(head.dts).to_be_bytes());
        out.extend(timestamp.to_be_bytes());
        out.extend(self.packets.to_be_bytes());
        out.extend(self.octets.to_be_bytes());
        let chunk = reports.chunk_bytes();
        out.extend([0x81, SOURCE_DESCRIPTION, 0, (chunk / 4) as u8]);
        let end = out.len() + chunk;
        out.extend(ssrc);
        out.extend([CNAME, reports.cname.len() as u8]);
        out.extend(reports.cname.as_bytes());
        out.resize(end, 0);
    }
}

const SENDER_REPORT_BYTES: usize = 28;
const SENDER_REPORT: u8 = 200;
const SOURCE_DESCRIPTION: u8 = 202;
const CNAME: u8 = 1;

/// Default of the media time between two sender reports (RFC 3550, 6.2).
pub const DEFAULT_REPORT_INTERVAL: Duration = Duration::from_secs(5);
