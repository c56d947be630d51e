//! What holds for every policy and every queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bolero::TypeGenerator;
use freshwire_choice::log::{self, Recorder};
use freshwire_choice::{
    Choice, Decision, LinkView, Order, Outcome, Policy, Reason, Record, Rule, deadline, fifo, frames,
    from_fn, latest, layered, priority_progress, screen, thesis,
};
use freshwire_record::{Rate, Timestamp};

#[derive(Clone, Debug, TypeGenerator)]
struct Step {
    elapsed: u8,
    offered: Vec<Offer>,
    rate: Option<u16>,
    in_flight: u16,
    dropped_by_application: Option<u8>,
}

#[derive(Clone, Debug, TypeGenerator)]
struct Offer {
    skip: bool,
    len: u16,
    layer: u8,
    group: bool,
    key: u8,
    refs: [u8; 2],
    slack: Option<u8>,
    swap: bool,
}

/// Every ready-made policy, and the rules with every order.
fn choices() -> Vec<(&'static str, Box<dyn Choice>)> {
    let window = Duration::from_millis(100);
    let all = |order| {
        Policy::builder()
            .rule(Rule::Expired)
            .rule(Rule::WindowEnd { window })
            .rule(Rule::DependencyClosure)
            .rule(Rule::LatestByKey)
            .rule(Rule::LayerLimit { highest: 200 })
            .rule(Rule::PredictedLate { margin: Duration::from_millis(1) })
            .order(order)
            .build()
    };
    vec![
        ("fifo", Box::new(fifo())),
        ("thesis", Box::new(thesis(window))),
        ("priority-progress", Box::new(priority_progress(window))),
        ("deadline", Box::new(deadline(window))),
        ("layered", Box::new(layered(window))),
        ("latest", Box::new(latest())),
        ("frames", Box::new(frames())),
        ("screen", Box::new(screen())),
        ("all-fifo", Box::new(all(Order::Fifo))),
        ("all-layer", Box::new(all(Order::ByLayer))),
        ("all-newest", Box::new(all(Order::Newest))),
        ("all-turn", Box::new(all(Order::ByTurn))),
        ("weighted", Box::new(latest().with_weights([4, 2, 1]))),
    ]
}

fn drops_expired(name: &str) -> bool {
    !matches!(name, "fifo" | "thesis" | "priority-progress")
}

fn keeps_closure(name: &str) -> bool {
    name == "layered"
        || name == "frames"
        || name == "screen"
        || name == "priority-progress"
        || name.starts_with("all")
}

/// Plays the steps and checks the laws at each decision; the decisions.
fn play(name: &str, choice: &mut dyn Choice, steps: &[Step]) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let mut queue: Vec<Record> = Vec::new();
    let mut gone: BTreeSet<u64> = BTreeSet::new();
    let (mut now, mut seq) = (0, 5);
    for step in steps {
        now += u64::from(step.elapsed) * 1_000_000;
        let time = Timestamp::from_nanos(now);
        for offer in step.offered.iter().take(16) {
            seq += if offer.skip { 2 } else { 1 };
            queue.push(Record {
                index: seq,
                seq,
                len: u32::from(offer.len),
                layer: offer.layer,
                group: (seq / 8) as u32 + u32::from(offer.group),
                key: u64::from(offer.key % 8),
                refs: offer.refs.map(|distance| u32::from(distance % 6)),
                generated: time,
                deadline: offer
                    .slack
                    .map_or(Timestamp::MAX, |slack| time + Duration::from_millis(u64::from(slack))),
            });
            if offer.swap && queue.len() > 1 {
                let last = queue.len() - 1;
                queue.swap(last, 0);
            }
        }
        if let Some(at) = step.dropped_by_application.map(usize::from).filter(|&at| at < queue.len()) {
            let record = queue.remove(at);
            gone.insert(record.seq);
            choice.outcome(&record, Outcome::Dropped(Reason::Application));
        }
        let link = LinkView {
            rate: step.rate.map(|rate| Rate::from_bytes_per_sec(u64::from(rate) * 100)),
            min_rtt: Duration::from_millis(20),
            in_flight: u64::from(step.in_flight),
            ..LinkView::default()
        };
        let bound = queue.len() + 1;
        for call in 0.. {
            assert!(call < bound, "{name} does not come to an end");
            let decision = choice.pick(time, &queue, &link);
            decisions.push(decision);
            match decision {
                Decision::Wait(until) => {
                    assert!(until.is_none_or(|until| until > time), "{name} waits for the past");
                    break;
                }
                Decision::Drop(at, reason) => {
                    let record = queue.remove(at);
                    gone.insert(record.seq);
                    choice.outcome(&record, Outcome::Dropped(reason));
                }
                Decision::Send(at) => {
                    let record = queue.remove(at);
                    choice.outcome(&record, Outcome::Sent);
                    assert!(
                        !drops_expired(name) || record.deadline >= time,
                        "{name} sent {record:?} at {time}"
                    );
                    let queued = |seq| queue.iter().any(|other: &Record| other.seq == seq);
                    assert!(
                        !record.references().flatten().any(queued),
                        "{name} sent {record:?} before what it depends on"
                    );
                    if keeps_closure(name) {
                        for reference in record.references() {
                            let reference = reference.expect("sequence numbers start above all distances");
                            assert!(!gone.contains(&reference), "{name} sent {record:?} without {reference}");
                        }
                    }
                    break;
                }
            }
        }
    }
    decisions
}

