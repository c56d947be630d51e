use super::*;
use crate::crypto::Protection;
use crate::wire::{Packet, Qos, QosError};

fn with_checksum(checksum: bool) -> Qos {
    Qos { checksum, ..Qos::default() }
}

//= spec/a1.md A1-QOS-5
#[test]
fn a_higher_priority_goes_first_and_the_lowest_is_not_starved() {
    let mut world = World::new(client_config(), server_config());
    let maximum = Qos { priority: 9, ..Qos::default() };
    world.server().accepts = Some(ConnectionConfig::default().maximum(maximum));
    let connect = |priority| {
        let qos = Qos { priority, ..Qos::default() };
        world.connect_with(&ConnectConfig::default().qos(qos), ConnectionConfig::default().maximum(maximum))
    };
    let [low, middle, high] = [0, 5, 9].map(connect);
    world.run(Duration::from_secs(1));
    let endpoint = &mut world.client().endpoint;
    let mut turns = |wanted: &[ConnectionHandle]| -> Vec<ConnectionHandle> {
        wanted.iter().for_each(|handle| endpoint.wake(*handle));
        std::iter::from_fn(|| endpoint.next_ready()).collect()
    };
    assert_eq!(turns(&[low, middle, high]), [high, middle, low]);
    assert_eq!(turns(&[low, high, low]), [high, low]);
    let endpoint = &mut world.client().endpoint;
    endpoint.wake(low);
    let mut before = 0;
    loop {
        endpoint.wake(high);
        if endpoint.next_ready() == Some(low) {
            break;
        }
        before += 1;
        assert!(before < 16, "it waits for ever");
    }
    assert!(before > 4, "it goes after {before} turns of the higher one");
}

//= spec/a1.md A1-QOS-2
#[test]
fn neither_end_asks_for_more_than_the_other_one_allows() {
    let mut world = World::new(client_config(), server_config());
    let narrow = Qos { outstanding: 2, max_receive_message: 1000, ..Qos::default() };
    world.server().accepts = Some(ConnectionConfig::default().maximum(narrow));
    let handle = world.connect();
    world.run(Duration::from_secs(1));
    let connection = world.client().endpoint.connection_mut(handle).unwrap();
    assert_eq!((*connection.maximum(), *connection.qos()), (narrow.mirrored(), narrow.mirrored()));
    let more = [
        (Qos { outstanding: 3, ..narrow.mirrored() }, "the number of outstanding messages"),
        (Qos { max_send_message: 1001, ..narrow.mirrored() }, "the largest message to send"),
    ];
    for (qos, name) in more {
        assert_eq!(connection.set_qos(qos), Err(QosError::BeyondMaximum(name)));
    }
    assert_eq!(connection.set_qos(*connection.maximum()), Ok(()));
}

/// A connection without encryption that begins with a checksum or not; whether the maxima of both ends have one.
fn plain(checksum: bool, ours: bool, theirs: bool) -> (World, ConnectionHandle) {
    let [qos, ours, theirs] = [checksum, ours, theirs].map(with_checksum);
    let mut world = World::new(client_config(), server_config());
    let accept = ConnectionConfig::default().protection(Protection::DangerousPlain).maximum(theirs);
    world.server().accepts = Some(accept);
    let connect = ConnectionConfig::default().protection(Protection::DangerousPlain).maximum(ours);
    let handle = world.connect_with(&ConnectConfig::default().qos(qos), connect);
    world.run(Duration::from_secs(1));
    (world, handle)
}

/// Which of the packets to carry `text` have a checksum.
fn checked(world: &mut World, handle: ConnectionHandle, text: &[u8]) -> Vec<bool> {
    let begin = world.history.len();
    let before = world.server().received.len();
    world.client().push(handle, text);
    world.run(Duration::from_secs(1));
    assert_eq!(world.server().received.len(), before + 1);
    let carry = |flying: &&InFlight| flying.bytes.windows(text.len()).any(|part| part == text);
    let phase = |flying: &InFlight| match Packet::parse(&flying.bytes) {
        Ok(Packet::Data(header, _)) => header.phase,
        other => panic!("{other:?}"),
    };
    world.history[begin..].iter().filter(carry).map(phase).collect()
}

#[test]
fn a_checksum_is_there_if_either_end_insists() {
    for (ours, theirs) in [(true, false), (false, true), (true, true)] {
        let (mut world, handle) = plain(ours, ours, theirs);
        assert_eq!(checked(&mut world, handle, b"checked"), [true]);
    }
}

#[test]
fn more_than_the_own_maximum_is_not_requested() {
    let mut world = World::new(client_config(), server_config());
    let (now, to, key) = (world.now, world.server().address, key(2).public_key());
    let mut connect = |asked: Qos, maximum: Qos| {
        let (config, connection) = (ConnectConfig::default().qos(asked), ConnectionConfig::default());
        world.client().endpoint.connect(now, to, key, &config, connection.maximum(maximum)).err()
    };
    let none = Qos { outstanding: 0, ..Qos::default() };
    assert!(matches!(connect(Qos::default(), none), Some(QosError::OutOfRange { .. })));
    let refused = connect(with_checksum(false), with_checksum(true));
    assert_eq!(refused, Some(QosError::BeyondMaximum("going without a checksum")));
    assert_eq!(connect(with_checksum(true), with_checksum(false)), None);
}

//= spec/a1.md A1-SEC-5
#[test]
fn a_checksum_comes_and_goes_with_the_quality_of_service() {
    let (mut world, handle) = plain(false, false, false);
    assert_eq!(checked(&mut world, handle, b"without"), [false]);
    for checksum in [true, false] {
        world.client().endpoint.connection_mut(handle).unwrap().set_qos(with_checksum(checksum)).unwrap();
        world.run(Duration::from_secs(1));
        assert_eq!(checked(&mut world, handle, b"and then"), [checksum]);
    }
    let (mut world, handle) = plain(true, true, false);
    let refused = world.client().endpoint.connection_mut(handle).unwrap().set_qos(with_checksum(false));
    assert_eq!(refused, Err(QosError::BeyondMaximum("going without a checksum")));
}
