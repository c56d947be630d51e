//! Tests of times and rates: whether their run can be trusted, and what happens if not.
//!
//! A machine that does something else delays threads, and then a test of time says nothing about the code. [`measure`] watches the
//! machine during a run. A claim that holds has held, as a busy machine only makes it harder. A claim that fails in a run that can be
//! trusted is a failure. In another run it is tried again. After [`RUNS`] of those the test counts as "machine too busy". It says so in a
//! line that `cargo xtask test` reads and counts.
//!
//! An emulated link has an account of its own ([`Account::faults`](super::Account)), which a run passes on. It is not enough: the emulator's
//! thread may run with real-time priority, and then it is on time where the test's threads are not.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs before a test gives up on the machine. Chosen, not measured.
pub const RUNS: u32 = 3;

/// How the line begins by which a test says that it measured; what follows is its name.
pub const MEASURED: &str = "freshwire measured: ";

/// How the line begins by which a test says that no run could be trusted; name and reason follow.
pub const TOO_BUSY: &str = "freshwire machine too busy: ";

/// One look at the machine: a sleep of this length. The kernel may wake a thread later by its timer slack, 50 µs by default
/// (prctl(2), `PR_SET_TIMERSLACK`).
const SLEEP: Duration = Duration::from_millis(1);

/// Half of all wake-ups have to come within this: ten times the timer slack. A thread that has slept is among the first to run, so a
/// median above it means that the processors are not to be had at all.
const MEDIAN_LIMIT: Duration = Duration::from_micros(500);

/// The share of the time in which some runnable thread of the machine waited for a processor (`/proc/pressure/cpu`, "some"; in the
/// kernel's Documentation/accounting/psi.rst). Above a half the threads of a test run every other moment at best. With six busy programs
/// beside a test on two processors it is 0.98.
const PRESSURE_LIMIT: f64 = 0.5;

/// What a run of a measurement comes to.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The claim: `Err` with what was found instead.
    pub claim: Result<(), String>,
    /// Why the run cannot be trusted, as far as the run itself knows: the faults of an emulated link.
    pub faults: Vec<String>,
}

impl Trial {
    /// A run whose claim holds if `holds`; otherwise `found` says what was found.
    pub fn new(holds: bool, found: impl FnOnce() -> String) -> Self {
        Self { claim: if holds { Ok(()) } else { Err(found()) }, faults: Vec::new() }
    }

    /// The same, with the faults of a link.
    #[must_use]
    pub fn with_faults(self, faults: Vec<String>) -> Self {
        Self { faults, ..self }
    }
}

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim held.
    Held,
    /// No run could be trusted.
    TooBusy,
}

/// Runs a measurement until its claim holds or a run can be trusted, at most [`RUNS`] times, and says so on standard error, past the
/// capture of tests. `lateness` is what the claim bears: the 99th percentile of how late the machine wakes a thread has to stay below
/// it. A tenth of the claim's own bound is usual.
///
/// # Panics
///
/// If the claim fails in a run that can be trusted.
#[track_caller]
pub fn measure(name: &str, lateness: Duration, mut run: impl FnMut() -> Trial) -> Verdict {
    judge(name, || {
        let watch = Watch::start();
        let mut trial = run();
        trial.faults.extend(watch.stop().faults(lateness));
        trial
    })
}

/// The same for runs that already know what was wrong with the machine.
#[track_caller]
fn judge(name: &str, mut run: impl FnMut() -> Trial) -> Verdict {
    let mut reasons = Vec::new();
    for _ in 0..RUNS {
        let Trial { claim, faults } = run();
        let Err(found) = claim else {
            say(&format!("{MEASURED}{name}"));
            return Verdict::Held;
        };
        assert!(!faults.is_empty(), "{name}: {found}");
        reasons.push(format!("{found} ({})", faults.join("; ")));
    }
    let reasons = reasons.join(" | ").replace('\n', " ");
    say(&format!("{TOO_BUSY}{name}: {reasons}"));
    Verdict::TooBusy
}

/// Writes a line in one piece.
fn say(line: &str) {
    // The tests of this file measure nothing that counts.
    if cfg!(test) {
        return;
    }
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What the machine did during a run.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    median: Duration,
    p99: Duration,
    /// `None` where the kernel does not tell.
    pressure: Option<f64>,
}

