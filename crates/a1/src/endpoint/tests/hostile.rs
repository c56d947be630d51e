use super::*;
use crate::crypto::{Protection, Psk, ResetToken, Responder};
use crate::wire::{Parameters, Qos};

use super::super::agreement::{Answer, parameters, prologue};

/// A client whose initiation with a cookie is on its way: the world, and that initiation.
fn until_cookie() -> (World, InFlight) {
    let mut world = World::new(client_config(), server_config());
    world.connect();
    world.launch();
    for place in 0..2 {
        let flying = world.history[place].clone();
        world.deliver(&flying);
        world.launch();
    }
    world.flying.clear();
    let initiation = world.history[2].clone();
    assert!(matches!(Packet::parse(&initiation.bytes), Ok(Packet::Initiation { cookie: &[_, ..], .. })));
    (world, initiation)
}

#[test]
fn the_server_has_another_key() {
    let mut world = World::new(client_config(), server_config());
    let (now, to) = (world.now, world.server().address);
    let (peer, config) = (key(9).public_key(), ConnectConfig::default());
    world.client().endpoint.connect(now, to, peer, &config, ConnectionConfig::default()).unwrap();
    world.run(Duration::from_secs(11));
    assert_eq!(world.client().failures(), [ConnectError::NoResponse]);
    assert!(world.server().endpoint.stats().unauthentic > 0);
    assert_eq!(world.server().events, []);
    assert_eq!(world.server().endpoint.connections(), 0);
}

#[test]
fn the_ends_have_different_pre_shared_keys() {
    for psks in [(Some(1), Some(2)), (Some(1), None), (None, Some(2))] {
        let with = |config: EndpointConfig, psk: Option<u8>| match psk {
            Some(psk) => config.psk(Psk::from_bytes([psk; 32])),
            None => config,
        };
        let mut world = World::new(with(client_config(), psks.0), with(server_config(), psks.1));
        world.connect();
        world.run(Duration::from_secs(21));
        assert_eq!(world.client().failures(), [ConnectError::NotAuthentic]);
        assert_eq!(world.server().connected(), []);
        assert_eq!(world.server().failures(), [ConnectError::NotCompleted]);
        assert_eq!(world.server().endpoint.connections(), 0);
    }
    let psk = || Psk::from_bytes([1; 32]);
    let mut world = World::new(client_config().psk(psk()), server_config().psk(psk()));
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected().len(), 1);
}

#[test]
fn a_cookie_counts_only_for_its_address_its_id_and_its_time() {
    let (mut world, initiation) = until_cookie();
    let elsewhere = InFlight { from: "203.0.113.5:4001".parse().unwrap(), ..initiation.clone() };
    let other_port = InFlight { from: "192.0.2.1:4999".parse().unwrap(), ..initiation.clone() };
    let mut other_id = initiation.clone();
    other_id.bytes[8] ^= 1;
    let mut other_cookie = initiation.clone();
    other_cookie.bytes[20] ^= 1;
    for forged in [elsewhere, other_port, other_id, other_cookie] {
        world.deliver(&forged);
    }
    let stats = world.server().endpoint.stats();
    assert_eq!((stats.wrong_cookies, stats.unauthentic), (4, 0), "nothing is computed for them");
    world.now += Duration::from_secs(25);
    world.deliver(&initiation);
    assert_eq!(world.server().endpoint.stats().wrong_cookies, 5);
    assert_eq!(world.server().endpoint.connections(), 0);
    let before = world.sent_by(SERVER).len();
    world.launch();
    assert_eq!(world.sent_by(SERVER).len() - before, 5, "each gets a new cookie");
}

#[test]
fn an_old_cookie_is_replaced_and_the_connection_succeeds() {
    let mut world = World::new(client_config(), server_config());
    let handle = world.connect_with(
        &ConnectConfig::default().timeout(Duration::from_secs(60)),
        ConnectionConfig::default(),
    );
    // The initiation with the cookie is lost again and again, until the cookie is too old.
    world.losses = (2..32).collect();
    world.run(Duration::from_secs(60));
    assert_eq!(world.client().connected(), [handle]);
    assert!(world.server().endpoint.stats().wrong_cookies > 0);
}

