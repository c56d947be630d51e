//! A player beside the server: it notes when each message arrives, and keeps it.

use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context as _, ensure};
use freshwire_netns::Namespaces;
use freshwire_record::Timestamp;

use super::flv::Tag;
use super::rtmp::{Client, PORT};

/// A message of the stream, and when it was whole.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) at: Timestamp,
    pub(super) tag: Tag,
}

/// A player at work.
pub(super) struct Player {
    socket: TcpStream,
    thread: JoinHandle<Vec<Arrival>>,
}

impl Player {
    /// Connects within the far namespace, and waits for the stream `key`.
    pub(super) fn start(namespaces: &Namespaces, key: &str) -> anyhow::Result<Self> {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, PORT));
        let socket = namespaces.in_far(connect)?.context("the player cannot connect")?;
        let mut client = Client::open(socket)?;
        client.play(key)?;
        client.wait_without_limit()?;
        let socket = client.socket()?;
        let thread = std::thread::spawn(move || {
            let mut arrivals = Vec::new();
            // The end is an error, too, while the server sends.
            while let Ok(Some(message)) = client.next() {
                let tag =
                    Tag { kind: message.message_type, dts_ms: message.timestamp, body: message.payload };
                arrivals.push(Arrival { at: freshwire_io::now(), tag });
            }
            arrivals
        });
        Ok(Self { socket, thread })
    }

    /// Ends it; everything that had arrived by then.
    ///
    /// # Errors
    ///
    /// If its connection had ended before.
    pub(super) fn stop(self) -> anyhow::Result<Vec<Arrival>> {
        ensure!(!self.thread.is_finished(), "the server ended the player's connection, or sent no RTMP");
        // Fails only when the server has closed already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread.join().map_err(|_| anyhow::anyhow!("the player panicked"))
    }
}
