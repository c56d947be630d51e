use std::io::{Read, Write as _};
use std::process::Command;
use std::time::Duration;

use freshwire::choice::{self, Order, Policy, Rule};
use freshwire::ring::Replaced;
use freshwire::sink::{Carrier, CarrierError, CarrierInUse, CloseMode, Horizon, Reserve};
use freshwire::{Ended, Framing, Meta, Outcome, PushError, Reason, SenderError, SinkConfig};

use crate::rig::{FILLERS, Result, Rig, SLOTS, TIMEOUT, check, due_in, meta, pair, payload, same};

type Case = fn() -> Result<()>;

pub(crate) const ALL: [(&str, Case); 19] = [
    ("records arrive in order and whole, without the engine", in_order),
    ("records arrive over IPv6", over_ipv6),
    ("a ring that the kernel watches needs no calls", watched),
    ("a fate outlives the slot of its record", fates_after_the_wrap),
    ("zero copy and the horizon are settings of a sink", settings),
    ("the kernel drops what is past its deadline, if the policy does", expired),
    ("a record is dropped, modified or replaced until it is taken", edited),
    ("a second party edits the kernel's ring", second_party),
    ("a full ring is a value, and its slots come back", full),
    ("the engine frames what the kernel sends", framed),
    ("a policy that reorders chooses until the kernel has committed", reordered),
    ("a deadline passes while a record waits in the kernel", expired_while_fed),
    ("a drain delivers everything and ends the stream", drained),
    ("finishing drops uncommitted records", finished),
    ("an abort resets the connection and resolves every record", aborted),
    ("a peer that resets ends the sink", reset),
    ("one payload goes to a ring of the kernel's and to plain TCP", to_all),
    ("a reservation is filled in the kernel's ring, or copied there for many", reserved),
    ("what the kernel cannot frame stays on TCP, or is refused", refused),
];

fn direct() -> Result<Rig> {
    Rig::new(SinkConfig::new(choice::fifo()), CarrierInUse::KernelRing)
}

fn in_order() -> Result<()> {
    round_trip(direct()?)
}

fn over_ipv6() -> Result<()> {
    round_trip(Rig::at("[::1]:0", SinkConfig::new(choice::fifo()), CarrierInUse::KernelRing)?)
}

fn round_trip(mut rig: Rig) -> Result<()> {
    for batch in 0..10 {
        for seq in batch * 100..(batch + 1) * 100 {
            rig.push(seq)?;
        }
        same(&rig.read(100)?, &(batch * 100..(batch + 1) * 100).collect())?;
        rig.await_fates(batch * 100..(batch + 1) * 100)?;
    }
    for (seq, fate) in &rig.fates {
        same(&fate.outcome, &Outcome::Acked)?;
        let times = (fate.committed_at, fate.finished_at, fate.acked_at);
        let (Some(committed), Some(finished), Some(acked)) = times else {
            return Err(format!("record {seq} lacks a time: {fate:?}").into());
        };
        check(committed <= finished && finished <= acked, || format!("{fate:?}"))?;
    }
    let stats = rig.sink.stats();
    same(&(stats.committed, stats.finished, stats.invalid), &(1000, 1000, 0))?;
    check(stats.writes < 1000, || format!("a system call for each record: {}", stats.writes))
}

fn watched() -> Result<()> {
    let calls_of = |watch: Option<Duration>| -> Result<u64> {
        let config = SinkConfig::new(choice::fifo()).kernel_watch(watch);
        let mut rig = Rig::new(config, CarrierInUse::KernelRing)?;
        for seq in 0..50 {
            rig.push(seq)?;
            same(&rig.read(1)?, &vec![seq])?;
        }
        Ok(rig.sink.stats().writes)
    };
    let (sleeping, watching) = (calls_of(None)?, calls_of(Some(Duration::from_millis(5)))?);
    // One to begin with; a host that is busy for a second makes another.
    check(sleeping >= 25 && (1..=3).contains(&watching), || format!("{sleeping} and {watching} calls"))?;
    let too_long = SinkConfig::new(choice::fifo()).kernel_watch(Some(TIMEOUT));
    check(Rig::new(too_long, CarrierInUse::KernelRing).is_err(), || "a look every 20 s".to_owned())
}

/// Loopback on which an acknowledgement takes this long: less than the second after which a SYN is sent again.
struct SlowLoopback;

const ROUND_TRIP: Duration = Duration::from_millis(800);

/// What a timer may be early.
const TIMER: Duration = Duration::from_millis(50);

