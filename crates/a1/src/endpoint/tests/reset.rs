//! Peers that have forgotten a connection, and those who only say so.

use super::*;
use crate::connection::{Closed, Event};
use crate::crypto::ResetToken;
use crate::shard::Shard;
use crate::wire::RESET_LENGTH;

/// The server's process dies and begins anew, with this key.
fn restart_server(world: &mut World, key: StaticKey) {
    world.server().endpoint = Endpoint::new(EndpointConfig::new(key), [13; 32]);
    world.server().sources.clear();
}

fn closings(world: &mut World, handle: ConnectionHandle) -> Vec<Closed> {
    let connection = world.client().endpoint.connection_mut(handle).expect("it is not removed");
    std::iter::from_fn(|| connection.poll_event())
        .filter_map(|event| match event {
            Event::Closed(closed) => Some(closed),
            _ => None,
        })
        .collect()
}

fn resets(world: &World, node: usize) -> Vec<InFlight> {
    let is_reset = |flying: &&InFlight| matches!(Packet::parse(&flying.bytes), Ok(Packet::Reset { .. }));
    world.sent_by(node).into_iter().filter(is_reset).cloned().collect()
}

/// A reset as the server would send it, with another token.
fn forged(world: &World, change: impl Fn([u8; ResetToken::LENGTH]) -> [u8; ResetToken::LENGTH]) -> InFlight {
    let real = &resets(world, SERVER)[0];
    let Ok(Packet::Reset { to, token }) = Packet::parse(&real.bytes) else { panic!("a reset") };
    let mut bytes = Vec::new();
    Packet::Reset { to, token: ResetToken::from_bytes(change(*token.as_bytes())) }.put(&mut bytes);
    InFlight { bytes, ..real.clone() }
}

/// A world whose server has restarted and has sent a reset, which got lost.
fn lost_reset() -> (World, ConnectionHandle) {
    let (mut world, ours, _) = World::connected();
    restart_server(&mut world, key(2));
    world.client().push(ours, b"are you there?");
    world.losses.extend(world.history.len() + 1..world.history.len() + 2);
    world.run(DELAY + DELAY / 2);
    assert_eq!(resets(&world, SERVER).len(), 1);
    (world, ours)
}

#[test]
fn a_restarted_peer_ends_the_connection_within_a_round_trip() {
    let (mut world, ours, _) = World::connected();
    restart_server(&mut world, key(2));
    world.run(Duration::from_secs(5));
    assert!(resets(&world, SERVER).is_empty(), "nobody has said anything");
    world.client().push(ours, b"are you there?");
    world.run(2 * DELAY);
    assert_eq!(closings(&mut world, ours), [Closed::PeerRestarted]);
    assert!(world.client().events.contains(&EndpointEvent::Ended(ours)));
    let sent = world.sent_by(CLIENT).len();
    world.run(Duration::from_secs(60));
    assert_eq!(world.sent_by(CLIENT).len(), sent, "it sends nothing more");
    world.client().endpoint.remove(ours);
    let again = world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected(), [ours, again]);
}

#[test]
fn a_restarted_initiator_ends_it_too() {
    let (mut world, _, theirs) = World::connected();
    world.client().endpoint = Endpoint::new(client_config(), [14; 32]);
    world.client().sources.clear();
    world.server().push(theirs, b"are you there?");
    world.run(2 * DELAY);
    assert!(!resets(&world, CLIENT).is_empty());
    assert!(world.server().events.contains(&EndpointEvent::Ended(theirs)));
}

#[test]
fn with_another_key_it_cannot_and_the_idle_timeout_does() {
    let (mut world, ours, _) = World::connected();
    restart_server(&mut world, key(3));
    world.client().push(ours, b"are you there?");
    world.run(Duration::from_secs(20));
    assert!(!resets(&world, SERVER).is_empty());
    assert_eq!(closings(&mut world, ours), []);
    assert!(world.client().endpoint.stats().unauthentic > 0);
    world.run(Duration::from_secs(20));
    assert_eq!(closings(&mut world, ours), [Closed::Silent]);
}

/// Endpoints at one address have one key, so the token of each is right for the connections of the others.
//= spec/a1.md A1-RST-4
#[test]
fn an_endpoint_ends_no_connection_of_another_at_its_address() {
    for count in [2, 3, 100] {
        let of = |number| EndpointConfig { shard: Shard::new(number, count), ..server_config() };
        let mut world = World::new(client_config(), of(1));
        let ours = world.connect();
        world.run(Duration::from_secs(1));
        let theirs = *world.server().connected().first().expect("the server has the connection");
        assert_eq!(theirs.id % count, 1, "the id names its endpoint");
        // Its datagrams come to another one.
        world.server().endpoint = Endpoint::new(of(0), [13; 32]);
        world.client().push(ours, b"are you there?");
        world.run(Duration::from_secs(2));
        assert!(world.server().endpoint.stats().unknown > 0);
        assert!(resets(&world, SERVER).is_empty());
        assert_eq!(closings(&mut world, ours), []);
    }
}

