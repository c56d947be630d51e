//! The emulated link, for tests.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use freshwire_link::{Config, Direction, Loss};
use freshwire_netns::standalone::{End, StandaloneLink};
use freshwire_netns::{DirectionSnapshot, Namespaces, Snapshot};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::errors::raise;
use crate::guard::{Born, Stop, drop_apart, leave_to_parent, stop_at_exit};
use crate::waiting::{duration, interruptible};

/// An emulated link without root, for tests: Linux's own TCP and UDP at both ends, and between them a path with this rate, delay, queue
/// and loss. `with Link(rate="300kbit") as link:` ends it after the block.
///
/// Values are those of the command `freshwire link`:
///
/// - rate: bits per second, or text such as "300kbit"; `None` for no limit.
/// - delay: seconds, or text such as "50ms"; queue: bytes, or text such as "64KiB".
/// - loss: the share of lost packets, or text such as "5%"; burst: the mean length of a run of lost packets.
/// - reorder: text such as "1%+5ms", which delays that share of the packets by that much more.
///
/// A pair `(up, down)` sets the directions apart: up leads from the near end to the far one.
///
/// `listen` and `connect` give sockets at the ends. With `to`, a server of this machine is reached at `address` through the link, over TCP
/// and UDP, for programs that take no socket. Raises `LinkNotPermitted` where the system gives no network namespaces.
#[pyclass(frozen, module = "freshwire")]
pub(crate) struct Link {
    link: Arc<Shared>,
    port: Option<u16>,
    born: Born,
}

struct Shared(StandaloneLink);

impl Stop for Shared {
    fn stop(&self) {
        self.0.close();
    }
}

/// Counters of a link in one direction. Lengths are those of IP packets.
#[pyclass(frozen, get_all, module = "freshwire")]
#[derive(Clone, Copy)]
pub(crate) struct LinkCounters {
    offered_packets: u64,
    offered_bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    /// Packets lost on the wire.
    lost_packets: u64,
    /// Packets that found the queue full.
    dropped_packets: u64,
    /// Bytes that wait now.
    queued_bytes: u64,
    /// Most bytes that ever waited.
    queue_peak_bytes: u64,
    /// Longest that a packet waited, in seconds; infinite behind an outage without end.
    queue_delay_max: f64,
}

impl LinkCounters {
    fn new(direction: &DirectionSnapshot) -> Self {
        let link = &direction.link;
        Self {
            offered_packets: link.offered_packets,
            offered_bytes: link.offered_bytes,
            delivered_packets: link.delivered_packets,
            delivered_bytes: link.delivered_bytes,
            lost_packets: link.lost_packets,
            dropped_packets: link.queue_full_packets + link.wire_full_packets,
            queued_bytes: direction.queued_bytes,
            queue_peak_bytes: link.queue_peak_bytes,
            queue_delay_max: match link.queue_delay_max {
                Duration::MAX => f64::INFINITY,
                delay => delay.as_secs_f64(),
            },
        }
    }
}

#[pymethods]
impl LinkCounters {
    fn __repr__(&self) -> String {
        let Self { delivered_packets, delivered_bytes, lost_packets, dropped_packets, queued_bytes, .. } =
            self;
        format!(
            "<freshwire.LinkCounters delivered_packets={delivered_packets} delivered_bytes={delivered_bytes} \
             lost_packets={lost_packets} dropped_packets={dropped_packets} queued_bytes={queued_bytes}>"
        )
    }
}

/// Counters of a link.
#[pyclass(frozen, get_all, module = "freshwire")]
pub(crate) struct LinkStats {
    /// From the near end to the far one.
    up: LinkCounters,
    /// From the far end to the near one.
    down: LinkCounters,
    /// 99th percentile of the time by which this machine delivered packets too late, in seconds.
    late: f64,
}

