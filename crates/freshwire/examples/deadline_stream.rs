//! Samples that lose their value: the receiver stops reading for a second, and what got too old meanwhile is never
//! sent. With chunked framing even a sample in progress can be abandoned.
//!
//! Without arguments the sender starts the receiver as a process of its own. Each role can be started alone:
//!
//! ```text
//! deadline_stream send 0.0.0.0:7000 300
//! deadline_stream receive sender:7000 1000
//! ```

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use freshwire::receive::{ChunkedReceiver, Message};
use freshwire::sink::CloseMode;
use freshwire::{Ended, Engine, Framing, Meta, PushError, RingConfig, Sender, SinkConfig, choice, now};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SAMPLES: u64 = 300;
const SAMPLE_BYTES: u32 = 64 << 10;
const INTERVAL: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(150);
/// Receive buffer of the receiver, in bytes.
const RECEIVE_BUFFER: usize = 128 << 10;
/// After this many samples the receiver pauses.
const PAUSE_AFTER: u64 = 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?.to_string();
            let mut receiver =
                Command::new(std::env::current_exe()?).args(["receive", &address, "1000"]).spawn()?;
            send(&listener, SAMPLES)?;
            let status = receiver.wait()?;
            if status.success() { Ok(()) } else { Err(format!("the receiver failed: {status}").into()) }
        }
        ["send", address, samples] => send(&TcpListener::bind(address)?, samples.parse()?),
        ["receive", address, pause_ms] => {
            let stream = TcpStream::connect(address)?;
            // The kernel would take megabytes for a program that does not read them.
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, RECEIVE_BUFFER)?;
            receive(stream, Duration::from_millis(pause_ms.parse()?))
        }
        _ => Err("usage: deadline_stream [send ADDRESS SAMPLES | receive ADDRESS PAUSE_MS]".into()),
    }
}

fn send(listener: &TcpListener, samples: u64) -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let config = RingConfig { slots: 64, blocks: 64, block_bytes: SAMPLE_BYTES, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let sink_config = SinkConfig::new(choice::deadline(Duration::ZERO)).framing(Framing::Chunked);
    let sink = sender.add_sink(listener.accept()?.0, sink_config)?;
    let payload = vec![0; SAMPLE_BYTES as usize];
    let mut refused = 0;
    for _ in 0..samples {
        let generated = now();
        let meta = Meta { generated, deadline: generated + DEADLINE, ..Meta::default() };
        match sender.push(sink.id(), &payload, &meta) {
            Ok(_) => {}
            // Nothing blocks: what to do with a full ring is for the application to say. This one skips the sample.
            Err(PushError::Full | PushError::OutOfBlocks) => refused += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(INTERVAL);
    }
    let monitor = sink.monitor();
    let ended = sink.close(CloseMode::Drain, Duration::from_secs(20));
    let stats = monitor.stats();
    println!("{samples} samples, {} committed, {refused} found the ring full", stats.committed);
    for (reason, count) in stats.drops {
        println!("dropped, {reason}: {count}");
    }
    println!("oldest at its commit point: {:?}", stats.age_at_commit_max);
    assert!(stats.age_at_commit_max <= DEADLINE, "a sample was committed after its deadline");
    match ended {
        Ended::Closed => Ok(()),
        ended => Err(format!("the stream did not end in order: {ended}").into()),
    }
}

fn receive(stream: TcpStream, pause: Duration) -> Result<()> {
    let mut receiver = ChunkedReceiver::new(stream);
    let (mut whole, mut abandoned) = (0, 0);
    while let Some(message) = receiver.next_message()? {
        match message {
            Message::Record { payload, .. } => {
                assert_eq!(payload.len(), SAMPLE_BYTES as usize, "a sample is whole");
                whole += 1;
            }
            _ => abandoned += 1,
        }
        if whole == PAUSE_AFTER {
            std::thread::sleep(pause);
        }
    }
    println!("received {whole} whole samples, {abandoned} were abandoned half-way");
    Ok(())
}
