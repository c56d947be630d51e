//! The user interface of Mapp 1997.

use std::net::SocketAddr;
use std::time::Duration;

use freshwire::a1::reproduction::{
    Contact, MAX_SOCKET_SINKS, Received, Socket, SocketError, Status, WhenFull,
};
use freshwire::a1::{ConnectError, Node, Qos, QosError};
use freshwire::now;
use freshwire_record::Rate;
use rustix::time::{ClockId, clock_gettime};

use super::relay::Relay;
use super::{NARROW, PATIENCE, limited, message, meta, node, sender, until};

const WHOLE: Status = Status::START.and(Status::END);

fn socket(maximum: Qos) -> Socket {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    Socket::bind(any, limited(maximum)).unwrap()
}

fn add(from: &mut Socket, to: &Socket, qos: Option<Qos>) {
    from.add_sink(to.local_addr().unwrap(), &to.public_key(), qos).unwrap();
}

fn contact(socket: &Socket) -> Contact {
    Contact { address: socket.local_addr().unwrap(), key: socket.public_key() }
}

fn receive(socket: &mut Socket, buffer: &mut [u8]) -> Received {
    socket.recv(buffer, PATIENCE).unwrap()
}

/// Asks for the status until all of `wanted` have been reported.
fn await_status(socket: &mut Socket, wanted: Status) {
    let mut status = Status::default();
    until("the wanted status", || {
        status = status.and(socket.status());
        status.contains(wanted)
    });
}

#[test]
fn every_sink_gets_a_message_and_may_answer() {
    let mut near = socket(Qos::default());
    let mut far = [socket(Qos::default()), socket(Qos::default())];
    for far in &far {
        add(&mut near, far, None);
    }
    let sent = near.send(b"to all", WhenFull::Block).unwrap();
    assert_eq!((sent.sinks, sent.status), (2, Status::default()));
    let from = contact(&near);
    let mut buffer = [0; 64];
    for far in &mut far {
        let received = receive(far, &mut buffer);
        assert_eq!((received.from, received.status), (Some(from), WHOLE));
        assert_eq!(&buffer[..received.len], b"to all");
    }
    assert!(matches!(far[0].send(b"nobody", WhenFull::Block), Err(SocketError::NoSink)));
    far[0].add_sink(from.address, &from.key, None).unwrap();
    far[0].send(b"answer", WhenFull::Block).unwrap();
    let received = receive(&mut near, &mut buffer);
    assert_eq!(&buffer[..received.len], b"answer");
}

#[test]
fn a_small_buffer_gets_a_message_in_parts_with_start_and_end() {
    let (mut near, mut far) = (socket(Qos::default()), socket(Qos::default()));
    add(&mut near, &far, None);
    near.send(b"0123456789", WhenFull::Block).unwrap();
    near.send(b"", WhenFull::Block).unwrap();
    let mut buffer = [0; 4];
    for (part, status) in
        [(&b"0123"[..], Status::START), (b"4567", Status::default()), (b"89", Status::END), (b"", WHOLE)]
    {
        let received = receive(&mut far, &mut buffer);
        assert_eq!((&buffer[..received.len], received.status), (part, status));
    }
}

/// Gives a sink whose receiver takes nothing as much as it takes: the window, and one that waits for it.
fn fill(near: &mut Socket) -> u32 {
    // At first what is on the way counts as outstanding too.
    let until = now() + PATIENCE;
    let mut taken = 0;
    while taken < NARROW.outstanding + 1 {
        let sent = near.send(&[7; 100], WhenFull::Report).unwrap();
        assert_eq!(sent.status.contains(Status::WINDOW_EXCEEDED), sent.sinks == 0, "{sent:?}");
        taken += sent.sinks as u32;
        assert!(now() < until, "only {taken} were taken");
    }
    taken
}

