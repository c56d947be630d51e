//! What the two processes tell each other: packets of text over a socket pair, an answer with a descriptor where it is a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use freshwire_link::{Counters, Direction};
use freshwire_record::Rate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};

use super::types::{End, StandaloneError};
use crate::{DirectionSnapshot, Lateness, Snapshot};

/// Longest message; longer faults are cut. Chosen, not measured.
const MAX_BYTES: usize = 16 * 1024;

/// Time for an answer on the busiest machine. Making namespaces takes the kernel up to some seconds. Chosen,
/// not measured.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Why a link that gave no answer in this time was ended.
pub(super) const UNANSWERED: &str = "the link's process did not answer within a minute, and was ended";

/// What the link's process is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Socket { end: End, domain: i32, kind: i32, protocol: i32 },
    SetRate { direction: Direction, rate: Option<Rate> },
    Snapshot,
    Stop,
}

/// What it answers.
#[derive(Debug)]
pub(super) enum Answer {
    Started { address: Option<SocketAddr>, has_ipv6: bool },
    Socket(OwnedFd),
    Done,
    Snapshot(Snapshot),
    Stopped(Snapshot, Vec<String>),
    NotPermitted(String),
    Failed(String),
}

/// One end of the socket pair.
pub(super) struct Channel {
    socket: OwnedFd,
    patience: Timespec,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, patience: PATIENCE }
    }

    #[cfg(test)]
    pub(super) fn without_patience(socket: OwnedFd) -> Self {
        Self { socket, patience: Timespec { tv_sec: 0, tv_nsec: 0 } }
    }

    pub(super) fn send(&self, request: &Request) -> Result<(), StandaloneError> {
        send(&self.socket, request.to_text().as_bytes(), SendFlags::NOSIGNAL)
            .map_err(|_| StandaloneError::Ended)?;
        Ok(())
    }

    /// The next request; `None` after the last sender of requests is dropped.
    pub(super) fn request(&self) -> io::Result<Option<Request>> {
        let (text, _) = receive(&self.socket)?;
        if text.is_empty() {
            return Ok(None);
        }
        Request::parse(&text).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Waits for the answer to the last request. A failure is an error.
    pub(super) fn answer(&self) -> Result<Answer, StandaloneError> {
        if !self.is_readable() {
            return Err(StandaloneError::Failed(UNANSWERED.to_owned()));
        }
        let (text, descriptor) =
            receive(&self.socket).map_err(StandaloneError::system("ask the link's process"))?;
        match Answer::parse(&text, descriptor) {
            Some(Answer::NotPermitted(words)) => Err(StandaloneError::NotPermitted(words)),
            Some(Answer::Failed(words)) => Err(StandaloneError::Failed(words)),
            Some(answer) => Ok(answer),
            None => Err(StandaloneError::Ended),
        }
    }

    pub(super) fn reply(&self, answer: &Answer) -> io::Result<()> {
        let mut text = answer.to_text();
        let end = (0..=MAX_BYTES.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors;
        if let Answer::Socket(socket) = answer {
            descriptors = [socket.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits until the other process has ended.
    pub(super) fn wait_for_end(&self) {
        while self.is_readable() {
            match receive(&self.socket) {
                Ok((text, _)) if !text.is_empty() => {}
                _ => return,
            }
        }
    }

    /// Waits until there is something, or the other end is closed; false after the time for an answer.
    pub(super) fn is_readable(&self) -> bool {
        loop {
            let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut files, Some(&self.patience)) {
                Err(Errno::INTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        }
    }
}

/// Receives a packet, with the descriptor that it may have; nothing at the end.
fn receive(socket: &OwnedFd) -> io::Result<(String, Option<OwnedFd>)> {
    let mut buffer = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let received = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            // The other process has ended with something unread.
            Err(Errno::CONNRESET) => return Ok((String::new(), None)),
            result => result?,
        };
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let text = String::from_utf8_lossy(&buffer[..received.bytes]).into_owned();
        return Ok((text, descriptor));
    }
}

impl Request {
    fn to_text(self) -> String {
        match self {
            Self::Socket { end, domain, kind, protocol } => {
                let end = if end == End::Near { "near" } else { "far" };
                format!("socket {end} {domain} {kind} {protocol}")
            }
            Self::SetRate { direction, rate } => {
                let rate =
                    rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.bits_per_sec().to_string());
                format!("rate {direction} {rate}")
            }
            Self::Snapshot => "snapshot".to_owned(),
            Self::Stop => "stop".to_owned(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["socket", end, domain, kind, protocol] => Self::Socket {
                end: if end == "near" { End::Near } else { End::Far },
                domain: domain.parse().ok()?,
                kind: kind.parse().ok()?,
                protocol: protocol.parse().ok()?,
            },
            ["rate", direction, rate] => Self::SetRate {
                direction: if direction == "up" { Direction::Up } else { Direction::Down },
                rate: match rate {
                    "unlimited" => None,
                    bits => Some(Rate::from_bits_per_sec(bits.parse().ok()?)),
                },
            },
            ["snapshot"] => Self::Snapshot,
            ["stop"] => Self::Stop,
            _ => return None,
        })
    }
}

impl Answer {
    fn to_text(&self) -> String {
        match self {
            Self::Started { address, has_ipv6 } => {
                let address = address.map_or_else(|| "none".to_owned(), |address| address.to_string());
                format!("started {address} {has_ipv6}")
            }
            Self::Socket(_) => "socket".to_owned(),
            Self::Done => "done".to_owned(),
            Self::Snapshot(snapshot) => format!("snapshot {}", numbers(snapshot)),
            Self::Stopped(snapshot, faults) => {
                format!("stopped {}", [vec![numbers(snapshot)], faults.clone()].concat().join("\n"))
            }
            Self::NotPermitted(words) => format!("not-permitted {words}"),
            Self::Failed(words) => format!("failed {words}"),
        }
    }

    fn parse(text: &str, descriptor: Option<OwnedFd>) -> Option<Self> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match name {
            "started" => {
                let (address, has_ipv6) = rest.split_once(' ')?;
                Self::Started { address: address.parse().ok(), has_ipv6: has_ipv6 == "true" }
            }
            "socket" => Self::Socket(descriptor?),
            "done" => Self::Done,
            "snapshot" => Self::Snapshot(snapshot(rest)?),
            "stopped" => {
                let mut lines = rest.lines();
                let snapshot = snapshot(lines.next()?)?;
                Self::Stopped(snapshot, lines.map(str::to_owned).collect())
            }
            "not-permitted" => Self::NotPermitted(rest.to_owned()),
            "failed" => Self::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn numbers(snapshot: &Snapshot) -> String {
    let Snapshot { up, down, lateness } = snapshot;
    let mut numbers = vec![nanos(lateness.p50), nanos(lateness.p99), nanos(lateness.max)];
    for DirectionSnapshot { link, queued_bytes } in [up, down] {
        numbers.extend([
            *queued_bytes,
            link.offered_packets,
            link.offered_bytes,
            link.delivered_packets,
            link.delivered_bytes,
            link.lost_packets,
            link.lost_bytes,
            link.queue_full_packets,
            link.queue_full_bytes,
            link.wire_full_packets,
            link.queue_peak_bytes,
            nanos(link.queue_delay_max),
        ]);
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn snapshot(text: &str) -> Option<Snapshot> {
    let mut numbers = text.split(' ').map_while(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next();
    let mut lateness = Lateness::default();
    for time in [&mut lateness.p50, &mut lateness.p99, &mut lateness.max] {
        *time = Duration::from_nanos(next()?);
    }
    let mut direction = || {
        let queued_bytes = next()?;
        let mut link = Counters::default();
        for number in [
            &mut link.offered_packets,
            &mut link.offered_bytes,
            &mut link.delivered_packets,
            &mut link.delivered_bytes,
            &mut link.lost_packets,
            &mut link.lost_bytes,
            &mut link.queue_full_packets,
            &mut link.queue_full_bytes,
            &mut link.wire_full_packets,
            &mut link.queue_peak_bytes,
        ] {
            *number = next()?;
        }
        link.queue_delay_max = match next()? {
            u64::MAX => Duration::MAX,
            nanos => Duration::from_nanos(nanos),
        };
        Some(DirectionSnapshot { link, queued_bytes })
    };
    Some(Snapshot { up: direction()?, down: direction()?, lateness })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_were_written() {
        let rate = Rate::from_bits_per_sec(300_000);
        for request in [
            Request::Socket { end: End::Far, domain: 2, kind: 1, protocol: 0 },
            Request::Socket { end: End::Near, domain: 10, kind: 2, protocol: 17 },
            Request::SetRate { direction: Direction::Up, rate: Some(rate) },
            Request::SetRate { direction: Direction::Down, rate: None },
            Request::Snapshot,
            Request::Stop,
        ] {
            assert_eq!(Request::parse(&request.to_text()), Some(request));
        }
        for text in ["", "socket near 2 1", "rate up fast", "stop now"] {
            assert_eq!(Request::parse(text), None, "{text}");
        }
    }

    #[test]
    fn counters_are_read_as_they_were_written() {
        let mut last = Snapshot::default();
        last.up.link.offered_packets = 1;
        last.up.link.queue_delay_max = Duration::MAX;
        last.down.link.queue_peak_bytes = 7;
        last.down.queued_bytes = 3;
        last.lateness.p99 = Duration::from_micros(5);
        let faults = vec!["the machine was too busy".to_owned(), "and more".to_owned()];
        let text = Answer::Stopped(last, faults.clone()).to_text();
        match Answer::parse(&text, None) {
            Some(Answer::Stopped(snapshot, read)) => assert_eq!((snapshot, read), (last, faults)),
            other => panic!("{other:?}"),
        }
        assert!(Answer::parse("socket", None).is_none(), "the descriptor is missing");
        assert!(Answer::parse("snapshot 1 2", None).is_none());
    }
}
