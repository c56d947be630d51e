use memchr::memmem;

use super::open::{Malformed, Open};

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// What a packet begins with, as far as it tells one picture from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The first slice of a picture, or a unit before it.
    Picture,
    /// Another slice, or the middle of one.
    Slice,
}

/// RFC 6184. Types that mean nothing there, and those of the interleaved mode, are passed over as 5.4 says.
pub(super) fn h264(payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let payload = bare(payload);
    let Some((&header, rest)) = payload.split_first() else { return Ok(()) };
    match header & 0x1F {
        1..=23 => open.nal(payload, is_h264_picture),
        24 => aggregated(rest, |nal| {
            let is_known = matches!(nal.first(), Some(header) if (1..=23).contains(&(header & 0x1F)));
            if is_known { open.nal(nal, is_h264_picture) } else { Ok(()) }
        }),
        28 => {
            let (&fragment, body) = rest.split_first().ok_or(Malformed)?;
            open.fragment(fragment, &[header & 0xE0 | fragment & 0x1F], body, is_h264_picture)
        }
        _ => Ok(()),
    }
}

/// RFC 7798. Types that mean nothing there are passed over.
pub(super) fn h265(payload: &[u8], open: &mut Open) -> Result<(), Malformed> {
    let payload = bare(payload);
    let Some((&[high, low], rest)) = payload.split_first_chunk() else { return Ok(()) };
    match h265_kind(high) {
        48 => aggregated(rest, |nal| {
            let is_known = nal.len() >= 2 && h265_kind(nal[0]) < 48;
            if is_known { open.nal(nal, is_h265_picture) } else { Ok(()) }
        }),
        49 => {
            let (&fragment, body) = rest.split_first().ok_or(Malformed)?;
            open.fragment(fragment, &[high & 0x81 | (fragment & 0x3F) << 1, low], body, is_h265_picture)
        }
        0..48 => open.nal(payload, is_h265_picture),
        _ => Ok(()),
    }
}

/// What a packet of H.264 begins with; `None` if that does not tell.
pub(crate) fn h264_begin(payload: &[u8]) -> Option<Begin> {
    match bare(payload) {
        [header, fragment, rest @ ..] if header & 0x1F == 28 => match fragment & 0x80 {
            0 => Some(Begin::Slice),
            _ => h264_nal_begin(fragment & 0x1F, rest),
        },
        [header, _, _, nal, rest @ ..] if header & 0x1F == 24 => h264_nal_begin(nal & 0x1F, rest),
        [header, rest @ ..] => h264_nal_begin(header & 0x1F, rest),
        [] => None,
    }
}

fn h264_nal_begin(kind: u8, body: &[u8]) -> Option<Begin> {
    match kind {
        1 | 2 | 5 => Some(slice(body.first()?)),
        6..=9 => Some(Begin::Picture),
        _ => None,
    }
}

/// What a packet of H.265 begins with; `None` if that does not tell.
pub(crate) fn h265_begin(payload: &[u8]) -> Option<Begin> {
    match bare(payload) {
        [high, _, fragment, rest @ ..] if h265_kind(*high) == 49 => match fragment & 0x80 {
            0 => Some(Begin::Slice),
            _ => h265_nal_begin(fragment & 0x3F, rest),
        },
        [high, _, _, _, nal, _, rest @ ..] if h265_kind(*high) == 48 => h265_nal_begin(h265_kind(*nal), rest),
        [high, _, rest @ ..] => h265_nal_begin(h265_kind(*high), rest),
        _ => None,
    }
}

fn h265_nal_begin(kind: u8, body: &[u8]) -> Option<Begin> {
    match kind {
        0..32 => Some(slice(body.first()?)),
        32..=35 | 39 => Some(Begin::Picture),
        _ => None,
    }
}

/// `first_mb_in_slice` is 0, or `first_slice_segment_in_pic_flag` is set: one bit in the same place.
fn slice(first: &u8) -> Begin {
    if first & 0x80 != 0 { Begin::Picture } else { Begin::Slice }
}

fn is_h264_picture(nal: &[u8]) -> bool {
    nal.first().is_some_and(|header| (1..=5).contains(&(header & 0x1F)))
}

fn is_h265_picture(nal: &[u8]) -> bool {
    nal.first().is_some_and(|header| h265_kind(*header) < 32)
}

fn h265_kind(header: u8) -> u8 {
    header >> 1 & 0x3F
}

/// Without a start code in front. Neither payload format has one, and no NAL unit begins with zeroes.
fn bare(payload: &[u8]) -> &[u8] {
    match payload {
        [0, 0, 1, rest @ ..] | [0, 0, 0, 1, rest @ ..] => rest,
        payload => payload,
    }
}

/// NAL units with a length of 16 bits before each. Zeroes behind them fill the packet up.
fn aggregated(
    mut rest: &[u8],
    mut each: impl FnMut(&[u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let Some((&length, after)) = rest.split_first_chunk() {
        let (nal, after) =
            after.split_at_checked(usize::from(u16::from_be_bytes(length))).ok_or(Malformed)?;
        each(bare(nal))?;
        rest = after;
    }
    if rest.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(Malformed) }
}

impl Open {
    /// Adds a NAL unit, or several with start codes between them. A fragment before that has no end ends here: none of its
    /// packets is missing, or it would not be open.
    fn nal(&mut self, nal: &[u8], is_picture: impl Fn(&[u8]) -> bool) -> Result<(), Malformed> {
        self.in_fragment = false;
        self.begin_part()?;
        self.bytes.extend(START_CODE);
        self.bytes.extend(nal);
        self.has_picture = self.has_picture || has_picture(nal, is_picture);
        Ok(())
    }

    /// `fragment` is the FU header: begins, ends, and the kind of NAL unit.
    fn fragment(
        &mut self,
        fragment: u8,
        header: &[u8],
        body: &[u8],
        is_picture: impl Fn(&[u8]) -> bool,
    ) -> Result<(), Malformed> {
        let (begins, ends) = (fragment & 0x80 != 0, fragment & 0x40 != 0);
        if begins {
            self.nal_at = self.bytes.len() + START_CODE.len();
            self.nal(header, &is_picture)?;
            self.in_fragment = true;
        } else if !self.in_fragment {
            return Err(Malformed);
        }
        self.bytes.extend(body);
        if ends {
            self.in_fragment = false;
            let nal = self.bytes.get(self.nal_at..).unwrap_or_default();
            self.has_picture = self.has_picture || has_picture(nal, is_picture);
        }
        Ok(())
    }
}

/// Whether one of the NAL units is of a picture.
fn has_picture(nals: &[u8], is_picture: impl Fn(&[u8]) -> bool) -> bool {
    // Nothing but a start code looks like one within a NAL unit.
    is_picture(nals)
        || memmem::find_iter(nals, &[0, 0, 1]).any(|at| is_picture(nals.get(at + 3..).unwrap_or_default()))
}
