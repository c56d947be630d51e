//! Quality of service beyond what a connection has, and towards the network.

use super::*;
use freshwire::network::NetworkQos;
use freshwire::{Rate, a1::PublicKey};

fn of_messages(bytes: u32) -> Qos {
    Qos { max_send_message: bytes, max_receive_message: bytes, ..Qos::default() }
}

/// A connection whose ends agree to messages of 1000 bytes; the far node would allow `far` bytes.
fn narrow(far: u32) -> (Node, Node, [Connection; 2]) {
    let (near, far) = (bind(limited(of_messages(1000))), bind(limited(of_messages(far))));
    let (sending, receiving) = connect(&near, &far);
    (near, far, [sending, receiving])
}

//= spec/a1.md A1-QOS-9
#[test]
fn beyond_the_maximum_the_connection_is_reopened_with_more() {
    for wanted in [1001, 100_000, 64 << 20] {
        let (near, far, [old, _receiving]) = narrow(64 << 20);
        let more = of_messages(wanted);
        assert!(matches!(old.set_qos(more), Err(QosError::BeyondMaximum(_))));
        let new = near.reopen(&old, more, &ConnectConfig::default()).unwrap();
        assert_eq!((new.qos(), new.maximum()), (Some(more), Some(more)), "{wanted}");
        assert_eq!((new.peer_addr(), new.peer_key()), (old.peer_addr(), old.peer_key()));
        assert_eq!(old.closed(), None, "what is in progress on the old one is not lost");
        let receiving = far.accept(PATIENCE).unwrap().unwrap();
        let mut sender =
            Sender::without_engine(&RingConfig { rings: 1, slots: 64, block_bytes: 1 << 16, blocks: 64 })
                .unwrap();
        let sink = sender.add_a1_sink(&new, SinkConfig::new(choice::fifo())).unwrap();
        let large = vec![7; wanted.min(200_000) as usize];
        sender.push(sink.id(), &large, &meta(1)).unwrap();
        assert_eq!(message(&receiving).data.len(), large.len());
    }
}

//= spec/a1.md A1-QOS-9
#[test]
fn the_old_connection_remains_if_the_peer_allows_no_more() {
    let (near, far, [old, _receiving]) = narrow(2000);
    let refused = near.reopen(&old, of_messages(2001), &ConnectConfig::default());
    assert!(matches!(refused, Err(ConnectError::Qos(QosError::BeyondMaximum(_)))), "{:?}", refused.err());
    assert_eq!((old.closed(), old.maximum()), (None, Some(of_messages(1000))));
    // One that is closed before it is accepted is not given out.
    let given_up = far.accept(Duration::from_millis(500)).unwrap();
    until("the new one is closed", || given_up.as_ref().is_none_or(|new| new.closed().is_some()));
    assert!(near.reopen(&old, of_messages(2000), &ConnectConfig::default()).is_ok());
}

#[test]
fn a_pacing_rate_without_fq_refuses_the_connection() {
    let far = node();
    let network = NetworkQos::default().max_rate(Some(Rate::from_bits_per_sec(1_000_000)));
    let near = bind(NodeConfig::new().unwrap().network(network));
    let key: PublicKey = far.public_key();
    let refused = near.connect(far.local_addr().unwrap(), &key, &ConnectConfig::default());
    let refused = refused.err().expect("loopback has no fq").to_string();
    assert!(refused.contains("not fq"), "{refused}");
    let refused = far.connect(near.local_addr().unwrap(), &near.public_key(), &ConnectConfig::default());
    let refused = refused.err().expect("nor towards who connects").to_string();
    assert!(refused.contains("pacing"), "{refused}");
}

#[test]
fn a_connections_priority_selects_the_class_of_its_datagrams() {
    for priority in [0, 1, 5, 6, 255] {
        let quality = Qos { priority, ..Qos::default() };
        let far = bind(limited(quality));
        let near = bind(limited(quality).translate(true));
        let (sending, receiving) = connect(&near, &far);
        let mut sender = sender(1);
        let sink = sender.add_a1_sink(&sending, SinkConfig::new(choice::fifo())).unwrap();
        sender.push(sink.id(), b"translated", &meta(1)).unwrap();
        assert_eq!(message(&receiving).data, b"translated".as_slice());
        let asked = near.network_qos();
        assert_eq!(asked.dscp.map(|dscp| dscp.value()), Some(priority.min(5) << 3), "{priority}");
        assert_eq!(asked.priority, Some(u32::from(priority.min(6))), "{priority}");
    }
}
