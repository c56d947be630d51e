use freshwire_media::unit::Kind;

use super::*;

const SSRC: u32 = 77;

/// The path to a viewer on loopback that requests packets of one track.
fn path(round_trip: Duration) -> io::Result<(RtpPath, Listener, UdpSocket)> {
    let viewer = UdpSocket::bind("127.0.0.1:0")?;
    let port = viewer.local_addr()?.port();
    let ports = TrackPorts::open("127.0.0.1:0".parse().unwrap(), viewer.local_addr()?, port, port)?;
    let retransmitter = Some(Retransmitter::new(Kind::Video, SSRC + 1, 0));
    let track = PathTrack { ports, ssrc: SSRC, seq: 0, retransmitter };
    let (path, listener) = RtpPath::open([Some(track), None], Some(round_trip))?;
    Ok((path, listener, viewer))
}

/// A request for this packet and the sixteen behind it (RFC 4585, 6.2.1).
fn nack(first: u16) -> Vec<u8> {
    let words = [0x81 << 24 | 205 << 16 | 3, 5, SSRC, u32::from(first) << 16 | 0xFFFF];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[tokio::test]
async fn packets_to_be_sent_again_hold_up_new_ones_for_a_moment_only() -> io::Result<()> {
    // At first ten packets leave in a round trip: 286 kbit/s.
    let round_trip = Duration::from_millis(400);
    let (path, _listener, _viewer) = path(round_trip)?;
    let mut inner = path.lock();
    let most = inner.control.rate().bytes_in(MOST_QUEUED);
    let start = now();
    for seq in 0..17_u16 {
        let mut packet = vec![0x80, 96];
        packet.extend(seq.to_be_bytes());
        packet.resize(1400, 1);
        inner.note(start, 0, None, &Packet { head: &packet, body: &[], bytes: packet.len() });
    }
    let later = start + round_trip;
    inner.on_rtcp(later, &nack(0), true);
    let queued = inner.queued_bytes();
    assert!((most..most + 1400).contains(&queued), "{queued} of {most}");
    // Refused bytes are taken once there is room.
    let mut now = later;
    for _ in 0..17 {
        now += MOST_QUEUED;
        inner.repeat(now);
        inner.on_rtcp(now, &nack(0), true);
    }
    let repeated = inner.tracks.iter().flatten().filter_map(|track| track.retransmitter.as_ref());
    assert!(repeated.map(|it| it.counts().repaired).sum::<u64>() > 3);
    Ok(())
}

/// A report before a packet, whose rest is the body; whole packets one after the other; and what is none.
#[test]
fn packets_are_found_in_heads() {
    let read = |head: &[u8], body| {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(Frame { track, is_report, head: range, has_body }) = Frame::read(head, at, body) {
            at = range.end;
            found.push((track, is_report, range, has_body));
        }
        found
    };
    let report = [b'$', 3, 0, 2, 9, 9];
    let packet = |len: u8| [b'$', 2, 0, len, 1, 2, 3];
    let both = [&report[..], &packet(103)].concat();
    assert_eq!(read(&both, 100), [(1, true, 4..6, false), (1, false, 10..13, true)]);
    let two = [packet(3), packet(3)].concat();
    assert_eq!(read(&two, 0), [(1, false, 4..7, false), (1, false, 11..14, false)]);
    for (head, body) in [(&packet(104)[..], 100), (&packet(4), 0), (&[b'$', 2, 0], 9), (&[0; 9], 0), (&[], 9)]
    {
        assert_eq!(read(head, body), [], "{head:?}, {body} more");
    }
}
