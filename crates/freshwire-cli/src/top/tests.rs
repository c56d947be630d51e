use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use freshwire_server::report::{FitReport, PathReport, RateReport, ViewerReport};
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
    }]
}

#[test]
fn the_text_has_each_stream_and_viewer() {
    let text = table::text(&streams(1_250_000));
    eprintln!("{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("STREAM / VIEWER") && lines.len() == 3);
    assert!(
        lines[1].starts_with("live (test)") && lines[1].contains("1 viewers") && lines[1].contains("25%")
    );
    assert!(lines[1].ends_with("300 kbit/s"), "{}", lines[1]);
    let cells = [
        "192.0.2.1:5000",
        "rtsp",
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
    let mut unlimited = streams(0);
    unlimited[0].viewers[0].path.carries = Some(RateReport { bps: 300_000, at_least: true });
    assert!(table::text(&unlimited).contains("≥ 300 kbit/s"));
}

#[test]
fn a_rate_is_that_between_two_looks() {
    let (mut rates, now) = (Rates::default(), Instant::now());
    rates.look(&streams(1_000_000), now);
    rates.look(&streams(1_500_000), now + Duration::from_secs(2));
    assert_eq!(table::rows(&streams(1_500_000), &rates)[1][4], "2.00");
}

#[test]
fn the_view_shows_streams_or_what_is_wrong() {
    let mut terminal = Terminal::new(TestBackend::new(176, 8)).unwrap();
    let mut shown = |answer: Result<Vec<StreamReport>, String>, scroll| {
        terminal.draw(|frame| table::draw(frame, " top ", &answer, &Rates::default(), scroll)).unwrap();
        format!("{}", terminal.backend())
    };
    let view = shown(Ok(streams(0)), 0);
    assert!(view.contains("live (test)") && view.contains("192.0.2.1:5000"), "{view}");
    let scrolled = shown(Ok(streams(0)), 1);
    assert!(!scrolled.contains("live (test)") && scrolled.contains("192.0.2.1:5000"), "{scrolled}");
    assert!(shown(Ok(Vec::new()), 9).contains("STREAM"));
    assert!(shown(Err("no answer".to_owned()), 0).contains("no answer"));
}

#[test]
fn the_server_is_asked_over_http() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = fetch::Server::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let body = serde_json::to_string(&streams(5)).unwrap();
    let answers =
        [format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}"), "HTTP/1.1 404 Not Found\r\n\r\n".to_owned()];
    let answering = std::thread::spawn(move || {
        for answer in answers {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1000]).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    assert_eq!(server.streams().unwrap(), streams(5));
    let error = format!("{:#}", server.streams().unwrap_err());
    assert!(error.contains("is `freshwire serve` running there?: it answers HTTP/1.1 404"), "{error}");
    answering.join().unwrap();
    assert!(fetch::Server::parse("https://host").is_err());
}
