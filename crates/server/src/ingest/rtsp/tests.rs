//! Pretended cameras, each with a habit that people reported.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, OnceLock};

use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::unit::Kind;

use super::client::Client;
use super::*;
use crate::hub::{Hub, HubConfig};

/// H.264, made by ffmpeg.
const CLIP: &[u8] = include_bytes!("../../../../media/src/demux/tests/clip.ts");

/// The NAL units of a key picture, parameter sets included.
fn picture() -> &'static [Vec<u8>] {
    static PICTURE: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PICTURE.get_or_init(|| {
        let mut demux = Demux::new(demux::Config::default());
        demux.push(CLIP);
        demux.finish();
        let key = demux.find_map(|event| match event {
            Ok(Event::Unit(unit)) if unit.head.kind == Kind::Video && unit.head.key => Some(unit),
            _ => None,
        });
        let unit = key.expect("the clip begins with one");
        let nal =
            |range: &std::ops::Range<u32>| unit.bytes[range.start as usize..range.end as usize].to_vec();
        unit.head.nals.iter().map(nal).collect()
    })
}

/// A camera for any number of connections.
fn camera(habit: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let talk =
                Talk { socket: socket.unwrap(), habit, address, read: Vec::new(), ports: None, channel: 0 };
            std::thread::spawn(move || talk.run());
        }
    });
    address
}

struct Talk {
    socket: TcpStream,
    habit: &'static str,
    address: SocketAddr,
    read: Vec<u8>,
    /// Where datagrams go.
    ports: Option<u16>,
    channel: u8,
}

impl Talk {
    fn run(mut self) {
        while let Some(head) = self.request() {
            let method = head.split(' ').next().unwrap_or_default().to_owned();
            if !self.answer(&method, &head) {
                return;
            }
        }
    }

