//! All that a client can send, from its bytes to the units of a stream.

use std::net::{Ipv4Addr, SocketAddr};

use bolero::{check, produce};
use freshwire_media::rtmp::amf0::{self, object};
use freshwire_media::rtmp::{Bounds, MessageReader};
use tokio::sync::watch;

use super::*;
use crate::access::{Access, Password, Rights, Rules, User};
use crate::config::{HubConfig, Limits};
use crate::hub::Hub;

fn context() -> Arc<Context> {
    let hub = Hub::new(HubConfig { max_streams: 2, ..HubConfig::default() }).expect("a hub");
    let user = User { password: Password::from_plain("anna", "sesame"), rights: Rights::all() };
    let anonymous = Rights { publish: ["live".to_owned()].into_iter().collect(), ..Rights::default() };
    let rules = Rules { users: [("anna".to_owned(), user)].into(), anonymous, ..Rules::default() };
    Arc::new(Context::new(hub, Access::new(rules), Limits::default(), watch::channel(false).1))
}

fn conversation(context: &Arc<Context>) -> Conversation {
    Conversation {
        context: Arc::clone(context),
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 4000)),
        is_private: true,
        app: None,
        user: None,
        session: None,
        lease: None,
        began: Instant::now(),
        heard: Instant::now(),
        pace: Pace::new(),
        talk: ControlTraffic::new(),
    }
}

fn command(name: &str, values: &[Value]) -> (u8, Vec<u8>) {
    (kind::COMMAND, amf0::write_all([name.into(), 1.0.into()].iter().chain(values)))
}

fn pieces() -> Vec<(u8, Vec<u8>)> {
    let connect = |app: &str| command("connect", &[object([("app", app.into())])]);
    let tag = |kind, body: &[u8]| (kind, body.to_vec());
    vec![
        connect("live"),
        connect("live?authmod=adobe&user=anna"),
        connect("live?authmod=adobe&user=anna&challenge=1&response=2&opaque=3"),
        command("createStream", &[Value::Null]),
        command("publish", &[Value::Null, "".into()]),
        command("publish", &[Value::Null, "~low?user=anna&pass=sesame".into()]),
        command("deleteStream", &[Value::Null, 1.0.into()]),
        command("play", &[Value::Null, "cam".into()]),
        (kind::DATA, amf0::write_all(&["onMetaData".into(), object([("videocodecid", 7.0.into())])])),
        tag(
            kind::VIDEO,
            b"\x17\0\0\0\0\x01\x42\xc0\x1e\xff\xe1\0\x05\x67\x42\xc0\x1e\x01\x01\0\x03\x68\xce\x02",
        ),
        tag(kind::VIDEO, b"\x17\x01\0\0\0\0\0\0\x02\x65\x88"),
        tag(kind::AUDIO, b"\xaf\0\x11\x90"),
        tag(kind::AUDIO, b"\xaf\x01\x21\x10\x04"),
        tag(kind::AGGREGATE, b"\x08\0\0\x03\0\0\0\0\0\0\0\xaf\x01\x21\0\0\0\x0e"),
        tag(kind::USER_CONTROL, &[0, 6, 0, 0, 0, 1]),
        tag(kind::SET_CHUNK_SIZE, &[0, 0, 0, 40]),
        tag(kind::COMMAND_AMF3, b"\0\x02\0\x01x"),
    ]
}

/// A server, and what runs its sessions.
struct Scene {
    context: Arc<Context>,
    runtime: tokio::runtime::Runtime,
}

/// After a panic nothing looks at it any more.
impl std::panic::RefUnwindSafe for Scene {}

impl Scene {
    /// All that these bytes do. Answers are commands that can be read.
    fn hear(&self, bytes: &[u8]) {
        self.runtime.block_on(async {
            let mut conversation = conversation(&self.context);
            let mut reader = MessageReader::new(Bounds { message: MOST_COMMAND_BYTES, chunk_streams: 8 });
            reader.push(bytes);
            while let Some(Ok(message)) = reader.next() {
                let mut answers = Answers::new();
                let done = conversation.take(&message, &mut answers).await;
                for (_, answer) in answers.iter().filter(|(_, answer)| answer.kind == kind::COMMAND) {
                    Command::read(answer).expect("a command");
                }
                if done.is_err() {
                    break;
                }
            }
            conversation.unpublish("the end");
        });
    }

    fn units(&self) -> u64 {
        self.context.hub.find("live").map_or(0, |stream| stream.snapshot().units)
    }

    fn is_free(&self) -> bool {
        self.context.hub.find("live").is_none_or(|stream| stream.snapshot().origin.is_none())
    }
}

fn write((kind, body): &(u8, Vec<u8>), time: u32, more: &[u8], chunk_stream: u8, bytes: &mut Vec<u8>) {
    let body = [body, more].concat();
    Message { timestamp: time, kind: *kind, stream: 1, body }.write(chunk_stream, 128, bytes);
}

/// Whatever comes, the answers are RTMP, the server goes on, and the name is free in the end.
#[test]
fn any_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let scene = Scene { context: context(), runtime: runtime.expect("a runtime") };
    let pieces = pieces();
    let mut usual = Vec::new();
    for piece in [0, 3, 4, 9, 10, 11, 12] {
        write(&pieces[piece], 0, &[], 3, &mut usual);
    }
    scene.hear(&usual);
    assert!(scene.units() > 0, "most sessions below begin so");
    let steps = produce::<Vec<(u8, u32, Vec<u8>)>>().with().len(0..12usize);
    check!().with_iterations(1000).with_generator((0..4usize, steps)).for_each(|(begin, steps)| {
        let mut bytes = if *begin > 0 { usual.clone() } else { Vec::new() };
        for (choice, time, more) in steps {
            match pieces.get(usize::from(*choice) % 20) {
                Some(piece) => write(piece, *time, more, 3 + choice % 4, &mut bytes),
                None => bytes.extend(more),
            }
        }
        scene.hear(&bytes);
        assert!(scene.is_free());
    });
}
