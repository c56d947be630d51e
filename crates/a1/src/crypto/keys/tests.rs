use super::*;

const NOW: Timestamp = Timestamp::ZERO;

fn secrets() -> (Secrets, Secrets) {
    let (one, other) = (Zeroizing::new([1; 32]), Zeroizing::new([2; 32]));
    (Secrets { send: one.clone(), receive: other.clone() }, Secrets { send: other, receive: one })
}

/// Both ends of a connection, with a number for each packet.
struct Pair {
    ends: [Keys; 2],
    next: [u64; 2],
}

struct Packet {
    to: usize,
    number: u64,
    phase: bool,
    sealed: Vec<u8>,
}

impl Pair {
    fn new(limits: KeyLimits) -> Self {
        let (one, other) = secrets();
        let end = |secrets| Keys::with_limits(Protection::Aead, secrets, limits);
        Self { ends: [end(&one), end(&other)], next: [0, 0] }
    }

    fn seal(&mut self, from: usize) -> Result<Packet, KeyExhausted> {
        let number = self.next[from];
        let mut sealed = number.to_be_bytes().to_vec();
        let phase = self.ends[from].seal(number, &mut sealed, 0)?;
        self.next[from] += 1;
        Ok(Packet { to: 1 - from, number, phase, sealed })
    }

    fn open(&mut self, now: Timestamp, packet: &Packet) -> Result<(), Opening> {
        let mut sealed = packet.sealed.clone();
        let opened = self.ends[packet.to].open(now, packet.number, packet.phase, &mut sealed)?;
        assert_eq!(opened, packet.number.to_be_bytes());
        Ok(())
    }

    /// A packet in each direction, with the acknowledgements of both.
    fn exchange(&mut self) {
        for from in [0, 1] {
            let packet = self.seal(from).unwrap();
            self.open(NOW, &packet).unwrap();
            self.ends[from].on_acknowledged(packet.number);
        }
    }
}

#[test]
fn packets_open_in_any_order_and_only_as_they_were_sealed() {
    let mut pair = Pair::new(KeyLimits::default());
    let packets: Vec<Packet> = (0..5).map(|_| pair.seal(0).unwrap()).collect();
    for packet in packets.iter().rev() {
        for bit in 0..packet.sealed.len() * 8 {
            let mut sealed = packet.sealed.clone();
            sealed[bit / 8] ^= 1 << (bit % 8);
            let forged = Packet { sealed, ..*packet };
            assert_eq!(pair.open(NOW, &forged), Err(Opening::Unauthentic), "bit {bit}");
        }
        for len in 0..packet.sealed.len() {
            let cut = Packet { sealed: packet.sealed[..len].to_vec(), ..*packet };
            assert_eq!(pair.open(NOW, &cut), Err(Opening::Unauthentic), "cut to {len}");
        }
        let longer = Packet { sealed: [&packet.sealed[..], &[0]].concat(), ..*packet };
        assert_eq!(pair.open(NOW, &longer), Err(Opening::Unauthentic));
        for wrong in [
            Packet { number: packet.number + 1, sealed: packet.sealed.clone(), ..*packet },
            Packet { number: packet.number + (1 << 32), sealed: packet.sealed.clone(), ..*packet },
            Packet { phase: true, sealed: packet.sealed.clone(), ..*packet },
            Packet { to: 0, sealed: packet.sealed.clone(), ..*packet },
        ] {
            assert_eq!(pair.open(NOW, &wrong), Err(Opening::Unauthentic));
        }
        assert_eq!(pair.open(NOW, packet), Ok(()));
    }
}

#[test]
fn an_update_is_followed_by_the_peer_and_confirmed() {
    let mut pair = Pair::new(KeyLimits::default());
    assert_eq!(pair.ends[0].update(), Err(Unconfirmed), "nothing has been exchanged");
    for round in 0..4 {
        pair.exchange();
        let before = pair.seal(0).unwrap();
        pair.ends[0].update().unwrap();
        assert_eq!(pair.ends[0].update(), Err(Unconfirmed), "round {round}");
        let after = pair.seal(0).unwrap();
        assert_ne!(before.phase, after.phase);
        pair.open(NOW, &after).unwrap();
        assert_eq!(pair.open(NOW, &before), Ok(()), "overtaken by the update");
        let answer = pair.seal(1).unwrap();
        assert_eq!(answer.phase, after.phase, "the peer follows");
        pair.ends[1].on_acknowledged(answer.number);
        assert_eq!(pair.ends[0].update(), Err(Unconfirmed), "no acknowledgement has come");
        pair.ends[0].on_acknowledged(before.number);
        pair.open(NOW, &answer).unwrap();
        assert_eq!(pair.ends[0].update(), Err(Unconfirmed), "that packet had the key before");
        pair.ends[0].on_acknowledged(after.number);
    }
}

#[test]
fn both_ends_may_begin_an_update_at_once() {
    let mut pair = Pair::new(KeyLimits::default());
    for _ in 0..3 {
        pair.exchange();
        pair.ends[0].update().unwrap();
        pair.ends[1].update().unwrap();
        pair.exchange();
    }
}

#[test]
fn the_previous_key_is_kept_for_the_time_given() {
    let mut pair = Pair::new(KeyLimits::default());
    pair.exchange();
    pair.ends[1].set_retention(Duration::from_millis(300));
    let late: Vec<Packet> = (0..2).map(|_| pair.seal(0).unwrap()).collect();
    pair.ends[0].update().unwrap();
    let after = pair.seal(0).unwrap();
    pair.open(NOW, &after).unwrap();
    assert_eq!(pair.open(NOW + Duration::from_millis(300), &late[0]), Ok(()));
    assert_eq!(pair.open(NOW + Duration::from_millis(301), &late[1]), Err(Opening::KeyForgotten));
}

