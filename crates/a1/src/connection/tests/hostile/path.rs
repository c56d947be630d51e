//! Packets that come from addresses that may be forged.

use std::net::SocketAddr;
use std::time::Duration;

use bolero::{TypeGenerator, check, produce};

use super::{Echo, Frame, Keys, Liar, Protection, Secrets, secret};

/// What comes, from the peer's address (0) or another one.
#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Packet {
        from: u8,
        padding: u8,
        challenge: Option<[u8; 8]>,
        /// It was overtaken by others.
        is_late: bool,
    },
    Wait {
        ms: u8,
    },
}

fn address(of: u8, remote: SocketAddr) -> SocketAddr {
    if of == 0 { remote } else { SocketAddr::from(([10, 0, 0, of], 9)) }
}

fn run(steps: &[Step], protection: Protection, checksum: bool) {
    let mut liar = Liar::new();
    liar.listen(Duration::from_millis(10));
    let secrets = Secrets { send: secret(0).into(), receive: secret(1).into() };
    let swapped = Secrets { send: secret(1).into(), receive: secret(0).into() };
    liar.victim().connection.keys = Keys::new(protection, &secrets);
    liar.keys = Keys::new(protection, &swapped);
    liar.victim().connection.keys.set_checksum(checksum);
    liar.keys.set_checksum(checksum);
    let remote = liar.victim().connection.remote().address;
    let mut passed_over = Vec::new();
    for step in steps {
        match step {
            Step::Packet { from, padding, challenge, is_late } => {
                let mut frames = Vec::new();
                Frame::Ping.put(&mut frames);
                if let Some(token) = challenge {
                    Frame::PathChallenge(*token).put(&mut frames);
                }
                frames.resize(frames.len() + usize::from(*padding / 4), 0);
                let late = passed_over.pop().filter(|_| *is_late);
                let number = late.unwrap_or_else(|| {
                    passed_over.push(liar.next);
                    liar.next += 2;
                    liar.next - 1
                });
                liar.say_from(address(from % 3, remote), number, &frames);
            }
            Step::Wait { ms } => {
                liar.listen(Duration::from_millis(u64::from(*ms) * 4));
            }
        }
        liar.listen(Duration::ZERO);
        for (to, [came, went]) in liar.traffic.iter().filter(|(to, _)| **to != remote) {
            assert!(*went <= 3 * came, "{went} bytes went to {to}, from where {came} came");
        }
        assert_eq!(liar.victim().connection.remote().address, remote);
    }
}

#[test]
fn an_unproved_address_gets_at_most_three_times_its_bytes() {
    let steps = produce::<Vec<Step>>().with().len(0..=40usize);
    check!().with_generator(steps).with_iterations(1000).with_max_len(1 << 12).for_each(|steps| {
        run(steps, Protection::Aead, true);
        run(steps, Protection::DangerousPlain, true);
        run(steps, Protection::DangerousPlain, false);
    });
}

#[test]
fn an_address_is_challenged_again_when_more_has_come_from_it() {
    let mut liar = Liar::new();
    liar.listen(Duration::from_millis(10));
    let other = address(1, liar.victim().connection.remote().address);
    let mut ping = Vec::new();
    Frame::Ping.put(&mut ping);
    let mut went = |packets: u64, time: Duration| {
        for _ in 0..packets {
            liar.next += 1;
            liar.say_from(other, liar.next - 1, &ping);
        }
        liar.listen(time);
        liar.traffic[&other][1] / 30
    };
    // A challenge is 30 bytes, and a packet with PING 22.
    assert_eq!(went(1, Duration::from_secs(2)), 2);
    assert_eq!(went(1, Duration::from_millis(1)), 4 - 1, "one at a time");
    assert_eq!(went(0, Duration::from_secs(2)), 4);
    assert_eq!(went(3, Duration::from_millis(1)), 5, "no more often than that, whatever comes");
}

//= spec/a1.md A1-PATH-3
#[test]
fn a_sync_echo_of_the_old_path_measures_nothing_on_the_new_one() {
    let mut liar = Liar::new();
    liar.listen(Duration::from_millis(10));
    let now = liar.pair.now;
    let connection = &mut liar.victim().connection;
    let sent_us = connection.clock.micros(now);
    connection.syncs.on_sent(now, sent_us);
    let other = address(1, connection.remote().address);
    let say = |liar: &mut Liar, frame: Frame<'_>| {
        let mut frames = Vec::new();
        frame.put(&mut frames);
        liar.next += 1;
        liar.say_from(other, liar.next - 1, &frames);
    };
    say(&mut liar, Frame::Ping);
    let (token, _) = liar.victim().connection.path.challenge(now, 30).expect("it is challenged");
    say(&mut liar, Frame::PathResponse(token));
    assert_eq!(liar.victim().connection.remote().address, other);
    let unknown = liar.victim().connection.recovery.rtt().srtt();
    liar.pair.now += Duration::from_millis(700);
    say(&mut liar, Frame::SyncEcho(Echo { sent_us, arrived_us: sent_us, held_us: 0 }));
    assert_eq!(liar.victim().connection.recovery.rtt().srtt(), unknown);
}
