//! mosquitto as the source of values.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use crate::programs::Mosquitto;
use crate::rig::{Certificates, Site};

#[test]
fn retained_messages_are_the_first_values() {
    let Some(broker) = Mosquitto::start() else { return };
    broker.publish("sensors/a", &["-r", "-m", "21.50"]);
    broker.publish("sensors/room/b", &["-r", "-m", "warm"]);
    broker.publish("other/c", &["-r", "-m", "1"]);
    for (version, protocol) in [("5", "MQTT 5"), ("3.1.1", "MQTT 3.1.1")] {
        let site = Site::start(&broker.url(&format!("sensors/#?version={version}")));
        site.has(&json!({"sensors/a": 21.5, "sensors/room/b": "warm"}));
        assert_eq!(site.broker()["protocol"], protocol);
        broker.publish("sensors/c", &["-m", "{\"x\": [1]}"]);
        site.has(&json!({"sensors/a": 21.5, "sensors/room/b": "warm", "sensors/c": {"x": [1]}}));
        // A message without content is how MQTT removes one.
        broker.publish("sensors/c", &["-n"]);
        site.has(&json!({"sensors/a": 21.5, "sensors/room/b": "warm"}));
    }
    let site = Site::start(&broker.url("+/a"));
    site.has(&json!({"sensors/a": 21.5}));
    broker.publish("sensors/a", &["-r", "-n"]);
    site.has(&json!({}));
    assert!(site.broker()["received"].as_u64() >= Some(2));
}

#[test]
fn bytes_and_utf_8_topics_are_values() {
    let Some(broker) = Mosquitto::start() else { return };
    let site = Site::start(&broker.url("#"));
    site.is_subscribed();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    std::fs::write(&file, [0xff, 0x0a]).unwrap();
    broker.publish("t\u{fc}r/1", &["-f", file.to_str().unwrap()]);
    site.has(&json!({"t\u{fc}r/1": {"bytes": [255, 10]}}));
    let (status, answer) = site.request("GET", "/state/t%C3%BCr%2F1", "", b"");
    assert_eq!(status, "200", "{answer}");
}

#[test]
fn a_killed_broker_is_found_again() {
    let Some(mut broker) = Mosquitto::start() else { return };
    broker.publish("a", &["-r", "-m", "1"]);
    let site = Site::start(&broker.url("#"));
    site.has(&json!({"a": 1}));
    broker.kill();
    site.fails("");
    assert_eq!(site.values()["a"], json!(1), "the values stay");
    assert!(site.internal("/health").contains("the broker is away"));
    assert!(site.internal("/metrics").contains("freshwire_broker_up{stream=\"state\"} 0"));
    broker.restart();
    broker.publish("b", &["-r", "-m", "2"]);
    site.wait("the new value", |site| site.values().get("b") == Some(&json!(2)));
    let found = site.broker();
    assert_eq!(
        (found["state"].as_str(), found["connections"].as_u64()),
        (Some("subscribed"), Some(2)),
        "{found}"
    );
    assert!(!site.internal("/health").contains("the broker is away"));
    assert!(site.internal("/metrics").contains("freshwire_broker_up{stream=\"state\"} 1"));
}

#[test]
fn a_users_password_opens_and_a_wrong_one_is_named() {
    let users = |folder: &std::path::Path| {
        let file = folder.join("users");
        let mut command = std::process::Command::new("mosquitto_passwd");
        let made = command.args(["-b", "-c"]).arg(&file).args(["anna", "se/same"]).status();
        assert!(made.is_ok_and(|status| status.success()));
        format!("allow_anonymous false\npassword_file {}\n", file.display())
    };
    let Some(broker) = Mosquitto::with(users) else { return };
    let at = format!("127.0.0.1:{}", broker.port);
    broker.publish("a", &["-r", "-m", "1", "-u", "anna", "-P", "se/same"]);
    for version in ["5", "3.1.1"] {
        let site = Site::start(&format!("mqtt://anna:se%2Fsame@{at}/#?version={version}"));
        site.has(&json!({"a": 1}));
        for wrong in [
            format!("mqtt://anna:guess@{at}/#?version={version}"),
            format!("mqtt://{at}/#?version={version}"),
        ] {
            let site = Site::start(&wrong);
            site.fails("does not take this user and password");
            let shown = format!("{}{}", site.internal("/api/values"), site.internal("/metrics"));
            assert!(!shown.contains("guess") && !shown.contains("anna"), "{shown}");
        }
    }
}

