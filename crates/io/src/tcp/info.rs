use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use freshwire_record::Rate;

/// What the kernel knows of a connection (`TCP_INFO`), as far as late choice uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Segments sent and not cumulatively acknowledged.
    pub unacked: u32,
    /// Selectively acknowledged segments among these.
    pub sacked: u32,
    /// Segments among these that count as lost.
    pub lost: u32,
    /// Retransmitted segments among these, in flight.
    pub retrans_out: u32,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Shortest round trip that was seen; zero before the first.
    pub min_rtt: Duration,
    /// Time since the last acknowledgement arrived, in whole milliseconds.
    pub since_ack: Duration,
    /// Payload bytes acknowledged since the connection began, one more for the SYN.
    pub bytes_acked: u64,
    /// Payload bytes sent, repeats included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Payload bytes written and not sent.
    pub unsent: u32,
    /// Segments delivered, selectively acknowledged ones included.
    pub delivered: u32,
    /// The kernel's own estimate of the delivery rate.
    pub delivery_rate: Rate,
    /// The receive window that the peer has advertised last, in bytes behind what it has acknowledged; `None` where the kernel does not
    /// say it (before Linux 5.4).
    pub window: Option<u32>,
    /// The unit in which the peer advertises its window, in bytes: a power of two up to 16,384.
    pub window_unit: u32,
    /// The estimate was taken while the application, not the path, was the limit.
    pub app_limited: bool,
}

impl TcpInfo {
    /// Payload bytes that are on the wire: sent, and neither acknowledged nor held to be lost.
    pub fn in_flight(&self) -> u64 {
        let segments = (u64::from(self.unacked) + u64::from(self.retrans_out))
            .saturating_sub(u64::from(self.sacked) + u64::from(self.lost));
        segments * u64::from(self.mss)
    }
}

/// `struct tcp_info` of `linux/tcp.h` up to `tcpi_snd_wnd`. An older kernel fills less; the rest stays zero.
#[repr(C)]
#[derive(Default)]
struct Raw {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    /// `tcpi_snd_wscale` and `tcpi_rcv_wscale`, four bits each: the first in the low bits on little-endian machines.
    wscale: u8,
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

const _: () = assert!(size_of::<Raw>() == 232);

pub(super) fn read(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut raw = Raw::default();
    let mut len = size_of::<Raw>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `raw`, a C struct of integers for which every bit pattern is valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut raw).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel reports `!0` until the first round trip was measured.
    let min_rtt = if raw.min_rtt == u32::MAX { 0 } else { raw.min_rtt };
    Ok(TcpInfo {
        mss: raw.snd_mss.max(1),
        cwnd: raw.snd_cwnd,
        unacked: raw.unacked,
        sacked: raw.sacked,
        lost: raw.lost,
        retrans_out: raw.retrans,
        rtt: Duration::from_micros(u64::from(raw.rtt)),
        min_rtt: Duration::from_micros(u64::from(min_rtt)),
        since_ack: Duration::from_millis(u64::from(raw.last_ack_recv)),
        bytes_acked: raw.bytes_acked,
        bytes_sent: raw.bytes_sent,
        bytes_retrans: raw.bytes_retrans,
        unsent: raw.notsent_bytes,
        delivered: raw.delivered,
        delivery_rate: Rate::from_bytes_per_sec(raw.delivery_rate),
        window: (len as usize >= size_of::<Raw>()).then_some(raw.snd_wnd),
        window_unit: 1 << if cfg!(target_endian = "little") { raw.wscale & 15 } else { raw.wscale >> 4 },
        app_limited: raw.flags & 1 != 0,
    })
}
