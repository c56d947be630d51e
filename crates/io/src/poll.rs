//! One epoll set and the eventfd that wakes it.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

/// The token of the [`Waker`] in [`Ready`] events.
const WAKER_TOKEN: u64 = u64::MAX;

/// Events that one [`Poller::wait`] fetches at most; the rest stay queued in the kernel. Chosen, not
/// measured.
const EVENTS_PER_WAIT: usize = 256;

/// What a file became ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token given at [`Poller::add`].
    pub token: u64,
    /// There is something to read, if it was added by [`Poller::add_reader`].
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The connection is broken or closed in both directions.
    pub hung_up: bool,
    /// The file has something in its error queue, or has failed, and is not closed in both directions.
    pub noted: bool,
}

/// Waits for many files at once, level-triggered. A file always reports that it is broken. It reports that it is
/// writable while [`Poller::watch`] asks for it, and that there is something to read if it was added as a reader.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
}

/// Wakes a [`Poller`] from any thread, also from another process that was given the descriptor.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the poller's current or next [`Poller::wait`] return. One system call.
    pub fn wake(&self) {
        // The counter saturates only after 2^64 - 2 wake-ups that nobody read; the poller is awake then anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Something that happened, as a file that is readable until it is cleared. Clones are the same event.
#[derive(Clone, Debug)]
pub struct Event(Arc<OwnedFd>);

impl Event {
    /// An event that has not happened.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the file readable. One system call.
    pub fn signal(&self) {
        // Fails only if nobody has cleared 2^64 - 2 signals; the file is readable then anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Makes the file unreadable until the next [`signal`](Self::signal). One system call.
    pub fn clear(&self) {
        // Fails if there was no signal, and then there is nothing to clear.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Poller {
    /// An empty set with its waker.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKER_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self { epoll, wake: Arc::new(wake) })
    }

    /// A handle that wakes this poller.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Adds a file that is not watched for room yet. `token` must not be `u64::MAX`.
    ///
    /// # Errors
    ///
    /// If the file is in the set already, or cannot be polled.
    pub fn add(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), epoll::EventFlags::empty())?;
        Ok(())
    }

    /// Starts or stops watching a file for room to write.
    ///
    /// # Errors
    ///
    /// If the file is not in the set.
    pub fn watch(&self, file: impl AsFd, token: u64, writable: bool) -> io::Result<()> {
        let flags = if writable { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, file, epoll::EventData::new_u64(token), flags)?;
        Ok(())
    }

    /// Adds a file that reports what it has to read, and is not watched for room yet. `token` must not be `u64::MAX`.
    ///
    /// # Errors
    ///
    /// If the file is in the set already, or cannot be polled.
    pub fn add_reader(&self, file: impl AsFd, token: u64) -> io::Result<()> {
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Starts or stops watching a reader for room to write; what it has to read is reported either way.
    ///
    /// # Errors
    ///
    /// If the file is not in the set.
    pub fn watch_reader(&self, file: impl AsFd, token: u64, writable: bool) -> io::Result<()> {
        let room = if writable { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, file, epoll::EventData::new_u64(token), epoll::EventFlags::IN | room)?;
        Ok(())
    }

    /// Takes a file out of the set.
    ///
    /// # Errors
    ///
    /// If the file is not in the set.
    pub fn remove(&self, file: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, file)?;
        Ok(())
    }

    /// Waits at most `timeout` (for ever if `None`) and appends what became ready to `ready`. Returns whether the
    /// waker was used.
    ///
    /// # Errors
    ///
    /// If the system refuses to wait. A signal is no error.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut woken = false;
        let mut take = |token: u64, flags: epoll::EventFlags| {
            if token == WAKER_TOKEN {
                woken = true;
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
                return;
            }
            ready.push(Ready {
                token,
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                hung_up: flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP),
                noted: flags.contains(epoll::EventFlags::ERR) && !flags.contains(epoll::EventFlags::HUP),
            });
        };
        let waited = if LACKS_PWAIT2.load(Ordering::Relaxed) {
            wait_with_ppoll(&self.epoll, timeout.as_ref(), &mut take)
        } else {
            match wait_with_pwait2(&self.epoll, timeout.as_ref(), &mut take) {
                // Linux before 5.11, valgrind before 3.20; filters of system calls in containers refuse what they do not know.
                Err(Errno::NOSYS | Errno::PERM) => {
                    LACKS_PWAIT2.store(true, Ordering::Relaxed);
                    wait_with_ppoll(&self.epoll, timeout.as_ref(), &mut take)
                }
                waited => waited,
            }
        };
        match waited {
            Ok(()) => Ok(woken),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// This process cannot call `epoll_pwait2`.
static LACKS_PWAIT2: AtomicBool = AtomicBool::new(false);

fn wait_with_pwait2(
    epoll: &OwnedFd,
    timeout: Option<&Timespec>,
    mut take: impl FnMut(u64, epoll::EventFlags),
) -> Result<(), Errno> {
    let mut events = [const { MaybeUninit::uninit() }; EVENTS_PER_WAIT];
    let (events, _) = epoll::wait(epoll, &mut events, timeout)?;
    for event in events {
        take(event.data.u64(), event.flags);
    }
    Ok(())
}

/// As precise, with two system calls: `epoll_wait` alone takes whole milliseconds.
fn wait_with_ppoll(
    epoll: &OwnedFd,
    timeout: Option<&Timespec>,
    mut take: impl FnMut(u64, epoll::EventFlags),
) -> Result<(), Errno> {
    if rustix::event::poll(&mut [PollFd::new(epoll, PollFlags::IN)], timeout)? == 0 {
        return Ok(());
    }
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
    // SAFETY: the array has room for the events that are asked for.
    let count = unsafe {
        libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS_PER_WAIT as libc::c_int, 0)
    };
    let count = usize::try_from(count)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))?;
    for event in events.iter().take(count) {
        take(event.u64, epoll::EventFlags::from_bits_retain(event.events));
    }
    Ok(())
}