fn run(line: &str) -> Result<()> {
    let mut words = line.split_whitespace();
    // Programs: ip tc
    let status = Command::new(words.next().unwrap_or_default()).args(words).status()?;
    check(status.success(), || format!("{line}: {status}"))
}

impl SlowLoopback {
    fn new() -> Result<Self> {
        let slow = Self;
        // Each record may be a segment of its own, and all of a ring's are to be in flight.
        run("ip route replace local 127.0.0.1 dev lo table local initcwnd 1000")?;
        run(&format!("tc qdisc add dev lo root netem delay {}ms", ROUND_TRIP.as_millis() / 2))?;
        Ok(slow)
    }
}

impl Drop for SlowLoopback {
    fn drop(&mut self) {
        // Fails if adding failed.
        let _was_slow = run("tc qdisc del dev lo root");
        let _was_wide = run("ip route replace local 127.0.0.1 dev lo table local");
    }
}

/// More than twice the ring is in flight before the first acknowledgement.
fn fates_after_the_wrap() -> Result<()> {
    const RECORDS: u64 = 40;
    let _slow = SlowLoopback::new()?;
    let config = || SinkConfig::new(choice::fifo());
    let mut rig = Rig::with_slots(16, "127.0.0.1:0", config(), CarrierInUse::KernelRing)?;
    (0..RECORDS).try_for_each(|seq| rig.push_patiently(seq))?;
    same(&rig.read(RECORDS as usize)?, &(0..RECORDS).collect())?;
    rig.await_fates(0..RECORDS)?;
    for fate in rig.fates.values() {
        same(&fate.outcome, &Outcome::Acked)?;
        let (Some(finished), Some(acked)) = (fate.finished_at, fate.acked_at) else {
            return Err(format!("a time is missing: {fate:?}").into());
        };
        check(acked >= finished + (ROUND_TRIP - TIMER), || format!("{fate:?}"))?;
    }
    same(&rig.sender.fates_lost(rig.sink.id())?, &0)?;
    // So it is if nobody asks before the connection has ended.
    (RECORDS..2 * RECORDS).try_for_each(|seq| rig.push_patiently(seq))?;
    let Rig { sink, far, mut sender, .. } = rig;
    let id = sink.id();
    let reader = std::thread::spawn(move || std::io::copy(&mut &far, &mut std::io::sink()));
    same(&sink.close(CloseMode::Drain, TIMEOUT), &Ended::Closed)?;
    check(reader.join().is_ok_and(|read| read.is_ok()), || "the stream is torn".to_owned())?;
    let fates: Vec<_> =
        sender.fates(id)?.map(|fate| (fate.seq, fate.outcome, fate.acked_at.is_some())).collect();
    same(&fates, &(RECORDS..2 * RECORDS).map(|seq| (seq, Outcome::Acked, true)).collect())?;
    // Without them the kernel keeps nothing, and a fate is what is known when the slot is used again.
    let config = config().ack_fates(false);
    let mut rig = Rig::with_slots(16, "127.0.0.1:0", config, CarrierInUse::KernelRing)?;
    (0..RECORDS).try_for_each(|seq| rig.push_patiently(seq))?;
    same(&rig.read(RECORDS as usize)?, &(0..RECORDS).collect())
}

fn settings() -> Result<()> {
    for framing in [Framing::Raw, Framing::LengthPrefixed] {
        let carrier =
            if framing == Framing::Raw { CarrierInUse::KernelRing } else { CarrierInUse::KernelFed };
        let config = SinkConfig::new(choice::fifo()).framing(framing);
        let config = config.kernel_horizon(Horizon::Nothing).kernel_zero_copy(true);
        let mut rig = Rig::new(config, carrier)?;
        // Long enough to be worth a page.
        let record = vec![7; 8192];
        let _index = rig.sender.push(rig.sink.id(), &record, &meta(1))?;
        let mut got = vec![0; record.len() + if framing == Framing::Raw { 0 } else { 4 }];
        rig.far.read_exact(&mut got)?;
        check(got.ends_with(&record), || "the record is torn".to_owned())?;
        rig.await_fates([1])?;
        same(&rig.fates[&1].outcome, &Outcome::Acked)?;
    }
    let kernel = std::fs::read_to_string("/proc/net/tcp_ldc")?;
    let copied = kernel.lines().find_map(|line| line.strip_prefix("BytesZerocopy\t")).unwrap_or("0");
    check(copied.parse::<u64>()? >= 2 * 8192, || format!("{copied} bytes without a copy"))
}

