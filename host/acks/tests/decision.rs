//! Properties that hold for the rules in every sequence of packets.
#![forbid(unsafe_code)]

use freshwire_acks::{Ack, Config, Connection, Rule, Segment, Verdict};

const ACK: u8 = 16;
const MSS: u32 = 1448;

fn config(rule: Rule) -> Config {
    Config { guard_ns: u64::MAX >> 2, ..Config::new(rule) }
}

fn ack(number: u32) -> Ack {
    Ack { number, window: 500, flags: ACK, ..Ack::default() }
}

/// A sender whose segments are acknowledged packet by packet, each segment once the window has room. Returns the numbers that passed.
fn stream(rule: Rule, start: u32, segments: &[u32], window: u32) -> (Vec<u32>, u32) {
    let config = config(rule);
    let mut connection: Option<Connection> = None;
    let (mut sent, mut acked, mut passed) = (start, start, Vec::new());
    for packets in segments {
        let bytes = packets * MSS;
        while sent.wrapping_sub(acked) + bytes > window.max(bytes) {
            acked = acked.wrapping_add(MSS);
            let connection = connection.as_mut().expect("something was sent");
            if connection.on_ack(&ack(acked), &config, 1) != Verdict::Drop {
                passed.push(acked.wrapping_sub(start));
            }
        }
        let segment = Segment { seq: sent, bytes, packet_bytes: MSS };
        match &mut connection {
            Some(connection) => connection.on_segment(segment),
            None => connection = Some(Connection::new(segment)),
        }
        sent = sent.wrapping_add(bytes);
    }
    while acked != sent {
        acked = acked.wrapping_add(MSS);
        let connection = connection.as_mut().expect("something was sent");
        if connection.on_ack(&ack(acked), &config, 1) != Verdict::Drop {
            passed.push(acked.wrapping_sub(start));
        }
    }
    (passed, sent.wrapping_sub(start))
}

#[test]
fn the_last_acknowledgement_passes_when_numbers_wrap() {
    bolero::check!().with_type::<(u32, Vec<u8>, u8, u8)>().for_each(|(start, segments, window, rule)| {
        let segments: Vec<u32> = segments.iter().map(|packets| u32::from(packets % 44) + 1).collect();
        if segments.is_empty() {
            return;
        }
        let rule = [Rule::Safe, Rule::Cake, Rule::Checkpoint][usize::from(*rule) % 3];
        let window = (u32::from(*window) + 1) * 4 * MSS;
        let (passed, sent) = stream(rule, *start, &segments, window);
        assert_eq!(passed.last(), Some(&sent), "{rule:?} {segments:?}");
        // The same anywhere in the circle.
        assert_eq!(passed, stream(rule, 0, &segments, window).0);
        assert_eq!(passed, stream(rule, 0_u32.wrapping_sub(sent / 2), &segments, window).0);
    });
}

/// The sender's window opens in steps that are at most a segment, and at most about a third of the window.
#[test]
fn safe_rule_passes_one_a_segment_and_three_a_window() {
    for (packets, window_packets) in [(1, 10), (2, 10), (16, 200), (44, 1000), (44, 60), (30, 30)] {
        let (passed, sent) = stream(Rule::Safe, 5, &vec![packets; 200], window_packets * MSS);
        let steps = passed.iter().zip([0].iter().chain(&passed)).map(|(now, before)| now - before);
        let longest = steps.skip(4).max().expect("more than four");
        let least = packets.min(window_packets / 3).max(1) + 2;
        assert!(longest <= least * MSS, "{packets} {window_packets}: {} packets", longest / MSS);
        let share = 1.0 - passed.len() as f64 / f64::from(sent / MSS);
        if packets >= 16 && window_packets >= 100 {
            assert!(share > 0.9, "{packets} {window_packets}: {share}");
        }
    }
}

