use std::net::UdpSocket as StdSocket;
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::*;
use crate::tcp::batch::tests::{batch, slice};
use crate::udp::{UdpConfig, UdpSocket};

fn near(address: &str) -> DatagramSender {
    let mut socket = UdpSocket::bind(address.parse().unwrap(), UdpConfig::default()).unwrap();
    socket.sender().unwrap().unwrap()
}

fn far(address: &str) -> (StdSocket, SocketAddr) {
    let socket = StdSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 200_000).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The next datagram; each in one piece, as its receiver has no `UDP_GRO`.
fn receive(socket: &StdSocket) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let (len, _) = socket.recv_from(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn send(batch: Option<&mut SendBatch>, writes: &[GatheredDatagrams<'_>]) -> Vec<io::Result<usize>> {
    let mut sent = Vec::new();
    // SAFETY: the slices are of memory that the callers borrow.
    unsafe { send_gathered(batch, writes, &mut sent) }.unwrap();
    assert_eq!(sent.len(), writes.len());
    sent
}

/// Sends five packets of different heads and one body to this number of receivers.
fn every_receiver_gets_its_own(address: &str, count: usize, mut batch: Option<&mut SendBatch>) {
    let body: Vec<u8> = (0..4500).map(|at| (at / 7) as u8).collect();
    let ends: Vec<_> = (0..count).map(|_| (near(address), far(address))).collect();
    for round in 0..2_u8 {
        let heads: Vec<[[u8; 3]; 5]> =
            (0..count).map(|place| [0, 1, 2, 3, 4].map(|packet| [round, place as u8, packet])).collect();
        let slices: Vec<Vec<IoSlice>> = heads
            .iter()
            .map(|heads| {
                heads.iter().zip(body.chunks(997)).flat_map(|(head, body)| [slice(head), slice(body)])
            })
            .map(Iterator::collect)
            .collect();
        let writes: Vec<_> = ends
            .iter()
            .zip(&slices)
            .map(|((sender, (_, to)), slices)| GatheredDatagrams { sender, to: *to, slices, segment: 1000 })
            .collect();
        let sent = send(batch.as_deref_mut(), &writes);
        assert!(sent.iter().all(|sent| matches!(sent, Ok(4515))), "{sent:?}");
        for (heads, (_, (far, _))) in heads.iter().zip(&ends) {
            for (head, body) in heads.iter().zip(body.chunks(997)) {
                assert_eq!(receive(far), [head, body].concat());
            }
        }
    }
}

#[test]
fn heads_and_bodies_arrive_as_datagrams_of_each_receiver() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for count in [1, 5, SendBatch::MOST + 6] {
            every_receiver_gets_its_own(address, count, None);
            if let Some(mut batch) = batch() {
                every_receiver_gets_its_own(address, count, Some(&mut batch));
            }
        }
    }
}

#[test]
fn a_socket_for_both_families_sends_to_either() {
    let sender = near("[::]:0");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (far, to) = far(address);
        let write =
            GatheredDatagrams { sender: &sender, to, slices: &[slice(b"x"), slice(b"yz")], segment: 2 };
        assert!(matches!(send(None, &[write])[..], [Ok(3)]));
        assert_eq!((receive(&far), receive(&far)), (b"xy".to_vec(), b"z".to_vec()));
    }
}

