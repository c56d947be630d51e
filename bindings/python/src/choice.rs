//! Policies: those of the library, and Python functions.

use std::sync::{Arc, Mutex};

use freshwire::choice::{self, Choice, LinkView};
use freshwire::{Timestamp, choice as native};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::common::locks::{lock, take};
use crate::common::process::Deciding;
use crate::errors::PolicyError;
use crate::waiting::duration;

/// A condition for dropping a queued record; see `policy`. Times are seconds.
#[pyclass(frozen, eq, from_py_object, module = "freshwire.choice")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Its deadline has passed.
    Expired {},
    /// It is next, and would arrive less than `margin` before its deadline.
    #[pyo3(constructor = (margin = 0.0))]
    PredictedLate { margin: f64 },
    /// A record that it depends on was dropped.
    DependencyClosure {},
    /// A newer record with the same key is queued.
    LatestByKey {},
    /// Its time window has ended.
    WindowEnd { window: f64 },
    /// A record of a newer group is queued.
    NewestGroup {},
    /// Its layer is above `highest`.
    LayerLimit { highest: u8 },
}

/// Which of the remaining records is sent first.
#[pyclass(frozen, eq, eq_int, from_py_object, module = "freshwire.choice")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The oldest.
    Fifo,
    /// The lowest layer of the oldest group.
    ByLayer,
    /// The newest.
    Newest,
    /// The key that has waited longest.
    ByTurn,
}

/// Why a record was dropped. `int(reason)` is the number of the ring's ABI.
#[pyclass(frozen, eq, eq_int, hash, from_py_object, module = "freshwire")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    Expired = 1,
    PredictedLate = 2,
    WindowEnd = 3,
    LayerShed = 4,
    Superseded = 5,
    ReferenceLost = 6,
    Application = 7,
    Abandoned = 8,
    Closed = 9,
    SenderLost = 10,
    HolderLost = 11,
    Invalid = 12,
    ConnectionLost = 13,
    /// The application's own, or of a newer release.
    Other = 255,
}

impl Reason {
    const ALL: [Self; 13] = [
        Self::Expired,
        Self::PredictedLate,
        Self::WindowEnd,
        Self::LayerShed,
        Self::Superseded,
        Self::ReferenceLost,
        Self::Application,
        Self::Abandoned,
        Self::Closed,
        Self::SenderLost,
        Self::HolderLost,
        Self::Invalid,
        Self::ConnectionLost,
    ];

    pub(crate) fn of(reason: native::Reason) -> Self {
        Self::ALL.into_iter().find(|mirrored| *mirrored as u8 == reason.code()).unwrap_or(Self::Other)
    }

    fn native(self) -> native::Reason {
        native::Reason::from_code(self as u8)
    }
}

/// A policy's decision. Positions refer to the queue that it was given.
#[pyclass(frozen, from_py_object, module = "freshwire.choice")]
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Commit the record at this position.
    Send { at: usize },
    /// Remove the record at this position, and ask again.
    #[pyo3(constructor = (at, reason = Reason::Application))]
    Drop { at: usize, reason: Reason },
    /// Commit nothing until the queue or the link changes, or this time comes (nanoseconds of the monotonic clock). A
    /// function that goes before another policy leaves the decision to that one by waiting without a time.
    #[pyo3(constructor = (until = None))]
    Wait { until: Option<u64> },
}

/// A queued record, as a policy sees it.
#[pyclass(frozen, get_all, module = "freshwire.choice")]
pub(crate) struct Record {
    seq: u64,
    len: u32,
    layer: u8,
    group: u32,
    key: u64,
    refs: (u32, u32),
    generated: u64,
    /// `None` is never.
    deadline: Option<u64>,
}

impl Record {
    fn new(record: &native::Record) -> Self {
        let [first, second] = record.refs;
        Self {
            seq: record.seq,
            len: record.len,
            layer: record.layer,
            group: record.group,
            key: record.key,
            refs: (first, second),
            generated: record.generated.as_nanos(),
            deadline: (record.deadline != Timestamp::MAX).then(|| record.deadline.as_nanos()),
        }
    }
}

