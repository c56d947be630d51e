//! Any changes, any readers: what each of them ends with, and what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::Engine;
use freshwire::engine::EngineGroup;
use freshwire::websocket::{Event, Reader, Role};
use rustix::net::sockopt;
use serde_json::Value;

use super::super::watcher::Watcher;
use super::super::{Content, WatchRequest};
use super::Topic;
use crate::hub::HubConfig;

const PATIENCE: Duration = Duration::from_secs(30);

/// The receive buffer of a reader, so that few values are on the way. The least that the kernel permits.
const BUFFER: usize = 4 << 10;

/// A topic whose engine runs when the test says so: readers are as slow as the test wants.
struct World {
    engine: Engine,
    topic: Arc<Topic>,
    /// The values of a reader that has everything.
    expected: BTreeMap<String, Known>,
}

/// A key's newest value as a reader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    count: u64,
    is_bytes: bool,
    value: String,
}

#[derive(Clone, Default)]
struct Wants {
    text_only: bool,
    within: Option<Duration>,
    keys: Option<BTreeSet<String>>,
}

struct Far {
    watcher: Watcher,
    socket: TcpStream,
    reader: Reader,
    wants: Wants,
    known: BTreeMap<String, Known>,
    deletions: usize,
}

impl World {
    fn new(max_keys: usize) -> Self {
        let engine = Engine::new().unwrap();
        let config = HubConfig { max_keys, max_viewers: 64, ..HubConfig::default() };
        let topic = Topic::new("state".to_owned(), EngineGroup::from(&engine.handle()), config);
        Self { engine, topic: Arc::new(topic), expected: BTreeMap::new() }
    }

    fn watch(&self, wants: &Wants) -> Far {
        self.watch_with(wants, Some(BUFFER))
    }

    fn watch_with(&self, wants: &Wants, buffer: Option<usize>) -> Far {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Some(bytes) = buffer {
            sockopt::set_socket_recv_buffer_size(&listener, bytes).unwrap();
        }
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let watcher = self.topic.watch(WatchRequest {
            socket: near,
            preface: Vec::new(),
            seal: None,
            framer: WatchRequest::messages(),
            takes_bytes: !wants.text_only,
            within: wants.within,
            window: None,
            keys: wants.keys.clone(),
            protocol: "test",
            peer,
        });
        let reader = Reader::new(Role::Client, 1 << 20);
        let (wants, known) = (wants.clone(), BTreeMap::new());
        Far { watcher: watcher.unwrap(), socket, reader, wants, known, deletions: 0 }
    }

    fn set(&mut self, key: &str, is_bytes: bool, value: &str) {
        let content = if is_bytes {
            Content::Bytes(value.as_bytes().to_vec())
        } else {
            Content::Json(format!("\"{value}\""))
        };
        self.topic.set(key, &content).unwrap();
        let count = self.expected.get(key).map_or(1, |known| known.count + 1);
        self.expected.insert(key.to_owned(), Known { count, is_bytes, value: value.to_owned() });
    }

    fn delete(&mut self, key: &str) {
        let is_there = self.expected.remove(key).is_some();
        assert_eq!(self.topic.delete(key).is_ok(), is_there);
    }

    fn turn(&mut self) {
        self.engine.run_once(Some(Duration::ZERO)).unwrap();
    }

    fn retry(&self, far: &Far) {
        self.topic.retry(far.watcher.snapshot().unwrap().id);
    }

    /// The final values of this reader.
    fn expected_by(&self, far: &Far) -> BTreeMap<String, Known> {
        let of = |(key, known): &(&String, &Known)| {
            far.wants.keys.as_ref().is_none_or(|keys| keys.contains(*key))
                && !(known.is_bytes && far.wants.text_only)
        };
        self.expected.iter().filter(of).map(|(key, known)| (key.clone(), known.clone())).collect()
    }

    /// All read until all have everything.
    fn finish(&mut self, all: &mut [Far]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.turn();
            for far in &mut *all {
                self.retry(far);
                far.read(usize::MAX);
            }
            let waits = |far: &Far| far.watcher.snapshot().unwrap().waiting_keys > 0;
            let lacks = all.iter().find(|far| far.known != self.expected_by(far) || waits(far));
            let Some(lacks) = lacks else { break };
            let expected = self.expected_by(lacks);
            let snapshot = lacks.watcher.snapshot();
            assert!(Instant::now() < deadline, "{:?} instead of {expected:?}: {snapshot:?}", lacks.known);
        }
        assert_eq!(self.topic.snapshot().waiting_deletions, 0);
    }
}

