//! Exceptions with the words of the library's errors.

use std::error::Error;

use freshwire::sender::ModifyError;
use freshwire::sink::StaleSink;
use freshwire::{PushError, SenderError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(freshwire, FreshwireError, PyException, "Base of the library's errors.");
create_exception!(
    freshwire,
    Full,
    FreshwireError,
    "The ring or the arena has no room: wait, drop or replace a record."
);
create_exception!(freshwire, TooLarge, FreshwireError, "The record is larger than the ring can ever hold.");
create_exception!(freshwire, Closed, FreshwireError, "The sink, connection or node has ended.");
create_exception!(
    freshwire,
    TooLate,
    FreshwireError,
    "The record was committed, dropped, or is held by another party."
);
create_exception!(
    freshwire,
    NotChanged,
    FreshwireError,
    "The payload is shared, or the change does not fit into it."
);
create_exception!(freshwire, NoFreeRing, FreshwireError, "All rings are in use.");
create_exception!(freshwire, CarrierError, FreshwireError, "The sink cannot have the kernel's ring.");
create_exception!(freshwire, InvalidStream, FreshwireError, "The stream violates its framing.");
create_exception!(freshwire, ConnectError, FreshwireError, "The A1 connection was not made.");
create_exception!(
    freshwire,
    PolicyError,
    FreshwireError,
    "A Python function failed as a policy; `__cause__` has its exception."
);

create_exception!(
    freshwire,
    LinkError,
    FreshwireError,
    "The emulated link was not made, or refused something."
);
create_exception!(
    freshwire,
    LinkNotPermitted,
    LinkError,
    "The system gives no network namespaces: skip the test, or run it as root."
);

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("FreshwireError", py.get_type::<FreshwireError>())?;
    module.add("Full", py.get_type::<Full>())?;
    module.add("TooLarge", py.get_type::<TooLarge>())?;
    module.add("Closed", py.get_type::<Closed>())?;
    module.add("TooLate", py.get_type::<TooLate>())?;
    module.add("NotChanged", py.get_type::<NotChanged>())?;
    module.add("NoFreeRing", py.get_type::<NoFreeRing>())?;
    module.add("CarrierError", py.get_type::<CarrierError>())?;
    module.add("InvalidStream", py.get_type::<InvalidStream>())?;
    module.add("ConnectError", py.get_type::<ConnectError>())?;
    module.add("LinkError", py.get_type::<LinkError>())?;
    module.add("LinkNotPermitted", py.get_type::<LinkNotPermitted>())?;
    module.add("PolicyError", py.get_type::<PolicyError>())
}

/// Rust's names in the library's messages, and what they are in Python. A test compares the list with the library's sources.
const NAMES: [(&str, &str); 7] = [
    ("RingConfig::for_clients", "Ring.for_clients"),
    ("RingConfig::rings", "Ring(rings=...)"),
    ("RingConfig::slots", "Ring(slots=...)"),
    ("Carrier::Auto", "carrier=\"auto\""),
    ("Carrier::Tcp", "carrier=\"tcp\""),
    ("ConnectionConfig::maximum", "Node(maximum=...)"),
    ("ConnectionConfig::in_order", "Node(in_order=True)"),
];

/// An error's words with those of its causes, where they are not in it already, and with Python's names.
pub(crate) fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        source = cause.source();
    }
    NAMES.iter().fold(words, |words, (theirs, ours)| words.replace(theirs, ours))
}

pub(crate) fn of_push(error: PushError) -> PyErr {
    let words = words(&error);
    match error {
        PushError::Full | PushError::OutOfBlocks => Full::new_err(words),
        PushError::TooLarge => TooLarge::new_err(words),
        PushError::Closed | PushError::StaleSink(_) => Closed::new_err(words),
        _ => FreshwireError::new_err(words),
    }
}

pub(crate) fn of_modify(error: ModifyError) -> PyErr {
    let words = words(&error);
    match error {
        ModifyError::Invalid(_) => NotChanged::new_err(words),
        ModifyError::StaleSink(_) => Closed::new_err(words),
        _ => TooLate::new_err(words),
    }
}

pub(crate) fn of_stale(error: StaleSink) -> PyErr {
    Closed::new_err(words(&error))
}

pub(crate) fn of_sender(error: SenderError) -> PyErr {
    let words = words(&error);
    match error {
        SenderError::Create(freshwire::ring::CreateError::Config(_)) | SenderError::TooFewSlots { .. } => {
            PyValueError::new_err(words)
        }
        SenderError::Create(_) | SenderError::Stream(_) => PyOSError::new_err(words),
        SenderError::Claim(_) => NoFreeRing::new_err(words),
        SenderError::Carrier(_) => CarrierError::new_err(words),
        SenderError::ConnectionEnded(_) => Closed::new_err(words),
        _ => FreshwireError::new_err(words),
    }
}

pub(crate) fn of_connect(error: &freshwire::a1::ConnectError) -> PyErr {
    match error {
        freshwire::a1::ConnectError::Stopped => Closed::new_err(words(error)),
        _ => ConnectError::new_err(words(error)),
    }
}
