//! Real TCP connections through the filter, between two hosts on this machine. Needs root.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the kernel is waited for by its clock")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use freshwire_acks::{Config, Filter, FilterError, Hook, HookChoice, Rule, Verdict};
use freshwire_netns::testbed::{Outcome, Receiver, Testbed, TestbedError, Transfer};
use support::skip;

fn testbed(name: &str, receiver: Receiver) -> Option<Testbed> {
    match Testbed::new(name, receiver) {
        Ok(testbed) => Some(testbed),
        Err(TestbedError::NotRoot) => skip("network namespaces with interfaces need root"),
        Err(error @ TestbedError::Missing(_)) => skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

fn filter(testbed: &Testbed, hook: Hook, rule: Rule) -> Option<Filter> {
    let made = testbed
        .in_near(|| Filter::new(testbed.interface(), HookChoice::Only(hook), &Config::new(rule)))
        .expect("the near host is there");
    match made {
        Ok(filter) => Some(filter),
        Err(FilterError::NoTcx) => skip("BPF links at tc need Linux 6.6"),
        Err(error) => panic!("{error}"),
    }
}

fn transfer(connections: usize, bytes: u64) -> Transfer {
    Transfer { connections, bytes, congestion: "cubic".to_owned(), check: true }
}

fn assert_whole(outcome: &Outcome, transfer: &Transfer) {
    assert_eq!(outcome.bytes, transfer.bytes * transfer.connections as u64);
    assert_eq!(outcome.wrong, 0);
}

#[test]
fn every_byte_arrives_and_most_acknowledgements_do_not() {
    let Some(testbed) = testbed("bytes", Receiver::EachPacket) else { return };
    let plan = transfer(4, 10_000_000);
    let plain = testbed.transfer(testbed.address(), &plan).unwrap();
    assert_whole(&plain, &plan);
    let addresses = [testbed.address(), testbed.address_v6()];
    for hook in [Hook::Xdp, Hook::Tc] {
        for address in addresses {
            let Some(filter) = filter(&testbed, hook, Rule::Safe) else { return };
            assert_eq!(filter.hook(), Some(hook));
            let outcome = testbed.transfer(address, &plan).unwrap();
            assert_whole(&outcome, &plan);
            let counters = filter.counters().unwrap();
            assert!(counters.share() > 0.6, "{hook:?} {address}: {counters:?}");
            assert!(outcome.tcp.segments_in < plain.tcp.segments_in / 2, "{hook:?} {address}: {outcome:?} {plain:?}");
            assert!(counters.acks() > 0 && counters.packets > counters.segments, "{counters:?}");
            // A loaded machine delays probes and loses packets in its backlog; the filter adds none that would be seen beside that.
            let most = plain.tcp.retransmitted + counters.packets / 200;
            assert!(outcome.tcp.retransmitted <= most, "{hook:?} {outcome:?} {plain:?}");
        }
    }
}

#[test]
fn every_rule_delivers_and_a_small_transfer_ends_at_once() {
    let Some(testbed) = testbed("rules", Receiver::EachPacket) else { return };
    for rule in [Rule::Safe, Rule::Cake, Rule::Checkpoint] {
        let Some(filter) = filter(&testbed, Hook::Xdp, rule) else { return };
        for bytes in [1, 1448, 3000, 100_000, 10_000_000] {
            let plan = transfer(2, bytes);
            assert_whole(&testbed.transfer(testbed.address(), &plan).unwrap(), &plan);
        }
        assert!(filter.counters().unwrap().dropped() > 0, "{rule:?}");
    }
}

#[test]
fn filter_that_comes_and_goes_disturbs_no_connection() {
    let Some(testbed) = testbed("comes", Receiver::EachPacket) else { return };
    let Some(mut filter) = filter(&testbed, Hook::Xdp, Rule::Safe) else { return };
    let plan = transfer(2, 100_000_000);
    let outcome = std::thread::scope(|scope| {
        let moving = scope.spawn(|| testbed.transfer(testbed.address(), &plan));
        while !moving.is_finished() {
            testbed.in_near(|| filter.detach()).unwrap().unwrap();
            assert_eq!(filter.hook(), None);
            testbed.in_near(|| filter.attach()).unwrap().unwrap();
        }
        moving.join().unwrap().unwrap()
    });
    assert_whole(&outcome, &plan);
}

#[test]
fn receiver_with_offload_leaves_little_to_drop() {
    let Some(testbed) = testbed("gro", Receiver::Offload) else { return };
    let Some(filter) = filter(&testbed, Hook::Tc, Rule::Safe) else { return };
    let plan = transfer(1, 50_000_000);
    assert_whole(&testbed.transfer(testbed.address(), &plan).unwrap(), &plan);
    let counters = filter.counters().unwrap();
    assert!(counters.acks() < counters.packets / 4, "{counters:?}");
    assert!(counters.of(Verdict::Spacing) > 0 || counters.share() < 0.5, "{counters:?}");
}

/// Not a test: what the one below starts, and kills. In the near host of a testbed it holds a filter and says so.
#[test]
fn hold_a_filter_until_killed() {
    let Ok(interface) = std::env::var("FRESHWIRE_HOLD_A_FILTER") else { return };
    let _filter = Filter::new(&interface, HookChoice::Only(Hook::Xdp), &Config::default()).unwrap();
    println!("\nattached");
    loop {
        std::thread::park();
    }
}

#[test]
fn programs_leave_with_a_process_that_is_killed() {
    let Some(testbed) = testbed("killed", Receiver::EachPacket) else { return };
    let Some(filter) = filter(&testbed, Hook::Tc, Rule::Safe) else { return };
    let programs = || testbed.in_near(|| freshwire_acks::tc_programs(testbed.interface())).unwrap().unwrap();
    assert_eq!(programs(), [1, 1]);
    drop(filter);
    assert_eq!(programs(), [0, 0]);
    let mut child = testbed
        .in_near(|| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "hold_a_filter_until_killed", "--nocapture"])
                .env("FRESHWIRE_HOLD_A_FILTER", testbed.interface())
                .stdout(Stdio::piped())
                .spawn()
        })
        .unwrap()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "attached"), "the child has said so");
    assert_eq!(programs(), [0, 1]);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while programs() != [0, 0] {
        assert!(Instant::now() < deadline, "the programs are still there: {:?}", programs());
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(10));
    }
    // XDP has one place: it is free.
    assert_eq!(self::filter(&testbed, Hook::Xdp, Rule::Safe).unwrap().hook(), Some(Hook::Xdp));
}

#[test]
fn unknown_interface_is_named() {
    let Some(testbed) = testbed("none", Receiver::EachPacket) else { return };
    for choice in [HookChoice::Auto, HookChoice::Only(Hook::Tc), HookChoice::Only(Hook::Xdp)] {
        let error =
            testbed.in_near(|| Filter::new("nowhere0", choice, &Config::default())).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "there is no network interface nowhere0; `ip link` lists them");
    }
}
