//! Sinks of one sender on several engines.

use freshwire::engine::{EngineGroup, EnginePool};
use freshwire::sink::{CloseMode, SinkError};
use freshwire::{Ended, Fate, Outcome};

use super::*;

const SLOTS: u32 = 64;
const BLOCKS: u32 = 256;

struct Group {
    sender: Sender,
    sinks: Vec<Sink>,
    far: Vec<TcpStream>,
}

impl Group {
    fn new(engines: EngineGroup, rings: u32) -> Result<Self> {
        let ring = RingConfig { rings, slots: SLOTS, block_bytes: 4096, blocks: BLOCKS };
        Ok(Self { sender: Sender::new(&ring, engines)?, sinks: Vec::new(), far: Vec::new() })
    }

    fn add(&mut self, config: SinkConfig) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let far = listener.accept()?.0;
        far.set_read_timeout(Some(TIMEOUT))?;
        self.sinks.push(self.sender.add_sink(near, config)?);
        self.far.push(far);
        Ok(())
    }

    fn ids(&self) -> Vec<SinkId> {
        self.sinks.iter().map(Sink::id).collect()
    }

    /// Sinks by engine.
    fn spread(&self, engines: usize) -> Result<Vec<usize>> {
        let mut spread = vec![0; engines];
        for id in self.ids() {
            spread[self.sender.engine_of(id)?.ok_or("no engine serves it")?] += 1;
        }
        Ok(spread)
    }
}

