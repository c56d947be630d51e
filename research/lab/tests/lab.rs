//! The `freshwire-lab` command: real processes, real links, other people's programs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "the command's tests use the rest")]
#[path = "../../../crates/cli/tests/support/mod.rs"]
mod support;
mod transports;
mod video;

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Running, TIMEOUT, has, run, succeeds};

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire-lab");

/// Whether this user may make network namespaces. In CI that is required.
fn has_namespaces() -> bool {
    succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"]))
}

/// Whether the `freshwire` command is beside the laboratory's, as after a build of the workspace. In CI that is required.
fn has_product() -> bool {
    succeeds(
        "the command (`cargo build --package freshwire-cli`)",
        Command::new(Path::new(PROGRAM).with_file_name("freshwire")).arg("--version"),
    )
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_why() {
    for (arguments, message) in [
        (&["bench", "nonsense"][..], "invalid value"),
        (
            &["layers", "--scheme", "nonsense"],
            "there is no scheme \"nonsense\"; `freshwire-lab layers --help` lists them",
        ),
        (&["worker", "nonsense"], "invalid value"),
        (&["report", "/nowhere/results.jsonl"], "/nowhere/results.jsonl"),
        (&["no-such-command"], "unrecognized subcommand"),
    ] {
        let ended = run(arguments);
        assert!(ended.stdout.is_empty(), "{arguments:?}");
        ended.failed(2, message);
    }
}

#[test]
fn help_is_a_result() {
    for command in ["bench", "demo", "sim", "screen"] {
        assert!(run(&[command, "--help"]).ok().text().contains("Exit code:"), "{command}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let script = format!("{PROGRAM} bench push --repeat 1 --json | head -n 1");
    let ended = Running::start(Command::new("sh").args(["-c", &script])).wait().ok();
    assert_eq!(ended.text().lines().count(), 1);
    assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains("pipe"), "{}", ended.stderr);
}

#[test]
fn a_scenario_is_reproducible_and_reports_missed_goals() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let text = run(&["sim", "nat_rebinding", "--text"]).ok().text().to_owned();
    std::fs::write(&file, text.replace("length = \"20s\"", "length = \"12s\"")).unwrap();
    let play = |seed: &str| run(&["sim", file.to_str().unwrap(), "--seed", seed, "--json"]).ok().json();
    let played = play("1");
    assert_eq!(played["flows"][0]["name"], "down", "{played}");
    assert_eq!(played, play("1"));
    assert_ne!(played["fingerprint"], play("2")["fingerprint"]);

    let missed = text.replace("on_time = 0.98", "on_time = 1.1");
    std::fs::write(&file, missed).unwrap();
    let ended = run(&["sim", file.to_str().unwrap()]).failed(1, "");
    assert!(ended.text().contains("not reached in"), "{}", ended.text());
    assert!(ended.text().contains(" on time, 1.1 wanted"), "{}", ended.text());
    run(&["sim", "no_such"]).failed(2, "there is no scenario \"no_such\"; there are bit_damage,");
    run(&["sim", "no_such.toml"]).failed(2, "cannot read no_such.toml");
}

#[test]
fn receive_queue_is_shown_beside_the_published_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("queue.html");
    let arguments = ["sim", "queue", "--repeat", "50", "--out", page.to_str().unwrap()];
    let text = run(&arguments).ok().text().to_owned();
    for published in ["37.86", "49.35", "6.97", "23.05", "80.75 %", "88.2 % and 16.7 %"] {
        assert!(text.contains(published), "{published}: {text}");
    }
    assert_eq!(text, run(&arguments).ok().text());
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<figure>").count(), 6, "figures 3, 9, 10, 11a, 11b, 12");
    assert!(!page.contains("<script") && !page.contains("src=\"http"));

    let study = run(&["sim", "queue", "--repeat", "50", "--json"]).ok().json();
    assert_eq!(study["table_2"].as_array().unwrap().len(), 4);
    let mean = study["table_2"][1]["mean"].as_f64().unwrap();
    assert!((mean - 49.35).abs() < 1.0, "{mean}");
    run(&["sim", "queue", "--nic", "0"]).failed(2, "nic_packets is 0; at least 1 is needed");
    run(&["sim", "queue", "--repeat", "0"]).failed(2, "0 is not in 1..=100000");
}

