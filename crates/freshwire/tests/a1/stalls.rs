//! A receiving application that stalls: the node's own thread goes on receiving.

use freshwire::PushError;

use super::*;

/// Records that are under way or unread at most. As packets they fit a kernel buffer of the usual 208 KiB, so nothing here
/// depends on how soon a thread runs.
const WINDOW: u32 = 64;
const RECORDS: u64 = 2000;
const STALLS: [u64; 4] = [5, 20, 50, 200];

#[test]
fn a_stalled_application_loses_nothing_that_the_path_delivered() {
    let (near, far) = (node(), node());
    let port = far.local_addr().unwrap().port();
    let (sending, receiving) = connect(&near, &far);
    let config = RingConfig { rings: 1, slots: WINDOW, block_bytes: 1400, blocks: WINDOW };
    let mut sender = Sender::without_engine(&config).unwrap();
    let sink = sender.add_a1_sink(&sending, SinkConfig::new(choice::fifo())).unwrap();
    let received = std::thread::spawn(move || {
        let mut received = Vec::new();
        while received.len() < RECORDS as usize {
            received.push(message(&receiving).seq);
            if received.len() % 200 == 0 {
                let stall = STALLS[received.len() / 200 % STALLS.len()];
                // Pause: the reader stalls.
                std::thread::sleep(Duration::from_millis(stall));
            }
        }
        (received, receiving)
    });
    let give_up = now() + 2 * PATIENCE;
    let mut seq = 0;
    while seq < RECORDS {
        match sender.push(sink.id(), &[seq as u8; 1400], &meta(seq)) {
            Ok(_) => seq += 1,
            // Pause: the ring is full.
            Err(PushError::Full) => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => panic!("{error}"),
        }
        while sender.poll_fate(sink.id()).unwrap().is_some() {}
        assert!(now() < give_up, "record {seq} finds no room");
    }
    let (mut all, receiving) = received.join().unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..RECORDS).collect::<Vec<_>>());
    assert_eq!(kernel_drops(port), 0, "the socket of the receiving node");
    assert_eq!(receiving.stats().unwrap().messages_received, RECORDS);
}

/// What the kernel dropped at the socket that is bound to this port.
fn kernel_drops(port: u16) -> u64 {
    let sockets = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    let mine = sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut mine = mine.filter(|fields| fields[1].ends_with(&format!(":{port:04X}")));
    mine.next().expect("the socket is listed").last().unwrap().parse().unwrap()
}
