//! A sender that is killed and started again. Its ring lives in a memory file that a third process holds, so the next sender goes on with
//! what was not sent yet, and it can be changed meanwhile. A service manager may hold the file (systemd: `FDSTORE=1`).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freshwire::choice::{self, Decision};
use freshwire::ring::Region;
use freshwire::sink::CloseMode;
use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, now};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["first", memory, address] => first_sender(memory, address),
        ["second", memory, address] => second_sender(memory, address),
        _ => manager(),
    }
}

/// Holds the memory and starts the senders.
fn manager() -> Result<()> {
    let region = Region::create(&RingConfig { slots: 16, ..RingConfig::default() })?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let file = region.as_fd().ok_or("a region on the heap has no file")?;
    let memory = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let start = |which: &str| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([which, &memory, &listener.local_addr()?.to_string()]).stdout(Stdio::piped());
        Ok(command.spawn()?)
    };

    let mut first = start("first")?;
    let mut receiver = listener.accept()?.0;
    let mut said = String::new();
    BufReader::new(first.stdout.take().ok_or("a pipe")?).read_line(&mut said)?;
    assert_eq!(said, "queued\n");
    first.kill()?;
    first.wait()?;
    let mut text = String::new();
    // The connection ends with its process.
    let _ = receiver.read_to_string(&mut text);
    print!("before it was killed, the receiver got:\n{text}");
    assert_eq!(text, "first\n");

    // Nobody sends now, and the queue is still ours to change.
    let editor = region.editor();
    assert!(editor.drop_seq(0, 1), "dropped: exact, it will not be sent");

    let mut second = start("second")?;
    let mut text = String::new();
    listener.accept()?.0.read_to_string(&mut text)?;
    assert!(second.wait()?.success());
    print!("from the next sender, the receiver got:\n{text}");
    assert_eq!(text, "third\nfourth\nfifth\n");
    Ok(())
}

fn attach(memory: &str) -> Result<Region> {
    Ok(Region::attach(File::options().read(true).write(true).open(memory)?.into())?)
}

/// Sends the first of its records, and is killed while the others wait.
fn first_sender(memory: &str, address: &str) -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::over(&attach(memory)?, &engine.handle())?;
    // A path that carries only the first one for now.
    let policy = choice::from_fn(|now, queue, _| match queue.iter().position(|record| record.seq == 0) {
        Some(first) => Decision::Send(first),
        None => Decision::Wait(Some(now + Duration::from_secs(1))),
    });
    let sink = sender.add_sink(TcpStream::connect(address)?, SinkConfig::new(policy))?;
    for text in ["first\n", "second\n", "third\n", "fourth\n"] {
        sender.push(sink.id(), text.as_bytes(), &Meta { generated: now(), ..Meta::default() })?;
    }
    while sink.stats().acked < "first\n".len() as u64 {
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("queued");
    std::io::stdout().flush()?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// Takes over, and adds a record behind those that are left.
fn second_sender(memory: &str, address: &str) -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::over(&attach(memory)?, &engine.handle())?;
    let sink = sender.add_sink(TcpStream::connect(address)?, SinkConfig::new(choice::fifo()))?;
    let next = sender.producer().last_seq(sink.id().ring()).map_or(0, |last| last + 1);
    sender.push(sink.id(), b"fifth\n", &Meta { seq: next, generated: now(), ..Meta::default() })?;
    sink.close(CloseMode::Drain, Duration::from_secs(5));
    Ok(())
}