/// State of the path. Rates are bits per second, times seconds.
#[pyclass(frozen, get_all, module = "freshwire.choice")]
pub(crate) struct Link {
    rate: Option<u64>,
    rtt: f64,
    min_rtt: f64,
    in_flight: u64,
    unsent: u64,
    loss: f64,
}

impl Link {
    fn new(link: &LinkView) -> Self {
        Self {
            rate: link.rate.map(freshwire::Rate::bits_per_sec),
            rtt: link.rtt.as_secs_f64(),
            min_rtt: link.min_rtt.as_secs_f64(),
            in_flight: link.in_flight,
            unsent: link.unsent,
            loss: link.loss,
        }
    }
}

/// A policy: which queued record is sent, dropped or waited for. One object can serve many sinks; each gets a policy of its
/// own made of it. The policies of `gate` and `Adaptive` serve one sink; after a call that fails they can be used again.
#[pyclass(frozen, subclass, module = "freshwire.choice")]
pub(crate) struct Policy(Recipe);

enum Recipe {
    /// One of the library's, as often as it is wanted.
    Ready {
        name: &'static str,
        make: Box<dyn Fn() -> Box<dyn Choice> + Send + Sync>,
    },
    Function {
        function: Py<PyAny>,
        before: Option<Py<Policy>>,
    },
    /// Made already, for one sink; `None` once it has it.
    Once {
        name: &'static str,
        made: Mutex<Option<Made>>,
    },
}

/// The exception of a Python function that failed as a policy.
pub(crate) type Failure = Arc<Mutex<Option<PyErr>>>;

/// A policy for one sink.
pub(crate) struct Made {
    pub(crate) policy: Box<dyn Choice>,
    /// Python is asked.
    pub(crate) asks_python: bool,
    pub(crate) failure: Failure,
}

impl Policy {
    /// # Errors
    ///
    /// If the policy serves one sink, which has it.
    pub(crate) fn make(&self, py: Python<'_>) -> PyResult<Made> {
        if let Recipe::Once { name, made } = &self.0 {
            let made = take(made);
            return made.ok_or_else(|| {
                PyValueError::new_err(format!(
                    "the policy of {name} has a sink: make another one for this sink"
                ))
            });
        }
        let failure = Failure::default();
        let (policy, asks_python) = self.boxed(py, &failure)?;
        Ok(Made { policy, asks_python, failure })
    }

    /// Keeps a policy for one sink that has got none.
    pub(crate) fn put_back(&self, unused: Made) {
        if let Recipe::Once { made, .. } = &self.0 {
            *lock(made) = Some(unused);
        }
    }

    /// A policy for one sink.
    pub(crate) fn once(name: &'static str, made: Made) -> Self {
        Self(Recipe::Once { name, made: Mutex::new(Some(made)) })
    }

    fn boxed(&self, py: Python<'_>, failure: &Failure) -> PyResult<(Box<dyn Choice>, bool)> {
        match &self.0 {
            Recipe::Ready { make, .. } => Ok((make(), false)),
            Recipe::Function { function, before } => {
                let asked = asked(function.clone_ref(py), Arc::clone(failure));
                Ok(match before {
                    Some(before) => (Box::new(asked.around(before.get().boxed(py, failure)?.0)), true),
                    None => (Box::new(asked), true),
                })
            }
            // It has a place for the exception of a function of its own.
            Recipe::Once { name, .. } => Err(PyValueError::new_err(format!(
                "a function cannot go before the policy of {name}: use another policy, or put the gate before the function"
            ))),
        }
    }

    fn name(&self) -> &'static str {
        match self.0 {
            Recipe::Ready { name, .. } | Recipe::Once { name, .. } => name,
            Recipe::Function { .. } => "from_function",
        }
    }
}

#[pymethods]
impl Policy {
    fn __repr__(&self) -> String {
        format!("<freshwire.choice.{}>", self.name())
    }
}