fn until(what: &str, mut is_met: impl FnMut() -> bool) {
    let end = now() + TIMEOUT;
    while !is_met() {
        assert!(now() < end, "not within {TIMEOUT:?}: {what}");
        // Pause: between two looks at the condition.
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sinks_are_spread_over_the_engines_with_the_least_work() -> Result<()> {
    let pool = EnginePool::spawn(3)?;
    let engines = pool.group().fill_first(4);
    let mut group = Group::new(engines.clone(), 16)?;
    for _ in 0..4 {
        group.add(plain())?;
    }
    let home = group.spread(3)?.iter().position(|&sinks| sinks == 4).ok_or("they share no engine")?;
    assert!(group.ids().iter().all(|&id| group.sender.is_at_home(id)));
    for _ in 4..12 {
        group.add(plain())?;
    }
    assert_eq!(group.spread(3)?, [4, 4, 4]);
    assert_eq!(engines.sinks(), [4, 4, 4]);
    // The next sender's first sinks go elsewhere.
    let mut other = Group::new(engines.clone(), 1)?;
    other.add(plain())?;
    assert_eq!(other.spread(3)?[home], 0);
    // Two that leave the same engine are the next two that come.
    let place = (0..3).find(|&place| place != home).ok_or("one engine")?;
    let before = engines.sinks()[place];
    for _ in 0..2 {
        let ids = group.ids();
        let of_place = |id: &SinkId| group.sender.engine_of(*id) == Ok(Some(place));
        let leaving = ids.iter().position(of_place).ok_or("none is left")?;
        group.far.remove(leaving);
        group.sinks.remove(leaving).close(CloseMode::Abort, TIMEOUT);
    }
    until("the engine lets go of them", || engines.sinks()[place] == before - 2);
    group.add(plain())?;
    group.add(plain())?;
    assert_eq!(group.spread(3)?, [4, 4, 4]);
    assert!(pool.is_running());
    Ok(())
}

#[test]
fn several_engines_send_what_one_would_and_give_all_of_it_back() -> Result<()> {
    const RECORDS: u64 = 300;
    let pool = EnginePool::spawn(3)?;
    let mut group = Group::new(pool.group().fill_first(0), 6)?;
    for _ in 0..6 {
        group.add(plain())?;
    }
    assert_eq!(group.spread(3)?, [2, 2, 2]);
    let ids = group.ids();
    let mut fates: Vec<Vec<Fate>> = vec![Vec::new(); ids.len()];
    let readers: Vec<_> = group
        .far
        .drain(..)
        .map(|mut far| {
            std::thread::spawn(move || {
                (0..RECORDS).all(|seq| read_record(&mut far).is_ok_and(|read| read == payload(seq, 5000)))
            })
        })
        .collect();
    for seq in 0..RECORDS {
        // Each payload is stored once, in two blocks that six sinks of three engines use.
        until("there is room for the next record", || {
            for (id, fates) in ids.iter().zip(&mut fates) {
                fates.extend(group.sender.fates(*id).into_iter().flatten());
            }
            ids.iter().all(|&id| group.sender.has_room(id, 5000, &meta(seq)) == Ok(true))
        });
        assert_eq!(group.sender.push_to_all(ids.iter().copied(), &payload(seq, 5000), &meta(seq))?, 6);
    }
    for reader in readers {
        assert!(
            reader.join().map_err(|_| "a reader panicked")?,
            "every receiver gets every record, in order"
        );
    }
    until("every record has its fate", || {
        for (id, fates) in ids.iter().zip(&mut fates) {
            fates.extend(group.sender.fates(*id).into_iter().flatten());
        }
        fates.iter().all(|fates| fates.len() as u64 == RECORDS)
    });
    for fates in fates {
        let order: Vec<u64> = fates.iter().map(|fate| fate.seq).collect();
        assert_eq!(order, (0..RECORDS).collect::<Vec<_>>());
        assert!(fates.iter().all(|fate| fate.outcome == Outcome::Sent), "{:?}", fates[0]);
    }
    // The blocks of the newest payload are collected by the next one, which takes one.
    let _last = group.sender.producer().store(b"last")?;
    assert_eq!(group.sender.producer().free_blocks(), BLOCKS as usize - 1, "no block is kept");
    Ok(())
}

#[test]
fn an_engine_that_ends_takes_only_its_own_sinks_along() -> Result<()> {
    let (first, second) = (Engine::new()?.spawn()?, Engine::new()?.spawn()?);
    let engines = EngineGroup::new(first.handle(), [second.handle()]).fill_first(0);
    let mut group = Group::new(engines, 8)?;
    for _ in 0..4 {
        group.add(plain())?;
    }
    let ids = group.ids();
    assert_eq!(group.spread(2)?, [2, 2]);
    drop(second);
    for (at, id) in ids.iter().enumerate() {
        let is_left = group.sender.engine_of(*id)? == Some(0);
        let ended = if is_left { None } else { Some(Ended::Broken(SinkError::Stopped)) };
        assert_eq!(group.sinks[at].ended(), ended);
    }
    assert_eq!(group.sender.push_to_all(ids.iter().copied(), &payload(1, 100), &meta(1))?, 2);
    assert_eq!(group.sender.missed().len(), 2);
    for (at, id) in ids.iter().enumerate() {
        if group.sender.engine_of(*id)? == Some(0) {
            assert_eq!(read_record(&mut group.far[at])?, payload(1, 100));
        }
    }
    // New sinks go to the one that is left, also where the other has fewer.
    group.add(plain())?;
    group.add(plain())?;
    for at in [4, 5] {
        let id = group.sinks[at].id();
        assert_eq!(group.sender.engine_of(id)?, Some(0));
        group.sender.push(id, &payload(2, 100), &meta(2))?;
        assert_eq!(read_record(&mut group.far[at])?, payload(2, 100));
    }
    Ok(())
}

#[test]
fn only_sinks_at_home_are_served_by_the_thread_that_pushes() -> Result<()> {
    let pool = EnginePool::spawn(2)?;
    let mut group = Group::new(pool.group().fill_first(0), 2)?;
    group.add(plain())?;
    group.add(plain())?;
    let ids = group.ids();
    let home = ids.iter().position(|&id| group.sender.is_at_home(id)).ok_or("none is at home")?;
    assert!(!group.sender.is_at_home(ids[1 - home]));
    let mut at_once = 0;
    for seq in 0..1000 {
        let mut targets = [Target::new(ids[0], meta(seq)), Target::new(ids[1], meta(seq))];
        let stored = group.sender.producer().store(&payload(seq, 100))?;
        group.sender.send_at_once(&stored, &mut targets)?;
        assert!(!targets[1 - home].is_sent(), "another engine's sink");
        at_once += u32::from(targets[home].is_sent());
        for target in targets.iter().filter(|target| !target.is_sent()) {
            let producer = group.sender.producer();
            while producer.poll_fate(target.sink.ring()).is_some() {}
            queue(&mut group.sender, target, &stored)?;
        }
        for far in &mut group.far {
            assert_eq!(read_record(far)?, payload(seq, 100));
        }
        if at_once > 3 {
            return Ok(());
        }
    }
    Err("nothing was sent at once".into())
}
