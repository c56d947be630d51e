//! Viewers by WebRTC: what comes is decrypted, as in a browser, and not decoded.
#![expect(clippy::disallowed_methods, reason = "str0m has the standard library's instants")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};

/// How long a server may take to answer, and a connection until media comes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest datagram.
const DATAGRAM_BYTES: usize = 2048;

/// Plays the stream `live` of the server, in a thread of its own; the bytes of media that have come, as datagrams.
pub(super) fn view(server: SocketAddr) -> anyhow::Result<Arc<AtomicU64>> {
    let (mut browser, offer, pending) = Browser::new()?;
    let answer = SdpAnswer::from_sdp_string(&ask(server, &offer)?).context("the answer is no SDP")?;
    browser.rtc.sdp_api().accept_answer(pending, answer).context("the answer does not fit")?;
    let bytes = Arc::clone(&browser.bytes);
    let (started, starts) = mpsc::channel();
    std::thread::spawn(move || {
        if let Err(error) = browser.run(&started) {
            crate::output::say(&format!("a viewer by WebRTC has ended: {error:#}"));
        }
    });
    starts.recv_timeout(PATIENCE).context("no media comes")?;
    Ok(bytes)
}

/// Hands the offer over by WHEP; the answer.
fn ask(server: SocketAddr, offer: &str) -> anyhow::Result<String> {
    let mut socket = TcpStream::connect(server).context("cannot connect to the server")?;
    socket.set_read_timeout(Some(PATIENCE)).context("cannot set a socket up")?;
    let length = offer.len();
    write!(
        socket,
        "POST /live/whep HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\ncontent-type: application/sdp\r\ncontent-length: {length}\r\n\r\n{offer}"
    )
    .context("cannot ask the server")?;
    let mut text = String::new();
    socket.read_to_string(&mut text).context("the server does not answer")?;
    let (head, body) = text.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    ensure!(head.split(' ').nth(1) == Some("201"), "the server refuses: {body}");
    Ok(body.to_owned())
}

struct Browser {
    rtc: Rtc,
    socket: UdpSocket,
    bytes: Arc<AtomicU64>,
    plays: bool,
}

impl Browser {
    /// A browser and what it offers.
    fn new() -> anyhow::Result<(Self, String, SdpPendingOffer)> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind a UDP port")?;
        let address = socket.local_addr().context("cannot tell a port")?;
        let mut rtc = Rtc::builder().set_rtp_mode(true).build(Instant::now());
        rtc.add_local_candidate(Candidate::host(address, "udp").context("the address is no candidate")?);
        let mut changes = rtc.sdp_api();
        changes.add_media(MediaKind::Video, Direction::RecvOnly, None, None, None);
        let (offer, pending) = changes.apply().context("there is no offer")?;
        Ok((Self { rtc, socket, bytes: Arc::default(), plays: false }, offer.to_sdp_string(), pending))
    }

    /// Takes part until the connection ends; says when media comes.
    fn run(&mut self, started: &mpsc::Sender<()>) -> anyhow::Result<()> {
        let to = self.socket.local_addr().context("cannot tell a port")?;
        let mut buffer = [0; DATAGRAM_BYTES];
        let mut is_announced = false;
        loop {
            let due = self.turn()?;
            if self.plays && !is_announced {
                is_announced = true;
                // The one that waits may have given up.
                let _ = started.send(());
            }
            let wait = due.saturating_duration_since(Instant::now());
            // None at all would mean to wait for ever.
            let wait = Some(wait.max(Duration::from_millis(1)));
            self.socket.set_read_timeout(wait).context("cannot set a socket up")?;
            let input = match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    if self.plays {
                        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
                    }
                    let Ok(receive) = Receive::new(Protocol::Udp, from, to, &buffer[..length]) else {
                        continue;
                    };
                    Input::Receive(Instant::now(), receive)
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    Input::Timeout(Instant::now())
                }
                Err(error) => return Err(error).context("cannot receive"),
            };
            self.rtc.handle_input(input).context("a datagram cannot be taken")?;
        }
    }

    fn turn(&mut self) -> anyhow::Result<Instant> {
        loop {
            match self.rtc.poll_output().context("the connection has failed")? {
                Output::Timeout(at) => return Ok(at),
                Output::Transmit(transmit) => {
                    self.socket.send_to(&transmit.contents, transmit.destination).context("cannot send")?;
                }
                Output::Event(Event::RtpPacket(_)) => self.plays = true,
                Output::Event(Event::Closed) => bail!("the server has left"),
                Output::Event(_) => {}
            }
        }
    }
}
