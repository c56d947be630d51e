//! Sizes of the shared memory and settings of a sink.

use freshwire::framing::Framer;
use freshwire::framing::event_stream::EventStream;
use freshwire::sink::{Carrier, Horizon};
use freshwire::websocket::Messages;
use freshwire::{Framing, RingConfig, SinkConfig};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::common::structures::fw_ring;
use crate::network::NetworkQos;
use crate::waiting::duration;

#[pymethods]
impl fw_ring {
    #[new]
    #[pyo3(signature = (rings = 1, slots = 1024, block_bytes = 1448, blocks = 1024))]
    fn new(rings: u32, slots: u32, block_bytes: u32, blocks: u32) -> Self {
        Self { rings, slots, block_bytes, blocks }
    }

    /// Sizes for `clients` at a time, each with a ring for the newest values of `keys` keys of at most `bytes` bytes. A value
    /// is then never refused.
    #[staticmethod]
    fn for_clients(clients: u32, keys: u32, bytes: u32) -> Self {
        RingConfig::for_clients(clients, keys, bytes).into()
    }

    fn __repr__(&self) -> String {
        let Self { rings, slots, block_bytes, blocks } = self;
        format!("Ring(rings={rings}, slots={slots}, block_bytes={block_bytes}, blocks={blocks})")
    }
}

/// Applies the keyword arguments of `Sender.add_sink`. `None` leaves a default.
pub(crate) fn apply(mut config: SinkConfig, options: Option<&Bound<'_, PyDict>>) -> PyResult<SinkConfig> {
    let Some(options) = options else { return Ok(config) };
    for (name, value) in options {
        let name: String = name.extract()?;
        config = apply_one(config, &name, &value)?;
    }
    Ok(config)
}

fn apply_one(config: SinkConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<SinkConfig> {
    let seconds = || duration(name, value.extract()?);
    // Settings with a meaning as `None`.
    match name {
        "queue_target" if value.is_none() => return Ok(config.queue_target(None)),
        "max_unread" if value.is_none() => return Ok(config.max_unread(None)),
        "stall_timeout" if value.is_none() => return Ok(config.stall_timeout(None)),
        _ => {}
    }
    Ok(match name {
        "framing" => config.framing(framing(&value.extract::<String>()?)?),
        "carrier" => config.carrier(carrier(&value.extract::<String>()?)?),
        "reserve" => config.reserve(freshwire::sink::Reserve::Fixed(value.extract()?)),
        "queue_target" => config.queue_target(Some(seconds()?)),
        "max_unread" => config.max_unread(Some(value.extract()?)),
        "keys" => config.keys(value.extract()?),
        "congestion" => config.congestion(value.extract::<String>()?),
        "min_rto" => config.min_rto(seconds()?),
        "max_rto" => config.max_rto(seconds()?),
        "linger" => config.linger(seconds()?),
        "stall_timeout" => config.stall_timeout(Some(seconds()?)),
        "kernel_horizon" => config.kernel_horizon(horizon(value.extract()?)?),
        "kernel_zero_copy" => config.kernel_zero_copy(value.extract()?),
        "ack_fates" => config.ack_fates(value.extract()?),
        "departures" => config.departures(value.extract()?),
        "network" => config.network(value.extract::<NetworkQos>()?.0),
        "preface" => config.preface(value.extract()?),
        _ => return Err(PyTypeError::new_err(format!("add_sink() has no argument {name}"))),
    })
}

fn framing(name: &str) -> PyResult<Box<dyn Framer>> {
    Ok(match name {
        "raw" => Framing::Raw.into(),
        "length-prefixed" => Framing::LengthPrefixed.into(),
        "chunked" => Framing::Chunked.into(),
        "websocket" => Box::new(Messages::text()),
        "websocket-binary" => Box::new(Messages::binary()),
        "event-stream" => Box::new(EventStream::new()),
        _ => {
            return Err(PyValueError::new_err(format!(
                "framing={name:?}: raw, length-prefixed, chunked, websocket, websocket-binary or event-stream is wanted"
            )));
        }
    })
}

fn horizon(segments: u8) -> PyResult<Horizon> {
    match segments {
        0 => Ok(Horizon::Nothing),
        1 => Ok(Horizon::OneSegment),
        _ => Err(PyValueError::new_err(format!("kernel_horizon={segments}: 0 or 1 is wanted"))),
    }
}

fn carrier(name: &str) -> PyResult<Carrier> {
    match name {
        "tcp" => Ok(Carrier::Tcp),
        "auto" => Ok(Carrier::Auto),
        "kernel" => Ok(Carrier::Kernel),
        _ => Err(PyValueError::new_err(format!("carrier={name:?}: tcp, auto or kernel is wanted"))),
    }
}
