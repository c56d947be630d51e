use std::time::Duration;

use super::checks::{Check, Status, all};
use super::link::Observation;
use super::machine::{Clock, Congestion, Ffmpeg, KernelRing, Machine, Tcp, open_files};
use super::{all_needed, show};

fn good() -> Machine {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Machine {
        kernel: "6.18.1-generic".to_owned(),
        cpus: 2,
        congestion: Congestion {
            available: names(&["reno", "cubic", "bbr"]),
            allowed: names(&["reno", "cubic", "bbr"]),
            default: Some("cubic".to_owned()),
        },
        tcp: Ok(Tcp { min_rto: true }),
        link: Observation::Works { late_us: 80, real_time: true, ipv6: true },
        kernel_ring: KernelRing::Works,
        sealed_memory: Ok(()),
        open_files: Some((20_000, 20_000)),
        ffmpeg: Ffmpeg { ffmpeg: true, ffprobe: true, libx264: true },
        clock: Clock { source: Some("tsc".to_owned()), oversleep: Duration::from_micros(60) },
    }
}

fn check(machine: &Machine, name: &str) -> Check {
    all(machine).into_iter().find(|check| check.name == name).expect("there is such a check")
}

/// The one check that a change of a good machine makes worse.
fn worse(change: impl FnOnce(&mut Machine)) -> Check {
    let mut machine = good();
    change(&mut machine);
    let mut worse = all(&machine).into_iter().filter(|check| check.status != Status::Ok);
    let first = worse.next().expect("something is worse");
    assert_eq!(worse.next(), None);
    assert!(first.advice.is_some(), "{first:?} says what to do");
    first
}

#[test]
fn on_a_good_machine_everything_is_ok() {
    let checks = all(&good());
    assert!(checks.iter().all(|check| check.status == Status::Ok && check.advice.is_none()), "{checks:?}");
    assert!(all_needed(&checks));
}

#[test]
fn the_kernel_ring_is_optional_and_reported() {
    let absent = Machine { kernel_ring: KernelRing::NotLoaded, ..good() };
    let seen = check(&absent, "kernel ring");
    assert_eq!(seen.status, Status::Ok);
    assert!(seen.found.contains("modprobe tcp_ldc"), "{seen:?}");
    let broken = worse(|machine| machine.kernel_ring = KernelRing::Broken("no memory".to_owned()));
    assert_eq!((broken.status, broken.name), (Status::Warn, "kernel ring"));
}

