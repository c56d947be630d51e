//! Datagrams with a DSCP, a priority or a departure time. `quinn-udp` writes the whole traffic class with each datagram, so these
//! leave by a system call of our own, and the class is an option of the socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::control::{Control, Ends, send};
use super::datagram::Ecn;
use super::departures::ask_note;
use crate::network::{
    Dscp, NetworkQos, NetworkQosError, set_departure_times, set_max_rate, set_priority, set_traffic_class,
};

/// What the datagrams of a socket get beside their congestion mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    dscp: Option<Dscp>,
    priority: Option<u32>,
    /// The traffic class that the socket has now; `None` before the first datagram.
    class: Option<u8>,
    departures: Option<Departures>,
}

/// Departure times at a rate.
#[derive(Clone, Copy, Debug)]
struct Departures {
    rate: Option<Rate>,
    next: Timestamp,
}

impl Served {
    /// Asks for `wanted` on a socket that has `before`. `None`: nothing of it concerns single datagrams.
    pub(super) fn ask(
        socket: BorrowedFd<'_>,
        (before, served): (&NetworkQos, Option<Self>),
        wanted: &NetworkQos,
    ) -> Result<Option<Self>, NetworkQosError> {
        if before.max_rate != wanted.max_rate {
            set_max_rate(socket, wanted.max_rate)?;
        }
        if before.priority != wanted.priority {
            set_priority(socket, wanted.priority.unwrap_or(0))?;
        }
        let departures = match (wanted.departure_times, served.and_then(|served| served.departures)) {
            (false, _) => None,
            (true, Some(before)) => Some(Departures { rate: wanted.max_rate, ..before }),
            (true, None) => {
                set_departure_times(socket)?;
                Some(Departures { rate: wanted.max_rate, next: Timestamp::ZERO })
            }
        };
        let is_served = wanted.dscp.is_some() || wanted.priority.is_some() || departures.is_some();
        let (dscp, priority) = (wanted.dscp, wanted.priority);
        Ok(is_served.then_some(Self { dscp, priority, class: None, departures }))
    }

    /// Sets the rate of departures, if there are any.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        if let Some(departures) = &mut self.departures {
            departures.rate = rate;
        }
    }

    /// Whether each datagram has a departure time of its own, so that none shares a system call.
    pub(super) fn has_departures(&self) -> bool {
        self.departures.is_some()
    }

    /// Sets the traffic class of the datagrams that follow.
    pub(super) fn mark(&mut self, socket: BorrowedFd<'_>, ecn: Option<Ecn>) -> io::Result<()> {
        let class = self.dscp.map_or(0, Dscp::traffic_class) | ecn.map_or(0, Ecn::bits);
        if self.class != Some(class) {
            set_traffic_class(socket, class)?;
            // The class has selected another priority for IPv4.
            if let Some(priority) = self.priority {
                set_priority(socket, priority).map_err(io::Error::other)?;
            }
            self.class = Some(class);
        }
        Ok(())
    }

    /// Sends datagrams of `segment` bytes, the last of which may be shorter. With `note` it is one, whose departure the kernel notes.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        ends: &Ends,
        ecn: Option<Ecn>,
        (bytes, segment): (&[u8], usize),
        note: Option<u32>,
    ) -> io::Result<()> {
        self.mark(socket, ecn)?;
        let departure = self.departures.map(|times| times.next.max(crate::now()));
        let mut control = Control::new();
        if let Some(ip) = ends.from {
            control.source(ip, ends.is_v4);
        }
        if bytes.len() > segment {
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &(segment as u16).to_ne_bytes());
        }
        if let Some(at) = departure {
            control.put(libc::SOL_SOCKET, libc::SCM_TXTIME, &at.as_nanos().to_ne_bytes());
        }
        if let Some(id) = note {
            ask_note(&mut control, id);
        }
        send(socket, Some(ends.to), bytes, &mut control)?;
        if let (Some(times), Some(at)) = (&mut self.departures, departure) {
            times.next = at + times.rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes.len() as u64));
        }
        Ok(())
    }
}