//= spec/choice.md 1..3, 10, 13, 18
#[test]
fn every_policy_keeps_the_laws() {
    bolero::check!().with_iterations(300).with_type::<Vec<Step>>().for_each(|steps| {
        for (name, mut choice) in choices() {
            play(name, choice.as_mut(), steps);
        }
    });
}

//= spec/choice.md 6, 25
#[test]
fn a_log_replays_to_the_same_decisions() {
    bolero::check!().with_iterations(50).with_type::<Vec<Step>>().for_each(|steps| {
        for ((name, choice), (_, mut again)) in choices().into_iter().zip(choices()) {
            let mut recorder = Recorder::new(choice, usize::MAX);
            play(name, &mut recorder, steps);
            assert_eq!(recorder.lost(), 0);
            assert_eq!(log::replay(recorder.drain(), again.as_mut()), Ok(()), "{name}");
        }
    });
}

/// What an application does with its keys between two commits.
#[derive(Clone, Debug, TypeGenerator)]
enum Action {
    /// A new value of a key: in the place of the one that waits, or behind all with that one still there.
    Value {
        key: u8,
        in_place: bool,
    },
    Drop {
        at: u8,
    },
    Commit,
}

/// Under any sequence of replacements, drops and commits, nobody is sent twice while another key waits all along, and it is always the
/// newest value that is sent.
//= spec/choice.md 14, 19
#[test]
fn turns_go_round() {
    bolero::check!().with_type::<Vec<Action>>().for_each(|deeds| {
        let mut choice = latest();
        let (mut queue, mut seq): (Vec<Record>, u64) = (Vec::new(), 0);
        // By key: how often each other key was sent while it waited.
        let mut waits: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
        for deed in deeds {
            match *deed {
                Action::Value { key, in_place } => {
                    seq += 1;
                    let key = u64::from(key % 8) + 1;
                    let value = Record { key, ..record(seq) };
                    let older = queue.iter_mut().rev().find(|older| older.key == key).filter(|_| in_place);
                    match older {
                        Some(older) => *older = Record { index: older.index, ..value },
                        None => queue.push(value),
                    }
                    waits.entry(key).or_default();
                }
                Action::Drop { at } => {
                    if usize::from(at) < queue.len() {
                        let record = queue.remove(usize::from(at));
                        choice.outcome(&record, Outcome::Dropped(Reason::Application));
                        if !queue.iter().any(|other| other.key == record.key) {
                            waits.remove(&record.key);
                        }
                    }
                }
                Action::Commit => {
                    let Some(sent) = commit(&mut choice, &mut queue) else { continue };
                    assert!(
                        queue.iter().all(|left| left.key != sent.key),
                        "an older value of the key is left"
                    );
                    waits.remove(&sent.key);
                    for (key, others) in &mut waits {
                        let times = others.entry(sent.key).or_default();
                        *times += 1;
                        assert!(*times <= 1, "{} was sent twice while {key} waited", sent.key);
                    }
                }
            }
        }
    });
}

fn commit(choice: &mut dyn Choice, queue: &mut Vec<Record>) -> Option<Record> {
    loop {
        match choice.pick(Timestamp::ZERO, queue, &LinkView::default()) {
            Decision::Wait(_) => return None,
            Decision::Drop(at, reason) => {
                let record = queue.remove(at);
                let newer = queue.iter().any(|other| other.key == record.key && other.seq > record.seq);
                assert!(newer && reason == Reason::Superseded);
                choice.outcome(&record, Outcome::Dropped(reason));
            }
            Decision::Send(at) => {
                let record = queue.remove(at);
                choice.outcome(&record, Outcome::Sent);
                return Some(record);
            }
        }
    }
}