/// Between receivers that get everything: a closed socket, a destination that is none, one without a receiver, and a packet that is
/// too large.
fn trouble_harms_no_other(mut batch: Option<&mut SendBatch>) {
    let body = vec![5; 70_000];
    let (some, much) = ([slice(&body[..1500])], [slice(&body[..40_000]), slice(&body[..30_000])]);
    let [good, closed, refused] = ["127.0.0.1:0"; 3].map(near);
    let (socket, to) = far("127.0.0.1:0");
    rustix::net::connect(closed.0.socket.as_fd(), &to).unwrap();
    rustix::net::shutdown(&closed.0.socket, rustix::net::Shutdown::Write).unwrap();
    let nobody = far("127.0.0.1:0").1;
    // Only a connected socket hears that nobody listens.
    rustix::net::connect(refused.0.socket.as_fd(), &nobody).unwrap();
    let write = |sender, to, slices, segment| GatheredDatagrams { sender, to, slices, segment };
    for _ in 0..2 {
        let writes = [
            write(&good, to, &some[..], 1000),
            write(&closed, to, &some[..], 1500),
            write(&good, to, &some[..], 1000),
            write(&refused, nobody, &some[..], 1000),
            write(&good, to, &much[..], 70_000),
            write(&good, SocketAddr::new(to.ip(), 0), &some[..], 1000),
            write(&good, to, &some[..], 1000),
        ];
        let sent = send(batch.as_deref_mut(), &writes);
        for place in [0, 2, 6] {
            assert!(matches!(sent[place], Ok(1500)), "{sent:?}");
            assert_eq!((receive(&socket).len(), receive(&socket).len()), (1000, 500));
        }
        assert!(matches!(sent[3], Ok(1500)), "an earlier packet's fate is not this one's: {sent:?}");
        assert!([1, 4, 5].into_iter().all(|place| sent[place].is_err()), "{sent:?}");
    }
}

#[test]
fn a_socket_that_is_closed_or_broken_harms_no_other() {
    trouble_harms_no_other(None);
    if let Some(mut batch) = batch() {
        trouble_harms_no_other(Some(&mut batch));
    }
}

#[test]
fn lack_of_room_is_no_error() {
    let sender = near("127.0.0.1:0");
    let write = GatheredDatagrams { sender: &sender, to: far("127.0.0.1:0").1, slices: &[], segment: 1 };
    let full = io::Error::from_raw_os_error(libc::EAGAIN);
    // SAFETY: there are no slices.
    assert!(matches!(unsafe { write.retry(&mut Message::new(&write), full) }, Ok(0)));
}

#[test]
fn without_segmentation_each_datagram_has_a_call() {
    for mut batch in [None, batch()] {
        let sender = near("127.0.0.1:0");
        let on: libc::c_int = 1;
        // Segmentation needs check sums.
        // SAFETY: the pointer and length describe `on`, which outlives the call.
        let set = unsafe {
            libc::setsockopt(
                sender.0.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        let (far, to) = far("127.0.0.1:0");
        // Datagrams end within slices.
        let body: Vec<u8> = (0..2500).map(|at| at as u8).collect();
        let slices = [slice(&body[..700]), slice(&body[700..1900]), slice(&body[1900..])];
        let write = GatheredDatagrams { sender: &sender, to, slices: &slices, segment: 1000 };
        assert!(matches!(send(batch.as_mut(), &[write])[..], [Ok(2500)]));
        for part in body.chunks(1000) {
            assert_eq!(receive(&far), part);
        }
        assert_eq!(sender.segments(), 1, "it is not tried again");
    }
}

#[test]
fn a_failing_ring_loses_nothing() {
    if batch().is_none() {
        return;
    }
    let mut batch = SendBatch::that_fails();
    let sender = near("127.0.0.1:0");
    let (far, to) = far("127.0.0.1:0");
    let slices = [slice(b"abc")];
    let writes =
        [GatheredDatagrams { sender: &sender, to, slices: &slices, segment: 3 }; SendBatch::MOST + 2];
    let mut sent = Vec::new();
    // SAFETY: the slice outlives the call.
    let outcome = unsafe { send_gathered(Some(&mut batch), &writes, &mut sent) };
    assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::EBADFD));
    assert!(sent.len() == writes.len() && sent.iter().all(|sent| matches!(sent, Ok(3))), "{sent:?}");
    for _ in &writes {
        assert_eq!(receive(&far), b"abc");
    }
}
