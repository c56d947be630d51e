//! The command, the peer, and whatever they leave behind.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::Scope;
use std::time::Duration;

use anyhow::Context;
use freshwire_netns::{Enclosure, Signals};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

/// How long children may take to end when asked, and again to disappear when killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What starts a program.
type Order<'env> = Box<dyn FnOnce(&Enclosure) + Send + 'env>;

/// Starts programs on a thread of its own, in a process namespace: the kernel ends them and all that descends from them with this
/// process, however that ends. Dropping it ends what [`end_all`] has left.
pub(super) struct Starter<'env> {
    orders: Sender<Order<'env>>,
    keeper: Pid,
}

impl<'env> Starter<'env> {
    pub(super) fn new<'scope>(scope: &'scope Scope<'scope, 'env>) -> anyhow::Result<Self> {
        let (orders, queue) = mpsc::channel::<Order<'env>>();
        let (made, keeper) = mpsc::channel();
        scope.spawn(move || match Enclosure::enter() {
            Ok(enclosure) => {
                // Its receiver waits below.
                let _ = made.send(Ok(enclosure.keeper()));
                queue.into_iter().for_each(|order| order(&enclosure));
            }
            Err(error) => drop(made.send(Err(error))),
        });
        let keeper = keeper.recv().context("the thread that starts programs has ended")?;
        Ok(Self { orders, keeper: keeper.context("cannot make a process namespace for the programs")? })
    }

    /// Starts a program. It is killed when this is dropped.
    pub(super) fn start(
        &self,
        start: impl FnOnce(&Enclosure) -> io::Result<Child> + Send + 'env,
    ) -> io::Result<Child> {
        let (started, child) = mpsc::channel();
        let order = move |enclosure: &Enclosure| drop(started.send(start(enclosure)));
        let gone = || io::Error::other("the thread that starts programs has ended");
        self.orders.send(Box::new(order)).map_err(|_| gone())?;
        child.recv().map_err(|_| gone())?
    }

    /// The parent of orphans.
    pub(super) fn keeper(&self) -> Pid {
        self.keeper
    }
}

/// Keeps a program in the background: no input, output to standard error, and no Ctrl-C, which is for the command.
pub(super) fn detach(command: &mut Command) -> io::Result<()> {
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    command.stdin(Stdio::null()).stdout(output).process_group(0);
    Ok(())
}

/// Waits for the command, passes signals on to it, and gives its exit code: 128 + n if signal n ended it.
pub(super) fn look_after(command: &Child, signals: &Signals) -> anyhow::Result<u8> {
    let command = Pid::from_child(command);
    loop {
        let arrived = signals.wait().context("cannot wait for signals")?;
        if arrived.is_child {
            if let Some(status) = reap(command) {
                return Ok(exit_code(status));
            }
        } else if !arrived.from_terminal
            && let Some(signal) = Signal::from_named_raw(arrived.signal)
        {
            // The terminal has sent its own to the command as well.
            let _ = kill_process(command, signal);
        }
    }
}

/// Ends every program, also those whose parents have ended, politely first.
pub(super) fn end_all(keeper: Pid) {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut asked = BTreeSet::new();
        let until = freshwire_io::now() + PATIENCE;
        while freshwire_io::now() < until {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            let children = children(keeper);
            if children.is_empty() {
                return;
            }
            for child in children {
                if asked.insert(child.as_raw_nonzero()) {
                    let _ = kill_process(child, signal);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Collects every child that has ended; returns the status of `wanted` if it was among them.
fn reap(wanted: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == wanted {
            found = Some(status);
        }
    }
    found
}

fn exit_code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 2,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The processes whose parent is this one or the keeper of orphans.
fn children(keeper: Pid) -> Vec<Pid> {
    let parents = [getpid(), keeper].map(|parent| parent.as_raw_pid().to_string());
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| parent(*pid).is_some_and(|parent| parents.contains(&parent)))
        .filter_map(Pid::from_raw)
        .filter(|&pid| pid != keeper)
        .collect()
}

fn parent(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned())
}
