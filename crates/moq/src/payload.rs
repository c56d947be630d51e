//! From a frame's payload to the bytes of a unit: parameter sets in front of keys, start codes in place of lengths.

use bytes::Bytes;
use freshwire_media::video::Format;
use moq_mux::codec::{annexb, h264, h265};

/// How the payload of a track's frames becomes a byte stream or OBUs.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// As it is.
    Whole,
    /// NAL units behind lengths of this number of bytes; these parameter sets go before keys.
    Lengths { bytes: usize, sets: Bytes },
    /// OBUs; this sequence header goes before keys that have none.
    Obus { header: Bytes },
}

/// The bytes of an AV1 configuration record before its OBUs.
const AV1_RECORD_BYTES: usize = 4;
/// The first of them: a marker, and version 1.
const AV1_RECORD: u8 = 0x81;

impl Payload {
    /// `description` is the codec's configuration record, if the catalog has one.
    pub(crate) fn new(format: Format, description: Option<&Bytes>) -> Result<Self, String> {
        let Some(record) = description.filter(|record| !record.is_empty()) else { return Ok(Self::Whole) };
        let damaged = |error: String| format!("its description is damaged: {error}");
        match format {
            Format::H264 => {
                let avcc = h264::Avcc::parse(record).map_err(|error| damaged(error.to_string()))?;
                let sets = annexb::build_prefix(avcc.sps.iter().chain(&avcc.pps));
                Ok(Self::Lengths { bytes: avcc.length_size, sets })
            }
            Format::H265 => {
                let hvcc = h265::Hvcc::parse(record).map_err(|error| damaged(error.to_string()))?;
                let sets = annexb::build_prefix(hvcc.vps.iter().chain(&hvcc.sps).chain(&hvcc.pps));
                Ok(Self::Lengths { bytes: hvcc.length_size, sets })
            }
            Format::Av1 if record.first() == Some(&AV1_RECORD) && record.len() > AV1_RECORD_BYTES => {
                Ok(Self::Obus { header: record.slice(AV1_RECORD_BYTES..) })
            }
            Format::Av1 | Format::Vp9 => Ok(Self::Whole),
        }
    }

    /// The bytes of the unit.
    pub(crate) fn unit(&self, payload: &Bytes, is_key: bool) -> Result<Vec<u8>, String> {
        match self {
            Self::Whole => Ok(payload.to_vec()),
            Self::Lengths { bytes, sets } => {
                let sets = is_key.then_some(sets.as_ref());
                let unit = annexb::from_length_prefixed(payload, *bytes, sets);
                unit.map(|unit| unit.to_vec()).map_err(|error| error.to_string())
            }
            Self::Obus { header } if is_key && !has_sequence_header(payload) => {
                Ok([header.as_ref(), payload.as_ref()].concat())
            }
            Self::Obus { .. } => Ok(payload.to_vec()),
        }
    }
}

/// Whether a temporal unit begins with a sequence header, perhaps behind a temporal delimiter.
fn has_sequence_header(obus: &[u8]) -> bool {
    let obus = obus.strip_prefix(&[0x12, 0]).unwrap_or(obus);
    obus.first().is_some_and(|header| header >> 3 & 15 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration record of H.264 with lengths of two bytes.
    fn avcc() -> Bytes {
        let sps = [0x67, 0x42, 0xc0, 0x1e, 0xd9];
        let mut record = vec![1, 0x42, 0xc0, 0x1e, 0xfd, 0xe1, 0, 5];
        record.extend(sps);
        record.extend([1, 0, 2, 0x68, 0xce]);
        record.into()
    }

    #[test]
    fn lengths_become_start_codes() {
        let payload = Payload::new(Format::H264, Some(&avcc())).expect("a record");
        let frame = Bytes::from_static(&[0, 2, 0x65, 1, 0, 1, 0x06]);
        let sets = [0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1e, 0xd9, 0, 0, 0, 1, 0x68, 0xce];
        let units = [0, 0, 0, 1, 0x65, 1, 0, 0, 0, 1, 0x06];
        assert_eq!(payload.unit(&frame, false).expect("a unit"), units);
        assert_eq!(payload.unit(&frame, true).expect("a unit"), [&sets[..], &units].concat());
        assert!(payload.unit(&Bytes::from_static(&[0, 9, 1]), false).is_err(), "longer than it is");
    }

    #[test]
    fn a_sequence_header_is_added_once() {
        let record = Bytes::from_static(&[0x81, 0, 0, 0, 0x0a, 1, 7]);
        let payload = Payload::new(Format::Av1, Some(&record)).expect("a record");
        let frame = Bytes::from_static(&[0x12, 0, 0x32, 1, 9]);
        assert_eq!(payload.unit(&frame, true).expect("a unit"), [0x0a, 1, 7, 0x12, 0, 0x32, 1, 9]);
        assert_eq!(payload.unit(&frame, false).expect("a unit"), frame);
        let whole = Bytes::from_static(&[0x12, 0, 0x0a, 1, 7, 0x32, 1, 9]);
        assert_eq!(payload.unit(&whole, true).expect("a unit"), whole);
    }

    #[test]
    fn any_record_and_frame() {
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>, bool)>().for_each(|(record, frame, is_key)| {
            let (record, frame) = (Bytes::from(record.clone()), Bytes::from(frame.clone()));
            for format in [Format::H264, Format::H265, Format::Av1, Format::Vp9] {
                let Ok(payload) = Payload::new(format, Some(&record)) else { continue };
                if let Ok(unit) = payload.unit(&frame, *is_key) {
                    // A start code is at most four times as long as a length.
                    assert!(unit.len() <= 4 * frame.len() + 8 * record.len() + 8);
                }
            }
        });
    }
}
