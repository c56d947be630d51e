//! Switches off what would let a packet look different on the link than on a wire.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `ETHTOOL_S*` of `linux/ethtool.h`: transmit checksum, scatter-gather, TSO, GSO, GRO. In this order: TSO and
/// scatter-gather depend on the checksum.
const SWITCHES: [u32; 5] = [0x1f, 0x24, 0x17, 0x19, 0x2c];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Afterwards each packet on `interface` is at most one MTU long and carries a complete checksum.
pub(super) fn disable_offloads(interface: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    for command in SWITCHES {
        let mut value = Value { command, data: 0 };
        // SAFETY: `ifreq` is plain old data, for which all-zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: `request` is a valid ifreq whose data points to an `ethtool_value` that outlives the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if result < 0 {
            let error = io::Error::last_os_error();
            // What the driver does not know is not on.
            if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
                return Err(error);
            }
        }
    }
    Ok(())
}