//= spec/a1.md A1-HS-7
#[test]
fn a_server_that_hands_out_cookies_without_end_is_left_alone() {
    let mut world = World::new(client_config(), server_config());
    world.connect();
    world.launch();
    let Ok(Packet::Initiation { from: id, .. }) = Packet::parse(&world.history[0].bytes) else { panic!() };
    let (from, to) = (world.server().address, world.client().address);
    for number in 0..100_u8 {
        let mut bytes = Vec::new();
        Packet::Retry { to: id, cookie: &[number; 32] }.put(&mut bytes);
        world.deliver(&InFlight { from, to, bytes });
        world.launch();
    }
    assert_eq!(world.sent_by(CLIENT).len(), 1 + 4);
}

//= spec/a1.md A1-HS-7
#[test]
fn packets_from_elsewhere_do_not_disturb_a_handshake() {
    let (mut world, initiation) = until_cookie();
    world.deliver(&initiation);
    world.launch();
    let response = world.sent_by(SERVER).pop().unwrap().clone();
    let retry = world.sent_by(SERVER)[0].clone();
    let elsewhere = "203.0.113.5:4002".parse().unwrap();
    for forged in [&response, &retry] {
        world.deliver(&InFlight { from: elsewhere, ..forged.clone() });
    }
    assert_eq!(world.client().endpoint.stats().unknown, 2);
    let mut damaged = response.clone();
    for at in 9..response.bytes.len() {
        damaged.bytes[at] ^= 1;
        world.deliver(&damaged);
        damaged.bytes[at] ^= 1;
    }
    assert_eq!(world.client().events, []);
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected().len(), 1);
}

/// A responder that gives what `change` makes of a good answer.
fn answered_with(change: impl Fn(u32, Parameters) -> Answer) -> Vec<ConnectError> {
    let (mut world, initiation) = until_cookie();
    let Ok(Packet::Initiation { from: id, cookie, noise, .. }) = Packet::parse(&initiation.bytes) else {
        panic!()
    };
    let (secret, prologue) = (key(2), prologue(id, cookie));
    let local = Local { key: &secret, psk: None, prologue: &prologue, seed: [3; 32] };
    let (responder, _) = Responder::read(local, noise, &mut Vec::new()).unwrap();
    let reset = ResetToken::from_bytes([5; ResetToken::LENGTH]);
    let good = parameters(&Default::default(), Protection::Aead, Qos::default(), reset);
    let (mut payload, mut message, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    change(5, good).put(&mut payload);
    responder.respond(&payload, &mut message).unwrap();
    Packet::Response { to: id, from: 5, noise: &message }.put(&mut bytes);
    world.deliver(&InFlight { from: initiation.to, to: initiation.from, bytes });
    world.launch();
    assert_eq!(world.client().connected().len() + world.client().failures().len(), 1);
    world.client().failures()
}

//= spec/a1.md A1-HS-4
#[test]
fn a_responder_cannot_talk_an_initiator_into_less_protection() {
    assert_eq!(answered_with(Answer::Accepted), []);
    for code in [1, 2, 3, 255] {
        let failures =
            answered_with(|id, good| Answer::Accepted(id, Parameters { protection: code, ..good }));
        assert_eq!(failures, [ConnectError::Protocol("less protection than was asked for")]);
    }
}

//= spec/a1.md A1-PKT-3
#[test]
fn packets_that_come_twice_count_once() {
    let (mut world, ours, _) = World::connected();
    world.client().push(ours, b"pay 100");
    world.run(Duration::from_secs(1));
    let everything = world.history.clone();
    for flying in everything.iter().chain(everything.iter().rev()) {
        world.deliver(flying);
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.server().received.len(), 1);
    assert_eq!(
        world.server().incoming().len(),
        1,
        "an old initiation begins nothing while the connection is established"
    );
    assert_eq!((world.client().failures(), world.server().failures()), (vec![], vec![]));
    world.client().push(ours, b"still there");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server().received.len(), 2);
}

/// An initiator that started anew, because it got another cookie, may complete either attempt.
#[test]
fn an_older_initiation_that_comes_late_disturbs_nobody() {
    let (mut world, older) = until_cookie();
    world.now += Duration::from_secs(10);
    let mut other = World::new(client_config(), server_config());
    std::mem::swap(&mut other.nodes[SERVER], &mut world.nodes[SERVER]);
    other.now = world.now;
    let handle = other.connect();
    other.run(Duration::from_millis(45));
    assert_eq!(other.client().connected(), [handle], "the client has its answer");
    assert_eq!(other.server().connected(), [], "and the server does not know yet");
    other.deliver(&older);
    other.launch();
    assert_eq!(other.server().endpoint.half_open(), 2);
    other.client().push(handle, b"message");
    other.run(Duration::from_secs(11));
    assert_eq!(other.server().received.len(), 1);
    assert_eq!(other.server().failures(), [ConnectError::NotCompleted], "the other attempt");
    assert_eq!(other.server().endpoint.connections(), 1);
}

