//! What packet push is compared with: a buffer that grows by monitoring, and a reader that is scheduled first.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;
use freshwire_push::{Precedence, sys};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::ClockId;

use super::plan::Outcome;
use crate::bench::machine::processor_time;

/// Time from one look of the monitor to the next. Chosen, not measured: the buffer of the bench is full within 2 ms at
/// 100,000 datagrams a second, and within 11 ms at 20,000.
const LOOK: Duration = Duration::from_millis(5);

/// A thread that watches a socket's buffer and enlarges it: twice as large when it is half full or has lost something.
pub(super) struct Monitor {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts with a buffer of `size` bytes, which grows to `most`.
    pub(super) fn start(socket: UdpSocket, mut size: usize, most: usize) -> anyhow::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let mut drops = sys::memory(socket.as_raw_fd()).context("the socket's memory")?.drops;
        let watch = move || {
            while !end.load(Ordering::Relaxed) {
                let Ok(memory) = sys::memory(socket.as_raw_fd()) else { return };
                let is_short = memory.used > memory.limit / 2 || memory.drops != drops;
                drops = memory.drops;
                if is_short && size < most {
                    size = (2 * size).min(most);
                    // At the system's limit it stays as it is.
                    let _ = enlarge(&socket, size);
                }
                std::thread::sleep(LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("monitor".to_owned()).spawn(watch)?;
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Beyond the system's limit where the process may.
fn enlarge(socket: &UdpSocket, size: usize) -> io::Result<()> {
    let size = i32::try_from(size / 2).unwrap_or(i32::MAX / 2);
    let set = |option| sys::set_int(socket.as_raw_fd(), libc::SOL_SOCKET, option, size);
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))
}

/// Gives the calling thread real-time priority.
pub(super) fn take_real_time() -> anyhow::Result<()> {
    let precedence = sys::take_precedence();
    anyhow::ensure!(precedence == Precedence::RealTime, "the system gives no real-time priority");
    Ok(())
}

/// Keeps the process, and those that it starts, on the first processor.
pub(super) fn stay_on_first_processor() -> anyhow::Result<()> {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).context("cannot stay on one processor")
}

/// Lets a process that was started on the first processor run everywhere: a sender that shares it would send nothing while the
/// receiver computes.
pub(super) fn run_anywhere() -> anyhow::Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    sched_setaffinity(None, &all).context("cannot leave the first processor")
}

/// Computes for this long: the share of a processor that it gets, and the longest time without one.
pub(super) fn compute(time: Duration) -> Outcome {
    let (begin, before) = (now(), processor_time(ClockId::ThreadCPUTime));
    let (mut last, mut longest) = (begin, Duration::ZERO);
    while last.saturating_since(begin) < time {
        let next = now();
        longest = longest.max(next.saturating_since(last));
        last = next;
    }
    let used = processor_time(ClockId::ThreadCPUTime) - before;
    let beside = used.as_secs_f64() / time.as_secs_f64();
    Outcome { beside, beside_waits_ns: longest.as_nanos() as f64, ..Outcome::default() }
}
