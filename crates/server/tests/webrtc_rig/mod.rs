//! A client of WebRTC without a browser, and requests over HTTP.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc};

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends a request with these lines of its head, and reads the answer.
pub(crate) fn ask(server: SocketAddr, method: &str, path: &str, head: &str, body: &str) -> Answer {
    let mut socket = TcpStream::connect(server).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
    );
    let _ = socket.write_all(request.as_bytes());
    // The server may close while it is still written to; what it has said is there.
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

pub(crate) const SDP: &str = "content-type: application/sdp\r\n";

/// A client with its own socket. It offers, and receives what comes.
pub(crate) struct Client {
    rtc: Rtc,
    socket: UdpSocket,
    pending: Option<SdpPendingOffer>,
    /// The offer.
    pub(crate) offer: String,
    pub(crate) connected: bool,
    /// Packets of media that came, and the payload of the newest.
    pub(crate) packets: u64,
    pub(crate) payload: Vec<u8>,
    /// What the server has said to it as a page.
    pub(crate) said: Vec<String>,
    /// The server has left.
    pub(crate) ended: bool,
}

impl Client {
    /// One that receives these kinds.
    pub(crate) fn receiving(kinds: &[MediaKind]) -> Self {
        Self::offering(kinds, Direction::RecvOnly)
    }

    /// One that receives pictures and, as a page, asks for the time and listens to what the server says.
    pub(crate) fn page() -> Self {
        Self::new(&[MediaKind::Video], Direction::RecvOnly, true)
    }

    /// One that offers these kinds.
    pub(crate) fn offering(kinds: &[MediaKind], direction: Direction) -> Self {
        Self::new(kinds, direction, false)
    }

    fn new(kinds: &[MediaKind], direction: Direction, is_page: bool) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut rtc = Rtc::builder().set_rtp_mode(true).build(Instant::now());
        rtc.add_local_candidate(Candidate::host(socket.local_addr().unwrap(), "udp").unwrap());
        let mut changes = rtc.sdp_api();
        for &kind in kinds {
            changes.add_media(kind, direction, None, None, None);
        }
        if is_page {
            changes.add_channel("freshwire".to_owned());
        }
        let (offer, pending) = changes.apply().unwrap();
        let (offer, pending) = (offer.to_sdp_string(), Some(pending));
        let (payload, said) = (Vec::new(), Vec::new());
        Self { rtc, socket, pending, offer, connected: false, packets: 0, payload, said, ended: false }
    }

    /// Takes the server's answer.
    pub(crate) fn accept(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).unwrap();
        self.rtc.sdp_api().accept_answer(self.pending.take().unwrap(), answer).unwrap();
    }

    /// Takes part until the condition holds. Returns `false` if it does not in time.
    pub(crate) fn run(&mut self, patience: Duration, mut until: impl FnMut(&Self) -> bool) -> bool {
        let begin = Instant::now();
        let mut buffer = [0; 2000];
        while begin.elapsed() < patience {
            let due = self.turn();
            if until(self) {
                return true;
            }
            let wait = due.saturating_duration_since(Instant::now()).min(Duration::from_millis(20));
            self.socket.set_read_timeout(Some(wait.max(Duration::from_millis(1)))).unwrap();
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else {
                let _ = self.rtc.handle_input(Input::Timeout(Instant::now()));
                continue;
            };
            let to = self.socket.local_addr().unwrap();
            if let Ok(receive) = Receive::new(Protocol::Udp, from, to, &buffer[..length]) {
                let _ = self.rtc.handle_input(Input::Receive(Instant::now(), receive));
            }
        }
        false
    }

    /// Loses what comes while this holds, and says nothing.
    pub(crate) fn lose_while(&mut self, is_lossy: impl Fn() -> bool) {
        self.socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        while is_lossy() {
            let _ = self.socket.recv_from(&mut [0; 2000]);
        }
    }

    fn turn(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => return at,
                Ok(Output::Transmit(transmit)) => {
                    let _ = self.socket.send_to(&transmit.contents, transmit.destination);
                }
                Ok(Output::Event(Event::Connected)) => self.connected = true,
                Ok(Output::Event(Event::RtpPacket(packet))) => {
                    self.packets += 1;
                    self.payload = packet.payload.to_vec();
                }
                Ok(Output::Event(Event::ChannelOpen(id, _))) => {
                    let mut channel = self.rtc.channel(id).unwrap();
                    assert!(channel.write(false, br#"{"type":"ping","at":1}"#).unwrap());
                }
                Ok(Output::Event(Event::ChannelData(data))) => {
                    self.said.push(String::from_utf8(data.data).unwrap());
                }
                Ok(Output::Event(Event::Closed)) => self.ended = true,
                Ok(Output::Event(_)) => {}
                Err(_) => {
                    self.ended = true;
                    return Instant::now() + Duration::from_secs(1);
                }
            }
        }
    }
}
