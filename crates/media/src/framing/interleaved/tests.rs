use std::collections::BTreeMap;

use rtcp_types::{Compound, Packet as Rtcp, SdesItem};
use rtp_types::RtpPacket;

use super::super::clip::{self, Random};
use super::*;
use crate::rtp::tests::{Depacketizer, aac, h264, parts, tracks, unit};
use crate::unit::{MediaTime, Tracks, UnitHead};

const IDENTITY: Identity = Identity { ssrc: 0x1234_5678, seq: 65_530, timestamp_offset: 0xffff_0000 };

fn config(max_packet_bytes: usize) -> Config {
    let clock = WallClock { media: MediaTime::default(), ntp: 1000 << 32 };
    let track = |channel| Some(TrackChannel { channel, identity: IDENTITY });
    let cname = "freshwire".to_owned();
    Config {
        video: track(0),
        audio: track(2),
        clock,
        cname,
        max_packet_bytes,
        report_interval: crate::rtp::DEFAULT_REPORT_INTERVAL,
    }
}

/// Writes one record as an engine does, and gives the bytes of the stream and each piece's size.
fn write(framer: &mut Interleaved, seq: u64, bytes: &[u8], max: usize) -> (Vec<u8>, Vec<usize>) {
    let written = write_with(framer, (seq, bytes), None, max);
    assert_eq!(framer.next(max, &mut Vec::new()), None);
    (written.0, written.1)
}

/// Likewise; the record `next` overtakes it as soon as it may. The last value says whether it did.
fn write_with(
    framer: &mut Interleaved,
    (seq, bytes): (u64, &[u8]),
    mut next: Option<(u64, &[u8])>,
    max: usize,
) -> (Vec<u8>, Vec<usize>, bool) {
    let (mut out, mut sizes, mut overtaken) = (Vec::new(), Vec::new(), false);
    framer.begin(seq, bytes.len() as u32);
    loop {
        let before = out.len();
        let piece = framer.next(max, &mut out).expect("until the last");
        assert!(piece.boundary);
        out.extend(&bytes[piece.payload.start as usize..piece.payload.end as usize]);
        sizes.push(out.len() - before);
        if piece.last {
            return (out, sizes, overtaken);
        }
        if let Some(next) = next.take_if(|(seq, _)| framer.can_overtake(*seq)) {
            overtaken = true;
            out.extend(write_with(framer, next, None, max).0);
        }
    }
}

/// Cuts an interleaved stream into its packets by channel.
fn packets(mut stream: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let [b'$', channel, high, low, rest @ ..] = stream {
        let (packet, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        found.push((*channel, packet));
        stream = rest;
    }
    assert!(stream.is_empty(), "{} bytes that are no packet", stream.len());
    found
}

fn catalog(units: &[(UnitHead, Vec<u8>)]) -> Arc<Catalog> {
    let catalog = Catalog::new(units.len().max(1));
    for (seq, (head, _)) in units.iter().enumerate() {
        catalog.add(seq as u64, Arc::new(head.clone()));
    }
    Arc::new(catalog)
}

/// What one record of the property is: sizes of its NAL units, whether it is sound, whether it is dropped, and `max`.
type Sent = ([Option<u16>; 3], bool, bool, u16);

#[test]
fn sent_packets_arrive_without_a_gap() {
    let tracks = Arc::new(tracks(h264(), aac()));
    bolero::check!()
        .with_iterations(crate::testing::ITERATIONS)
        .with_type::<([Option<Sent>; 8], u16)>()
        .with_iterations(300)
        .for_each(|(sent, max_packet)| {
            let units: Vec<_> =
                sent.iter().flatten().zip(0..).map(|(sent, at)| record(&tracks, sent, at * 700)).collect();
            let mut framer = Interleaved::new(catalog(&units), &config(usize::from(*max_packet)));
            let mut stream = Vec::new();
            let mut expected: [Vec<Vec<u8>>; 2] = Default::default();
            let numbered = (0_u64..).zip(units.iter().zip(sent.iter().flatten()));
            let mut kept = numbered.filter(|(_, (_, sent))| !sent.2).peekable();
            let mut is_sent = false;
            while let Some((seq, ((head, bytes), &(_, _, _, max)))) = kept.next() {
                let max = usize::from(max);
                let next = kept.peek().map(|&(seq, ((_, bytes), _))| (seq, bytes.as_slice()));
                let (bytes_out, sizes) = if std::mem::take(&mut is_sent) {
                    (Vec::new(), Vec::new())
                } else {
                    let (bytes, sizes, overtaken) = write_with(&mut framer, (seq, bytes), next, max);
                    is_sent = overtaken;
                    (bytes, sizes)
                };
                let is_video = head.kind == Kind::Video;
                let bound = max.max(MIN_PACKET_BYTES + 2 * FRAME_HEADER_BYTES + 60);
                assert!(!is_video || sizes.iter().all(|&size| size <= bound), "{sizes:?} above {bound}");
                stream.extend(bytes_out);
                expected[usize::from(!is_video)].extend(parts(head, bytes));
            }
            assert_eq!(read(&stream, "h264", usize::from(*max_packet)), expected);
        });
}

#[test]
fn sound_comes_between_the_packets_of_a_picture() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let picture = |ms| unit(&tracks, Kind::Video, ms, &[([0x65, 0x88], 3000)]);
    let sound = |ms| unit(&tracks, Kind::Audio, ms, &[([0, 0], 200)]);
    let units = [picture(0), sound(10), sound(30), picture(40)];
    let mut framer = Interleaved::new(catalog(&units), &config(usize::MAX));
    let overtakes = |framer: &Interleaved| [0, 1, 2, 3, 9].map(|seq| framer.can_overtake(seq));
    assert_eq!(overtakes(&framer), [false; 5], "none is in progress");
    framer.begin(0, units[0].1.len() as u32);
    assert_eq!(overtakes(&framer), [false, true, true, false, false]);
    framer.begin(1, units[1].1.len() as u32);
    assert_eq!(overtakes(&framer), [false; 5], "a third one");
    assert!(framer.next(1000, &mut Vec::new()).is_some_and(|piece| piece.last));
    assert_eq!(overtakes(&framer), [false, true, true, false, false]);

    let mut framer = Interleaved::new(catalog(&units), &config(usize::MAX));
    let (stream, _, overtaken) = write_with(&mut framer, (0, &units[0].1), Some((1, &units[1].1)), 1000);
    assert!(overtaken);
    let rtp = packets(&stream).into_iter().map(|(channel, _)| channel).filter(|channel| channel & 1 == 0);
    assert_eq!(rtp.collect::<Vec<_>>(), [0, 2, 0, 0, 0]);
}

