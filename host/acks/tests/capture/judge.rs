//! What captures show of the filter: what it dropped, and what was sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use freshwire_netns::{Course, LoggedPacket, Place};

use super::Segment;
use crate::support::{ACK, FIN, RST, SYN};

/// An acknowledgement that came this much earlier would have been handled before a segment that is sent now. Longer than the filter's
/// guard (4 ms), after which the next acknowledgement passes.
const SLACK: Duration = Duration::from_millis(10);

/// What a segment from the peer is, as the safe rule has it. Only progress may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Data,
    Syn,
    Fin,
    Rst,
    OtherFlags,
    Sack,
    OtherOptions,
    /// Older than another.
    Outside,
    Duplicate,
    /// The window is closed.
    Closed,
    /// The window differs by more than a quarter from the last one that passed.
    Window,
    Progress,
}

/// A packet at the near host, in the order of time.
#[derive(Debug)]
enum Event {
    Sent { begin: u64, end: u64, is_lost: bool },
    Arrived { segment: Segment, is_passed: bool },
}

/// A connection at the near host.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its port at the near host.
    pub(crate) port: u16,
    /// With the time in nanoseconds.
    events: Vec<(u64, Event)>,
    /// Segments that arrived at the far host behind newer ones.
    pub(crate) reordered: usize,
}

/// Counts of retransmissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retransmissions {
    /// Segments with bytes that had been sent before.
    pub(crate) all: usize,
    /// Retransmissions with bytes that the link had not lost.
    pub(crate) needless: usize,
    /// Needless retransmissions whose acknowledgement the filter had dropped.
    pub(crate) by_filter: usize,
}