impl Far {
    /// Takes up to `most` bytes.
    fn read(&mut self, most: usize) {
        let mut left = most;
        let mut buffer = [0; 16 << 10];
        while left > 0 {
            let part = left.min(buffer.len());
            match self.socket.read(&mut buffer[..part]) {
                Ok(0) => panic!("the watcher has ended"),
                Ok(count) => {
                    self.reader.push(&buffer[..count]);
                    left -= count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        while let Some(event) = self.reader.next() {
            match event.unwrap() {
                Event::Text(text) => self.learn(&text, None),
                Event::Binary(bytes) => {
                    assert!(!self.wants.text_only);
                    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
                    let (head, value) = bytes.split_at(end);
                    let value = String::from_utf8(value[1..].to_vec()).unwrap();
                    self.learn(str::from_utf8(head).unwrap(), Some(value));
                }
                event => panic!("{event:?}"),
            }
        }
    }

    fn learn(&mut self, head: &str, bytes: Option<String>) {
        let head: Value = serde_json::from_str(head).unwrap();
        let (key, count) = (head["key"].as_str().unwrap(), head["count"].as_u64().unwrap());
        let before = self.known.get(key).map(|known| known.count);
        if head["deleted"] == true {
            self.deletions += 1;
            assert!(before.is_some() || self.wants.within.is_some(), "the end of {key}, which nobody knew");
            assert!(before.is_none_or(|before| before <= count), "{key}: {count} after {before:?}");
            self.known.remove(key);
            return;
        }
        assert!(before.is_none_or(|before| before < count), "{key}: {count} after {before:?}");
        let (is_bytes, text) = (bytes.is_some(), head["value"].as_str().unwrap_or_default());
        let value = bytes.unwrap_or_else(|| text.to_owned());
        self.known.insert(key.to_owned(), Known { count, is_bytes, value });
    }
}

#[test]
fn any_reader_of_any_changes_ends_with_the_present_values() {
    bolero::check!().with_iterations(60).with_type::<Vec<(u8, u8, u8)>>().for_each(|steps| {
        let mut world = World::new(8);
        let some_keys = Some((0..4).map(|key| format!("k{key}")).collect());
        let mut all: Vec<_> = [
            Wants::default(),
            Wants::default(),
            Wants { text_only: true, ..Wants::default() },
            Wants { keys: some_keys, ..Wants::default() },
            Wants { within: Some(Duration::from_secs(600)), ..Wants::default() },
        ]
        .iter()
        .map(|wants| world.watch(wants))
        .collect();
        let long = "x".repeat(3000);
        for &(step, key, which) in steps {
            let name = format!("k{}", key % 8);
            let which = usize::from(which);
            match step % 16 {
                0..6 => world.set(&name, false, if which % 2 == 0 { &long } else { "short" }),
                6..8 => world.set(&name, true, if which % 2 == 0 { &long } else { "short" }),
                8..11 => world.delete(&name),
                11 => world.turn(),
                // The first reader keeps up, the others are of any pace.
                12 => {
                    world.turn();
                    all[0].read(usize::MAX);
                    world.retry(&all[0]);
                }
                13 => {
                    let at = which % all.len();
                    all[at].read(usize::from(key) * 16);
                }
                14 => world.retry(&all[which % all.len()]),
                _ if all.len() < 12 => {
                    all.push(world.watch(&Wants { text_only: key % 2 == 0, ..Wants::default() }))
                }
                _ => {
                    let left = all.swap_remove(1 + which % (all.len() - 1));
                    drop(left);
                }
            }
        }
        world.finish(&mut all);
    });
}

/// The policy drops the end of a text for the next text, and that one is taken back when the key is deleted.
#[test]
fn readers_of_text_learn_of_each_deletion() {
    let long = "x".repeat(3000);
    for seed in 0..100_u32 {
        let mut world = World::new(4);
        let mut all = [(); 2].map(|()| world.watch(&Wants { text_only: true, ..Wants::default() }));
        let mut state = seed;
        for _ in 0..150 {
            // Numerical Recipes' generator; its upper bits are the good ones.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (step, number) = (state >> 28, (state >> 20) as usize & 0xff);
            let name = format!("k{}", number % 4);
            match step {
                0..4 => world.set(&name, false, &long),
                4..6 => world.set(&name, false, "short"),
                6..9 => world.set(&name, true, "bytes"),
                9..11 => world.delete(&name),
                11 => world.retry(&all[number % 2]),
                _ => {
                    all[number % 2].read(number * 16);
                    world.turn();
                }
            }
        }
        world.finish(&mut all);
    }
}

/// The more keys, the more wait for a slow reader. A change looks at a few of them only.
#[test]
fn the_work_of_a_change_does_not_grow_with_the_keys_that_wait() {
    const READERS: usize = 20;
    const CHANGES: usize = 2000;
    let work = |keys: usize| {
        let mut world = World::new(keys);
        let _all: Vec<_> = (0..READERS).map(|_| world.watch(&Wants::default())).collect();
        let mut change =
            |count: usize| (0..count).for_each(|at| world.set(&format!("k{}", at % keys), false, "x"));
        change(2 * keys.max(1000));
        let sum = |topic: &Topic| topic.lock().members.iter().map(|member| member.work).sum::<u64>();
        let before = sum(&world.topic);
        (0..CHANGES).for_each(|at| world.set(&format!("k{}", at % keys), false, "y"));
        assert!(world.topic.snapshot().watchers.iter().all(|watcher| watcher.waiting_keys + 64 >= keys));
        (sum(&world.topic) - before) as f64 / (CHANGES * READERS) as f64
    };
    let work: Vec<_> = [100, 1_000, 10_000].map(work).into();
    assert!(
        work.iter().all(|&work| work < 20.0),
        "looks at each change, for 100, 1,000 and 10,000 keys: {work:?}"
    );
}

/// A change is offered to those that asked for its key, also after others have come and gone.
#[test]
fn a_change_is_offered_to_those_that_want_its_key() {
    let mut world = World::new(100);
    let wants = |keys: &[&str]| Wants {
        keys: Some(keys.iter().map(|&key| key.to_owned()).collect()),
        ..Wants::default()
    };
    let asked =
        [wants(&["a"]), Wants::default(), wants(&["a", "b"]), wants(&["b"]), Wants::default(), wants(&["a"])];
    let mut all: Vec<_> = asked.iter().map(|wants| world.watch(wants)).collect();
    let offered = |topic: &Topic, key: &str| {
        let mut ids = Vec::new();
        topic.lock().members.of_key(key, |member| ids.push(member.id));
        ids
    };
    assert_eq!(offered(&world.topic, "a"), [2, 5, 1, 3, 6]);
    assert_eq!(offered(&world.topic, "b"), [2, 5, 3, 4]);
    drop((all.remove(5), all.remove(1), all.remove(0)));
    assert_eq!(offered(&world.topic, "a"), [5, 3]);
    assert_eq!(offered(&world.topic, "c"), [5]);
    all.push(world.watch(&wants(&["c"])));
    for key in ["a", "b", "c"] {
        world.set(key, false, "x");
    }
    world.finish(&mut all);
    drop(all);
    assert_eq!(offered(&world.topic, "b"), [0_u64; 0]);
}

/// Keys come and go while nobody reads, and while all read slowly: what is kept has a limit, and every reader learns what ended.
#[test]
fn keys_that_come_and_go_leave_no_more_than_the_limit() {
    const KEYS: usize = 16;
    const READERS: usize = 8;
    let mut world = World::new(KEYS);
    let mut all: Vec<_> = (0..READERS).map(|_| world.watch(&Wants::default())).collect();
    let long = "x".repeat(500);
    for round in 0..20_000_usize {
        world.set(&format!("k{round}"), false, &long);
        if round >= KEYS - 1 {
            world.delete(&format!("k{}", round + 1 - KEYS));
        }
        if round > 5_000 {
            world.turn();
            let far = &mut all[round % READERS];
            far.read(200);
            world.retry(far);
        }
        let snapshot = world.topic.snapshot();
        let kept = world.topic.lock().keys.kept();
        let waiting: usize = snapshot.watchers.iter().map(|watcher| watcher.waiting_keys).max().unwrap();
        assert!(snapshot.waiting_deletions <= READERS * 2 * KEYS, "{snapshot:?}");
        assert!(kept <= KEYS * (1 + 2 * READERS) && waiting <= 3 * KEYS, "{kept} kept, {waiting} wait");
        if round == 5_000 {
            assert_eq!(snapshot.waiting_deletions, 0, "nobody has read a value that has ended");
        }
    }
    assert!(all.iter().all(|far| far.deletions > 0), "they have read");
    world.finish(&mut all);
    assert!(world.topic.lock().keys.kept() <= KEYS * (1 + 2 * READERS));
}

/// One that reads nothing, with every value large: the others get every change, and the arena stays free for them.
#[test]
fn readers_that_stop_cost_the_others_no_value() {
    let mut world = World::new(50);
    let mut honest = world.watch_with(&Wants::default(), None);
    let _stuck: Vec<_> = (0..40)
        .map(|at| {
            world.watch(&Wants {
                within: (at % 2 == 0).then_some(Duration::from_secs(600)),
                ..Wants::default()
            })
        })
        .collect();
    let long = "x".repeat(20_000);
    for round in 0..100 {
        let key = format!("k{}", round % 50);
        world.set(&key, false, &long);
        let deadline = Instant::now() + PATIENCE;
        while honest.known.get(&key) != world.expected.get(&key) {
            world.turn();
            honest.read(usize::MAX);
            world.retry(&honest);
            assert!(Instant::now() < deadline, "change {round}: {:?}", world.topic.snapshot());
        }
    }
}
