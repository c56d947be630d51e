//! Samples that lose their value: the receiver stops reading for a second, and what got too old meanwhile is never
//! sent. With chunked framing even a sample that was begun can be given up.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::{
    CloseMode, Engine, Framing, Message, Meta, PushError, Receiver, RingConfig, Sender, SinkConfig, choice,
    now,
};

const SAMPLES: u64 = 300;
const SAMPLE_BYTES: u32 = 64 << 10;
const INTERVAL: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_millis(150);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let peer = listener.accept()?.0;
    let receiving = std::thread::spawn(move || receive(peer).map_err(|error| error.to_string()));

    let engine = Engine::new()?.spawn()?;
    let config = RingConfig { slots: 64, blocks: 64, block_bytes: SAMPLE_BYTES, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let sink_config = SinkConfig::new(choice::deadline(Duration::ZERO)).framing(Framing::Chunked);
    let sink = sender.add_sink(stream, sink_config)?;
    let payload = vec![0; SAMPLE_BYTES as usize];
    let mut refused = 0;
    for user_seq in 0..SAMPLES {
        let generated = now();
        let meta = Meta { user_seq, generated, deadline: generated + DEADLINE, ..Meta::default() };
        match sender.push(sink.id(), &payload, &meta) {
            Ok(_) => {}
            // Nothing blocks: what to do with a full ring is for the application to say. This one skips the sample.
            Err(PushError::Full | PushError::OutOfBlocks) => refused += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(INTERVAL);
    }
    let stats = sink.stats();
    println!("{SAMPLES} samples, {} begun, {refused} found the ring full", stats.begun);
    for (reason, count) in stats.drops {
        println!("dropped, {reason}: {count}");
    }
    println!("oldest at its commit point: {:?}", stats.age_at_commit_max);
    sink.close(CloseMode::Drain, Duration::from_secs(5));
    let (whole, given_up) = receiving.join().map_err(|_| "the receiver panicked")??;
    println!("the receiver got {whole} whole samples, {given_up} were given up half-way");
    Ok(())
}

fn receive(peer: TcpStream) -> Result<(u64, u64), freshwire::ReceiveError> {
    let mut receiver = Receiver::new(peer);
    let (mut whole, mut given_up) = (0, 0);
    while let Some(message) = receiver.next_message()? {
        match message {
            Message::Record { .. } => whole += 1,
            _ => given_up += 1,
        }
        if whole == SAMPLES / 4 {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    Ok((whole, given_up))
}
