//! Gates: late choice up to where the receiving program reads.

use std::sync::{Mutex, MutexGuard};

use freshwire::choice::{self, Choice, Gate};

use crate::border::{Failure, Out, Result, call, done, fw_status, put};
use crate::common::locks::lock;
use crate::handles::{enter, fw_gate, handle};

pub(crate) struct GateObject {
    records: u32,
    /// Once a sink has it.
    gate: Mutex<Option<Gate>>,
}

handle!(fw_gate, GateObject, "gate");

impl GateObject {
    fn lock(&self) -> MutexGuard<'_, Option<Gate>> {
        lock(&self.gate)
    }

    fn gate(&self) -> Result<Gate> {
        let no_sink = || Failure::invalid("the gate has no sink yet: put it into the fw_policy of one");
        self.lock().clone().ok_or_else(no_sink)
    }

    /// Puts the gate before a policy, for its sink.
    pub(crate) fn put_before(&self, policy: Box<dyn Choice>) -> Result<Box<dyn Choice>> {
        let mut present = self.lock();
        if present.is_some() {
            return Err(Failure::invalid("the gate has a sink: make another one for this sink"));
        }
        let (gated, gate) = choice::gate(policy, self.records);
        *present = Some(gate);
        Ok(Box::new(gated))
    }

    /// The sink was not added.
    pub(crate) fn give_back(&self) {
        *self.lock() = None;
    }
}

/// Makes a gate, for the member `gate` of the fw_policy of one sink. At most `records` records are on their way to the receiving
/// program, or unread by it. A record counts from its commit point until fw_gate_acknowledge reports that the program has read it; how
/// the program says so is the application's affair. TCP's own acknowledgements precede the reading. A program that never acknowledges receives `records`
/// records and no more; 0 counts as 1.
///
/// # Safety
///
/// `gate` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_gate_new(records: u32, gate: *mut fw_gate) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises.
        let gate = unsafe { Out::new("gate", gate, fw_gate::default()) }?;
        gate.put(enter(GateObject { records, gate: Mutex::default() })?)
    })
}

/// Reports that the receiving program has read `total` records of the sink, counted from the first. A smaller total than before
/// changes nothing, and neither do records that were never sent. Never waits.
#[unsafe(no_mangle)]
pub extern "C" fn fw_gate_acknowledge(gate: fw_gate, total: u64) -> fw_status {
    call(|| {
        gate.find()?.gate()?.acknowledge(total);
        Ok(fw_status::FW_OK)
    })
}

/// Reports that the receiving program has read `records` more. Never waits.
#[unsafe(no_mangle)]
pub extern "C" fn fw_gate_acknowledge_more(gate: fw_gate, records: u64) -> fw_status {
    call(|| {
        gate.find()?.gate()?.acknowledge_more(records);
        Ok(fw_status::FW_OK)
    })
}

/// Writes the number of committed records that the program has not acknowledged.
///
/// # Safety
///
/// `outstanding` points to a writable value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_gate_outstanding(gate: fw_gate, outstanding: *mut u64) -> fw_status {
    call(|| {
        let now = gate.find()?.gate()?.outstanding();
        // SAFETY: as the caller promises.
        unsafe { put("outstanding", outstanding, now) }
    })
}

/// Frees a gate. Its sink continues, without further acknowledgements.
#[unsafe(no_mangle)]
pub extern "C" fn fw_gate_free(gate: fw_gate) -> fw_status {
    call(|| gate.free().map(done))
}
