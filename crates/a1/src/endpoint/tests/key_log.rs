use std::sync::{Arc, Mutex};

use super::*;
use crate::connection::tests::capture::Capture;
use crate::connection::tests::dissector::{Tshark, has_tshark};
use crate::crypto::Protection;
use crate::key_log::KeyLog;

/// A key log, and what was written to it.
fn log() -> (KeyLog, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let written = lines.clone();
    (KeyLog::new(move |line| lines.lock().unwrap().push(line.to_owned())), written)
}

/// A connection that carries a message each way, and what its two ends have logged.
fn logged(protection: Protection) -> (World, [Vec<String>; 2]) {
    let ((ours, our_lines), (theirs, their_lines)) = (log(), log());
    let mut world = World::new(client_config().key_log(ours), server_config().key_log(theirs));
    world.server().accepts = Some(ConnectionConfig::default().protection(protection));
    let handle =
        world.connect_with(&ConnectConfig::default(), ConnectionConfig::default().protection(protection));
    world.client().push(handle, b"question");
    world.run(Duration::from_secs(1));
    let theirs = world.server().connected()[0];
    world.server().push(theirs, b"answer");
    world.run(Duration::from_secs(1));
    let lines = [our_lines, their_lines].map(|lines| lines.lock().unwrap().clone());
    (world, lines)
}

#[test]
fn both_ends_log_the_same_secrets_and_no_others() {
    let (world, [mut ours, mut theirs]) = logged(Protection::Aead);
    assert_eq!(ours.len(), 2);
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    let (client, server) = (&world.nodes[CLIENT], &world.nodes[SERVER]);
    let (initiator, responder) = (client.connected()[0].id, server.connected()[0].id);
    let begin = |sender| format!("A1 {initiator:08x} {responder:08x} {sender} 0 ");
    for (line, sender) in ours.iter().zip(["I", "R"]) {
        let secret = line.strip_prefix(&begin(sender)).unwrap();
        assert_eq!(secret.len(), 64);
        assert!(secret.chars().all(|digit| digit.is_ascii_hexdigit()));
    }
    assert!(logged(Protection::DangerousPlain).1.iter().all(Vec::is_empty), "nothing is secret");
}

#[test]
fn a_capture_is_read_with_the_log_of_either_end() {
    if !has_tshark() {
        return;
    }
    let (world, logs) = logged(Protection::Aead);
    let mut capture = Capture::new();
    for flying in &world.history {
        capture.add(flying.from, flying.to, &flying.bytes);
    }
    let hex = |text: &[u8]| text.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for lines in logs {
        let read = Tshark::new(&capture, &lines.join("\n")).fields([
            "a1.type",
            "a1.frame.type",
            "a1.block.data",
            "a1.stream",
        ]);
        assert_eq!(read.len(), world.history.len());
        assert!(read.iter().all(|row| row[0] != ["4"] || !row[1].is_empty()), "every packet opens");
        assert!(read.iter().all(|row| row[3] == ["0"]));
        let data: Vec<&String> = read.iter().flat_map(|row| &row[2]).collect();
        assert_eq!(data, [&hex(b"question"), &hex(b"answer")]);
    }
}
