//! Exceptions with the words of the library's errors.

use std::error::Error;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::common::failures::{Classified, Kind};
use crate::common::names::in_own_names;

/// Makes the exceptions, and enters them into the module.
macro_rules! exceptions {
    ($($name:ident of $base:ty: $about:literal)+) => {
        $(create_exception!(freshwire, $name, $base, $about);)+

        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)+
            Ok(())
        }
    };
}

exceptions! {
    FreshwireError of PyException: "Base of the library's errors."
    Full of FreshwireError: "The ring or the arena has no room: wait, drop or replace a record."
    TooLarge of FreshwireError: "The record is larger than the ring can ever hold."
    Closed of FreshwireError: "The sink, connection or node has ended."
    TooLate of FreshwireError: "The record was committed, dropped, or is held by another party."
    NotChanged of FreshwireError: "The payload is shared, or the change does not fit into it."
    NoFreeRing of FreshwireError: "All rings are in use."
    CarrierError of FreshwireError: "The sink cannot have the kernel's ring."
    InvalidStream of FreshwireError: "The stream violates its framing."
    ConnectError of FreshwireError: "The A1 connection was not made."
    LinkError of FreshwireError: "The emulated link was not made, or refused something."
    LinkNotPermitted of LinkError: "The system gives no network namespaces: skip the test, or run it as root."
    PolicyError of FreshwireError: "A Python function failed as a policy; `__cause__` has its exception."
}

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
    in_own_names(words, |(_, _, python)| python)
}

/// The exception of an error of the library.
pub(crate) fn raise(error: impl Classified) -> PyErr {
    exception(error.kind(), words(&error))
}

/// The exception of a kind of failure.
pub(crate) fn exception(kind: Kind, words: String) -> PyErr {
    match kind {
        Kind::Full => Full::new_err(words),
        Kind::TooLarge => TooLarge::new_err(words),
        Kind::TooLate => TooLate::new_err(words),
        Kind::NotChanged => NotChanged::new_err(words),
        Kind::Closed | Kind::NodeStopped => Closed::new_err(words),
        Kind::Invalid => PyValueError::new_err(words),
        Kind::NoRing => NoFreeRing::new_err(words),
        Kind::Carrier => CarrierError::new_err(words),
        Kind::System => PyOSError::new_err(words),
        Kind::BadStream => InvalidStream::new_err(words),
        Kind::NotConnected => ConnectError::new_err(words),
        Kind::NotPermitted => LinkNotPermitted::new_err(words),
        Kind::Link | Kind::LinkSystem => LinkError::new_err(words),
        Kind::Pending | Kind::OtherNode | Kind::Other => FreshwireError::new_err(words),
    }
}
