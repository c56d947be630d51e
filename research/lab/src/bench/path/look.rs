//! What a sending host's processor is kept from its work by: interrupts and context switches; and the window that a receiver leaves.
#![allow(clippy::disallowed_methods, reason = "counts a second are by the real clock")]

use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freshwire_io::tcp::TcpSocket;

use crate::bench::machine::field;

/// The sending host's counts at an instant.
pub(in crate::bench) struct Look {
    at: Instant,
    interrupts: u64,
    switches: u64,
}

/// Counts a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::bench) struct Rates {
    /// Interrupts of processor 0, whoever causes them: of devices, its timer, and by the other processor.
    pub(in crate::bench) interrupts: f64,
    /// How often the sender's threads gave the processor up, or were made to.
    pub(in crate::bench) switches: f64,
}

impl Look {
    /// At the calling thread.
    pub(in crate::bench) fn of_this_thread() -> Self {
        Self::new(switches("/proc/thread-self"))
    }

    /// At all threads of a process.
    pub(in crate::bench) fn of_process(process: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        let threads = threads.into_iter().flatten().flatten();
        Self::new(threads.map(|thread| switches(&thread.path().to_string_lossy())).sum())
    }

    fn new(switches: u64) -> Self {
        let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        Self { at: Instant::now(), interrupts: of_first_processor(&text), switches }
    }

    pub(in crate::bench) fn since(&self, earlier: &Self) -> Rates {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64().max(1e-9);
        let a_second = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
        Rates {
            interrupts: a_second(self.interrupts, earlier.interrupts),
            switches: a_second(self.switches, earlier.switches),
        }
    }
}

/// Both kinds of switches; of a thread that has ended, none.
fn switches(folder: &str) -> u64 {
    let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
    let of = |name| field(&status, name).unwrap_or(0);
    of("voluntary_ctxt_switches:") + of("nonvoluntary_ctxt_switches:")
}

/// The sum of the first column of `/proc/interrupts`.
fn of_first_processor(text: &str) -> u64 {
    let count = |line: &str| line.split_once(':')?.1.split_whitespace().next()?.parse::<u64>().ok();
    text.lines().filter_map(count).sum()
}

/// How often a window is looked at.
const WINDOW_EVERY: Duration = Duration::from_millis(2);

/// The part of the looks that slow start and the growing window take.
const GROWING: f64 = 0.25;

/// Least and median window of a connection, in bytes, as its sender knows it.
pub(super) fn watch_window(socket: &TcpStream, stop: &AtomicBool) -> Option<[f64; 2]> {
    let socket = TcpSocket::new(socket.try_clone().ok()?).ok()?;
    let mut windows = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        windows.push(socket.info().ok()?.window?);
        std::thread::sleep(WINDOW_EVERY);
    }
    windows.drain(..(windows.len() as f64 * GROWING) as usize);
    windows.sort_unstable();
    Some([f64::from(*windows.first()?), f64::from(windows[windows.len() / 2])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_those_of_the_first_processor() {
        let text = "           CPU0       CPU1       \n  0:         22          7   IO-APIC   2-edge  timer\nLOC:      1000       2000   Local\nERR:          3\n";
        assert_eq!(of_first_processor(text), 1025);
        let before = Look::of_this_thread();
        // Pause: gives the processor up.
        std::thread::sleep(Duration::from_millis(2));
        let rates = Look::of_this_thread().since(&before);
        assert!(rates.switches > 0.0, "{rates:?}");
        assert!(Look::of_process(std::process::id()).switches > 0);
    }
}