impl Machine {
    fn faults(self, lateness: Duration) -> Vec<String> {
        let mut faults = Vec::new();
        if self.median > MEDIAN_LIMIT {
            faults.push(format!("the machine wakes a thread {:?} late in the median", self.median));
        }
        if self.p99 > lateness {
            faults.push(format!("one wake-up in a hundred is {:?} late", self.p99));
        }
        if let Some(pressure) = self.pressure.filter(|pressure| *pressure > PRESSURE_LIMIT) {
            faults.push(format!("for {:.0} % of the time a thread waited for a processor", 100.0 * pressure));
        }
        faults
    }
}

/// A thread that looks how late the machine wakes it.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
    started: Instant,
    waited: Option<Duration>,
}

impl Watch {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut late = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                std::thread::sleep(SLEEP);
                late.push(start.elapsed().saturating_sub(SLEEP));
            }
            late
        });
        Self { stop, thread, started: Instant::now(), waited: waited() }
    }

    fn stop(self) -> Machine {
        self.stop.store(true, Ordering::Relaxed);
        let mut late = self.thread.join().unwrap_or_default();
        late.sort_unstable();
        let at = |share: usize| late.get(late.len() * share / 100).copied().unwrap_or_default();
        let pressure = self.waited.zip(waited()).map(|(before, after)| {
            after.saturating_sub(before).as_secs_f64() / self.started.elapsed().as_secs_f64()
        });
        Machine { median: at(50), p99: at(99), pressure }
    }
}

/// For how long some thread has waited for a processor since the start of the machine.
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = text.lines().next()?.rsplit_once("total=")?.1;
    Some(Duration::from_micros(total.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER_LATE: Duration = Duration::ZERO;
    const ANY: Duration = Duration::from_secs(3600);

    #[test]
    fn a_claim_that_holds_is_not_repeated() {
        let mut runs = 0;
        let verdict = measure("trust: holds", NEVER_LATE, || {
            runs += 1;
            Trial::new(true, String::new).with_faults(vec!["a fault".to_owned()])
        });
        assert_eq!((verdict, runs), (Verdict::Held, 1));
    }

    #[test]
    fn a_fault_in_an_untrusted_run_is_tried_again() {
        let mut runs = 0;
        let verdict = measure("trust: at the second run", ANY, || {
            runs += 1;
            Trial::new(runs == 2, || "late".to_owned()).with_faults(vec!["a fault".to_owned()])
        });
        assert_eq!((verdict, runs), (Verdict::Held, 2));
    }

    fn fails(faults: &[&str]) -> (Verdict, u32) {
        let mut runs = 0;
        let verdict = judge("trust: fails", || {
            runs += 1;
            Trial::new(false, || "late".to_owned())
                .with_faults(faults.iter().map(|&one| one.to_owned()).collect())
        });
        (verdict, runs)
    }

    #[test]
    fn runs_that_cannot_be_trusted_decide_nothing() {
        assert_eq!(fails(&["a fault"]), (Verdict::TooBusy, RUNS));
    }

    #[test]
    #[should_panic(expected = "trust: fails: late")]
    fn a_run_that_can_be_trusted_decides() {
        fails(&[]);
    }

    #[test]
    fn a_machine_is_judged_by_each_of_its_limits() {
        let calm =
            Machine { median: Duration::from_micros(60), p99: Duration::from_millis(1), pressure: Some(0.1) };
        assert!(calm.faults(Duration::from_millis(2)).is_empty());
        assert_eq!(calm.faults(Duration::from_micros(500)).len(), 1);
        assert_eq!(Machine { median: Duration::from_millis(1), ..calm }.faults(ANY).len(), 1);
        assert_eq!(Machine { pressure: Some(0.9), ..calm }.faults(ANY).len(), 1);
        assert!(Machine { pressure: None, ..calm }.faults(ANY).is_empty());
    }

    #[test]
    fn a_thread_is_never_woken_early() {
        let watch = Watch::start();
        // Pause: the watch needs some wake-ups.
        std::thread::sleep(Duration::from_millis(20));
        let machine = watch.stop();
        assert!(machine.median > Duration::ZERO && machine.median <= machine.p99, "{machine:?}");
    }
}
