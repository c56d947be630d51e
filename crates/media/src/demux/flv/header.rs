//! Sequence headers: the decoder configurations of MP4 (ISO/IEC 14496-15 and the bindings of AV1 and Opus).

use crate::aac;
use crate::unit::{AudioCodec, AudioTrack};

/// What a sequence header says of pictures whose NAL units have lengths before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NalHeader {
    /// Bytes of such a length, 1 to 4.
    pub(super) length_bytes: usize,
    /// The parameter sets, as a byte stream.
    pub(super) sets: Vec<u8>,
}

/// An `AVCDecoderConfigurationRecord`; `None` if it is damaged. Encoders often leave out what comes behind the sets.
pub(super) fn h264(bytes: &[u8]) -> Option<NalHeader> {
    let (&[1, _, _, _, lengths, count], mut rest) = bytes.split_first_chunk()? else { return None };
    let mut sets = Vec::new();
    for _ in 0..count & 31 {
        rest = set(rest, &mut sets)?;
    }
    let (&count, mut rest) = rest.split_first()?;
    for _ in 0..count {
        rest = set(rest, &mut sets)?;
    }
    Some(NalHeader { length_bytes: usize::from(lengths & 3) + 1, sets })
}

/// An `HEVCDecoderConfigurationRecord`; `None` if it is damaged.
pub(super) fn h265(bytes: &[u8]) -> Option<NalHeader> {
    let (head, mut rest) = bytes.split_first_chunk::<23>()?;
    let (lengths, arrays) = (head[21], head[22]);
    let mut sets = Vec::new();
    for _ in 0..arrays {
        let (&[_, high, low], after) = rest.split_first_chunk()?;
        rest = after;
        for _ in 0..u16::from_be_bytes([high, low]) {
            rest = set(rest, &mut sets)?;
        }
    }
    Some(NalHeader { length_bytes: usize::from(lengths & 3) + 1, sets })
}

/// Adds a NAL unit behind 16 bits of length to the byte stream `out`; the rest.
fn set<'a>(bytes: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (nal, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
    if !nal.is_empty() {
        out.extend(START_CODE);
        out.extend_from_slice(nal);
    }
    Some(rest)
}

/// The byte stream of NAL units that have lengths before them; `None` if a length goes beyond the end.
pub(super) fn byte_stream(mut bytes: &[u8], length_bytes: usize, out: &mut Vec<u8>) -> Option<()> {
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_at_checked(length_bytes)?;
        let len = len.iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
        let (nal, rest) = rest.split_at_checked(len)?;
        if !nal.is_empty() {
            out.extend(START_CODE);
            out.extend_from_slice(nal);
        }
        bytes = rest;
    }
    Some(())
}

/// The OBUs of an `AV1CodecConfigurationRecord`; `None` if it is damaged.
pub(super) fn av1(bytes: &[u8]) -> Option<&[u8]> {
    let (&[0x81, _, _, _], obus) = bytes.split_first_chunk()? else { return None };
    Some(obus)
}

/// The track of an AudioSpecificConfig; `None` if it is damaged.
pub(super) fn aac(bytes: &[u8]) -> Option<AudioTrack> {
    let config = aac::Config::parse(bytes).filter(|config| config.frame_ns().is_some())?;
    // Where the frames describe the channels themselves, two is the usual number.
    let channels = config.channels().unwrap_or(2);
    Some(AudioTrack { codec: AudioCodec::Aac { config: bytes.to_vec() }, rate: config.rate, channels })
}

/// The track of an identification header of Opus; `None` if it is damaged. Without one there are two channels.
pub(super) fn opus(bytes: &[u8]) -> Option<AudioTrack> {
    let channels = match bytes.strip_prefix(b"OpusHead") {
        Some(head) => *head.get(1).filter(|&&channels| channels > 0)?,
        None if bytes.is_empty() => 2,
        None => return None,
    };
    Some(AudioTrack { codec: AudioCodec::Opus, rate: OPUS_RATE, channels })
}

/// RFC 7845, section 5.1: Opus always counts in this rate.
const OPUS_RATE: u32 = 48_000;
const START_CODE: [u8; 4] = [0, 0, 0, 1];