#[test]
fn a_forged_phase_updates_nothing() {
    let mut pair = Pair::new(KeyLimits::default());
    pair.exchange();
    let packet = pair.seal(0).unwrap();
    let forged = Packet { phase: !packet.phase, sealed: packet.sealed.clone(), ..packet };
    assert_eq!(pair.open(NOW, &forged), Err(Opening::Unauthentic));
    assert_eq!(pair.open(NOW, &packet), Ok(()));
    assert!(!pair.seal(1).unwrap().phase);
}

#[test]
fn keys_update_themselves_and_keep_within_their_limit() {
    let limits = KeyLimits { update_after: 10, seals: 15, ..KeyLimits::default() };
    let mut pair = Pair::new(limits);
    for _ in 0..100 {
        pair.exchange();
    }
    let mut alone = Pair::new(limits);
    for number in 0..15 {
        assert!(!alone.seal(0).unwrap().phase, "{number}: the peer has confirmed nothing");
    }
    assert_eq!(alone.seal(0).err(), Some(KeyExhausted));
    let mut last = Vec::new();
    assert_eq!(Pair::new(limits).ends[0].seal(u64::MAX, &mut last, 0), Err(KeyExhausted));
}

#[test]
fn too_many_forgeries_end_the_connection() {
    let mut pair = Pair::new(KeyLimits { failures: 3, ..KeyLimits::default() });
    let packet = pair.seal(0).unwrap();
    let forged = Packet { number: 9, sealed: packet.sealed.clone(), ..packet };
    assert_eq!(pair.open(NOW, &forged), Err(Opening::Unauthentic));
    assert_eq!(pair.open(NOW, &forged), Err(Opening::Unauthentic));
    assert_eq!(pair.open(NOW, &forged), Err(Opening::Exhausted));
    assert_eq!(pair.open(NOW, &packet), Err(Opening::Exhausted));
}

#[test]
fn a_checksum_finds_damage_and_a_wrong_number() {
    let mut keys = Keys::new(Protection::DangerousPlain, &secrets().0);
    let mut sealed = b"payload".to_vec();
    assert_eq!(keys.seal(7, &mut sealed, 0), Ok(true));
    assert_eq!(sealed.len(), b"payload".len() + keys.overhead());
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(keys.open(NOW, 7, true, &mut damaged), Err(Opening::Unauthentic));
    }
    assert_eq!(keys.open(NOW, 8, true, &mut sealed), Err(Opening::Unauthentic));
    assert_eq!(keys.open(NOW, 7, true, &mut sealed[..3]), Err(Opening::Unauthentic));
    assert_eq!(keys.open(NOW, 7, true, &mut sealed), Ok(&b"payload"[..]));
}

#[test]
fn without_checksums_none_is_added_and_one_is_still_read() {
    let mut keys = Keys::new(Protection::DangerousPlain, &secrets().0);
    let mut checked = b"payload".to_vec();
    keys.seal(6, &mut checked, 0).unwrap();
    keys.set_checksum(false);
    let mut sealed = b"payload".to_vec();
    assert_eq!(keys.seal(7, &mut sealed, 0), Ok(false));
    assert_eq!((sealed.as_slice(), keys.overhead()), (&b"payload"[..], 0));
    assert_eq!(keys.open(NOW, 7, false, &mut sealed), Ok(&b"payload"[..]));
    assert_eq!(keys.open(NOW, 6, true, &mut checked), Ok(&b"payload"[..]));
}

/// The generation of an end's sending key and of its receiving key.
fn generations(keys: &Keys) -> (u64, u64) {
    match &keys.kind {
        Kind::Aead(aead) => (aead.sender.generation, aead.receiver.generation),
        Kind::Plain { .. } => (0, 0),
    }
}

/// A random conversation with losses, reordering and updates by both ends: what arrives opens, unless its key is older
/// than the previous one.
#[test]
fn random_conversations_are_understood() {
    bolero::check!().with_type::<Vec<(bool, u8, u8)>>().for_each(|steps| {
        let mut pair = Pair::new(KeyLimits::default());
        let mut waiting: Vec<(u64, Packet)> = Vec::new();
        for (first, action, which) in steps {
            let end = usize::from(*first);
            match action % 8 {
                0..3 => {
                    let generation = generations(&pair.ends[end]).0;
                    waiting.push((generation, pair.seal(end).unwrap()));
                }
                3 => drop(pair.ends[end].update()),
                _ if waiting.is_empty() => {}
                4 => drop(waiting.remove(usize::from(*which) % waiting.len())),
                _ => {
                    let (generation, packet) = waiting.remove(usize::from(*which) % waiting.len());
                    let receivers = generations(&pair.ends[packet.to]).1;
                    assert!(generation <= receivers + 1, "a key was skipped");
                    let is_kept = generation + 1 >= receivers;
                    assert_eq!(pair.open(NOW, &packet).is_ok(), is_kept, "{generation} {receivers}");
                    if is_kept {
                        pair.ends[1 - packet.to].on_acknowledged(packet.number);
                    }
                }
            }
        }
    });
}

#[test]
fn codes_of_protections_come_back() {
    for protection in [Protection::Aead, Protection::DangerousPlain] {
        assert_eq!(Protection::from_code(protection.code()), Some(protection));
    }
    assert_eq!(Protection::from_code(2), None);
    assert!(Protection::Aead < Protection::DangerousPlain);
}
