use super::*;
use crate::crypto::Protection;
use crate::wire::{MIN_INITIATION, Qos};
use freshwire_record::Rate;

/// The type of each packet of a handshake, in the order of sending.
fn kinds(world: &World) -> Vec<&'static str> {
    let kind = |flying: &InFlight| match Packet::parse(&flying.bytes) {
        Ok(Packet::Initiation { cookie: &[], .. }) => "initiation",
        Ok(Packet::Initiation { .. }) => "initiation with cookie",
        Ok(Packet::Retry { .. }) => "retry",
        Ok(Packet::Response { .. }) => "response",
        Ok(Packet::Version { .. }) => "version",
        Ok(Packet::Reset { .. }) => "reset",
        Ok(Packet::Data(..)) => "data",
        Ok(Packet::Group { .. }) => "group",
        Err(_) => "malformed",
    };
    world.history.iter().map(kind).collect()
}

#[test]
fn a_connection_carries_messages_after_two_round_trips() {
    let (mut world, ours, theirs) = World::connected();
    assert_eq!(kinds(&world)[..4], ["initiation", "retry", "initiation with cookie", "response"]);
    assert_eq!(world.server().endpoint.half_open(), 0);
    world.client().push(ours, b"question");
    world.server().push(theirs, b"answer");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server().received, [(theirs, b"question".to_vec())]);
    assert_eq!(world.client().received, [(ours, b"answer".to_vec())]);
}

//= spec/a1.md A1-HS-2, A1-HS-3
#[test]
fn an_unproved_address_costs_no_state_and_few_bytes() {
    let mut world = World::new(client_config(), server_config());
    world.connect();
    world.launch();
    let initiation = world.history[0].clone();
    world.deliver(&initiation);
    world.launch();
    assert_eq!(kinds(&world), ["initiation", "retry"]);
    assert_eq!(world.server().endpoint.connections(), 0);
    assert_eq!(initiation.bytes.len(), MIN_INITIATION);
    assert!(world.history[1].bytes.len() * 30 < MIN_INITIATION);
    assert_eq!(world.server().endpoint.poll_timeout(), None, "no timer either");
}