    /// The next request; packets before it are reports.
    fn request(&mut self) -> Option<String> {
        loop {
            if let [b'$', _, high, low, rest @ ..] = &self.read[..] {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                if rest.len() >= len {
                    self.read.drain(..4 + len);
                    continue;
                }
            } else if let Some(at) = self.read.windows(4).position(|at| at == b"\r\n\r\n") {
                let head: Vec<u8> = self.read.drain(..at + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            let mut bytes = [0; 4096];
            let count = self.socket.read(&mut bytes).ok().filter(|&count| count > 0)?;
            self.read.extend(&bytes[..count]);
        }
    }

    fn say(&mut self, status: &str, cseq: &str, headers: &str, body: &str) {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("RTSP/1.0 {status}\r\nCSeq: {cseq}\r\n{headers}{length}\r\n");
        let head = if self.habit == "lf" { head.replace("\r\n", "\n") } else { head };
        let text = head + body;
        let _ = self.socket.write_all(text.as_bytes());
    }

    /// Answers; false if the connection is to be closed.
    fn answer(&mut self, method: &str, head: &str) -> bool {
        let cseq = head.split("CSeq: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or("0").to_owned();
        let url = format!("rtsp://{}/cam", self.address);
        let wants = match self.habit {
            "digest" | "closes" => Some(
                "WWW-Authenticate: Basic realm=\"cam\"\r\nWWW-Authenticate: Digest realm=\"cam\", nonce=\"n\"\r\n",
            ),
            "basic" => Some("WWW-Authenticate: Basic realm=\"cam\"\r\n"),
            _ => None,
        };
        let scheme = if self.habit == "basic" {
            "Authorization: Basic bWU6c2VzYW1l"
        } else {
            "Authorization: Digest username=\"me\""
        };
        if let Some(wants) = wants.filter(|_| method != "OPTIONS" && !head.contains(scheme)) {
            self.say("401 Unauthorized", &cseq, wants, "");
            return self.habit != "closes";
        }
        match method {
            "DESCRIBE" if self.habit == "redirect" && head.contains("/cam ") => {
                self.say("302 Moved", &cseq, "Location: /moved\r\n", "");
            }
            "DESCRIBE" => {
                let base =
                    if self.habit == "no base" { String::new() } else { format!("Content-Base: {url}/\r\n") };
                let control = if self.habit == "absolute" {
                    format!("{url}/trackID=1?x=1")
                } else {
                    "trackID=1".to_owned()
                };
                let body = format!(
                    "v=0\r\nc=IN \r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:{control}\r\n\
                     m=application/TP-LINK 0 RTP/AVP smart/1/90000\r\na=control:data\r\n"
                );
                self.say("200 OK", &cseq, &base, &body);
            }
            "SETUP" => self.setup(&cseq, head),
            "PLAY" => {
                if self.habit != "early" {
                    self.say("200 OK", &cseq, "", "");
                }
                self.play(&cseq);
                return false;
            }
            _ => self.say("200 OK", &cseq, "Public: GET_PARAMETER\r\n", ""),
        }
        true
    }

    fn setup(&mut self, cseq: &str, head: &str) {
        let session = match self.habit {
            "session" => "Session: ab-12.x ;timeout=7\r\n",
            "keep" => "Session: 1;timeout=1\r\n",
            _ => "Session: 1\r\n",
        };
        let client = head.split("client_port=").nth(1).and_then(|rest| rest.split('-').next()?.parse().ok());
        let transport = match (self.habit, client) {
            ("udp", None) => return self.say("461 Unsupported Transport", cseq, "", ""),
            ("udp", Some(port)) => {
                self.ports = Some(port);
                format!("RTP/AVP;unicast;client_port={port}-{};server_port=6970-6971", port + 1)
            }
            ("no transport", _) => return self.say("200 OK", cseq, session, ""),
            ("channels", _) => {
                self.channel = 9;
                "RTP/AVP/TCP; ssrc=0x6f7c; interleaved = 9-10".to_owned()
            }
            _ => "RTP/AVP/TCP;unicast;interleaved=0-1".to_owned(),
        };
        self.say("200 OK", cseq, &format!("Transport: {transport}\r\n{session}"), "");
    }

    fn play(&mut self, cseq: &str) {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seq = 0u16;
        for at in 0..60u32 {
            let ssrc = if self.habit == "sources" { at / 5 } else { 7 };
            let last = picture().len() - 1;
            for (nal_at, nal) in picture().iter().enumerate() {
                let mut packet = vec![0x80, if nal_at == last { 0xe0 } else { 0x60 }];
                packet.extend(seq.to_be_bytes());
                packet.extend((at * 3600).to_be_bytes());
                packet.extend(ssrc.to_be_bytes());
                packet.extend(nal);
                seq = seq.wrapping_add(1);
                if let Some(port) = self.ports {
                    let _ = datagrams.send_to(&packet, ("127.0.0.1", port));
                    continue;
                }
                let mut frame = vec![b'$', self.channel];
                frame.extend((packet.len() as u16).to_be_bytes());
                frame.extend(packet);
                if self.socket.write_all(&frame).is_err() {
                    return;
                }
            }
            let odd: &[u8] = match self.habit {
                "garbage" if at == 2 => b"\0\x01garbage",
                "nobody" => b"$\x3c\0\x05hello$\x01\0\x04\x80\0\0\x01$\x01\0\x08\x81\xcb\0\x01\0\0\0\x07",
                "asks" if at == 2 => {
                    b"OPTIONS * RTSP/1.0\r\nCSeq: 900\r\n\r\nANNOUNCE x RTSP/1.0\r\nCSeq: 901\r\n\r\n"
                }
                // The keep-alive of the session is refused, with the number of the request before.
                "keep" => b"RTSP/1.0 400 Bad Request\r\nCSeq: 1\r\n\r\n",
                _ => b"",
            };
            let _ = self.socket.write_all(odd);
            if at == 2 && self.habit == "early" {
                self.say("200 OK", cseq, "", "");
            }
            // Pause: the pace of the camera.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether 20 pictures come within ten seconds; if not, why.
async fn plays(url: &str) -> Result<(), String> {
    let hub = Hub::new(HubConfig::default()).unwrap();
    let stream = hub.stream("cam").unwrap();
    let camera = Camera::parse(url).unwrap();
    let enough = async {
        while stream.snapshot().units < 20 {
            // Pause: until the next look.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outlet = Outlet::from(Arc::clone(&stream));
    tokio::select! {
        result = playing::play(&camera, &outlet) => Err(format!("{result:?} after {} pictures", stream.snapshot().units)),
        () = enough => Ok(()),
        // Pause: the deadline.
        () = tokio::time::sleep(Duration::from_secs(10)) => Err(format!("{} pictures", stream.snapshot().units)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_camera_may_have_any_of_these_habits() {
    let habits = [
        "plain",
        "lf",
        "no base",
        "absolute",
        "session",
        "no transport",
        "channels",
        "early",
        "garbage",
        "nobody",
        "asks",
        "keep",
        "sources",
        "redirect",
        "udp",
        "digest",
        "closes",
        "basic",
    ];
    for habit in habits {
        let address = camera(habit);
        assert_eq!(plays(&format!("rtsp://me:sesame@{address}/cam")).await, Ok(()), "{habit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_goes_out_in_the_clear_only_if_the_address_says_so() {
    let ask = async |url: String, peer: Option<&str>| {
        let mut client = Client::connect(Camera::parse(&url).unwrap()).await.unwrap();
        if let Some(peer) = peer {
            client.peer = peer.parse().unwrap();
        }
        client.ask("DESCRIBE", "rtsp://cam/cam", &[]).await
    };
    let address = camera("basic");
    let url = format!("rtsp://me:sesame@{address}/cam");
    let refused = ask(url.clone(), Some("192.0.2.1:554")).await.unwrap_err().to_string();
    assert!(refused.contains("in the clear (Basic)") && refused.contains("#basic"), "{refused}");
    assert_eq!(ask(format!("{url}#basic"), Some("192.0.2.1:554")).await.unwrap().status, 200);
    assert_eq!(ask(url, None).await.unwrap().status, 200);
    let wrong = ask(format!("rtsp://me:other@{address}/cam"), None).await.unwrap_err().to_string();
    assert!(wrong.contains("does not take this user and password"), "{wrong}");
    let nobody = ask(format!("rtsp://{address}/cam"), None).await.unwrap_err().to_string();
    assert!(nobody.contains("asks for a user and a password"), "{nobody}");
}

/// A camera that says this to whatever it is asked, again and again.
fn hostile(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            std::thread::spawn(move || while socket.write_all(answer).is_ok() {});
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_camera_takes_bounded_memory_and_time() {
    for (answer, expected) in [
        (&[b'x'; 4096][..], "exceed"),
        (b"RTSP/1.0 200 OK\r\nX: y\r\nContent-Length: 4294967296\r\n\r\n", "at most 131072 are accepted"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length"),
    ] {
        let url = format!("rtsp://{}/cam", hostile(answer));
        let mut client = Client::connect(Camera::parse(&url).unwrap()).await.unwrap();
        let error = client.ask("DESCRIBE", &url, &[]).await.unwrap_err().to_string();
        assert!(error.starts_with("the camera breaks the protocol") && error.contains(expected), "{error}");
    }
    // Packets instead of an answer.
    let url = format!("rtsp://{}/cam", hostile(b"$\0\0\x10\x80\x60\0\0\0\0\0\0\0\0\0\0\0\0\0\0"));
    let mut client = Client::connect(Camera::parse(&url).unwrap()).await.unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(1), client.ask("OPTIONS", &url, &[])).await;
    assert!(asked.is_err(), "{asked:?}");
    let kept: usize = client.early.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(kept > 0 && kept <= MAX_EARLY_BYTES, "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_have_an_end() {
    let address = hostile(b"RTSP/1.0 302 Moved\r\nLocation: /cam\r\n\r\n");
    let error = plays(&format!("rtsp://{address}/cam")).await.unwrap_err();
    assert!(error.contains("Redirects"), "{error}");
}