fn record(tracks: &Arc<Tracks>, (sizes, is_audio, _, _): &Sent, ms: i64) -> (UnitHead, Vec<u8>) {
    if *is_audio {
        let size = usize::from(sizes[0].unwrap_or(1) % 8000).max(1);
        return unit(tracks, Kind::Audio, ms, &[([0, 0], size)]);
    }
    let mut nals: Vec<_> =
        sizes.iter().flatten().map(|&size| ([0x41, 0x9a], usize::from(size).max(1))).collect();
    nals.push(([0x65, 0x88], 1000));
    unit(tracks, Kind::Video, ms, &nals)
}

/// The parts of pictures and of sound that an interleaved stream has, after a check of each packet's header and of the
/// reports against what came before them.
fn read(stream: &[u8], video: &'static str, max_packet: usize) -> [Vec<Vec<u8>>; 2] {
    let mut arrived = [Depacketizer::new(video), Depacketizer::new("aac")];
    let mut counted: BTreeMap<u8, (u16, u32, u32)> = BTreeMap::new();
    for (channel, bytes) in packets(stream) {
        let track = channel & 2;
        let (seq, packets, octets) = counted.entry(track).or_insert((IDENTITY.seq, 0, 0));
        if channel & 1 == 1 {
            let report = report(bytes);
            assert_eq!((report.packets, report.octets), (*packets, *octets));
            continue;
        }
        let packet = RtpPacket::parse(bytes).unwrap();
        assert!(bytes.len() <= max_packet.clamp(MIN_PACKET_BYTES, 65_535));
        assert_eq!((packet.sequence_number(), packet.ssrc()), (*seq, IDENTITY.ssrc));
        assert_eq!(packet.payload_type(), if track == 0 { 96 } else { 97 });
        *seq = seq.wrapping_add(1);
        *packets += 1;
        *octets += packet.payload().len() as u32;
        arrived[usize::from(track / 2)].push(packet.payload());
    }
    arrived.map(|track| track.parts)
}

struct Report {
    packets: u32,
    octets: u32,
    ntp: u64,
    timestamp: u32,
    cname: String,
}

fn report(bytes: &[u8]) -> Report {
    let mut parts = Compound::parse(bytes).unwrap().map(Result::unwrap);
    let Some(Rtcp::Sr(sender)) = parts.next() else { panic!("no sender report first") };
    let Some(Rtcp::Sdes(description)) = parts.next() else { panic!("no description") };
    let chunk = description.chunks().next().unwrap();
    let item = chunk.items().next().unwrap();
    assert_eq!((sender.ssrc(), chunk.ssrc(), item.type_()), (IDENTITY.ssrc, IDENTITY.ssrc, SdesItem::CNAME));
    Report {
        packets: sender.packet_count(),
        octets: sender.octet_count(),
        ntp: sender.ntp_timestamp(),
        timestamp: sender.rtp_timestamp(),
        cname: item.get_value_string().unwrap(),
    }
}

