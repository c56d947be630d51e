//! Engines, and what belongs to none of the objects.

use std::ffi::c_char;
use std::sync::Mutex;

use freshwire::engine::EngineThread;
use freshwire::{Engine, EngineHandle};

use crate::border::{Failure, Out, Result, call, done, fw_status};
use crate::common::locks::{lock, take};
use crate::handles::{enter, fw_engine, handle};

pub(crate) struct EngineObject(Mutex<Option<EngineThread>>);

handle!(fw_engine, EngineObject, "engine");

impl EngineObject {
    pub(crate) fn handle(&self) -> Result<EngineHandle> {
        let thread = lock(&self.0);
        let thread =
            thread.as_ref().ok_or_else(|| Failure::new(fw_status::FW_CLOSED, "the engine has stopped"))?;
        Ok(thread.handle())
    }
}

/// Time of CLOCK_MONOTONIC in nanoseconds: the clock of all timestamps.
#[unsafe(no_mangle)]
pub extern "C" fn fw_now() -> u64 {
    freshwire::now().as_nanos()
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn fw_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Starts an engine, a thread that serves sinks.
///
/// # Safety
///
/// `engine` points to a writable handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fw_engine_new(engine: *mut fw_engine) -> fw_status {
    call(|| {
        // SAFETY: as the caller promises. Tried before the thread is started.
        let engine = unsafe { Out::new("engine", engine, fw_engine::default()) }?;
        let thread = Engine::new()?.spawn()?;
        engine.put(enter(EngineObject(Mutex::new(Some(thread))))?)
    })
}

/// Stops an engine and aborts the sinks that it still serves.
#[unsafe(no_mangle)]
pub extern "C" fn fw_engine_free(engine: fw_engine) -> fw_status {
    call(|| {
        let object = engine.free()?;
        Ok(done(take(&object.0)))
    })
}

pub(crate) fn handle_of(engine: fw_engine) -> Result<EngineHandle> {
    engine.find()?.handle()
}
