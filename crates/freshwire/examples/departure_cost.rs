//! What departures in fates cost: processor time of the process for each record over loopback, with and without them.
//!
//! `departure_cost CARRIER WITH RECORDS BYTES`: `tcp` or `a1`, `on` or `off`. Each record waits for the fate of the one before it. Under
//! `strace -fc` it counts system calls.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::a1::{self, ConnectConfig, Node, NodeConfig};
use freshwire::{Engine, Meta, RingConfig, Sender, Sink, SinkConfig, choice, now};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const RING: RingConfig = RingConfig { rings: 1, slots: 64, block_bytes: 1448, blocks: 64 };

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [carrier, with, records, bytes] = &arguments[..] else {
        return Err("use: departure_cost tcp|a1 on|off RECORDS BYTES".into());
    };
    let (departures, records, payload) = (with == "on", records.parse()?, vec![7; bytes.parse()?]);
    match carrier.as_str() {
        "tcp" => over_tcp(departures, records, &payload),
        "a1" => over_a1(departures, records, &payload),
        other => Err(format!("{other} is neither tcp nor a1").into()),
    }
}

fn over_tcp(departures: bool, records: u64, payload: &[u8]) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let mut peer = listener.accept()?.0;
    std::thread::spawn(move || std::io::copy(&mut peer.by_ref(), &mut std::io::sink()));
    let engine = Engine::new()?.spawn()?;
    let mut sender = Sender::new(&RING, &engine.handle())?;
    let sink = sender.add_sink(stream, SinkConfig::new(choice::fifo()).departures(departures))?;
    measure(&mut sender, &sink, records, payload, || {})
}

fn over_a1(departures: bool, records: u64, payload: &[u8]) -> Result<()> {
    let bind = || -> Result<Node> { Ok(Node::bind("127.0.0.1:0".parse()?, NodeConfig::new()?)?) };
    let (near, far) = (bind()?, bind()?);
    let sending = near.connect(far.local_addr()?, &far.public_key(), &ConnectConfig::default())?;
    let receiving = far.accept(Duration::from_secs(10))?.ok_or("no connection")?;
    let mut sender = Sender::without_engine(&RING)?;
    let config = a1::SinkConfig::new(choice::fifo()).departures(departures);
    let sink = sender.add_a1_sink(&sending, config)?;
    measure(&mut sender, &sink, records, payload, || drop(receiving.recv(Duration::from_secs(10))))
}

fn measure(
    sender: &mut Sender,
    sink: &Sink,
    records: u64,
    payload: &[u8],
    mut receive: impl FnMut(),
) -> Result<()> {
    let (began, processor) = (now(), processor_time());
    for seq in 0..records {
        sender.push(sink.id(), payload, &Meta { seq, generated: now(), ..Meta::default() })?;
        receive();
        while sender.poll_fate(sink.id())?.is_none() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let (took, used) = (now().saturating_since(began), processor_time() - processor);
    println!("{:?} and {:?} of the processors a record", took / records as u32, used / records as u32);
    Ok(())
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
