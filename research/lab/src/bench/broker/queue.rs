//! What waits for the server in the sockets between it and its broker.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;

/// From one look to the next. A look at the table of some hundred sockets takes 2 ms of a processor.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Queued {
    pub(super) mean: f64,
    pub(super) largest: f64,
}

/// Looks until it is stopped.
pub(super) struct QueueWatch {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Queued>>,
}

impl QueueWatch {
    /// Watches the connections of the broker on this port, but for that of the publisher.
    pub(super) fn start(broker: u16, publisher: u16) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            let (mut sum, mut largest, mut looks) = (0_u64, 0_u64, 0_u64);
            while !stop.load(Ordering::Relaxed) {
                let table = fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
                let bytes = waiting(&table, broker, publisher);
                (sum, largest, looks) = (sum + bytes, largest.max(bytes), looks + 1);
                std::thread::sleep(LOOK);
            }
            Ok(Queued { mean: sum as f64 / looks.max(1) as f64, largest: largest as f64 })
        });
        Self { stopped, thread }
    }

    pub(super) fn finish(self) -> anyhow::Result<Queued> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the look at sockets has panicked"))?
    }
}

/// Bytes that the broker has written and its other clients have not read: not acknowledged at its end, and not read at theirs.
fn waiting(table: &str, broker: u16, publisher: u16) -> u64 {
    let sockets = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let port = |field: &str| u16::from_str_radix(field.rsplit(':').next()?, 16).ok();
        let (local, remote) = (port(fields.next()?)?, port(fields.next()?)?);
        let (sent, received) = fields.nth(1)?.split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((local, remote, number(sent)?, number(received)?))
    });
    let bytes = sockets.map(|(local, remote, sent, received)| match (local, remote) {
        (from, to) if from == broker && to != publisher && to != 0 => sent,
        (from, to) if to == broker && from != publisher => received,
        _ => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_servers_connection_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n\
             0: 0100007F:0001 00000000:0000 0A 00000005:00000001 00:00000000\n\
             1: 0100007F:0001 0100007F:0002 01 00000010:00000001 00:00000000\n\
             2: 0100007F:0002 0100007F:0001 01 00000000:00000020 00:00000000\n\
             3: 0100007F:0001 0100007F:0003 01 00000100:00001000 00:00000000\n\
             4: 0100007F:0009 0100007F:0008 01 00000100:00001000 00:00000000\n";
        assert_eq!(waiting(table, 1, 3), 0x30);
    }
}
