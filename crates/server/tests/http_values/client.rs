use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use freshwire::websocket::{Event, Opcode, Reader, Role, header};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use crate::http_rig::Server;

const PATIENCE: Duration = Duration::from_secs(20);

/// The request of a WebSocket.
pub(super) fn handshake(host: &str, path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
    )
}

/// A connection, encrypted or not.
pub(super) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// The client's end of a connection to this server, which encrypts if the server does.
fn client(server: &Server, stream: TcpStream) -> Box<dyn Stream> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match &server.trust {
        None => Box::new(stream),
        Some(trust) => {
            let name = ServerName::try_from("localhost").unwrap();
            Box::new(StreamOwned::new(ClientConnection::new(Arc::clone(trust), name).unwrap(), stream))
        }
    }
}

/// The answer to this request, up to the end of the connection.
pub(super) fn ask(server: &Server, request: &str) -> String {
    let mut stream = client(server, TcpStream::connect(server.address).unwrap());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // An answer says itself how long it is, and the server closes behind it without an alert.
        Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}"),
    }
    String::from_utf8(answer).unwrap()
}

/// The head of an answer, read byte by byte: nothing behind it is taken.
fn read_head(socket: &mut dyn Stream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).expect("a whole head");
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).unwrap()
}

/// The head of the answer to a request.
pub(super) fn head(server: &Server, request: &str) -> String {
    let mut stream = client(server, TcpStream::connect(server.address).unwrap());
    stream.write_all(request.as_bytes()).unwrap();
    read_head(&mut *stream)
}

fn connect_with_buffer(server: &Server, bytes: usize) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    connect(&socket, &server.address).unwrap();
    socket.into()
}

/// A WebSocket client.
pub(super) struct Socket {
    stream: Box<dyn Stream>,
    reader: Reader,
    last: Option<Event>,
}

impl Socket {
    pub(super) fn open(server: &Server, path: &str) -> Self {
        Self::over(TcpStream::connect(server.address).unwrap(), server, path)
    }

    /// With a receive buffer of about this size.
    pub(super) fn open_with_buffer(server: &Server, path: &str, bytes: usize) -> Self {
        Self::over(connect_with_buffer(server, bytes), server, path)
    }

    fn over(stream: TcpStream, server: &Server, path: &str) -> Self {
        let mut stream = client(server, stream);
        stream.write_all(handshake(&server.address.to_string(), path, "").as_bytes()).unwrap();
        let head = read_head(&mut *stream);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Self { stream, reader: Reader::new(Role::Client, 1 << 20), last: None }
    }

    /// Bytes as they are.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A masked frame with this first byte.
    pub(super) fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = Vec::new();
        header(Opcode::Text, payload.len() as u64, &mut frame);
        frame[0] = first;
        frame[1] |= 0x80;
        let mask = [1, 2, 3, 4];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        // A server that has closed already says why in what it has sent.
        let _ = self.stream.write_all(&frame);
    }

    /// A text message.
    pub(super) fn say(&mut self, text: &str) {
        self.send(0x81, text.as_bytes());
    }

    /// The next event.
    pub(super) fn event(&mut self) -> Event {
        let mut buffer = [0; 4096];
        loop {
            if let Some(event) = self.reader.next() {
                let event = event.expect("the server keeps the protocol");
                self.last = Some(event.clone());
                return event;
            }
            let count = self.stream.read(&mut buffer).expect("an event in time");
            assert!(count > 0, "the server closed without a close frame");
            self.reader.push(&buffer[..count]);
        }
    }

    /// What [`event`](Self::event) gave last.
    pub(super) fn last(&self) -> Option<Event> {
        self.last.clone()
    }

    /// True if the server says that this is the end of the connection, and sends nothing before; over TLS that is an alert.
    pub(super) fn ends_in_order(&mut self) -> bool {
        self.reader.next().is_none() && matches!(self.stream.read(&mut [0; 64]), Ok(0))
    }

    /// True if the server closes the connection and sends nothing before.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.reader.next().is_none() && matches!(self.stream.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    /// The next text message, as JSON.
    pub(super) fn json(&mut self) -> Value {
        let Event::Text(text) = self.event() else { panic!("a text message") };
        serde_json::from_str(&text).unwrap()
    }

    /// The next value; one of bytes has them as an array.
    pub(super) fn value(&mut self) -> Value {
        match self.event() {
            Event::Text(text) => serde_json::from_str(&text).unwrap(),
            Event::Binary(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
                let mut value: Value = serde_json::from_slice(&bytes[..end]).unwrap();
                value["value"] = bytes[end + 1..].into();
                value
            }
            other => panic!("{other:?} is no value"),
        }
    }
}

/// A reader of server-sent events.
pub(super) struct Events {
    pub(super) head: String,
    stream: Box<dyn Stream>,
    buffer: String,
}

impl Events {
    pub(super) fn open(server: &Server, path: &str, headers: &str) -> Self {
        Self::over(TcpStream::connect(server.address).unwrap(), server, path, headers)
    }

    /// With a receive buffer of about this size.
    pub(super) fn open_with_buffer(server: &Server, path: &str, bytes: usize) -> Self {
        Self::over(connect_with_buffer(server, bytes), server, path, "")
    }

    fn over(stream: TcpStream, server: &Server, path: &str, headers: &str) -> Self {
        let mut stream = client(server, stream);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", server.address).unwrap();
        let head = read_head(&mut *stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self { head, stream, buffer: String::new() }
    }

    /// And its socket.
    pub(super) fn open_and_keep(server: &Server, path: &str) -> (Self, TcpStream) {
        let socket = TcpStream::connect(server.address).unwrap();
        let kept = socket.try_clone().unwrap();
        (Self::over(socket, server, path, ""), kept)
    }

    /// Number and data of the next event.
    pub(super) fn next(&mut self) -> (u64, Value) {
        loop {
            while let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let found = field("id: ").zip(field("data: "));
                let found =
                    found.map(|(id, data)| (id.parse().unwrap(), serde_json::from_str(data).unwrap()));
                self.buffer = rest.to_owned();
                if let Some(found) = found {
                    return found;
                }
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).expect("an event in time");
            assert!(count > 0, "the server closed");
            self.buffer.push_str(str::from_utf8(&bytes[..count]).unwrap());
        }
    }
}