#[test]
fn a_full_sink_delays_no_other_and_a_blocked_send_sleeps() {
    let (mut near, mut slow, mut fast) = (socket(NARROW), socket(NARROW), socket(NARROW));
    add(&mut near, &slow, None);
    let taken = fill(&mut near);
    add(&mut near, &fast, None);
    let blocked = std::thread::spawn(move || {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        let sent = near.send(b"to both", WhenFull::Block).unwrap();
        let after = clock_gettime(ClockId::ThreadCPUTime);
        let used = Duration::try_from(after - before).unwrap();
        (near, sent.sinks, used)
    });
    let mut buffer = [0; 128];
    let received = receive(&mut fast, &mut buffer);
    assert_eq!(&buffer[..received.len], b"to both");
    // Pause: a send that does not wait would end in this time.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!blocked.is_finished());
    let received: Vec<usize> = (0..=taken).map(|_| receive(&mut slow, &mut buffer).len).collect();
    assert_eq!(received.last(), Some(&b"to both".len()));
    let (_near, sinks, used) = blocked.join().unwrap();
    assert_eq!(sinks, 2);
    assert!(used < Duration::from_millis(50), "{used:?} of the processor's time");
}

#[test]
fn a_full_window_is_reported_or_waited_for() {
    let (mut near, mut far) = (socket(NARROW), socket(NARROW));
    add(&mut near, &far, None);
    let (taken, from) = (fill(&mut near), contact(&near));
    let until = now() + Duration::from_millis(100);
    while now() < until {
        let sent = near.send(&[7; 100], WhenFull::Report).unwrap();
        assert_eq!(sent.sinks, 0, "one more than the window and the one that waits");
        assert!(sent.status.contains(Status::WINDOW_EXCEEDED), "{sent:?}");
    }
    let blocked = std::thread::spawn(move || {
        let sent = near.send(b"waited", WhenFull::Block).unwrap();
        (near, sent.sinks)
    });
    // Pause: a send that does not wait would end in this time.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!blocked.is_finished());
    let mut buffer = [0; 128];
    let received: Vec<usize> = (0..=taken).map(|_| receive(&mut far, &mut buffer).len).collect();
    assert_eq!(received.last(), Some(&b"waited".len()));
    let (near, sinks) = blocked.join().unwrap();
    assert_eq!(sinks, 1);
    assert!(near.close(PATIENCE));
    let end = receive(&mut far, &mut buffer);
    assert_eq!((end.len, end.from, end.status), (0, Some(from), Status::PEER_CLOSED));
}

#[test]
fn a_quality_change_within_the_maximum_is_reported_to_both() {
    let (mut near, mut far) = (socket(NARROW), socket(NARROW));
    let lower = Qos { max_send_message: 1024, ..NARROW };
    add(&mut near, &far, Some(lower));
    near.send(b"x", WhenFull::Block).unwrap();
    let mut buffer = [0; 8];
    receive(&mut far, &mut buffer);
    near.set_qos(NARROW).unwrap();
    await_status(&mut near, Status::QOS_CHANGED);
    await_status(&mut far, Status::QOS_CHANGED);
    assert!(!near.status().contains(Status::QOS_CHANGED), "it is reported once");
    let beyond = Qos { outstanding: NARROW.outstanding + 1, ..NARROW };
    let refused = near.set_qos(beyond);
    assert!(matches!(refused, Err(SocketError::Qos(QosError::BeyondMaximum(_)))), "{refused:?}");
    let refused = near.add_sink(far.local_addr().unwrap(), &far.public_key(), Some(beyond));
    let is_quality = |error: &SocketError| matches!(error, SocketError::Connect(ConnectError::Qos(_)));
    assert!(refused.as_ref().is_err_and(is_quality), "{refused:?}");
    let large = near.send(&vec![0; NARROW.max_send_message as usize + 1], WhenFull::Block);
    assert!(matches!(large, Err(SocketError::TooLarge { most: 4096, .. })), "{large:?}");
}

#[test]
fn a_sink_with_smaller_messages_misses_a_large_one() {
    let (mut near, mut wide) = (socket(Qos::default()), socket(Qos::default()));
    let mut narrow = socket(NARROW);
    let large = vec![7; NARROW.max_receive_message as usize + 1];
    add(&mut near, &narrow, None);
    let alone = near.send(&large, WhenFull::Block);
    assert!(matches!(alone, Err(SocketError::TooLarge { bytes: 4097, most: 4096 })), "{alone:?}");
    add(&mut near, &wide, None);
    let sent = near.send(&large, WhenFull::Block).unwrap();
    assert_eq!((sent.sinks, sent.status), (1, Status::TOO_LARGE));
    let mut buffer = vec![0; large.len()];
    assert_eq!(receive(&mut wide, &mut buffer).len, large.len());
    let sent = near.send(&large[1..], WhenFull::Block).unwrap();
    assert_eq!((sent.sinks, sent.status), (2, Status::default()));
    for far in [&mut wide, &mut narrow] {
        assert_eq!(receive(far, &mut buffer).len, large.len() - 1);
    }
}

