//! Which of a transport stream's programs is taken: the first one that has video.

use std::collections::{BTreeMap, BTreeSet};

use super::psi::{self, Sections};

/// The programs of a stream, and the one that was chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    table: Sections,
    version: Option<u8>,
    /// The PID of each program's map, by the program's number.
    maps: BTreeMap<u16, u16>,
    /// The sections on each PID that has maps.
    sections: BTreeMap<u16, Sections>,
    /// Programs whose map was seen and has no video.
    without_video: BTreeSet<u16>,
    /// Maps seen since there is no choice.
    looked: u32,
    chosen: Option<u16>,
}

impl Programs {
    /// Adds the payload of a packet of the table.
    pub(super) fn table(&mut self, start: bool, payload: &[u8]) {
        for section in self.table.push(start, payload) {
            let Some(programs) = psi::programs(&section) else { continue };
            // A table may have several sections.
            if self.version.replace(programs.version) != Some(programs.version) {
                self.maps.clear();
                self.without_video.clear();
            }
            for (number, pid) in programs.maps {
                if self.maps.len() < MOST_PROGRAMS {
                    self.maps.insert(number, pid);
                }
            }
            let maps = &self.maps;
            self.sections.retain(|pid, _| maps.values().any(|known| known == pid));
            for &pid in maps.values() {
                self.sections.entry(pid).or_default();
            }
        }
    }

    /// The maps that a packet completes; `None` if its PID has none.
    pub(super) fn maps(&mut self, pid: u16, start: bool, payload: &[u8]) -> Option<Vec<Vec<u8>>> {
        Some(self.sections.get_mut(&pid)?.push(start, payload))
    }

    /// Whether the program of this map is the one to take. One without video is taken if no other has any.
    pub(super) fn choose(&mut self, number: u16, has_video: bool, has_sound: bool) -> bool {
        if !self.maps.contains_key(&number) {
            return false;
        }
        if self.chosen.is_some_and(|chosen| !self.maps.contains_key(&chosen)) {
            (self.chosen, self.looked) = (None, 0);
        }
        if let Some(chosen) = self.chosen {
            return chosen == number;
        }
        if has_video {
            self.chosen = Some(number);
            return true;
        }
        self.looked += 1;
        self.without_video.insert(number);
        let all_seen = self.maps.keys().all(|number| self.without_video.contains(number));
        if has_sound && (all_seen || self.looked >= MOST_LOOKS) {
            self.chosen = Some(number);
            return true;
        }
        false
    }

    /// Whether a program was chosen.
    pub(super) fn has_choice(&self) -> bool {
        self.chosen.is_some()
    }

    /// Whether a table has come.
    pub(super) fn is_known(&self) -> bool {
        self.version.is_some()
    }
}

/// Programs of a stream that are looked at. Chosen, not measured.
const MOST_PROGRAMS: usize = 64;
/// Maps without video until one with nothing but sound is enough: a program may be announced and never come.
/// Chosen, not measured.
const MOST_LOOKS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpeg_ts::checksum;

    fn table(version: u8, number: u8, last: u8, programs: &[(u16, u16)]) -> Vec<u8> {
        let mut section =
            vec![0, 0xb0, 9 + 4 * programs.len() as u8, 0, 1, 0xc1 | version << 1, number, last];
        for (program, pid) in programs {
            section.extend(program.to_be_bytes());
            section.extend((0xe000 | pid).to_be_bytes());
        }
        let sum = checksum(&section);
        section.extend(sum.to_be_bytes());
        [&[0], section.as_slice()].concat()
    }

    #[test]
    fn the_first_program_with_video_is_taken() {
        let mut programs = Programs::default();
        programs.table(true, &table(0, 0, 0, &[(1, 0x100), (2, 0x200), (3, 0x200)]));
        assert!(!programs.choose(1, false, true) && !programs.has_choice());
        assert!(!programs.choose(9, true, true), "no such program");
        assert!(programs.choose(3, true, false));
        assert!(!programs.choose(2, true, true), "the choice is made");
        // The program moves, and goes.
        programs.table(true, &table(1, 0, 0, &[(2, 0x200), (3, 0x300)]));
        assert!(programs.choose(3, true, false) && programs.maps(0x100, true, &[0]).is_none());
        programs.table(true, &table(2, 0, 0, &[(2, 0x200)]));
        assert!(programs.choose(2, true, true));
    }

    #[test]
    fn sound_alone_is_taken_where_nothing_else_comes() {
        let mut programs = Programs::default();
        programs.table(true, &table(0, 0, 0, &[(1, 0x100)]));
        assert!(programs.choose(1, false, true));
        let mut programs = Programs::default();
        programs.table(true, &table(0, 0, 0, &[(1, 0x100), (2, 0x200)]));
        assert_eq!((1..).find(|_| programs.choose(1, false, true)), Some(MOST_LOOKS));
    }

    #[test]
    fn a_table_may_have_several_sections() {
        let mut programs = Programs::default();
        programs.table(true, &table(0, 0, 1, &[(1, 0x100)]));
        programs.table(true, &table(0, 1, 1, &[(2, 0x200)]));
        assert!(programs.maps(0x100, true, &[0]).is_some() && programs.maps(0x200, true, &[0]).is_some());
    }
}
