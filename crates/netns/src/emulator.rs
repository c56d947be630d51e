use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use freshwire_link::{Config, Counters, Direction, Path, Verdict};
use freshwire_record::{Rate, Timestamp};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use super::drops::{DeviceDrops, Drops};
use super::error::NetnsError;
use super::lateness::Histogram;
use super::namespaces::{FAR, MIDDLE_FAR_INDEX, MIDDLE_NEAR_INDEX, NEAR, Namespaces, enter};
use super::packet::{PacketSocket, Received};
use super::pcapng::{Course, Entry, PacketLog, Place};

use freshwire_io::poll::wait_precisely;

/// Above this the 99th percentile of lateness makes a run untrustworthy. Chosen, not measured.
const LATENESS_LIMIT: Duration = Duration::from_millis(1);

/// The shortest slice that the kernel grants (`__setparam_fair` in kernel/sched/syscalls.c: 0.1 ms).
const SHORT_SLICE_NS: u64 = 100_000;

const ETHERNET_HEADER_BYTES: usize = 14;

/// Frames taken from one side before the other side and the deadlines get their turn. Chosen, not measured.
const BATCH_FRAMES: usize = 64;

/// What an [`Emulator`] does beside carrying packets.
#[derive(Clone, Debug, Default)]
pub struct EmulatorOptions {
    /// Where to write a packet log in pcapng format: interface 0 is the near side, 1 the far side. The comment of a
    /// dropped or lost packet says so.
    pub packet_log: Option<PathBuf>,
    /// From this time after the start on, no UDP passes, as behind many firewalls. Default: `None`, it always does.
    pub no_udp_from: Option<Duration>,
}

/// The thread that carries packets between the near and the far namespace. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    /// `None` while it is stopped.
    requests: Option<mpsc::Sender<Request>>,
    /// Becomes readable when there is a request.
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<Account>>,
}

/// What the emulator's thread is asked for.
#[derive(Debug)]
enum Request {
    SetRate(Direction, Option<Rate>),
    Snapshot(mpsc::SyncSender<Snapshot>),
}

/// What a running emulator has done so far, and what waits in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// From near to far.
    pub up: DirectionSnapshot,
    /// From far to near.
    pub down: DirectionSnapshot,
    /// How late packets were handed over, over both directions.
    pub lateness: Lateness,
}

/// One direction of a running emulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionSnapshot {
    /// The model's counters.
    pub link: Counters,
    /// Bytes that wait for the transmitter.
    pub queued_bytes: u64,
}

/// What an emulator did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Account {
    /// From near to far.
    pub up: DirectionAccount,
    /// From far to near.
    pub down: DirectionAccount,
    /// How late packets were handed over, over both directions.
    pub lateness: Lateness,
    /// Frames that were not for the link: not IP, or not from one end to the other.
    pub ignored_frames: u64,
    /// The emulator's thread ran with real-time priority.
    pub real_time: bool,
    /// Why the machine did not carry what the model says; empty if it did.
    pub faults: Vec<String>,
}

/// What an emulator did in one direction.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DirectionAccount {
    /// The model's counters.
    pub link: Counters,
    /// Frames that the emulator was too slow to take in.
    pub missed_frames: u64,
    /// Frames longer than the MTU, which were not carried.
    pub oversized_frames: u64,
    /// Frames that the kernel did not take at the far end.
    pub send_errors: u64,
    /// Frames that the kernel dropped between the emulator and an end, because its own queue was full.
    pub kernel_drops: u64,
    /// Datagrams of UDP that were dropped, as [`EmulatorOptions::no_udp_from`] asks for.
    pub dropped_udp: u64,
}

/// The difference between a packet's handover and the instant that the model gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lateness {
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// The worst.
    pub max: Duration,
}

impl Account {
    /// Whether the run was what the model says: nothing missed, and 99 % of all packets at most a millisecond late.
    pub fn is_trustworthy(&self) -> bool {
        self.faults.is_empty()
    }
}

