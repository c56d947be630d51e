//! What a packet costs the victim, whatever is in it.

use std::time::Duration;

use bolero::{check, produce};
use rustix::time::{ClockId, clock_gettime};

use super::{Closed, Frame, Liar, Lie, Qos, ack, payload, record, tell};

/// A packet costs at most this many times the processor time of setting up its victim with 300 messages. That takes 1 to 2 ms in a debug
/// build, where opening a packet of this size takes 10 to 20 ms.
const MOST: u32 = 50;

/// The largest packet, a little below what a datagram holds.
const PACKET: usize = 60_000;

/// The processor's time of this thread, which does not count what others have it for.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = spent();
    let result = work();
    (result, spent() - began)
}

/// A victim with much on its way.
fn busy() -> Liar {
    let mut liar = Liar::with(Qos::default());
    liar.listen(Duration::from_millis(10));
    liar.tell(&Frame::Credit { messages: 1 << 40, bytes: 1 << 40 });
    for seq in 0..300 {
        let record = record(seq, liar.pair.now, None);
        liar.pair.push(0, record, payload(seq, 3000));
    }
    liar.listen(Duration::from_millis(20));
    liar
}

#[test]
fn a_packet_with_many_acknowledgements_ends_the_connection() {
    let mut liar = busy();
    liar.packed = Some(Vec::new());
    (0..4).for_each(|_| liar.tell(&ack(2, 1)));
    let frames = liar.packed.take().unwrap();
    liar.say(&frames);
    assert_eq!(liar.closed(), None);
    liar.say(&frames.repeat(2));
    assert!(
        matches!(liar.closed(), Some(Closed::Violation(what)) if what.to_string().contains("too many acknowledgements"))
    );
}

#[test]
fn no_packet_costs_much() {
    let lies = produce::<Vec<Lie>>().with().len(1..=8usize);
    check!().with_generator(lies).with_iterations(300).with_max_len(1 << 11).for_each(|lies| {
        // A look at a clock may be unlucky, an input is not.
        let is_dear = || cost(lies) > MOST * timed(busy).1;
        let dear = (0..3).take_while(|_| is_dear()).count();
        assert!(
            dear < 3,
            "a packet of {lies:?} costs more than {MOST} times what its victim's setting up costs"
        );
    });
}

/// What a packet costs that is full of these.
fn cost(lies: &[Lie]) -> Duration {
    let mut liar = busy();
    liar.packed = Some(Vec::new());
    for lie in lies {
        tell(&mut liar, lie);
    }
    let piece = liar.packed.take().unwrap_or_default();
    if piece.is_empty() {
        return Duration::ZERO;
    }
    let mut frames = piece.repeat(PACKET / piece.len() + 1);
    frames.truncate(PACKET - PACKET % piece.len());
    timed(|| liar.say(&frames)).1
}
