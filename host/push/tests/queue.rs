//! The queue against a reference model that keeps whole datagrams in a list.

use std::time::Duration;

use bolero::TypeGenerator;
use freshwire_push::queue::{Arrival, BLOCK, Name, Queue};
use freshwire_push::{Policy, Reason, Tag};
use freshwire_record::Timestamp;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Kind {
    Newest,
    Oldest,
    Deadline,
    LatestByKey,
    /// Drops the second of those that wait, or the incoming one if there is no second.
    Second,
}

#[derive(Debug, TypeGenerator)]
enum Step {
    Push { len: u16, control: u8, key: u8, lifetime: Option<u8> },
    Pop,
    Wait(u8),
    ExpireFront,
    ExpireAll,
    Release,
}

#[derive(Clone, Debug, PartialEq)]
struct KeptDatagram {
    payload: Vec<u8>,
    control: Vec<u8>,
    key: Option<u64>,
    expires: u64,
}

struct Model {
    kind: Kind,
    capacity: usize,
    kept: Vec<KeptDatagram>,
    drops: [u64; 5],
}

fn blocks(kept: &KeptDatagram) -> usize {
    (kept.payload.len() + kept.control.len()).div_ceil(BLOCK).max(1)
}

impl Model {
    fn drop_at(&mut self, index: usize, reason: Reason) {
        self.kept.remove(index);
        self.drops[reason as usize] += 1;
    }

    fn expire(&mut self, now: u64, only_front: bool) {
        let mut index = 0;
        while index < self.kept.len() {
            if self.kept[index].expires <= now {
                self.drop_at(index, Reason::Expired);
            } else if only_front {
                break;
            } else {
                index += 1;
            }
        }
    }

    fn push(&mut self, new: KeptDatagram, now: u64) -> bool {
        if new.expires <= now {
            self.drops[Reason::Expired as usize] += 1;
            return false;
        }
        if matches!(self.kind, Kind::LatestByKey)
            && let Some(older) = self.kept.iter().position(|kept| kept.key.is_some() && kept.key == new.key)
        {
            self.drop_at(older, Reason::Superseded);
        }
        let fits = |model: &Self| {
            model.kept.iter().map(blocks).sum::<usize>() + blocks(&new) <= model.capacity / BLOCK
        };
        if !fits(self) {
            self.expire(now, false);
        }
        while !fits(self) {
            match self.kind {
                Kind::Newest => {
                    self.drops[Reason::Full as usize] += 1;
                    return false;
                }
                Kind::Second if self.kept.len() < 2 => {
                    self.drops[Reason::Chosen as usize] += 1;
                    return false;
                }
                Kind::Second => self.drop_at(1, Reason::Chosen),
                _ => self.drop_at(0, Reason::Oldest),
            }
        }
        self.kept.push(new);
        true
    }
}

fn policy(kind: Kind) -> Policy {
    match kind {
        Kind::Newest => Policy::Newest,
        Kind::Oldest => Policy::Oldest,
        Kind::Deadline => Policy::Deadline(Duration::from_nanos(50)),
        Kind::LatestByKey => Policy::LatestByKey,
        Kind::Second => Policy::Custom(Box::new(|_, waiting| (waiting.count() >= 2).then_some(1))),
    }
}

/// The first byte is the key, the second the lifetime, if not zero.
fn classify(payload: &[u8]) -> Tag {
    let lifetime = payload.get(1).filter(|lifetime| **lifetime > 0);
    Tag {
        key: payload.first().map(|key| u64::from(key % 4)),
        lifetime: lifetime.map(|lifetime| Duration::from_nanos((*lifetime).into())),
    }
}

fn same_head(queue: &Queue, model: &Model) {
    let Some(kept) = model.kept.first() else {
        assert!(queue.is_empty() && queue.head().is_none());
        return;
    };
    let head = queue.head().expect("the model has one");
    assert_eq!((head.len, head.control_len), (kept.payload.len(), kept.control.len()));
    let mut all = vec![0; head.len + head.control_len];
    assert_eq!(queue.copy(0, &mut all), all.len());
    assert_eq!(all, [kept.payload.clone(), kept.control.clone()].concat());
    // From any place on, as `recvmsg` does with the control messages.
    let from = head.len.min(all.len());
    let mut rest = vec![0; all.len() - from + 10];
    assert_eq!(queue.copy(from, &mut rest), all.len() - from);
    assert_eq!(rest[..all.len() - from], all[from..]);
}

