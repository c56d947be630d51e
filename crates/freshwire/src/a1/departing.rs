//! Datagrams in which records of sinks end that note departures.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use freshwire_io::tcp::Stage;
use freshwire_io::udp::{DepartureNote, UdpSocket, departures, note_departures};

use crate::sink::shared::SinkShared;

/// Datagrams whose notes are awaited at most: one that a queue in front of the device drops has only one. Chosen, not measured.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Departing {
    is_asked: bool,
    next_id: u32,
    /// Oldest first, with consecutive numbers up to `next_id`.
    datagrams: VecDeque<NotedDatagram>,
    notes: Vec<DepartureNote>,
}

struct NotedDatagram {
    shared: Arc<SinkShared>,
    /// Indexes of the records that end in it.
    records: Vec<u64>,
    has_departed: bool,
}

/// A datagram in the buffer whose departure the kernel is to note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// Where it begins.
    pub(super) at: usize,
    /// The number of its notes.
    pub(super) id: u32,
}

impl Departing {
    /// A sink asks for departures.
    pub(super) fn ask(&mut self, socket: &UdpSocket) -> io::Result<()> {
        if !self.is_asked {
            note_departures(socket)?;
            self.is_asked = true;
        }
        Ok(())
    }

    /// Adds the datagrams in the buffer in which records of this sink end: where those begin, and the records' indexes.
    pub(super) fn add(
        &mut self,
        shared: &Arc<SinkShared>,
        ends: Vec<(usize, u64)>,
        to: &mut VecDeque<Noted>,
    ) {
        for (at, record) in ends {
            match (to.back(), self.datagrams.back_mut()) {
                (Some(last), Some(datagram)) if last.at == at => datagram.records.push(record),
                _ => {
                    to.push_back(Noted { at, id: self.next_id });
                    self.next_id = self.next_id.wrapping_add(1);
                    let (shared, records) = (Arc::clone(shared), vec![record]);
                    self.datagrams.push_back(NotedDatagram { shared, records, has_departed: false });
                }
            }
        }
        while self.datagrams.len() > MOST {
            self.datagrams.pop_front();
        }
    }

    /// Takes over what the kernel has noted. A note comes before the acknowledgement that the datagram led to.
    pub(super) fn take_in(&mut self, socket: &UdpSocket) {
        // What the error queue refuses stays unknown.
        if !self.is_asked || departures(socket, &mut self.notes).is_err() {
            return;
        }
        for DepartureNote { id, stage, at } in self.notes.drain(..) {
            let first = self.next_id.wrapping_sub(self.datagrams.len() as u32);
            let Some(datagram) = self.datagrams.get_mut(id.wrapping_sub(first) as usize) else { continue };
            datagram.has_departed |= stage == Stage::Departed;
            for record in &datagram.records {
                datagram.shared.departures().note(*record, stage, at);
            }
            while self.datagrams.front().is_some_and(|first| first.has_departed) {
                self.datagrams.pop_front();
            }
        }
    }
}
