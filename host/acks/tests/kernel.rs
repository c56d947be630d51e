//! The loaded programs against the model (`BPF_PROG_TEST_RUN`). Needs root.
#![forbid(unsafe_code)]

mod support;

use freshwire_acks::{Ack, Config, Connection, Hook, LoadedFilter, Rule, Segment, Verdict};
use support::{
    ACK, FIN, PLAIN, RST, SYN, Tcp, Wrap, ack_frame, data_frame, frame, key, loaded, sack, timestamps,
};

const RULES: [Rule; 3] = [Rule::Safe, Rule::Cake, Rule::Checkpoint];
const WRAPS: [Wrap; 6] = [
    PLAIN,
    Wrap { is_v6: false, tags: 1 },
    Wrap { is_v6: false, tags: 2 },
    Wrap { is_v6: true, tags: 0 },
    Wrap { is_v6: true, tags: 1 },
    Wrap { is_v6: true, tags: 2 },
];
/// The model's time; the kernel's is the time since it was started, which is later than `LONG_AGO` by more than any guard here.
const NOW: u64 = 1 << 45;
const LONG_AGO: u64 = 0;
const IN_THE_FUTURE: u64 = 1 << 62;

/// The verdict of the kernel, by its counters.
fn run(kernel: &mut LoadedFilter, hook: Hook, frame: &[u8]) -> Verdict {
    let before = kernel.counters().expect("the programs are loaded");
    let passed = kernel.run_arriving(hook, frame).expect("the programs are loaded");
    let after = kernel.counters().expect("the programs are loaded");
    let counted: Vec<Verdict> =
        Verdict::ALL.into_iter().filter(|verdict| after.of(*verdict) > before.of(*verdict)).collect();
    assert_eq!(counted.len(), 1, "one packet is one verdict");
    assert_eq!(passed, counted[0] != Verdict::Drop);
    counted[0]
}

/// The parts that the decision is made of, near each other and near where sequence numbers wrap.
type Case = (u32, [u16; 6], (u16, u16, u8), (bool, bool, bool), (u8, u8, bool), (u8, u8));

#[test]
fn kernel_decides_as_the_model_does() {
    let Some(first) = loaded(&Config::default()) else { return };
    let kernel = std::sync::Mutex::new(first);
    let seen = std::sync::Mutex::new(Vec::new());
    bolero::check!().with_max_len(64).with_iterations(3000).with_type::<Case>().for_each(
        |(
            base,
            [sent, quantum, checkpoint, recover, highest, number],
            (window, arrived, mss),
            flags,
            odd,
            pick,
        )| {
            let mut kernel = kernel.lock().unwrap();
            let near = |offset: u16| base.wrapping_add(u32::from(offset % 4096));
            let highest = near(*highest);
            let connection = Connection {
                snd_nxt: near(*sent),
                quantum: u32::from(*quantum % 2048),
                mss: u32::from(*mss),
                checkpoint: near(*checkpoint),
                recover: near(*recover),
                is_recovering: flags.0,
                highest,
                passed: highest.wrapping_sub(u32::from(*mss) * 3),
                window: u32::from(*window),
                passed_at: if flags.1 { LONG_AGO } else { IN_THE_FUTURE },
            };
            let is_odd = odd.1 % 4 == 0;
            let ack = Ack {
                number: if odd.1 % 6 == 3 { highest } else { near(*number) },
                window: if flags.2 { *arrived } else { *window },
                payload: if odd.1 % 7 == 1 { 100 } else { 0 },
                flags: if is_odd { odd.0 & !(FIN | RST) } else { ACK },
                reserved: if odd.1 % 5 == 2 { odd.0 & 15 } else { 0 },
                has_options: odd.2 && odd.1 % 3 == 0,
            };
            let rule = RULES[usize::from(pick.0) % 3];
            let config = Config { rule, window_shift: u32::from(pick.1 % 33), guard_ns: 4_000_000 };
            let config = Config { window_shift: config.window_shift.min(31), ..config };
            let wrap = WRAPS[usize::from(pick.1) % WRAPS.len()];
            kernel.configure(&config).unwrap();
            for hook in [Hook::Xdp, Hook::Tc] {
                kernel.set_connection(key(wrap), &connection).unwrap();
                let mut model = connection;
                let expected = model.on_ack(&ack, &config, NOW);
                seen.lock().unwrap().push(expected);
                let found = run(&mut kernel, hook, &ack_frame(&ack, wrap));
                assert_eq!(found, expected, "{hook:?} {config:?} {connection:?} {ack:?}");
                let mut left = kernel.connection(key(wrap)).unwrap().unwrap();
                left.passed_at = model.passed_at;
                assert_eq!(left, model, "{hook:?} {config:?} {connection:?} {ack:?}");
            }
        },
    );
    let seen = seen.into_inner().unwrap();
    let unseen =
        |verdict: &Verdict| !matches!(verdict, Verdict::Other | Verdict::Unknown) && !seen.contains(verdict);
    assert_eq!(Verdict::ALL.into_iter().find(unseen), None, "the cases are of every kind");
}

