use super::{Malformed, Open};

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// RFC 6184.
pub(super) fn h264(payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let (&header, rest) = payload.split_first().ok_or(Malformed)?;
    match header & 0x1F {
        1..=23 => open.nal(payload, is_h264_picture(header & 0x1F)),
        24 => aggregated(rest, |nal| {
            let kind = nal.first().ok_or(Malformed)? & 0x1F;
            open.nal(nal, is_h264_picture(kind))
        }),
        28 => {
            let (&fragment, body) = rest.split_first().ok_or(Malformed)?;
            let kind = fragment & 0x1F;
            open.fragment(fragment, &[header & 0xE0 | kind], body, is_h264_picture(kind))
        }
        _ => Err(Malformed),
    }
}

/// RFC 7798.
pub(super) fn h265(payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let (&[high, low], rest) = payload.split_first_chunk().ok_or(Malformed)?;
    match h265_kind(high) {
        48 => aggregated(rest, |nal| {
            let kind = h265_kind(*nal.first().ok_or(Malformed)?);
            open.nal(nal, is_h265_picture(kind))
        }),
        49 => {
            let (&fragment, body) = rest.split_first().ok_or(Malformed)?;
            let kind = fragment & 0x3F;
            open.fragment(fragment, &[high & 0x81 | kind << 1, low], body, is_h265_picture(kind))
        }
        kind @ 0..48 => open.nal(payload, is_h265_picture(kind)),
        _ => Err(Malformed),
    }
}

fn is_h264_picture(kind: u8) -> bool {
    (1..=5).contains(&kind)
}

fn is_h265_picture(kind: u8) -> bool {
    kind < 32
}

fn h265_kind(header: u8) -> u8 {
    header >> 1 & 0x3F
}

/// NAL units with a length of 16 bits before each.
fn aggregated(
    mut rest: &[u8],
    mut each: impl FnMut(&[u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let Some((&length, after)) = rest.split_first_chunk() {
        let (nal, after) =
            after.split_at_checked(usize::from(u16::from_be_bytes(length))).ok_or(Malformed)?;
        each(nal)?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(Malformed) }
}

impl Open {
    fn nal(&mut self, nal: &[u8], is_picture: bool) -> Result<(), Malformed> {
        if self.in_fragment {
            return Err(Malformed);
        }
        self.begin_part()?;
        self.has_picture |= is_picture;
        self.bytes.extend(START_CODE);
        self.bytes.extend(nal);
        Ok(())
    }

    /// `fragment` is the FU header: begins, ends, and the kind of NAL unit.
    fn fragment(
        &mut self,
        fragment: u8,
        header: &[u8],
        body: &[u8],
        is_picture: bool,
    ) -> Result<(), Malformed> {
        let (begins, ends) = (fragment & 0x80 != 0, fragment & 0x40 != 0);
        if begins {
            self.nal(header, is_picture)?;
        } else if !self.in_fragment {
            return Err(Malformed);
        }
        self.bytes.extend(body);
        self.in_fragment = !ends;
        Ok(())
    }
}