/// How many TCP segments the near host was given.
pub(crate) fn arrived(packets: &[LoggedPacket<'_>]) -> usize {
    packets.iter().filter(|packet| is(packet, Place::Near, Course::Received)).filter_map(segment).count()
}

/// The connections in the packet log, with what of them the stack was given.
pub(crate) fn connections(packets: &[LoggedPacket<'_>], stack: &[Segment]) -> Vec<Connection> {
    let mut given: BTreeMap<&Segment, usize> = BTreeMap::new();
    for segment in stack {
        *given.entry(segment).or_default() += 1;
    }
    // A repetition always passes: of equal segments those that were given are the last ones.
    let mut passed = vec![false; packets.len()];
    for (packet, passed) in packets.iter().zip(&mut passed).rev() {
        let left = segment(packet)
            .filter(|_| is(packet, Place::Near, Course::Received))
            .and_then(|segment| given.get_mut(&segment).filter(|left| **left > 0));
        if let Some(left) = left {
            *left -= 1;
            *passed = true;
        }
    }
    assert!(given.values().all(|left| *left == 0), "TCP was given what did not arrive");
    let mut ports: BTreeMap<u16, (u32, Connection)> = BTreeMap::new();
    let mut order: Vec<usize> = (0..packets.len()).collect();
    order.sort_by_key(|&at| packets[at].real_ns);
    let mut highest_at_far: BTreeMap<u16, u64> = BTreeMap::new();
    for at in order {
        let packet = &packets[at];
        let Some(segment) = segment(packet) else { continue };
        let is_from_near = is(packet, Place::Near, Course::Sent) || is(packet, Place::Far, Course::Received);
        let port = if is_from_near { segment.ports.0 } else { segment.ports.1 };
        // The first is the SYN of the near host.
        let (first, connection) = ports
            .entry(port)
            .or_insert_with(|| (segment.seq, Connection { port, events: Vec::new(), reordered: 0 }));
        let begin = u64::from(segment.seq.wrapping_sub(*first));
        let end = begin + u64::from(segment.payload);
        if is(packet, Place::Near, Course::Sent) {
            connection.events.push((packet.real_ns, Event::Sent { begin, end, is_lost: packet.is_lost }));
        } else if is(packet, Place::Near, Course::Received) {
            // Numbers of the acknowledgements count from there, too.
            let segment = Segment { ack: segment.ack.wrapping_sub(*first), ..segment };
            connection.events.push((packet.real_ns, Event::Arrived { segment, is_passed: passed[at] }));
        } else if is(packet, Place::Far, Course::Received) && segment.payload > 0 {
            let highest = highest_at_far.entry(port).or_default();
            connection.reordered += usize::from(begin < *highest);
            *highest = (*highest).max(end);
        }
    }
    ports.into_values().map(|(_, connection)| connection).collect()
}

fn is(packet: &LoggedPacket<'_>, place: Place, course: Course) -> bool {
    packet.place == place && packet.course == Some(course)
}

fn segment(packet: &LoggedPacket<'_>) -> Option<Segment> {
    Segment::of_frame(packet.frame)
}

impl Connection {
    /// Bytes of the largest packet's payload.
    fn mss(&self) -> u64 {
        let sent = self.events.iter().map(|(_, event)| match event {
            Event::Sent { begin, end, .. } => end - begin,
            Event::Arrived { .. } => 0,
        });
        sent.max().unwrap_or(0)
    }

    /// Segments that the link lost.
    pub(crate) fn lost(&self) -> usize {
        self.events.iter().filter(|(_, event)| matches!(event, Event::Sent { is_lost: true, .. })).count()
    }

    /// Segments that said that the peer has no room.
    pub(crate) fn closed_windows(&self) -> usize {
        let is_closed = |event: &Event| match event {
            Event::Arrived { segment, .. } => segment.window == 0 && segment.flags & RST == 0,
            Event::Sent { .. } => false,
        };
        self.events.iter().filter(|(_, event)| is_closed(event)).count()
    }

    /// Checks that what did not pass was an acknowledgement of progress alone, within a segment (`packets` packets at most) behind
    /// one that passed, and covered by a later one. Returns how many of each kind arrived, and how many did not pass.
    pub(crate) fn check_rule(&self, packets: u64) -> (BTreeMap<Kind, usize>, usize) {
        let (mut kinds, mut dropped) = (BTreeMap::new(), 0);
        let (mut highest, mut passed, mut window) = (1, 1, 0);
        let mut uncovered: Option<u64> = None;
        for (at, event) in &self.events {
            let Event::Arrived { segment, is_passed } = event else { continue };
            let kind = kind(segment, highest, window);
            *kinds.entry(kind).or_default() += 1;
            let number = u64::from(segment.ack);
            if !is_passed {
                assert_eq!(kind, Kind::Progress, "was dropped: {segment:?} at {at} of {}", self.port);
                let behind = number - passed;
                assert!(
                    behind < packets * self.mss(),
                    "{behind} bytes behind the last that passed: {segment:?} at {at}"
                );
                dropped += 1;
                uncovered = uncovered.max(Some(number));
            }
            if kind == Kind::Outside || segment.flags & (SYN | RST) != 0 {
                continue;
            }
            highest = highest.max(number);
            if *is_passed {
                (passed, window) = (highest, segment.window);
                uncovered = uncovered.filter(|&number| number > passed);
            }
        }
        assert_eq!(uncovered, None, "was dropped, and no later one covers it ({})", self.port);
        (kinds, dropped)
    }

    /// Counts the retransmissions by cause.
    pub(crate) fn retransmissions(&self) -> Retransmissions {
        let mut found = Retransmissions::default();
        let mut sent: Vec<(u64, u64, bool)> = Vec::new();
        let (mut highest, mut passed) = (0, 0);
        let mut dropped: Vec<(u64, u64)> = Vec::new();
        for (at, event) in &self.events {
            match event {
                Event::Arrived { segment, is_passed } => {
                    let number = u64::from(segment.ack);
                    if segment.flags & (SYN | RST) != 0 {
                    } else if *is_passed {
                        passed = passed.max(number);
                    } else {
                        dropped.push((*at, number));
                    }
                }
                Event::Sent { begin, end, is_lost } if end > begin => {
                    if *begin < highest {
                        found.all += 1;
                        let delivered = sent
                            .iter()
                            .filter(|(from, to, is_lost)| !is_lost && from < end && to > begin)
                            .map(|(_, to, _)| *to.min(end))
                            .max();
                        if let Some(delivered) = delivered {
                            found.needless += 1;
                            let is_known = |&(when, number): &(u64, u64)| {
                                number >= delivered && when + SLACK.as_nanos() as u64 <= *at
                            };
                            found.by_filter +=
                                usize::from(passed < delivered && dropped.iter().any(is_known));
                        }
                    }
                    highest = highest.max(*end);
                    sent.push((*begin, *end, *is_lost));
                }
                Event::Sent { .. } => {}
            }
        }
        found
    }
}

/// As the safe rule has it: `highest` is the highest number until then, `window` the last one that passed.
fn kind(segment: &Segment, highest: u64, window: u16) -> Kind {
    let number = u64::from(segment.ack);
    let slack = window >> 2;
    if segment.payload > 0 {
        Kind::Data
    } else if segment.flags != ACK {
        let named = [(SYN, Kind::Syn), (RST, Kind::Rst), (FIN, Kind::Fin)];
        named.iter().find(|(flag, _)| segment.flags & flag != 0).map_or(Kind::OtherFlags, |(_, kind)| *kind)
    } else if segment.has_sack() {
        Kind::Sack
    } else if !segment.is_plain() {
        Kind::OtherOptions
    } else if number < highest {
        Kind::Outside
    } else if number == highest {
        Kind::Duplicate
    } else if segment.window == 0 {
        Kind::Closed
    } else if segment.window.abs_diff(window) > slack {
        Kind::Window
    } else {
        Kind::Progress
    }
}
