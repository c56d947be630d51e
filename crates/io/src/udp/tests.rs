use super::*;
use crate::poll::Poller;
use std::time::Duration;

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

fn bind(address: &str) -> UdpSocket {
    // The default holds less than a hundred small datagrams.
    let config = UdpConfig::default().receive_buffer(200_000);
    UdpSocket::bind(address.parse().unwrap(), config).unwrap()
}

struct ArrivedDatagram {
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<Ecn>,
    bytes: Vec<u8>,
}

/// What arrives until `count` datagrams did or a second has passed without one.
fn collect(socket: &UdpSocket, count: usize) -> Vec<ArrivedDatagram> {
    let poller = Poller::new().unwrap();
    poller.add_reader(socket, 0).unwrap();
    let mut buffer = ReceiveBuffer::default();
    let mut arrived = Vec::new();
    let mut ready = Vec::new();
    while arrived.len() < count {
        poller.wait(Some(Duration::from_secs(1)), &mut ready).unwrap();
        if !ready.drain(..).any(|event| event.readable) {
            break;
        }
        assert!(socket.receive(&mut buffer).unwrap());
        arrived.extend(buffer.datagrams().map(|it| ArrivedDatagram {
            from: it.from,
            to: it.to,
            ecn: it.ecn,
            bytes: it.bytes.to_vec(),
        }));
    }
    arrived
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 100 + at) as u8).collect()
}

fn joined(arrived: &[ArrivedDatagram]) -> Vec<u8> {
    arrived.iter().flat_map(|datagram| datagram.bytes.clone()).collect()
}

fn segments_arrive_as_datagrams(address: &str, offload: bool) {
    let mut near = bind(address);
    let far = bind(address);
    if !offload {
        near.disable_segmentation();
    }
    // More than one system call takes, and a short one at the end.
    let bytes = message(1200 * 100 + 7);
    let to = far.local_addr().unwrap();
    let outgoing = Outgoing { to, from: None, ecn: Some(Ecn::Ect0), bytes: &bytes, segment: Some(1200) };
    assert_eq!(near.send(&outgoing).unwrap(), Sent::All);
    let arrived = collect(&far, 101);
    assert_eq!(arrived.len(), 101);
    assert_eq!(joined(&arrived), bytes);
    for datagram in &arrived {
        assert_eq!(datagram.from, near.local_addr().unwrap());
        assert_eq!(datagram.to, Some(datagram.from.ip()));
        assert_eq!(datagram.ecn, Some(Ecn::Ect0));
        assert!(datagram.bytes.len() == 1200 || datagram.bytes.len() == 7);
    }
}

#[test]
fn segments_arrive_as_datagrams_with_offload() {
    segments_arrive_as_datagrams(V4, true);
    segments_arrive_as_datagrams(V6, true);
}

#[test]
fn segments_arrive_as_datagrams_without_offload() {
    segments_arrive_as_datagrams(V4, false);
    segments_arrive_as_datagrams(V6, false);
}

#[test]
fn this_kernel_segments() {
    let release = crate::tcp::kernel_release();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(4), Some(18)) {
        println!("skipped: Linux {release} has no UDP segmentation");
        return;
    }
    assert!(bind(V4).segments() > 1);
}

#[test]
fn a_kernel_without_segmentation_costs_the_offload_alone() {
    let mut near = bind(V4);
    let far = bind(V4);
    let on: libc::c_int = 1;
    // SAFETY: the pointer and length describe `on`, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&near.as_fd()),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    let bytes = message(3000);
    let to = far.local_addr().unwrap();
    let outgoing = Outgoing { to, from: None, ecn: Some(Ecn::Ect0), bytes: &bytes, segment: Some(1200) };
    assert_eq!(near.send(&outgoing).unwrap(), Sent::All);
    assert_eq!(near.segments(), 1);
    let arrived = collect(&far, 3);
    assert_eq!(joined(&arrived), bytes);
    assert!(arrived.iter().all(|datagram| datagram.ecn == Some(Ecn::Ect0)));
}

#[test]
fn nothing_is_there_until_something_comes() {
    let mut buffer = ReceiveBuffer::default();
    assert!(!bind(V4).receive(&mut buffer).unwrap());
    assert_eq!(buffer.datagrams().count(), 0);
}

#[test]
fn each_mark_arrives() {
    for address in [V4, V6] {
        let mut near = bind(address);
        let far = bind(address);
        let to = far.local_addr().unwrap();
        for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)] {
            near.send(&Outgoing { to, from: None, ecn, bytes: b"x", segment: None }).unwrap();
            assert_eq!(collect(&far, 1)[0].ecn, ecn, "{address}");
            assert_eq!(ecn, ecn.and_then(|ecn| Ecn::from_bits(ecn.bits())));
        }
    }
}

