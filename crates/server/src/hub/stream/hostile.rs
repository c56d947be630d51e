//! Another process writes into the memory of a stream.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::thread::sleep;

use freshwire::Framing;
use freshwire::choice::Aim;
use freshwire_media::unit::UnitHead;

use super::*;
use crate::hub::{Hub, Viewer};

/// Where `spec/ring.md` has the words of ring 0, and its first slot if there is no other ring.
const HOLD: u64 = 192 + 64;
const FLAG: u64 = 192 + 192;
const SLOT: u64 = 192 + 384;

/// Too large to go past the ring.
const PICTURE: u32 = 70_000;

const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    _hub: Hub,
    stream: Arc<Stream>,
    publisher: Publisher,
    memory: File,
}

/// A stream with one ring. The engine looks at a ring that nobody calls for after a second: a viewer that is to go on needs more.
fn world(stall_timeout: Duration) -> World {
    let config = HubConfig { max_viewers: 1, stall_timeout, ..HubConfig::default() };
    let hub = Hub::new(config).unwrap();
    let stream = hub.stream("live").unwrap();
    let publisher = stream.publish("test", None).unwrap();
    let memory = lock(&stream.state).fanout.sender.region().as_fd().unwrap().try_clone_to_owned().unwrap();
    World { _hub: hub, stream, publisher, memory: File::from(memory) }
}

impl World {
    fn write(&self, at: u64, word: u64) {
        self.memory.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }

    /// Publishes a keyframe.
    fn push(&mut self) {
        let head = UnitHead {
            kind: Kind::Video,
            pts: MediaTime::default(),
            dts: MediaTime::default(),
            duration_ns: 0,
            key: true,
            len: PICTURE,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: Arc::new(Tracks::default()),
        };
        self.publisher.push(Unit {
            head,
            layer: 0,
            group: 0,
            refs: [0; 2],
            bytes: vec![0; PICTURE as usize],
        });
    }

    /// Publishes until `done`.
    fn push_until(&mut self, what: &str, mut done: impl FnMut(&Stream) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done(&self.stream) {
            assert!(Instant::now() < until, "{what}: {:?}", self.stream.snapshot());
            self.push();
            sleep(Duration::from_millis(5));
        }
    }

    /// A viewer that reads what comes; it has the ring as soon as the engine lets go of it.
    fn view(&self) -> Viewer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = socket.peer_addr().unwrap();
            let (mut far, _) = listener.accept().unwrap();
            std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
            let viewer = self.stream.view(ViewRequest {
                socket: ViewSocket::Tcp(socket),
                preface: Vec::new(),
                framer: Framing::Raw.into(),
                seal: None,
                protocol: "test",
                peer,
                user: None,
                only: None,
                latency: None,
                reorders: true,
                join_age: None,
                aim: Aim::Screen,
                catalog: self.stream.catalog(),
                renditions: RenditionSelection::All,
            });
            match viewer {
                Ok(viewer) => return viewer,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// Makes each record of the ring one that process 1 holds.
fn hold_all(memory: &File) {
    let held_by_init = 1 << 10 | 2;
    for slot in 0..u64::from(SLOTS) {
        let at = SLOT + 128 * slot;
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, at).unwrap();
        let word = u64::from_ne_bytes(word);
        // Whatever the record is: ready, taken, sent or acknowledged.
        if matches!(word & 15, 1 | 3..=5) {
            let held: u64 = (word >> 32 << 32) | held_by_init;
            memory.write_all_at(&held.to_ne_bytes(), at).unwrap();
        }
    }
}

fn finished(stream: &Stream) -> u64 {
    stream.snapshot().viewers.first().map_or(0, |viewer| viewer.sink.finished)
}

#[test]
fn a_viewer_whose_ring_is_held_back_or_closed_goes_on() {
    for (at, word) in [(HOLD, 0_u64), (FLAG, 2)] {
        let mut world = world(PATIENCE / 4);
        let viewer = world.view();
        world.push_until("the first picture", |stream| finished(stream) > 0);
        world.write(at, word);
        let before = finished(&world.stream);
        world.push_until("more pictures, and faults that are counted", |stream| {
            let snapshot = stream.snapshot();
            let invalid = snapshot.viewers.first().map_or(0, |viewer| viewer.sink.invalid);
            finished(stream) > before + 3 && snapshot.ring_faults + invalid > 0
        });
        assert!(viewer.ended().is_none());
    }
}

#[test]
fn a_hold_does_not_outlive_the_viewer() {
    let mut world = world(PATIENCE / 4);
    let first = world.view();
    world.push_until("the first picture", |stream| finished(stream) > 0);
    drop(first);
    world.write(HOLD, 0);
    let _second = world.view();
    world.push_until("a picture for the next one", |stream| finished(stream) > 0);
}

/// Its oldest record is in the hands of a process that does not let go, so its slots are used up for good.
#[test]
fn a_viewer_whose_ring_gives_nothing_any_more_is_given_up() {
    let mut world = world(Duration::from_secs(1));
    let viewer = world.view();
    world.push_until("the first picture", |stream| finished(stream) > 0);
    // One held record is passed over: whoever wants the ring to stand still holds each.
    let memory = world.memory.try_clone().unwrap();
    world.push_until("the end", |_| {
        hold_all(&memory);
        viewer.ended().is_some()
    });
    assert_eq!((world.stream.snapshot().given_up, world.stream.snapshot().viewers.len()), (1, 0));
    drop(viewer);
    let _next = world.view();
    world.push_until("a picture for the next one", |stream| finished(stream) > 0);
}
