//! The kernel's keepalive and timeout for a client that says nothing, or acknowledges nothing.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The engine looks at its sinks more often than this.
const MARGIN: Duration = Duration::from_secs(2);

/// Questions without an answer until a client is taken for gone, where no unacknowledged data shows it earlier.
const QUESTIONS: u32 = 3;

/// Lets the kernel probe a client after a silence of `every`. The kernel gives the client up when it has not
/// answered, or not acknowledged data, for `timeout`. The kernel counts in seconds.
///
/// Without probes, a viewer of a stream that nobody publishes would keep its place for ever. A viewer that
/// vanishes with data in flight would keep it for as long as the kernel retransmits: 15 minutes.
pub(super) fn probe(socket: impl AsFd, every: Duration, timeout: Duration) -> rustix::io::Result<()> {
    let second = Duration::from_secs(1);
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, every.max(second))?;
    sockopt::set_tcp_keepintvl(&socket, (timeout / QUESTIONS).max(second))?;
    sockopt::set_tcp_keepcnt(&socket, QUESTIONS)?;
    let longest = sockopt::tcp_user_timeout(&socket)?.max(milliseconds(timeout));
    sockopt::set_tcp_user_timeout(&socket, longest)
}

/// Waits longer than `patience` for acknowledgements: that is the time of a viewer that takes nothing, and the engine's word for its end is better.
pub(super) fn outlast(socket: impl AsFd, patience: Duration) -> rustix::io::Result<()> {
    match sockopt::tcp_user_timeout(&socket)? {
        0 => Ok(()),
        timeout => sockopt::set_tcp_user_timeout(&socket, timeout.max(milliseconds(patience + MARGIN))),
    }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_client_that_vanishes_is_found_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let seconds = Duration::from_secs;
        for (every, timeout, asks) in [(15, 30, 10), (1, 1, 1), (3600, 3600, 1200)] {
            probe(&socket, seconds(every), seconds(timeout)).expect("set");
            assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
            assert_eq!(sockopt::tcp_keepidle(&socket), Ok(seconds(every)));
            assert_eq!(sockopt::tcp_keepintvl(&socket), Ok(seconds(asks)));
            assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(1000 * timeout as u32));
            sockopt::set_tcp_user_timeout(&socket, 0).expect("set");
        }
        probe(&socket, seconds(1), seconds(3600)).expect("set");
        probe(&socket, seconds(1), seconds(30)).expect("set");
        outlast(&socket, seconds(30)).expect("set");
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(3_600_000), "a longer one stays");
        outlast(&socket, seconds(4000)).expect("set");
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(4_002_000));
    }
}
