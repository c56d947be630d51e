//! Policies: those of the library, and Python functions.

use std::sync::{Arc, Mutex, PoisonError};

use freshwire::choice::{self, AskAgain, Choice, LinkView, Outcome, Progress};
use freshwire::{Timestamp, choice as native};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::PolicyError;
use crate::guard::Deciding;
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

/// What a policy decides. Positions refer to the queue that it was given.
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

/// What is known of the path. Rates are bits per second, times seconds.
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
/// own made of it. Those of `gate` and `Adaptive` serve one sink; after a call that fails they can be used again.
#[pyclass(frozen, subclass, module = "freshwire.choice")]
pub(crate) struct Policy(Recipe);

enum Recipe {
    Fifo,
    Expiring,
    Deadline(std::time::Duration),
    Latest(Vec<u32>),
    Layered(std::time::Duration),
    Frames,
    Screen,
    Live,
    Thesis(std::time::Duration),
    PriorityProgress(std::time::Duration),
    Rules {
        rules: Vec<native::Rule>,
        order: native::Order,
        weights: Vec<u32>,
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
            let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
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
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(unused);
        }
    }

    /// A policy for one sink.
    pub(crate) fn once(name: &'static str, made: Made) -> Self {
        Self(Recipe::Once { name, made: Mutex::new(Some(made)) })
    }

    fn boxed(&self, py: Python<'_>, failure: &Failure) -> PyResult<(Box<dyn Choice>, bool)> {
        let policy: Box<dyn Choice> = match &self.0 {
            Recipe::Fifo => Box::new(choice::fifo()),
            Recipe::Expiring => Box::new(choice::expiring()),
            Recipe::Deadline(margin) => Box::new(choice::deadline(*margin)),
            Recipe::Latest(weights) => Box::new(choice::latest().with_weights(weights.iter().copied())),
            Recipe::Layered(margin) => Box::new(choice::layered(*margin)),
            Recipe::Frames => Box::new(choice::frames()),
            Recipe::Screen => Box::new(choice::screen()),
            Recipe::Live => Box::new(choice::live()),
            Recipe::Thesis(window) => Box::new(choice::thesis(*window)),
            Recipe::PriorityProgress(window) => Box::new(choice::priority_progress(*window)),
            Recipe::Rules { rules, order, weights } => {
                let builder =
                    rules.iter().fold(native::Policy::builder(), |builder, rule| builder.rule(*rule));
                Box::new(builder.order(*order).weights(weights.iter().copied()).build())
            }
            Recipe::Function { function, before } => {
                let inner = before.as_ref().map(|before| before.get().boxed(py, failure)).transpose()?;
                let inner = inner.map(|(policy, _)| policy);
                let function = function.clone_ref(py);
                return Ok((Box::new(Asked { function, inner, failure: Arc::clone(failure) }), true));
            }
            // It has a place for the exception of a function of its own.
            Recipe::Once { name, .. } => {
                return Err(PyValueError::new_err(format!(
                    "a function cannot go before the policy of {name}: use another policy, or put the gate before the function"
                )));
            }
        };
        Ok((policy, false))
    }

    fn name(&self) -> &'static str {
        match self.0 {
            Recipe::Fifo => "fifo",
            Recipe::Expiring => "expiring",
            Recipe::Deadline(_) => "deadline",
            Recipe::Latest(_) => "latest",
            Recipe::Layered(_) => "layered",
            Recipe::Frames => "frames",
            Recipe::Screen => "screen",
            Recipe::Live => "live",
            Recipe::Thesis(_) => "thesis",
            Recipe::PriorityProgress(_) => "priority_progress",
            Recipe::Rules { .. } => "policy",
            Recipe::Function { .. } => "from_function",
            Recipe::Once { name, .. } => name,
        }
    }
}

#[pymethods]
impl Policy {
    fn __repr__(&self) -> String {
        format!("<freshwire.choice.{}>", self.name())
    }
}

/// A Python function as a policy, perhaps before another one.
struct Asked {
    function: Py<PyAny>,
    inner: Option<Box<dyn Choice>>,
    failure: Failure,
}

