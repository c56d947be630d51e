//! nats-server as the source of values.

use serde_json::json;

use crate::programs::NatsServer;
use crate::rig::{Certificates, Site};

#[test]
fn subjects_are_keys() {
    let Some(mut server) = NatsServer::start() else { return };
    let site = Site::start(&server.url("robots.>"));
    site.is_subscribed();
    assert_eq!(site.broker()["protocol"], "NATS");
    let mut client = server.client("");
    client.publish("robots.a.position", "[1, 2]");
    client.publish("robots.b", "idle");
    client.publish("other", "1");
    site.has(&json!({"robots.a.position": [1, 2], "robots.b": "idle"}));
    client.publish("robots.b", "");
    site.has(&json!({"robots.a.position": [1, 2]}));
    server.kill();
    site.fails("");
    server.restart();
    site.is_subscribed();
    server.client("").publish("robots.c", "3");
    site.has(&json!({"robots.a.position": [1, 2], "robots.c": 3}));
}

#[test]
fn a_bucket_is_a_stream_of_values() {
    let Some(mut server) = NatsServer::start() else { return };
    let mut client = server.client("");
    client.bucket("STATE");
    client.bucket("EMPTY");
    client.publish("$KV.STATE.a", "1");
    client.publish("$KV.STATE.a", "2");
    client.publish("$KV.STATE.rooms.b", "warm");
    client.publish("$KV.STATE.gone", "1");
    client.delete("STATE", "gone");
    let site = Site::start(&server.url("kv/STATE"));
    site.has(&json!({"a": 2, "rooms.b": "warm"}));
    assert_eq!(site.broker()["protocol"], "NATS, key-value");
    let part = Site::start(&server.url("kv/STATE/rooms.>"));
    part.has(&json!({"rooms.b": "warm"}));
    client.publish("$KV.STATE.c", "3");
    client.delete("STATE", "a");
    site.has(&json!({"c": 3, "rooms.b": "warm"}));
    for key in 0..200 {
        client.publish(&format!("$KV.STATE.many.{key}"), "1");
    }
    site.wait("all keys", |site| site.values().len() == 202);
    let empty = Site::start(&server.url("kv/EMPTY"));
    empty.is_subscribed();
    server.kill();
    site.fails("");
    // A key that is deleted during the outage is deleted here as well.
    server.restart();
    server.client("").delete("STATE", "c");
    site.wait("the deletion", |site| {
        site.broker()["state"] == "subscribed" && !site.values().contains_key("c")
    });
    assert_eq!(site.values().len(), 201);
    assert_eq!(part.values().len(), 1);
}

#[test]
fn keys_that_were_deleted_during_an_outage_are_deleted() {
    let Some(server) = NatsServer::start() else { return };
    let mut client = server.client("");
    client.bucket("STATE");
    client.publish("$KV.STATE.a", "1");
    let mut site = Site::start(&server.url("kv/STATE"));
    site.has(&json!({"a": 1}));
    // Purged with its history: nothing says that there was such a key.
    site.reload(&server.url("kv/STATE"), "");
    client.publish("$JS.API.STREAM.PURGE.KV_STATE", "");
    client.publish("$KV.STATE.b", "1");
    site.has(&json!({"a": 1, "b": 1}));
    drop(client);
    let mut server = server;
    server.kill();
    site.fails("");
    server.restart();
    site.has(&json!({"b": 1}));
}

#[test]
fn missing_buckets_and_rights_are_named() {
    let users = "authorization { users = [ { user: anna, password: sesame, permissions: { subscribe: [\"a.>\", \"_INBOX.>\"] } } ] }\n";
    let Some(server) = NatsServer::with(users) else { return };
    let source = |user: &str, rest: &str| format!("nats://{user}127.0.0.1:{}/{rest}", server.port);
    Site::start(&source("anna:guess@", "a.b")).fails("does not take this user and password");
    Site::start(&source("", "a.b")).fails("does not take this user and password");
    Site::start(&source("anna:sesame@", "b.>")).fails("the subscription to b.>");
    Site::start(&source("anna:sesame@", "kv/NONE")).fails("no such bucket");
    let site = Site::start(&source("anna:sesame@", "a.>"));
    site.is_subscribed();
    let shown = format!("{}{}", site.internal("/api/values"), site.internal("/metrics"));
    assert!(!shown.contains("sesame") && !shown.contains("anna"), "{shown}");
}

#[test]
fn a_token_over_tls_is_sent_after_the_handshake() {
    let certificates = Certificates::for_name("localhost");
    let path = |name: &str| certificates.path(name).display().to_string();
    let settings = format!(
        "authorization {{ token: \"s3same\" }}\ntls {{ cert_file: {:?}, key_file: {:?} }}\n",
        path("cert.pem"),
        path("key.pem")
    );
    let Some(server) = NatsServer::with(&settings) else { return };
    let at = |scheme: &str, token: &str, ca: &str| {
        format!("{scheme}://{token}@localhost:{}/a?ca={ca}", server.port)
    };
    let ca = path("ca.pem");
    for scheme in ["nats", "tls"] {
        Site::start(&at(scheme, "s3same", &ca)).is_subscribed();
    }
    Site::start(&at("nats", "guess", &ca)).fails("does not take this user and password");
    let other = Certificates::for_name("localhost");
    let other = other.path("ca.pem").display().to_string();
    Site::start(&at("nats", "s3same", &other)).fails("of no authority that is known here");
    let Some(plain) = NatsServer::start() else { return };
    Site::start(&format!("tls://localhost:{}/a?ca={ca}", plain.port)).fails("TLS");
}