#[test]
fn packets_for_nobody_are_counted_and_get_smaller_answers() {
    let (mut world, _, _) = World::connected();
    let data = world.history.iter().rev().find(|flying| flying.bytes[0] >> 4 == 4).unwrap().clone();
    let sent = world.history.len();
    for id in 0..100_u32 {
        let mut stray = data.clone();
        stray.bytes[1..5].copy_from_slice(&id.to_be_bytes());
        world.deliver(&stray);
    }
    world.launch();
    let answers = &world.history[sent..];
    assert!(answers.iter().all(|answer| matches!(Packet::parse(&answer.bytes), Ok(Packet::Reset { .. }))));
    assert!(answers.iter().all(|answer| answer.bytes.len() < data.bytes.len()));
    let counted: u64 = world.nodes.iter().map(|node| node.endpoint.stats().unknown).sum();
    assert_eq!(counted, 100);
}

//= spec/a1.md A1-PKT-5
#[test]
fn retransmissions_go_before_data_of_the_same_batch() {
    let (mut world, ours, theirs) = World::connected();
    let now = world.now;
    for name in [b"first", b"other"] {
        world.client().push(ours, name);
        world.launch();
    }
    let packets: Vec<InFlight> = world.flying.drain(..).map(|(_, flying)| flying).collect();
    let data = packets.into_iter().filter(|flying| flying.bytes[0] & 0b110 == 0);
    let Ok([mut first, mut again]) = <[InFlight; 2]>::try_from(data.collect::<Vec<_>>()) else {
        panic!("not two data packets")
    };
    // The flag is a hint that nothing authenticates.
    again.bytes[0] |= 0b010;
    let server = &mut world.nodes[SERVER];
    let batch = [server.datagram(&mut first), server.datagram(&mut again)];
    server.endpoint.handle_batch(now, batch);
    server.drain(now);
    let received: Vec<_> =
        server.received.iter().map(|(handle, bytes)| (*handle, bytes.as_slice())).collect();
    assert_eq!(received, [(theirs, &b"other"[..]), (theirs, &b"first"[..])]);
}

#[test]
fn arbitrary_bytes_disturb_nobody() {
    bolero::check!().with_type::<Vec<(bool, Vec<u8>)>>().with_iterations(500).for_each(|datagrams| {
        let mut world = World::new(client_config(), server_config());
        let handle = world.connect();
        for (to_server, bytes) in datagrams {
            let (to, from) = if *to_server { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
            let (to, from) = (world.nodes[to].address, world.nodes[from].address);
            world.deliver(&InFlight { from, to, bytes: bytes.clone() });
        }
        world.run(Duration::from_secs(1));
        assert_eq!(world.client().connected(), [handle]);
        assert_eq!(world.server().endpoint.connections(), 1);
    });
}

/// What happened to a datagram on its way.
fn damaged(mut bytes: Vec<u8>, how: u8, place: u16) -> Vec<u8> {
    let at = usize::from(place) % bytes.len().max(1);
    match how % 4 {
        0 => bytes[at] ^= 1 << (place % 8),
        1 => bytes.truncate(at),
        2 => bytes.extend(vec![how; at]),
        _ => bytes[at..].fill(how),
    }
    bytes
}

/// Somebody beside the path sees every packet and is faster than it with a damaged copy, or later.
//= spec/a1.md A1-PKT-4
#[test]
fn damaged_copies_of_everything_disturb_nobody() {
    bolero::check!().with_type::<Vec<(u8, u8, u16)>>().with_iterations(300).for_each(|changes| {
        let mut world = World::new(client_config(), server_config());
        let handle = world.connect();
        world.client().push(handle, &[7; 3000]);
        for (which, how, place) in changes {
            world.run(Duration::from_millis(u64::from(*how) % 8));
            let newest = world.history.len() - 1;
            let flying = world.history[newest.saturating_sub(usize::from(*which) % 4)].clone();
            let bytes = damaged(flying.bytes.clone(), *how, *place);
            world.deliver(&InFlight { bytes, ..flying });
        }
        world.run(Duration::from_secs(20));
        assert_eq!(world.client().connected(), [handle]);
        assert_eq!(world.server().received.len(), 1);
        assert_eq!(world.server().received[0].1, [7; 3000]);
    });
}
