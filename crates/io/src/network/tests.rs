use super::*;
use crate::udp::{Ecn, Outgoing, ReceiveBuffer, UdpConfig, UdpSocket};
use std::net::{TcpListener, TcpStream, UdpSocket as StdUdp};

const DSCPS: [u8; 6] = [0, 1, 10, 34, 46, 63];

fn ef() -> NetworkQos {
    NetworkQos::default().dscp(Dscp::new(46))
}

fn priority(socket: impl AsFd) -> u32 {
    let (mut value, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, (&raw mut value).cast(), &raw mut len)
    };
    assert_eq!(result, 0);
    value
}

fn max_rate(socket: impl AsFd) -> u64 {
    let (mut value, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    assert_eq!(result, 0);
    value
}

#[test]
fn a_stream_has_the_dscp_and_keeps_its_ecn_bits() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for value in DSCPS {
            let dscp = Dscp::new(value).unwrap();
            let before = traffic_class(&stream).unwrap() & ECN_BITS;
            NetworkQos::default().dscp(Some(dscp)).apply_to_stream(&stream).unwrap();
            assert_eq!(traffic_class(&stream).unwrap(), dscp.traffic_class() | before, "{address} {dscp}");
        }
    }
}

#[test]
fn a_priority_holds_beside_a_dscp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for wanted in 0..=MAX_FREE_PRIORITY {
        ef().priority(Some(wanted)).apply_to_stream(&stream).unwrap();
        assert_eq!(priority(&stream), wanted);
    }
}

#[test]
fn the_pacing_rate_is_in_bytes_and_may_exceed_32_bits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for bits in [8_000, 1_000_000, 100_000_000, 100_000_000_000] {
        let qos = NetworkQos::default().max_rate(Some(Rate::from_bits_per_sec(bits)));
        qos.apply_to_stream(&stream).unwrap();
        assert_eq!(max_rate(&stream), bits / 8);
    }
}

#[test]
fn datagrams_at_a_rate_are_refused_where_nothing_paces_them() {
    let to = "127.0.0.1:9".parse().unwrap();
    let rate = NetworkQos::default().max_rate(Some(Rate::from_bits_per_sec(1_000_000)));
    for (qos, option) in [(rate, "SO_MAX_PACING_RATE"), (rate.departure_times(true), "SO_TXTIME")] {
        let refused = qos.check_towards(to).unwrap_err().to_string();
        assert!(refused.contains(option) && refused.contains("tc qdisc replace dev lo root fq"), "{refused}");
    }
    assert!(ef().check_towards(to).is_ok());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let refused = NetworkQos::default().departure_times(true).apply_to_stream(&stream);
    assert!(matches!(refused, Err(NetworkQosError::DepartureTimes)));
}

/// The traffic class of the next datagram at `socket`, whose option for it is set.
fn class_received(socket: &StdUdp) -> u8 {
    let mut bytes = [0_u8; 4096];
    let mut control = [0_u64; 16];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a zeroed msghdr is a valid value of that C type.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `message` describes memory that outlives the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    assert!(received > 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has filled the control messages.
    let head = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    assert!(!head.is_null());
    // SAFETY: the head was just found.
    let data = unsafe { libc::CMSG_DATA(head) };
    // SAFETY: its data is one byte at least.
    unsafe { data.read() }
}

#[test]
fn each_datagram_has_the_dscp_beside_its_congestion_mark() {
    for (local, bind, to_v4) in
        [("127.0.0.1:0", "127.0.0.1:0", true), ("[::]:0", "127.0.0.1:0", true), ("[::1]:0", "[::1]:0", false)]
    {
        let receiver = StdUdp::bind(bind).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        if to_v4 {
            sockopt::set_ip_recvtos(&receiver, true).unwrap();
        } else {
            sockopt::set_ipv6_recvtclass(&receiver, true).unwrap();
        }
        let to = receiver.local_addr().unwrap();
        let mut socket = UdpSocket::bind(local.parse().unwrap(), UdpConfig::default()).unwrap();
        for value in DSCPS {
            let dscp = Dscp::new(value).unwrap();
            socket.set_network_qos(&NetworkQos::default().dscp(Some(dscp)).priority(Some(5))).unwrap();
            for ecn in [Some(Ecn::Ect0), None, Some(Ecn::Ect1), Some(Ecn::Ect0)] {
                for (bytes, segment) in [(&[7; 1000][..], None), (&[8; 3500], Some(1200))] {
                    let from = (local != "[::]:0").then(|| to.ip());
                    let outgoing = Outgoing { to, from, ecn, bytes, segment };
                    assert_eq!(socket.send(&outgoing).unwrap(), crate::udp::Sent::All);
                    let expected = dscp.traffic_class() | ecn.map_or(0, Ecn::bits);
                    for _ in 0..bytes.len().div_ceil(segment.unwrap_or(bytes.len())) {
                        assert_eq!(class_received(&receiver), expected, "{local} {dscp} {ecn:?}");
                    }
                }
            }
            assert_eq!(priority(&socket), 5, "{local} {dscp}");
        }
    }
}

#[test]
fn departure_times_leave_content_and_order_as_they_are() {
    let receiver = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), UdpConfig::default()).unwrap();
    let to = receiver.local_addr().unwrap();
    let mut socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), UdpConfig::default()).unwrap();
    let rate = Some(Rate::from_bits_per_sec(1_000_000_000));
    socket.set_network_qos(&NetworkQos::default().max_rate(rate).departure_times(true)).unwrap();
    let bytes: Vec<u8> = (0..20_u8).flat_map(|datagram| [datagram; 1000]).collect();
    let outgoing = Outgoing { to, from: None, ecn: Some(Ecn::Ect0), bytes: &bytes, segment: Some(1000) };
    assert_eq!(socket.send(&outgoing).unwrap(), crate::udp::Sent::All);
    let mut buffer = ReceiveBuffer::default();
    let mut next = 0;
    let give_up = crate::now() + std::time::Duration::from_secs(20);
    while next < 20 {
        assert!(crate::now() < give_up, "{next} have come");
        if receiver.receive(&mut buffer).unwrap() {
            for datagram in buffer.datagrams() {
                assert_eq!((datagram.bytes[0], datagram.bytes.len()), (next, 1000));
                next += 1;
            }
        }
    }
}
