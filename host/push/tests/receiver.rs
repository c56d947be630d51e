//! Real sockets on loopback, and a program that stalls.
#![expect(clippy::disallowed_methods, reason = "conditions have deadlines by the clock")]

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use freshwire_netns::trust::{Trial, measure};
use freshwire_push::{Backend, Config, NoRing, Policy, Pump, Reason, Receiver, Tag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(20);

/// Each test with a thread alone, and with `io_uring` where the policy allows it.
macro_rules! with_both_backends {
    ($($name:ident)*) => {
        mod thread {
            $(#[test] fn $name() { super::$name(super::Backend::Thread); })*
        }
        mod io_uring {
            $(#[test] fn $name() { if super::has_io_uring() { super::$name(super::Backend::Auto); } })*
        }
    };
}

with_both_backends! {
    stalled_program_loses_nothing
    stall_after_a_wait_loses_nothing
    drops_of_the_kernel_are_counted
    truncation_and_peek_are_those_of_a_socket
    datagrams_of_any_size_arrive_after_a_wait
    arrival_time_and_congestion_marks_are_the_kernels
    timeouts_and_nonblocking_receives_end
    descriptor_is_readable_exactly_while_something_waits
    several_threads_share_a_receiver
    under_overload_nothing_older_than_the_deadline_is_read
    by_key_at_most_one_datagram_of_each_waits
    by_the_kernels_rule_a_full_memory_is_read_from_its_oldest
    alarm_comes_before_memory_is_full
    a_refused_connection_is_reported_once
    what_one_thread_brings_is_seen_by_the_others
    off_by_default_also_on_a_socket_that_coalesced
}

fn has_io_uring() -> bool {
    let probe = freshwire_push::probe_io_uring();
    if let Err(error) = &probe {
        assert!(std::env::var_os("CI").is_none(), "no io_uring: {error}");
        eprintln!("skipped: no io_uring: {error}");
    }
    probe.is_ok()
}

fn pair(backend: Backend, config: Config) -> (Receiver, UdpSocket) {
    pair_at(backend, "127.0.0.1:0", config)
}

fn pair_at(backend: Backend, address: &str, config: Config) -> (Receiver, UdpSocket) {
    let rings = backend == Backend::Auto && matches!(config.policy, Policy::Newest) && !config.coalesces;
    let config = Config { backend, ..config };
    let socket = UdpSocket::bind(address).expect("bind");
    let target = socket.local_addr().expect("address");
    let sender = UdpSocket::bind(address).expect("bind");
    sender.connect(target).expect("connect");
    let receiver = Receiver::with_config(socket, config).expect("receiver");
    let pump = receiver.statistics().expect("statistics").pump;
    assert_eq!(matches!(pump, Pump::IoUring(_)), rings, "{pump:?}");
    receiver.set_read_timeout(Some(LONG)).expect("timeout");
    (receiver, sender)
}

fn small_kernel_buffer(policy: Policy) -> Config {
    Config { kernel_buffer: Some(32 << 10), policy, ..Config::default() }
}

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut payload = vec![0; len];
    payload[..4].copy_from_slice(&number.to_ne_bytes());
    payload
}

fn number(payload: &[u8]) -> u32 {
    u32::from_ne_bytes(payload[..4].try_into().expect("four bytes"))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LONG, "not within {LONG:?}: {what}");
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends without outrunning the pusher for longer than the kernel's buffer lasts, whatever else the machine
/// does. Waits until the sent datagrams have left the kernel's buffer or may stay there.
fn send_all(receiver: &Receiver, sender: &UdpSocket, payloads: impl Iterator<Item = Vec<u8>>) {
    let mut sent = 0;
    for (index, payload) in payloads.enumerate() {
        sender.send(&payload).expect("send");
        sent += 1;
        if index % 10 == 9 {
            wait_until("the pusher keeps the buffer below its threshold", || {
                let statistics = receiver.statistics().expect("statistics");
                let used = freshwire_push::sys::memory(std::os::fd::AsRawFd::as_raw_fd(receiver.socket()));
                used.expect("memory").used <= statistics.threshold
            });
        }
    }
    assert!(sent > 0);
}

fn stalled_program_loses_nothing(backend: Backend) {
    let (receiver, sender) = pair(backend, small_kernel_buffer(Policy::Newest));
    const COUNT: u32 = 5000;
    // The kernel's buffer holds some thirty of these.
    send_all(&receiver, &sender, (0..COUNT).map(|number| numbered(number, 1400)));
    let mut buffer = [0; 2048];
    for expected in 0..COUNT {
        let received = receiver.receive(&mut buffer).expect("datagram");
        assert_eq!((number(&buffer), received.len), (expected, 1400));
        assert_eq!(received.source, sender.local_addr().expect("address"));
    }
    assert_eq!(receiver.try_receive(&mut buffer).expect_err("nothing is left").kind(), ErrorKind::WouldBlock);
    let statistics = receiver.statistics().expect("statistics");
    assert_eq!((statistics.kernel_drops, statistics.drops.total()), (0, 0), "{statistics:?}");
    assert!(statistics.pushes > 10 && statistics.pushed > 4000, "{statistics:?}");
    assert!(statistics.peak > 4000 * 1400 && statistics.occupied == 0, "{statistics:?}");
}

fn stall_after_a_wait_loses_nothing(backend: Backend) {
    let (receiver, sender) = pair(backend, small_kernel_buffer(Policy::Newest));
    let mut buffer = [0; 2048];
    const COUNT: u32 = 1500;
    for round in 0..3 {
        // Nothing is there: the receive waits, and with io_uring the kernel goes on receiving after it.
        let begin = round * (COUNT + 1);
        std::thread::scope(|scope| {
            let sender = &sender;
            scope.spawn(move || {
                // Pause: the datagram comes while the receiver waits.
                std::thread::sleep(Duration::from_millis(5));
                sender.send(&numbered(begin, 1400)).expect("send");
            });
            assert_eq!(receiver.recv(&mut buffer).expect("datagram"), 1400);
        });
        assert_eq!(number(&buffer), begin);
        send_all(&receiver, &sender, (0..COUNT).map(|number| numbered(begin + 1 + number, 1400)));
        assert!(receiver.statistics().expect("statistics").waiting >= COUNT as usize / 2);
        for expected in 0..COUNT {
            receiver.recv(&mut buffer).expect("datagram");
            assert_eq!(number(&buffer), begin + 1 + expected);
        }
    }
    let statistics = receiver.statistics().expect("statistics");
    assert_eq!((statistics.kernel_drops, statistics.drops.total(), statistics.waiting), (0, 0, 0));
}

fn drops_of_the_kernel_are_counted(backend: Backend) {
    let memory = Config { memory: 0, ..small_kernel_buffer(Policy::Newest) };
    let (receiver, sender) = pair(backend, memory);
    for number in 0..500 {
        sender.send(&numbered(number, 1400)).expect("send");
    }
    // Memory for 130 datagrams and a kernel buffer for thirty: most are lost, and each is known of.
    let mut buffer = [0; 2048];
    let mut received = 0;
    wait_until("500 datagrams are accounted for", || {
        while receiver.try_receive(&mut buffer).is_ok() {
            received += 1;
        }
        let statistics = receiver.statistics().expect("statistics");
        received + u64::from(statistics.kernel_drops) + statistics.drops.total() == 500
    });
    assert!(received < 500);
}

fn truncation_and_peek_are_those_of_a_socket(backend: Backend) {
    let (receiver, sender) = pair(backend, Config::default());
    sender.send(&[5; 100]).expect("send");
    sender.send(&[]).expect("send");
    let mut buffer = [0; 10];
    let peeked = receiver.peek(&mut buffer).expect("datagram");
    assert_eq!((peeked.len, peeked.datagram_len, peeked.is_truncated()), (10, 100, true));
    assert_eq!(receiver.receive(&mut buffer).expect("datagram"), peeked);
    assert_eq!(buffer, [5; 10]);
    assert_eq!(receiver.recv(&mut buffer).expect("an empty datagram"), 0);
}

fn datagrams_of_any_size_arrive_after_a_wait(backend: Backend) {
    let (receiver, sender) = pair(backend, Config { longest: 9000, ..Config::default() });
    let (whole, sender_of_whole) = pair(backend, Config::default());
    let mut buffer = vec![0; 70_000];
    receiver.set_read_timeout(Some(Duration::from_millis(1))).expect("timeout");
    for (receiver, sender, longest) in [(&receiver, &sender, 9000), (&whole, &sender_of_whole, 65_507)] {
        for round in 0..3_u8 {
            receiver.set_read_timeout(Some(Duration::from_millis(1))).expect("timeout");
            assert_eq!(receiver.recv(&mut buffer).expect_err("empty").kind(), ErrorKind::WouldBlock);
            receiver.set_read_timeout(Some(LONG)).expect("timeout");
            for len in [0, 1, 9000, 0, 0, 65_507, 1400] {
                sender.send(&vec![round + 1; len]).expect("send");
                let received = receiver.receive(&mut buffer).expect("datagram");
                assert_eq!(received.datagram_len, len);
                // Only a lane cuts off: what is received directly, or was pushed, is whole.
                assert!(received.len == len || received.len >= longest, "{received:?}");
                assert!(buffer[..received.len].iter().all(|byte| *byte == round + 1));
            }
        }
    }
}

fn arrival_time_and_congestion_marks_are_the_kernels(backend: Backend) {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(probe) = UdpSocket::bind(address) else {
            assert!(std::env::var_os("CI").is_none(), "no {address}");
            eprintln!("skipped: {address} cannot be bound");
            continue;
        };
        drop(probe);
        let (receiver, sender) = pair_at(backend, address, Config::default());
        let fd = std::os::fd::AsRawFd::as_raw_fd(&sender);
        let (level, option) = if address.starts_with('[') {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        freshwire_push::sys::set_int(fd, level, option, 3).expect("mark");
        measure(&format!("push: the stamp of {address}"), Duration::from_millis(1), || {
            let before = freshwire_push::sys::now();
            sender.send(b"marked").expect("send");
            let sent = freshwire_push::sys::now();
            // Pause: the datagram waits, and its stamp stays.
            std::thread::sleep(Duration::from_millis(20));
            let received = receiver.receive(&mut [0; 100]).expect("datagram");
            assert_eq!(received.ecn, 3, "{address}");
            // The stamp is the arrival's, not the receive's; the clocks' conversion is good to a millisecond.
            assert!(received.arrived + Duration::from_millis(1) >= before, "{address}");
            let late = received.arrived.saturating_since(sent);
            Trial::new(late <= Duration::from_millis(10), || format!("{late:?} after it was sent"))
        });
    }
}

fn timeouts_and_nonblocking_receives_end(backend: Backend) {
    let (receiver, _sender) = pair(backend, Config::default());
    let mut buffer = [0; 10];
    receiver.set_read_timeout(Some(Duration::from_millis(30))).expect("timeout");
    let begin = Instant::now();
    assert_eq!(receiver.recv(&mut buffer).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
    assert!(begin.elapsed() >= Duration::from_millis(29));
    assert_eq!(
        receiver.set_read_timeout(Some(Duration::ZERO)).expect_err("zero").kind(),
        ErrorKind::InvalidInput
    );
    receiver.set_read_timeout(None).expect("timeout");
    receiver.set_nonblocking(true);
    assert_eq!(receiver.recv(&mut buffer).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
}

fn is_readable(receiver: &Receiver, timeout: Duration) -> bool {
    let fd = receiver.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut fds, Some(&timeout)).expect("poll") == 1
}

fn descriptor_is_readable_exactly_while_something_waits(backend: Backend) {
    let (receiver, sender) = pair(backend, small_kernel_buffer(Policy::Newest));
    assert!(!is_readable(&receiver, Duration::ZERO));
    send_all(&receiver, &sender, (0..1000).map(|number| numbered(number, 1400)));
    let mut buffer = [0; 2048];
    for expected in 0..1000 {
        assert!(is_readable(&receiver, LONG), "before datagram {expected}");
        receiver.try_receive(&mut buffer).expect("datagram");
        assert_eq!(number(&buffer), expected);
    }
    assert!(!is_readable(&receiver, Duration::ZERO));
    assert!(receiver.statistics().expect("statistics").pushed > 0);
}

/// A pair whose receiver asks for coalescing, which takes a thread.
fn coalescing_pair(config: Config) -> (Receiver, UdpSocket) {
    pair(Backend::Auto, Config { coalesces: true, ..config })
}

/// Hands `count` datagrams of this length to the kernel at once, and a shorter one behind them.
fn send_coalesced(sender: &UdpSocket, first: u32, count: u32, len: usize) {
    let fd = std::os::fd::AsRawFd::as_raw_fd(sender);
    let set = |len: usize| {
        let len = i32::try_from(len).expect("a length");
        freshwire_push::sys::set_int(fd, libc::SOL_UDP, libc::UDP_SEGMENT, len).expect("UDP_SEGMENT")
    };
    set(len);
    let mut all: Vec<u8> = (0..count).flat_map(|index| numbered(first + index, len)).collect();
    all.extend(numbered(first + count, len / 2));
    sender.send(&all).expect("send");
    set(0);
}

#[test]
fn coalesced_datagrams_come_one_by_one() {
    for len in [16, 64, 1400] {
        let (receiver, sender) =
            coalescing_pair(Config { kernel_buffer: Some(256 << 10), ..Config::default() });
        sockopt::set_ip_tos(&sender, 1).expect("ECT(1)");
        const AT_ONCE: u32 = 40;
        let mut buffer = [0; 2048];
        let mut expected = 0;
        // The program waits, is busy for longer than the kernel's buffer lasts, and waits again.
        for burst in [1, 100, 1, 1] {
            let first = expected;
            for index in 0..burst {
                send_coalesced(&sender, first + index * (AT_ONCE + 1), AT_ONCE, len);
                wait_until("the pusher keeps the buffer below its threshold", || {
                    let fd = std::os::fd::AsRawFd::as_raw_fd(receiver.socket());
                    let used = freshwire_push::sys::memory(fd).expect("memory").used;
                    used <= receiver.statistics().expect("statistics").threshold
                });
            }
            for index in 0..burst * (AT_ONCE + 1) {
                let is_last = index % (AT_ONCE + 1) == AT_ONCE;
                let received = receiver.receive(&mut buffer).expect("datagram");
                assert_eq!(number(&buffer), first + index);
                assert_eq!(received.len, if is_last { len / 2 } else { len }, "{len}: {index}");
                assert_eq!((received.ecn, received.is_truncated()), (1, false));
                assert_eq!(received.source, sender.local_addr().expect("address"));
                expected += 1;
            }
        }
        let statistics = receiver.statistics().expect("statistics");
        assert_eq!((statistics.kernel_drops, statistics.drops.total(), statistics.waiting), (0, 0, 0));
        assert_eq!(statistics.no_coalescing, None);
        assert_eq!(statistics.coalesced, u64::from(expected), "{statistics:?}");
    }
}

#[test]
fn coalesced_and_single_datagrams_mix() {
    let (receiver, sender) = coalescing_pair(Config::default());
    let mut buffer = [0; 100];
    for round in 0..20 {
        for index in 0..round {
            sender.send(&numbered(index, 64)).expect("send");
            assert_eq!((receiver.recv(&mut buffer).expect("datagram"), number(&buffer)), (64, index));
        }
        send_coalesced(&sender, 0, 30, 64);
        for index in 0..31 {
            let len = receiver.recv(&mut buffer).expect("datagram");
            assert_eq!((len, number(&buffer)), (if index == 30 { 32 } else { 64 }, index));
        }
    }
    assert_eq!(receiver.statistics().expect("statistics").coalesced, 20 * 31);
}

/// Datagrams for several threads that wait, each for one: none waits for ever.
fn threads_receive_one_each(mut pair: impl FnMut() -> (Receiver, UdpSocket), send: impl Fn(&UdpSocket, u32)) {
    const THREADS: u32 = 4;
    for _ in 0..20 {
        let (receiver, sender) = pair();
        let mut all: Vec<u32> = std::thread::scope(|scope| {
            let receive = || {
                let mut buffer = [0; 100];
                receiver.recv(&mut buffer).map(|_| number(&buffer))
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(receive)).collect();
            // Pause: for the threads to wait, which nothing outside shows.
            std::thread::sleep(Duration::from_millis(20));
            send(&sender, THREADS);
            threads.into_iter().map(|thread| thread.join().expect("a thread").expect("a datagram")).collect()
        });
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..THREADS));
    }
}

fn what_one_thread_brings_is_seen_by_the_others(backend: Backend) {
    threads_receive_one_each(
        || pair(backend, Config::default()),
        |sender, count| {
            for index in 0..count {
                sender.send(&numbered(index, 64)).expect("send");
            }
        },
    );
}

/// All but the first one may be in the kernel's call when the datagrams come.
#[test]
fn coalesced_datagrams_are_seen_by_all_threads() {
    threads_receive_one_each(
        || coalescing_pair(Config::default()),
        |sender, count| send_coalesced(sender, 0, count - 1, 64),
    );
}

#[test]
fn a_small_memory_coalesces_nothing() {
    for (memory, no_coalescing) in [(64 << 10, Some(0)), ((256 << 10) - 1, Some(0)), (256 << 10, None)] {
        let (receiver, sender) = coalescing_pair(Config { memory, ..Config::default() });
        send_coalesced(&sender, 0, 127, 500);
        let mut buffer = [0; 1000];
        for index in 0..128 {
            let len = receiver.recv(&mut buffer).expect("datagram");
            assert_eq!((len, number(&buffer)), (if index == 127 { 250 } else { 500 }, index), "{memory}");
        }
        let statistics = receiver.statistics().expect("statistics");
        assert_eq!((statistics.no_coalescing, statistics.drops.total()), (no_coalescing, 0), "{memory}");
        assert_eq!(statistics.no_ring, Some(NoRing::Coalesces), "{memory}");
    }
}

fn off_by_default_also_on_a_socket_that_coalesced(backend: Backend) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    sender.connect(socket.local_addr().expect("address")).expect("connect");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    freshwire_push::sys::set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1).expect("UDP_GRO");
    let receiver = Receiver::with_config(socket, Config { backend, ..Config::default() }).expect("receiver");
    receiver.set_read_timeout(Some(LONG)).expect("timeout");
    let mut buffer = [0; 1000];
    for _ in 0..2 {
        send_coalesced(&sender, 0, 9, 64);
        for index in 0..10 {
            let len = receiver.recv(&mut buffer).expect("datagram");
            assert_eq!((len, number(&buffer)), (if index == 9 { 32 } else { 64 }, index));
        }
    }
    let statistics = receiver.statistics().expect("statistics");
    assert_eq!((statistics.no_coalescing, statistics.coalesced), (Some(0), 0));
}

