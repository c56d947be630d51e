use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + ms(millis)
}

fn sent(number: u64) -> Sent<u64> {
    Sent {
        number,
        bytes: 1200,
        eliciting: true,
        ack_now: false,
        app_limited: false,
        mtu_probe: false,
        content: number,
    }
}

fn config(controller: Controller) -> RecoveryConfig {
    RecoveryConfig { controller, ..RecoveryConfig::default() }
}

#[test]
fn acknowledging_what_was_never_sent_is_an_error_and_changes_nothing() {
    let mut recovery = Recovery::new(&config(Controller::NewReno), at(0));
    recovery.on_sent(at(0), sent(0));
    recovery.on_sent(at(0), sent(2));
    let mut out = Outcomes::default();
    for (range, wrong) in [(0..=3, 3), (0..=2, 1), (0..=u64::MAX, u64::MAX)] {
        let ack = AckInfo {
            largest: *range.end(),
            ranges: &[range],
            delay: Duration::ZERO,
            receiver_time_us: 0,
            ce_count: 0,
        };
        assert_eq!(recovery.on_ack(at(10), &ack, &mut out), Err(AckError::NeverSent(wrong)));
    }
    assert!(out.acked.is_empty());
    assert_eq!(recovery.view().in_flight, 2400);
}
