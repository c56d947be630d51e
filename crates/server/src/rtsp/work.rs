//! The cost of a client's bytes for the server, whatever they are.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bolero::{check, produce};
use rtsp_types::headers::{AUTHORIZATION, TRANSPORT};
use rustix::time::{ClockId, clock_gettime};

use super::common;
use super::message::{Bounds, Message, MessageReader, Request};
use super::target::Target;
use super::transport::offers;
use crate::access::{Access, Attempt, LinkKey, Password, Right, Rights, Rules, User};
use crate::config::Limits;

/// No request, and nothing of its size, costs more of the processor.
const MOST: Duration = Duration::from_millis(50);

/// The processor's time of this thread, which does not count what others have it for.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn access() -> Access {
    let user = User { password: Password::from_plain("anna", "sesame"), rights: Rights::all() };
    Access::new(Rules {
        users: [("anna".to_owned(), user)].into(),
        link_key: Some(LinkKey::new("a secret of some length")),
        ..Rules::default()
    })
}

/// All that is done with a request before anything is granted.
fn look_at(access: &Access, request: &Request) {
    let _ = common::refusal(request, None);
    let _ = common::cseq(request);
    let _ = offers(request.header(&TRANSPORT).unwrap_or_default()).count();
    let Ok(target) = Target::parse(&request.uri) else { return };
    let _ = access.check(&Attempt {
        right: Right::Publish,
        stream: &target.stream,
        method: request.method_name(),
        uri: &request.uri,
        query: target.query.as_deref(),
        authorization: request.header(&AUTHORIZATION),
        encrypted: true,
        base_path: "",
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 4000)),
        host: None,
    });
}

/// Reads the bytes in pieces of this size and looks at every request; how long that took.
fn read(access: &Access, bytes: &[u8], piece: usize) -> Duration {
    let limits = Limits::default();
    let bounds = Bounds { head: limits.max_header_bytes, body: limits.max_body_bytes };
    let mut reader = MessageReader::new(bounds);
    let began = spent();
    'all: for piece in bytes.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(None) => break,
                Ok(Some(Message::Request(request))) => look_at(access, &request),
                Ok(Some(_)) => {}
                Err(_) => break 'all,
            }
        }
    }
    spent() - began
}

#[test]
fn any_requests() {
    let pieces = [
        "OPTIONS rtsp://h/cam RTSP/1.0\r\nCSeq: 1\r\n\r\n",
        "SETUP rtsp://h/cam/trackID=0?sig=a&expires=1 RTSP/1.0\r\nCSeq: 1\r\n",
        "GET_PARAMETER rtsp://h/",
        "%41/../a=b&",
        " RTSP/1.0\r\n",
        "Transport: RTP/AVP;unicast;client_port=1-2,RTP/AVP/TCP;interleaved=0-1,;;;;;;\r\n",
        "Authorization: Digest ",
        "a=\"\\\\\\\"\",",
        "Authorization: Basic QUFBQUFBOkFBQUFBQQ==\r\n",
        "X: y\r\n",
        "Content-Length: 60000\r\n",
        "\r\n",
        " ",
        "$\0\0\x04abcd",
        "$\0\0\0",
        "x",
    ];
    let access = access();
    let plans = produce::<Vec<(u8, u8)>>().with().len(1..=6usize);
    let generator = (0..pieces.len(), 0..pieces.len(), plans, 0..4usize);
    check!().with_generator(generator).with_iterations(400).for_each(|(first, second, plan, size)| {
        let mut bytes = [pieces[*first], pieces[*second]].concat();
        let round: String = plan
            .iter()
            .map(|&(piece, times)| pieces[usize::from(piece) % pieces.len()].repeat(1 << (times % 8)))
            .collect();
        while bytes.len() < 64 << 10 {
            bytes.push_str(&round);
        }
        bytes.truncate(80 << 10);
        let size = [1 << 10, 4 << 10, 16 << 10, 80 << 10][*size];
        // A look at the clock may be unlucky, an input is not.
        let costs = (0..3).map(|_| read(&access, bytes.as_bytes(), size)).take_while(|cost| *cost > MOST);
        assert!(costs.count() < 3, "{first} {second} {plan:?} in pieces of {size}");
    });
}