fn several_threads_share_a_receiver(backend: Backend) {
    let (receiver, sender) = pair(backend, small_kernel_buffer(Policy::Newest));
    const COUNT: u32 = 2000;
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut mine, mut buffer) = (Vec::new(), [0; 2048]);
                    loop {
                        receiver.recv(&mut buffer).expect("datagram");
                        if number(&buffer) == u32::MAX {
                            return mine;
                        }
                        mine.push(number(&buffer));
                    }
                })
            })
            .collect();
        send_all(&receiver, &sender, (0..COUNT).map(|number| numbered(number, 1400)));
        send_all(&receiver, &sender, (0..4).map(|_| numbered(u32::MAX, 4)));
        threads.into_iter().flat_map(|thread| thread.join().expect("thread")).collect()
    });
    all.sort_unstable();
    assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
}

fn under_overload_nothing_older_than_the_deadline_is_read(backend: Backend) {
    // A tenth of what the check itself may take.
    measure("push: the age of what is read", Duration::from_millis(2), || oldest_under_overload(backend));
}

fn oldest_under_overload(backend: Backend) -> Trial {
    let lifetime = Duration::from_millis(50);
    let (receiver, sender) = pair(backend, small_kernel_buffer(Policy::Deadline(lifetime)));
    let begin = Instant::now();
    let (mut read, mut number) = (0, 0);
    let mut oldest = Duration::ZERO;
    let mut buffer = [0; 2048];
    while begin.elapsed() < Duration::from_millis(600) {
        for _ in 0..10 {
            sender.send(&numbered(number, 1400)).expect("send");
            number += 1;
        }
        // Ten come in the time that the program needs for one.
        // Pause: a program that is busy.
        std::thread::sleep(Duration::from_millis(2));
        if let Ok(received) = receiver.try_receive(&mut buffer) {
            oldest = oldest.max(freshwire_push::sys::now().saturating_since(received.arrived));
            read += 1;
        }
    }
    let statistics = receiver.statistics().expect("statistics");
    assert!(statistics.drops.of(Reason::Expired) > 0, "{statistics:?}");
    // What the check itself takes on a busy machine comes on top.
    let is_fresh = oldest <= lifetime + Duration::from_millis(20);
    Trial::new(is_fresh && read > 5, || format!("{read} read, the oldest {oldest:?} old"))
}

