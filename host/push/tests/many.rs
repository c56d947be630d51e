//! A thousand receivers in one process: one thread, and the memory that docs/push.md states.

use std::net::UdpSocket;
use std::time::Duration;

use freshwire_push::{Backend, Config, Receiver};

const RECEIVERS: usize = 1000;
/// Datagrams to each.
const DATAGRAMS: usize = 3;
const PAGE: usize = 4096;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * PAGE
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("tasks").count()
}

fn enough_descriptors() -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum.or(Some(65_536)), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("descriptors");
    let enough = raised.current.is_none_or(|current| current >= 8000);
    if !enough {
        assert!(std::env::var_os("CI").is_none(), "8000 descriptors are needed");
        eprintln!("skipped: 8000 descriptors are needed, {:?} allowed", raised.current);
    }
    enough
}

#[test]
fn a_thousand_receivers_share_a_thread_and_stated_memory() {
    if !enough_descriptors() {
        return;
    }
    for backend in [Backend::Thread, Backend::Auto] {
        let (before, threads_before) = (resident(), threads());
        let pairs: Vec<_> = (0..RECEIVERS).map(|_| pair(backend)).collect();
        for (receiver, sender) in &pairs {
            // The first receive waits, so that a ring is in use.
            assert!(receiver.try_receive(&mut [0; 2048]).is_err());
            for number in 0..DATAGRAMS {
                sender.send(&[number as u8; 1400]).expect("send");
            }
        }
        for (receiver, _) in &pairs {
            let mut buffer = [0; 2048];
            for expected in 0..DATAGRAMS {
                assert_eq!(receiver.recv(&mut buffer).expect("datagram"), 1400);
                assert_eq!(usize::from(buffer[0]), expected);
            }
        }
        let each = resident().saturating_sub(before) / RECEIVERS;
        eprintln!("{backend:?}: {each} bytes for each receiver");
        // A page for each datagram, and eight for the rest: the states, the lists of buffers, the ring's two queues.
        assert!(each < (DATAGRAMS + 8) * PAGE, "{backend:?}: {each} bytes");
        // The pusher's thread stays once it is there.
        assert!(threads() <= threads_before + 1);
    }
}

fn pair(backend: Backend) -> (Receiver, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    sender.connect(socket.local_addr().expect("address")).expect("connect");
    let config = Config { backend, kernel_buffer: Some(32 << 10), ..Config::default() };
    let receiver = Receiver::with_config(socket, config).expect("receiver");
    receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    (receiver, sender)
}