#[test]
fn a_socket_for_both_families_speaks_plain_addresses() {
    let mut both = bind("[::]:0");
    let port = both.local_addr().unwrap().port();
    for address in [V4, V6] {
        let mut peer = bind(address);
        let to = SocketAddr::new(peer.local_addr().unwrap().ip(), port);
        peer.send(&Outgoing { to, from: None, ecn: Some(Ecn::Ect1), bytes: b"ask", segment: None }).unwrap();
        let ArrivedDatagram { from, to, ecn, bytes } = collect(&both, 1).remove(0);
        assert_eq!((from, to, ecn), (peer.local_addr().unwrap(), Some(from.ip()), Some(Ecn::Ect1)));
        assert_eq!(bytes, b"ask");
        let bytes = message(2500);
        let answer =
            Outgoing { to: from, from: to, ecn: Some(Ecn::Ect1), bytes: &bytes, segment: Some(1000) };
        assert_eq!(both.send(&answer).unwrap(), Sent::All);
        let arrived = collect(&peer, 3);
        assert_eq!(
            arrived.iter().map(|datagram| datagram.bytes.len()).collect::<Vec<_>>(),
            [1000, 1000, 500]
        );
        assert!(arrived.iter().all(|datagram| datagram.ecn == Some(Ecn::Ect1)));
    }
}

#[test]
fn the_source_can_be_chosen() {
    let mut near = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), UdpConfig::default()).unwrap();
    let far = bind(V4);
    let from: IpAddr = "127.0.0.9".parse().unwrap();
    let to = far.local_addr().unwrap();
    near.send(&Outgoing { to, from: Some(from), ecn: None, bytes: b"x", segment: None }).unwrap();
    assert_eq!(collect(&far, 1)[0].from, SocketAddr::new(from, near.local_addr().unwrap().port()));
}

#[test]
fn an_empty_datagram_is_one() {
    let mut near = bind(V4);
    let far = bind(V4);
    let to = far.local_addr().unwrap();
    assert_eq!(
        near.send(&Outgoing { to, from: None, ecn: None, bytes: b"", segment: None }).unwrap(),
        Sent::All
    );
    assert_eq!(collect(&far, 1)[0].bytes, b"");
}

#[test]
fn a_datagram_larger_than_the_link_is_reported() {
    let mut near = bind(V4);
    let far = bind(V4);
    let to = far.local_addr().unwrap();
    let bytes = message(MAX_DATAGRAM_BYTES + 1);
    let outgoing = Outgoing { to, from: None, ecn: None, bytes: &bytes, segment: None };
    assert_eq!(near.send(&outgoing).unwrap(), Sent::TooLarge(0));
    assert_eq!(near.send(&Outgoing { bytes: &bytes[1..], ..outgoing }).unwrap(), Sent::All);
    assert_eq!(collect(&far, 1)[0].bytes, bytes[1..]);
}

#[test]
fn buffers_are_what_was_asked_for() {
    let config = UdpConfig::default().receive_buffer(100_000);
    let socket = UdpSocket::bind(V4.parse().unwrap(), config).unwrap();
    assert_eq!(socket.receive_buffer().unwrap(), 200_000);
}

#[test]
fn a_port_is_shared_only_on_request() {
    let config = UdpConfig::default().shared(true);
    let first = UdpSocket::bind(V4.parse().unwrap(), config).unwrap();
    let address = first.local_addr().unwrap();
    assert!(UdpSocket::bind(address, UdpConfig::default()).is_err());
    UdpSocket::bind(address, config).unwrap();
}

#[test]
fn an_address_for_one_family_only() {
    let config = UdpConfig::default().only_v6(true);
    let six = UdpSocket::bind("[::]:0".parse().unwrap(), config).unwrap();
    let port = six.local_addr().unwrap().port();
    // The older family's half of the port is free.
    UdpSocket::bind(SocketAddr::new("0.0.0.0".parse().unwrap(), port), UdpConfig::default()).unwrap();
}

#[test]
fn the_interface_of_a_newer_group_is_no_address() {
    let socket = bind(V6);
    let interface = Interface::Of("127.0.0.1".parse().unwrap());
    let group = Group { address: "ff15::77".parse().unwrap(), interface };
    for refused in [socket.join(group), socket.leave(group), socket.set_multicast(group, 1, true)] {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}
