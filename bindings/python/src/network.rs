//! Service asked of the network.

use freshwire::network::{self, Dscp};
use freshwire::{Rate, network::UnknownDscp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Service asked of the network and of the queues of this host. The default asks for nothing.
///
/// - dscp: differentiated services code point of each packet: its name, such as "AF41", or its number. The ECN bits beside it stay.
/// - priority: priority in the queues of this host (`SO_PRIORITY`). Above 6 it needs `CAP_NET_ADMIN`.
/// - max_rate: largest pacing rate in bits per second. Datagrams need the queueing discipline `fq`.
/// - departure_times: whether each datagram has a departure time (`SO_TXTIME`), at the agreed or the largest rate. Not for TCP.
#[pyclass(frozen, eq, from_py_object, module = "freshwire")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkQos(pub(crate) network::NetworkQos);

/// A code point as programs write it.
#[derive(FromPyObject)]
enum Named {
    Number(u64),
    Name(String),
}

impl Named {
    fn parse(self) -> Result<Dscp, UnknownDscp> {
        match self {
            Self::Number(number) => number.to_string().parse(),
            Self::Name(name) => name.parse(),
        }
    }
}

#[pymethods]
impl NetworkQos {
    #[new]
    #[pyo3(signature = (*, dscp = None, priority = None, max_rate = None, departure_times = false))]
    fn new(
        dscp: Option<Named>,
        priority: Option<u32>,
        max_rate: Option<u64>,
        departure_times: bool,
    ) -> PyResult<Self> {
        if max_rate == Some(0) {
            return Err(PyValueError::new_err("max_rate=0: bits per second, or None for no limit"));
        }
        let dscp = dscp.map(Named::parse).transpose();
        let dscp = dscp.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let qos = network::NetworkQos::default()
            .dscp(dscp)
            .priority(priority)
            .max_rate(max_rate.map(Rate::from_bits_per_sec))
            .departure_times(departure_times);
        Ok(Self(qos))
    }

    /// The code point as a number.
    #[getter]
    fn dscp(&self) -> Option<u8> {
        self.0.dscp.map(Dscp::value)
    }

    /// Priority in the queues of this host.
    #[getter]
    fn priority(&self) -> Option<u32> {
        self.0.priority
    }

    /// Largest pacing rate.
    #[getter]
    fn max_rate(&self) -> Option<u64> {
        self.0.max_rate.map(Rate::bits_per_sec)
    }

    /// Whether each datagram has a departure time.
    #[getter]
    fn departure_times(&self) -> bool {
        self.0.departure_times
    }

    fn __repr__(&self) -> String {
        let number = |number: Option<u64>| number.map_or("None".to_owned(), |number| number.to_string());
        format!(
            "NetworkQos(dscp={}, priority={}, max_rate={}, departure_times={})",
            self.0.dscp.map_or("None".to_owned(), |dscp| format!("\"{dscp}\"")),
            number(self.0.priority.map(u64::from)),
            number(self.max_rate()),
            if self.0.departure_times { "True" } else { "False" },
        )
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NetworkQos>()
}