//= spec/a1.md A1-RST-3
#[test]
fn a_forged_reset_changes_nothing() {
    let (mut world, ours) = lost_reset();
    for bit in 0..8 * ResetToken::LENGTH {
        let wrong = forged(&world, |mut token| {
            token[bit / 8] ^= 1 << (bit % 8);
            token
        });
        world.deliver(&wrong);
    }
    let real = forged(&world, |token| token);
    let elsewhere = InFlight { from: "192.0.2.9:4002".parse().unwrap(), ..real.clone() };
    world.deliver(&elsewhere);
    let short = InFlight { bytes: real.bytes[..RESET_LENGTH - 1].to_vec(), ..real.clone() };
    world.deliver(&short);
    assert_eq!(closings(&mut world, ours), []);
    assert_eq!(world.client().endpoint.stats().unauthentic, 8 * ResetToken::LENGTH as u64);
    world.deliver(&real);
    assert_eq!(closings(&mut world, ours), [Closed::PeerRestarted], "the right one does");
}

//= spec/a1.md A1-RST-4
#[test]
fn a_reset_that_is_replayed_does_not_reach_the_next_connection() {
    let (mut world, ours) = lost_reset();
    let real = forged(&world, |token| token);
    world.deliver(&real);
    world.launch();
    world.client().endpoint.remove(ours);
    let again = world.connect();
    world.run(Duration::from_secs(1));
    for _ in 0..100 {
        world.deliver(&real);
    }
    world.client().push(again, b"still here");
    world.run(Duration::from_secs(1));
    assert_eq!(closings(&mut world, again), []);
    assert_eq!(world.server().received.last().expect("a message").1, b"still here");
}

#[test]
fn nobody_learns_the_token_of_an_established_connection() {
    let (mut world, ours, theirs) = World::connected();
    world.client().push(ours, b"first");
    world.run(Duration::from_secs(1));
    let data = world.sent_by(CLIENT).into_iter().rev().find(|flying| flying.bytes[0] >> 4 == 4);
    let data = data.expect("data was sent").clone();
    // What does not open under a number that is known is not answered.
    let mut broken = data.clone();
    broken.bytes[20] ^= 1;
    world.deliver(&broken);
    world.deliver(&InFlight { from: "192.0.2.9:1".parse().unwrap(), ..data.clone() });
    world.launch();
    assert!(resets(&world, SERVER).is_empty());
    // When it is forgotten, who asks from elsewhere gets a token that is good for nothing.
    world.server().endpoint.remove(theirs);
    world.deliver(&InFlight { from: "192.0.2.9:1".parse().unwrap(), ..data });
    world.launch();
    let stolen = forged(&world, |token| token);
    assert_eq!(stolen.to, "192.0.2.9:1".parse().unwrap());
    let to = world.client().address;
    world.deliver(&InFlight { to, ..stolen });
    assert_eq!(closings(&mut world, ours), []);
    assert_eq!(world.client().endpoint.stats().unauthentic, 1);
}

//= spec/a1.md A1-RST-1
#[test]
fn resets_are_small_and_rare_and_answer_no_reset() {
    let limits = Limits { resets_per_second: 10, ..Limits::default() };
    let mut world = World::new(client_config(), server_config().limits(limits));
    let (from, to) = (world.nodes[CLIENT].address, world.nodes[SERVER].address);
    let data = |len: usize| {
        let mut bytes = vec![0x40, 1, 2, 3, 4];
        bytes.resize(len, 0);
        InFlight { from, to, bytes }
    };
    for len in 9..=RESET_LENGTH {
        world.deliver(&data(len));
    }
    world.launch();
    assert!(resets(&world, SERVER).is_empty());
    for _ in 0..100 {
        world.deliver(&data(RESET_LENGTH + 1));
    }
    world.launch();
    let sent = resets(&world, SERVER);
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|reset| reset.bytes.len() == RESET_LENGTH));
    assert_eq!(world.server().endpoint.stats().over_limit, 90);
    // They come to who knows nothing of the connection either.
    let answers = world.history.len();
    world.run(Duration::from_secs(10));
    assert_eq!(world.history.len(), answers);
    assert_eq!(world.client().endpoint.stats().unknown, 10);
}

//= spec/a1.md A1-HS-6, A1-RST-1
#[test]
fn data_that_overtakes_the_response_is_no_reason_for_a_reset() {
    let mut world = World::new(client_config(), server_config());
    let ours = world.connect();
    world.run(DELAY / 2);
    let mut bytes = vec![0x40];
    bytes.extend(ours.id.to_be_bytes());
    bytes.resize(100, 0);
    let (from, to) = (world.nodes[SERVER].address, world.nodes[CLIENT].address);
    world.deliver(&InFlight { from, to, bytes });
    world.launch();
    assert!(resets(&world, CLIENT).is_empty());
}