fn play(kind: Kind, steps: &[Step]) {
    let mut queue = Queue::new(0, policy(kind), Some(Box::new(classify)));
    let mut model = Model { kind, capacity: queue.capacity(), kept: Vec::new(), drops: [0; 5] };
    let mut now = 0_u64;
    for (number, step) in steps.iter().enumerate() {
        let at = Timestamp::from_nanos(now);
        match step {
            Step::Push { len, control, key, lifetime } => {
                let mut payload = vec![number as u8; usize::from(*len)];
                payload.iter_mut().zip([*key, lifetime.unwrap_or(0)]).for_each(|(byte, new)| *byte = new);
                let control = vec![!(number as u8); usize::from(*control)];
                let tag = classify(&payload);
                let lifetime = tag.lifetime.map(|lifetime| lifetime.as_nanos() as u64);
                let lifetime = lifetime.or(matches!(kind, Kind::Deadline).then_some(50));
                let expires = lifetime.map_or(u64::MAX, |lifetime| now + lifetime);
                let arrival = Arrival {
                    payload: &payload,
                    control: &control,
                    name: Name::default(),
                    flags: 0,
                    arrived: at,
                };
                let kept = KeptDatagram {
                    payload: payload.clone(),
                    control: control.clone(),
                    key: tag.key,
                    expires,
                };
                assert_eq!(queue.push(&arrival, at), model.push(kept, now));
            }
            Step::Pop => {
                queue.pop();
                if !model.kept.is_empty() {
                    model.kept.remove(0);
                }
            }
            Step::Wait(time) => now += u64::from(*time),
            Step::ExpireFront => {
                queue.expire_front(at);
                model.expire(now, true);
            }
            Step::ExpireAll => {
                queue.expire(at);
                model.expire(now, false);
            }
            Step::Release => queue.release(),
        }
        assert_eq!(queue.len(), model.kept.len());
        assert_eq!(queue.bytes(), model.kept.iter().map(|kept| kept.payload.len()).sum::<usize>());
        assert_eq!(queue.occupied(), model.kept.iter().map(blocks).sum::<usize>() * BLOCK);
        assert!(queue.occupied() <= queue.peak() && queue.peak() <= queue.capacity());
        assert_eq!(Reason::ALL.map(|reason| queue.drops().of(reason)), model.drops);
        same_head(&queue, &model);
    }
    while !model.kept.is_empty() {
        same_head(&queue, &model);
        queue.pop();
        model.kept.remove(0);
    }
    assert_eq!(queue.occupied(), 0, "every block came back");
}

#[test]
fn behaves_like_the_model() {
    bolero::check!()
        .with_max_len(4096)
        .with_type::<(Kind, Vec<Step>)>()
        .for_each(|(kind, steps)| play(*kind, steps));
}

#[test]
fn overload_of_each_policy_behaves_like_the_model() {
    for kind in [Kind::Newest, Kind::Oldest, Kind::Deadline, Kind::LatestByKey, Kind::Second] {
        let mut steps = Vec::new();
        for number in 0..400_u16 {
            let len = if number % 7 == 0 { 0 } else { 300 * (number % 9) };
            steps.push(Step::Push { len, control: (number % 90) as u8, key: number as u8, lifetime: None });
            if number % 5 == 0 {
                steps.push(Step::Pop);
            }
            if number % 11 == 0 {
                steps.push(Step::Wait(30));
            }
        }
        play(kind, &steps);
    }
}

#[test]
fn a_datagram_of_the_largest_size_fits_into_the_smallest_queue() {
    let mut queue = Queue::new(0, Policy::Newest, None);
    let payload = vec![7; 65_507];
    let arrival = Arrival {
        payload: &payload,
        control: &[1; 64],
        name: Name::default(),
        flags: 0,
        arrived: Timestamp::ZERO,
    };
    assert!(queue.push(&arrival, Timestamp::ZERO));
    assert!(!queue.push(&arrival, Timestamp::ZERO), "only one fits");
    assert_eq!(queue.drops().of(Reason::Full), 1);
}
