//! Texts of scenarios: what is wrong is named, and nothing that can be written brings a run down.

use std::time::Duration;

use freshwire_sim::{Scenario, run};

const GOOD: &str = r#"
tells = "A test."
length = "2s"

[path.link]
both = { rate = "1Mbit", delay = "10ms" }

[flow.data]
path = "link"
offer = { kind = "messages", bytes = "100", every = "10ms" }
"#;

fn error(text: &str) -> String {
    match Scenario::parse(text, 1) {
        Ok(_) => panic!("it is a scenario: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_name_the_place() {
    let way = |way: &str| GOOD.replace("rate = \"1Mbit\", delay = \"10ms\"", way);
    for (text, message) in [
        (GOOD.replace("\"2s\"", "\"soon\""), "\"soon\" is not a duration such as 50ms"),
        (GOOD.replace("\"2s\"", "\"2h\""), "length: 7200s is longer than 3600s"),
        (GOOD.replace("tells", "tell"), "unknown field `tell`"),
        (GOOD.replace("path = \"link\"", "path = \"lnk\""), "flow data: there is no path \"lnk\""),
        (GOOD.replace("messages", "nonsense"), "unknown variant `nonsense`"),
        (GOOD.replace("\"10ms\" }\n\n[flow", "\"2h\" }\n\n[flow"), "path link, up: a delay of 7200s"),
        (GOOD.replace("every = \"10ms\"", "every = \"1ns\""), "flow data: records come at most every 10 us"),
        (GOOD.replace("\"100\"", "\"0\""), "flow data: a record has from 1 byte to 64 MiB"),
        (way("loss = 1.5"), "path link, up: Random { share: 1.5 } cannot be"),
        (way("burst = 2.0"), "path link, up: a burst needs a loss"),
        (way("damage = 2.0"), "path link, up: a share goes from 0 to 1"),
        (format!("seeds = 1.5{GOOD}"), "seeds: a share goes from 0 to 1"),
        (way("rate = \"1Mbit\", trace = \"0 1Mbit\""), "a rate or a trace, not both"),
        (way("trace = \"1 fast\""), "path link, up: trace: line 1: \"fast\" is not a rate"),
        (format!("trouble = {{ from = \"1s\", to = \"3s\" }}{GOOD}"), "trouble: it has to end"),
        (
            format!("{GOOD}connection = {{ outstanding = 0 }}"),
            "flow data: the number of outstanding messages: 0 is not from 1 to 65536",
        ),
        (
            format!("{GOOD}[[event]]\nat = \"1s\"\nflow = \"x\"\nwhat = \"rebind\""),
            "event: there is no flow \"x\"",
        ),
        (
            format!("{GOOD}[[event]]\nat = \"3s\"\nflow = \"data\"\nwhat = \"rebind\""),
            "event: it is after the scenario's end",
        ),
    ] {
        let error = error(&text);
        assert!(error.contains(message), "{error}\nwanted: {message}");
    }
    assert!(error("length = 5").contains("TOML parse error at line 1, column 10"));
}

#[test]
fn omitted_settings_have_a_default() {
    let scenario = Scenario::parse(GOOD, 1).unwrap();
    assert_eq!((scenario.length, scenario.trouble, scenario.seeds), (Duration::from_secs(2), None, 1.0));
    let (path, flow) = (&scenario.paths[0], &scenario.flows[0]);
    assert_eq!(path.up.link, path.down.link);
    assert_eq!((flow.near.as_str(), flow.start), ("data", Duration::from_secs(1)));
    assert_eq!(run(&scenario, 1).flows[0].offered, 100);
}

/// What may stand in each place of a text, the strange beside the usual.
const LENGTHS: [&str; 3] = ["0s", "1ms", "5ms"];
const PATHS: [&str; 9] = [
    "",
    "both = {}",
    "both = { rate = \"1bit\" }",
    "both = { delay = \"1h\" }",
    "both = { queue = \"0\" }",
    "up = { damage = 1.0 }",
    "down = { loss = 1.0 }",
    "both = { outages = [{ at = \"0s\", length = \"1h\" }] }",
    "both = { duplicate = { share = 1.0, copies = 50, within = \"1s\" }, reorder = { share = 1.0, by = \"1s\" } }",
];
const OFFERS: [&str; 6] = [
    "{ kind = \"bulk\", bytes = \"64MiB\" }",
    "{ kind = \"bulk\", bytes = \"1\" }",
    "{ kind = \"frames\", fps = 1000.0, rate = \"1Gbit\", gop = 0, lifetime = \"0\" }",
    "{ kind = \"layers\", layers = 0, bytes = \"1\", window = \"10us\", lifetime = \"100h\" }",
    "{ kind = \"positions\", objects = 0, bytes = \"1\", every = \"10us\", lifetime = \"0\" }",
    "{ kind = \"messages\", bytes = \"1MiB\", every = \"1ms\" }",
];
const OPTIONS: [&str; 9] = [
    "",
    "start = \"0\"",
    "start = \"100h\"",
    "start = \"0\"\nfrom = \"far\"",
    "start = \"0\"\npolicy = \"latest\"",
    "start = \"0\"\npolicy = \"live\"",
    "start = \"0\"\nconnection = { outstanding = 1 }",
    "start = \"0\"\nconnection = { idle_timeout = \"0\", keep_alive = \"1ms\" }",
    "start = \"0\"\nconnection = { in_order = true, fec_layers = 255, congestion = \"cubic\" }",
];
const EVENTS: [&str; 7] = ["", "rebind", "restart-near", "restart-far", "stall", "resume", "update-keys"];

#[test]
fn every_valid_scenario_is_played() {
    bolero::check!().with_type::<[u8; 5]>().with_iterations(20).for_each(|[length, path, offer, option, event]| {
        let pick = |list: &'static [&'static str], place: &u8| list[usize::from(*place) % list.len()];
        let event = pick(&EVENTS, event);
        let event = match event {
            "" => String::new(),
            what => format!("[[event]]\nat = \"0\"\nflow = \"data\"\nwhat = \"{what}\"\n"),
        };
        let text = format!(
            "tells = \"\"\nlength = \"{}\"\n[path.link]\n{}\n[flow.data]\npath = \"link\"\noffer = {}\n{}\n{event}",
            pick(&LENGTHS, length),
            pick(&PATHS, path),
            pick(&OFFERS, offer),
            pick(&OPTIONS, option),
        );
        let scenario = Scenario::parse(&text, 1).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let _ = run(&scenario, 1);
    });
}
