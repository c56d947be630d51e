//! Ctrl-C ends a live stream in order: records in progress are finished, and the account is printed.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use freshwire_netns::Signals;

/// What a shell says of a program that Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// Whether the program was asked to end.
pub struct Interrupt {
    arrived: Arc<AtomicBool>,
    armed: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes the signals over. Call it before any thread starts. Until [`Self::arm`] a signal ends the program at once,
    /// and so does the second one after that.
    pub fn watch() -> anyhow::Result<Self> {
        let signals = Signals::take_over().context("cannot take over the signals")?;
        let [arrived, armed] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (asked, orderly) = (Arc::clone(&arrived), Arc::clone(&armed));
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                let asked_again = !signal.is_child && asked.swap(true, Ordering::SeqCst);
                if !signal.is_child && (asked_again || !orderly.load(Ordering::SeqCst)) {
                    exit(INTERRUPTED);
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .context("cannot start a thread")?;
        Ok(Self { arrived, armed })
    }

    /// From now on the program looks for itself, often.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Whether it is time to end.
    pub fn arrived(&self) -> bool {
        self.arrived.load(Ordering::SeqCst)
    }
}