fn expired() -> Result<()> {
    let mut rig = Rig::new(SinkConfig::new(choice::expiring()), CarrierInUse::KernelRing)?;
    rig.fill_window()?;
    for seq in 0..20 {
        let left = if seq % 2 == 0 { Duration::from_millis(50) } else { TIMEOUT };
        rig.push_with(&due_in(seq, left))?;
    }
    // Pause: the deadlines pass.
    std::thread::sleep(Duration::from_millis(100));
    same(&rig.read(10)?, &(0..20).filter(|seq| seq % 2 == 1).collect())?;
    rig.await_fates(0..20)?;
    for (seq, fate) in rig.fates.range(..FILLERS) {
        let late = Outcome::Dropped(Reason::Expired);
        same(&fate.outcome, if seq % 2 == 0 { &late } else { &Outcome::Acked })?;
    }
    // The same under a policy that drops nothing.
    let mut rig = direct()?;
    rig.fill_window()?;
    rig.push_with(&due_in(0, Duration::ZERO))?;
    same(&rig.read(1)?, &vec![0])
}

fn edited() -> Result<()> {
    let mut rig = direct()?;
    let id = rig.sink.id();
    rig.fill_window()?;
    for seq in 0..10 {
        rig.push_with(&Meta { key: if seq == 7 { 77 } else { 0 }, ..meta(seq) })?;
    }
    same(&rig.sender.drop_seq(id, 2), &Ok(true))?;
    same(&rig.sender.drop_seq(id, 2), &Ok(false))?;
    rig.sender.modify(id, 4, |edit| edit.write(0, &payload(44)))?;
    let newer = Meta { key: 77, ..meta(70) };
    let replaced = rig.sender.replace(id, &payload(70), &newer)?;
    check(matches!(replaced, Replaced::InPlace(_)), || format!("{replaced:?}"))?;
    same(&rig.read(9)?, &vec![0, 1, 3, 44, 5, 6, 70, 8, 9])?;
    rig.await_fates([0, 1, 2, 3, 4, 5, 6, 70, 8, 9])?;
    same(&rig.fates[&2].outcome, &Outcome::Dropped(Reason::Application))?;
    check(rig.sender.modify(id, 9, |_| Ok(())).is_err(), || "a sent record was modified".to_owned())
}

fn full() -> Result<()> {
    let mut rig = direct()?;
    let mut pushed = 0;
    // Nobody reads, so the window is full at some time, and then the ring.
    let refused = loop {
        match rig.sender.push(rig.sink.id(), &payload(pushed), &meta(pushed)) {
            Ok(_) => pushed += 1,
            Err(error) => break error,
        }
        check(pushed < 100_000, || "the ring is never full".to_owned())?;
    };
    check(matches!(refused, PushError::Full | PushError::OutOfBlocks), || format!("{refused:?}"))?;
    same(&rig.read(pushed as usize)?, &(0..pushed).collect())?;
    rig.push(pushed)?;
    same(&rig.read(1)?, &vec![pushed])
}

fn framed() -> Result<()> {
    let config = SinkConfig::new(choice::fifo()).framing(Framing::LengthPrefixed);
    let mut rig = Rig::new(config, CarrierInUse::KernelFed)?;
    for seq in 0..200 {
        rig.push(seq)?;
    }
    for seq in 0..200 {
        same(&rig.read_one(4)?, &Some(seq))?;
    }
    rig.await_fates(0..200)?;
    check(rig.fates.values().all(|fate| fate.outcome == Outcome::Acked), || format!("{:?}", rig.fates))?;
    let stats = rig.sink.stats();
    same(&(stats.committed, stats.finished, stats.bytes), &(200, 200, 200 * 1404))
}

fn reordered() -> Result<()> {
    let policy = Policy::builder().rule(Rule::Expired).order(Order::Newest).build();
    let config = SinkConfig::new(policy).queue_target(None).reserve(Reserve::Fixed(1));
    let mut rig = Rig::new(config, CarrierInUse::KernelFed)?;
    rig.fill_window()?;
    for seq in 0..40 {
        rig.push(seq)?;
        // Each lies in the kernel's ring for a while, and gives way to newer ones.
        // Pause: a record waits in the kernel's ring for a while.
        std::thread::sleep(Duration::from_millis(10));
    }
    same(&rig.sender.drop_seq(rig.sink.id(), 5), &Ok(true))?;
    let newest_first: Vec<u64> = (0..40).rev().filter(|seq| *seq != 5).collect();
    same(&rig.read(39)?, &newest_first)?;
    rig.await_fates(0..40)?;
    same(&rig.fates[&5].outcome, &Outcome::Dropped(Reason::Application))?;
    let committed: Vec<_> = newest_first.iter().map(|seq| rig.fates[seq].committed_at).collect();
    check(committed.is_sorted(), || format!("committed at {committed:?}"))?;
    same(&rig.sink.stats().invalid, &0)
}

