//! Several codings of the same pictures, of which each receiver gets one at a time.

use std::sync::{Arc, Mutex, MutexGuard};

use freshwire::choice::{Adaptive, Cost, MAX_RENDITIONS, Record, Selected, Selection};

use crate::border::{Failure, Out, Result, call, done, fw_status, get, nanos, put};
use crate::common::locks::lock;
use crate::handles::{enter, fw_adaptive, handle};
use crate::meta::fw_meta;

pub(crate) struct AdaptiveObject {
    /// A policy of the same stream, for further sinks.
    stream: Adaptive,
    /// The renditions that the receiver may have, as bits.
    allowed: u8,
    state: Mutex<State>,
}

struct State {
    selection: Arc<Selection>,
    /// `None` once a sink has it.
    policy: Option<Adaptive>,
}

handle!(fw_adaptive, AdaptiveObject, "adaptive policy");

impl State {
    fn new(policy: Adaptive) -> Self {
        Self { selection: Arc::clone(policy.selection()), policy: Some(policy) }
    }
}

impl AdaptiveObject {
    fn new(stream: Adaptive, allowed: u8) -> Self {
        let state = Mutex::new(State::new(stream.for_another(allowed)));
        Self { stream, allowed, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The policy, for its sink.
    pub(crate) fn take(&self) -> Result<Adaptive> {
        let taken = || {
            Failure::invalid(
                "the adaptive policy has a sink: make one for this sink with fw_adaptive_for_another",
            )
        };
        self.state().policy.take().ok_or_else(taken)
    }

    /// The sink was not added. The policy was dropped with it, and a new one has selected nothing yet either.
    pub(crate) fn give_back(&self) {
        *self.state() = State::new(self.stream.for_another(self.allowed));
    }
}

/// No rendition, where a number names one.
pub const FW_NO_RENDITION: u32 = u32::MAX;

/// FW_WHY_START to FW_WHY_GONE.
pub type fw_why = u32;
/// The first one.
pub const FW_WHY_START: fw_why = 0;
/// Key frames have left so quickly that the path carries it.
pub const FW_WHY_CARRIES: fw_why = 1;
/// The path carried less than the one before.
pub const FW_WHY_SLOW: fw_why = 2;
/// Pictures of the one before came late or were dropped.
pub const FW_WHY_LATE: fw_why = 3;
/// The one before has no source any more.
pub const FW_WHY_GONE: fw_why = 4;

/// Which rendition a receiver has, and which it wants.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_selected {
    /// The rendition whose pictures it gets; FW_NO_RENDITION before the first.
    pub current: u32,
    /// The one whose next key frame it waits for; `current` if it is content. FW_NO_RENDITION: any to begin with.
    pub wanted: u32,
    /// Why it has the present one, or wants the other one.
    pub why: fw_why,
    /// How often it has changed.
    pub changes: u32,
}

/// What a rendition asks of a path, as measured from key frame to key frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct fw_cost {
    /// Bytes a second.
    pub bytes_per_sec: u64,
    /// Bytes of a key frame.
    pub key_bytes: u64,
    /// Time from one key frame to the next.
    pub key_interval: u64,
}

fn rendition(number: u32) -> Result<usize> {
    usize::try_from(number).ok().filter(|&number| number < MAX_RENDITIONS).ok_or_else(|| {
        Failure::invalid(format!("rendition={number}: a stream has at most {MAX_RENDITIONS}, counted from 0"))
    })
}

/// Makes a policy for live pictures in several renditions, with sound: it decides late which rendition a receiver gets. It is for the
/// fw_policy of one sink, of the kind FW_ADAPTIVE; further sinks have those of fw_adaptive_for_another.
///
/// Pictures of rendition r are numbered from r << 48 on, without gaps, and sound above all renditions (from 8 << 48 on). Pass every record
/// of the stream to fw_adaptive_observe. Push the pictures of the `current` rendition of its selection into a sink, and those of the
/// `wanted` one from a key frame on.
///
/// # Safety
///
/// `adaptive` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_adaptive_new(adaptive: *mut fw_adaptive) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let adaptive = unsafe { Out::new("adaptive", adaptive, fw_adaptive::default()) }?;
        adaptive.put(enter(AdaptiveObject::new(Adaptive::default(), u8::MAX))?)
    })
}

/// Makes a policy for another receiver of the same stream, which may have the renditions whose bits are set in `allowed`. It begins with
/// the smallest that is known.
///
/// # Safety
///
/// `another` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_adaptive_for_another(
    adaptive: fw_adaptive,
    allowed: u8,
    another: *mut fw_adaptive,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let another = unsafe { Out::new("another", another, fw_adaptive::default()) }?;
        let object = adaptive.find()?;
        another.put(enter(AdaptiveObject::new(object.stream.for_another(0), allowed))?)
    })
}

/// Tells of a record of `len` bytes of the stream, when it is offered, in order of the numbers of each rendition.
///
/// # Safety
///
/// `meta` points to a valid value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_adaptive_observe(
    adaptive: fw_adaptive,
    meta: *const fw_meta,
    len: u32,
) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let given = unsafe { get("meta", meta) }?;
        let object = adaptive.find()?;
        // The number 0 is the first picture's here: there is no sender that could give another.
        let meta = freshwire::Meta { seq: given.seq, ..given.meta() };
        object.stream.observe(freshwire::now(), &Record::of(&meta, len));
        Ok(fw_status::FW_OK)
    })
}

/// Says whether a rendition has a source now, if `is_present` is not 0: from one without, receivers change to another. None has at first.
#[unsafe(no_mangle)]
pub extern "C" fn fw_adaptive_set_present(adaptive: fw_adaptive, number: u32, is_present: u8) -> fw_status {
    call(|| {
        adaptive.find()?.stream.set_present(rendition(number)?, is_present != 0);
        Ok(fw_status::FW_OK)
    })
}

/// Writes the receiver's present and wanted rendition, for the code that fills its ring.
///
/// # Safety
///
/// `selected` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_adaptive_selection(
    adaptive: fw_adaptive,
    selected: *mut fw_selected,
) -> fw_status {
    call(|| {
        let Selected { current, wanted, why, changes } = adaptive.find()?.state().selection.get();
        let number = |rendition: Option<usize>| {
            rendition.and_then(|it| u32::try_from(it).ok()).unwrap_or(FW_NO_RENDITION)
        };
        let now = fw_selected {
            current: number(current),
            wanted: number(wanted),
            why: why as fw_why,
            changes: changes.into(),
        };
        // SAFETY: as the caller promises.
        unsafe { put("selected", selected, now) }
    })
}

/// Writes what a rendition asks of a path. FW_NOTHING before a whole group was seen.
///
/// # Safety
///
/// `cost` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_adaptive_cost(
    adaptive: fw_adaptive,
    number: u32,
    cost: *mut fw_cost,
) -> fw_status {
    call(|| {
        let known = adaptive.find()?.stream.cost(rendition(number)?);
        let Some(Cost { bytes_per_sec, key_bytes, key_interval }) = known else {
            return Ok(fw_status::FW_NOTHING);
        };
        let known = fw_cost { bytes_per_sec, key_bytes, key_interval: nanos(key_interval) };
        // SAFETY: as the caller promises.
        unsafe { put("cost", cost, known) }
    })
}

/// Frees an adaptive policy. A sink that has it keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn fw_adaptive_free(adaptive: fw_adaptive) -> fw_status {
    call(|| adaptive.free().map(done))
}
