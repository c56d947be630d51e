//! Readers of values over WebSocket: many that read at once, and some that are slow.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use freshwire::websocket::{Event, Reader, Role};
use freshwire_io::now;
use freshwire_record::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::histogram::Histogram;

/// A slow reader takes this much at a time.
const SIP_BYTES: usize = 200;
const SIP_EVERY: Duration = Duration::from_secs(1);

/// For a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

struct Client {
    socket: TcpStream,
    reader: Reader,
    values: u64,
}

/// What came to readers in a time.
#[derive(Default)]
pub(super) struct Reading {
    /// How old values were when fast readers had them.
    pub(super) delays: Histogram,
    /// Values of a fast reader in a second.
    pub(super) fast_values: f64,
    /// The same of a slow one.
    pub(super) slow_values: f64,
}

pub(super) struct Crowd {
    fast: Vec<Client>,
    slow: Vec<Client>,
    sip_at: Timestamp,
}

impl Client {
    fn open(http: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let mut socket = TcpStream::connect(http).context("cannot connect to the server")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: {http}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte).context("the server does not answer a reader")?;
            head.push(byte[0]);
        }
        anyhow::ensure!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        socket.set_nonblocking(true)?;
        Ok(Self { socket, reader: Reader::new(Role::Client, 1 << 20), values: 0 })
    }

    /// Reads at most this much. `since`: the time from which values count.
    fn read(
        &mut self,
        buffer: &mut [u8],
        since: Timestamp,
        delays: Option<&mut Histogram>,
    ) -> anyhow::Result<()> {
        match self.socket.read(buffer) {
            Ok(0) => anyhow::bail!("the server has ended a reader's connection"),
            Ok(count) => self.reader.push(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("a reader's connection broke"),
        }
        let arrived = now();
        let mut delays = delays;
        for event in self.reader.by_ref() {
            let Ok(Event::Text(text)) = event else { continue };
            let stamp = text.split_once("\"value\":[").and_then(|(_, rest)| rest.split_once(','));
            let Some(stamp) = stamp.and_then(|(stamp, _)| stamp.parse().ok()).map(Timestamp::from_nanos)
            else {
                continue;
            };
            if stamp >= since {
                self.values += 1;
                if let Some(delays) = &mut delays {
                    delays.add(arrived.saturating_since(stamp));
                }
            }
        }
        Ok(())
    }
}

impl Crowd {
    /// Each reader asks for `each` of the keys, its own ones as far as there are enough; 0 for all.
    pub(super) fn open(
        http: SocketAddr,
        fast: usize,
        slow: usize,
        keys: usize,
        each: usize,
    ) -> anyhow::Result<Self> {
        let path = |reader: usize| {
            let names = (0..each).map(|at| format!("key=bench%2F{}", (reader * each + at) % keys));
            format!("/state/values?{}", names.collect::<Vec<_>>().join("&"))
        };
        let open = |readers: std::ops::Range<usize>| {
            readers.map(|reader| Client::open(http, &path(reader))).collect::<anyhow::Result<Vec<_>>>()
        };
        Ok(Self { fast: open(0..fast)?, slow: open(fast..fast + slow)?, sip_at: now() })
    }

    /// Reads until this time what was published `since` then.
    pub(super) fn read_until(&mut self, since: Timestamp, until: Timestamp) -> anyhow::Result<Reading> {
        let mut reading = Reading::default();
        let (begin, mut buffer) = (now(), vec![0; 64 << 10]);
        self.fast.iter_mut().chain(&mut self.slow).for_each(|client| client.values = 0);
        loop {
            let time = now();
            if time >= until {
                break;
            }
            if time >= self.sip_at {
                self.sip_at = time + SIP_EVERY;
                for client in &mut self.slow {
                    client.read(&mut buffer[..SIP_BYTES], since, None)?;
                }
            }
            let left = until.min(self.sip_at).saturating_since(time);
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut files: Vec<_> =
                self.fast.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)).collect();
            poll(&mut files, Some(&timeout)).context("cannot wait for sockets")?;
            let ready: Vec<_> = files.iter().map(|file| !file.revents().is_empty()).collect();
            for (client, _) in self.fast.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                client.read(&mut buffer, since, Some(&mut reading.delays))?;
            }
        }
        let seconds = now().saturating_since(begin).as_secs_f64().max(1e-3);
        let each = |clients: &[Client]| {
            clients.iter().map(|client| client.values).sum::<u64>() as f64
                / clients.len().max(1) as f64
                / seconds
        };
        (reading.fast_values, reading.slow_values) = (each(&self.fast), each(&self.slow));
        Ok(reading)
    }
}
