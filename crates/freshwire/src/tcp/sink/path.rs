//! The kernel's view of the connection, and the bytes that may be handed to it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use freshwire_choice::LinkView;
use freshwire_io::tcp::{AckTime, Stage, TcpSocket};
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Taken};

use crate::sink::departures::Departure;
use crate::sink::reserve::Reserve;
use crate::sink::shared::SinkShared;
use crate::tcp::estimate::Estimate;
use crate::tcp::output::Output;
use crate::tcp::unread::{OnTheWay, Unread};

/// How often acknowledgements are looked for while the engine has nothing to write: a quarter round trip within this.
const ACK_WATCH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(25));

/// The same on a path that has recently shown no limit: longer than from one picture to the next, so that the turn that writes
/// is the one that looks.
const CALM_ACK_WATCH: Duration = Duration::from_millis(100);

/// The same where no fate reports acknowledgements. The look then only detects a peer that has stopped
/// reading.
const UNREPORTED_ACK_WATCH: Duration = Duration::from_millis(500);

/// A path below this round trip delivers written data at once or not at all. If it has recently shown no
/// limit, a look is valid for `LOCAL_LOOK`, so that few writes cost a question to the kernel.
const LOCAL_RTT: Duration = Duration::from_millis(1);
const LOCAL_LOOK: Duration = Duration::from_millis(250);

/// How long a path that has shown no limit is taken for one as long as it delivers everything at once.
const CALM: Duration = Duration::from_secs(1);

pub(super) struct Path {
    estimate: Estimate,
    reserve: Reserve,
    queue_target: Option<Duration>,
    congestion: String,
    /// The congestion control is one that paces: what its window has room for still waits in the kernel.
    is_paced: bool,
    /// `TCP_NOTSENT_LOWAT` as it is set.
    lowat: u32,
    looked_at: Timestamp,
    /// Bytes written since the last look.
    unseen: u64,
    calm_until: Timestamp,
    unread: Unread,
    acks: Acks,
}

/// Bounds of a path, and whether its acknowledgements are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) reserve: Reserve,
    pub(crate) queue_target: Option<Duration>,
    pub(crate) max_unread: Option<u32>,
    pub(crate) ack_fates: bool,
    pub(crate) departures: bool,
}

/// Bytes of the wire that were handed over, and that were acknowledged.
#[derive(Default)]
struct Acks {
    /// Bytes that were written before the connection became ours are not counted as acknowledged records.
    base: u64,
    written: u64,
    acked: u64,
    progress_at: Option<Timestamp>,
    /// Whether the fates of records report acknowledgements.
    ack_fates: bool,
    /// Where the last record ends that is wholly written.
    end: u64,
    /// End in the stream and index of each record that was sent and not acknowledged, with `ack_fates`.
    records: VecDeque<(u64, u64)>,
    times: AckTimes,
}

/// When bytes were acknowledged, by the kernel's word.
#[derive(Default)]
struct AckTimes {
    /// Bytes that the kernel's counts are ahead; `None` where it does not say the times.
    ahead: Option<u32>,
    /// There is something to read.
    is_due: bool,
    read: Vec<AckTime>,
    /// As read: when all up to a place was acknowledged.
    known: Places,
    /// The same of entering the queueing discipline, and of leaving for the device. Empty unless departures are noted.
    scheduled: Places,
    departed: Places,
    notes_departures: bool,
}

/// Places in the stream, and when all up to there had reached a stage.
type Places = VecDeque<(u64, Timestamp)>;

