//! Retransmissions have the bytes of the first transmission: records sent by reference over a link that loses, repeats and reorders packets.
//!
//! It has no test harness: an unprivileged process must create its namespaces while it has a single thread.
#![allow(clippy::unwrap_used, reason = "a test")]

mod lending;
mod until;

use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use freshwire::engine::Transfer;
use freshwire::{Framing, Rate};
use freshwire_netns::testing::namespaces;
use freshwire_netns::{Emulator, EmulatorOptions, LinkConfig, Loss, Namespaces};
use lending::{ARENA, BLOCK, run};

fn main() -> ExitCode {
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(status) => return status,
    };
    for (loss, delay) in [(0.0, 1), (0.02, 1), (0.02, 20), (0.1, 5)] {
        let link = LinkConfig::builder()
            .rate(Rate::from_bits_per_sec(20_000_000))
            .delay(Duration::from_millis(delay))
            .loss(Loss::Random { share: loss })
            .build()
            .unwrap();
        let emulator =
            Emulator::start(&namespaces, link.clone(), link.clone(), EmulatorOptions::default()).unwrap();
        let listener = namespaces.in_far(|| TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let near = namespaces.in_near(|| TcpStream::connect(address)).unwrap().unwrap();
        near.set_nonblocking(true).unwrap();
        let far = listener.accept().unwrap().0;
        let lens: Vec<usize> = (1..40).map(|place| (1 + place % 3) * BLOCK as usize + place % 3).collect();
        let stats = run((near, far), Transfer::Reference, Framing::LengthPrefixed, &lens, ARENA / 2);
        assert!(stats.bytes_by_reference > stats.bytes / 2, "{stats:?}");
        let _account = emulator.stop();
        println!("ok: loss {loss}, delay {delay} ms: {} bytes by reference", stats.bytes_by_reference);
    }
    ExitCode::SUCCESS
}
