//! How full the data segments of a capture are.

use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::depacketize::{Depacketizer, Packet};
use serde::{Deserialize, Serialize};

use super::capture::{Connection, connections};
use super::clip::{Clip, TICKS_PER_PICTURE};
use super::session;

/// Data segments from the near end, counted before the link drops any; from the first packet of the stream on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segments {
    /// Segments with payload.
    pub(super) data: u64,
    /// Those with the largest payload of the capture.
    pub(super) full: u64,
    /// Those with less, as there was no more: the picture that went next had not been handed to the server yet.
    pub(super) last: u64,
    /// Those with less after which nothing was sent for [`PAUSE`]: what was there was not worth it.
    pub(super) paused: u64,
    /// The largest payload in bytes.
    pub(super) full_bytes: usize,
}

/// Longer than a full segment takes on the slowest of the links.
const PAUSE: Duration = Duration::from_millis(100);

impl Segments {
    /// Counts those sent from `port` by a server that was fed with `clip` from `fed` on, since the epoch.
    pub(super) fn count(capture: &[u8], port: u16, clip: &Clip, fed: Duration) -> anyhow::Result<Self> {
        let mut segments = Self::default();
        for connection in &connections(capture, port)? {
            let elements = elements(&connection.stream, clip)?;
            segments.add(connection, &elements, |picture| Some(fed + clip.handed_over(picture)?));
        }
        Ok(segments)
    }

    fn add(
        &mut self,
        connection: &Connection,
        elements: &[Element],
        handed_over: impl Fn(u32) -> Option<Duration>,
    ) {
        let begin = elements.iter().find(|element| element.picture.is_some()).map(|element| element.begin);
        let Some(begin) = begin else { return };
        let sent = connection.segments.iter().filter(|sent| sent.end > begin);
        self.full_bytes = sent.clone().map(|sent| sent.bytes).max().unwrap_or(0).max(self.full_bytes);
        let mut following = sent.clone().skip(1);
        for sent in sent {
            let next_at = following.next().map_or(u64::MAX, |next| next.sent_ns);
            self.data += 1;
            if sent.bytes == self.full_bytes {
                self.full += 1;
                continue;
            }
            let follow = elements.partition_point(|element| element.begin < sent.end);
            let follow = elements.get(follow..).unwrap_or_default();
            // Within a packet there is more of it.
            let end = follow.first().map_or(connection.stream.len(), |element| element.begin);
            let ends_something = end == sent.end;
            let next = follow.iter().find_map(|element| element.picture);
            let there = next.map(|picture| handed_over(picture).unwrap_or_default());
            if ends_something && there.is_none_or(|there| there > Duration::from_nanos(sent.first_ns)) {
                self.last += 1;
            } else if Duration::from_nanos(next_at.saturating_sub(sent.sent_ns)) > PAUSE {
                self.paused += 1;
            }
        }
    }

    /// The share of full segments while there was data to fill them; `None` when there was none.
    pub(super) fn full_share(&self) -> Option<f64> {
        let fillable = self.data - self.last - self.paused;
        (fillable > 0).then(|| self.full as f64 / fillable as f64)
    }
}

/// An answer or a packet in the stream of an RTSP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Element {
    /// Its place in the stream.
    begin: usize,
    /// The number of the picture that it carries a part of.
    picture: Option<u32>,
}

