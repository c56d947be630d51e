//! Settings of a node.

use std::net::Ipv4Addr;
use std::time::Duration;

use freshwire::a1::{self, Congestion, Interface, JoinConfig, NodeConfig, Protection};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::qos::Qos;
use crate::network::NetworkQos;
use crate::waiting::duration;

/// Rules for joining multicast groups on a peer's invitation: the largest number of groups over all connections, and the
/// network interface, its number or IPv4 address. Default: that of the connection, if known.
#[pyclass(frozen, from_py_object, module = "freshwire.a1")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join(JoinConfig);

#[pymethods]
impl Join {
    #[new]
    #[pyo3(signature = (most = 16, interface = None))]
    fn new(most: usize, interface: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let config = JoinConfig::default().most(most);
        Ok(Self(match interface {
            Some(interface) => config.interface(self::interface(interface)?),
            None => config,
        }))
    }

    /// The largest number of groups.
    #[getter]
    fn most(&self) -> usize {
        self.0.most
    }

    fn __repr__(&self) -> String {
        format!("Join(most={}, interface={:?})", self.0.most, self.0.interface)
    }
}

/// Bounds on the resources of a node that peers can consume.
///
/// `connections`, `half_open` initiators, of them `half_open_per_address`; `retries_per_second` are cookies,
/// `responses_per_second` handshakes, `resets_per_second` stateless resets; `handshake_time` is in seconds.
#[pyclass(frozen, eq, from_py_object, module = "freshwire.a1")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits(a1::Limits);

#[pymethods]
impl Limits {
    #[new]
    #[pyo3(signature = (*, connections = 100_000, half_open = 1024, half_open_per_address = 128, retries_per_second = 10_000, responses_per_second = 2000, resets_per_second = 1000, handshake_time = 10.0))]
    fn new(
        connections: usize,
        half_open: usize,
        half_open_per_address: usize,
        retries_per_second: u32,
        responses_per_second: u32,
        resets_per_second: u32,
        handshake_time: f64,
    ) -> PyResult<Self> {
        Ok(Self(a1::Limits {
            connections,
            half_open,
            half_open_per_address,
            retries_per_second,
            responses_per_second,
            resets_per_second,
            handshake_time: duration("handshake_time", handshake_time)?,
        }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// An argument that is text.
pub(super) fn parse<T: std::str::FromStr>(name: &str, text: &str) -> PyResult<T>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}

/// An interface's number or IPv4 address.
pub(super) fn interface(value: &Bound<'_, PyAny>) -> PyResult<Interface> {
    if let Ok(number) = value.extract::<u32>() {
        return Ok(Interface::Number(number));
    }
    let address: Ipv4Addr = parse("interface", &value.extract::<String>()?)?;
    Ok(Interface::Of(address))
}

pub(super) fn protection_name(protection: Protection) -> &'static str {
    match protection {
        Protection::Aead => "aead",
        Protection::DangerousPlain => "dangerous-plain",
        // One of a newer release.
        _ => "other",
    }
}

fn protection(name: &str) -> PyResult<Protection> {
    match name {
        "aead" => Ok(Protection::Aead),
        "dangerous-plain" => Ok(Protection::DangerousPlain),
        _ => Err(PyValueError::new_err(format!("protection={name:?}: aead or dangerous-plain is wanted"))),
    }
}

/// Applies the keyword arguments of `Node` beyond its identity.
pub(super) fn apply(config: &mut NodeConfig, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some(options) = options else { return Ok(()) };
    for (name, value) in options {
        apply_one(config, &name.extract::<String>()?, &value)?;
    }
    Ok(())
}

fn apply_one(config: &mut NodeConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let optional = || -> PyResult<Option<Duration>> {
        let seconds: Option<f64> = value.extract()?;
        seconds.map(|seconds| duration(name, seconds)).transpose()
    };
    let seconds = || duration(name, value.extract()?);
    let connection = &mut config.connection;
    match name {
        "maximum" => connection.maximum = value.extract::<Qos>()?.0,
        "protection" => connection.protection = protection(&value.extract::<String>()?)?,
        "idle_timeout" => connection.idle_timeout = seconds()?,
        "keep_alive" => connection.keep_alive = optional()?,
        "ack_delay" => connection.ack_delay = seconds()?,
        "max_datagram" => connection.max_datagram = value.extract()?,
        "congestion" => {
            connection.congestion = parse::<Congestion>("congestion", &value.extract::<String>()?)?
        }
        "ecn" => connection.ecn = value.extract()?,
        "in_order" => connection.in_order = value.extract()?,
        "fec" => connection.fec = value.extract()?,
        "fec_layers" => connection.fec_layers = value.extract()?,
        "accept" => config.endpoint.accept = value.extract()?,
        "limits" => config.endpoint.limits = value.extract::<Limits>()?.0,
        "ask" => config.ask = value.extract()?,
        "backlog" => config.backlog = value.extract()?,
        "receive_buffer" => config.receive_buffer = value.extract()?,
        "busy_poll" => config.busy_poll = optional()?,
        "tcp_fallback" => config.tcp_fallback = value.extract()?,
        "attempt_delay" => config.attempt_delay = seconds()?,
        "network" => config.network = value.extract::<NetworkQos>()?.0,
        "translate" => config.translate = value.extract()?,
        "join" => config.join = value.extract::<Option<Join>>()?.map(|join| join.0),
        _ => return Err(PyTypeError::new_err(format!("Node() has no argument {name}"))),
    }
    Ok(())
}