impl Path {
    pub(super) fn new(socket: &TcpSocket, limits: Limits) -> io::Result<Self> {
        let Limits { reserve, queue_target, max_unread, ack_fates, departures } = limits;
        let base = socket.info()?.bytes_acked + socket.unacknowledged()?;
        let congestion = socket.congestion()?;
        let ahead = match (ack_fates, departures) {
            (true, true) => Some(socket.tell_all_times()?.ok_or_else(no_departures)?),
            (true, false) => socket.tell_ack_times()?,
            (false, true) => return Err(departures_without_acks()),
            (false, false) => None,
        };
        let times = AckTimes { ahead, notes_departures: departures, ..AckTimes::default() };
        Ok(Self {
            estimate: Estimate::default(),
            reserve,
            queue_target,
            is_paced: congestion.starts_with("bbr"),
            congestion,
            lowat: 0,
            looked_at: Timestamp::ZERO,
            unseen: 0,
            calm_until: Timestamp::ZERO,
            unread: Unread::new(max_unread, socket),
            acks: Acks { base, ack_fates, times, ..Acks::default() },
        })
    }

    /// Reads the kernel's view and resolves what was acknowledged.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        socket: &TcpSocket,
        consumer: &mut Consumer,
        shared: &SinkShared,
    ) -> io::Result<()> {
        let stats = &shared.stats;
        let last_look = std::mem::replace(&mut self.looked_at, now);
        let has_written = std::mem::take(&mut self.unseen) > 0;
        // Where the last look saw no limit, one cheap question tells whether that is still so.
        if !self.unread.is_due() && self.is_calm(now) && socket.unacknowledged()? == 0 {
            self.estimate.all_delivered(now);
            self.acks.read_times(socket, last_look)?;
            self.acks.resolve(self.acks.written, (last_look, now), consumer, shared);
            stats.on_acked(self.acks.acked);
            return Ok(());
        }
        let info = socket.info()?;
        self.estimate.update(now, info);
        if let Some(queue) = self.queue_target {
            self.estimate.watch(queue);
        }
        let was_over = self.unread.is_over();
        self.unread.update(now, &info)?;
        if let Some(by) = self.unread.by() {
            let held = was_over.then(|| now.saturating_since(last_look));
            stats.on_unread(by, self.unread.bytes(), held, self.unread.is_limited(now).then_some(now));
        }
        // The look that follows a write says what the write left unsent, without a system call of its own.
        if has_written {
            stats.on_horizon(u64::from(info.unsent));
        }
        // After the look, so that every acknowledgement that it shows has its time.
        self.acks.read_times(socket, last_look)?;
        let acked = info.bytes_acked.saturating_sub(self.acks.base);
        self.acks.resolve(acked, (last_look, now), consumer, shared);
        self.calm_until = if self.estimate.is_unlimited() { now + CALM } else { Timestamp::ZERO };
        let rate = self.estimate.rate(now);
        let reserve = self.reserve.bytes(&self.congestion, &info, rate);
        // The option follows the reserve loosely: setting it costs a system call, and a quarter more or less wakes no
        // later than a chunk. The kernel's test for room has to be ours, or it would call us for nothing.
        if self.lowat.abs_diff(reserve) > self.lowat / 4 {
            socket.set_notsent_lowat(reserve)?;
            self.lowat = reserve;
        }
        stats.on_acked(self.acks.acked);
        let path = self.estimate.path_rate(now);
        let round_trips = (info.rtt, info.min_rtt);
        stats.on_look(self.lowat, rate, path, round_trips, consumer.counters().bad_values());
        Ok(())
    }

    /// How many bytes may be handed over now: none while the path holds as much as it should, `None` while the kernel
    /// does.
    pub(super) fn budget(&self, now: Timestamp, output: &Output) -> Option<u64> {
        let info = self.estimate.info();
        let unsent = u64::from(info.unsent);
        if unsent >= u64::from(self.lowat) {
            return None;
        }
        let mut budget = u64::from(self.lowat).saturating_sub(unsent + self.unseen);
        if self.is_calm(now) {
            // Bytes within the congestion window go on the wire at once and never wait unsent.
            budget = budget.max(self.window_room());
        }
        let ahead = unsent + self.unseen;
        if let Some(room) = self.queue_target.and_then(|queue| self.estimate.room(queue, ahead)) {
            budget = budget.min(room);
        }
        if let Some(room) = self.unread_room(now) {
            budget = budget.min(room);
        }
        // Committed bytes are handed over in any case.
        Some(if output.is_empty() { budget } else { budget.max(1) })
    }

    /// How many bytes of new records the receiving program may be given; `None` where that is not limited.
    pub(super) fn unread_room(&self, now: Timestamp) -> Option<u64> {
        let (in_flight, waiting) = (self.estimate.outstanding(), self.unsent() + self.unseen);
        self.unread.room(now, OnTheWay { in_flight, waiting })
    }

    /// Bytes that the receiving program has not read, as far as that is known.
    pub(super) fn unread(&self) -> Option<u64> {
        self.unread.bytes()
    }

    /// Notes that nothing may be handed over for now.
    pub(super) fn hold(&mut self) {
        self.estimate.hold();
    }

    fn window_room(&self) -> u64 {
        if self.is_paced {
            return 0;
        }
        let info = self.estimate.info();
        let free = info.cwnd.saturating_sub(info.unacked);
        (u64::from(free) * u64::from(info.mss)).saturating_sub(u64::from(info.unsent) + self.unseen)
    }

    /// Whether the last look still says enough: the path has shown no limit, and less was written since than may follow.
    pub(super) fn is_known(&self, now: Timestamp, output: &Output) -> bool {
        self.is_recent(now)
            && self.is_calm(now)
            && self.budget(now, output).is_some_and(|budget| budget > self.unseen)
    }

    /// Whether the last look is recent, for a path that is so short.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        !self.unread.is_due() && now < self.looked_at + LOCAL_LOOK && self.estimate.info().min_rtt < LOCAL_RTT
    }

    /// Whether the path has recently shown no limit.
    pub(super) fn is_calm(&self, now: Timestamp) -> bool {
        now < self.calm_until
    }

    pub(super) fn mss(&self) -> u64 {
        u64::from(self.estimate.info().mss.max(1))
    }

    /// Bytes that were handed over and are not on the wire, as of the last look.
    pub(super) fn unsent(&self) -> u64 {
        u64::from(self.estimate.info().unsent)
    }

    /// The path as the policies see it, with `planned` bytes committed beside the unsent ones.
    pub(super) fn view(&self, now: Timestamp, planned: u64) -> LinkView {
        self.estimate.view(now, self.unsent() + planned)
    }

    /// When to look for acknowledgements although nothing can be written.
    pub(super) fn ack_watch(&self, now: Timestamp) -> Timestamp {
        if self.acks.acked >= self.acks.end {
            self.unread.idle_look_at(now)
        } else if self.is_calm(now) && !self.acks.ack_fates {
            (now + UNREPORTED_ACK_WATCH).min(self.unread.idle_look_at(now))
        } else {
            self.soon(now)
        }
    }

    pub(super) fn soon(&self, now: Timestamp) -> Timestamp {
        if let Some(at) = self.unread.look_at(now) {
            return at;
        }
        if self.is_calm(now) {
            return now + CALM_ACK_WATCH;
        }
        now + (self.estimate.info().rtt / 4).clamp(ACK_WATCH.0, ACK_WATCH.1)
    }

    pub(super) fn wrote(&mut self, bytes: u64) {
        self.unseen += bytes;
        self.estimate.wrote();
        self.unread.wrote(self.looked_at, bytes, self.estimate.info().rtt);
        self.acks.written += bytes;
    }

    /// The record ends with what was written last.
    pub(super) fn sent(&mut self, consumer: &mut Consumer, taken: &Taken, now: Timestamp) {
        self.acks.end = self.acks.written;
        // Either fails only if the other side overwrote the state of a taken slot; the ring has counted that.
        if self.acks.ack_fates {
            let _ = consumer.finish(taken, now);
            self.acks.records.push_back((self.acks.written, taken.record.index));
        } else {
            let _ = consumer.finish_for_good(taken, now);
        }
    }

    /// The same for a record that has no place in the ring.
    pub(super) fn sent_past_ring(&mut self) {
        self.acks.end = self.acks.written;
    }

    /// The socket has something to tell beside its room. False: it cannot be when something was acknowledged.
    pub(super) fn note(&mut self) -> bool {
        self.acks.times.is_due = true;
        self.acks.times.ahead.is_some()
    }

    /// Whether records learn when they were acknowledged.
    pub(super) fn tells_acks(&self) -> bool {
        self.acks.ack_fates
    }

    pub(super) fn all_acked(&self) -> bool {
        self.acks.acked >= self.acks.written
    }

    /// When the peer will have taken nothing for `timeout`, although there is something to take.
    pub(super) fn stalls_at(&self, timeout: Option<Duration>) -> Timestamp {
        match (timeout, self.acks.progress_at) {
            (Some(timeout), Some(at)) if !self.all_acked() => at + timeout,
            _ => Timestamp::MAX,
        }
    }
}

