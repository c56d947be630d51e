//! A fragment of one sample: `moof` and the header of its `mdat`. Written by hand: it has the same 112 bytes each time,
//! and is made for each unit and viewer. A page gets the 17 bytes of it that are not always the same.

use super::timeline::Place;

/// The sample of a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Number of the fragment, from 1.
    pub(super) number: u32,
    pub(super) track_id: u32,
    pub(super) place: Place,
    pub(super) key: bool,
    /// At most [`Fragment::MAX_SAMPLE_BYTES`].
    pub(super) size: u32,
}

impl Fragment {
    pub(super) const HEADER_BYTES: u32 = MOOF_BYTES + 8;
    pub(super) const MAX_SAMPLE_BYTES: u32 = u32::MAX - 8;

    /// Bytes of the short form.
    pub(super) const SHORT_BYTES: u32 = 1 + 8 + 4 + 4;

    /// Adds what another one needs to write the header: it knows track and number, and the size from the message.
    pub(super) fn write_short(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.key));
        out.extend_from_slice(&self.place.decode_time.to_be_bytes());
        out.extend_from_slice(&self.place.duration.to_be_bytes());
        out.extend_from_slice(&self.place.offset.to_be_bytes());
    }

    /// Adds all bytes that go before the sample's.
    pub(super) fn write_header(&self, out: &mut Vec<u8>) {
        let mut word = |word: u32| out.extend_from_slice(&word.to_be_bytes());
        let mut open = |size: u32, kind: &[u8; 4]| {
            word(size);
            word(u32::from_be_bytes(*kind));
        };
        open(MOOF_BYTES, b"moof");
        open(MFHD_BYTES, b"mfhd");
        open(0, &self.number.to_be_bytes());
        open(TFHD_BYTES + TFDT_BYTES + TRUN_BYTES + 8, b"traf");
        open(TFHD_BYTES, b"tfhd");
        open(DEFAULT_BASE_IS_MOOF, &self.track_id.to_be_bytes());
        open(TFDT_BYTES, b"tfdt");
        let time = self.place.decode_time;
        word(VERSION_1);
        word((time >> 32) as u32);
        word(time as u32);
        let trun = [
            TRUN_BYTES,
            u32::from_be_bytes(*b"trun"),
            VERSION_1 | HAS_DATA_OFFSET | HAS_DURATION | HAS_SIZE | HAS_FLAGS | HAS_COMPOSITION_OFFSET,
            1,
            Self::HEADER_BYTES,
            self.place.duration,
            self.size,
            if self.key { SAMPLE_IS_SYNC } else { SAMPLE_DEPENDS },
            self.place.offset as u32,
        ];
        trun.into_iter().for_each(&mut word);
        word(self.size.saturating_add(8));
        word(u32::from_be_bytes(*b"mdat"));
    }
}

const MFHD_BYTES: u32 = 16;
const TFHD_BYTES: u32 = 16;
const TFDT_BYTES: u32 = 20;
const TRUN_BYTES: u32 = 36;
const MOOF_BYTES: u32 = 8 + MFHD_BYTES + 8 + TFHD_BYTES + TFDT_BYTES + TRUN_BYTES;

const VERSION_1: u32 = 1 << 24;
const DEFAULT_BASE_IS_MOOF: u32 = 0x02_0000;
const HAS_DATA_OFFSET: u32 = 0x001;
const HAS_DURATION: u32 = 0x100;
const HAS_SIZE: u32 = 0x200;
const HAS_FLAGS: u32 = 0x400;
const HAS_COMPOSITION_OFFSET: u32 = 0x800;
/// `sample_depends_on` 2: on no other.
const SAMPLE_IS_SYNC: u32 = 0x0200_0000;
/// `sample_depends_on` 1 and `sample_is_non_sync_sample`.
const SAMPLE_DEPENDS: u32 = 0x0101_0000;

#[cfg(test)]
mod tests {
    use mp4_atom::{Decode, Header, Moof};

    use super::*;

    #[test]
    fn another_reader_finds_the_same() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<(u32, u64, u32, i32, bool, u32)>()
            .for_each(|&(number, decode_time, duration, offset, key, size)| {
                let size = size.min(Fragment::MAX_SAMPLE_BYTES);
                let place = Place { decode_time, duration, offset };
                let mut bytes = Vec::new();
                Fragment { number, track_id: 2, place, key, size }.write_header(&mut bytes);
                assert_eq!(bytes.len(), Fragment::HEADER_BYTES as usize);
                let mut rest = bytes.as_slice();
                let moof = Moof::decode(&mut rest).expect("a moof");
                let mdat = Header::decode(&mut rest).expect("a box");
                assert_eq!((mdat.kind, mdat.size), (b"mdat".into(), Some(size as usize)));
                assert!(rest.is_empty());
                assert_eq!(moof.mfhd.sequence_number, number);
                let [traf] = moof.traf.as_slice() else { panic!("one track") };
                assert_eq!((traf.tfhd.track_id, traf.tfhd.default_base_is_moof), (2, true));
                assert_eq!(traf.tfdt.as_ref().map(|tfdt| tfdt.base_media_decode_time), Some(decode_time));
                let [trun] = traf.trun.as_slice() else { panic!("one run") };
                assert_eq!(trun.data_offset, Some(bytes.len() as i32));
                let sample = trun.samples.get(0).expect("one sample");
                assert_eq!(
                    (trun.samples.len(), sample.duration, sample.size),
                    (1, Some(duration), Some(size))
                );
                assert_eq!(sample.cts, Some(offset.into()));
                assert_eq!(sample.flags.map(|flags| flags & 0x1_0000 == 0), Some(key));
            });
    }
}
