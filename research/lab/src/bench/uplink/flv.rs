//! FLV files: what RTMP carries, with a head before each message (Adobe Flash Video File Format 10.1, annex E).

use anyhow::{Context as _, ensure};
use bytes::{Buf as _, Bytes};

pub(super) const AUDIO: u8 = 8;
pub(super) const VIDEO: u8 = 9;

const HEAD_BYTES: usize = 11;
/// Signature, version, sound and pictures, the length of this, and the length of the tag before the first.
const FILE_HEAD: [u8; 13] = [b'F', b'L', b'V', 1, 5, 0, 0, 0, 9, 0, 0, 0, 0];

/// The sequence header of a codec in place of coded media: the second byte of a tag of AVC or AAC.
const SEQUENCE_HEADER: u8 = 0;
/// The second byte of a tag of AVC or AAC with coded media.
const CODED: u8 = 1;
/// The first byte of a tag of AVC: the kind of picture, and the codec.
const AVC: u8 = 7;
const KEY: u8 = 1 << 4;
/// The first byte of a tag of AAC, without the bits that describe it.
const AAC: u8 = 10 << 4;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: u8,
    /// Decoding time in milliseconds.
    pub(super) dts_ms: u32,
    pub(super) body: Bytes,
}

impl Tag {
    /// Its bytes in a file.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let length = self.body.len() as u32;
        to.push(self.kind);
        to.extend_from_slice(&length.to_be_bytes()[1..]);
        let [highest, time @ ..] = self.dts_ms.to_be_bytes();
        to.extend_from_slice(&time);
        to.extend_from_slice(&[highest, 0, 0, 0]);
        to.extend_from_slice(&self.body);
        to.extend_from_slice(&(length + HEAD_BYTES as u32).to_be_bytes());
    }

    /// Describes the coding instead of carrying media, as the metadata do.
    pub(super) fn is_head(&self) -> bool {
        match (self.kind, &*self.body) {
            (VIDEO, [first, second, ..]) => first & 15 == AVC && *second == SEQUENCE_HEADER,
            (AUDIO, [first, second, ..]) => first & 0xf0 == AAC && *second == SEQUENCE_HEADER,
            (AUDIO | VIDEO, _) => false,
            _ => true,
        }
    }

    /// A coded picture of AVC that needs no other.
    pub(super) fn is_key(&self) -> bool {
        self.kind == VIDEO && self.body.first() == Some(&(KEY | AVC))
    }

    /// From decoding to presentation, of a coded picture.
    pub(super) fn composition_ms(&self) -> Option<u32> {
        let &[_, CODED, a, b, c, ..] = &*self.body else { return None };
        Some(u32::from_be_bytes([0, a, b, c])).filter(|_| self.kind == VIDEO)
    }

    /// The NAL units of a coded picture; empty where it is none, or torn.
    pub(super) fn units(&self) -> Vec<&[u8]> {
        let mut units = Vec::new();
        let [_, CODED, _, _, _, rest @ ..] = &*self.body else { return units };
        let mut rest = if self.kind == VIDEO { rest } else { &[] };
        while let [a, b, c, d, after @ ..] = rest {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            let Some((unit, after)) = after.split_at_checked(length) else { return Vec::new() };
            units.push(unit);
            rest = after;
        }
        units
    }

    /// What makes a coded picture or block of sound itself, whatever was put beside it on its way: the slices, or the frame of AAC.
    pub(super) fn content(&self) -> Option<Vec<u8>> {
        let content = match (self.kind, &*self.body) {
            (AUDIO, [first, CODED, frame @ ..]) if first & 0xf0 == AAC => frame.to_vec(),
            _ => {
                let is_slice = |unit: &&[u8]| unit.first().is_some_and(|head| matches!(head & 31, 1 | 5));
                self.units().into_iter().filter(is_slice).collect::<Vec<_>>().concat()
            }
        };
        Some(content).filter(|content| !content.is_empty())
    }
}

/// The tags of a file.
pub(super) fn read(file: Vec<u8>) -> anyhow::Result<Vec<Tag>> {
    let mut rest = Bytes::from(file);
    ensure!(rest.starts_with(&FILE_HEAD[..4]) && rest.len() >= FILE_HEAD.len(), "it is no FLV file");
    rest.advance(FILE_HEAD.len());
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let head = rest.get(..HEAD_BYTES).context("a tag is torn")?;
        let &[kind, l2, l1, l0, t2, t1, t0, t3, ..] = head else { unreachable!("eleven bytes") };
        let length = u32::from_be_bytes([0, l2, l1, l0]) as usize;
        ensure!(rest.len() >= HEAD_BYTES + length + 4, "a tag is torn");
        rest.advance(HEAD_BYTES);
        let body = rest.split_to(length);
        rest.advance(4);
        tags.push(Tag { kind, dts_ms: u32::from_be_bytes([t3, t2, t1, t0]), body });
    }
    Ok(tags)
}

/// A file of them.
pub(super) fn write<'a>(tags: impl IntoIterator<Item = &'a Tag>) -> Vec<u8> {
    let mut file = FILE_HEAD.to_vec();
    for tag in tags {
        tag.write(&mut file);
    }
    file
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn picture(first: u8, composition: u8, units: &[&[u8]]) -> Tag {
        let mut body = vec![first, 1, 0, 0, composition];
        for unit in units {
            body.extend((unit.len() as u32).to_be_bytes());
            body.extend(*unit);
        }
        Tag { kind: VIDEO, dts_ms: 0x0102_0304, body: body.into() }
    }

    #[test]
    fn tags_are_read_as_they_were_written() {
        let sound = Tag { kind: AUDIO, dts_ms: 7, body: Bytes::from_static(&[0xaf, 1, 9, 9]) };
        let about = Tag { kind: AUDIO, dts_ms: 0, body: Bytes::from_static(&[0xaf, 0, 0x12, 0x10]) };
        let tags = vec![about, picture(0x17, 80, &[&[6, 1], &[0x65, 2, 3]]), sound];
        let file = write(&tags);
        assert_eq!(read(file.clone()).unwrap(), tags);
        assert!(read(file[..file.len() - 5].to_vec()).is_err() && read(b"FLA".to_vec()).is_err());
        let heads: Vec<_> = tags.iter().map(Tag::is_head).collect();
        assert_eq!(heads, [true, false, false]);
        assert_eq!(tags[2].content(), Some(vec![9, 9]));
    }

    #[test]
    fn a_picture_is_known_by_its_slices() {
        let tag = picture(0x17, 80, &[&[6, 1], &[0x65, 2, 3], &[0x65, 4]]);
        assert_eq!((tag.is_key(), tag.composition_ms()), (true, Some(80)));
        assert_eq!(tag.content(), Some(vec![0x65, 2, 3, 0x65, 4]));
        assert_eq!(picture(0x17, 0, &[&[0x67, 8], &[0x65, 2, 3], &[0x65, 4]]).content(), tag.content());
        let torn = Tag { body: tag.body.slice(..tag.body.len() - 1), ..tag };
        assert_eq!(torn.content(), None);
        assert!(!picture(0x27, 0, &[&[0x41]]).is_key());
    }
}
