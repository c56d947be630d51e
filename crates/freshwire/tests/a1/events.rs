//! Descriptors for the event loops of others.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;

use freshwire::a1::{ByteStream, Events};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn is_readable(events: &Events, within: Duration) -> bool {
    let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    poll(&mut [PollFd::new(&events.as_fd(), PollFlags::IN)], Some(&within)).unwrap() == 1
}

/// Looks after each change, as an event loop does.
fn await_change<T>(events: &Events, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        events.clear();
        if let Some(found) = look() {
            return found;
        }
        assert!(is_readable(events, PATIENCE), "nothing has changed");
    }
}

#[test]
fn events_drive_a_connection_without_a_blocked_thread() {
    let (near, far) = (node(), node());
    let newcomers = far.events().unwrap();
    assert!(is_readable(&newcomers, Duration::ZERO), "the first look is due");
    newcomers.clear();
    assert!(!is_readable(&newcomers, Duration::ZERO));
    let address = far.local_addr().unwrap();
    let connecting = near.begin_connect(address, &far.public_key(), &ConnectConfig::default()).unwrap();
    let accepted = await_change(&newcomers, || far.accept(Duration::ZERO).unwrap());
    let opened = await_change(&connecting.events().unwrap(), || connecting.poll_open().unwrap());
    let arrivals = accepted.events().unwrap();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&opened, SinkConfig::new(choice::fifo())).unwrap();
    for seq in 0..100 {
        sender.push(sink.id(), b"position", &meta(seq)).unwrap();
        assert_eq!(await_change(&arrivals, || accepted.recv(Duration::ZERO).unwrap()).seq, seq);
    }
    opened.close(300, "enough");
    let closed = await_change(&arrivals, || accepted.recv(Duration::ZERO).err());
    assert!(matches!(closed, Closed::Peer { code: 300, .. }), "{closed}");
    drop(far);
    assert!(is_readable(&newcomers, Duration::ZERO), "the node has stopped");
}

#[test]
fn a_handshake_that_fails_or_is_given_up_is_an_event_too() {
    let node = node();
    let key = super::node().public_key();
    let soon = ConnectConfig::default().timeout(Duration::from_millis(50));
    let connecting = node.begin_connect("127.0.0.1:9".parse().unwrap(), &key, &soon).unwrap();
    let error = await_change(&connecting.events().unwrap(), || connecting.poll_open().err());
    assert!(matches!(error, ConnectError::Failed(_)), "{error}");
    drop(node.begin_connect("127.0.0.1:9".parse().unwrap(), &key, &soon).unwrap());
    let other = node.begin_connect("[::1]:9".parse().unwrap(), &key, &soon);
    assert!(matches!(other, Err(ConnectError::Family)));
}

#[test]
fn a_node_that_asks_has_events_of_attempts() {
    let (near, far) = (node(), bind(NodeConfig::new().unwrap().ask(true)));
    let attempts = far.events().unwrap();
    let address = far.local_addr().unwrap();
    let connecting = near.begin_connect(address, &far.public_key(), &ConnectConfig::default()).unwrap();
    let incoming = await_change(&attempts, || far.incoming(Duration::ZERO).unwrap());
    incoming.refuse(300, "not today");
    let error = await_change(&connecting.events().unwrap(), || connecting.poll_open().err());
    assert!(error.to_string().contains("not today"), "{error}");
}

#[test]
fn a_stream_is_written_and_read_without_a_thread_that_waits() {
    const BYTES: usize = 1 << 18;
    let few = Qos { outstanding: 2, max_send_message: 4096, max_receive_message: 4096, ..Qos::default() };
    let config = || {
        let mut transport = ConnectionConfig::default().maximum(few);
        transport.in_order = true;
        NodeConfig::new().unwrap().connection(transport)
    };
    let nodes = [bind(config()), bind(config())];
    let (from, to) = connect(&nodes[0], &nodes[1]);
    let ((_, mut writer), (mut reader, _writer)) =
        (ByteStream::new(from).unwrap().split(), ByteStream::new(to).unwrap().split());
    writer.set_timeout(Some(Duration::ZERO));
    reader.set_timeout(Some(Duration::ZERO));
    let (room, bytes) = (writer.events().unwrap(), reader.events().unwrap());
    let sent: Vec<u8> = (0..BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let (mut written, mut read, mut is_finished) = (0, Vec::new(), false);
    let mut buffer = [0; 1000];
    let give_up = now() + PATIENCE;
    let is_late = |result: &std::io::Error| result.kind() == ErrorKind::TimedOut;
    loop {
        assert!(now() < give_up, "{written} written, {} read", read.len());
        for events in [&room, &bytes] {
            events.clear();
        }
        while written < BYTES {
            match writer.write(&sent[written..]) {
                Ok(taken) => written += taken,
                Err(error) if is_late(&error) => break,
                Err(error) => panic!("{error}"),
            }
        }
        if written == BYTES && !is_finished {
            is_finished = match writer.try_finish(Duration::ZERO) {
                Ok(()) => true,
                Err(error) if is_late(&error) => false,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(writer.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        match reader.read(&mut buffer) {
            Ok(0) if is_finished => break,
            Ok(got) => {
                read.extend_from_slice(&buffer[..got]);
                continue;
            }
            Err(error) if is_late(&error) => {}
            Err(error) => panic!("{error}"),
        }
        let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let (room, bytes) = (room.as_fd(), bytes.as_fd());
        let mut both = [PollFd::new(&room, PollFlags::IN), PollFd::new(&bytes, PollFlags::IN)];
        assert_ne!(poll(&mut both, Some(&wait)).unwrap(), 0, "{written} written, {} read", read.len());
    }
    assert!(read == sent);
}