impl Asked {
    fn ask(&self, now: Timestamp, queue: &[native::Record], link: &LinkView) -> native::Decision {
        let _deciding = Deciding::begin();
        // After the interpreter's end there is nobody to ask, and nothing is decided any more.
        let asked = Python::try_attach(|py| {
            let records: Vec<Record> = queue.iter().map(Record::new).collect();
            let answer = self.function.call1(py, (now.as_nanos(), records, Link::new(link)));
            let decision = answer.and_then(|answer| decision(answer.bind(py), queue.len()));
            decision.map_err(|error| {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            })
        });
        match asked {
            Some(Ok(decision)) => decision,
            _ => native::Decision::Wait(None),
        }
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
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

impl Choice for Asked {
    fn pick(&mut self, now: Timestamp, queue: &[native::Record], link: &LinkView) -> native::Decision {
        // A function that has failed is not asked again: the sink waits, and its calls raise.
        if self.has_failed() {
            return native::Decision::Wait(None);
        }
        match (self.ask(now, queue, link), &mut self.inner) {
            (native::Decision::Wait(None), Some(inner))
                if !self.failure.lock().is_ok_and(|it| it.is_some()) =>
            {
                inner.pick(now, queue, link)
            }
            (decision, _) => decision,
        }
    }

    fn progress(
        &mut self,
        now: Timestamp,
        record: &native::Record,
        remaining: u32,
        link: &LinkView,
    ) -> Progress {
        self.inner.as_mut().map_or(Progress::Continue, |inner| inner.progress(now, record, remaining, link))
    }

    fn outcome(&mut self, record: &native::Record, outcome: Outcome) {
        if let Some(inner) = &mut self.inner {
            inner.outcome(record, outcome);
        }
    }

    fn stale(
        &mut self,
        now: Timestamp,
        queue: &[native::Record],
        newcomer: &native::Record,
    ) -> Option<(usize, native::Reason)> {
        self.inner.as_mut()?.stale(now, queue, newcomer)
    }

    fn overtakes(&self, now: Timestamp, record: &native::Record, begun: &native::Record) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.overtakes(now, record, begun))
    }

    fn is_for_state(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_for_state())
    }

    fn attach(&mut self, ask_again: AskAgain) {
        if let Some(inner) = &mut self.inner {
            inner.attach(ask_again);
        }
    }
}

/// Raises the exception of a policy that has failed.
pub(crate) fn check(py: Python<'_>, failure: &Failure) -> PyResult<()> {
    let failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cause) = failure.as_ref() else { return Ok(()) };
    let error = PolicyError::new_err("the sink's policy, a Python function, has failed: close the sink");
    error.set_cause(py, Some(cause.clone_ref(py)));
    Err(error)
}

/// Sends everything in order; drops nothing.
#[pyfunction]
fn fifo() -> Policy {
    Policy(Recipe::Fifo)
}

/// In order, without expired records.
#[pyfunction]
fn expiring() -> Policy {
    Policy(Recipe::Expiring)
}

/// In order, without records that would arrive less than `margin` seconds before their deadline.
#[pyfunction]
#[pyo3(signature = (margin = 0.0))]
fn deadline(margin: f64) -> PyResult<Policy> {
    Ok(Policy(Recipe::Deadline(duration("margin", margin)?)))
}

/// For state: one record per key, none past its deadline, and the key that has waited longest first. `weights` are those of
/// the layers, layer 0 first.
#[pyfunction]
#[pyo3(signature = (weights = Vec::new()))]
fn latest(weights: Vec<u32>) -> Policy {
    Policy(Recipe::Latest(weights))
}

/// For layered media with deadlines: the lowest layer of the oldest live window first.
#[pyfunction]
#[pyo3(signature = (margin = 0.0))]
fn layered(margin: f64) -> PyResult<Policy> {
    Ok(Policy(Recipe::Layered(duration("margin", margin)?)))
}

/// For video frames with deadlines: as many complete, decodable frames on time as the link carries.
#[pyfunction]
fn frames() -> Policy {
    Policy(Recipe::Frames)
}

/// For pictures: the freshest and smoothest screen that the link allows.
#[pyfunction]
fn screen() -> Policy {
    Policy(Recipe::Screen)
}

/// For live pictures with sound: sound first, then as `screen`.
#[pyfunction]
fn live() -> Policy {
    Policy(Recipe::Live)
}

/// In order; at a window's end the rest of the window is dropped, the highest layer first.
#[pyfunction]
fn thesis(window: f64) -> PyResult<Policy> {
    Ok(Policy(Recipe::Thesis(duration("window", window)?)))
}

/// Within a window the lowest layer first; the rest is dropped at its end.
#[pyfunction]
fn priority_progress(window: f64) -> PyResult<Policy> {
    Ok(Policy(Recipe::PriorityProgress(duration("window", window)?)))
}

/// A policy of drop rules, asked in their order, and one sending order.
#[pyfunction]
#[pyo3(signature = (rules, order = Order::Fifo, weights = Vec::new()))]
fn policy(rules: Vec<Rule>, order: Order, weights: Vec<u32>) -> PyResult<Policy> {
    let rules: PyResult<Vec<native::Rule>> = rules.iter().map(native_rule).collect();
    let order = match order {
        Order::Fifo => native::Order::Fifo,
        Order::ByLayer => native::Order::ByLayer,
        Order::Newest => native::Order::Newest,
        Order::ByTurn => native::Order::ByTurn,
    };
    Ok(Policy(Recipe::Rules { rules: rules?, order, weights }))
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
