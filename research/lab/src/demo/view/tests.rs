use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::state::Side;
use super::*;
use crate::demo::wire::Live;

fn state(coloured: bool) -> State {
    let mut sides: [Side; 3] = Default::default();
    for step in 1..=30_u64 {
        let mut live =
            Live { at_s: step as f64 / 10.0, on_air: true, received_bytes: step * 6400, ..Live::default() };
        live.age_s = live.at_s * 0.9;
        sides[0].take(&live);
        live.age_s = 0.4;
        live.emitted = [2, 19, 18, 36];
        live.arrived = [2, 19, 9, 3];
        live.dropped = [0, 0, 9, 33];
        live.reasons = [("layer-shed".to_owned(), 30), ("reference-lost".to_owned(), 12)].into();
        live.horizon_bytes = 1448;
        sides[1].take(&live);
        live.dropped = [0, 0, 9, 1];
        sides[2].take(&live);
    }
    State { link: "512kbit/s, 5 % loss".to_owned(), duration: Duration::from_secs(40), sides, coloured }
}

fn drawn(width: u16, height: u16, coloured: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::all(frame, &state(coloured))).unwrap();
    terminal
}

#[test]
fn all_sides_are_shown_in_full() {
    let text = drawn(160, 30, true).backend().to_string();
    for part in [
        "plain TCP",
        "Freshwire",
        "Freshwire, A1",
        "10 frames",
        "512 kbit/s",
        "1.4 kB",
        "42 frames",
        "30 layer-shed, 12 reference-lost",
        "2 of 2",
        "3 of 36",
        "3 of 40 s",
        "█",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn colour_follows_the_age_and_is_left_out_on_request() {
    let colours = |coloured| {
        let terminal = drawn(100, 30, coloured);
        terminal.backend().buffer().content().iter().map(|cell| cell.fg).collect::<Vec<_>>()
    };
    assert!(colours(true).contains(&Color::Red) && colours(true).contains(&Color::Green));
    assert!(colours(false).iter().all(|&colour| colour == Color::Reset));
}

#[test]
fn no_terminal_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
        drawn(width, height, true);
    }
}