fn expired_while_fed() -> Result<()> {
    let mut rig = Rig::new(
        SinkConfig::new(choice::deadline(Duration::ZERO)).queue_target(None),
        CarrierInUse::KernelFed,
    )?;
    rig.fill_window()?;
    for seq in 0..6 {
        rig.push_with(&due_in(seq, if seq < 4 { Duration::from_millis(100) } else { TIMEOUT }))?;
    }
    // Pause: the deadlines pass.
    std::thread::sleep(Duration::from_millis(250));
    same(&rig.read(2)?, &vec![4, 5])?;
    rig.await_fates(0..6)?;
    for seq in 0..4 {
        let outcome = rig.fates[&seq].outcome;
        let late = [Reason::Expired, Reason::PredictedLate].map(Outcome::Dropped);
        check(late.contains(&outcome), || format!("record {seq}: {outcome:?}"))?;
    }
    Ok(())
}

fn drained() -> Result<()> {
    for framing in [Framing::Raw, Framing::LengthPrefixed] {
        let direct = framing == Framing::Raw;
        let carrier = if direct { CarrierInUse::KernelRing } else { CarrierInUse::KernelFed };
        let mut rig = Rig::new(SinkConfig::new(choice::fifo()).framing(framing), carrier)?;
        for seq in 0..100 {
            rig.push(seq)?;
        }
        let Rig { sink, far, mut sender, .. } = rig;
        let id = sink.id();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            (&far).read_to_end(&mut bytes).map(|_| bytes.len())
        });
        same(&sink.close(CloseMode::Drain, TIMEOUT), &Ended::Closed)?;
        let expected = 100 * if direct { 1400 } else { 1404 };
        same(&reader.join().map_err(|_| "the reader panicked")??, &expected)?;
        let mut reported = 0;
        while let Some(fate) = sender.poll_fate(id)? {
            same(&fate.outcome, &Outcome::Acked)?;
            reported += 1;
        }
        same(&reported, &100)?;
        // The mapping is still there, and a push reports the end.
        same(&sender.push(id, b"late", &meta(100)), &Err(PushError::Closed))?;
    }
    Ok(())
}

fn finished() -> Result<()> {
    for policy in [choice::fifo(), choice::latest()] {
        let direct = choice::Choice::is_in_order(&policy);
        let carrier = if direct { CarrierInUse::KernelRing } else { CarrierInUse::KernelFed };
        let mut rig = Rig::new(SinkConfig::new(policy), carrier)?;
        rig.fill_window()?;
        for seq in 0..20 {
            rig.push(seq)?;
        }
        let Rig { sink, far, sender, .. } = rig;
        let id = sink.id();
        let closer = std::thread::spawn(move || sink.close(CloseMode::FinishRecord, TIMEOUT));
        // Pause: the reader comes late.
        std::thread::sleep(Duration::from_millis(100));
        let mut bytes = Vec::new();
        (&far).read_to_end(&mut bytes)?;
        same(&(bytes.len() % 1400), &0)?;
        same(&closer.join().map_err(|_| "the closer panicked")?, &Ended::Closed)?;
        let mut sender = sender;
        let mut dropped = 0;
        while let Some(fate) = sender.poll_fate(id)? {
            if let Outcome::Dropped(reason) = fate.outcome {
                same(&reason, &Reason::Closed)?;
                dropped += 1;
            }
        }
        check((18..=21).contains(&dropped), || format!("{dropped} of 20 records were dropped"))?;
    }
    Ok(())
}

fn aborted() -> Result<()> {
    let mut rig = direct()?;
    rig.fill_window()?;
    for seq in 0..20 {
        rig.push(seq)?;
    }
    let Rig { sink, mut far, mut sender, .. } = rig;
    let id = sink.id();
    same(&sink.close(CloseMode::Abort, TIMEOUT), &Ended::Closed)?;
    let mut bytes = Vec::new();
    check(far.read_to_end(&mut bytes).is_err(), || "the peer saw a regular end".to_owned())?;
    let mut reported = 0;
    while let Some(fate) = sender.poll_fate(id)? {
        reported += u64::from(fate.seq < 20);
        check(fate.outcome != Outcome::Acked || fate.seq >= FILLERS, || format!("{fate:?}"))?;
    }
    same(&reported, &20)
}