#[test]
fn of_keys_that_always_wait_each_is_sent_by_its_weight() {
    let mut choice = latest().with_weights([4, 1]);
    let mut sent: BTreeMap<u64, u32> = BTreeMap::new();
    let mut queue = Vec::new();
    for seq in 0..60_000 {
        // Keys 1 to 5 have four times the weight of keys 6 to 25.
        let key = seq % 25 + 1;
        queue.retain(|record: &Record| record.key != key);
        queue.push(Record { key, layer: u8::from(key > 5), ..record(seq) });
        if key == 25 {
            *sent.entry(commit(&mut choice, &mut queue).map_or(0, |record| record.key)).or_default() += 1;
        }
    }
    // 2,400 commits for 40 parts, of which a heavy key has four.
    for (key, &times) in &sent {
        let fair = if *key > 5 { 60 } else { 240 };
        assert!(times.abs_diff(fair) <= fair / 10, "key {key}: {times} instead of {fair}");
    }
    assert_eq!(sent.len(), 25);
}

/// Room for a newcomer is made of what is of no more use, and of nothing else.
//= spec/choice.md 30
#[test]
fn only_what_is_stale_makes_room() {
    let keyed = |seq, key| Record { key, deadline: Timestamp::MAX, ..record(seq) };
    let now = Timestamp::from_nanos(2_000_000);
    let mut state = latest();
    let queue = [keyed(1, 7), keyed(2, 8)];
    assert_eq!(state.stale(now, &queue, &keyed(3, 8)), Some((1, Reason::Superseded)));
    assert_eq!(state.stale(now, &queue, &keyed(3, 9)), None);
    assert_eq!(state.stale(now, &queue, &keyed(3, 0)), None);
    assert_eq!(state.stale(now, &[keyed(1, 7), keyed(2, 7)], &keyed(3, 9)), Some((0, Reason::Superseded)));
    let mut timed = deadline(Duration::ZERO);
    assert_eq!(timed.stale(now, &[keyed(1, 7), record(2)], &keyed(3, 7)), Some((1, Reason::Expired)));
    assert_eq!(fifo().stale(now, &[record(2)], &record(3)), None);
}

#[test]
fn a_function_around_a_policy_passes_outcomes_on() {
    let never_key_9 =
        from_fn(|_, queue: &[Record], _: &LinkView| match queue.iter().position(|record| record.key == 9) {
            Some(at) => Decision::Drop(at, Reason::LayerShed),
            None => Decision::Wait(None),
        });
    let mut choice = never_key_9.around(layered(Duration::ZERO));
    let depends = |seq, distance| Record { refs: [distance, 0], deadline: Timestamp::MAX, ..record(seq) };
    let mut queue = vec![Record { key: 9, ..depends(5, 0) }, depends(6, 1), depends(7, 0)];
    let link = LinkView::default();
    assert_eq!(choice.pick(Timestamp::ZERO, &queue, &link), Decision::Drop(0, Reason::LayerShed));
    let dropped = queue.remove(0);
    choice.outcome(&dropped, Outcome::Dropped(Reason::LayerShed));
    assert_eq!(choice.pick(Timestamp::ZERO, &queue, &link), Decision::Drop(0, Reason::ReferenceLost));
}

fn record(seq: u64) -> Record {
    Record { len: 100, deadline: Timestamp::from_nanos(1_000_000), ..Record::numbered(seq) }
}

#[test]
fn a_replay_on_another_policy_diverges() {
    let mut recorder = Recorder::new(fifo(), 10);
    let late = Timestamp::from_nanos(2_000_000);
    assert_eq!(recorder.pick(late, &[record(0)], &LinkView::default()), Decision::Send(0));
    let divergence = log::replay(recorder.drain(), &mut deadline(Duration::ZERO)).unwrap_err();
    assert_eq!(divergence.to_string(), "entry 0: the log says Send(0), the choice now says Drop(0, Expired)");
}

#[test]
fn a_full_recorder_keeps_the_newest_and_counts() {
    let mut recorder = Recorder::new(fifo(), 2);
    for seq in 0..5 {
        recorder.outcome(&record(seq), Outcome::Sent);
    }
    assert_eq!(recorder.lost(), 3);
    let kept: Vec<_> = recorder.drain().collect();
    assert_eq!(kept, [3, 4].map(|seq| log::Entry::Outcome { record: record(seq), dropped: None }));
}

#[cfg(feature = "serde")]
#[test]
fn entries_survive_json() {
    let mut recorder = Recorder::new(deadline(Duration::ZERO), 10);
    let link = LinkView { rate: Some(Rate::from_bits_per_sec(1_000_000)), ..LinkView::default() };
    let _ = recorder.pick(Timestamp::ZERO, &[record(0)], &link);
    let _ = recorder.progress(Timestamp::from_nanos(1), &record(0), 50, &link);
    recorder.outcome(&record(0), Outcome::Dropped(Reason::Abandoned));
    let _ = recorder.pick(Timestamp::ZERO, &[], &link);
    for entry in recorder.drain() {
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<log::Entry>(&text).unwrap(), entry, "{text}");
    }
}