fn by_key_at_most_one_datagram_of_each_waits(backend: Backend) {
    let classify =
        Box::new(|payload: &[u8]| Tag { key: Some(u64::from(number(payload) % 8)), lifetime: None });
    let config = Config { classify: Some(classify), ..small_kernel_buffer(Policy::LatestByKey) };
    let (receiver, sender) = pair(backend, config);
    send_all(&receiver, &sender, (0..1000).map(|number| numbered(number, 1400)));
    let mut buffer = [0; 2048];
    let mut read = Vec::new();
    while receiver.try_receive(&mut buffer).is_ok() {
        read.push(number(&buffer));
    }
    assert_eq!(read, (992..1000).collect::<Vec<_>>(), "the newest of each key, in order");
    assert_eq!(receiver.statistics().expect("statistics").drops.of(Reason::Superseded), 992);
}

fn by_the_kernels_rule_a_full_memory_is_read_from_its_oldest(backend: Backend) {
    const MEMORY: usize = 1 << 20;
    const MOST: u32 = (MEMORY / 1400) as u32;
    let config = Config { memory: MEMORY, ..small_kernel_buffer(Policy::Newest) };
    let (receiver, sender) = pair(backend, config);
    let mut sent = 0;
    while receiver.statistics().expect("statistics").occupied < MEMORY * 9 / 10 {
        assert!(sent < 2 * MOST, "{sent} datagrams do not fill the memory");
        send_all(&receiver, &sender, (sent..sent + 10).map(|number| numbered(number, 1400)));
        sent += 10;
    }
    // Far more than is free, in the memory and in the kernel's buffer.
    for number in sent..sent + 500 {
        sender.send(&numbered(number, 1400)).expect("send");
    }
    let mut buffer = [0; 2048];
    let next = || receiver.try_receive(&mut buffer).ok().map(|_| number(&buffer));
    let read: Vec<u32> = std::iter::from_fn(next).collect();
    // The first one is older than a whole memory of others, and of the last ones most are gone.
    assert!(read.first() == Some(&0) && read.is_sorted(), "{read:?}");
    assert!(read.len() * 1536 >= MEMORY * 9 / 10, "{} datagrams", read.len());
    assert!(read.len() < (sent + 500) as usize - 400, "{} datagrams of {}", read.len(), sent + 500);
}