#[test]
fn bench_measures_and_a_push_makes_no_system_call() {
    let ended = run(&["bench", "--repeat", "1", "--time", "50ms", "--connections", "20", "--json"]);
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    let lines: Vec<serde_json::Value> =
        ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["type"], "machine");
    let find = |name: &str| {
        let found = lines.iter().find(|line| line["data"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {name:?} in {}", ended.text()))["data"].clone()
    };
    for name in [
        "push : send() of 1400 B",
        "push : send() of 1400 B over UDP",
        "ring : send()",
        "processor time, push : send()",
    ] {
        assert!(find(name)["median"].as_f64().is_some_and(|ratio| ratio > 0.0), "{name}");
    }
    assert_eq!(find("system calls a push, engine awake")["median"], 0.0);
    assert_eq!(find("records that others missed by the stalled one")["median"], 0.0);
}

#[test]
fn bench_idle_measures_memory_and_time_in_a_process_of_its_own() {
    let ended = run(&[
        "bench",
        "idle",
        "--repeat",
        "1",
        "--idle-connections",
        "100",
        "--idle-time",
        "200ms",
        "--json",
    ]);
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    let lines: Vec<serde_json::Value> =
        ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_type = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of_type("number"), of_type("ratio")), (7, 1), "{}", ended.text());
    let name = "private memory of an end of a connection";
    let memory = lines
        .iter()
        .find(|line| line["data"]["name"] == name)
        .and_then(|line| line["data"]["median"].as_f64());
    assert!(memory.is_some_and(|bytes| bytes > 500.0 && bytes < 200_000.0), "{memory:?}");
}

