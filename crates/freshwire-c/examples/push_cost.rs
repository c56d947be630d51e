//! Cost of a push through the C interface beside one through Rust, in one process, in turns. Prints medians.
//!
//! ```sh
//! cargo run --release -p freshwire-c --example push_cost
//! ```
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, choice, now};
use freshwire_c::*;

const BURST: u32 = 1000;
const ROUNDS: usize = 101;

/// A connection whose far end is drained.
fn connection() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let mut far = listener.accept()?.0;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while far.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    Ok(near)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for bytes in [64, 1400] {
        let payload = vec![7; bytes];
        let ring = RingConfig { rings: 1, slots: 4096, block_bytes: 1400, blocks: 8192 };
        let engine = Engine::new()?.spawn()?;
        let mut sender = Sender::new(&ring, &engine.handle())?;
        let sink = sender.add_sink(connection()?, SinkConfig::new(choice::fifo()).ack_fates(false))?;
        let (mut c_engine, mut c_sender, mut c_sink) =
            (fw_engine::default(), fw_sender::default(), fw_sink::default());
        let (c_ring, stream) = (fw_ring::from(ring), connection()?);
        let config = fw_sink_config { ack_fates: 0, ..fw_sink_config_default() };
        // SAFETY: every pointer is to a local value.
        #[allow(clippy::multiple_unsafe_ops_per_block, reason = "the same promise for all")]
        unsafe {
            assert_eq!(fw_engine_new(&raw mut c_engine), fw_status::FW_OK);
            assert_eq!(fw_sender_new(c_engine, &raw const c_ring, &raw mut c_sender), fw_status::FW_OK);
            let added = fw_sender_add_sink(c_sender, stream.as_raw_fd(), &raw const config, &raw mut c_sink);
            assert_eq!(added, fw_status::FW_OK);
        }
        let (mut rust, mut c) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..BURST {
                sender.push(sink.id(), &payload, &Meta { generated: now(), ..Meta::default() })?;
            }
            rust.push(start.elapsed().as_nanos() as f64 / f64::from(BURST));
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            for _ in 0..BURST {
                // SAFETY: the payload is a local value.
                let pushed = unsafe {
                    fw_sink_push(
                        c_sink,
                        payload.as_ptr(),
                        payload.len(),
                        std::ptr::null(),
                        std::ptr::null_mut(),
                    )
                };
                assert_eq!(pushed, fw_status::FW_OK);
            }
            c.push(start.elapsed().as_nanos() as f64 / f64::from(BURST));
            std::thread::sleep(Duration::from_millis(5));
        }
        let (rust, c) = (median(rust), median(c));
        println!("{bytes} bytes: Rust {rust:.0} ns, C {c:.0} ns, ratio {:.3}", c / rust);
        fw_engine_free(c_engine);
    }
    Ok(())
}
