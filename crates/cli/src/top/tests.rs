use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use freshwire_server::report::{
    BrokerReport, FitReport, PathReport, RateReport, StreamReport, TopicReport, ViewerReport, WatcherReport,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn viewer(bytes: u64) -> ViewerReport {
    ViewerReport {
        id: 7,
        protocol: "rtsp".to_owned(),
        peer: "192.0.2.1:5000".to_owned(),
        user: Some("anna".to_owned()),
        age_s: 10.0,
        latency_ms: Some(2000.0),
        offered: [100, 100, 0, 0, 0, 0, 0, 0],
        sent: [100, 50, 0, 0, 0, 0, 0, 0],
        missed: 0,
        rendition: Some("360p".to_owned()),
        wanted: Some("180p".to_owned()),
        why: "slow".to_owned(),
        rendition_changes: 1,
        drops: BTreeMap::from([("stale".to_owned(), 50)]),
        path: PathReport {
            bytes,
            bytes_by_reference: bytes / 2 + 1,
            carries: Some(RateReport { bps: 300_000, at_least: false }),
            rtt_ms: 21.4,
            ..PathReport::default()
        },
    }
}

fn streams(bytes: u64) -> Vec<StreamReport> {
    vec![StreamReport {
        name: "live".to_owned(),
        origin: Some("test".to_owned()),
        source: None,
        units: 250,
        bytes: 1_000_000,
        keys: 10,
        arena_bytes: 1000,
        arena_used_bytes: 250,
        renditions: Vec::new(),
        fit: Some(FitReport {
            slowest: RateReport { bps: 300_000, at_least: false },
            median: RateReport { bps: 300_000, at_least: false },
            fastest: RateReport { bps: 8_000_000, at_least: true },
        }),
        viewers: vec![viewer(bytes)],
        targets: Vec::new(),
    }]
}

fn look(bytes: u64) -> Look {
    let watcher = WatcherReport {
        id: 7,
        protocol: "websocket".to_owned(),
        peer: "192.0.2.2:6000".to_owned(),
        age_s: 20.0,
        within_ms: Some(300.0),
        sent: 60,
        dropped: 40,
        waiting_keys: 3,
        held_by: Some("unread".to_owned()),
        held_unread_s: Some(12.3),
        times_held_unread: 1,
        unread_bytes: Some(10_240),
        path: PathReport { bytes: 2_500_000, rtt_ms: 40.6, ..PathReport::default() },
    };
    let topic = TopicReport {
        name: "state".to_owned(),
        keys: 12,
        changes: 5000,
        publishers: 1,
        bytes: 1000,
        arena_used_bytes: 2048,
        watchers: vec![watcher],
        broker: None,
    };
    Look { streams: streams(bytes), topics: vec![topic] }
}

#[test]
fn the_text_has_each_stream_and_viewer() {
    let text = table::text(&look(1_250_000));
    eprintln!("{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("STREAM / VIEWER") && lines.len() == 5);
    assert!(
        lines[1].starts_with("live (test)") && lines[1].contains("1 viewers") && lines[1].contains("25%")
    );
    assert!(lines[1].ends_with("300 kbit/s"), "{}", lines[1]);
    let cells = [
        "192.0.2.1:5000",
        "rtsp, by reference",
        "anna",
        "10 s",
        "1.00",
        "  300 kbit/s",
        "21 ms",
        "2000 ms",
        "25% stale",
        "360p > 180p (slow)",
    ];
    for cell in cells {
        assert!(lines[2].contains(cell), "{cell}: {}", lines[2]);
    }
    for cell in ["state (values)", "1 readers", "5000 changes", "12 keys"] {
        assert!(lines[3].contains(cell), "{cell}: {}", lines[3]);
    }
    for cell in [
        "192.0.2.2:6000",
        "websocket",
        "20 s",
        "1.00",
        "41 ms",
        "300 ms",
        "40%",
        "held: unread 12 s, 3 keys wait",
    ] {
        assert!(lines[4].contains(cell), "{cell}: {}", lines[4]);
    }
    let mut unlimited = look(0);
    unlimited.streams[0].viewers[0].path.carries = Some(RateReport { bps: 300_000, at_least: true });
    assert!(table::text(&unlimited).contains("≥ 300 kbit/s"));
}

#[test]
fn values_of_a_broker_are_shown_with_its_state() {
    let mut look = look(0);
    look.topics[0].broker = Some(BrokerReport {
        address: "mqtt://broker:1883/#".to_owned(),
        state: "retrying".to_owned(),
        protocol: None,
        reason: Some("it cannot be reached".to_owned()),
        since_s: 3.0,
        connections: 1,
        failures: 2,
        received: 7,
        superseded: 1,
        waiting: 0,
        most_waiting: 2,
        refused: BTreeMap::from([("key".to_owned(), 2), ("too-large".to_owned(), 1)]),
        published: 0,
    });
    let text = table::text(&look);
    let row = text.lines().find(|line| line.starts_with("state")).expect("a row");
    for cell in ["state (mqtt://broker:1883/#)", "3 refused", "it cannot be reached"] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
}

#[test]
fn a_rate_is_that_between_two_looks() {
    let (mut rates, now) = (Rates::default(), Instant::now());
    rates.look(&look(1_000_000), now);
    rates.look(&look(1_500_000), now + Duration::from_secs(2));
    let rows = table::rows(&look(1_500_000), &rates);
    assert_eq!((&*rows[1][4], &*rows[3][4]), ("2.00", "0.00"), "of the same number in two streams");
}

#[test]
fn the_view_shows_streams_or_what_is_wrong() {
    let mut terminal = Terminal::new(TestBackend::new(176, 8)).unwrap();
    let mut shown = |answer: Result<Look, String>, scroll| {
        terminal.draw(|frame| table::draw(frame, " top ", &answer, &Rates::default(), scroll)).unwrap();
        format!("{}", terminal.backend())
    };
    let view = shown(Ok(look(0)), 0);
    assert!(view.contains("live (test)") && view.contains("192.0.2.1:5000"), "{view}");
    let scrolled = shown(Ok(look(0)), 1);
    assert!(!scrolled.contains("live (test)") && scrolled.contains("192.0.2.1:5000"), "{scrolled}");
    assert!(shown(Ok(Look::default()), 9).contains("STREAM"));
    assert!(shown(Err("no answer".to_owned()), 0).contains("no answer"));
}

#[test]
fn the_server_is_asked_over_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = fetch::Server::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let ok = |body: String| format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}");
    let answers = [
        ok(serde_json::to_string(&look(5).streams).unwrap()),
        ok(serde_json::to_string(&look(5).topics).unwrap()),
        "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
    ];
    let answering = std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1000]).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert_eq!(server.look().unwrap(), look(5));
    let error = format!("{:#}", server.look().unwrap_err());
    assert!(error.contains("is `freshwire serve` running there?: it answers HTTP/1.1 404"), "{error}");
    answering.join().unwrap();
    assert!(fetch::Server::parse("https://host").is_err());
}