#[test]
fn a_quality_that_one_sink_cannot_take_now_changes_at_none() {
    let mut near = socket(NARROW);
    let lower = |outstanding| Qos { outstanding, ..NARROW };
    assert!(matches!(near.set_qos(lower(3)), Err(SocketError::NoSink)));
    let (first, second) = (node(), node());
    let relay = Relay::to(second.local_addr().unwrap());
    near.add_sink(first.local_addr().unwrap(), &first.public_key(), None).unwrap();
    near.add_sink(relay.address(), &second.public_key(), None).unwrap();
    let first = first.accept(PATIENCE).unwrap().unwrap();
    relay.block(true);
    near.set_qos(lower(3)).unwrap();
    await_status(&mut near, Status::QOS_CHANGED);
    let pending = near.set_qos(lower(2));
    assert!(matches!(pending, Err(SocketError::Qos(QosError::Pending))), "{pending:?}");
    near.send(b"a change would have come before", WhenFull::Report).unwrap();
    message(&first);
    assert_eq!(first.qos().unwrap().outstanding, 3);
    relay.block(false);
    await_status(&mut near, Status::QOS_CHANGED);
    near.set_qos(lower(2)).unwrap();
    drop(second);
    await_status(&mut near, Status::ABORTED);
    near.send(b"one is enough", WhenFull::Report).unwrap();
}

#[test]
fn the_maximum_is_what_every_sink_has_agreed_to() {
    let mut near = socket(Qos::default());
    let (wide, narrow) = (socket(Qos::default()), socket(NARROW));
    add(&mut near, &wide, None);
    assert_eq!(near.maximum(), Qos::default());
    add(&mut near, &narrow, None);
    assert_eq!(near.maximum(), NARROW);
    let refused = near.set_qos(Qos { outstanding: NARROW.outstanding + 1, ..NARROW });
    assert!(matches!(refused, Err(SocketError::Qos(QosError::BeyondMaximum(_)))), "{refused:?}");
    near.set_qos(NARROW).unwrap();
}

#[test]
fn a_waiting_message_that_became_too_large_is_reported() {
    let mut near = socket(NARROW);
    let far_node = node();
    near.add_sink(far_node.local_addr().unwrap(), &far_node.public_key(), None).unwrap();
    let far = far_node.accept(PATIENCE).unwrap().unwrap();
    let taken = fill(&mut near);
    let give_up = now() + PATIENCE;
    while far.stats().unwrap().messages_received < u64::from(taken) - 1 {
        assert!(now() < give_up);
        std::thread::yield_now();
    }
    // The last one waits for the window, and is larger than what is agreed on by then.
    far.set_qos(Qos { max_receive_message: 50, ..far.qos().unwrap() }).unwrap();
    await_status(&mut near, Status::QOS_CHANGED.and(Status::GIVEN_UP));
    for _ in 1..taken {
        assert_eq!(message(&far).data.len(), 100, "committed messages are not affected");
    }
    assert!(!near.status().contains(Status::GIVEN_UP), "it is reported once");
    near.send(&[8; 50], WhenFull::Block).unwrap();
    assert_eq!(message(&far).data[..], [8; 50]);
}

#[test]
fn a_peer_that_is_dropped_shows_as_aborted() {
    let (mut near, far) = (socket(NARROW), socket(NARROW));
    add(&mut near, &far, None);
    drop(far);
    await_status(&mut near, Status::ABORTED);
    let give_up = now() + PATIENCE;
    while near.send(b"x", WhenFull::Report).is_ok() {
        assert!(now() < give_up);
    }
}

#[test]
fn a_sink_that_has_ended_makes_room_for_another_one() {
    let (mut near, far) = (socket(NARROW), node());
    let to = (far.local_addr().unwrap(), far.public_key());
    for round in 0..=MAX_SOCKET_SINKS {
        near.add_sink(to.0, &to.1, None).unwrap();
        drop(far.accept(PATIENCE).unwrap().unwrap());
        // Whether the application asks for it or not.
        if round == 0 {
            await_status(&mut near, Status::PEER_CLOSED);
        } else {
            await_end(&mut near);
        }
    }
    near.add_sink(to.0, &to.1, None).unwrap();
    let _last = far.accept(PATIENCE).unwrap().unwrap();
    assert!(near.status().contains(Status::PEER_CLOSED), "it is reported of forgotten sinks");
    assert_eq!(near.send(b"there is one", WhenFull::Block).unwrap().sinks, 1);
    assert!(!near.close(PATIENCE), "others had ended before");
}

