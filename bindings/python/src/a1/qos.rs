//! Quality of service.

use freshwire::a1::{self, Rate};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;

/// Quality of service of a connection, from this end's view. The receiver may narrow what the sender asks for. Rates are bits
/// per second, `None` is no limit; bursts and messages are bytes.
///
/// `Qos(priority=0)` is the default with this change. The default has no limit of rate, messages of up to 1 MiB, 1024 outstanding,
/// checksum and retransmission.
#[pyclass(frozen, eq, from_py_object, module = "freshwire.a1")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Qos(pub(crate) a1::Qos);

impl Qos {
    /// # Errors
    ///
    /// If a value is out of range.
    fn checked(qos: a1::Qos) -> PyResult<Self> {
        qos.check_range().map_err(raise)?;
        Ok(Self(qos))
    }

    fn set(qos: &mut a1::Qos, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let rate = || -> PyResult<Option<Rate>> {
            let bits: Option<u64> = value.extract()?;
            if bits == Some(0) {
                return Err(PyValueError::new_err(format!(
                    "{name}=0: bits per second, or None for no limit"
                )));
            }
            Ok(bits.map(Rate::from_bits_per_sec))
        };
        match name {
            "send_average" => qos.send_average = rate()?,
            "send_burst" => qos.send_burst = value.extract()?,
            "receive_average" => qos.receive_average = rate()?,
            "receive_burst" => qos.receive_burst = value.extract()?,
            "priority" => qos.priority = value.extract()?,
            "checksum" => qos.checksum = value.extract()?,
            "retransmission" => qos.retransmission = value.extract()?,
            "max_send_message" => qos.max_send_message = value.extract()?,
            "max_receive_message" => qos.max_receive_message = value.extract()?,
            "outstanding" => qos.outstanding = value.extract()?,
            _ => return Err(PyTypeError::new_err(format!("Qos has no field {name}"))),
        }
        Ok(())
    }

    fn changed(mut qos: a1::Qos, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        if let Some(changes) = changes {
            for (name, value) in changes {
                Self::set(&mut qos, &name.extract::<String>()?, &value)?;
            }
        }
        Self::checked(qos)
    }
}

#[pymethods]
impl Qos {
    /// The largest message of all, in bytes.
    #[classattr]
    const MAX_MESSAGE: u32 = a1::Qos::MAX_MESSAGE;
    /// The most messages that may be outstanding.
    #[classattr]
    const MAX_OUTSTANDING: u32 = a1::Qos::MAX_OUTSTANDING;
    /// The most bytes that may be outstanding, unless two of the largest messages are more.
    #[classattr]
    const MAX_WINDOW: u64 = a1::Qos::MAX_WINDOW;

    #[new]
    #[pyo3(
        signature = (**fields),
        text_signature = "(*, send_average=..., send_burst=..., receive_average=..., receive_burst=..., priority=..., checksum=..., \
retransmission=..., max_send_message=..., max_receive_message=..., outstanding=...)"
    )]
    fn new(fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Self::changed(a1::Qos::default(), fields)
    }

    /// A copy with these fields changed.
    #[pyo3(
        signature = (**fields),
        text_signature = "($self, *, send_average=..., send_burst=..., receive_average=..., receive_burst=..., priority=..., checksum=..., \
retransmission=..., max_send_message=..., max_receive_message=..., outstanding=...)"
    )]
    fn replace(&self, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Self::changed(self.0, fields)
    }

    /// Average rate at which this end sends.
    #[getter]
    fn send_average(&self) -> Option<u64> {
        self.0.send_average.map(Rate::bits_per_sec)
    }

    /// Bytes that may go at once above the average.
    #[getter]
    fn send_burst(&self) -> u32 {
        self.0.send_burst
    }

    /// Average rate at which this end is willing to receive.
    #[getter]
    fn receive_average(&self) -> Option<u64> {
        self.0.receive_average.map(Rate::bits_per_sec)
    }

    /// Bytes that may come at once above the average.
    #[getter]
    fn receive_burst(&self) -> u32 {
        self.0.receive_burst
    }

    /// Which connection of a node goes first where several have something to send; a higher one does. One turn in 16 goes to
    /// the one that waits longest of the lowest.
    #[getter]
    fn priority(&self) -> u8 {
        self.0.priority
    }

    /// Whether packets that are not encrypted carry a checksum.
    #[getter]
    fn checksum(&self) -> bool {
        self.0.checksum
    }

    /// Whether lost blocks are sent again while their message is worth it.
    #[getter]
    fn retransmission(&self) -> bool {
        self.0.retransmission
    }

    /// The largest message that this end sends.
    #[getter]
    fn max_send_message(&self) -> u32 {
        self.0.max_send_message
    }

    /// The largest message that this end accepts.
    #[getter]
    fn max_receive_message(&self) -> u32 {
        self.0.max_receive_message
    }

    /// Messages that may be sent and not yet consumed by the receiving application.
    #[getter]
    fn outstanding(&self) -> u32 {
        self.0.outstanding
    }

    /// The bytes that may be outstanding towards this end.
    #[getter]
    fn receive_window(&self) -> u64 {
        self.0.receive_window()
    }

    /// The part of it that is within `maximum`: each rate, size and number the smaller of the two.
    fn within(&self, maximum: Self) -> Self {
        Self(self.0.within(&maximum.0))
    }

    /// The same connection as its other end sees it.
    fn mirrored(&self) -> Self {
        Self(self.0.mirrored())
    }

    fn __repr__(&self) -> String {
        let qos = &self.0;
        let rate =
            |rate: Option<Rate>| rate.map_or("None".to_owned(), |rate| rate.bits_per_sec().to_string());
        let flag = |flag: bool| if flag { "True" } else { "False" };
        format!(
            "Qos(send_average={}, send_burst={}, receive_average={}, receive_burst={}, priority={}, checksum={}, \
             retransmission={}, max_send_message={}, max_receive_message={}, outstanding={})",
            rate(qos.send_average),
            qos.send_burst,
            rate(qos.receive_average),
            qos.receive_burst,
            qos.priority,
            flag(qos.checksum),
            flag(qos.retransmission),
            qos.max_send_message,
            qos.max_receive_message,
            qos.outstanding,
        )
    }
}
