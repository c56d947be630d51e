//! The ways that send at the rate of their pictures: the live server, and this program over UDP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use freshwire_netns::testbed::{Testbed, own_runtime, pin, runtime};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::args::{Setting, Way};
use super::figures::{FULL_SEGMENT, Figures};
use super::look::Look;
use crate::bench::machine::ThreadTimes;
use crate::bench::mixed::camera::{self, HandOver, Viewer};
use crate::bench::mixed::receivers::{self, Receivers};
use crate::bench::served::{Plan, Served};
use crate::sendpath::Picture;

/// Bits a second of all pictures together where the link has no limit.
const UNLIMITED: f64 = 1e9;

/// The live server is offered this much of the link: it has to choose.
const OFFERED: f64 = 1.05;

/// Payload of a datagram, and what headers of IP and UDP add.
const DATAGRAM: usize = 1400;
const HEADERS: usize = 28;

/// Bytes of datagrams that may wait at a receiver.
const DATAGRAM_BUFFER: usize = 8 << 20;

/// From one picture to the next of each connection, at a total of `bits` a second.
fn interval(bits: f64, connections: usize, bytes: usize) -> Duration {
    Duration::from_secs_f64((connections * bytes) as f64 * 8.0 / bits)
}

/// `freshwire serve` with that number of viewers, for `time` after they have settled.
pub(super) fn serve(
    testbed: &Testbed,
    way: Way,
    connections: usize,
    setting: Setting,
    time: Duration,
) -> anyhow::Result<Figures> {
    let bytes = setting.picture_bytes();
    let bits = setting.rate.0.map_or(UNLIMITED, |rate| OFFERED * rate as f64);
    let (tcp, udp) = if way == Way::ServerUdp { (0, connections) } else { (connections, 0) };
    let plan = Plan { bytes, interval: interval(bits, connections, bytes), tcp, udp };
    let mut served = Served::start(testbed, plan, || Ok(()))?;
    let arrivals = testbed.arrivals();
    let look = |served: &mut Served| -> anyhow::Result<_> {
        let id = served.id();
        let times = (ThreadTimes::of(id)?, runtime(arrivals));
        Ok((freshwire_io::now(), served.viewers.got()?, times, testbed.counters()?, Look::of_process(id)))
    };
    let before = look(&mut served)?;
    thread::sleep(time);
    let after = look(&mut served)?;
    let [made, left_out] = served.finish()?;
    let got = after.1[usize::from(udp > 0)].since(before.1[usize::from(udp > 0)]);
    ensure!(got.bytes > 0, "no byte came to the server's viewers");
    let seconds = after.0.saturating_since(before.0).as_secs_f64();
    let cpu = after.2.0.since(&before.2.0) + after.2.1.saturating_sub(before.2.1);
    let tcp = after.3 - before.3;
    Ok(Figures {
        throughput: got.bytes as f64 / seconds,
        cpu_per_gb: cpu.as_secs_f64() / (got.bytes as f64 / 1e9),
        fullness: (udp == 0).then(|| got.bytes as f64 / (tcp.segments_out as f64 * FULL_SEGMENT).max(1.0)),
        system_calls: None,
        rates: after.4.since(&before.4),
        acks: (udp == 0).then(|| tcp.segments_in as f64 / seconds),
        filtered: None,
        window: None,
        of_offered: Some(got.pictures as f64 * plan.interval.as_secs_f64() / seconds / connections as f64),
        of_due: Some(made as f64 / (made + left_out).max(1) as f64),
    })
}

/// One thread that sends each picture to each of that number of receivers, for `time`.
pub(super) fn datagrams(
    testbed: &Testbed,
    way: Way,
    connections: usize,
    setting: Setting,
    time: Duration,
) -> anyhow::Result<Figures> {
    let mut bytes = setting.picture_bytes();
    // The last datagram of a picture has to be a short one.
    bytes -= usize::from(bytes.is_multiple_of(DATAGRAM));
    let picture = Picture::new(&vec![7; bytes])?;
    let on_wire = bytes as f64 + (bytes.div_ceil(DATAGRAM) * HEADERS) as f64;
    let bits = setting.rate.0.map_or(UNLIMITED, |rate| rate as f64) * bytes as f64 / on_wire;
    let rate = 1.0 / interval(bits, connections, bytes).as_secs_f64();
    let plan = camera::Plan { picture: &picture, hand_over: HandOver::Copy, datagram: DATAGRAM, rate, time };
    let (udp, sound) = testbed.in_far(|| {
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::new(testbed.address().ip(), 0))?;
            set_socket_recv_buffer_size_force(&socket, DATAGRAM_BUFFER)?;
            Ok(socket)
        };
        io::Result::Ok(((0..connections).map(|_| bind()).collect::<io::Result<Vec<_>>>()?, bind()?))
    })??;
    let viewer = |receiver: &UdpSocket| -> anyhow::Result<Viewer> {
        let to = receiver.local_addr()?;
        let socket = testbed.in_near(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        if way == Way::UdpOffload {
            return Ok(Viewer::UdpBatches(freshwire_io::udp::UdpSocket::from_std(socket)?, to));
        }
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(Viewer::Udp(socket))
    };
    let mut viewers = udp.iter().map(viewer).collect::<anyhow::Result<Vec<_>>>()?;
    let receivers = Receivers { tcp: Vec::new(), udp, sound };
    let stop = AtomicBool::new(false);
    let (ran, arrived) = thread::scope(|scope| {
        let far = scope.spawn(|| {
            pin(1);
            receivers::run(&receivers, bytes, DATAGRAM, &stop)
        });
        let ran = testbed.in_near(|| {
            pin(0);
            let before = (Look::of_this_thread(), own_runtime());
            let done = camera::run(&mut viewers, &plan)?;
            anyhow::Ok((
                done,
                Look::of_this_thread().since(&before.0),
                own_runtime().saturating_sub(before.1),
            ))
        });
        stop.store(true, Ordering::Release);
        let arrived = far.join().map_err(|_| anyhow!("the receiver panicked"))?;
        anyhow::Ok((ran??, arrived.context("the receivers")?))
    })?;
    let (done, rates, cpu) = ran;
    ensure!(arrived.udp_bytes > 0, "no datagram came");
    let gigabytes = arrived.udp_bytes as f64 / 1e9;
    Ok(Figures {
        throughput: arrived.udp_bytes as f64 / time.as_secs_f64(),
        cpu_per_gb: cpu.as_secs_f64() / gigabytes,
        fullness: None,
        system_calls: Some(done.system_calls as f64 / gigabytes),
        rates,
        acks: None,
        filtered: None,
        window: None,
        of_offered: Some(arrived.udp_pictures as f64 / (rate * time.as_secs_f64()) / connections as f64),
        of_due: None,
    })
}