fn alarm_comes_before_memory_is_full(backend: Backend) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static ALARMS: AtomicU32 = AtomicU32::new(0);
    let before = ALARMS.load(Ordering::Relaxed);
    let config = Config {
        memory: 1 << 20,
        alarm: Some(|| {
            ALARMS.fetch_add(1, Ordering::Relaxed);
        }),
        ..small_kernel_buffer(Policy::Oldest)
    };
    let (receiver, sender) = pair(backend, config);
    send_all(&receiver, &sender, (0..1200).map(|number| numbered(number, 1400)));
    wait_until("the alarm", || ALARMS.load(Ordering::Relaxed) > before);
    assert_eq!(receiver.statistics().expect("statistics").alarms, 1, "once until it is half empty");
}

fn a_refused_connection_is_reported_once(backend: Backend) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let nobody = UdpSocket::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    socket.connect(nobody).expect("connect");
    let receiver = Receiver::with_config(socket, Config { backend, ..Config::default() }).expect("receiver");
    receiver.set_read_timeout(Some(LONG)).expect("timeout");
    receiver.socket().send(b"anybody?").expect("send");
    assert_eq!(receiver.recv(&mut [0; 10]).expect_err("refused").kind(), ErrorKind::ConnectionRefused);
    assert_eq!(receiver.try_receive(&mut [0; 10]).expect_err("once").kind(), ErrorKind::WouldBlock);
}

