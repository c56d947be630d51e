//! The state of a game: only the newest position of a player counts. A newer one takes the place of the one that still
//! waits, so a slow client falls behind in detail and never in time.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::ring::Replaced;
use freshwire::sink::CloseMode;
use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, choice, now};

const PLAYERS: u64 = 20;
const TICKS: u64 = 120;
const TICK: Duration = Duration::from_millis(16);
const STATE_BYTES: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let client = listener.accept()?.0;
    let playing = std::thread::spawn(move || play(client));

    let engine = Engine::new()?.spawn()?;
    let config = RingConfig { slots: 64, blocks: 64, ..RingConfig::default() };
    let mut sender = Sender::new(&config, &engine.handle())?;
    let sink = sender.add_sink(stream, SinkConfig::new(choice::latest()))?;
    let mut replaced = 0;
    for tick in 0..TICKS {
        for player in 0..PLAYERS {
            // Keys begin at 1: 0 is no key.
            let meta = Meta { seq: tick, generated: now(), key: player + 1, ..Meta::default() };
            let mut state = [0; STATE_BYTES];
            state[..8].copy_from_slice(&player.to_be_bytes());
            state[8..16].copy_from_slice(&tick.to_be_bytes());
            replaced +=
                u64::from(!matches!(sender.replace(sink.id(), &state, &meta)?, Replaced::Appended(_)));
        }
        std::thread::sleep(TICK);
    }
    println!("{} states were pushed, {replaced} took the place of an older one", TICKS * PLAYERS);
    sink.close(CloseMode::Drain, Duration::from_secs(5));
    let (count, newest) = playing.join().map_err(|_| "the client panicked")??;
    println!("the client read {count} states; last tick of each player: {newest:?}");
    assert!(newest.iter().all(|&tick| tick == TICKS - 1), "every player's last state must arrive");
    Ok(())
}

/// A client that reads a fifth of what comes.
fn play(mut client: TcpStream) -> std::io::Result<(u64, [u64; PLAYERS as usize])> {
    let (mut count, mut newest) = (0, [0; PLAYERS as usize]);
    let mut state = [0; STATE_BYTES];
    while client.read_exact(&mut state).is_ok() {
        let word = |at: usize| state[at..at + 8].iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        newest[word(0) as usize] = word(8);
        count += 1;
        std::thread::sleep(TICK / PLAYERS as u32 * 5);
    }
    Ok((count, newest))
}
