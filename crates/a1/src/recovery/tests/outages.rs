//! The effect of an outage on what is learnt of the path.

use super::*;

/// A path of 40 ms on which packets 1 to 20 were swallowed by an outage, with the time of the last of many timeouts and
/// the next packet's number.
fn outage() -> (Recovery<u64>, Timestamp, u64) {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), sent(0));
    ack(&mut recovery, at(40), 0..=0, 0);
    for number in 1..=20 {
        recovery.on_sent(at(50), sent(number));
    }
    let mut now = at(50);
    let mut number = 21;
    while now < at(3000) {
        now = recovery.timeout().expect("something is in flight");
        assert!(recovery.on_timeout(now, &mut Outcomes::default()), "nothing was overtaken");
        recovery.on_sent(now, Sent { ack_now: true, ..sent(number) });
        number += 1;
    }
    assert!(recovery.is_outage());
    (recovery, now, number)
}

#[test]
fn a_word_of_the_peer_ends_the_wait_for_the_next_probe() {
    let (mut recovery, now, number) = outage();
    assert_eq!(recovery.timeout(), Some(now + ms(500)));
    recovery.on_heard(now.saturating_since(at(40)));
    assert_eq!(recovery.timeout(), Some(now), "at once");
    assert!(recovery.on_timeout(now + ms(200), &mut Outcomes::default()));
    recovery.on_sent(now + ms(200), Sent { ack_now: true, ..sent(number) });
    assert!(recovery.timeout() > Some(now + ms(200) + recovery.pto()), "one word, one probe");
}

#[test]
fn a_peer_that_goes_on_talking_does_not_make_probes_frequent() {
    let (mut recovery, now, _) = outage();
    let due = recovery.timeout();
    assert_eq!(due, Some(now + ms(500)));
    recovery.on_heard(ms(20));
    assert_eq!(recovery.timeout(), due, "it was not silent: the way to it is cut, and stays cut");
}

#[test]
fn a_late_answer_ends_the_outage_and_extends_the_next_one() {
    let (mut recovery, now, number) = outage();
    let before = recovery.pto();
    let given_up = number - 2;
    let out = ack(&mut recovery, now + ms(200), given_up..=given_up, 0);
    assert_eq!((out.acked.len(), out.spurious), (0, vec![given_up]));
    assert!(!recovery.is_outage());
    assert_eq!(recovery.pto(), ms(500), "it took 700 ms, after {before:?}");
    recovery.on_sent(now + ms(200), sent(number));
    ack(&mut recovery, now + ms(240), number..=number, 0);
    assert!(recovery.pto() < ms(200), "a path that was away is as it was: {:?}", recovery.pto());
}

#[test]
fn out_of_an_outage_a_word_changes_nothing() {
    let mut recovery = Recovery::new(&config(Controller::Copa), at(0));
    recovery.on_sent(at(0), sent(0));
    ack(&mut recovery, at(40), 0..=0, 0);
    recovery.on_sent(at(50), sent(1));
    let due = recovery.timeout().expect("it is in flight");
    assert!(recovery.on_timeout(due, &mut Outcomes::default()));
    recovery.on_sent(due, sent(2));
    let next = recovery.timeout();
    recovery.on_heard(ms(100));
    assert_eq!(recovery.timeout(), next, "the first probe may yet be answered");
}

#[test]
fn packets_lost_in_an_outage_are_no_share_of_losses() {
    let (mut recovery, now, number) = outage();
    assert_eq!(recovery.loss(), 0.0);
    let later = now + ms(60);
    recovery.on_sent(later, sent(number));
    recovery.on_sent(later, sent(number + 1));
    let out = ack(&mut recovery, later + ms(40), number..=number, 0);
    assert_eq!(numbers(&out.lost), [number - 1], "the last probe was swallowed too");
    assert_eq!(recovery.loss(), 0.0);
    recovery.on_sent(later + ms(41), sent(number + 2));
    recovery.on_nack(later + ms(80), &[number + 2..=number + 2], &mut Outcomes::default());
    assert!(recovery.loss() > 0.0, "this one was lost on a path that delivers");
}