/// Segments and acknowledgements in any order, from nothing: what is known of the connection stays the same on both sides.
#[test]
fn kernel_learns_from_segments_as_the_model_does() {
    let Some(first) = loaded(&Config::default()) else { return };
    let kernel = std::sync::Mutex::new(first);
    let config = Config { guard_ns: u64::MAX >> 2, ..Config::default() };
    kernel.lock().unwrap().configure(&config).unwrap();
    bolero::check!()
        .with_max_len(200)
        .with_iterations(300)
        .with_type::<(u32, Vec<(bool, u16, u16, bool)>)>()
        .for_each(|(base, events)| {
            let mut kernel = kernel.lock().unwrap();
            let syn = Tcp {
                is_out: true,
                seq: *base,
                ack: 0,
                window: 1,
                flags: SYN,
                reserved: 0,
                options: vec![],
                payload: 0,
            };
            kernel.run_leaving(&frame(&syn, PLAIN), 0).unwrap();
            let mut model: Option<Connection> = None;
            for (is_out, offset, size, is_cut) in events {
                let at = base.wrapping_add(u32::from(*offset % 8192));
                if *is_out {
                    let bytes = u32::from(size % 1400) + 1;
                    let packet_bytes = if *is_cut && bytes > 1 { bytes / 2 + 1 } else { 0 };
                    let segment = Segment { seq: at, bytes, packet_bytes };
                    match &mut model {
                        Some(model) => model.on_segment(segment),
                        None => model = Some(Connection::new(segment)),
                    }
                    kernel.run_leaving(&data_frame(at, bytes as usize, PLAIN), packet_bytes).unwrap();
                } else {
                    let ack = Ack { number: at, window: 500, flags: ACK, ..Ack::default() };
                    let expected = model.as_mut().map_or(Verdict::Unknown, |model| {
                        // The guard of half of all time, counted from the start, is over in neither world.
                        model.on_ack(&ack, &config, 1 << 45)
                    });
                    assert_eq!(run(&mut kernel, Hook::Xdp, &ack_frame(&ack, PLAIN)), expected);
                }
                let found = kernel.connection(key(PLAIN)).unwrap();
                let same =
                    found.zip(model).map(|(found, model)| Connection { passed_at: model.passed_at, ..found });
                assert_eq!(same, model);
            }
        });
}