/// Waits until no sink takes anything.
fn await_end(socket: &mut Socket) {
    let give_up = now() + PATIENCE;
    while socket.send(b"x", WhenFull::Report).is_ok() {
        assert!(now() < give_up);
    }
}

#[test]
fn the_end_of_a_sink_is_reported_although_another_has_data() {
    let (mut near, first, second) = (socket(NARROW), node(), node());
    for far in [&first, &second] {
        near.add_sink(far.local_addr().unwrap(), &far.public_key(), None).unwrap();
    }
    let (first, second) =
        (first.accept(PATIENCE).unwrap().unwrap(), second.accept(PATIENCE).unwrap().unwrap());
    let mut sender = sender(1);
    let sink =
        sender.add_a1_sink(&second, freshwire::a1::SinkConfig::new(freshwire::choice::fifo())).unwrap();
    first.close(0, "");
    let give_up = now() + PATIENCE;
    // Until the first one takes nothing any more.
    while near.send(b"x", WhenFull::Block).unwrap().sinks == 2 {
        message(&second);
        assert!(now() < give_up);
    }
    sender.push(sink.id(), b"of the other one", &meta(1)).unwrap();
    while sender.poll_fate(sink.id()).unwrap().is_none() {
        assert!(now() < give_up);
        std::thread::yield_now();
    }
    let mut buffer = [0; 32];
    let mut status = Status::default();
    while !status.contains(WHOLE.and(Status::PEER_CLOSED)) {
        assert!(now() < give_up, "{status:?}");
        status = status.and(near.recv(&mut buffer, Duration::from_millis(10)).unwrap().status);
    }
}

#[test]
fn a_status_names_the_sink_that_it_concerns() {
    let mut near = socket(NARROW);
    let mut far = vec![node(), node(), node()];
    for far in &far {
        near.add_sink(far.local_addr().unwrap(), &far.public_key(), None).unwrap();
    }
    let contact = |node: &Node| Contact { address: node.local_addr().unwrap(), key: node.public_key() };
    let changed = far[2].accept(PATIENCE).unwrap().unwrap();
    changed.set_qos(Qos { outstanding: 2, ..NARROW }).unwrap();
    let mut reported = Status::default();
    while !reported.contains(Status::QOS_CHANGED) {
        let received = receive(&mut near, &mut []);
        assert_eq!((received.len, received.from), (0, Some(contact(&far[2]))));
        reported = reported.and(received.status);
    }
    let gone = far.remove(1);
    let (gone, _) = (contact(&gone), drop(gone));
    let received = receive(&mut near, &mut []);
    assert_eq!((received.len, received.from, received.status), (0, Some(gone), Status::ABORTED));
    let nothing = near.recv(&mut [], Duration::ZERO).unwrap();
    assert_eq!((nothing.from, nothing.status), (None, Status::default()));
}

#[test]
fn an_agreed_rate_is_kept_and_reported() {
    let slow = Qos {
        send_average: Some(Rate::from_bits_per_sec(80_000)),
        send_burst: 2000,
        outstanding: 64,
        ..NARROW
    };
    let (mut near, mut far) = (socket(slow), socket(Qos { outstanding: 64, ..NARROW }));
    add(&mut near, &far, None);
    let begin = now();
    let (mut sent, mut exceeded) = (0, false);
    while sent < 12 {
        let outcome = near.send(&[1; 1000], WhenFull::Report).unwrap();
        sent += outcome.sinks;
        exceeded |= outcome.sinks == 0 && outcome.status.contains(Status::RATE_EXCEEDED);
        // Pause: the pace of the source.
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut buffer = [0; 1024];
    for _ in 0..12 {
        assert_eq!(receive(&mut far, &mut buffer).len, 1000);
    }
    let elapsed = now().saturating_since(begin);
    // 12 kB at 10 kB/s after a burst of 2 kB.
    assert!(elapsed > Duration::from_millis(800), "{elapsed:?}");
    assert!(exceeded);
}