/// A Python function as a policy.
fn asked(
    function: Py<PyAny>,
    failure: Failure,
) -> choice::FromFn<impl FnMut(Timestamp, &[native::Record], &LinkView) -> native::Decision + Send> {
    choice::from_fn(move |now: Timestamp, queue: &[native::Record], link: &LinkView| {
        // Without a time, a policy behind the function would decide.
        let never = native::Decision::Wait(Some(Timestamp::MAX));
        // A function that has failed is not asked again: the sink waits, and its calls raise.
        if lock(&failure).is_some() {
            return never;
        }
        let _deciding = Deciding::start();
        let asked = Python::try_attach(|py| {
            let records: Vec<Record> = queue.iter().map(Record::new).collect();
            let answer = function.call1(py, (now.as_nanos(), records, Link::new(link)));
            let decision = answer.and_then(|answer| decision(answer.bind(py), queue.len()));
            decision.unwrap_or_else(|error| {
                lock(&failure).get_or_insert(error);
                never
            })
        });
        // After the interpreter's end there is no function to ask.
        asked.unwrap_or(native::Decision::Wait(None))
    })
}

fn decision(answer: &Bound<'_, PyAny>, queued: usize) -> PyResult<native::Decision> {
    let check = |at: usize| match at < queued {
        true => Ok(at),
        false => Err(PyValueError::new_err(format!("position {at} of a queue of {queued} records"))),
    };
    let decision: Decision = answer.extract().map_err(|_| {
        let kind = answer.get_type();
        PyTypeError::new_err(format!("a policy returns Decision.Send, Drop or Wait, not {kind}"))
    })?;
    Ok(match decision {
        Decision::Send { at } => native::Decision::Send(check(at)?),
        Decision::Drop { at, reason } => native::Decision::Drop(check(at)?, reason.native()),
        Decision::Wait { until } => native::Decision::Wait(until.map(Timestamp::from_nanos)),
    })
}

/// Raises the exception of a policy that has failed.
pub(crate) fn check(py: Python<'_>, failure: &Failure) -> PyResult<()> {
    let failure = lock(failure);
    let Some(cause) = failure.as_ref() else { return Ok(()) };
    let error = PolicyError::new_err("the sink's policy, a Python function, has failed: close the sink");
    error.set_cause(py, Some(cause.clone_ref(py)));
    Err(error)
}

fn ready<C: Choice + 'static>(name: &'static str, make: impl Fn() -> C + Send + Sync + 'static) -> Policy {
    Policy(Recipe::Ready { name, make: Box::new(move || Box::new(make())) })
}

/// Sends everything in order; drops nothing.
#[pyfunction]
fn fifo() -> Policy {
    ready("fifo", choice::fifo)
}

/// In order, without expired records.
#[pyfunction]
fn expiring() -> Policy {
    ready("expiring", choice::expiring)
}

/// In order, without records that would arrive less than `margin` seconds before their deadline.
#[pyfunction]
#[pyo3(signature = (margin = 0.0))]
fn deadline(margin: f64) -> PyResult<Policy> {
    let margin = duration("margin", margin)?;
    Ok(ready("deadline", move || choice::deadline(margin)))
}

/// For state: one record per key, none past its deadline, and the key that has waited longest first. `weights` are those of
/// the layers, layer 0 first.
#[pyfunction]
#[pyo3(signature = (weights = Vec::new()))]
fn latest(weights: Vec<u32>) -> Policy {
    ready("latest", move || choice::latest().with_weights(weights.iter().copied()))
}

/// For layered media with deadlines: the lowest layer of the oldest live window first.
#[pyfunction]
#[pyo3(signature = (margin = 0.0))]
fn layered(margin: f64) -> PyResult<Policy> {
    let margin = duration("margin", margin)?;
    Ok(ready("layered", move || choice::layered(margin)))
}

/// For video frames with deadlines: as many complete, decodable frames on time as the link carries.
#[pyfunction]
fn frames() -> Policy {
    ready("frames", choice::frames)
}

/// For pictures: the freshest and smoothest screen that the link allows.
#[pyfunction]
fn screen() -> Policy {
    ready("screen", choice::screen)
}

/// For live pictures with sound: sound first, then as `screen`.
#[pyfunction]
fn live() -> Policy {
    ready("live", choice::live)
}

