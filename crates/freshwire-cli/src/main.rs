//! The `freshwire` command.
fn main() {}