/// Ends this thread's waits when they are due: the kernel makes them up to 50 microseconds longer by itself, nearly half of what a
/// full packet takes at 100 Mbit/s. Without effect where the kernel does not permit it.
pub fn wait_precisely() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_wake_up_ends_the_wait_and_is_consumed() -> io::Result<()> {
        let poller = Poller::new()?;
        let waker = poller.waker();
        std::thread::spawn(move || waker.wake());
        let mut ready = Vec::new();
        assert!(poller.wait(Some(Duration::from_secs(10)), &mut ready)?);
        assert!(!poller.wait(Some(Duration::from_millis(1)), &mut ready)?);
        assert!(ready.is_empty());
        Ok(())
    }

    /// A pacer that sends each 120 microseconds cannot wait for a whole millisecond.
    #[test]
    fn a_short_wait_is_not_rounded_up_to_a_millisecond() -> io::Result<()> {
        let (poller, mut ready) = (Poller::new()?, Vec::new());
        let wait = Duration::from_micros(100);
        let mut shortest = Duration::MAX;
        for _ in 0..100 {
            let began = crate::now();
            poller.wait(Some(wait), &mut ready)?;
            shortest = shortest.min(crate::now().saturating_since(began));
        }
        assert!((wait..Duration::from_millis(1)).contains(&shortest), "{shortest:?}");
        Ok(())
    }

    /// What old kernels get reports the same.
    #[test]
    fn without_pwait2_the_same_is_ready() -> io::Result<()> {
        let (poller, listener) = (Poller::new()?, TcpListener::bind("127.0.0.1:0")?);
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let seen = |timeout: Duration| {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
            let mut seen = Vec::new();
            wait_with_ppoll(&poller.epoll, Some(&timeout), |token, flags| seen.push((token, flags)))?;
            io::Result::Ok(seen)
        };
        poller.add(&stream, 7)?;
        assert_eq!(seen(Duration::from_micros(100))?, []);
        poller.waker().wake();
        poller.watch(&stream, 7, true)?;
        let mut both = seen(Duration::from_millis(900))?;
        both.sort_by_key(|(token, _)| *token);
        assert_eq!(both, [(7, epoll::EventFlags::OUT), (WAKER_TOKEN, epoll::EventFlags::IN)]);
        Ok(())
    }

    #[test]
    fn a_file_reports_room_while_it_is_watched() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let poller = Poller::new()?;
        let mut ready = Vec::new();
        poller.add(&stream, 7)?;
        poller.wait(Some(Duration::from_millis(1)), &mut ready)?;
        assert!(ready.is_empty());
        poller.watch(&stream, 7, true)?;
        for _ in 0..2 {
            poller.wait(Some(Duration::from_secs(10)), &mut ready)?;
            assert_eq!(
                std::mem::take(&mut ready),
                [Ready { token: 7, readable: false, writable: true, hung_up: false, noted: false }]
            );
        }
        poller.watch(&stream, 7, false)?;
        poller.wait(Some(Duration::from_millis(1)), &mut ready)?;
        assert!(ready.is_empty());
        poller.remove(&stream)?;
        Ok(())
    }
}
