//! A box on the way that gives the sender another address, as home routers do, and moves from one to the next.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freshwire::a1::{ConnectConfig, SinkConfig};
use freshwire::choice;

use super::{PATIENCE, message, meta, node, sender, until};

/// Takes datagrams from one node to another and back.
pub(super) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    /// What the other node sees.
    outside: Mutex<UdpSocket>,
    is_blocked: AtomicBool,
    is_over: AtomicBool,
}

impl Relay {
    pub(super) fn to(server: SocketAddr) -> Self {
        let inside = socket();
        let address = inside.local_addr().unwrap();
        let shared = Arc::new(Shared {
            outside: Mutex::new(socket()),
            is_blocked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let works = Arc::clone(&shared);
        let thread = Some(std::thread::spawn(move || works.work(&inside, server)));
        Self { address, shared, thread }
    }

    /// Where the sender sends to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the other node sees the sender.
    pub(super) fn outside(&self) -> SocketAddr {
        self.shared.outside.lock().unwrap().local_addr().unwrap()
    }

    /// Gives the sender another address.
    pub(super) fn rebind(&self) {
        *self.shared.outside.lock().unwrap() = socket();
    }

    /// Whether nothing passes.
    pub(super) fn block(&self, is_blocked: bool) {
        self.shared.is_blocked.store(is_blocked, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

impl Shared {
    fn work(&self, inside: &UdpSocket, server: SocketAddr) {
        let mut buffer = vec![0; 1 << 16];
        let mut sender = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let outside = self.outside.lock().unwrap();
            let passes = !self.is_blocked.load(Ordering::Relaxed);
            let mut is_idle = true;
            while let Ok((len, from)) = inside.recv_from(&mut buffer) {
                (sender, is_idle) = (Some(from), false);
                _ = passes && outside.send_to(&buffer[..len], server).is_ok();
            }
            while let Ok((len, _)) = outside.recv_from(&mut buffer) {
                is_idle = false;
                let back = sender.filter(|_| passes);
                _ = back.is_some_and(|sender| inside.send_to(&buffer[..len], sender).is_ok());
            }
            drop(outside);
            if is_idle {
                // Pause: until the next look.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn a_connection_goes_on_from_another_address_and_says_so() {
    let (near, far) = (node(), node());
    let relay = Relay::to(far.local_addr().unwrap());
    let config = ConnectConfig::default();
    let sending = near.connect(relay.address(), &far.public_key(), &config).unwrap();
    let receiving = far.accept(PATIENCE).unwrap().unwrap();
    let mut sender = sender(2);
    let [there, back] = [&sending, &receiving].map(|connection| {
        let config = SinkConfig::new(choice::fifo());
        sender.add_a1_sink(connection, config).unwrap()
    });
    let first = relay.outside();
    assert_eq!(receiving.peer_addr(), first);
    relay.rebind();
    assert_ne!(relay.outside(), first);
    sender.push(there.id(), b"from elsewhere", &meta(1)).unwrap();
    assert_eq!(message(&receiving).data[..], *b"from elsewhere");
    until("the new address is known", || receiving.peer_addr() == relay.outside());
    sender.push(back.id(), b"to elsewhere", &meta(2)).unwrap();
    assert_eq!(message(&sending).data[..], *b"to elsewhere");
    assert_eq!(sending.peer_addr(), relay.address());
}
