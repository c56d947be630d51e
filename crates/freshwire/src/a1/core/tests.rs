use std::time::Duration;

use freshwire_io::now;
use freshwire_ring::{Config, Meta, Region};

use super::*;
use crate::a1::source::RingSource;
use crate::carrier::CarrierInUse;
use crate::sink::shared::SinkShared;

pub(super) fn core(config: NodeConfig) -> Core {
    let poller = Arc::new(Poller::new().unwrap());
    Core::new("127.0.0.1:0".parse().unwrap(), config, poller).unwrap()
}

pub(super) fn serve(core: &mut Core) {
    core.receive(&now);
    core.advance(now());
}

/// Two nodes with a number of connections that have come to rest: those of the first, and the time then.
fn connected(count: usize) -> ([Core; 2], Vec<ConnectionHandle>, Timestamp) {
    let config = || NodeConfig::new().unwrap().backlog(count);
    let mut cores = [core(config()), core(config())];
    let (address, key) = (cores[1].socket().local_addr().unwrap(), cores[1].config.endpoint.key.public_key());
    let mut time = now();
    let mut connect = || cores[0].connect(time, address, key, &ConnectConfig::default(), None).unwrap().0;
    let ids: Vec<_> = (0..count).map(|_| connect()).collect();
    for _ in 0..400 {
        for core in &mut cores {
            core.receive(&|| time);
            core.advance(time);
        }
        time += Duration::from_millis(5);
    }
    assert!(ids.iter().all(|id| matches!(cores[0].peers[id].state, State::Open)));
    assert!(!cores[0].has_ready());
    (cores, ids, time)
}

fn packets_sent(core: &Core, id: ConnectionHandle) -> u64 {
    core.endpoint.connection(id).unwrap().stats().packets_sent
}

//= spec/ring.md R-ROLE-7
#[test]
fn a_record_of_a_producer_that_died_before_its_call_is_found() {
    let ([mut near, _far], ids, time) = connected(1);
    let region = Region::heap(&Config::default()).unwrap();
    let shared = Arc::new(SinkShared::new(CarrierInUse::A1, None, None));
    let source = RingSource::new(region.consumer(0).unwrap(), Arc::clone(&shared));
    assert!(near.attach(ids[0], AttachedSink::new(Box::new(source), shared)));
    near.on_wake_up(time, false);
    near.advance(time);
    let pushed = region.producer().unwrap().push(0, b"left behind", &Meta::default()).unwrap();
    assert!(pushed.notify, "the ring sleeps");
    let before = packets_sent(&near, ids[0]);
    near.on_wake_up(time, false);
    near.advance(time);
    assert_eq!(packets_sent(&near, ids[0]), before);
    let later = near.due(time);
    assert!(later <= time + RING_SCAN);
    near.on_wake_up(later, false);
    near.advance(later);
    assert_eq!(packets_sent(&near, ids[0]), before + 1);
}

#[test]
fn a_change_at_the_last_connection_of_a_round_is_sent() {
    let ([mut near, _far], ids, time) = connected(TURNS + 1);
    for id in &ids {
        near.endpoint.wake(*id);
    }
    near.advance(time);
    let before: Vec<_> = ids.iter().map(|id| packets_sent(&near, *id)).collect();
    for id in &ids {
        let transport = near.transport(*id).unwrap();
        let lower = freshwire_a1::Qos { outstanding: 2, ..*transport.qos() };
        transport.set_qos(lower).unwrap();
    }
    for _ in 0..3 {
        near.advance(time);
    }
    let after: Vec<_> = ids.iter().map(|id| packets_sent(&near, *id)).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?}, then {after:?}");
}