mod ring {
    use super::*;

    fn waiting_pair(config: Config) -> Option<(Receiver, UdpSocket)> {
        has_io_uring().then(|| {
            let (receiver, sender) = pair(Backend::Auto, config);
            arm(&receiver);
            (receiver, sender)
        })
    }

    /// After a receive that found nothing the kernel receives for this thread.
    fn arm(receiver: &Receiver) {
        let error = receiver.try_receive(&mut [0; 10]).expect_err("nothing waits");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_second_thread_ends_it_and_takes_over() {
        let Some((receiver, sender)) = waiting_pair(small_kernel_buffer(Policy::Newest)) else { return };
        send_all(&receiver, &sender, (0..100).map(|number| numbered(number, 1400)));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut buffer = [0; 2048];
                for expected in 0..200 {
                    if expected == 100 {
                        send_all(&receiver, &sender, (100..200).map(|number| numbered(number, 1400)));
                    }
                    receiver.recv(&mut buffer).expect("datagram");
                    assert_eq!(number(&buffer), expected);
                }
                receiver.try_receive(&mut buffer).expect_err("nothing is left");
            });
            second.join().expect("second thread");
        });
        let statistics = receiver.statistics().expect("statistics");
        // Unless the pusher had ended the request of the first thread before, which was late.
        assert!(matches!(statistics.no_ring, None | Some(NoRing::SecondThread)), "{statistics:?}");
        assert_eq!(matches!(statistics.pump, Pump::Thread(_)), statistics.no_ring.is_some());
    }

    #[test]
    fn a_thread_that_has_ended_leaves_it_to_the_next() {
        if !has_io_uring() {
            return;
        }
        let (receiver, sender) = pair(Backend::Auto, small_kernel_buffer(Policy::Newest));
        let mut buffer = [0; 2048];
        for round in 0..4 {
            std::thread::scope(|scope| {
                scope.spawn(|| arm(&receiver)).join().expect("owner");
            });
            send_all(&receiver, &sender, (0..100).map(|number| numbered(round * 100 + number, 1400)));
            std::thread::scope(|scope| {
                let next = scope.spawn(|| {
                    for expected in 0..100 {
                        receiver.recv(&mut buffer).expect("datagram");
                        assert_eq!(number(&buffer), round * 100 + expected);
                    }
                });
                next.join().expect("next thread");
            });
        }
        assert_eq!(receiver.statistics().expect("statistics").no_ring, None);
    }

    #[test]
    fn receivers_are_dropped_while_the_kernel_receives() {
        for round in 0..50 {
            let Some((receiver, sender)) = waiting_pair(small_kernel_buffer(Policy::Newest)) else { return };
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    for number in 0..200 {
                        // Refused once the receiver is gone.
                        let _ = sender.send(&numbered(number, 1400));
                    }
                });
                if round % 2 == 0 {
                    drop(receiver);
                } else {
                    scope.spawn(move || drop(receiver));
                }
                sending.join().expect("sender");
            });
        }
    }

    #[test]
    fn an_owner_that_cannot_run_loses_nothing() {
        let Some((receiver, sender)) = waiting_pair(small_kernel_buffer(Policy::Newest)) else { return };
        const COUNT: u32 = 1000;
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                send_all(&receiver, &sender, (0..COUNT).map(|number| numbered(number, 1400)));
            });
            sleep_without_being_woken(Duration::from_millis(300));
            sending.join().expect("sender");
        });
        let mut buffer = [0; 2048];
        for expected in 0..COUNT {
            receiver.recv(&mut buffer).expect("datagram");
            assert_eq!(number(&buffer), expected);
        }
        // And the ring serves on.
        arm(&receiver);
        sender.send(b"again").expect("send");
        assert_eq!(receiver.recv(&mut buffer).expect("datagram"), 5);
        assert_eq!(receiver.statistics().expect("statistics").no_ring, None);
    }

    /// The calling thread is in the kernel, where only the end of a child wakes it.
    fn sleep_without_being_woken(time: Duration) {
        extern "C" fn child(time: *mut libc::c_void) -> libc::c_int {
            // SAFETY: the parent's value, which waits for this child.
            unsafe { libc::nanosleep(time.cast(), std::ptr::null_mut()) };
            0
        }
        let mut stack = vec![0_u128; 4096];
        let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let argument = (&raw const time).cast_mut().cast();
        // SAFETY: the child runs on the stack's upper end, calls nothing but a system call, and has ended when this returns.
        let process = unsafe { libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, argument) };
        assert!(process > 0, "{}", std::io::Error::last_os_error());
        // SAFETY: waits for that child.
        unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
    }
}

