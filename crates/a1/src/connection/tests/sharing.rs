//! Messages that share packets.

use std::time::Duration;

use bolero::{TypeGenerator, check};
use freshwire_choice::Record;
use freshwire_record::Timestamp;

use super::pair::{Pair, payload, record};
use super::{check_payloads, lossy};
use crate::inbox::Inbox;
use crate::pool::Pool;
use crate::wire::{Block, BlockHead, Qos};

/// The next message: of another kind than the one before it, or not; after which pause.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Step {
    kind: Option<Kind>,
    pause: u8,
    /// Its content is older than the low bits of a time tell, or its number is not the next.
    is_old: bool,
    is_apart: bool,
    sends: bool,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Kind {
    len: u8,
    layer: u8,
    key: u8,
    group: bool,
    refers: bool,
    dies: bool,
}

/// How many steps with one kind, mostly.
const REPEATS: usize = 6;

fn lens(kind: u8) -> usize {
    [0, 3, 15, 16, 64, 200, 1000, 1500, 3000, 9000][usize::from(kind) % 10]
}

/// Messages that are alike have one head, those beside them do not, and nobody can tell by what arrives but for a little time.
//= spec/a1.md A1-FRM-4, A1-FRM-5
#[test]
fn messages_that_share_a_packet_arrive_unchanged() {
    check!().with_iterations(300).with_type::<(u8, Vec<Step>)>().for_each(|(seed, steps)| {
        // Where SYNCs are lost, the sender's clock is known less well.
        let (loss, rounding) = if seed % 4 == 0 { (0.05, ROUNDING * 1000) } else { (0.0, ROUNDING) };
        let mut pair = Pair::new(lossy(2_000, 20, loss, u64::from(*seed)));
        // Longer than the low bits of a time tell.
        pair.run_for(Duration::from_secs(20));
        let (mut pushed, mut like, mut len) = (Vec::new(), record(0, pair.now, None), 64);
        let mut seq = 0;
        for step in steps.iter().take(40) {
            if let Some(kind) = step.kind {
                len = lens(kind.len);
                like.layer = kind.layer % 3;
                like.key = u64::from(kind.key % 3) * 7;
                like.group = u32::from(kind.group) * 9;
                like.refs = [u32::from(kind.refers), 0];
            }
            for _ in 0..REPEATS {
                pair.now += Duration::from_nanos([0, 700, 60_000, 9_000_000][usize::from(step.pause) % 4]);
                let age = if step.is_old { 9_500_000_000 } else { 0 };
                let generated = Timestamp::from_nanos(pair.now.as_nanos() - age);
                let dies = step.kind.is_none_or(|kind| kind.dies);
                let deadline = if dies { pair.now + Duration::from_secs(60) } else { Timestamp::MAX };
                let record = Record { seq, generated, deadline, ..like };
                pushed.push(record);
                pair.push(0, record, payload(seq, len));
                seq += 1;
            }
            seq += u64::from(step.is_apart);
            if step.sends {
                pair.run_for(Duration::from_millis(1));
            }
        }
        pair.run_for(Duration::from_secs(40));
        let received = &pair.ends[1].received;
        assert_eq!(received.len(), pushed.len());
        check_payloads(&pair, 1);
        for (at, message) in received {
            let record = pushed.iter().find(|record| record.seq == message.seq).expect("it was pushed");
            let said = (message.layer, message.key, message.group, message.refs);
            assert_eq!(said, (record.layer, record.key, record.group, record.refs));
            let age = at.saturating_since(record.generated);
            assert!(age.abs_diff(message.age) < rounding + age / 64, "{age:?} {:?}", message.age);
        }
    });
}

//= spec/a1.md A1-FRM-5
#[test]
fn low_bits_of_a_number_mean_the_one_nearest_to_the_newest() {
    let qos = Qos::default();
    let mut inbox = Inbox::of_group(1, &qos, Pool::default());
    assert_eq!(inbox.full_number(5), 5);
    let head = BlockHead { id: 0x2ff_fff0, offset: 0, start: None, end: false };
    inbox.on_block(&Block { head, bytes: b"part" }, &qos).expect("a block");
    assert_eq!(
        [0xff_fff1, 5, 0xff_0000].map(|low| inbox.full_number(low)),
        [0x2ff_fff1, 0x300_0005, 0x2ff_0000]
    );
}

/// The commit point is when its first packet is made, and not when there was no room for it in one.
#[test]
fn a_message_without_room_in_a_packet_can_still_be_dropped() {
    let mut pair = Pair::new(lossy(100_000, 5, 0.0, 1));
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    let size = usize::from(pair.ends[0].connection.recovery.packet_size());
    let like = record(0, now, None);
    pair.push(0, like, payload(0, size - 100));
    pair.push(0, Record { seq: 1, layer: 1, ..like }, payload(1, 500));
    let end = &mut pair.ends[0];
    let transmit = end.connection.poll_transmit(now, &mut end.queue, &mut Vec::new()).expect("a packet");
    assert!(transmit.bytes > size - 100 && transmit.bytes <= size, "{transmit:?} of {size}");
    assert!(end.queue.drop_seq(1), "it was committed for a packet in which it is not");
}

/// Messages of a run count as made with the first, up to 100 us before or a 64th of its age. The rest is the
/// possible error of the clock's estimate.
const ROUNDING: Duration = Duration::from_micros(120);
