//! A second process that chooses: it maps the sender's ring, drops one record, rewrites another and re-ranks a third,
//! while the engine serves the connection and knows nothing of it.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freshwire::choice::{self, Decision};
use freshwire::ring::Region;
use freshwire::sink::CloseMode;
use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, now};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How often the policy looks whether the second process is done.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        None => first_process(),
        Some(memory) => second_process(&memory, std::env::args().nth(2).ok_or("which ring?")?.parse()?),
    }
}

fn first_process() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let mut receiver = listener.accept()?.0;

    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RingConfig { slots: 16, ..RingConfig::default() }, &engine.handle())?;
    // A policy of our own: the lowest layer first, and nothing before the second process is done.
    let is_edited = Arc::new(AtomicBool::new(false));
    let may_send = Arc::clone(&is_edited);
    let policy = choice::from_fn(move |now, queue, _| match queue.len() {
        0 => Decision::Wait(None),
        _ if !may_send.load(Ordering::Relaxed) => Decision::Wait(Some(now + LOOK)),
        len => Decision::Send((0..len).min_by_key(|&at| queue[at].layer).unwrap_or(0)),
    });
    let sink = sender.add_sink(stream, SinkConfig::new(policy))?;
    // The producer counts from 0: these are records 0 to 3.
    for text in ["first\n", "second\n", "third\n", "fourth\n"] {
        sender.push(sink.id(), text.as_bytes(), &Meta { generated: now(), layer: 5, ..Meta::default() })?;
    }

    let file = sender.region().as_fd().ok_or("a region on the heap has no file")?;
    let memory = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let ring = sink.id().ring().to_string();
    let status = Command::new(std::env::current_exe()?).args([memory, ring]).status()?;
    println!("the second process ended: {status}");
    is_edited.store(true, Ordering::Relaxed);

    sink.close(CloseMode::Drain, Duration::from_secs(5));
    let mut text = String::new();
    receiver.read_to_string(&mut text)?;
    print!("the receiver got:\n{text}");
    assert_eq!(text, "fourth\nfirst\nTHIRD\n");
    Ok(())
}

fn second_process(memory: &str, ring: usize) -> Result<()> {
    let region = Region::attach(File::options().read(true).write(true).open(memory)?.into())?;
    let editor = region.editor();
    let mut queue = Vec::new();
    editor.queue(ring, 16, &mut queue);
    println!("the second process sees {} records", queue.len());
    assert!(editor.drop_seq(ring, 1), "dropped: exact, it will not be sent");
    // `true` would ask us to notify the sender, which sleeps; this one wakes by itself.
    editor.modify(ring, 2, |edit| edit.write(0, b"THIRD"))?;
    editor.set_layer(ring, 3, 0)?;
    Ok(())
}