#[cfg(feature = "tokio")]
#[test]
fn asynchronous_receives_wake() {
    use freshwire_push::AsyncReceiver;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let (receiver, sender) = pair(Backend::Auto, small_kernel_buffer(Policy::Newest));
        let receiver = AsyncReceiver::new(receiver).expect("registered");
        let mut buffer = [0; 2048];
        assert!(
            tokio::time::timeout(Duration::from_millis(20), receiver.receive(&mut buffer)).await.is_err()
        );
        for round in 0..20 {
            let late = sender.try_clone().expect("clone");
            let thread = std::thread::spawn(move || {
                // Pause: the datagrams come while the receiver waits.
                std::thread::sleep(Duration::from_millis(5));
                for number in 0..10 {
                    late.send(&numbered(round * 10 + number, 1400)).expect("send");
                }
            });
            for number_expected in 0..10 {
                let received = tokio::time::timeout(LONG, receiver.receive(&mut buffer)).await;
                assert_eq!(received.expect("in time").expect("datagram").len, 1400);
                assert_eq!(number(&buffer), round * 10 + number_expected);
            }
            thread.join().expect("sender");
        }
        send_all(receiver.get_ref(), &sender, (0..500).map(|number| numbered(number, 1400)));
        for expected in 0..500 {
            let received = tokio::time::timeout(LONG, receiver.recv_from(&mut buffer)).await;
            received.expect("in time").expect("datagram");
            assert_eq!(number(&buffer), expected);
        }
    });
}