impl Emulator {
    /// Starts carrying. The schedules of `up` (near to far) and `down` (far to near) count from now.
    ///
    /// # Errors
    ///
    /// If a packet socket, the packet log or the thread cannot be made.
    pub fn start(
        namespaces: &Namespaces,
        up: Config,
        down: Config,
        options: EmulatorOptions,
    ) -> Result<Self, NetnsError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| NetnsError::setup("create an eventfd")(error.into()))?;
        let wake = Arc::new(wake);
        let woken = Arc::clone(&wake);
        let (requests, requested) = mpsc::channel();
        let duplicate =
            |namespace: &OwnedFd| namespace.try_clone().map_err(NetnsError::setup("duplicate a descriptor"));
        let (near, far) = (duplicate(&namespaces.near)?, duplicate(&namespaces.far)?);
        let middle = duplicate(&namespaces.middle)?;
        let (ready, when_ready) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || {
                let open = || {
                    enter(middle.as_fd())?;
                    Carrier::open(up, down, options, DeviceDrops::start(near, far)?)
                };
                match open() {
                    Ok(carrier) => {
                        let _ = ready.send(Ok(()));
                        carrier.run(&woken, &requested)
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        Account::default()
                    }
                }
            })
            .map_err(NetnsError::setup("start the emulator's thread"))?;
        match when_ready.recv() {
            Ok(Ok(())) => Ok(Self { requests: Some(requests), wake, thread: Some(thread) }),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => {
                Err(NetnsError::setup("start the emulator's thread")(io::Error::other("it ended at once")))
            }
        }
    }

    /// Gives a direction another rate from now on, in place of what is left of its schedule; see
    /// [`Link::set_rate`](freshwire_link::Link::set_rate).
    pub fn set_rate(&self, direction: Direction, rate: Option<Rate>) {
        self.ask(Request::SetRate(direction, rate));
    }

    /// What it has done so far; `None` if its thread has ended.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (sender, snapshot) = mpsc::sync_channel(1);
        self.ask(Request::Snapshot(sender));
        snapshot.recv().ok()
    }

    fn ask(&self, request: Request) {
        // Without a thread the request is lost, and the wait for its answer ends.
        if self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok()) {
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Stops and gives the account. Packets still on the link are gone.
    pub fn stop(mut self) -> Account {
        self.finish().unwrap_or_default()
    }

    fn finish(&mut self) -> Option<Account> {
        let thread = self.thread.take()?;
        // Its thread ends with the last sender of requests.
        drop(self.requests.take());
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        thread.join().ok()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.finish();
    }
}

/// One side of the emulator: the socket on which the packets of one direction come in.
struct Side {
    socket: PacketSocket,
    /// Frames that come in here go in this direction.
    direction: Direction,
    /// Only frames to this address belong on the link.
    peer_mac: [u8; 6],
    account: DirectionAccount,
}

/// The emulator's thread.
struct Carrier {
    path: Path<Box<[u8]>>,
    near: Side,
    far: Side,
    lateness: Histogram,
    ignored_frames: u64,
    real_time: bool,
    /// With what to add to a monotonic time to have the time of day in the log.
    log: Option<(PacketLog, u64)>,
    /// When UDP begins to be dropped.
    no_udp_at: Timestamp,
    drops: DeviceDrops,
}

impl Carrier {
    fn open(
        up: Config,
        down: Config,
        options: EmulatorOptions,
        drops: DeviceDrops,
    ) -> Result<Self, NetnsError> {
        let log = match &options.packet_log {
            Some(path) => {
                let clock = RealClock::read();
                let log = PacketLog::create(path).map_err(NetnsError::setup("write the packet log"))?;
                Some((log, clock.real_ns.wrapping_sub(clock.monotonic.as_nanos())))
            }
            None => None,
        };
        let side = |interface, direction, peer_mac| {
            let socket = PacketSocket::open(interface).map_err(NetnsError::setup("open a packet socket"))?;
            Ok(Side { socket, direction, peer_mac, account: DirectionAccount::default() })
        };
        let now = freshwire_io::now();
        Ok(Self {
            no_udp_at: options.no_udp_from.map_or(Timestamp::MAX, |from| now + from),
            near: side(MIDDLE_NEAR_INDEX, Direction::Up, FAR.mac)?,
            far: side(MIDDLE_FAR_INDEX, Direction::Down, NEAR.mac)?,
            path: Path::new(up, down, now),
            lateness: Histogram::new(),
            ignored_frames: 0,
            real_time: gain_priority(),
            log,
            drops,
        })
    }

    fn run(mut self, wake: &OwnedFd, requests: &mpsc::Receiver<Request>) -> Account {
        loop {
            let more = self.take_in();
            self.hand_over();
            let timeout = if more { Some(Duration::ZERO) } else { self.time_to_next() };
            let timeout = timeout.map(timespec);
            let mut files = [
                PollFd::new(&self.near.socket, PollFlags::IN),
                PollFd::new(&self.far.socket, PollFlags::IN),
                PollFd::new(wake, PollFlags::IN),
            ];
            // Interrupted or not, the loop looks at everything again.
            let _ = poll(&mut files, timeout.as_ref());
            if files[2].revents().contains(PollFlags::IN) {
                let _ = rustix::io::read(wake, &mut [0; 8]);
                if !self.answer(requests) {
                    return self.account();
                }
            }
        }
    }