#[test]
fn packets_unknown_to_the_filter_pass() {
    let Some(mut kernel) = loaded(&Config { guard_ns: u64::MAX >> 2, ..Config::default() }) else { return };
    let redundant = Ack { number: 5000, window: 500, flags: ACK, ..Ack::default() };
    let known = Connection {
        snd_nxt: 100_000,
        quantum: 60_000,
        mss: 1000,
        checkpoint: 90_000,
        recover: 0,
        is_recovering: false,
        highest: 4000,
        passed: 4000,
        window: 500,
        passed_at: IN_THE_FUTURE,
    };
    for wrap in WRAPS {
        let ip = 14 + 4 * wrap.tags;
        let tcp = ip + if wrap.is_v6 { 40 } else { 20 };
        let mut verdict = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut found = Vec::new();
            for hook in [Hook::Xdp, Hook::Tc] {
                kernel.set_connection(key(wrap), &known).unwrap();
                let mut frame = ack_frame(&redundant, wrap);
                change(&mut frame);
                // The kernel makes no packet buffer of half an IP header.
                if hook == Hook::Tc && frame.len() < tcp {
                    continue;
                }
                found.push(run(&mut kernel, hook, &frame));
            }
            assert!(found.iter().all(|verdict| *verdict == found[0]), "{wrap:?} {found:?}");
            found[0]
        };
        assert_eq!(verdict(&|_| {}), Verdict::Drop, "{wrap:?}");
        assert_eq!(verdict(&|frame| frame.extend([0; 6])), Verdict::Drop, "padding is no data");
        for length in [ip + 8, tcp + 8, tcp + 24] {
            assert_eq!(verdict(&|frame| frame.truncate(length)), Verdict::Other, "{wrap:?} {length}");
        }
        assert_eq!(verdict(&|frame| frame[ip] ^= 0x30), Verdict::Other, "another version");
        assert_eq!(verdict(&|frame| frame[tcp + 12] = 0x40), Verdict::Other, "a header of 16 bytes");
        assert_eq!(verdict(&|frame| frame[tcp + 12] = 0xf0), Verdict::Other, "a header beyond the packet");
        if wrap.is_v6 {
            assert_eq!(verdict(&|frame| frame[ip + 6] = 0), Verdict::Other, "hop-by-hop options");
            assert_eq!(verdict(&|frame| frame[ip + 6] = 44), Verdict::Other, "a fragment");
            assert_eq!(verdict(&|frame| frame[ip + 1] = 0x30), Verdict::Other, "a congestion mark");
        } else {
            assert_eq!(verdict(&|frame| frame[ip] = 0x46), Verdict::Other, "IP options");
            assert_eq!(verdict(&|frame| frame[ip + 6] = 0x20), Verdict::Other, "a fragment");
            assert_eq!(verdict(&|frame| frame[ip + 7] = 1), Verdict::Other, "a later fragment");
            assert_eq!(verdict(&|frame| frame[ip + 1] = 3), Verdict::Other, "a congestion mark");
            assert_eq!(verdict(&|frame| frame[ip + 9] = 17), Verdict::Other, "UDP");
        }
        assert_eq!(verdict(&|frame| frame[tcp] ^= 1), Verdict::Unknown, "another port");
        assert_eq!(verdict(&|frame| frame[tcp - 1] ^= 1), Verdict::Unknown, "another address");
        assert_eq!(verdict(&|frame| frame[tcp + 20] = 3), Verdict::Options, "window scale");
    }
    assert_eq!(run(&mut kernel, Hook::Xdp, &[2; 60]), Verdict::Other, "not IP");
}

#[test]
fn connection_is_forgotten_when_it_ends_or_begins() {
    let Some(mut kernel) = loaded(&Config::default()) else { return };
    let tcp = |is_out, flags| Tcp {
        is_out,
        seq: 1,
        ack: 1,
        window: 1,
        flags,
        reserved: 0,
        options: timestamps(),
        payload: 0,
    };
    for flags in [FIN | ACK, RST, RST | ACK] {
        for wrap in WRAPS {
            for is_out in [false, true] {
                kernel.run_leaving(&data_frame(1, 100, wrap), 0).unwrap();
                assert!(kernel.connection(key(wrap)).unwrap().is_some());
                let frame = frame(&tcp(is_out, flags), wrap);
                if is_out {
                    kernel.run_leaving(&frame, 0).unwrap();
                } else {
                    assert_eq!(run(&mut kernel, Hook::Xdp, &frame), Verdict::Flags);
                }
                assert_eq!(kernel.connection(key(wrap)).unwrap(), None, "{flags} {wrap:?} {is_out}");
            }
        }
    }
    kernel.run_leaving(&data_frame(1, 100, PLAIN), 0).unwrap();
    kernel.run_leaving(&frame(&tcp(true, SYN), PLAIN), 0).unwrap();
    assert_eq!(kernel.connection(key(PLAIN)).unwrap(), None, "the same ports again");
    let selective = Tcp { options: sack(), ..tcp(false, ACK) };
    assert_eq!(run(&mut kernel, Hook::Xdp, &frame(&selective, PLAIN)), Verdict::Unknown);
}
