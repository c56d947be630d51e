//! When the last byte of a record entered the queueing discipline, left for the device and was acknowledged.
#![allow(clippy::unwrap_used, reason = "a test")]

mod departing;

use std::net::{TcpListener, TcpStream};

use departing::{SLACK, notes_datagrams, over_a1, over_datagrams, over_tcp};
use freshwire::a1::{self, ConnectConfig, Node, NodeConfig};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire::network::NetworkQos;
use freshwire::sink::Reserve;
use freshwire::{
    Engine, Fate, Framing, Outcome, Rate, RingConfig, Sender, SenderError, SinkConfig, Timestamp, choice,
};

/// Addresses of both families.
const ADDRESSES: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// `count` sizes of records, in bytes.
fn sizes(count: usize) -> Vec<usize> {
    [1, 2, 10, 100, 1_448, 10_000, 65_536, 300_000, 1_000_000].into_iter().cycle().take(count).collect()
}

/// The times of a record that has departed, which follow each other.
fn departed(fate: &Fate, named: &str) -> [Timestamp; 3] {
    let times = [fate.committed_at, fate.scheduled_at, fate.departed_at];
    let [committed, scheduled, departed] = times.map(|time| time.expect(named));
    assert!(committed <= scheduled + SLACK && scheduled <= departed + SLACK, "{named}");
    [committed, scheduled, departed]
}

#[test]
fn times_follow_each_other_for_every_size() {
    for address in ADDRESSES {
        for framing in [Framing::Raw, Framing::LengthPrefixed, Framing::Chunked] {
            for reserve in [Reserve::Auto, Reserve::Fixed(1 << 20)] {
                let config =
                    SinkConfig::new(choice::fifo()).framing(framing).reserve(reserve).departures(true);
                let mut last = None;
                for fate in over_tcp(config, &sizes(45), address) {
                    let named = format!("{address} {framing:?} {reserve:?} {fate:?}");
                    assert_eq!(fate.outcome, Outcome::Acked, "{named}");
                    let [_, scheduled, departed] = departed(&fate, &named);
                    assert!(departed <= fate.acked_at.expect(&named) + SLACK, "{named}");
                    assert!(last <= Some(scheduled + SLACK), "in the order of the stream: {named}");
                    last = Some(scheduled);
                }
            }
        }
    }
}

/// From a byte to 64 KiB, one at a time and many at once.
#[test]
fn datagrams_depart_before_their_fates_are_known() {
    if !notes_datagrams() {
        return;
    }
    for address in ADDRESSES {
        for size in [1, 100, 1_200, 1_201, 10_000, 65_000, 65_536] {
            for count in [1, 100] {
                let mut last = None;
                for fate in over_datagrams(&vec![size; count], address) {
                    let named = format!("{address} {size} {count} {fate:?}");
                    assert_eq!((fate.outcome, fate.acked_at), (Outcome::Sent, None), "{named}");
                    let [_, scheduled, _] = departed(&fate, &named);
                    assert!(last <= Some(scheduled), "in the order of sending: {named}");
                    last = Some(scheduled);
                }
            }
        }
    }
}

#[test]
fn records_over_a1_depart_before_their_acknowledgement() {
    if !notes_datagrams() {
        return;
    }
    // With a DSCP datagrams leave by another system call.
    let marked = NetworkQos::default().dscp(Some("AF41".parse().unwrap()));
    for network in [NetworkQos::default(), marked] {
        for address in ADDRESSES {
            for size in [1, 100, 1_200, 10_000, 65_536, 300_000] {
                for count in [1, 100] {
                    let config = NodeConfig::new().unwrap().network(network);
                    for fate in over_a1(config, &vec![size; count], address) {
                        let named = format!("{network:?} {address} {size} {count} {fate:?}");
                        assert_eq!(fate.outcome, Outcome::Acked, "{named}");
                        let [_, _, departed] = departed(&fate, &named);
                        assert!(departed <= fate.acked_at.expect(&named) + SLACK, "{named}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_sink_that_does_not_ask_gets_none() {
    for fate in over_tcp(SinkConfig::new(choice::fifo()), &sizes(20), "127.0.0.1:0") {
        assert_eq!((fate.scheduled_at, fate.departed_at), (None, None));
    }
}

/// A path that notes nothing.
struct Mute;

impl DatagramPath for Mute {
    fn view(&self, _now: Timestamp, _committed: u64) -> choice::LinkView {
        choice::LinkView::default()
    }

    fn ready_at(&self, now: Timestamp, _bytes: u64) -> Timestamp {
        now
    }

    fn send(&mut self, _now: Timestamp, _record: Option<&choice::Record>, _packets: &[u8]) {}

    fn flush(&mut self, _now: Timestamp) -> std::io::Result<Flushed> {
        Ok(Flushed::default())
    }

    fn known(&self) -> KnownPath {
        KnownPath::default()
    }
}

#[test]
fn departures_are_refused_where_nothing_notes_them() {
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&RingConfig::default(), &engine.handle()).unwrap();
    let config = SinkConfig::new(choice::fifo()).departures(true);
    let refused = sender.add_datagram_sink(Box::new(Mute), config).err().unwrap();
    assert!(matches!(refused, SenderError::NoDepartures(_)), "{refused}");
    let node = Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
    let transport = a1::GroupTransportConfig::new(
        "239.255.78.9:5004".parse().unwrap(),
        Rate::from_bits_per_sec(1_000_000),
    );
    let group = node.group(&transport.into()).unwrap();
    let config = || a1::SinkConfig::new(choice::fifo()).departures(true);
    let refused = sender.add_a1_group(&group, config()).err().unwrap();
    assert!(refused.to_string().contains("multicast group notes no departures"), "{refused}");
    let far = Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
    let to = far.local_addr().unwrap();
    let connection = node.connect(to, &far.public_key(), &ConnectConfig::default()).unwrap();
    let refused = connection.add_buffer_sink(config(), a1::BufferLimits::default()).err().unwrap();
    assert!(refused.to_string().contains("buffers notes no departures"), "{refused}");
}

#[test]
fn departures_without_acknowledgements_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let engine = Engine::new().unwrap().spawn().unwrap();
    let mut sender = Sender::new(&RingConfig::default(), &engine.handle()).unwrap();
    let config = SinkConfig::new(choice::fifo()).departures(true).ack_fates(false);
    let refused = sender.add_sink(stream, config).err().unwrap();
    assert!(
        matches!(&refused, SenderError::Stream(error) if error.to_string().contains("ack_fates")),
        "{refused}"
    );
}