    /// Does what it was asked for; returns whether it is to go on.
    fn answer(&mut self, requests: &mpsc::Receiver<Request>) -> bool {
        loop {
            match requests.try_recv() {
                Ok(Request::SetRate(direction, rate)) => {
                    self.path.set_rate(freshwire_io::now(), direction, rate);
                }
                Ok(Request::Snapshot(sender)) => {
                    // It fails if the caller has given up.
                    let _ = sender.try_send(self.snapshot());
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = freshwire_io::now();
        let mut direction = |direction| DirectionSnapshot {
            link: self.path.link(direction).counters(),
            queued_bytes: self.path.queued_bytes(now, direction),
        };
        let (up, down) = (direction(Direction::Up), direction(Direction::Down));
        Snapshot { up, down, lateness: self.lateness() }
    }

    fn lateness(&self) -> Lateness {
        let Self { lateness, .. } = self;
        Lateness { p50: lateness.percentile(0.5), p99: lateness.percentile(0.99), max: lateness.max() }
    }

    /// Takes in what has arrived; returns whether there may be more.
    fn take_in(&mut self) -> bool {
        let clock = RealClock::read();
        let Self { path, near, far, ignored_frames, log, no_udp_at, .. } = self;
        let mut more = false;
        for side in [near, far] {
            let Side { socket, direction, peer_mac, account } = side;
            let mut taken = 0;
            while taken < BATCH_FRAMES
                && socket
                    .receive(|received| {
                        if received.truncated {
                            account.oversized_frames += 1;
                        } else if belongs_on_link(&received, *peer_mac) {
                            let bytes = (received.frame.len() - ETHERNET_HEADER_BYTES) as u64;
                            let arrival = clock.monotonic(received.real_ns);
                            if arrival >= *no_udp_at && is_udp(received.frame) {
                                account.dropped_udp += 1;
                                return;
                            }
                            let verdict =
                                path.handle_packet(arrival, *direction, bytes, received.frame.into());
                            note(log, arrival, sending_place(*direction), Some(verdict), received.frame);
                        } else {
                            *ignored_frames += 1;
                        }
                    })
                    .is_some()
            {
                taken += 1;
            }
            more |= taken == BATCH_FRAMES;
        }
        more
    }

    fn hand_over(&mut self) {
        loop {
            let now = freshwire_io::now();
            let Some((direction, delivery)) = self.path.poll_transmit(now) else { return };
            let (outgoing, account) = match direction {
                Direction::Up => (&self.far.socket, &mut self.near.account),
                Direction::Down => (&self.near.socket, &mut self.far.account),
            };
            if outgoing.send(&delivery.packet).is_err() {
                account.send_errors += 1;
            }
            self.lateness.add(now.saturating_since(delivery.at));
            note(&mut self.log, now, receiving_place(direction), None, &delivery.packet);
        }
    }

    fn time_to_next(&self) -> Option<Duration> {
        Some(self.path.poll_timeout()?.saturating_since(freshwire_io::now()))
    }

    fn account(self) -> Account {
        let mut faults = Vec::new();
        let lateness = self.lateness();
        let drops = self.drops.read().unwrap_or_else(|error| {
            faults.push(format!("it is not known what the kernel dropped: {error}"));
            Drops { up: 0, down: 0 }
        });
        let mut direction = |side: Side, kernel_drops| {
            let missed_frames = side.socket.take_drops().unwrap_or_else(|error| {
                faults.push(format!("it is not known what was missed: {error}"));
                0
            });
            let link = self.path.link(side.direction).counters();
            DirectionAccount { link, missed_frames, kernel_drops, ..side.account }
        };
        let mut account = Account {
            up: direction(self.near, drops.up),
            down: direction(self.far, drops.down),
            lateness,
            ignored_frames: self.ignored_frames,
            real_time: self.real_time,
            faults,
        };
        find_faults(&mut account);
        if let Some((log, _)) = self.log {
            let (missing, error) = log.finish();
            if missing > 0 {
                account.faults.push(format!("the packet log lacks {missing} packets: the disk was too slow"));
            }
            if let Some(error) = error {
                account.faults.push(format!("the packet log is incomplete: {error}"));
            }
        }
        account
    }
}

/// Logs a frame that was sent, with its verdict, or one that is received.
fn note(
    log: &mut Option<(PacketLog, u64)>,
    at: Timestamp,
    place: Place,
    verdict: Option<Verdict>,
    frame: &[u8],
) {
    let Some((log, offset)) = log else { return };
    log.add(Entry {
        real_ns: at.as_nanos().wrapping_add(*offset),
        place,
        course: if verdict.is_some() { Course::Sent } else { Course::Received },
        comment: match verdict {
            Some(Verdict::Lost) => Some("lost on the wire"),
            Some(Verdict::QueueFull) => Some("dropped: the queue was full"),
            Some(Verdict::WireFull) => Some("dropped: too many bytes on the wire"),
            _ => None,
        },
        frame: frame.into(),
    });
}

fn is_udp(frame: &[u8]) -> bool {
    let protocol = match frame.get(12..ETHERNET_HEADER_BYTES) {
        Some([0x08, 0x00]) => frame.get(ETHERNET_HEADER_BYTES + 9),
        Some([0x86, 0xdd]) => frame.get(ETHERNET_HEADER_BYTES + 6),
        _ => None,
    };
    protocol == Some(&UDP)
}

/// IANA's number of the protocol.
const UDP: u8 = 17;

fn sending_place(direction: Direction) -> Place {
    match direction {
        Direction::Up => Place::Near,
        Direction::Down => Place::Far,
    }
}

fn receiving_place(direction: Direction) -> Place {
    match direction {
        Direction::Up => Place::Far,
        Direction::Down => Place::Near,
    }
}

fn find_faults(account: &mut Account) {
    if account.lateness.p99 > LATENESS_LIMIT {
        let late = account.lateness.p99;
        account
            .faults
            .push(format!("the machine was too busy: 1 % of the packets were more than {late:.1?} late"));
    }
    for (name, direction) in [("up", account.up), ("down", account.down)] {
        for (count, what) in [
            (direction.missed_frames, "were not taken in time"),
            (direction.oversized_frames, "were longer than the MTU"),
            (direction.send_errors, "were refused by the kernel"),
            (direction.kernel_drops, "were dropped by the kernel between the link and an end"),
        ] {
            if count > 0 {
                account.faults.push(format!("{count} packets of direction {name} {what}"));
            }
        }
    }
}

/// What an end sends to the other, or to a group that programs use. What kernels tell their neighbours by themselves, such
/// as who listens to which group, stays away: it would take the place of packets that are counted.
fn belongs_on_link(received: &Received<'_>, peer_mac: [u8; 6]) -> bool {
    let frame = received.frame;
    let group = match frame.get(12..ETHERNET_HEADER_BYTES) {
        Some([0x08, 0x00]) => {
            matches!(frame.get(30..34), Some([224..=239, rest @ ..]) if rest[..2] != [0, 0])
        }
        // Its scope is larger than the link.
        Some([0x86, 0xdd]) => matches!(frame.get(38..40), Some([0xff, flags]) if flags & 0xf > 2),
        _ => return false,
    };
    group || frame.starts_with(&peer_mac)
}

/// Relates the kernel's packet times to the monotonic clock at the moment of reading, so that a step of the wall
/// clock spoils one batch at most.
struct RealClock {
    real_ns: u64,
    monotonic: Timestamp,
}

impl RealClock {
    fn read() -> Self {
        let real = clock_gettime(ClockId::Realtime);
        let real_ns = (real.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(real.tv_nsec as u64);
        Self { real_ns, monotonic: freshwire_io::now() }
    }

    fn monotonic(&self, real_ns: u64) -> Timestamp {
        if real_ns <= self.real_ns {
            return self.monotonic - Duration::from_nanos(self.real_ns - real_ns);
        }
        // It came in after the clocks were read, or the wall clock was set back meanwhile.
        (self.monotonic + Duration::from_nanos(real_ns - self.real_ns)).min(freshwire_io::now())
    }
}

/// Asks for exact timers and for real-time priority; returns whether the latter was granted.
fn gain_priority() -> bool {
    wait_precisely();
    if set_scheduler(libc::SCHED_FIFO, 1, 0) {
        return true;
    }
    // From Linux 6.12 on a thread that asks for short slices, which needs no privilege, is served earlier when it
    // wakes up. Before, the request has no effect.
    set_scheduler(libc::SCHED_OTHER, 0, SHORT_SLICE_NS);
    let _ = rustix::process::setpriority_process(None, -20);
    false
}

/// For the calling thread; returns whether it was granted.
fn set_scheduler(policy: libc::c_int, priority: u32, slice_ns: u64) -> bool {
    // SAFETY: `sched_attr` is plain old data, for which all-zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = policy as u32;
    attributes.sched_priority = priority;
    attributes.sched_runtime = slice_ns;
    // SAFETY: the attributes outlive the call; 0 is the calling thread, and there are no flags.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_and_missing_packets_are_reported() {
        let mut account = Account::default();
        find_faults(&mut account);
        assert!(account.is_trustworthy());
        account.lateness.p99 = Duration::from_micros(1500);
        account.down.kernel_drops = 3;
        find_faults(&mut account);
        assert_eq!(
            account.faults,
            [
                "the machine was too busy: 1 % of the packets were more than 1.5ms late",
                "3 packets of direction down were dropped by the kernel between the link and an end",
            ]
        );
    }
}