fn reset() -> Result<()> {
    let mut rig = direct()?;
    rig.fill_window()?;
    rig.push(1)?;
    let Rig { sink, far, mut sender, .. } = rig;
    let id = sink.id();
    // What it has not read makes this a reset.
    drop(far);
    let give_up = freshwire::now() + TIMEOUT;
    while sink.ended().is_none() {
        check(freshwire::now() < give_up, || "the reset was not noticed".to_owned())?;
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(5));
    }
    check(matches!(sink.ended(), Some(Ended::Broken(_))), || format!("{:?}", sink.ended()))?;
    let mut last = None;
    while let Some(fate) = sender.poll_fate(id)? {
        last = Some((fate.seq, fate.outcome));
    }
    same(&last, &Some((1, Outcome::Dropped(Reason::ConnectionLost))))
}

fn to_all() -> Result<()> {
    let mut rig = direct()?;
    let (near, mut far) = pair("127.0.0.1:0")?;
    let plain = rig.sender.add_sink(near, SinkConfig::new(choice::fifo()))?;
    same(&plain.stats().carrier, &CarrierInUse::Tcp)?;
    let rings = [rig.sink.id(), plain.id()];
    same(&rig.sender.push_to_all(rings, &payload(5), &meta(5))?, &2)?;
    same(&rig.read(1)?, &vec![5])?;
    let mut bytes = vec![0; 1400];
    far.read_exact(&mut bytes)?;
    same(&bytes, &payload(5))?;
    let (region, ring) = rig.sender.region_of(rings[0])?;
    same(&(region.config().slots, ring), &(SLOTS, 0))?;
    check(region.as_fd().is_none(), || "not the kernel's region".to_owned())
}

fn reserved() -> Result<()> {
    let mut rig = direct()?;
    let sink = rig.sink.id();
    let mut space = rig.sender.reserve(sink, 1400, &meta(5))?;
    space.write_all(&payload(5))?;
    same(&rig.sender.commit(sink, &mut space, &meta(5))?, &5)?;
    same(&rig.read(1)?, &vec![5])?;
    // Dropped, it leaves nothing in the ring.
    for _ in 0..2 * SLOTS {
        drop(rig.sender.reserve(sink, 1400, &meta(6))?);
    }
    let mut space = rig.sender.reserve_for_all([sink], 1400, &meta(7))?;
    space.write_all(&payload(7))?;
    same(&rig.sender.commit(sink, &mut space, &meta(7)), &Err(PushError::ForeignReservation))?;
    same(&rig.sender.commit_to_all([sink], space, &meta(7))?, &1)?;
    same(&rig.read(1)?, &vec![7])
}

fn second_party() -> Result<()> {
    let mut rig = direct()?;
    rig.fill_window()?;
    for seq in 0..5 {
        rig.push(seq)?;
    }
    let (region, ring) = rig.sender.region_of(rig.sink.id())?;
    let editor = region.editor();
    same(&editor.drop_seq(ring, 1), &true)?;
    let mut edit = editor.edit(ring, 3)?;
    edit.write(0, &payload(33))?;
    same(&rig.read(3)?, &vec![0, 2, 4])?;
    // The kernel passes a held record over, and sleeps when it has nothing else.
    // Pause: the kernel goes to sleep.
    std::thread::sleep(Duration::from_millis(50));
    check(edit.release()?, || "the kernel does not sleep".to_owned())?;
    rig.sender.notify();
    same(&rig.read(1)?, &vec![33])
}

fn refused() -> Result<()> {
    let rig = Rig::new(SinkConfig::new(choice::fifo()).framing(Framing::Chunked), CarrierInUse::Tcp)?;
    let why = rig.sink.fallback().unwrap_or_default().to_owned();
    check(why.contains("length-prefixed"), || format!("{why:?}"))?;
    let mut rig = direct()?;
    check(rig.sink.fallback().is_none(), || "there is nothing to explain".to_owned())?;
    let (near, _far) = pair("127.0.0.1:0")?;
    let config = SinkConfig::new(choice::fifo()).framing(Framing::Chunked).carrier(Carrier::Kernel);
    match rig.sender.add_sink(near, config) {
        Err(SenderError::Carrier(CarrierError::Framing)) => Ok(()),
        other => Err(format!("{:?}", other.map(|sink| sink.stats().carrier)).into()),
    }
}
