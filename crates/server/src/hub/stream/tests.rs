use std::net::{TcpListener, TcpStream};

use freshwire::Framing;
use freshwire::choice::{Adaptive, Aim, Choice, Decision, LinkView, Outcome};
use freshwire::ring::Record;
use freshwire_media::unit::UnitHead;
use freshwire_record::Rate;

use super::*;
use crate::hub::Hub;

fn picture(key: bool, len: u32) -> Unit {
    let tracks = Arc::new(Tracks::default());
    let head = UnitHead {
        kind: Kind::Video,
        pts: MediaTime::default(),
        dts: MediaTime::default(),
        duration_ns: 0,
        key,
        len,
        nals: Vec::new(),
        nal_headers: Vec::new(),
        repeat: None,
        tracks,
    };
    let refs = [u32::from(!key), 0];
    Unit { head, layer: u8::from(!key), group: 0, refs, bytes: vec![0; len as usize] }
}

/// Pictures that are too large to go past a ring, and small ones after them.
#[test]
fn delivered_pictures_take_no_room() {
    let hub = Hub::new(HubConfig::default()).unwrap();
    let stream = hub.stream("watched by one").unwrap();
    let mut publisher = stream.publish("test", None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = socket.peer_addr().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
    let viewer = stream.view(ViewRequest {
        socket: socket.into(),
        preface: Vec::new(),
        framer: Framing::Raw.into(),
        catalog: stream.catalog(),
        renditions: RenditionSelection::All,
        seal: None,
        protocol: "test",
        peer,
        user: None,
        only: None,
        latency: None,
        reorders: true,
        join_age: None,
        aim: Aim::Screen,
    });
    for number in 0..60 {
        publisher.push(picture(true, if number < 30 { 200_000 } else { 1000 }));
        // Pause: the pace of the source.
        std::thread::sleep(Duration::from_millis(10));
    }
    let until = Instant::now() + Duration::from_secs(5);
    while stream.snapshot().viewers[0].sink.finished < 60 && Instant::now() < until {
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
    let snapshot = stream.snapshot();
    assert_eq!(snapshot.viewers[0].sink.finished, 60, "{:?}", snapshot.viewers[0]);
    // The newest is kept for newcomers.
    assert!(snapshot.arena_used <= 4 * u64::from(BLOCK_BYTES), "{} bytes", snapshot.arena_used);
    drop((viewer, publisher));
    let bytes = reader.join().unwrap().unwrap();
    assert_eq!(bytes, 30 * 201_000);
}

/// The policy of the first viewer does not begin a picture ten times as large as the keyframe that is next.
#[test]
fn the_first_viewer_gets_what_fits_before_the_next_keyframe() {
    let hub = Hub::new(HubConfig::default()).unwrap();
    let stream = hub.stream("watched by nobody").unwrap();
    let mut publisher = stream.publish("test", None).unwrap();
    let pictures = [true, false, false, true, false];
    for key in pictures {
        publisher.push(picture(key, 1000));
        // Pause: the pace of the source.
        std::thread::sleep(Duration::from_millis(20));
    }
    let state = lock(&stream.state);
    let last = pictures.len() as u64 + 1;
    let numbered = |seq| Record { refs: [1, 0], layer: 1, ..Record::numbered(seq) };
    let now = now();
    let record =
        Record { len: 10_000, generated: now, deadline: now + Duration::from_secs(60), ..numbered(last) };
    // It takes 4 s.
    let rate = Some(Rate::from_bits_per_sec(20_000));
    let link = LinkView { rate, in_flight: 1, ..LinkView::default() };
    let decide = |mut policy: Adaptive| {
        policy.outcome(&numbered(last - 1), Outcome::Sent);
        policy.pick(now, &[record], &link)
    };
    let decision = decide(state.fanout.policy.for_another(u8::MAX));
    assert!(matches!(decision, Decision::Wait(_)), "{decision:?}");
    assert_eq!(decide(Adaptive::default()), Decision::Send(0), "a stream of which nothing is known");
}
