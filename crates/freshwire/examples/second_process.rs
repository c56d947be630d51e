//! A second process that chooses: it maps the sender's ring, drops one record, rewrites another and re-ranks a third,
//! while the engine serves the connection and knows nothing of it.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use freshwire::choice::{self, Decision};
use freshwire::{CloseMode, Engine, Meta, Region, RingConfig, Sender, SinkConfig, now};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long records wait in the ring, so that there is time to change them.
const HOLD: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        None => first_process(),
        Some(memory) => second_process(&memory),
    }
}

fn first_process() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let mut receiver = listener.accept()?.0;

    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RingConfig { slots: 16, ..RingConfig::default() }, &engine.handle())?;
    // A policy of our own: the lowest layer first, and nothing before it has waited.
    let policy =
        choice::from_fn(|now, queue, _| match queue.iter().map(|record| record.generated + HOLD).max() {
            Some(due) if due > now => Decision::Wait(Some(due)),
            Some(_) => Decision::Send((0..queue.len()).min_by_key(|&at| queue[at].layer).unwrap_or(0)),
            None => Decision::Wait(None),
        });
    let sink = sender.add_sink(stream, SinkConfig::new(policy))?;
    for (user_seq, text) in ["first\n", "second\n", "third\n", "fourth\n"].into_iter().enumerate() {
        let meta = Meta { user_seq: user_seq as u64, generated: now(), layer: 5, ..Meta::default() };
        sender.push(sink.id(), text.as_bytes(), &meta)?;
    }

    let file = sender.region().as_fd().ok_or("a region on the heap has no file")?;
    let memory = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let status = Command::new(std::env::current_exe()?).arg(memory).status()?;
    println!("the second process ended: {status}");

    sink.close(CloseMode::Drain, Duration::from_secs(5));
    let mut text = String::new();
    receiver.read_to_string(&mut text)?;
    print!("the receiver got:\n{text}");
    assert_eq!(text, "fourth\nfirst\nTHIRD\n");
    Ok(())
}

fn second_process(memory: &str) -> Result<()> {
    let region = Region::attach(File::options().read(true).write(true).open(memory)?.into())?;
    let editor = region.editor();
    let mut queue = Vec::new();
    editor.queue(0, 16, &mut queue);
    println!("the second process sees {} records", queue.len());
    assert!(editor.drop_seq(0, 1), "dropped: exact, it will not be sent");
    let mut edit = editor.edit(0, 2)?;
    edit.write(0, b"THIRD")?;
    // The engine wakes by itself for the end of the wait; otherwise `true` would ask us to notify it.
    edit.release()?;
    editor.set_layer(0, 3, 0)?;
    Ok(())
}
