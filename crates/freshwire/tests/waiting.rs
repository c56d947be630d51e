//! Waiting for space, fates, ends and records: by files and in async programs.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::engine::EngineThread;
use freshwire::receive::{ChunkedReceiver, Message, ReceiveError};
use freshwire::sink::{CloseMode, Reserve, SinkError};
use freshwire::tokio::ChunkedReceiver as AsyncReceiver;
use freshwire::watch::SinkWatch;
use freshwire::{
    Ended, Engine, Framing, Meta, Outcome, PushError, RingConfig, Sender, Sink, SinkConfig, choice,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TIMEOUT: Duration = Duration::from_secs(20);

struct Fixture {
    engine: EngineThread,
    sender: Sender,
    sink: Sink,
    far: TcpStream,
}

/// A ring that is full after a few records, and little room behind it.
fn fixture(framing: Framing) -> Result<Fixture> {
    let engine = Engine::new()?.spawn()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 4096)?;
    let far = listener.accept()?.0;
    far.set_read_timeout(Some(TIMEOUT))?;
    let ring = RingConfig { slots: 8, block_bytes: 4096, blocks: 8, rings: 1 };
    let mut sender = Sender::new(&ring, &engine.handle())?;
    let config = SinkConfig::new(choice::fifo()).framing(framing).reserve(Reserve::Fixed(1));
    let sink = sender.add_sink(near, config)?;
    Ok(Fixture { engine, sender, sink, far })
}

fn is_readable(file: impl std::os::fd::AsFd, timeout: Duration) -> Result<bool> {
    let timeout = Timespec { tv_sec: timeout.as_secs().try_into()?, tv_nsec: timeout.subsec_nanos().into() };
    let mut files = [PollFd::new(&file, PollFlags::IN)];
    Ok(poll(&mut files, Some(&timeout))? == 1)
}

/// Runs a task to its end, for a bounded time.
fn within<T>(task: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, task).await })?
}

#[test]
fn a_file_says_when_a_full_ring_has_space_again() -> Result<()> {
    const RECORDS: u64 = 2000;
    let Fixture { engine: _engine, mut sender, sink, mut far } = fixture(Framing::Raw)?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).map(|_| bytes.len() as u64)
    });
    let events = sink.events()?;
    let (mut pushed, mut waits, mut acked) = (0, 0, 0);
    while pushed < RECORDS {
        match sender.push(sink.id(), &[7; 4096], &Meta::default()) {
            Ok(_) => pushed += 1,
            Err(PushError::Full | PushError::OutOfBlocks) => {
                assert!(is_readable(&events, TIMEOUT)?, "nothing happened for too long");
                events.clear();
                waits += 1;
            }
            Err(error) => return Err(error.into()),
        }
        acked += sender.fates(sink.id())?.filter(|fate| fate.outcome == Outcome::Acked).count();
    }
    assert!(waits > 0, "the ring was never full");
    let id = sink.id();
    assert_eq!(sink.close(CloseMode::Drain, TIMEOUT), Ended::Closed);
    assert!(is_readable(&events, Duration::ZERO)?, "the end is a change too");
    assert_eq!(events.ended(), Some(Ended::Closed));
    acked += sender.fates(id)?.filter(|fate| fate.outcome == Outcome::Acked).count();
    assert_eq!(reader.join().map_err(|_| "the reader panicked")??, RECORDS * 4096);
    assert_eq!(acked as u64, RECORDS);
    Ok(())
}

#[test]
fn an_async_program_waits_for_space_records_fates_and_the_end() -> Result<()> {
    const RECORDS: u64 = 500;
    let Fixture { engine: _engine, mut sender, sink, far } = fixture(Framing::Chunked)?;
    far.set_nonblocking(true)?;
    let (received, acked) = within(async {
        let watch = SinkWatch::new(&sink)?;
        let mut receiver = AsyncReceiver::new(tokio::net::TcpStream::from_std(far)?);
        let receive = async {
            let mut received = Vec::new();
            while let Some(message) = receiver.recv().await? {
                match message {
                    Message::Record { id, payload, .. } => received.push((id, payload.len())),
                    other => return Err(format!("{other:?}").into()),
                }
            }
            Result::Ok(received)
        };
        let send = async {
            for len in 0..RECORDS {
                watch.push(&mut sender, &vec![7; len as usize], &Meta::default()).await?;
            }
            let mut acked = std::collections::BTreeSet::new();
            while (acked.len() as u64) < RECORDS {
                let fate = watch.next_fate(&mut sender).await?.ok_or("the sink has ended")?;
                assert_eq!(fate.outcome, Outcome::Acked, "{fate}");
                assert!(acked.insert(fate.seq), "{fate}: twice");
            }
            // Not `close`, which would block the receiver's task.
            drop(sink);
            assert_eq!(watch.next_fate(&mut sender).await?, None);
            Result::Ok(acked)
        };
        tokio::try_join!(receive, send)
    })?;
    assert_eq!(received, (0..RECORDS).map(|seq| (seq as u32, seq as usize)).collect::<Vec<_>>());
    assert!(acked.into_iter().eq(0..RECORDS));
    Ok(())
}

#[test]
fn a_task_that_waits_for_space_learns_that_the_sink_has_ended() -> Result<()> {
    let Fixture { engine, mut sender, sink, far: _far } = fixture(Framing::Raw)?;
    within(async {
        let watch = SinkWatch::new(&sink)?;
        let fill = async {
            loop {
                if let Err(error) = watch.push(&mut sender, &[7; 4096], &Meta::default()).await {
                    return error;
                }
            }
        };
        // The engine ends once nothing moves any more.
        let stop = async {
            let (mut bytes, mut still) = (0, 0);
            while still < 20 {
                // Pause: until the next look.
                tokio::time::sleep(Duration::from_millis(10)).await;
                let now = sink.stats().bytes;
                (still, bytes) = if now == bytes && now > 0 { (still + 1, now) } else { (0, now) };
            }
            drop(engine);
        };
        let (error, ()) = tokio::join!(fill, stop);
        assert_eq!(error, PushError::Closed);
        assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
        Result::Ok(())
    })?;
    Ok(())
}

#[test]
fn a_receiver_of_a_non_blocking_stream_becomes_readable() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_nonblocking(true)?;
    let mut receiver = ChunkedReceiver::new(far);
    let mut bytes = Framing::Chunked.preamble().to_vec();
    let chunk = Framing::Chunked.chunk(3, 0, 5, 1 << 20).ok_or("room for all")?;
    bytes.extend_from_slice(chunk.prefix.as_bytes());
    bytes.extend_from_slice(b"hello");
    // Cut at each place: half a record is no record, and is not lost.
    let mut waits = 0;
    for byte in &bytes {
        match receiver.next_message() {
            Err(ReceiveError::Io(error)) if error.kind() == ErrorKind::WouldBlock => waits += 1,
            other => return Err(format!("{other:?}").into()),
        }
        near.write_all(&[*byte])?;
        assert!(is_readable(&receiver, TIMEOUT)?);
    }
    assert_eq!(waits, bytes.len());
    match receiver.next_message()? {
        Some(Message::Record { id, payload, .. }) => assert_eq!((id, payload.as_slice()), (3, &b"hello"[..])),
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}
