//! A game server: 50 objects, 60 updates of each a second, and clients that are plain TCP programs. A client on a slow path, or one that
//! reads slowly, sees every object equally often and is never behind.
//!
//! Without arguments the program starts three clients as processes of their own, one of which reads a tenth of what comes, and
//! serves them over loopback. Each role can be started alone, for example behind an emulated link:
//!
//! ```text
//! freshwire link --rate 200kbit --peer 'game_state serve 0.0.0.0:7000 480' -- game_state play 10.77.0.2:7000 client 0
//! ```

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use freshwire::sink::CloseMode;
use freshwire::{
    Engine, Meta, Outcome, RingConfig, Sender, Sink, SinkConfig, SinkId, Timestamp, choice, now,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const OBJECTS: u64 = 50;
/// Names of the clients, and how long each pauses after a state, in microseconds.
const CLIENTS: [(&str, &str); 3] = [("fast", "0"), ("fast-too", "0"), ("slow", "3200")];
const TICKS: u32 = 480;
const TICK: Duration = Duration::from_micros(16_667);
/// An object's number, the tick, the time, and what a game says of it.
const STATE_BYTES: usize = 100;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run_both(TICKS),
        ["both", ticks] => run_both(ticks.parse()?),
        ["serve", address, ticks] => serve(&TcpListener::bind(address)?, 1, ticks.parse()?),
        ["play", address, name, pause_us] => {
            play(connect(address)?, Duration::from_micros(pause_us.parse()?), name)
        }
        _ => Err("usage: game_state [both TICKS | serve ADDRESS TICKS | play ADDRESS NAME PAUSE_US]".into()),
    }
}

/// Serves clients that are processes of their own.
fn run_both(ticks: u32) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (program, address) = (std::env::current_exe()?, listener.local_addr()?.to_string());
    let play =
        |(name, pause): (&str, &str)| Command::new(&program).args(["play", &address, name, pause]).spawn();
    let clients = CLIENTS.map(play).into_iter().collect::<std::io::Result<Vec<_>>>()?;
    serve(&listener, CLIENTS.len() as u32, ticks)?;
    for mut client in clients {
        let status = client.wait()?;
        if !status.success() {
            return Err(format!("a client failed: {status}").into());
        }
    }
    Ok(())
}

fn connect(address: &str) -> Result<TcpStream> {
    let until = now() + Duration::from_secs(5);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn serve(listener: &TcpListener, clients: u32, ticks: u32) -> Result<()> {
    let engine = Engine::new()?.spawn()?;
    let config = RingConfig::for_clients(clients, OBJECTS as u32, STATE_BYTES as u32);
    let mut sender = Sender::new(&config, &engine.handle())?;
    let mut sinks: Vec<Sink> = Vec::new();
    for _ in 0..clients {
        let config = SinkConfig::new(choice::latest()).keys(OBJECTS as u32);
        sinks.push(sender.add_sink(listener.accept()?.0, config)?);
    }
    let mut outcomes = vec![BTreeMap::new(); sinks.len()];
    let begin = now();
    for tick in 0..ticks {
        for object in 1..=OBJECTS {
            let at = now();
            let mut state = [0; STATE_BYTES];
            for (place, word) in state.chunks_mut(8).zip([object, u64::from(tick), at.as_nanos()]) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            let meta = Meta { seq: u64::from(tick), generated: at, key: object, ..Meta::default() };
            for sink in &sinks {
                sender.replace(sink.id(), &state, &meta)?;
            }
        }
        std::thread::sleep((begin + TICK * (tick + 1)).saturating_since(now()));
        for (sink, outcomes) in sinks.iter().zip(&mut outcomes) {
            count(&mut sender, sink.id(), outcomes)?;
        }
    }
    for (sink, mut outcomes) in sinks.into_iter().zip(outcomes) {
        let (id, monitor) = (sink.id(), sink.monitor());
        sink.close(CloseMode::Drain, Duration::from_secs(30));
        count(&mut sender, id, &mut outcomes)?;
        let stats = monitor.stats();
        println!("{id}: {outcomes:?}; {} bytes unread at most", stats.unread_max);
        assert_eq!(sender.fates_lost(id), Ok(0));
    }
    Ok(())
}

/// Counts what became of the states of one client.
fn count(sender: &mut Sender, id: SinkId, outcomes: &mut BTreeMap<String, u32>) -> Result<()> {
    for fate in sender.fates(id)? {
        assert!(fate.outcome != Outcome::Refused, "with slots for its objects a ring refuses nothing");
        *outcomes.entry(fate.outcome.to_string()).or_insert(0) += 1;
    }
    Ok(())
}

/// Reads until the end and checks every object.
fn play(mut stream: TcpStream, pause: Duration, name: &str) -> Result<()> {
    let mut of_object: BTreeMap<u64, Vec<(u64, Duration)>> = BTreeMap::new();
    let (mut state, mut read, mut last_tick) = ([0; STATE_BYTES], 0, BTreeMap::new());
    while stream.read_exact(&mut state).is_ok() {
        let word = |at: usize| state[at..at + 8].iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let age = now().saturating_since(Timestamp::from_nanos(word(16)));
        of_object.entry(word(0)).or_default().push((read, age));
        last_tick.insert(word(0), word(8));
        read += 1;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let count = |of: &Vec<(u64, Duration)>| of.len();
    let (least, most) = (of_object.values().map(count).min(), of_object.values().map(count).max());
    let silence = of_object.values().flat_map(|of| of.windows(2).map(|two| two[1].0 - two[0].0)).max();
    let mut ages: Vec<Duration> = of_object.values().flatten().map(|&(_, age)| age).collect();
    ages.sort_unstable();
    let age = ages.iter().sum::<Duration>() / ages.len().max(1) as u32;
    println!(
        "{name}: {read} states, {} to {} of each object, silent for {} states at most; age {age:.0?}, p95 {:.0?}",
        least.unwrap_or(0),
        most.unwrap_or(0),
        silence.unwrap_or(0),
        ages.get(ages.len() * 95 / 100).copied().unwrap_or_default(),
    );
    // However slow a client is, it ends with the last state of each object.
    let newest = last_tick.values().copied().max();
    for object in 1..=OBJECTS {
        assert_eq!(last_tick.get(&object).copied(), newest, "object {object}: its last state");
    }
    Ok(())
}