fn no_departures() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the kernel does not note departures (SO_TIMESTAMPING)")
}

fn departures_without_acks() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "departures are part of fates that wait for the acknowledgement: set ack_fates",
    )
}

/// Forgets the places before `end`; the time of the first of the others.
fn reached(places: &mut Places, end: u64) -> Option<Timestamp> {
    while places.front().is_some_and(|&(place, _)| place < end) {
        places.pop_front();
    }
    places.front().map(|&(_, at)| at)
}

/// The same for the place `end` itself. The kernel leaves out a note for which the socket has no room, and the time of another record is none
/// of this one's.
fn reached_exactly(places: &mut Places, end: u64) -> Option<Timestamp> {
    reached(places, end).filter(|_| places.front().is_some_and(|&(place, _)| place == end))
}

/// An acknowledgement whose time lies between two looks so close is known well enough by them.
const CLOSE_LOOKS: Duration = Duration::from_millis(1);

impl Acks {
    /// Reads the kernel's notes of acknowledgements, if there may be any.
    fn read_times(&mut self, socket: &TcpSocket, last_look: Timestamp) -> io::Result<()> {
        let times = &mut self.times;
        let Some(ahead) = times.ahead else { return Ok(()) };
        if !std::mem::take(&mut times.is_due) && self.records.is_empty() {
            return Ok(());
        }
        socket.ack_times(&mut times.read)?;
        for AckTime { stage, bytes, at } in times.read.drain(..) {
            // The count is of 32 bits, and less than what was written.
            let missing = (self.written as u32).wrapping_sub(bytes.wrapping_sub(ahead));
            let place = self.written.saturating_sub(u64::from(missing));
            match stage {
                // Before the last look it was not acknowledged: somebody has set the wall clock.
                Stage::Acked if at + CLOSE_LOOKS >= last_look => times.known.push_back((place, at)),
                Stage::Acked => {}
                Stage::Scheduled => times.scheduled.push_back((place, at)),
                Stage::Departed => times.departed.push_back((place, at)),
            }
        }
        if self.records.is_empty() {
            times.known.clear();
            times.scheduled.clear();
            times.departed.clear();
        }
        Ok(())
    }

    fn resolve(
        &mut self,
        acked: u64,
        (last_look, now): (Timestamp, Timestamp),
        consumer: &mut Consumer,
        shared: &SinkShared,
    ) {
        if acked > self.acked || acked >= self.written || self.progress_at.is_none() {
            self.progress_at = Some(now);
        }
        self.acked = acked;
        let looked_just_before = now.saturating_since(last_look) <= CLOSE_LOOKS;
        while let Some(&(end, index)) = self.records.front() {
            if end > acked {
                break;
            }
            let noted = reached(&mut self.times.known, end).map(|at| at.min(now));
            let mut at = noted.or(looked_just_before.then_some(now));
            if self.times.notes_departures {
                let scheduled = reached_exactly(&mut self.times.scheduled, end);
                let departed = reached_exactly(&mut self.times.departed, end);
                // Before the acknowledgement, which completes the fate.
                shared.departures().add(index, Departure { scheduled, departed });
                // The turn began before what it has written left.
                at = at.max(at.and(departed));
            }
            if consumer.acked_at(index, at).is_err() {
                // The slot has been used again meanwhile.
                shared.late_acks().add(index, at);
            }
            self.records.pop_front();
        }
    }
}
