use super::*;
use crate::wire::{MIN_INITIATION, VERSION};

fn limited(limits: Limits) -> World {
    World::new(client_config(), server_config().limits(limits))
}

/// An initiation of somebody who has no cookie.
fn initiation(id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Packet::Initiation { version: VERSION, from: id, cookie: &[], noise: &[] }.put(&mut bytes);
    bytes
}

fn address(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([10, a, b, c], 1000))
}

#[test]
fn a_storm_of_forged_addresses_leaves_nothing_behind() {
    let mut world = limited(Limits { retries_per_second: 100, ..Limits::default() });
    let to = world.server().address;
    for second in 0..3 {
        for number in 0..2000 {
            let bytes = initiation(number);
            world.deliver(&InFlight { from: address(number), to, bytes });
        }
        world.launch();
        assert_eq!(world.sent_by(SERVER).len(), 100 * (second + 1), "the rate of retries");
        world.now += Duration::from_secs(1);
    }
    let endpoint = &mut world.server().endpoint;
    assert_eq!((endpoint.connections(), endpoint.half_open(), endpoint.poll_timeout()), (0, 0, None));
    assert_eq!((endpoint.stats().retries, endpoint.stats().over_limit), (300, 5700));
    world.flying.clear();
    world.connect();
    world.now += Duration::from_secs(1);
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected().len(), 1, "it serves others again");
}

#[test]
fn datagrams_of_handshakes_wait_in_a_bounded_queue() {
    let mut world = limited(Limits { retries_per_second: 1_000_000, ..Limits::default() });
    let to = world.server().address;
    for number in 0..2000 {
        let bytes = initiation(number);
        world.deliver(&InFlight { from: address(number), to, bytes });
    }
    assert_eq!(world.server().endpoint.stats().queue_full, 2000 - MAX_HANDSHAKES as u64);
    world.launch();
    assert_eq!(world.history.len(), MAX_HANDSHAKES);
}

/// Initiators that prove their addresses and are not heard of again.
fn half_open_storm(world: &mut World, count: u32) {
    storm_from(world, (0..count).map(address));
}

fn storm_from(world: &mut World, addresses: impl Iterator<Item = SocketAddr>) {
    let to = world.server().address;
    let now = world.now;
    for (number, address) in addresses.enumerate() {
        let mut attacker = Node::new("10.9.9.9:1", EndpointConfig::new(key(77)), number as u8);
        attacker.address = address;
        let server = world.server().endpoint.public_key();
        let config = ConnectConfig::default();
        attacker.endpoint.connect(now, to, server, &config, ConnectionConfig::default()).unwrap();
        for flying in attacker.drain(now) {
            world.deliver(&flying);
        }
        for mut flying in world.server().drain(now) {
            let datagram = attacker.datagram(&mut flying);
            attacker.endpoint.handle_datagram(now, datagram);
        }
        for flying in attacker.drain(now) {
            world.deliver(&flying);
        }
        world.server().drain(now);
    }
}

fn places(world: &mut World) -> (usize, usize) {
    let endpoint = &world.server().endpoint;
    (endpoint.half_open(), endpoint.connections())
}

//= spec/a1.md A1-HS-8
#[test]
fn half_open_connections_are_bounded_and_forgotten() {
    for decides in [true, false] {
        let mut world = limited(Limits { half_open: 10, ..Limits::default() });
        if !decides {
            world.server().accepts = None;
        }
        half_open_storm(&mut world, 30);
        assert_eq!(world.server().incoming().len(), 30);
        assert_eq!(places(&mut world), (10, 10));
        assert_eq!(world.server().endpoint.stats().over_limit, 20, "who came first has made way");
        world.run(Duration::from_secs(10));
        assert_eq!(places(&mut world), (0, 0));
        assert!(world.server().endpoint.initiators.is_empty());
        assert_eq!(world.server().failures(), vec![ConnectError::NotCompleted; 30]);
    }
}

/// The places are for those who need them for a round trip, however many others there are.
#[test]
fn a_flood_of_initiators_keeps_nobody_out() {
    let mut world = limited(Limits { half_open: 10, ..Limits::default() });
    half_open_storm(&mut world, 30);
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected().len(), 1);
}

//= spec/a1.md A1-HS-8
#[test]
fn one_address_has_few_of_the_places() {
    let mut world = limited(Limits { half_open: 100, half_open_per_address: 4, ..Limits::default() });
    storm_from(&mut world, (0..30).map(|port| SocketAddr::from(([10, 1, 1, 1], 1000 + port))));
    assert_eq!(places(&mut world), (4, 4));
    storm_from(&mut world, (0..30).map(|port| SocketAddr::from(([10, 1, 1, 2], 1000 + port))));
    assert_eq!(places(&mut world), (8, 8));
}

//= spec/a1.md A1-HS-8
#[test]
fn a_refused_initiator_takes_no_place() {
    let limits = Limits { half_open: 10, connections: 3, ..Limits::default() };
    let config = server_config().limits(limits).allowed([key(1).public_key()]);
    let mut world = World::new(client_config(), config);
    half_open_storm(&mut world, 30);
    assert_eq!(world.server().endpoint.stats().refused, 30);
    assert_eq!(places(&mut world), (0, 10), "so many refusals are kept to be said again");
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().connected().len(), 1);
    world.run(Duration::from_secs(10));
    assert_eq!(places(&mut world), (0, 1));
}

#[test]
fn answers_have_a_rate() {
    let mut world = limited(Limits { responses_per_second: 5, ..Limits::default() });
    half_open_storm(&mut world, 30);
    assert_eq!(world.server().endpoint.half_open(), 5);
    world.now += Duration::from_secs(1);
    half_open_storm(&mut world, 30);
    assert_eq!(world.server().endpoint.half_open(), 10);
}

#[test]
fn one_connection_too_many_is_refused() {
    let mut world = limited(Limits { connections: 2, ..Limits::default() });
    for _ in 0..3 {
        world.connect();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.client().connected().len(), 2);
    let failures = world.client().failures();
    let [ConnectError::Refused(refusal)] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!(refusal.code, Refusal::BUSY);
}

#[test]
fn idle_connections_take_no_turns() {
    let mut world = World::new(client_config(), server_config());
    for _ in 0..50 {
        world.connect();
    }
    world.run(Duration::from_secs(5));
    assert_eq!(world.server().connected().len(), 50);
    let sent = world.history.len();
    world.run(Duration::from_secs(20));
    assert_eq!(world.history.len(), sent, "nothing is sent");
    for node in &mut world.nodes {
        assert_eq!(node.endpoint.next_ready(), None);
    }
}

//= spec/a1.md A1-PKT-1
#[test]
fn a_short_initiation_gets_no_answer() {
    let mut world = World::new(client_config(), server_config());
    let (from, to) = (address(1), world.server().address);
    let mut bytes = initiation(1);
    bytes.truncate(MIN_INITIATION - 1);
    world.deliver(&InFlight { from, to, bytes });
    world.launch();
    assert_eq!(world.history, []);
    assert_eq!(world.server().endpoint.stats().malformed, 1);
}
