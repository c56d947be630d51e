//! What a push does not do, seen through the whole library: it allocates nothing while the engine is awake, nor when
//! the ring is full.

use std::net::{TcpListener, TcpStream};

use freshwire::{Engine, Meta, PushError, Reason, RingConfig, Sender, SinkConfig, choice};

#[test]
fn a_push_allocates_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let _never_reads = listener.accept()?;
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RingConfig::default(), &engine.handle())?;
    let sink = sender.add_sink(stream, SinkConfig::new(choice::fifo()))?;
    let payload = [7; 1400];
    let (mut pushed, mut refused) = (0, 0);
    let counted = allocation_counter::measure(|| {
        for seq in 0..20_000 {
            match sender.push(sink.id(), &payload, &Meta { seq, ..Meta::default() }) {
                Ok(_) => pushed += 1,
                Err(PushError::Full | PushError::OutOfBlocks) => {
                    refused += 1;
                    sender.producer().drop_where(sink.id().ring(), Reason::Application, |_| true);
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    // The ring holds 1024. A record in progress that cannot be finished keeps the slots behind it from being
    // reused.
    assert!(pushed >= 1000 && refused > 0, "{pushed} pushed, {refused} refused");
    assert_eq!(counted.count_total, 0, "{counted:?}");
    let counts = allocation_counter::measure(|| drop(vec![1u8; 100]));
    assert_eq!(counts.count_total, 1, "the counter counts");
    Ok(())
}
