//! Values that clients send to a broker through the server.

use serde_json::json;

use crate::programs::{Mosquitto, NatsServer};
use crate::rig::Site;

const RIGHT: &str = "[access.anonymous]\nview = [\"*\"]\nbroker = [\"state\"]\n";

#[test]
fn sending_to_a_broker_needs_a_right_of_its_own() {
    let Some(broker) = Mosquitto::start() else { return };
    for settings in
        ["", "[access.anonymous]\npublish = [\"*\"]\n", "[access.anonymous]\nbroker = [\"other\"]\n"]
    {
        let site = Site::with(&broker.url("a/#"), settings);
        site.is_subscribed();
        let (status, answer) = site.request("POST", "/state/a%2Fb", "", b"1");
        assert!(status == "403" && answer.contains("`broker`"), "{settings}: {answer}");
        assert_eq!(site.request("DELETE", "/state/a%2Fb", "", b"").0, "403");
        site.has(&json!({}));
    }
    let push = Site::with(&broker.url("#"), "[access.anonymous]\npublish = [\"*\"]\n");
    let (status, answer) = push.request("GET", "/state/push", "", b"");
    assert!(status == "409" && answer.contains("come from a broker"), "{answer}");
}

#[test]
fn values_that_are_sent_come_back_from_the_broker() {
    let acl = |folder: &std::path::Path| {
        let file = folder.join("acl");
        std::fs::write(&file, "topic readwrite a/#\ntopic read closed/#\n").unwrap();
        format!("allow_anonymous true\nacl_file {}\n", file.display())
    };
    let Some(mut broker) = Mosquitto::with(acl) else { return };
    for version in ["5", "3.1.1"] {
        let site = Site::with(&broker.url(&format!("a/#?version={version}")), RIGHT);
        site.is_subscribed();
        let set = |key: &str, body: &[u8]| site.request("POST", &format!("/state/{key}"), "", body).0;
        assert_eq!(set("a%2Fb", b"{\"x\": 1}"), "204");
        site.has(&json!({"a/b": {"x": 1}}));
        assert_eq!(set("a%2Fb", b"two words"), "204");
        site.has(&json!({"a/b": "two words"}));
        assert_eq!(set("a%2Fkept?retain", b"7"), "204");
        site.has(&json!({"a/b": "two words", "a/kept": 7}));
        let newcomer = Site::start(&broker.url("a/#"));
        newcomer.has(&json!({"a/kept": 7}));
        assert_eq!(site.request("DELETE", "/state/a%2Fkept", "", b"").0, "204");
        site.has(&json!({"a/b": "two words"}));
        newcomer.has(&json!({}));
        assert_eq!(site.broker()["published"], 4);
        for (key, why) in [("b%2Fc", "not among the values"), ("a%2F%23", "not among the values")] {
            let (status, answer) = site.request("POST", &format!("/state/{key}"), "", b"1");
            assert!(status == "400" && answer.contains(why), "{answer}");
        }
        let (status, answer) = site.request("POST", "/state", "", b"{\"key\":\"a/b\",\"value\":1}");
        assert!(status == "400" && answer.contains("one key at a time"), "{answer}");
    }
    // Only MQTT 5 says so; a broker of 3.1.1 confirms what it drops.
    let site = Site::with(&broker.url("#?version=5"), RIGHT);
    site.is_subscribed();
    let (status, answer) = site.request("POST", "/state/closed%2Fx", "", b"1");
    assert!(status == "502" && answer.contains("not authorized"), "{answer}");
    broker.kill();
    site.fails("");
    let (status, answer) = site.request("POST", "/state/a", "", b"1");
    assert!(status == "503" && answer.contains("the broker is away"), "{answer}");
}

#[test]
fn values_that_are_sent_to_nats_come_back() {
    let permissions = "authorization { users = [ { user: anna, password: sesame, permissions: { publish: { deny: [\"a.closed\", \"$KV.STATE.closed\"] } } } ] }\n";
    let Some(server) = NatsServer::with(permissions) else { return };
    let mut client = server.client(",\"user\":\"anna\",\"pass\":\"sesame\"");
    client.bucket("STATE");
    let source = |rest: &str| format!("nats://anna:sesame@127.0.0.1:{}/{rest}", server.port);
    let site = Site::with(&source("a.>"), RIGHT);
    site.is_subscribed();
    assert_eq!(site.request("POST", "/state/a.b", "", b"1").0, "204");
    site.has(&json!({"a.b": 1}));
    let (status, answer) = site.request("POST", "/state/a.closed", "", b"1");
    assert!(status == "502" && answer.contains("Permissions Violation"), "{answer}");
    assert_eq!(site.request("POST", "/state/a.c", "", b"[2]").0, "204", "the connection goes on");
    site.has(&json!({"a.b": 1, "a.c": [2]}));
    assert_eq!(site.request("DELETE", "/state/a.b", "", b"").0, "204");
    site.has(&json!({"a.c": [2]}));
    assert_eq!(site.request("POST", "/state/b", "", b"1").0, "400");
    let site = Site::with(&source("kv/STATE"), RIGHT);
    site.is_subscribed();
    let (status, answer) = site.request("POST", "/state/closed", "", b"1");
    assert!(status == "502" && answer.contains("Permissions Violation"), "{answer}");
    assert_eq!(site.request("PUT", "/state/door.1", "", b"open").0, "204");
    site.has(&json!({"door.1": "open"}));
    assert_eq!(site.request("DELETE", "/state/door.1", "", b"").0, "204");
    site.has(&json!({}));
    let large = vec![b'x'; 60_000];
    assert_eq!(site.request("PUT", "/state/large", "", &large).0, "204");
    site.wait("a large value", |site| site.values().contains_key("large"));
}