fn elements(stream: &[u8], clip: &Clip) -> anyhow::Result<Vec<Element>> {
    let mut found: Vec<(usize, Option<u32>)> = Vec::new();
    let mut depacketizer = None;
    // A picture's number and the timestamp of its packets.
    let mut known = None;
    let mut at = 0;
    while let Some(rest) = stream.get(at..).filter(|rest| !rest.is_empty()) {
        if let &[b'$', channel, high, low, ref behind @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([high, low]));
            // The connection's end may cut the last one.
            let Some(bytes) = behind.get(..length) else { break };
            let packet = Packet::parse(bytes).ok().filter(|_| channel == 0);
            found.push((at, packet.map(|packet| packet.timestamp)));
            if let (Some(packet), Some(depacketizer)) = (packet, &mut depacketizer) {
                known = known.or_else(|| number(depacketizer, &packet, clip));
            }
            at += 4 + length;
        } else {
            let head =
                rest.windows(4).position(|end| end == b"\r\n\r\n").context("an answer has no end")? + 4;
            let body = body_bytes(&rest[..head]);
            if let Some(description) = rest.get(head..head + body).filter(|body| !body.is_empty()) {
                depacketizer = Some(session::video(description)?.1);
            }
            found.push((at, None));
            at += head + body;
        }
    }
    let (picture, timestamp) = known.context("no picture of the capture is of the clip")?;
    let number = |other: u32| {
        let ticks = i64::from(other.wrapping_sub(timestamp).cast_signed());
        let pictures = (ticks as f64 / TICKS_PER_PICTURE as f64).round() as i64;
        u32::try_from(i64::from(picture) + pictures).ok()
    };
    Ok(found
        .into_iter()
        .map(|(begin, timestamp)| Element { begin, picture: timestamp.and_then(number) })
        .collect())
}

/// The picture's number, with a packet that completes one of the clip, and the timestamp of its packets.
fn number(depacketizer: &mut Depacketizer, packet: &Packet<'_>, clip: &Clip) -> Option<(u32, u32)> {
    depacketizer.push(packet);
    let frame = depacketizer.poll_frame()?;
    // The clock of RTP has 32 bits.
    Some((clip.identify(&frame.bytes)?, frame.ticks as u32))
}

fn body_bytes(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::capture::tests::{begin, packet};
    use super::super::clip::tests::small_clip;
    use super::*;

    const ANSWER: &str = "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 89\r\n\r\nv=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\n\
        t=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";

    /// A packet of a picture's, which is of the clip where `slice` is.
    fn rtp(number: u8, picture: u32, slice: &[u8]) -> Vec<u8> {
        let length = 12 + slice.len();
        let mut bytes = vec![b'$', 0, 0, length as u8, 0x80, 0x80 | 96, 0, number];
        bytes.extend((u32::MAX - 100).wrapping_add(3600 * picture).to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(slice);
        bytes
    }

    #[test]
    fn a_segment_is_full_or_there_was_no_more_or_it_counts() {
        // Handed over at 0, 40, 80 and 120 ms.
        let pictures =
            [rtp(0, 0, &[0x65, 0x80]), rtp(1, 3, &[1; 100]), rtp(2, 1, &[1; 100]), rtp(3, 2, &[1; 100])];
        let [first, second, third, fourth] = pictures.each_ref().map(Vec::as_slice);
        let sent = [
            (1, ANSWER.as_bytes()),
            (5, first),
            (41, &second[..100]),
            (42, &second[100..]),
            // Nothing to fill it with had been there when it was sent first.
            (90, &second[100..]),
            (91, &third[..100]),
            // The fourth was there.
            (121, &third[100..]),
            // There is more of it.
            (122, &fourth[..60]),
            (122, &fourth[60..70]),
            (223, &fourth[70..]),
        ];
        let mut capture = begin();
        let mut number = 0;
        for (place, (millis, payload)) in sent.into_iter().enumerate() {
            let repeated = if place == 4 { payload.len() as u32 } else { 0 };
            capture.extend(packet(0, millis, 80, number - repeated, payload));
            number += payload.len() as u32 - repeated;
        }
        let segments = Segments::count(&capture, 80, &small_clip(), Duration::ZERO).unwrap();
        assert_eq!(segments, Segments { data: 9, full: 2, last: 4, paused: 1, full_bytes: 100 });
        assert_eq!(segments.full_share(), Some(0.5));
        assert_eq!(Segments::default().full_share(), None);
        let other = Segments::count(&capture, 80, &small_clip(), Duration::from_millis(2)).unwrap();
        assert_eq!(other.last, 5, "where it is handed over later");
    }

    #[test]
    fn a_capture_without_the_clip_says_so() {
        let capture = [begin(), packet(0, 1, 80, 0, &rtp(0, 0, &[0x65, 0x70]))].concat();
        let error = Segments::count(&capture, 80, &small_clip(), Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "no picture of the capture is of the clip");
    }
}
