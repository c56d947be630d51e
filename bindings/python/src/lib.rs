//! Freshwire for Python: the module `freshwire._native`, which the package `freshwire` completes with asyncio.
//!
//! Rules that keep Python and the engine's thread apart:
//!
//! - A thread that holds the interpreter's lock never waits for a thread that may want it. The engine's lock may be held
//!   while a Python function decides, so calls that can wait for it are made detached from the interpreter.
//! - A push that finds room makes no such call, and keeps the interpreter's lock. Giving it up costs more than the
//!   push, and up to 5 ms where another Python thread computes.

mod a1;
mod adaptive;
mod choice;
mod common;
mod config;
mod core;
mod engine;
mod errors;
mod events;
mod fate;
mod ffi;
mod gate;
mod guard;
mod link;
mod network;
mod receiver;
mod reservation;
mod room;
mod sender;
mod sink;
mod stats;
mod waiting;
mod websocket;

use pyo3::prelude::*;

/// Time of `CLOCK_MONOTONIC` in nanoseconds, as `time.monotonic_ns()`: the clock of all timestamps.
#[pyfunction]
fn now() -> u64 {
    freshwire::now().as_nanos()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(now, module)?)?;
    errors::register(module)?;
    engine::register(module)?;
    sender::register(module)?;
    sink::register(module)?;
    network::register(module)?;
    module.add_class::<events::SinkEvents>()?;
    module.add_class::<reservation::Reservation>()?;
    fate::register(module)?;
    stats::register(module)?;
    receiver::register(module)?;
    choice::register(module)?;
    gate::register(module)?;
    adaptive::register(module)?;
    link::register(module)?;
    a1::register(module)?;
    websocket::register(module)?;
    guard::register(module)
}
