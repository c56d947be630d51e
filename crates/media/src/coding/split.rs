//! Cuts a byte stream of NAL units (Annex B of H.264 and H.265) into access units.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::memmem;

use crate::annex_b::AnnexBError;

/// What a codec says about NAL units.
pub(crate) trait Headers {
    /// Facts about a coded picture from its slice headers.
    type Picture: Clone + std::fmt::Debug;
    /// Slice headers are tried to be read with this much of a NAL unit.
    const FIRST_BYTES: usize;
    /// The part of a slice header that is read ends well within these bytes, emulation prevention included.
    const MOST_BYTES: usize;

    /// What the NAL unit that begins with `head` is to the access unit whose picture is `open`. `at` is its place in the
    /// stream. Called once for each NAL unit, in order, again only after an error.
    fn examine(
        &mut self,
        head: &[u8],
        open: Option<&mut Self::Picture>,
        at: u64,
    ) -> Result<Role<Self::Picture>, AnnexBError>;

    /// Reads a whole NAL unit other than a slice, after it was examined.
    fn read(&mut self, nal: &[u8], at: u64) -> Result<(), AnnexBError>;
}

/// What a NAL unit is to the access unit before it.
pub(crate) enum Role<P> {
    /// Part of it.
    Part,
    /// It ends the one before, if that has a picture.
    Begin,
    /// Likewise, with the first slice of this picture.
    Picture(P),
}

/// What makes units of access units.
pub(crate) trait Assemble {
    /// The codec.
    type Headers: Headers;
    /// The resulting unit.
    type Unit: Clone + std::fmt::Debug;

    /// The codec's state.
    fn headers(&mut self) -> &mut Self::Headers;

    /// Makes a unit of the NAL units at `nals` in `bytes`; `None` if it is left out.
    fn unit(
        &mut self,
        bytes: &[u8],
        nals: Vec<Range<usize>>,
        picture: <Self::Headers as Headers>::Picture,
    ) -> Option<Self::Unit>;

    /// Something between the unit before and the next one cannot be read or is missing.
    fn lost(&mut self);
}

/// Splits a byte stream, cut at any place. After an error it goes on with what comes next.
#[derive(Clone, Debug)]
pub(crate) struct Splitter<A: Assemble> {
    pub(crate) assembler: A,
    bytes: Vec<u8>,
    /// Stream offset of `bytes[0]`.
    offset: u64,
    /// Where the search for the next start code goes on.
    scan: usize,
    /// Begin of the unit that is being collected.
    begin: usize,
    /// The NAL units of it, as ranges from `begin`.
    nals: Vec<Range<usize>>,
    open: Option<OpenNal>,
    picture: Option<<A::Headers as Headers>::Picture>,
    ready: VecDeque<Result<(A::Unit, u64), AnnexBError>>,
    /// Stream offset at which the unit that was taken last begins.
    taken_at: u64,
    limit: usize,
    /// There was a start code or a complaint that there is none.
    has_started: bool,
}

/// A NAL unit whose end has not been found.
#[derive(Clone, Copy, Debug)]
struct OpenNal {
    /// Begin of its start code.
    code: usize,
    /// Its header byte.
    begin: usize,
    examined: bool,
}

