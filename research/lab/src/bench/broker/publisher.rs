//! A publisher of MQTT 3.1.1 that shares no code with the server's side, and a look at what the broker counts.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_io::now;

/// From one bundle of messages to the next.
const TICK: Duration = Duration::from_millis(1);

/// What the broker counts may take a moment to be said.
const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes until it is stopped.
pub(super) struct Publisher {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
    port: u16,
}

impl Publisher {
    /// `rate` messages a second of about `bytes`, each of the next of `keys` topics. A value is `[NANOSECONDS,"xxx"]`.
    pub(super) fn start(broker: SocketAddr, keys: u32, rate: u32, bytes: usize) -> anyhow::Result<Self> {
        let mut socket = connect(broker, "publisher")?;
        let port = socket.local_addr()?.port();
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            let (begin, mut sent, mut out) = (now(), 0_u64, Vec::new());
            let padding = "x".repeat(bytes.saturating_sub(24));
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                let at = now();
                let due = (at.saturating_since(begin).as_secs_f64() * f64::from(rate)) as u64;
                // After a pause of the machine it goes on as before: a heap of old messages would say nothing.
                sent = sent.max(due.saturating_sub(u64::from(rate) / 20));
                out.clear();
                while sent < due {
                    let payload = format!("[{},\"{padding}\"]", at.as_nanos());
                    publish(&format!("bench/{}", sent % u64::from(keys)), payload.as_bytes(), &mut out);
                    sent += 1;
                }
                socket.write_all(&out).context("the broker takes no messages")?;
            }
            Ok(())
        });
        Ok(Self { stopped, thread, port })
    }

    /// The port of its connection.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the publisher has panicked"))?
    }
}

/// A connection that the broker has accepted.
fn connect(broker: SocketAddr, client: &str) -> anyhow::Result<TcpStream> {
    let mut socket = TcpStream::connect(broker).context("cannot connect to the broker")?;
    socket.set_nodelay(true)?;
    let mut body = b"\x00\x04MQTT\x04\x02\x00\x00".to_vec();
    body.extend((client.len() as u16).to_be_bytes());
    body.extend_from_slice(client.as_bytes());
    let mut out = Vec::new();
    packet(0x10, &body, &mut out);
    socket.write_all(&out)?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    anyhow::ensure!(answer == [0x20, 2, 0, 0], "the broker refuses the connection: {answer:?}");
    Ok(socket)
}

fn publish(topic: &str, payload: &[u8], out: &mut Vec<u8>) {
    let mut body = (topic.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(topic.as_bytes());
    body.extend_from_slice(payload);
    packet(0x30, &body, out);
}

fn packet(head: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(head);
    let mut length = body.len();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(body);
}

/// Messages that the broker has dropped, as it says itself.
pub(super) fn dropped_messages(broker: SocketAddr) -> anyhow::Result<f64> {
    const TOPIC: &str = "$SYS/broker/publish/messages/dropped";
    let mut socket = connect(broker, "counter")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut body = b"\x00\x01".to_vec();
    body.extend((TOPIC.len() as u16).to_be_bytes());
    body.extend_from_slice(TOPIC.as_bytes());
    body.push(0);
    let mut out = Vec::new();
    packet(0x82, &body, &mut out);
    socket.write_all(&out)?;
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head).context("the broker does not say what it has dropped")?;
        let mut body = vec![0; usize::from(head[1])];
        socket.read_exact(&mut body)?;
        if head[0] >> 4 == 3 {
            let text = body.get(2 + TOPIC.len()..).unwrap_or_default();
            return String::from_utf8_lossy(text).trim().parse().context("the broker's count is no number");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_their_length_in_front() {
        let mut out = Vec::new();
        publish("a", b"1", &mut out);
        assert_eq!(out, b"\x30\x04\x00\x01a1");
        out.clear();
        packet(0x30, &[0; 300], &mut out);
        assert_eq!(out[..3], [0x30, 0xac, 0x02]);
    }
}
