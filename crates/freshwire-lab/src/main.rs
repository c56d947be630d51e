//! The experiments: what a run was, what became of its records, and what follows from that.
//!
//! A runner produces [`schema::Run`]s and appends them to a result file; everything shown to a person (tables, the
//! HTML report) and everything that is checked again elsewhere comes from that file alone.

pub(crate) mod cells;
pub(crate) mod metrics;
mod run;
pub(crate) mod schema;
pub(crate) mod scheme;
mod screen;
mod share;
mod state;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod viewers;

pub(crate) use run::{A1Path, LabArgs, TestLink, TestPath, run, wait_until};

#[cfg(test)]
pub(crate) mod testing;
