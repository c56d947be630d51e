//! How full the data segments of a capture are.

use std::time::Duration;

use anyhow::Context as _;
use freshwire_media::depacketize::{Depacketizer, Packet};
use serde::{Deserialize, Serialize};

use super::capture::{Connection, Sent, connections};
use super::clip::{Clip, TICKS_PER_PICTURE};
use super::session;

/// Data segments from the near end, counted before the link drops any; from the first packet of the stream on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segments {
    /// Segments with payload.
    pub(super) data: u64,
    /// Segments with the largest payload of the capture.
    pub(super) full: u64,
    /// Shorter ones for lack of data: the server did not have the next picture yet.
    pub(super) last: u64,
    /// Shorter ones after which nothing was sent for [`PAUSE`]: the rest was not worth a segment.
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

    /// Counts the segments of a connection from the first packet with a picture on; `handed_over` is when the server had a picture.
    fn add(
        &mut self,
        connection: &Connection,
        elements: &[Element],
        handed_over: impl Fn(u32) -> Option<Duration>,
    ) {
        let Some(first) = elements.iter().find(|element| element.picture.is_some()) else { return };
        let counted: Vec<&Sent> =
            connection.segments.iter().filter(|segment| segment.end > first.begin).collect();
        let largest = counted.iter().map(|segment| segment.bytes).max().unwrap_or(0);
        self.full_bytes = self.full_bytes.max(largest);
        for (place, segment) in counted.iter().enumerate() {
            let next_ns = counted.get(place + 1).map_or(u64::MAX, |next| next.sent_ns);
            let rest = &elements[elements.partition_point(|element| element.begin < segment.end)..];
            // Within an element there is more of it.
            let ends_element = segment.end == rest.first().map_or(connection.stream.len(), |next| next.begin);
            let next_picture = rest.iter().find_map(|element| element.picture);
            let available = next_picture.map(|picture| handed_over(picture).unwrap_or_default());
            let had_no_more =
                ends_element && available.is_none_or(|at| at > Duration::from_nanos(segment.first_ns));
            self.data += 1;
            if segment.bytes == self.full_bytes {
                self.full += 1;
            } else if had_no_more {
                self.last += 1;
            } else if Duration::from_nanos(next_ns.saturating_sub(segment.sent_ns)) > PAUSE {
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

/// The same, before the pictures' numbers are known.
enum Message<'a> {
    /// The body of an answer.
    Answer(&'a [u8]),
    /// A packet of the video.
    Video(Packet<'a>),
    /// A packet of another channel, or one that cannot be read.
    Other,
}

/// The first message of the stream with its length; `None`: its end is missing.
fn message(stream: &[u8]) -> anyhow::Result<Option<(Message<'_>, usize)>> {
    if let &[b'$', channel, high, low, ref rest @ ..] = stream {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let video = Packet::parse(bytes).ok().filter(|_| channel == session::VIDEO_CHANNEL);
        return Ok(Some((video.map_or(Message::Other, Message::Video), 4 + length)));
    }
    let end = stream.windows(4).position(|end| end == b"\r\n\r\n").context("an answer has no end")? + 4;
    let head = String::from_utf8_lossy(&stream[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|value| value.trim().parse().ok()).unwrap_or(0);
    Ok(stream.get(end..end + length).map(|body| (Message::Answer(body), end + length)))
}

fn elements(stream: &[u8], clip: &Clip) -> anyhow::Result<Vec<Element>> {
    let mut found: Vec<(usize, Option<u32>)> = Vec::new();
    let mut depacketizer = None;
    // A picture's number and the timestamp of its packets.
    let mut known = None;
    let mut at = 0;
    while at < stream.len() {
        // The connection's end may cut the last one.
        let Some((message, length)) = message(&stream[at..])? else { break };
        let mut timestamp = None;
        match message {
            Message::Answer(body) if !body.is_empty() => depacketizer = Some(session::video(body)?.1),
            Message::Answer(_) | Message::Other => {}
            Message::Video(packet) => {
                timestamp = Some(packet.timestamp);
                if let (None, Some(depacketizer)) = (known, &mut depacketizer) {
                    known = number(depacketizer, &packet, clip);
                }
            }
        }
        found.push((at, timestamp));
        at += length;
    }
    let (picture, timestamp) = known.context("no picture of the capture is of the clip")?;
    let number = |other: u32| {
        let ticks = i64::from(other.wrapping_sub(timestamp).cast_signed());
        let pictures = (ticks as f64 / TICKS_PER_PICTURE as f64).round() as i64;
        u32::try_from(i64::from(picture) + pictures).ok()
    };
    let element =
        |(begin, timestamp): (usize, Option<u32>)| Element { begin, picture: timestamp.and_then(number) };
    Ok(found.into_iter().map(element).collect())
}

/// The picture's number, with a packet that completes one of the clip, and the timestamp of its packets.
fn number(depacketizer: &mut Depacketizer, packet: &Packet<'_>, clip: &Clip) -> Option<(u32, u32)> {
    depacketizer.push(packet);
    let frame = depacketizer.poll_frame()?;
    // The clock of RTP has 32 bits.
    Some((clip.identify(&frame.bytes)?, frame.ticks as u32))
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
