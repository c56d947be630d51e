//! A peer that acknowledges nothing and wants much to be said.

use std::time::Duration;

use super::{Ack, Frame, Frames, Liar, Ranges, Reason, block, payload, record};
use crate::wire::Qos;

/// A victim whose congestion window is full of data.
fn full() -> Liar {
    let mut liar = Liar::new();
    liar.listen(Duration::from_millis(10));
    liar.tell(&Frame::Credit { messages: 1 << 40, bytes: 1 << 40 });
    for seq in 0..20 {
        let record = record(seq, liar.pair.now, None);
        liar.pair.push(0, record, payload(seq, 9000));
    }
    liar.listen(Duration::from_millis(100));
    assert!(liar.victim().connection.is_window_shut);
    liar
}

fn credits(heard: &[Vec<u8>]) -> Vec<u64> {
    let frames = heard.iter().flat_map(|plain| Frames::new(plain));
    let credit = |frame| match frame {
        Ok(Frame::Credit { messages, .. }) => Some(messages),
        _ => None,
    };
    frames.filter_map(credit).collect()
}

#[test]
fn control_frames_leave_beyond_the_window_up_to_a_bound() {
    let mut liar = full();
    let mut said = Vec::new();
    for id in 0..1000 {
        liar.tell(&block(id, 0, Some(1), true, b"a"));
        liar.tell(&Frame::Qos { serial: id + 1, qos: Qos::default() });
        said.extend(credits(&liar.listen(Duration::ZERO)));
        let recovery = &liar.victim().connection.recovery;
        let (in_flight, window) = (recovery.in_flight(), recovery.window());
        assert!(in_flight <= window + 6000, "{in_flight} of {window} bytes are in flight");
    }
    let last = said.last().copied().unwrap_or(0);
    assert!((20..900).contains(&last), "{last}: the peer may wait for some of it");
    let ranges = Ranges::newest(&liar.heard);
    liar.tell(&Frame::Ack(Ack { ranges, delay_us: 0, at_us: 0, ce: 0 }));
    let now_said = credits(&liar.listen(Duration::from_millis(1)));
    assert!(now_said.last() > Some(&last), "{now_said:?} after {last}");
}

#[test]
fn control_frames_do_not_wait_for_ever() {
    let mut liar = full();
    for id in 0..1000 {
        liar.tell(&Frame::Gone { id, len: 1, reason: Reason::Expired });
        if liar.listen(Duration::ZERO).is_empty() {
            break;
        }
    }
    assert!(liar.victim().connection.has_credit_to_say());
    // Nothing is acknowledged, ever: it goes with what shows whether the path is back.
    assert!(!credits(&liar.listen(Duration::from_secs(1))).is_empty());
}
