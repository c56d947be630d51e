//! Datagrams on their way into the socket.

use std::collections::VecDeque;

use freshwire_a1::Outgoing;
use freshwire_io::udp::{self, Ecn, Sent, UdpSocket};

use super::departing::Noted;

/// The buffer in which datagrams are made, and those of them for which the socket had no room.
#[derive(Default)]
pub(super) struct Outbound {
    bytes: Vec<u8>,
    /// The waiting bytes, and the first that is not sent.
    waiting: Option<(Outgoing, usize)>,
    /// Datagrams among those that are not sent, whose departure is noted.
    noted: VecDeque<Noted>,
}

impl Outbound {
    /// The buffer, empty. Not while something waits in it.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.noted.clear();
        &mut self.bytes
    }

    /// The bytes that were just made.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The datagrams among those just made whose departure is to be noted, in the order of the buffer.
    pub(super) fn noted(&mut self) -> &mut VecDeque<Noted> {
        &mut self.noted
    }

    /// Whether the socket had no room: nothing else can be sent until it has.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sends what waits, as far as the socket takes it. True: nothing waits any more.
    pub(super) fn resume(&mut self, socket: &mut UdpSocket) -> bool {
        match self.waiting.take() {
            Some((outgoing, from)) => self.send_from(socket, outgoing, from),
            None => true,
        }
    }

    /// Sends what was just made in `bytes`. False: some of it waits for room.
    pub(super) fn send(&mut self, socket: &mut UdpSocket, outgoing: Outgoing) -> bool {
        self.send_from(socket, outgoing, 0)
    }

    fn send_from(&mut self, socket: &mut UdpSocket, outgoing: Outgoing, mut from: usize) -> bool {
        while from < outgoing.bytes {
            let noted = self.noted.front().copied();
            let end = noted.map_or(outgoing.bytes, |noted| match noted.at {
                at if at == from => outgoing.bytes.min(from + outgoing.segment),
                at => at,
            });
            let datagrams = udp::Outgoing {
                to: outgoing.to.address,
                from: outgoing.from,
                ecn: outgoing.ecn.then_some(Ecn::Ect0),
                bytes: self.bytes.get(from..end).unwrap_or_default(),
                segment: Some(outgoing.segment),
            };
            let sent = match noted {
                Some(noted) if noted.at == from => socket.send_noted(&datagrams, noted.id),
                _ => socket.send(&datagrams),
            };
            match sent {
                Ok(Sent::All) => {}
                Ok(Sent::Part(sent)) => {
                    self.waiting = Some((outgoing, from + sent));
                    return false;
                }
                // A datagram that is too large for the link or has no route counts as lost on the path. The
                // connection detects this like any other loss.
                Ok(Sent::TooLarge(_)) | Err(_) => return true,
            }
            if noted.is_some_and(|noted| noted.at == from) {
                self.noted.pop_front();
            }
            from = end;
        }
        true
    }
}
