//! Packets that a veth device dropped because the other side's kernel queue (`net.core.netdev_max_backlog`) was full:
//! nothing else counts them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::error::NetnsError;
use super::namespaces::{LINK_NAME, MIDDLE_FAR_NAME, MIDDLE_NEAR_NAME, in_namespace};

/// The column of transmit drops in `/proc/net/dev`, counted behind the interface's name.
const TRANSMIT_DROPS: usize = 11;

/// Counts from its creation on.
pub(super) struct DeviceDrops {
    near: OwnedFd,
    far: OwnedFd,
    before: Drops,
}

/// In packets.
#[derive(Clone, Copy)]
pub(super) struct Drops {
    pub(super) up: u64,
    pub(super) down: u64,
}

impl DeviceDrops {
    /// Call it in the middle namespace, and [`DeviceDrops::read`] too.
    pub(super) fn start(near: OwnedFd, far: OwnedFd) -> Result<Self, NetnsError> {
        let mut drops = Self { near, far, before: Drops { up: 0, down: 0 } };
        drops.before = drops.read()?;
        Ok(drops)
    }

    pub(super) fn read(&self) -> Result<Drops, NetnsError> {
        let near = in_namespace(self.near.as_fd(), || transmit_drops(LINK_NAME))??;
        let far = in_namespace(self.far.as_fd(), || transmit_drops(LINK_NAME))??;
        Ok(Drops {
            up: near + transmit_drops(MIDDLE_FAR_NAME)? - self.before.up,
            down: far + transmit_drops(MIDDLE_NEAR_NAME)? - self.before.down,
        })
    }
}

/// Packets dropped on transmission by an interface of the calling thread's namespace.
fn transmit_drops(interface: &str) -> Result<u64, NetnsError> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")
        .map_err(NetnsError::setup("read /proc/thread-self/net/dev"))?;
    parse(&text, interface).ok_or_else(|| {
        NetnsError::setup("understand /proc/thread-self/net/dev")(io::ErrorKind::InvalidData.into())
    })
}

fn parse(text: &str, interface: &str) -> Option<u64> {
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    row.split_whitespace().nth(TRANSMIT_DROPS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_that_of_transmit_drops() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n \
                    link0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(parse(text, "link0"), Some(12));
        assert_eq!(parse(text, "link"), None);
    }
}