impl LinkStats {
    fn new(snapshot: &Snapshot) -> Self {
        let (up, down) = (LinkCounters::new(&snapshot.up), LinkCounters::new(&snapshot.down));
        Self { up, down, late: snapshot.lateness.p99.as_secs_f64() }
    }
}

#[pymethods]
impl LinkStats {
    fn __repr__(&self) -> String {
        format!(
            "<freshwire.LinkStats up={} down={} late={}>",
            self.up.__repr__(),
            self.down.__repr__(),
            self.late
        )
    }
}

/// A value for each direction, of one for both or a pair.
fn pair<'py>(value: &Bound<'py, PyAny>) -> PyResult<[Bound<'py, PyAny>; 2]> {
    match value.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => Ok([pair.get_item(0)?, pair.get_item(1)?]),
        Ok(pair) => Err(PyValueError::new_err(format!(
            "{} values: one, or a pair of up and down, is wanted",
            pair.len()
        ))),
        Err(_) => Ok([value.clone(), value.clone()]),
    }
}

/// Text as the command line has it, or a number.
fn value<T, E: std::fmt::Display>(
    value: &Bound<'_, PyAny>,
    parse: impl FnOnce(&str) -> Result<T, E>,
    number: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    match value.cast::<PyString>() {
        Ok(text) => parse(&text.to_cow()?).map_err(|error| PyValueError::new_err(error.to_string())),
        Err(_) => number(value),
    }
}

/// A rate; `None` is unlimited.
fn rate(given: &Bound<'_, PyAny>) -> PyResult<Option<Rate>> {
    if given.is_none() {
        return Ok(None);
    }
    value(given, str::parse::<Rate>, |given| Ok(Rate::from_bits_per_sec(given.extract()?))).map(Some)
}

fn direction(name: &str) -> PyResult<Direction> {
    match name {
        "up" => Ok(Direction::Up),
        "down" => Ok(Direction::Down),
        _ => Err(PyValueError::new_err(format!("direction={name:?}: up or down is wanted"))),
    }
}

fn end(name: &str) -> PyResult<End> {
    match name {
        "near" => Ok(End::Near),
        "far" => Ok(End::Far),
        _ => Err(PyValueError::new_err(format!("end={name:?}: near or far is wanted"))),
    }
}

/// The arguments of a link, for one direction.
struct Settings<'py> {
    rate: Bound<'py, PyAny>,
    delay: Bound<'py, PyAny>,
    queue: Bound<'py, PyAny>,
    loss: Bound<'py, PyAny>,
    burst: Bound<'py, PyAny>,
    reorder: Bound<'py, PyAny>,
}

