//! Code of both bindings: the crate for Python includes this file, so that C and Python cannot differ in it.

pub(crate) mod ends;
pub(crate) mod failures;
pub(crate) mod locks;
pub(crate) mod names;
pub(crate) mod process;
pub(crate) mod structures;
