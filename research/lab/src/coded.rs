//! Coded video as files carry it: PES packets in MPEG-TS, slices in a picture.

use std::ops::Range;

use anyhow::{Context as _, bail};

const PACKET_BYTES: usize = 188;
const SYNC: u8 = 0x47;
/// The PIDs of ffmpeg's streams; tables are elsewhere.
const MEDIA_PIDS: Range<u16> = 0x100..0x1000;
const STARTS_UNIT: u8 = 0x40;
const HAS_PAYLOAD: u8 = 0x10;
const HAS_ADAPTATION: u8 = 0x20;

/// A PES packet of MPEG-TS. Times are in ticks of 90 kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pes {
    /// The transport packets, with the tables before them.
    pub(crate) packets: Range<usize>,
    pub(crate) is_video: bool,
    pub(crate) pts: i64,
    pub(crate) dts: i64,
    /// It has no length: its end is known only with the begin of the next one.
    pub(crate) is_open: bool,
    /// The elementary stream's bytes.
    pub(crate) payload: Vec<u8>,
}

/// All PES packets of the streams, in order.
pub(crate) fn pes_packets(stream: &[u8]) -> anyhow::Result<Vec<Pes>> {
    let mut found: Vec<Pes> = Vec::new();
    let mut from = 0;
    for (place, packet) in stream.chunks_exact(PACKET_BYTES).enumerate() {
        let &[SYNC, high, low, flags, ref body @ ..] = packet else { bail!("no MPEG-TS packet at {place}") };
        let end = (place + 1) * PACKET_BYTES;
        if !MEDIA_PIDS.contains(&u16::from_be_bytes([high & 0x1f, low])) || flags & HAS_PAYLOAD == 0 {
            continue;
        }
        let adaptation = if flags & HAS_ADAPTATION == 0 { 0 } else { 1 + usize::from(body[0]) };
        let payload = body.get(adaptation..).context("an adaptation field is too long")?;
        if high & STARTS_UNIT != 0 {
            found.push(Pes::parse(payload, from..end).context("no PES header")?);
        } else if let Some(pes) = found.last_mut() {
            pes.packets.end = end;
            pes.payload.extend_from_slice(payload);
        }
        from = end;
    }
    Ok(found)
}

impl Pes {
    fn parse(bytes: &[u8], packets: Range<usize>) -> Option<Self> {
        let &[0, 0, 1, id, high, low, _, flags, header, ref rest @ ..] = bytes else { return None };
        let time = |at: usize| {
            let &[a, b, c, d, e] = rest.get(at..at + 5)? else { return None };
            let [a, b, c, d, e] = [a, b, c, d, e].map(i64::from);
            Some((a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1)
        };
        let pts = time(0).filter(|_| flags & 0x80 != 0)?;
        let dts = if flags & 0x40 != 0 { time(5)? } else { pts };
        let payload = rest.get(usize::from(header)..)?.to_vec();
        Some(Self { packets, is_video: id & 0xf0 == 0xe0, pts, dts, is_open: [high, low] == [0, 0], payload })
    }
}

/// The slices of a picture in Annex B, without start codes and trailing zeros; `is_slice` is asked with the first byte of each NAL unit.
pub(crate) fn slices(picture: &[u8], is_slice: impl Fn(u8) -> bool) -> Vec<u8> {
    let starts = picture.windows(3).enumerate().filter(|(_, window)| *window == [0, 0, 1]);
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let mut slices = Vec::with_capacity(picture.len());
    for (place, start) in starts.iter().enumerate() {
        let end = starts.get(place + 1).copied().unwrap_or(picture.len());
        let mut nal = picture.get(start + 3..end).unwrap_or_default();
        while let [head @ .., 0] = nal {
            nal = head;
        }
        if nal.first().copied().is_some_and(&is_slice) {
            slices.extend_from_slice(nal);
        }
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with the begin of a PES packet.
    fn packet(pid: u16, length: u16, [pts, dts]: [u64; 2]) -> Vec<u8> {
        let time = |mark: u8, ticks: u64| {
            let part = |shift: u32| (ticks >> shift) as u8;
            [mark | part(29) & 14 | 1, part(22), part(14) | 1, part(7), part(0) << 1 | 1]
        };
        let mut packet = vec![SYNC, 0x40 | (pid >> 8) as u8, pid as u8, 0x10, 0, 0, 1, 0xe0];
        packet.extend(length.to_be_bytes());
        packet.extend([0x80, 0xc0, 10]);
        packet.extend(time(0x30, pts));
        packet.extend(time(0x10, dts));
        packet.resize(PACKET_BYTES, 0xff);
        packet
    }

    #[test]
    fn transport_packets_make_pes_packets() {
        let mut rest = packet(0x100, 0, [0, 0]);
        rest[1] = 1;
        let table = [vec![SYNC, 0x40, 0, 0x10], vec![0; PACKET_BYTES - 4]].concat();
        let stream =
            [table, packet(0x100, 0, [10_800, 3600]), rest, packet(0x100, 170, [7200, 7200])].concat();
        let found = pes_packets(&stream).unwrap();
        let found: Vec<_> =
            found.into_iter().map(|pes| (pes.packets, pes.pts, pes.dts, pes.is_open)).collect();
        assert_eq!(found, [(0..564, 10_800, 3600, true), (564..752, 7200, 7200, false)]);
        assert!(pes_packets(&stream[1..]).is_err());
    }
}
