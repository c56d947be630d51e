use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// `SIOCOUTQNSD` of `linux/sockios.h`, which the libc crate does not carry.
pub(super) const SIOCOUTQNSD: libc::Ioctl = 0x894B;

/// `TCP_RTO_MIN_US` of `linux/tcp.h` since 6.15.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// `TCP_RTO_MAX_MS` of `linux/tcp.h` since 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

pub(super) fn queue_len(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both queue requests write one int through the pointer, which is valid for that.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

pub(super) fn set_u32(socket: BorrowedFd<'_>, option: libc::c_int, value: u32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ends the association with the peer, which resets a connection that is not at its end. Fails where a protocol sits on the socket.
pub(super) fn disconnect(socket: BorrowedFd<'_>) {
    // SAFETY: a zeroed sockaddr is a valid value of that C type.
    let mut nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    nobody.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    let len = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `nobody`, which outlives the call.
    let _refused = unsafe { libc::connect(socket.as_raw_fd(), &raw const nobody, len) };
}

pub(super) fn set_min_rto(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    set_if_known(socket, TCP_RTO_MIN_US, u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX))
}

pub(super) fn set_max_rto(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    set_if_known(socket, TCP_RTO_MAX_MS, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX))
}

/// False: the kernel does not know the option.
fn set_if_known(socket: BorrowedFd<'_>, option: libc::c_int, value: u32) -> io::Result<bool> {
    match set_u32(socket, option, value) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The congestion controls that this kernel has loaded, by name.
///
/// # Errors
///
/// If `/proc/sys/net` cannot be read.
pub fn available_congestion_controls() -> io::Result<Vec<String>> {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// The kernel's release, such as `6.12.0`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