#[test]
fn the_same_seeds_give_the_same_bytes() {
    let run = |seed| {
        let mut world = World::with_seed(seed, client_config(), server_config());
        let handle = world.connect();
        world.losses = vec![1, 5];
        world.run(Duration::from_secs(3));
        world.client().push(handle, &[7; 10_000]);
        world.run(Duration::from_secs(3));
        assert_eq!(world.server().received.len(), 1);
        world.hash()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn each_packet_of_a_handshake_may_be_lost() {
    for lost in 0..8 {
        for also in 0..8 {
            let mut world = World::new(client_config(), server_config());
            world.losses = vec![lost, also];
            let handle = world.connect();
            world.client().push(handle, b"message");
            world.run(Duration::from_secs(8));
            assert_eq!(world.client().connected(), [handle], "{lost} and {also} lost");
            assert_eq!(world.server().connected().len(), 1, "{lost} and {also} lost");
            assert_eq!(world.server().incoming().len(), 1, "{lost} and {also} lost");
            assert_eq!(world.server().received.len(), 1, "{lost} and {also} lost");
            assert_eq!(world.server().endpoint.connections(), 1);
        }
    }
}

//= spec/a1.md A1-HS-5
#[test]
fn an_initiation_that_comes_again_gets_the_same_response() {
    let (world, _, _) = World::connected();
    let before = world.history;
    let mut world = World::new(client_config(), server_config());
    world.connect();
    for _ in 0..3 {
        world.deliver(&before[0]);
        world.launch();
    }
    for _ in 0..3 {
        world.deliver(&before[2]);
        world.launch();
    }
    let responses: Vec<_> =
        world.sent_by(SERVER).into_iter().filter(|flying| flying.bytes[0] >> 4 == 3).collect();
    assert_eq!(responses.len(), 3);
    assert!(responses.iter().all(|response| *response == responses[0]));
    assert_eq!(world.server().incoming().len(), 1);
    assert_eq!(world.server().endpoint.connections(), 1);
}

#[test]
fn nobody_is_there() {
    let mut world = World::new(client_config(), server_config());
    let nowhere = "192.0.2.9:9".parse().unwrap();
    let (now, key) = (world.now, world.server().endpoint.public_key());
    let config = ConnectConfig::default();
    world.client().endpoint.connect(now, nowhere, key, &config, ConnectionConfig::default()).unwrap();
    world.run(Duration::from_millis(9_999));
    assert_eq!(world.client().failures(), []);
    assert_eq!(world.history.len(), 15, "seven in 1.5 s, one after 2 s, then each second");
    world.run(Duration::from_millis(1));
    assert_eq!(world.client().failures(), [ConnectError::NoAnswer]);
    assert_eq!(world.client().endpoint.connections(), 0);
    assert_eq!(world.client().endpoint.poll_timeout(), None);
}

#[test]
fn an_endpoint_that_accepts_nobody_stays_silent() {
    let mut world = World::new(client_config(), server_config().accept(false));
    world.connect();
    world.run(Duration::from_secs(11));
    assert_eq!(world.client().failures(), [ConnectError::NoAnswer]);
    assert_eq!(world.sent_by(SERVER).len(), 0);
}

#[test]
fn the_application_refuses() {
    let mut world = World::new(client_config(), server_config());
    world.server().accepts = None;
    world.connect();
    world.run(Duration::from_millis(100));
    let incoming = world.server().incoming()[0];
    assert_eq!(incoming.key, key(1).public_key());
    assert_eq!(incoming.from, world.client().address.into());
    let (now, refusal) = (world.now, Refusal::new(300, "not today"));
    world.server().endpoint.refuse(now, incoming.handle, refusal.clone()).unwrap();
    assert!(world.server().endpoint.accept(now, incoming.handle, ConnectionConfig::default()).is_err());
    assert!(world.server().endpoint.refuse(now, incoming.handle, refusal.clone()).is_err());
    // The response is lost once: the initiation that comes again gets it again.
    world.losses = vec![world.history.len()];
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().failures(), [ConnectError::Refused(refusal)]);
    assert_eq!(world.server().incoming().len(), 1);
    world.run(Duration::from_secs(11));
    assert_eq!(world.server().endpoint.connections(), 0, "a refusal is forgotten");
}

#[test]
fn the_list_of_keys_is_kept() {
    for (listed, works) in [(key(1), true), (key(5), false)] {
        let server = server_config().allowed([listed.public_key()]);
        let mut world = World::new(client_config(), server);
        world.connect();
        world.run(Duration::from_secs(1));
        assert_eq!(world.client().connected().len(), usize::from(works));
        assert_eq!(world.server().incoming().len(), usize::from(works), "others are not even reported");
        let codes: Vec<u64> = world
            .client()
            .failures()
            .iter()
            .map(|error| match error {
                ConnectError::Refused(refusal) => refusal.code,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(codes, if works { vec![] } else { vec![Refusal::NOT_ALLOWED] });
    }
}

//= spec/a1.md A1-QOS-1, A1-QOS-2
#[test]
fn the_responder_narrows_the_quality_of_service() {
    let rate = |mbit: u64| Some(Rate::from_bits_per_sec(mbit * 1_000_000));
    let asked = Qos { send_average: rate(8), outstanding: 30, priority: 5, ..Qos::default() };
    let ours = Qos { priority: 9, ..Qos::default() };
    let maximum = Qos { receive_average: rate(2), outstanding: 60, ..Qos::default() };
    let mut world = World::new(client_config(), server_config());
    world.server().accepts = Some(ConnectionConfig::default().maximum(maximum));
    let handle =
        world.connect_with(&ConnectConfig::default().qos(asked), ConnectionConfig::default().maximum(ours));
    world.run(Duration::from_secs(1));
    let incoming = world.server().incoming()[0];
    assert_eq!((incoming.qos.receive_average, incoming.maximum.priority), (rate(8), 9));
    let ours = *world.client().endpoint.connection(handle).unwrap().qos();
    assert_eq!((ours.send_average, ours.outstanding, ours.priority), (rate(2), 30, 0));
    let theirs = *world.server().endpoint.connection(incoming.handle).unwrap().qos();
    assert_eq!(theirs, ours.mirrored());
}

//= spec/a1.md A1-SEC-1
#[test]
fn protection_is_the_stronger_of_what_both_ask_for() {
    use Protection::{Aead, DangerousPlain};
    for ours in [Aead, DangerousPlain] {
        for theirs in [Aead, DangerousPlain] {
            let mut world = World::new(client_config(), server_config());
            world.server().accepts = Some(ConnectionConfig::default().protection(theirs));
            let handle =
                world.connect_with(&ConnectConfig::default(), ConnectionConfig::default().protection(ours));
            world.client().push(handle, b"can you read this");
            world.run(Duration::from_secs(1));
            assert_eq!(world.server().received.len(), 1);
            let is_readable = world.history.iter().any(|flying| {
                flying.bytes.windows(b"can you read this".len()).any(|part| part == b"can you read this")
            });
            assert_eq!(is_readable, ours.min(theirs) != Aead, "{ours:?} and {theirs:?}");
            assert_eq!(world.server().incoming()[0].protection, ours);
        }
    }
}

#[test]
fn connections_end_and_are_removed() {
    let (mut world, ours, theirs) = World::connected();
    let now = world.now;
    world.client().endpoint.connection_mut(ours).unwrap().close(now, 300, "enough");
    world.run(Duration::from_secs(2));
    for (node, handle) in [(CLIENT, ours), (SERVER, theirs)] {
        let node = &mut world.nodes[node];
        assert_eq!(node.events.last(), Some(&EndpointEvent::Ended(handle)));
        assert!(node.endpoint.connection(handle).is_some());
        let later = ConnectionHandle { serial: handle.serial + 1, ..handle };
        assert!(!node.endpoint.remove(later), "another connection of the same number");
        assert!(node.endpoint.remove(handle));
        assert!(!node.endpoint.remove(handle));
        assert!(node.endpoint.connection(handle).is_none());
        assert_eq!((node.endpoint.connections(), node.endpoint.poll_timeout()), (0, None));
    }
}

#[test]
fn silence_ends_a_connection() {
    let mut world = World::new(client_config(), server_config());
    let idle = ConnectionConfig { idle_timeout: Duration::from_secs(3), ..ConnectionConfig::default() };
    let handle = world.connect_with(&ConnectConfig::default(), idle);
    world.run(Duration::from_secs(2));
    assert_eq!(world.client().events.len(), 1);
    world.run(Duration::from_secs(3));
    assert_eq!(world.client().events.last(), Some(&EndpointEvent::Ended(handle)));
    assert!(matches!(world.server().events.last(), Some(EndpointEvent::Ended(_))));
}

#[test]
fn a_connection_follows_its_peer_to_another_address() {
    let (mut world, ours, theirs) = World::connected();
    world.client().address = "198.51.100.7:5000".parse().unwrap();
    world.client().push(ours, b"from elsewhere");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server().received.len(), 1);
    assert_eq!(
        world.server().endpoint.connection(theirs).unwrap().remote().address,
        "198.51.100.7:5000".parse().unwrap()
    );
    world.server().push(theirs, b"welcome");
    world.run(Duration::from_secs(1));
    assert_eq!(world.client().received.len(), 1);
}

#[test]
fn answers_leave_from_the_address_that_was_asked_last() {
    let mut world = World::new(client_config(), server_config());
    let handle = world.connect();
    let (now, mut out) = (world.now, Vec::new());
    let initiation = world.client().drain(now).remove(0);
    for local in ["192.0.2.222".parse().ok(), None] {
        let initiation = &mut initiation.clone();
        let datagram = Datagram { to: local, ..world.nodes[SERVER].datagram(initiation) };
        world.server().endpoint.handle_datagram(now, datagram);
        let outgoing = world.server().endpoint.poll_handshake(&mut out).unwrap();
        assert_eq!(outgoing.from, local);
    }
    world.deliver(&initiation);
    world.run(Duration::from_secs(1));
    world.client().push(handle, b"message");
    let now = world.now;
    let mut packet = world.client().drain(now).remove(0);
    let mut damaged = InFlight { bytes: [&packet.bytes[..], &[0]].concat(), ..packet.clone() };
    for (flying, to) in [(&mut packet, "192.0.2.222"), (&mut damaged, "192.0.2.99")] {
        let datagram = Datagram { to: to.parse().ok(), ..world.nodes[SERVER].datagram(flying) };
        world.server().endpoint.handle_datagram(now, datagram);
    }
    let theirs = world.server().endpoint.next_ready().unwrap();
    let outgoing = world.server().endpoint.poll_transmit(now, theirs, &mut Queue::default(), &mut out);
    assert_eq!(outgoing.map(|outgoing| outgoing.from), Some("192.0.2.222".parse().ok()));
}

#[test]
fn another_version_is_reported_and_given_up_soon() {
    let mut world = World::new(client_config(), server_config());
    world.connect();
    world.launch();
    let mut initiation = world.history[0].clone();
    initiation.bytes[4] = 2;
    world.deliver(&initiation);
    world.launch();
    assert_eq!(kinds(&world), ["initiation", "version"]);
    assert!(world.history[1].bytes.len() * 30 < MIN_INITIATION);
    // The client gets a version that it does not speak.
    world.flying.clear();
    let mut version = world.history[1].clone();
    let end = version.bytes.len() - 1;
    version.bytes[end] = 9;
    let mut patient = World::new(client_config(), server_config());
    patient.connect();
    patient.launch();
    patient.flying.clear();
    patient.deliver(&version);
    patient.launch();
    patient.losses = (0..100).collect();
    patient.run(Duration::from_millis(999));
    assert_eq!(patient.client().failures(), []);
    patient.run(Duration::from_millis(1));
    assert_eq!(patient.client().failures(), [ConnectError::Version(9)]);
    // It may be a forgery: the right answer still counts.
    let mut fooled = World::new(client_config(), server_config());
    let handle = fooled.connect();
    fooled.launch();
    fooled.deliver(&version);
    fooled.run(Duration::from_secs(2));
    assert_eq!(fooled.client().connected(), [handle]);
}
