//! Payload that was sent by reference to the arena's pages never changes, although the arena is used again before it is read.
#![allow(clippy::unwrap_used, reason = "a test")]

mod lending;
mod until;

use std::net::{TcpListener, TcpStream};

use freshwire::Framing;
use freshwire::engine::Transfer;
use lending::{ARENA, BLOCK, run};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Room for some arenas of unread data.
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1 << 20).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    near.set_nonblocking(true).unwrap();
    (near, far)
}

/// Lengths up to all of the arena, some of them no multiple of a block.
fn lens(count: usize) -> Vec<usize> {
    let block = BLOCK as usize;
    let lens = [block, 2 * block, 3 * block + 1, 100, 2 * block - 1, 4 * block, block + 7, 1];
    lens.into_iter().cycle().take(count).collect()
}

/// Data that was acknowledged waits in the receiver's queue: on one machine it lies in the sender's pages.
#[test]
fn unread_data_does_not_change() {
    for framing in [Framing::Raw, Framing::LengthPrefixed] {
        let stats = run(pair(), Transfer::Reference, framing, &lens(200), ARENA + ARENA / 2);
        assert!(stats.bytes_by_reference > stats.bytes / 2, "{stats:?}");
    }
}

#[test]
fn small_writes_and_blocking_sockets_are_copied() {
    // `sendfile` would wait on a socket in blocking mode.
    let (near, far) = pair();
    near.set_nonblocking(false).unwrap();
    let stats = run((near, far), Transfer::Reference, Framing::Raw, &lens(50), 0);
    assert_eq!(stats.bytes_by_reference, 0);
    for transfer in [Transfer::Copy, Transfer::Auto] {
        let small = [1000; 50];
        assert_eq!(run(pair(), transfer, Framing::Raw, &small, 0).bytes_by_reference, 0, "{transfer:?}");
    }
    assert_eq!(run(pair(), Transfer::Copy, Framing::Raw, &lens(50), 0).bytes_by_reference, 0);
}