/// The thesis's rule: about one in a round trip, which is why it halves what a loss-based congestion control reaches.
#[test]
fn checkpoint_rule_passes_one_for_each_window() {
    let (passed, sent) = stream(Rule::Checkpoint, 9, &[16; 400], 200 * MSS);
    let windows = sent / (200 * MSS);
    assert!((passed.len() as u32) < 3 * windows, "{} in {windows} windows", passed.len());
}

#[test]
fn safe_rules_drop_nothing_unusual() {
    let connection = Connection {
        passed: 1000,
        highest: 1000,
        window: 500,
        quantum: 60_000,
        ..Connection::new(Segment { seq: 1000, bytes: 60_000, packet_bytes: 1000 })
    };
    let redundant = ack(3000);
    for rule in [Rule::Safe, Rule::Cake] {
        let config = config(rule);
        let verdict = |ack: Ack| connection.decide(&ack, &config, 1);
        assert_eq!(verdict(redundant), Verdict::Drop);
        for flags in (0..=255).filter(|flags| *flags != ACK) {
            assert_eq!(verdict(Ack { flags, ..redundant }), Verdict::Flags);
        }
        assert_eq!(verdict(Ack { reserved: 1, ..redundant }), Verdict::Flags);
        assert_eq!(verdict(Ack { payload: 1, ..redundant }), Verdict::Data);
        assert_eq!(verdict(Ack { has_options: true, ..redundant }), Verdict::Options);
        assert_eq!(verdict(ack(1000)), Verdict::Duplicate);
        assert_eq!(verdict(ack(999)), Verdict::Outside);
        assert_eq!(verdict(ack(61_001)), Verdict::Outside);
        assert_eq!(verdict(ack(61_000)), Verdict::Last);
        assert_eq!(verdict(ack(60_000)), Verdict::Last, "a delayed acknowledgement may be the next");
        let later = 1 + config.guard_ns;
        assert_eq!(connection.decide(&redundant, &config, later), Verdict::Time);
        let mut again = connection;
        again.on_segment(Segment { seq: 1000, bytes: 1000, packet_bytes: 0 });
        assert_eq!(again.decide(&redundant, &config, 1), Verdict::Recovery);
        assert_eq!(again.on_ack(&ack(61_000), &config, 1), Verdict::Last);
        assert!(!again.is_recovering);
    }
    let safe = config(Rule::Safe);
    for window in [0, 300, 374, 626, 700, u16::MAX] {
        assert_eq!(connection.decide(&Ack { window, ..redundant }, &safe, 1), Verdict::Window, "{window}");
    }
    for window in [375, 500, 625] {
        assert_eq!(connection.decide(&Ack { window, ..redundant }, &safe, 1), Verdict::Drop, "{window}");
    }
}

/// The object in the crate is what `bpf/build.sh` makes of the source.
#[test]
fn object_is_made_of_its_source() {
    use sha2::{Digest as _, Sha256};
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let made_with = std::fs::read_to_string(folder.join("made_with.txt")).unwrap();
    let lines: Vec<&str> = made_with.lines().collect();
    for (line, name) in lines[1..].iter().zip(["ack_filter.c", "ack_filter.o"]) {
        let hash = Sha256::digest(std::fs::read(folder.join(name)).unwrap());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(*line, format!("{hash}  {name}"), "{name} has changed: run bpf/build.sh");
    }
    // With the same compiler it is the same to the byte.
    let clang = std::process::Command::new("clang").arg("--version").output();
    let version =
        clang.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if version.lines().next() != Some(lines[0]) {
        eprintln!("skipped: the object is of {:?}, here is {:?}", lines[0], version.lines().next());
        return;
    }
    let made = tempfile::tempdir().unwrap();
    let object = made.path().join("ack_filter.o");
    assert!(std::process::Command::new(folder.join("build.sh")).arg(&object).status().unwrap().success());
    assert_eq!(std::fs::read(object).unwrap(), std::fs::read(folder.join("ack_filter.o")).unwrap());
}
