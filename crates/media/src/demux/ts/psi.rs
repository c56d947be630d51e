//! The tables that say what a transport stream holds (ISO 13818-1, 2.4.4): the programs and the streams of one.

use std::collections::VecDeque;

use crate::mpeg_ts::checksum;

/// Puts the sections of one PID together. Memory: one section, at most 4 kB.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    bytes: Vec<u8>,
    collecting: bool,
    /// Sections with a wrong checksum. One that comes again as it was is not damaged: its sender cannot count.
    doubtful: VecDeque<Vec<u8>>,
}

impl Sections {
    /// Forgets the section that is incomplete.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.collecting = false;
    }

    /// Adds a packet's payload. Gives the sections with a right checksum that it completes, from `table_id` to the byte
    /// before the checksum.
    pub(super) fn push(&mut self, start: bool, payload: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        let Some((&pointer, rest)) = payload.split_first().filter(|_| start) else {
            if self.collecting && !start {
                self.bytes.extend_from_slice(payload);
                self.take(&mut complete);
            }
            return complete;
        };
        let Some((tail, begin)) = rest.split_at_checked(usize::from(pointer)) else {
            self.clear();
            return complete;
        };
        if self.collecting {
            self.bytes.extend_from_slice(tail);
            self.take(&mut complete);
        }
        self.bytes = begin.to_vec();
        self.collecting = true;
        self.take(&mut complete);
        complete
    }

    fn take(&mut self, complete: &mut Vec<Vec<u8>>) {
        while let Some(&[table, high, low]) = self.bytes.first_chunk::<3>() {
            let len = 3 + (usize::from(high & 15) << 8 | usize::from(low));
            if table == STUFFING {
                self.clear();
                return;
            }
            if self.bytes.len() < len {
                return;
            }
            let section: Vec<u8> = self.bytes.drain(..len).collect();
            let is_right = checksum(&section) == 0 || self.doubtful.contains(&section);
            match section.split_last_chunk::<4>() {
                Some((content, _)) if is_right => complete.push(content.to_vec()),
                Some(_) => {
                    if self.doubtful.len() >= MOST_DOUBTFUL {
                        self.doubtful.pop_front();
                    }
                    self.doubtful.push_back(section);
                }
                None => {}
            }
        }
    }
}

/// A section of the table of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Programs {
    pub(super) version: u8,
    /// Its number among the sections of the table.
    pub(super) number: u8,
    /// Each program's number and the PID of its map.
    pub(super) maps: Vec<(u16, u16)>,
}

/// The programs in a section, if that is in force.
pub(super) fn programs(section: &[u8]) -> Option<Programs> {
    let entries = current(section, 0)?.as_chunks::<4>().0.iter().map(|entry| {
        let [number, pid] = [[entry[0], entry[1]], [entry[2], entry[3]]].map(u16::from_be_bytes);
        (number, pid & 0x1fff)
    });
    let maps = entries.filter(|(number, _)| *number != 0).collect();
    Some(Programs { version: section[5] >> 1 & 31, number: section[6], maps })
}

/// The number of the program whose map a section is.
pub(super) fn program_of(section: &[u8]) -> Option<u16> {
    current(section, 2)?;
    Some(u16::from_be_bytes([section[3], section[4]]))
}

/// One stream of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elementary {
    pub(super) pid: u16,
    pub(super) kind: u8,
    /// Tag and content of each descriptor.
    pub(super) descriptors: Vec<(u8, Vec<u8>)>,
}

impl Elementary {
    /// The content of the first descriptor with this tag that begins with `start`.
    pub(super) fn descriptor(&self, tag: u8, start: &[u8]) -> Option<&[u8]> {
        let found = self.descriptors.iter().find(|(its, content)| *its == tag && content.starts_with(start));
        found.map(|(_, content)| content.as_slice())
    }
}