#[test]
fn reports_come_first_and_every_five_seconds() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let at = |ms| unit(&tracks, Kind::Video, ms, &[([0x41, 0x9a], 100)]);
    let units = [at(0), at(4_999), at(5_000), at(9_999), at(12_000), at(11_000)];
    let mut framer = Interleaved::new(catalog(&units), &config(DEFAULT_MAX_PACKET_BYTES));
    let mut reports = Vec::new();
    for (seq, (head, bytes)) in units.iter().enumerate() {
        let (stream, sizes) = write(&mut framer, seq as u64, bytes, 1000);
        assert_eq!(sizes.len(), 1);
        for (channel, packet) in packets(&stream) {
            if channel == 1 {
                let report = report(packet);
                assert_eq!(report.cname, "freshwire");
                let seconds = head.dts.as_nanos() / 1_000_000_000;
                assert_eq!(report.ntp >> 32, 1000 + seconds as u64);
                assert_eq!(report.timestamp, IDENTITY.timestamp_offset.wrapping_add(seconds as u32 * 90_000));
                reports.push((seconds, report.packets));
            }
        }
    }
    assert_eq!(reports, [(0, 0), (5, 2), (12, 4), (11, 5)], "the last one as the time jumped back");
}

#[test]
fn records_that_are_not_their_units_are_passed_over() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let units =
        [unit(&tracks, Kind::Video, 0, &[([0x41, 0], 50)]), unit(&tracks, Kind::Audio, 0, &[([0, 0], 50)])];
    let mut framer =
        Interleaved::new(catalog(&units), &Config { audio: None, ..config(DEFAULT_MAX_PACKET_BYTES) });
    assert_eq!(write(&mut framer, 7, &units[0].1, 1000).0, [], "not in the catalog");
    assert_eq!(write(&mut framer, 0, &units[0].1[1..], 1000).0, [], "another length");
    assert_eq!(write(&mut framer, 1, &units[1].1, 1000).0, [], "a track that is left out");
    assert_eq!((framer.next_seq(Kind::Video), framer.next_seq(Kind::Audio)), (Some(65_530), None));
    assert!(!write(&mut framer, 0, &units[0].1, 1000).0.is_empty());
    assert_eq!(framer.next_seq(Kind::Video), Some(65_531));
}

/// The writes of a picture, of at most `room` bytes each: bytes and packets of each.
fn writes(framer: &mut Interleaved, (head, bytes): &(UnitHead, Vec<u8>), room: usize) -> Vec<(usize, usize)> {
    let mut writes = vec![(0, 0)];
    framer.begin(0, head.len);
    loop {
        let (written, _) = *writes.last().expect("one at least");
        // As the engine does: the rest of a full write is no room for a packet.
        if room - written < MIN_PACKET_BYTES + 2 * FRAME_HEADER_BYTES + 60 {
            assert!(framer.can_overtake(1), "sound goes first before each write");
            writes.push((0, 0));
            continue;
        }
        let mut prefix = Vec::new();
        let piece = framer.next(room - written, &mut prefix).expect("until the last");
        assert_eq!(bytes.len(), head.len as usize);
        let last = writes.last_mut().expect("one at least");
        *last = (written + prefix.len() + (piece.payload.end - piece.payload.start) as usize, last.1 + 1);
        if piece.last {
            return writes;
        }
    }
}

/// A write is what a path takes in about a millisecond, and at least a segment. So a packet lasts no longer, however large it
/// may be, and the larger ones need no more writes.
#[test]
fn packets_are_as_large_as_the_write() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let picture =
        unit(&tracks, Kind::Video, 0, &[([0x67, 0x42], 30), ([0x68, 1], 6), ([0x65, 0x88], 400_000)]);
    let units = [picture, unit(&tracks, Kind::Audio, 0, &[([0, 0], 200)])];
    for rate in [100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000_usize] {
        let room = (rate / 8 / 1000).next_multiple_of(1448);
        let of =
            |max_packet| writes(&mut Interleaved::new(catalog(&units), &config(max_packet)), &units[0], room);
        let [small, large] = [1400, DEFAULT_MAX_PACKET_BYTES].map(of);
        for &(bytes, packets) in &large {
            assert!(bytes <= room, "{bytes} in a write of {room}");
            let fewest = bytes.div_ceil(DEFAULT_MAX_PACKET_BYTES);
            // The parameter sets have packets of their own.
            assert!(packets <= fewest + 2, "{packets} packets of {bytes} bytes");
        }
        assert!(large.len() <= small.len(), "{} writes instead of {}", large.len(), small.len());
    }
}