#[test]
fn a_broker_over_tls_has_to_prove_its_name() {
    let good = Certificates::for_name("localhost");
    let other = Certificates::for_name("broker.example");
    let tls = |certificates: &Certificates| {
        let path = |name| certificates.path(name).display().to_string();
        format!("allow_anonymous true\ncertfile {}\nkeyfile {}\n", path("cert.pem"), path("key.pem"))
    };
    let Some(broker) = Mosquitto::with(|_| tls(&good)) else { return };
    let source = |broker: &Mosquitto, rest: &str| format!("mqtts://localhost:{}/#{rest}", broker.port);
    let ca = |certificates: &Certificates| format!("?ca={}", certificates.path("ca.pem").display());
    let site = Site::start(&source(&broker, &ca(&good)));
    site.is_subscribed();
    let cafile = good.path("ca.pem");
    broker.publish("a", &["-h", "localhost", "--cafile", cafile.to_str().unwrap(), "-m", "1"]);
    site.has(&json!({"a": 1}));
    Site::start(&source(&broker, &ca(&other))).fails("of no authority that is known here");
    Site::start(&source(&broker, "?ca=none.pem")).fails("none.pem is no PEM file");
    Site::start(&format!("mqtt://localhost:{}/#", broker.port)).fails("TLS");
    let Some(misnamed) = Mosquitto::with(|_| tls(&other)) else { return };
    Site::start(&source(&misnamed, &ca(&other))).fails("not valid for this use");
    let Some(plain) = Mosquitto::start() else { return };
    Site::start(&source(&plain, &ca(&good))).fails("TLS");
}

#[test]
fn names_and_ports_that_are_wrong_are_named() {
    Site::start("mqtt://nowhere.invalid/#").fails("the name of its host is not known");
    Site::start(&format!("mqtt://127.0.0.1:{}/#", crate::rig::free_port())).fails("cannot be reached");
}

#[test]
fn messages_beyond_a_limit_are_counted_and_not_let_in() {
    let Some(broker) = Mosquitto::start() else { return };
    let site = Site::with(&broker.url("#"), "[hub]\nmax_value = \"100B\"\nmax_keys = 5\n");
    site.is_subscribed();
    broker.publish(&"k".repeat(257), &["-m", "1"]);
    broker.publish("large", &["-m", &"x".repeat(101)]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large");
    std::fs::write(&file, vec![b'x'; 3 << 20]).unwrap();
    broker.publish("larger", &["-f", file.to_str().unwrap()]);
    broker.publish("text", &["-m", &"\u{1}".repeat(60)]);
    for key in 0..8 {
        broker.publish(&format!("k{key}"), &["-m", "1"]);
    }
    let counted = json!({"key": 1, "too-large": 3, "too-many-keys": 3});
    site.wait("counted", |site| site.broker()["refused"] == counted);
    site.has(&json!({"k0": 1, "k1": 1, "k2": 1, "k3": 1, "k4": 1}));
    broker.publish("k0", &["-n"]);
    broker.publish("k7", &["-m", "2"]);
    site.has(&json!({"k1": 1, "k2": 1, "k3": 1, "k4": 1, "k7": 2}));
    let deep = Site::start(&broker.url("deep"));
    deep.is_subscribed();
    broker.publish("deep", &["-m", &("[".repeat(129) + &"]".repeat(129))]);
    deep.wait("counted", |site| site.broker()["refused"] == json!({"too-deep": 1}));
    let metrics = deep.internal("/metrics");
    assert!(
        metrics.contains("freshwire_broker_refused_total{stream=\"state\",reason=\"too-deep\"} 1"),
        "{metrics}"
    );
}

#[test]
fn a_flood_leaves_the_newest_of_each_key() {
    const KEYS: usize = 8;
    const EACH: usize = 5_000;
    let Some(broker) = Mosquitto::start() else { return };
    let site = Site::start(&broker.url("flood/#"));
    site.is_subscribed();
    let publishers: Vec<_> = (0..KEYS)
        .map(|key| {
            let mut command = broker.client("mosquitto_pub", &format!("flood/{key}"));
            let mut child = command.args(["-l", "-q", "1"]).stdin(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || {
                for number in 1..=EACH {
                    writeln!(input, "{number}").unwrap();
                }
            });
            (child, writer)
        })
        .collect();
    for (mut child, writer) in publishers {
        writer.join().unwrap();
        assert!(child.wait().unwrap().success());
    }
    let newest =
        |site: &Site| (0..KEYS).all(|key| site.values().get(&format!("flood/{key}")) == Some(&json!(EACH)));
    site.wait("the newest", newest);
    let found = site.broker();
    assert_eq!(found["received"], json!(KEYS * EACH), "{found}");
    assert_eq!((&found["waiting"], &found["failures"]), (&json!(0), &json!(0)), "{found}");
    assert!(found["most_waiting"].as_u64().unwrap() <= KEYS as u64, "{found}");
}

#[test]
fn a_reload_changes_the_source_and_nothing_else() {
    let Some(broker) = Mosquitto::start() else { return };
    broker.publish("a", &["-r", "-m", "1"]);
    broker.publish("b", &["-r", "-m", "2"]);
    let mut site = Site::start(&broker.url("a"));
    site.has(&json!({"a": 1}));
    site.reload(&broker.url("a"), "[access.anonymous]\nbroker = [\"state\"]\n");
    assert_eq!(site.broker()["connections"], 1, "the same connection");
    site.reload(&broker.url("b"), "");
    site.has(&json!({"b": 2}));
    site.reload("publish", "");
    site.has(&json!({}));
    assert!(site.broker().is_null());
    assert_eq!(site.request("POST", "/state/x", "", b"1").0, "204");
    site.reload(&broker.url("#"), "");
    site.has(&json!({"a": 1, "b": 2}));
}
