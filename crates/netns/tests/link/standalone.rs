//! A link in a process of its own, made by a process that has threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use freshwire_io::now;
use freshwire_link::{Config, Direction};
use freshwire_netns::Namespaces;
use freshwire_netns::standalone::{End, StandaloneError, StandaloneLink};
use freshwire_record::Rate;

pub(super) type Test = fn();

pub(super) const TESTS: [(&str, Test); 4] = [
    ("a_process_with_threads_has_sockets_at_both_ends", a_process_with_threads_has_sockets_at_both_ends),
    ("the_rate_changes_while_packets_wait", the_rate_changes_while_packets_wait),
    ("an_address_of_this_machine_is_reached_through_the_link", an_address_is_reached_through_the_link),
    ("a_closed_link_has_ended", a_closed_link_has_ended),
];

const LIMIT: Duration = Duration::from_secs(20);

/// Whether this system permits namespaces, as CI's has to.
pub(super) fn is_permitted() -> bool {
    match StandaloneLink::start(Config::default(), Config::default(), None) {
        Err(StandaloneError::NotPermitted(reason)) if std::env::var_os("CI").is_none() => {
            println!("skipped: {reason}");
            false
        }
        result => result.map(drop).map(|()| true).unwrap(),
    }
}

fn link(up: Config) -> StandaloneLink {
    StandaloneLink::start(up, Config::default(), None).unwrap()
}

fn udp(link: &StandaloneLink, end: End, address: Ipv4Addr) -> UdpSocket {
    let socket = link.socket(end, libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let limit = now() + LIMIT;
    while !condition() {
        assert!(now() < limit, "{what}");
        // Pause: between two looks.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn a_process_with_threads_has_sockets_at_both_ends() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || ended.recv().is_err());
    let link = link(Config::builder().delay(Duration::from_millis(30)).build().unwrap());
    let listener = link.socket(End::Far, libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    rustix::net::bind(&listener, &SocketAddr::from((Namespaces::FAR_V4, 0))).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let listener = TcpListener::from(listener);
    let near = link.socket(End::Near, libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
    let begin = now();
    rustix::net::connect(&near, &listener.local_addr().unwrap()).unwrap();
    assert!(now().saturating_since(begin) >= Duration::from_millis(30));
    let (mut far, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Namespaces::NEAR_V4);
    TcpStream::from(near).write_all(b"across").unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    assert_eq!(text, "across");
    let snapshot = link.snapshot().unwrap();
    assert!(snapshot.up.link.delivered_bytes > 6 && snapshot.down.link.delivered_packets > 0, "{snapshot:?}");
    drop(end);
    assert!(other.join().unwrap());
}

fn the_rate_changes_while_packets_wait() {
    let rate = Rate::from_bits_per_sec(8);
    let link = link(Config::builder().rate(rate).build().unwrap());
    let near = udp(&link, End::Near, Namespaces::NEAR_V4);
    let far = udp(&link, End::Far, Namespaces::FAR_V4);
    for number in 0..3 {
        near.send_to(&[number], far.local_addr().unwrap()).unwrap();
    }
    // At this rate each takes 29 s.
    until("three are offered", || link.snapshot().unwrap().up.link.offered_packets == 3);
    assert_eq!(link.snapshot().unwrap().up.queued_bytes, 2 * 29);
    assert_eq!(link.snapshot().unwrap().up.link.delivered_packets, 0);
    link.set_rate(Direction::Up, None).unwrap();
    let mut data = [9];
    for number in 0..3 {
        far.recv(&mut data).unwrap();
        assert_eq!(data, [number]);
    }
    assert_eq!(link.snapshot().unwrap().up.queued_bytes, 0);
}

fn an_address_is_reached_through_the_link() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let datagrams = UdpSocket::bind(to).unwrap();
    let link = StandaloneLink::start(Config::default(), Config::default(), Some(to)).unwrap();
    let address = link.address().unwrap();

    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        client.write_all(&copy).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(writer.join().unwrap(), b"answer");
    assert!(link.snapshot().unwrap().up.link.delivered_bytes > 200_000);

    let clients = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    datagrams.set_read_timeout(Some(LIMIT)).unwrap();
    for (number, client) in clients.iter().enumerate() {
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.send_to(&[number as u8], address).unwrap();
        let mut data = [9];
        let (_, from) = datagrams.recv_from(&mut data).unwrap();
        assert_eq!(data, [number as u8]);
        datagrams.send_to(&[data[0] + 10], from).unwrap();
    }
    for (number, client) in clients.iter().enumerate() {
        let mut data = [9];
        client.recv(&mut data).unwrap();
        assert_eq!(data, [number as u8 + 10]);
    }

    drop(listener);
    let mut refused = TcpStream::connect(address).unwrap();
    refused.set_read_timeout(Some(LIMIT)).unwrap();
    let read = refused.read(&mut [0]);
    assert!(matches!(read, Ok(0) | Err(_)), "a refused connection ends: {read:?}");
    assert!(!matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "it hangs");
}

fn a_closed_link_has_ended() {
    let link = link(Config::default());
    let near = udp(&link, End::Near, Namespaces::NEAR_V4);
    let far = udp(&link, End::Far, Namespaces::FAR_V4);
    near.send_to(b"x", far.local_addr().unwrap()).unwrap();
    far.recv(&mut [0]).unwrap();
    let refused = link.socket(End::Near, libc::AF_INET, 12345, 0).unwrap_err();
    let words = refused.to_string();
    assert!(words.starts_with("cannot make a socket at the near end: Invalid argument"), "{words}");
    let faults = link.close();
    assert_eq!(link.close(), faults);
    assert!(link.is_closed());
    assert_eq!(link.snapshot().unwrap().up.link.delivered_packets, 1, "the last counters stay");
    let ended = link.socket(End::Near, libc::AF_INET, libc::SOCK_DGRAM, 0);
    assert!(matches!(ended, Err(StandaloneError::Ended)), "{ended:?}");
    far.set_nonblocking(true).unwrap();
    // The interface goes with the link's process, so that this may fail too.
    let _ = near.send_to(b"y", far.local_addr().unwrap());
    assert!(far.recv(&mut [0]).is_err(), "nothing passes any more");
    let zero: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let refused = StandaloneLink::start(Config::default(), Config::default(), Some(zero)).unwrap_err();
    assert_eq!(refused.to_string(), "port 0 cannot be reached: name the server's port");
}
