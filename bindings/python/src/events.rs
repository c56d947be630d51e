//! Changes of sinks, nodes, connections and streams, for event loops.

use std::os::fd::AsRawFd;

use pyo3::prelude::*;

use crate::guard::Born;

/// A class for one of the library's files of changes, with more methods.
macro_rules! events {
    ($(#[$about:meta])* $class:ident of $native:ty { $($more:tt)* }) => {
        $(#[$about])*
        pub(crate) struct $class {
            events: $native,
            born: Born,
        }

        impl $class {
            pub(crate) fn new(events: $native, born: Born) -> Self {
                Self { events, born }
            }
        }

        #[pymethods]
        impl $class {
            /// The descriptor.
            fn fileno(&self) -> PyResult<i32> {
                self.born.check()?;
                Ok(self.events.as_raw_fd())
            }

            /// Makes the file unreadable until the next change. Call it before looking for what is new, not after.
            fn clear(&self) -> PyResult<()> {
                self.born.check()?;
                self.events.clear();
                Ok(())
            }

            $($more)*
        }
    };
}

events! {
    /// Changes of a sink, as a file for `selectors`, `poll` and other event loops. The file is readable from
    /// the first change on until `clear`.
    ///
    /// All of one sink have the same file, so let one place wait for it, and do not close it.
    #[pyclass(frozen, module = "freshwire")]
    SinkEvents of freshwire::watch::SinkEvents {}
}

events! {
    /// Changes of a node, a connection or one direction of a byte stream, as a file for `selectors`, `poll`
    /// and other event loops. The file is readable from the first change on until `clear`.
    ///
    /// All from the same call on the same object have the same file: let one place wait for it, and do not close it.
    /// An `await` in asyncio waits for it too.
    #[pyclass(frozen, module = "freshwire.a1")]
    Events of freshwire::a1::Events {
        /// Makes the file readable, for other places that wait for it: where one of them has cleared it and leaves something.
        fn set(&self) -> PyResult<()> {
            self.born.check()?;
            self.events.set();
            Ok(())
        }
    }
}