impl<A: Assemble> Splitter<A> {
    pub(crate) fn new(assembler: A, limit: usize) -> Self {
        Self {
            assembler,
            bytes: Vec::new(),
            offset: 0,
            scan: 0,
            begin: 0,
            nals: Vec::new(),
            open: None,
            picture: None,
            ready: VecDeque::new(),
            taken_at: 0,
            limit,
            has_started: false,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(code) = find_start_code(&self.bytes, self.scan) {
            // The zero byte before a start code belongs to it.
            let cut =
                if code > self.scan.max(self.begin) && self.bytes[code - 1] == 0 { code - 1 } else { code };
            self.close(cut);
            self.open = Some(OpenNal { code: cut, begin: code + 3, examined: false });
            self.has_started = true;
            self.scan = code + 3;
        }
        // A start code may be cut by the end of what is here, with its zero byte before it.
        self.scan = self.scan.max(self.bytes.len().saturating_sub(3));
        self.examine_early();
        self.expect_start_code(self.scan);
        let end = self.open.filter(|open| !open.examined).map_or(self.bytes.len(), |open| open.code);
        if let Err(error) = self.check_size(end) {
            self.fault(error, self.scan);
        }
        if self.open.is_none() && self.nals.is_empty() {
            self.begin = self.scan;
        }
        self.release();
    }

    /// The pushed bytes end with a whole access unit.
    pub(crate) fn complete(&mut self) {
        let end = self.bytes.len();
        self.close(end);
        if let Err(error) = self.end_unit(end) {
            self.fault(error, end);
        }
        if self.nals.is_empty() {
            self.begin = end;
        }
        self.scan = end;
        self.release();
    }

    /// Bytes are missing after those that were pushed: what is not complete is left out.
    pub(crate) fn lose(&mut self) {
        let end = self.bytes.len();
        self.discard(end);
        self.scan = end;
        self.release();
    }

    /// Leaves out what is not complete. What depends on it is found out by what follows.
    pub(crate) fn forget(&mut self) {
        let end = self.bytes.len();
        (self.picture, self.open, self.begin, self.scan) = (None, None, end, end);
        self.nals.clear();
        self.release();
    }

    /// Stream offset at which the unit that was taken last begins.
    pub(crate) fn taken_at(&self) -> u64 {
        self.taken_at
    }

    /// The open NAL unit, or what is before the first start code, ends at `end`.
    fn close(&mut self, end: usize) {
        if self.open.is_none() {
            self.expect_start_code(end);
        } else if let Err(error) = self.end_nal(end) {
            self.fault(error, end);
        }
    }

    fn expect_start_code(&mut self, end: usize) {
        if !self.has_started && self.open.is_none() && self.bytes.iter().take(end).any(|&byte| byte != 0) {
            self.has_started = true;
            self.fault(AnnexBError::NoStartCode, end);
        }
    }

    /// Gives up what is being collected up to `end`; what follows is left out up to the next start code.
    fn fault(&mut self, error: AnnexBError, end: usize) {
        self.ready.push_back(Err(error));
        self.discard(end);
    }

    fn discard(&mut self, end: usize) {
        self.assembler.lost();
        self.picture = None;
        self.open = None;
        self.nals.clear();
        self.begin = end;
    }

    /// Looks at the open NAL unit before its end is there, so that the unit before it has not to wait.
    fn examine_early(&mut self) {
        let Some(open) = self.open.filter(|open| !open.examined) else { return };
        // Three bytes less, so that no start code lies within the bytes that are examined.
        let end = self.bytes.len().saturating_sub(3);
        if end < open.begin + <A::Headers as Headers>::FIRST_BYTES {
            return;
        }
        let may_wait = end < open.begin + <A::Headers as Headers>::MOST_BYTES;
        match self.examine(end) {
            Err(_) if may_wait => {
                if let Some(open) = &mut self.open {
                    open.examined = false;
                }
            }
            Err(error) => self.fault(error, self.scan),
            Ok(()) => {}
        }
    }

    /// Looks at the first bytes of the open NAL unit: does it begin a new access unit?
    fn examine(&mut self, end: usize) -> Result<(), AnnexBError> {
        let Some(open) = self.open.as_mut().filter(|open| !open.examined) else { return Ok(()) };
        open.examined = true;
        let open = *open;
        let end = end.min(open.begin + <A::Headers as Headers>::MOST_BYTES);
        let head = self.bytes.get(open.begin..end).unwrap_or_default();
        if head.is_empty() {
            return Ok(());
        }
        let at = self.offset + open.begin as u64;
        match self.assembler.headers().examine(head, self.picture.as_mut(), at)? {
            Role::Part => {}
            Role::Begin => self.end_unit(open.code)?,
            Role::Picture(picture) => {
                self.end_unit(open.code)?;
                self.picture = Some(picture);
            }
        }
        Ok(())
    }

    /// The open NAL unit ends at `end`.
    fn end_nal(&mut self, end: usize) -> Result<(), AnnexBError> {
        self.examine(end)?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let begin = open.begin.min(end);
        let nal = &self.bytes[begin..end];
        if nal.is_empty() {
            return Ok(());
        }
        self.assembler.headers().read(nal, self.offset + begin as u64)?;
        self.nals.push(begin - self.begin..end - self.begin);
        Ok(())
    }

    fn check_size(&self, end: usize) -> Result<(), AnnexBError> {
        if end.saturating_sub(self.begin) <= self.limit {
            Ok(())
        } else {
            Err(AnnexBError::TooLarge { at: self.offset + self.begin as u64, limit: self.limit })
        }
    }

    /// The unit that is being collected ends at `end`, if it has a picture; otherwise what is there begins the next one.
    fn end_unit(&mut self, end: usize) -> Result<(), AnnexBError> {
        self.check_size(end)?;
        let Some(picture) = self.picture.take() else { return Ok(()) };
        let nals = std::mem::take(&mut self.nals);
        if let Some(unit) = self.assembler.unit(&self.bytes[self.begin..end], nals, picture) {
            self.ready.push_back(Ok((unit, self.offset + self.begin as u64)));
        }
        self.begin = end;
        Ok(())
    }

    /// Frees the bytes of units that are complete.
    fn release(&mut self) {
        let begin = self.begin;
        if begin > 0 {
            self.bytes.drain(..begin);
            self.offset += begin as u64;
            self.begin = 0;
            self.scan -= begin;
            if let Some(open) = &mut self.open {
                open.code -= begin;
                open.begin -= begin;
            }
        }
    }
}

impl<A: Assemble> Iterator for Splitter<A> {
    type Item = Result<A::Unit, AnnexBError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.ready.pop_front()?;
        Some(next.map(|(unit, at)| {
            self.taken_at = at;
            unit
        }))
    }
}

fn find_start_code(bytes: &[u8], from: usize) -> Option<usize> {
    let tail = bytes.get(from..)?;
    memmem::find(tail, &[0, 0, 1]).map(|at| from + at)
}