/// The streams of a program map section.
pub(super) fn streams(section: &[u8]) -> Option<Vec<Elementary>> {
    let body = current(section, 2)?;
    let (&[_, _, high, low], rest) = body.split_first_chunk::<4>()?;
    let mut rest = rest.get(usize::from(high & 15) << 8 | usize::from(low)..)?;
    let mut streams = Vec::new();
    while let Some((&[kind, pid_high, pid_low, high, low], after)) = rest.split_first_chunk::<5>() {
        let (mut information, after) =
            after.split_at_checked(usize::from(high & 15) << 8 | usize::from(low))?;
        let mut descriptors = Vec::new();
        while let Some((&[tag, len], after)) = information.split_first_chunk::<2>() {
            let (content, after) = after.split_at_checked(usize::from(len))?;
            descriptors.push((tag, content.to_vec()));
            information = after;
        }
        let pid = u16::from(pid_high & 0x1f) << 8 | u16::from(pid_low);
        streams.push(Elementary { pid, kind, descriptors });
        rest = after;
    }
    Some(streams)
}

/// What follows the common header of a section of this table that is in force.
fn current(section: &[u8], table: u8) -> Option<&[u8]> {
    let (head, body) = section.split_first_chunk::<8>()?;
    (head[0] == table && head[5] & 1 == 1).then_some(body)
}

const STUFFING: u8 = 0xff;
/// Sections with a wrong checksum that are remembered. Chosen, not measured.
const MOST_DOUBTFUL: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// As ffmpeg writes them: a program map at PID 4096; H.264 at 256 and Opus with one channel at 257.
    const PROGRAMS: &[u8] = &[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0, 0x2a, 0xb1, 4, 0xb2];
    const STREAMS: &[u8] = &[
        2, 0xb0, 33, 0, 1, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 0, 6, 0xe1, 1, 0xf0, 10, 5, 4,
        b'O', b'p', b'u', b's', 0x7f, 2, 0x80, 1, 0xa3, 0xea, 0x45, 0x34,
    ];

    #[test]
    fn tables_are_read() {
        let mut sections = Sections::default();
        let payload: Vec<u8> = [0].iter().chain(PROGRAMS).copied().chain([0xff; 20]).collect();
        let got = sections.push(true, &payload);
        assert_eq!(
            got.iter().map(|section| programs(section).map(|it| it.maps)).collect::<Vec<_>>(),
            [Some(vec![(1, 4096)])]
        );
        let read = streams(&STREAMS[..STREAMS.len() - 4]).expect("valid");
        assert_eq!(
            read.iter().map(|stream| (stream.pid, stream.kind)).collect::<Vec<_>>(),
            [(256, 27), (257, 6)]
        );
        assert_eq!(read[1].descriptor(5, b"Opus"), Some(&b"Opus"[..]));
        assert_eq!(read[1].descriptor(0x7f, &[0x80]), Some(&[0x80, 1][..]));
    }

    #[test]
    fn sections_across_packets_come_once_and_whole() {
        let mut sections = Sections::default();
        assert!(sections.push(false, &STREAMS[..9]).is_empty());
        let start: Vec<u8> = [0].iter().chain(&STREAMS[..20]).copied().collect();
        assert!(sections.push(true, &start).is_empty());
        // The rest comes before the next section, which the pointer leads to.
        let rest = &STREAMS[20..];
        let next: Vec<u8> = [rest.len() as u8].iter().chain(rest).chain(PROGRAMS).copied().collect();
        let got = sections.push(true, &next);
        assert_eq!(got, [&STREAMS[..STREAMS.len() - 4], &PROGRAMS[..PROGRAMS.len() - 4]]);
    }

    #[test]
    fn a_wrong_checksum_is_refused_until_it_comes_again() {
        let mut damaged = [&[0], PROGRAMS].concat();
        damaged[12] ^= 1;
        let mut sections = Sections::default();
        assert!(sections.push(true, &damaged).is_empty());
        damaged[12] ^= 3;
        assert!(sections.push(true, &damaged).is_empty());
        // As it was the first time: its sender reckons wrong.
        damaged[12] ^= 3;
        assert_eq!(sections.push(true, &damaged).len(), 1);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<Vec<(bool, Vec<u8>)>>()
            .for_each(|payloads| {
                let mut sections = Sections::default();
                for (start, payload) in payloads {
                    sections.push(*start, payload);
                    programs(payload);
                    program_of(payload);
                    streams(payload);
                }
            });
    }
}