impl Settings<'_> {
    fn config(&self, seed: u64) -> PyResult<Config> {
        let mut builder = Config::builder().seed(seed);
        if let Some(rate) = rate(&self.rate)? {
            builder = builder.rate(rate);
        }
        if !self.delay.is_none() {
            let delay = value(&self.delay, parse_duration, |given| duration("delay", given.extract()?))?;
            builder = builder.delay(delay);
        }
        if !self.queue.is_none() {
            builder = builder.queue_bytes(value(&self.queue, parse_size, |given| given.extract())?);
        }
        if !self.reorder.is_none() {
            let (share, late_by) = value(&self.reorder, reordering, |given| {
                Err(PyTypeError::new_err(format!("reorder={given}: text such as \"1%+5ms\" is wanted")))
            })?;
            builder = builder.reorder(share, late_by);
        }
        let share = match self.loss.is_none() {
            true => None,
            false => Some(value(&self.loss, parse_share, |given| given.extract())?),
        };
        builder = match (share, self.burst.is_none()) {
            (None, true) => builder,
            (None, false) => {
                return Err(PyValueError::new_err(
                    "burst says how long losses last: say with loss how many there are",
                ));
            }
            (Some(share), true) => builder.loss(Loss::Random { share }),
            (Some(share), false) => builder.loss(Loss::Burst { share, mean_packets: self.burst.extract()? }),
        };
        builder.build().map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

fn reordering(text: &str) -> Result<(f64, Duration), String> {
    let (share, late_by) = text.split_once('+').ok_or("write SHARE+TIME, such as 1%+5ms")?;
    let share = parse_share(share).map_err(|error| error.to_string())?;
    Ok((share, parse_duration(late_by).map_err(|error| error.to_string())?))
}

fn resolve(py: Python<'_>, to: (String, u16)) -> PyResult<SocketAddr> {
    let (host, port) = to;
    let name = format!("{host}:{port}");
    let found = interruptible(py, move || (host.as_str(), port).to_socket_addrs())??.next();
    found.ok_or_else(|| PyValueError::new_err(format!("to={name}: no address was found")))
}

/// Python's own socket, with a blocking descriptor that it owns.
fn python_socket<'py>(py: Python<'py>, socket: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import("socket")?.getattr("socket")?;
    let number = socket.into_raw_fd();
    let options = PyDict::new(py);
    options.set_item("fileno", number)?;
    class.call((), Some(&options)).inspect_err(|_| {
        // SAFETY: the descriptor was released above, and Python did not take it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    })
}

impl Link {
    fn shared(&self) -> PyResult<&StandaloneLink> {
        self.born.check()?;
        Ok(&self.link.0)
    }

    fn open<'py>(
        &self,
        py: Python<'py>,
        end: End,
        (family, kind, proto): (i32, i32, i32),
    ) -> PyResult<Bound<'py, PyAny>> {
        let link = self.shared()?;
        let socket = py.detach(|| link.socket(end, family, kind, proto)).map_err(raise)?;
        python_socket(py, socket)
    }
}

