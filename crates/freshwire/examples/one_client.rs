//! The program of the README, which a test compares with it and runs.

use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, choice, now};
use std::{net::TcpListener, thread::sleep, time::Duration};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?.spawn()?;
    // Room for 1 client at a time, 50 objects, values of at most 64 bytes.
    let mut sender = Sender::new(&RingConfig::for_clients(1, 50, 64), &engine.handle())?;
    let client = TcpListener::bind("127.0.0.1:5000")?.accept()?.0;
    // Only the newest value of each object is sent; the objects take turns.
    let sink = sender.add_sink(client, SinkConfig::new(choice::latest()).keys(50))?;
    for tick in 0.. {
        for object in 1..=50 {
            let value = format!("object {object}, tick {tick}\n");
            let meta = Meta { generated: now(), key: object, ..Meta::default() };
            // Never blocks. An error says that the client has left.
            if sender.replace(sink.id(), value.as_bytes(), &meta).is_err() {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(16));
    }
    Ok(())
}