/// The name of a check, and what makes it fail.
type Change = (&'static str, fn(&mut Machine));

#[test]
fn missing_needs_of_sending_are_failures() {
    let broken: [Change; 3] = [
        ("kernel", |machine| machine.kernel = "5.10.0-39-amd64".to_owned()),
        ("sealed memory file", |machine| machine.sealed_memory = Err("ENOSYS".to_owned())),
        ("TCP_NOTSENT_LOWAT", |machine| machine.tcp = Err("EPERM".to_owned())),
    ];
    for (name, change) in broken {
        let mut machine = good();
        change(&mut machine);
        let check = check(&machine, name);
        assert_eq!(check.status, Status::Missing, "{name}");
        assert!(check.advice.is_some(), "{name}");
        assert!(!all_needed(&all(&machine)), "{name}");
    }
}

#[test]
fn possible_improvements_are_warnings_and_no_failures() {
    let lesser: [Change; 13] = [
        // A package serves cameras, publishers and values without it.
        ("ffmpeg", |machine| machine.ffmpeg.ffmpeg = false),
        ("ffmpeg", |machine| machine.ffmpeg.ffprobe = false),
        ("ffmpeg", |machine| machine.ffmpeg.libx264 = false),
        ("kernel", |machine| machine.kernel = "5.11.0".to_owned()),
        ("kernel", |machine| machine.kernel = "strange".to_owned()),
        ("processors", |machine| machine.cpus = 1),
        ("TCP_RTO_MIN_US", |machine| machine.tcp = Ok(Tcp { min_rto: false })),
        ("emulated link", |machine| {
            machine.link = Observation::Works { late_us: 1500, real_time: true, ipv6: true };
        }),
        ("real-time priority", |machine| {
            machine.link = Observation::Works { late_us: 80, real_time: false, ipv6: false };
        }),
        ("open files", |machine| machine.open_files = Some((1024, 524_288))),
        ("open files", |machine| machine.open_files = None),
        ("clock", |machine| machine.clock.source = Some("hpet".to_owned())),
        ("clock", |machine| machine.clock.oversleep = Duration::from_millis(4)),
    ];
    for (name, change) in lesser {
        let check = worse(change);
        assert_eq!((check.name, check.status), (name, Status::Warn));
    }
}

/// A container has no namespaces and serves all the same.
#[test]
fn an_emulated_link_that_is_forbidden_is_no_failure() {
    for seen in [Observation::NotPermitted("EPERM".to_owned()), Observation::Broken("no veth".to_owned())] {
        let machine = Machine { link: seen, ..good() };
        let check = check(&machine, "emulated link");
        assert_eq!(check.status, Status::Warn);
        assert!(check.advice.is_some_and(|advice| advice.starts_with("link and the demo need")));
        assert!(all_needed(&all(&machine)));
    }
}

#[test]
fn a_missing_congestion_control_names_the_command_to_load_it() {
    let check = worse(|machine| machine.congestion.available.retain(|name| name != "bbr"));
    assert_eq!(check.advice.as_deref(), Some("bbr is not loaded: sudo modprobe tcp_bbr"));
}

#[test]
fn a_congestion_control_that_only_root_may_choose_is_named() {
    let mut machine = good();
    machine.congestion.allowed.retain(|name| name != "cubic");
    let check = check(&machine, "congestion control");
    assert_eq!(check.status, Status::Ok);
    assert!(check.found.contains("only root may choose cubic"), "{}", check.found);
}

#[test]
fn limits_are_read() {
    let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 unlimited            files\n";
    assert_eq!(open_files(limits), Some((1024, u64::MAX)));
    assert_eq!(open_files("Max cpu time  unlimited  unlimited  seconds"), None);
}

#[test]
fn the_table_aligns_and_colours_only_when_asked() {
    let mut machine = good();
    machine.cpus = 1;
    let checks = all(&machine);
    let plain = show::table(&checks, false);
    assert!(!plain.contains('\x1b'));
    assert!(plain.contains("ok       kernel              6.18.1-generic\n"), "{plain}");
    assert!(plain.contains("warn     processors          1\n"), "{plain}");
    assert!(plain.contains("\n                             -> with one processor"), "{plain}");
    assert!(plain.ends_with("\nEverything that is needed is there; some of it could be better.\n"));
    assert!(show::table(&checks, true).contains("\x1b[33mwarn   \x1b[0m  processors"));
}

#[test]
fn json_has_one_check_to_a_line_and_a_summary() {
    let mut machine = good();
    machine.sealed_memory = Err("ENOSYS".to_owned());
    let checks = all(&machine);
    let text = show::json(&checks).expect("checks can be written");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(lines.len(), checks.len() + 1);
    assert_eq!(lines[0]["type"], "check");
    assert_eq!(lines[0]["data"]["name"], "kernel");
    let summary = lines.last().expect("there is a last line");
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["data"]["missing"], 1);
}

#[test]
fn the_probes_observation_survives_its_way_to_the_parent() {
    for seen in [
        Observation::Works { late_us: 80, real_time: true, ipv6: false },
        Observation::NotPermitted("no".to_owned()),
        Observation::Broken("no".to_owned()),
    ] {
        let text = serde_json::to_string(&seen).expect("it can be written");
        assert_eq!(serde_json::from_str::<Observation>(&text).expect("it can be read"), seen);
    }
}
