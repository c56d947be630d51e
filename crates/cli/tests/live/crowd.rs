//! Readers of values: many that read at once, and some that are too slow.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use freshwire::websocket::{Event, Opcode, Reader, Role, header};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

/// Far longer than anything here needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a slow reader takes at a time.
const SIP: usize = 128;

/// A WebSocket client on a socket that does not block.
pub(crate) struct Client {
    socket: TcpStream,
    reader: Reader,
    /// The text of its newest value.
    newest: String,
    messages: u64,
}

impl Client {
    /// Shakes hands. With a receive buffer of about this size, if one is given.
    pub(crate) fn open(http: SocketAddr, path: &str, buffer: Option<usize>) -> Self {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        if let Some(bytes) = buffer {
            sockopt::set_socket_recv_buffer_size(&fd, bytes).expect("set");
        }
        connect(&fd, &http).expect("it listens");
        let mut socket = TcpStream::from(fd);
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {http}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).expect("written");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte).expect("a whole head");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        socket.set_nonblocking(true).expect("set");
        Self { socket, reader: Reader::new(Role::Client, 1 << 20), newest: String::new(), messages: 0 }
    }

    /// A text message, masked.
    pub(crate) fn say(&mut self, text: &str) {
        let mut frame = Vec::new();
        header(Opcode::Text, text.len() as u64, &mut frame);
        frame[1] |= 0x80;
        // A mask of zeros leaves the text as it is.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text.as_bytes());
        self.socket.set_nonblocking(false).expect("set");
        self.socket.write_all(&frame).expect("written");
    }

    fn read(&mut self, most: usize) {
        let mut buffer = [0; 16 << 10];
        let most = most.min(buffer.len());
        match self.socket.read(&mut buffer[..most]) {
            Ok(count @ 1..) => self.reader.push(&buffer[..count]),
            Ok(0) => panic!("the server has closed after {} messages", self.messages),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error} after {} messages", self.messages),
        }
        for event in self.reader.by_ref() {
            if let Event::Text(text) = event.expect("the server keeps the protocol") {
                self.newest = text;
                self.messages += 1;
            }
        }
    }
}

/// Readers that read what is there, and readers that take a sip each time.
pub(crate) struct Crowd {
    fast: Vec<Client>,
    slow: Vec<Client>,
    sip_every: Duration,
    sip_at: Instant,
}

impl Crowd {
    pub(crate) fn new(http: SocketAddr, path: &str, fast: usize, slow: usize, sip_every: Duration) -> Self {
        let open = |buffer| move |_| Client::open(http, path, buffer);
        Self {
            fast: (0..fast).map(open(None)).collect(),
            slow: (0..slow).map(open(Some(4 << 10))).collect(),
            sip_every,
            sip_at: Instant::now(),
        }
    }

    /// Reads until this time.
    pub(crate) fn read_until(&mut self, until: Instant) {
        loop {
            let now = Instant::now();
            if now >= self.sip_at {
                self.sip_at = now + self.sip_every;
                self.slow.iter_mut().for_each(|client| client.read(SIP));
            }
            let left = until.min(self.sip_at).saturating_duration_since(now);
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut files: Vec<_> =
                self.fast.iter().map(|client| PollFd::new(&client.socket, PollFlags::IN)).collect();
            poll(&mut files, Some(&timeout)).expect("polled");
            let ready: Vec<_> = files.iter().map(|file| !file.revents().is_empty()).collect();
            for (client, _) in self.fast.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                client.read(usize::MAX);
            }
            if now >= until {
                return;
            }
        }
    }

    /// Reads until all that read at once have this in their newest value.
    #[track_caller]
    pub(crate) fn read_until_newest(&mut self, text: &str) {
        let give_up = Instant::now() + PATIENCE;
        while !self.fast.iter().all(|client| client.newest.contains(text)) {
            assert!(Instant::now() < give_up, "not all have {text:?}: {:?}", self.messages());
            self.read_until(Instant::now() + Duration::from_millis(20));
        }
    }

    /// The fewest and the most messages of a reader: of those that read at once, and of the slow ones.
    pub(crate) fn messages(&self) -> [(u64, u64); 2] {
        [&self.fast, &self.slow].map(|clients| {
            let counts = || clients.iter().map(|client| client.messages);
            (counts().min().unwrap_or(0), counts().max().unwrap_or(0))
        })
    }
}