/// Runs a bench that encodes a stream; finds its numbers by name.
fn bench_of_a_stream(arguments: &[&str]) -> impl Fn(&str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let clips = folder.path().to_str().unwrap();
    let common = ["bench", "--repeat", "1", "--settle", "1s", "--clips", clips, "--json"];
    let ended = run(&[&common, arguments].concat());
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    let lines = ended.text().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> = lines.collect();
    move |name| {
        let found = lines.iter().find(|line| line["data"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {name:?} in {lines:?}"))["data"]["median"].as_f64().unwrap()
    }
}

#[test]
fn bench_viewers_counts_what_is_delivered_and_what_that_costs() {
    if !has_product() || !has("ffmpeg", "-version") {
        return;
    }
    let median = bench_of_a_stream(&["viewers", "--viewers", "3", "--duration", "2s"]);
    assert!(median("3 at 1.0 Mbit/s: processor time, Freshwire : bare writes") > 0.1);
    assert_eq!(median("3 at 1.0 Mbit/s, Freshwire: viewers without a byte"), 0.0);
    let share = median("3 at 1.0 Mbit/s, Freshwire: share of the stream that came");
    assert!((0.3..1.5).contains(&share), "{share}");
}

#[test]
fn bench_isolation_tells_delays_and_bounded_memory() {
    if !has_product() || !has("ffmpeg", "-version") {
        return;
    }
    let median = bench_of_a_stream(&["isolation", "--fast", "2", "--stalled", "3", "--duration", "2s"]);
    assert!(median("2 fast viewers alone: delay, p50") > 0.0);
    assert!(median("memory that 3 stalled viewers take") < 33e6);
}

/// Whether this user may make hosts with interfaces; in CI that is required.
fn has_testbed() -> bool {
    succeeds("root", Command::new("sh").args(["-c", "[ $(id -u) = 0 ]"])) && has("ethtool", "--version")
}

/// The numbers and ratios of a bench by name.
fn bench(arguments: &str) -> impl Fn(&str) -> f64 {
    let words: Vec<&str> =
        ["bench", "--repeat", "1", "--json"].into_iter().chain(arguments.split(' ')).collect();
    let ended = run(&words);
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    let lines = ended.text().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> = lines.collect();
    move |name| {
        let found = lines.iter().find(|line| line["data"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {name:?} in {lines:?}"))["data"]["median"].as_f64().unwrap()
    }
}

#[test]
fn bench_path_has_the_live_server_beside_the_mechanisms() {
    if !has_product() || !has_testbed() {
        return;
    }
    // More than the server takes from one address by default. Nothing paces datagrams: pictures of this size for all at once are
    // 560 kB, and the link's queue of 50 ms holds 625 kB. Larger ones would measure the queue.
    let median = bench(
        "path --path-connections 70 --path-sizes 8KiB --path-mechanisms write,server,server-udp --path-rates 100Mbit --path-offload on",
    );
    let case = "70 connections, 100 Mbit/s, offload, 8192 B";
    for way in ["server", "server-udp"] {
        let of = |what: &str| median(&format!("{what}, {way}; {case}"));
        // At least half of what the link carries.
        let throughput = of("throughput");
        assert!((6.2e6..12.8e6).contains(&throughput), "{way}: {throughput}");
        assert!(of("CPU per GB") > 0.0 && of("context switches a second") > 0.0, "{way}");
        // It is offered more than the link carries.
        let whole = of("whole pictures");
        assert!((50.0..110.0).contains(&whole), "{way}: {whole}");
    }
    assert!(median(&format!("CPU per GB, server: write; {case}")) > 0.0);
}

#[test]
fn bench_uplink_counts_whole_pictures_at_the_server() {
    let module = "test -e $(nginx -V 2>&1 | grep -o 'modules-path=[^ ]*' | cut -d = -f 2)/ngx_rtmp_module.so";
    if !has_product()
        || !has_namespaces()
        || !has("ffmpeg", "-version")
        || !succeeds("nginx's RTMP module (libnginx-mod-rtmp)", Command::new("sh").args(["-c", module]))
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clips = folder.path().to_str().unwrap();
    let options = "--settle 2s --uplink-trouble dip --uplink-rates 20Mbit --uplink-times 1s,2s,1s";
    let line = format!("uplink {options} --clips {clips}");
    let median = bench(&line);
    let case = "20Mbit, 1Mbit, 20Mbit, 40 ms, cubic; 4Mbit";
    for subject in ["direct", "rule", "Freshwire"] {
        let of = |what: &str| median(&format!("{what}, {subject}; {case}"));
        // There are 30 pictures before the dip, 60 in it, and 30 after it.
        let before = 4.0 * of("whole and on time") - 2.0 * of("in the dip") - of("after the dip");
        assert!((-1e-6..100.0 + 1e-6).contains(&before), "{subject}: {before}");
        assert!(of("whole and on time") <= of("whole"), "{subject}");
        assert!(of("whole") + of("damaged") <= 100.0 + 1e-6, "{subject}");
        assert!(of("whole") > 0.0 && of("sound on time") > 0.0, "{subject}");
        assert!(of("age, p50") > 0.0 && of("age, p50") <= of("age, p95"), "{subject}");
        assert!(of("recovery") <= 1e9, "{subject}: to the end of the run");
    }
    let of = |what: &str, subject: &str| median(&format!("{what}, {subject}; {case}"));
    // Bytes written to a socket arrive as they were; four times what the dip carries does not arrive on time.
    assert_eq!((of("damaged", "direct"), of("repeats", "direct")), (0.0, 0.0));
    assert!(of("in the dip", "direct") < 90.0, "{}", of("in the dip", "direct"));
    assert_eq!(of("repeats", "rule"), 0.0);
    let whole = of("whole", "rule") * 1.2 + of("dropped by the rule", "rule");
    assert!(whole <= 240.0, "pictures of the whole stream: {whole}");
}

#[test]
fn bench_mixed_has_the_live_server_in_the_cameras_place() {
    if !has_product() || !has_testbed() {
        return;
    }
    let ended =
        run(&["bench", "mixed", "--repeat", "1", "--mixed-time", "300ms", "--mixed-share", "50", "--json"]);
    if ended.stderr.contains("no cpu controller") && std::env::var_os("CI").is_none() {
        println!("skipped: {}", ended.stderr);
        return;
    }
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    for mix in ["10 TCP", "5 TCP, 5 UDP"] {
        for variant in ["server", "server, ACK filter"] {
            for what in ["TCP viewer in KB/s", "pictures a second", "load", "blocks of sound a second"] {
                let name = format!("{what}, {variant}; {mix}");
                let line = ended.text().lines().find(|line| line.contains(&format!("\"{name}\"")));
                let line: serde_json::Value =
                    serde_json::from_str(line.unwrap_or_else(|| panic!("{name}"))).unwrap();
                assert!(line["data"]["median"].as_f64() > Some(0.0), "{name}: {line}");
            }
        }
    }
}

#[test]
fn one_viewer_wakes_the_server_less_than_its_peers() {
    if !has_product() || !has("ffmpeg", "-version") {
        return;
    }
    let median = bench_of_a_stream(&["idle-server", "--idle-time", "4s"]);
    let of =
        |what: &str, viewers: usize| median(&format!("{what}, Freshwire; {viewers} viewers at 1.0 Mbit/s"));
    // 25 pictures a second come in, and go out from the thread that read them.
    for viewers in [0, 1] {
        let wakes = of("wake-ups a second", viewers);
        assert!((20.0..50.0).contains(&wakes), "{viewers} viewers: {wakes}");
        assert!(of("memory", viewers) > 1e6 && of("processor time a second", viewers) > 0.0);
    }
    assert!(median("wake-ups a second, Freshwire: GStreamer; 1 viewers at 1.0 Mbit/s") < 1.0);
}

#[test]
fn a_player_behind_a_slow_link_shows_what_has_just_come() {
    if !has_namespaces() || !has_product() || !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let common = ["viewers", "--server", "freshwire", "--player", "ffmpeg", "--link", "slow"];
    run(&[&common[..], &["--duration", "12s", "--out", out]].concat()).ok();
    let lines = std::fs::read_to_string(folder.path().join("viewers.jsonl")).unwrap();
    let seen: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let metrics = &seen["data"]["metrics"];
    assert_eq!(metrics["complaints"], 0, "{metrics}");
    assert_eq!(seen["data"]["damaged"], 0, "{seen}");
    assert!(metrics["keys"].as_u64() >= Some(5), "{metrics}");
    // A keyframe comes every 2 s and little else: one that waits in the decoder for others is 4 s old and more.
    assert!(metrics["age"]["median_ns"].as_u64() < Some(2_000_000_000), "{metrics}");
}

/// The demo's worker gets no order and waits; when the demo is killed nobody else would end it.
#[test]
fn workers_end_with_who_started_them() {
    for worker in ["worker share", "demo --worker"] {
        // The shell is the one that starts it; its own input stays open in the test's hands.
        let script = format!("{PROGRAM} {worker} < \"$0\" & echo $!; wait");
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("orders");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let _orders = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
        let mut parent = std::process::Command::new("sh")
            .args(["-c", &script, fifo.to_str().unwrap()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(parent.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let pid: u32 = line.trim().parse().unwrap();
        let is_there = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
        };
        let waits =
            || std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|at| at.contains("pipe"));
        let started = Instant::now();
        while !waits() && started.elapsed() < Duration::from_secs(5) {
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_there(), "{worker}");
        parent.kill().unwrap();
        parent.wait().unwrap();
        let give_up = Instant::now() + TIMEOUT;
        while is_there() {
            assert!(Instant::now() < give_up, "{worker} outlives who started it");
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