#[test]
fn the_size_of_packets_does_not_change_what_arrives() {
    let tracks = Arc::new(tracks(h264(), aac()));
    for picture in [1, 243, 1400, 16_384, 64_985, 64_986, 65_535, 65_536, 400_000] {
        let units = [unit(&tracks, Kind::Video, 0, &[([0x67, 0x42], 30), ([0x65, 0x88], picture)])];
        for max_packet in [MIN_PACKET_BYTES, 1400, 4096, 8192, 16_384, 32_768, MAX_PACKET_BYTES, usize::MAX] {
            let mut framer = Interleaved::new(catalog(&units), &config(max_packet));
            let (stream, _) = write(&mut framer, 0, &units[0].1, usize::MAX);
            let expected = parts(&units[0].0, &units[0].1);
            assert_eq!(read(&stream, "h264", max_packet)[0], expected, "{picture} in {max_packet}");
        }
    }
}

#[test]
fn pieces_fill_what_is_wanted() {
    let tracks = Arc::new(tracks(h264(), aac()));
    let units = [unit(&tracks, Kind::Video, 0, &[([0x65, 0x88], 20_000)])];
    let mut framer = Interleaved::new(catalog(&units), &config(DEFAULT_MAX_PACKET_BYTES));
    let (_, sizes) = write(&mut framer, 0, &units[0].1, 1448);
    assert!(sizes[..sizes.len() - 1].iter().all(|&size| size == 1448), "{sizes:?}");
}

#[test]
fn repetitions_take_the_place_of_pictures_that_are_dropped() {
    let (Some(h264), Some(h265)) = (clip::h264(), clip::h265()) else { return };
    let videos = [(h264, "h264", "h264"), (h265, "h265", "hevc")];
    for ((video, codec, format), sent) in
        videos.into_iter().flat_map(|video| [1, 2, 5].map(|sent| (video.clone(), sent)))
    {
        let (_, units) = clip::stream(Some(video), None);
        let mut framer = Interleaved::new(clip::catalog(&units), &config(usize::MAX));
        let (stream, sent_pictures, replaced) =
            clip::framed_beginnings(&mut framer, &units, sent, &mut Random(sent as u64));
        let shown = rtp_times(&stream);
        assert_eq!(sent_pictures, sent * 4);
        assert!((20..=4 * (16 - sent)).contains(&replaced), "{replaced} for {sent} of each group");
        assert_eq!(shown.len(), sent_pictures + replaced, "each has its own time");
        assert!(shown.values().all(|&markers| markers == 1), "and one last packet");
        let times: Vec<u32> = units.iter().map(|unit| unit.head.pts.ticks(90_000) as u32).collect();
        let offset = IDENTITY.timestamp_offset;
        assert!(
            shown.keys().all(|time| times.contains(&time.wrapping_sub(offset))),
            "and one of the source's"
        );
        let nals = &read(&stream, codec, usize::MAX)[0];
        let bytes: Vec<u8> = nals.iter().flat_map(|nal| [&[0, 0, 0, 1], nal.as_slice()].concat()).collect();
        assert_eq!(clip::decoded(&bytes, format, "0:v").unwrap(), sent_pictures + replaced);
    }
}

#[test]
fn after_repetitions_pictures_go_on_with_a_key() {
    let Some(video) = clip::h264() else { return };
    let (_, units) = clip::stream(Some(video), None);
    let mut framer = Interleaved::new(clip::catalog(&units), &config(usize::MAX));
    let mut wrote = |seq: usize, is_missed: bool| {
        let mut out = Vec::new();
        if is_missed {
            framer.missed(seq as u64);
            framer.replace(&mut out);
        } else {
            out = clip::framed(&mut framer, seq, &units[seq], &mut Random(1));
        }
        !out.is_empty()
    };
    assert!(wrote(16, false) && wrote(17, false));
    // The pictures after the first P picture are B pictures, and the next one is P: the chain breaks with it.
    assert_eq!((18..25).filter(|&seq| wrote(seq, true)).count(), 0);
    assert!(wrote(25, true), "the fifth");
    assert!(!wrote(26, false), "it may refer to what gave way to a repetition");
    assert!(wrote(32, false) && wrote(33, false), "from the next key on");
}

/// How many last packets of pictures there are of each time.
fn rtp_times(stream: &[u8]) -> BTreeMap<u32, usize> {
    let mut times = BTreeMap::new();
    for (_, bytes) in packets(stream).into_iter().filter(|(channel, _)| *channel == 0) {
        let packet = RtpPacket::parse(bytes).unwrap();
        *times.entry(packet.timestamp()).or_default() += usize::from(packet.marker_bit());
    }
    times
}