const TCP: (i32, i32, i32) = (libc::AF_INET, libc::SOCK_STREAM, 0);

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (*, rate = None, delay = None, queue = None, loss = None, burst = None, reorder = None, seed = 0, to = None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        rate: Option<Bound<'_, PyAny>>,
        delay: Option<Bound<'_, PyAny>>,
        queue: Option<Bound<'_, PyAny>>,
        loss: Option<Bound<'_, PyAny>>,
        burst: Option<Bound<'_, PyAny>>,
        reorder: Option<Bound<'_, PyAny>>,
        seed: u64,
        to: Option<(String, u16)>,
    ) -> PyResult<Self> {
        let both = |given: Option<Bound<'_, PyAny>>| match given {
            Some(given) => pair(&given).map(|pair| pair.map(Bound::unbind)),
            None => Ok([py.None(), py.None()]),
        };
        let given = [both(rate)?, both(delay)?, both(queue)?, both(loss)?, both(burst)?, both(reorder)?];
        let config = |direction: usize| {
            let [rate, delay, queue, loss, burst, reorder] =
                [0, 1, 2, 3, 4, 5].map(|at: usize| given[at][direction].bind(py).clone());
            Settings { rate, delay, queue, loss, burst, reorder }.config(seed)
        };
        let (up, down) = (config(0)?, config(1)?);
        let to = to.map(|to| resolve(py, to)).transpose()?;
        let link = interruptible(py, move || StandaloneLink::start(up, down, to))?.map_err(raise)?;
        let link = Arc::new(Shared(link));
        let stop: Arc<dyn Stop> = link.clone();
        stop_at_exit(&stop);
        Ok(Self { link, port: to.map(|to| to.port()), born: Born::now() })
    }

    /// Address of the near end.
    #[classattr]
    fn near() -> String {
        Namespaces::NEAR_V4.to_string()
    }

    /// Address of the far end.
    #[classattr]
    fn far() -> String {
        Namespaces::FAR_V4.to_string()
    }

    /// Where this machine's programs reach the server given by `to` through the link: host and port, for TCP and UDP. `None`
    /// without `to`.
    #[getter]
    fn address(&self) -> PyResult<Option<(String, u16)>> {
        Ok(self.shared()?.address().map(|address| (address.ip().to_string(), address.port())))
    }

    /// Makes a socket at an end, "near" or "far", as `socket.socket` does.
    #[pyo3(signature = (end, family = libc::AF_INET, r#type = libc::SOCK_STREAM, proto = 0))]
    fn socket<'py>(
        &self,
        py: Python<'py>,
        end: &str,
        family: i32,
        r#type: i32,
        proto: i32,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.open(py, self::end(end)?, (family, r#type, proto))
    }

    /// Makes a TCP socket that listens at the far end.
    #[pyo3(signature = (port = 0, *, backlog = 16))]
    fn listen<'py>(&self, py: Python<'py>, port: u16, backlog: i32) -> PyResult<Bound<'py, PyAny>> {
        let socket = self.open(py, End::Far, TCP)?;
        let bound = socket.call_method1("bind", ((Self::far(), port),));
        if let Err(error) = bound.and_then(|_| socket.call_method1("listen", (backlog,))) {
            socket.call_method0("close")?;
            return Err(error);
        }
        Ok(socket)
    }

    /// Connects from the near end through the link. `to` is a listening socket at the far end or a port
    /// there; without it, the peer is the server that the link's own `to` gives.
    #[pyo3(signature = (to = None, *, timeout = None))]
    fn connect<'py>(
        &self,
        py: Python<'py>,
        to: Option<Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let port = match (to, self.port) {
            (None, Some(port)) => port,
            (None, None) => {
                return Err(PyTypeError::new_err(
                    "the link leads to no server: pass a socket of listen(), or a port",
                ));
            }
            (Some(to), _) if to.hasattr("getsockname")? => {
                to.call_method0("getsockname")?.get_item(1)?.extract()?
            }
            (Some(to), _) => to.extract()?,
        };
        let socket = self.open(py, End::Near, TCP)?;
        if timeout.is_some() {
            socket.call_method1("settimeout", (timeout,))?;
        }
        if let Err(error) = socket.call_method1("connect", ((Self::far(), port),)) {
            socket.call_method0("close")?;
            return Err(error);
        }
        socket.call_method1("settimeout", (py.None(),))?;
        Ok(socket)
    }

    /// Gives one direction, "up" or "down", or both another rate from now on, for what waits too: 0 is an outage until the next
    /// change, `None` is unlimited.
    #[pyo3(signature = (rate, direction = None))]
    fn set_rate(&self, py: Python<'_>, rate: &Bound<'_, PyAny>, direction: Option<&str>) -> PyResult<()> {
        let link = self.shared()?;
        let rate = self::rate(rate)?;
        let directions = match direction {
            Some(name) => vec![self::direction(name)?],
            None => Direction::BOTH.to_vec(),
        };
        py.detach(|| directions.into_iter().try_for_each(|direction| link.set_rate(direction, rate)))
            .map_err(raise)
    }

    /// Counters of the link; after its end, the last ones.
    fn stats(&self, py: Python<'_>) -> PyResult<LinkStats> {
        let link = self.shared()?;
        py.detach(|| link.snapshot()).map(|snapshot| LinkStats::new(&snapshot)).map_err(raise)
    }

    /// Ends the link, and returns why this machine did not carry what the arguments say, such as that it was too busy: nothing if it did.
    /// Sockets stay open, without a path between the ends. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let link = self.shared()?;
        Ok(py.detach(|| link.close()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self) -> String {
        format!(
            "<freshwire.Link {}>",
            if self.born.is_of_parent() || self.link.0.is_closed() { "closed" } else { "open" }
        )
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.born.is_of_parent() {
            return leave_to_parent(&self.link);
        }
        drop_apart(self.born, Closing(Arc::clone(&self.link)));
    }
}

/// Closes the link when it is dropped.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.stop();
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Link>()?;
    module.add_class::<LinkCounters>()?;
    module.add_class::<LinkStats>()
}