/// In order; at a window's end the rest of the window is dropped, the highest layer first.
#[pyfunction]
fn thesis(window: f64) -> PyResult<Policy> {
    let window = duration("window", window)?;
    Ok(ready("thesis", move || choice::thesis(window)))
}

/// Within a window the lowest layer first; the rest is dropped at its end.
#[pyfunction]
fn priority_progress(window: f64) -> PyResult<Policy> {
    let window = duration("window", window)?;
    Ok(ready("priority_progress", move || choice::priority_progress(window)))
}

/// A policy of drop rules, asked in their order, and one sending order.
#[pyfunction]
#[pyo3(signature = (rules, order = Order::Fifo, weights = Vec::new()))]
fn policy(rules: Vec<Rule>, order: Order, weights: Vec<u32>) -> PyResult<Policy> {
    let rules: Vec<native::Rule> = rules.iter().map(native_rule).collect::<PyResult<_>>()?;
    let order = match order {
        Order::Fifo => native::Order::Fifo,
        Order::ByLayer => native::Order::ByLayer,
        Order::Newest => native::Order::Newest,
        Order::ByTurn => native::Order::ByTurn,
    };
    Ok(ready("policy", move || {
        let builder = native::Policy::builder().order(order).weights(weights.iter().copied());
        rules.iter().copied().fold(builder, native::Builder::rule).build()
    }))
}

fn native_rule(rule: &Rule) -> PyResult<native::Rule> {
    Ok(match *rule {
        Rule::Expired {} => native::Rule::Expired,
        Rule::PredictedLate { margin } => native::Rule::PredictedLate { margin: duration("margin", margin)? },
        Rule::DependencyClosure {} => native::Rule::DependencyClosure,
        Rule::LatestByKey {} => native::Rule::LatestByKey,
        Rule::WindowEnd { window } => native::Rule::WindowEnd { window: duration("window", window)? },
        Rule::NewestGroup {} => native::Rule::NewestGroup,
        Rule::LayerLimit { highest } => native::Rule::LayerLimit { highest },
    })
}

/// A Python function as a policy: `function(now, queue, link) -> Decision`, with the queue's oldest record first.
///
/// It is called on the engine's thread, for each decision, and every sink of the engine waits for it. It cannot call
/// Freshwire. With `before` it goes before another policy, which decides when it returns `Decision.Wait()`. After an
/// exception the sink sends nothing more, and its calls raise `PolicyError`.
#[pyfunction]
#[pyo3(signature = (function, before = None))]
fn from_function(function: Bound<'_, PyAny>, before: Option<Py<Policy>>) -> PyResult<Policy> {
    if !function.is_callable() {
        return Err(PyTypeError::new_err("a policy must be callable: function(now, queue, link)"));
    }
    Ok(Policy(Recipe::Function { function: function.unbind(), before }))
}

pub(crate) fn register(parent: &Bound<'_, PyModule>) -> PyResult<()> {
    let module = PyModule::new(parent.py(), "freshwire.choice")?;
    module.setattr("__doc__", "Policies: which queued record is sent, dropped or waited for.")?;
    module.add_class::<Policy>()?;
    module.add_class::<Rule>()?;
    module.add_class::<Order>()?;
    module.add_class::<Decision>()?;
    module.add_class::<Record>()?;
    module.add_class::<Link>()?;
    parent.add_class::<Reason>()?;
    for function in [
        wrap_pyfunction!(fifo, &module)?,
        wrap_pyfunction!(expiring, &module)?,
        wrap_pyfunction!(deadline, &module)?,
        wrap_pyfunction!(latest, &module)?,
        wrap_pyfunction!(layered, &module)?,
        wrap_pyfunction!(frames, &module)?,
        wrap_pyfunction!(screen, &module)?,
        wrap_pyfunction!(live, &module)?,
        wrap_pyfunction!(thesis, &module)?,
        wrap_pyfunction!(priority_progress, &module)?,
        wrap_pyfunction!(policy, &module)?,
        wrap_pyfunction!(from_function, &module)?,
    ] {
        module.add_function(function)?;
    }
    parent.add("choice", &module)
}
