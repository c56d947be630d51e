//! Sinks over the kernel's ring, against the real module.
//!
//! It has no test harness: `make test-kernel` runs it in guests with stock kernels. Where the module is not loaded and
//! cannot be, it says so and tests nothing.

mod cases;
mod rig;

use std::process::ExitCode;

use freshwire_io::kernel_ring::{Geometry, Refused, RingSocket};

/// kselftest's exit code for what cannot be tested here.
const SKIPPED: u8 = 4;

fn main() -> ExitCode {
    // Cargo's own arguments (`--list`, filters) are for a harness; a plain filter is honoured.
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    if let Err(why) = probe() {
        println!("skipped: {why}; `make test-kernel` runs this in guests that have the module");
        // Cargo takes anything but success for a failure, and the guest's list counts what was skipped.
        let in_guest = std::env::var_os("FRESHWIRE_KERNEL_RING").is_some();
        return if in_guest { ExitCode::from(SKIPPED) } else { ExitCode::SUCCESS };
    }
    let mut failed = false;
    for (name, case) in cases::ALL.iter().filter(|(name, _)| name.contains(&filter)) {
        match case() {
            Ok(()) => println!("ok {name}"),
            Err(error) => {
                failed = true;
                println!("not ok {name}: {error}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether this kernel gives rings; asking loads the module where it is installed.
fn probe() -> Result<(), String> {
    let (near, _far) = rig::pair("127.0.0.1:0").map_err(|error| error.to_string())?;
    let socket = freshwire_io::tcp::TcpSocket::new(near).map_err(|error| error.to_string())?;
    let geometry = Geometry { slots: 2, block_bytes: 16, blocks: 2, keep_acks: 0 };
    RingSocket::attach(socket, &geometry).map(|_| ()).map_err(|Refused { error, .. }| error.to_string())
}
