//! What a reload ends and what it leaves alone: each way to have a stream, by each credential, through each change.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

#[path = "reload/connection.rs"]
mod connection;
#[allow(dead_code, reason = "only its client is used")]
mod rtmp_rig;
mod rtsp_rig;
mod testing;
mod webrtc_rig;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use connection::{Addresses, Connection, Credential, Kind, Names};
use freshwire_media::unit::{Tracks, VideoCodec, VideoTrack};
use freshwire_server::access::LinkKey;
use freshwire_server::config::{Config, Listen};
use freshwire_server::hub::Publisher;
use freshwire_server::server::Server;
use freshwire_server::values::Content;
use rtsp_rig::Source;
use tokio::runtime::Runtime;

const SECRET: &str = "a secret of some length";
const SITE: &str = "https://portal.example";

/// The part of a configuration that changes.
#[derive(Clone)]
struct Setup {
    password: &'static str,
    view: &'static str,
    publish: &'static str,
    open_view: &'static str,
    open_publish: &'static str,
    secret: &'static str,
    sites: &'static str,
    has_anna: bool,
    has_bert: bool,
    streams: Vec<String>,
}

impl Setup {
    fn new() -> Self {
        let names = [Credential::Open, Credential::User].map(Names::of);
        Self {
            password: "sesame",
            view: "*",
            publish: "*",
            open_view: "open-*",
            open_publish: "open-*",
            secret: SECRET,
            sites: SITE,
            has_anna: true,
            has_bert: true,
            streams: names.into_iter().flat_map(|names| names.all()).collect(),
        }
    }

    fn config(&self) -> Config {
        let mut text = format!("[http]\ntrusted_origins = [{:?}]\n", self.sites);
        text += &format!("[access]\nlink_secret = {:?}\n", self.secret);
        text += &format!(
            "[access.anonymous]\nview = [{:?}]\npublish = [{:?}]\n",
            self.open_view, self.open_publish
        );
        let users = [("anna", self.has_anna, self.password), ("bert", self.has_bert, "other")];
        for (name, _, password) in users.into_iter().filter(|(_, is_there, _)| *is_there) {
            text += &format!("[access.users.{name}]\npassword = {password:?}\n");
            text += &format!("view = [{:?}]\npublish = [{:?}]\n", self.view, self.publish);
        }
        for stream in &self.streams {
            text += &format!("[streams.{stream}]\nsource = \"publish\"\n");
        }
        text += "[rtsp]\nmulticast = \"239.255.78.0/28\"\nmulticast_port = 35104\n";
        let mut config = Config::parse(&text, Path::new("freshwire.toml")).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listen = Listen { plain: Some(any), tls: None };
        (config.rtsp, config.rtmp, config.http, config.internal) = (listen, listen, listen, None);
        config.webrtc = Some(any);
        config
    }
}

/// A server, with what feeds its streams.
struct Scene {
    runtime: Runtime,
    server: Server,
    sources: Vec<Source>,
    connections: Vec<Connection>,
}

impl Scene {
    fn new(setup: &Setup, kinds: &[Kind], credentials: &[Credential]) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start(setup.config())).unwrap();
        let mut sources = Vec::new();
        for stream in ["open-cam", "closed-cam"] {
            let stream = server.context().hub.find(stream).unwrap();
            let publisher: Publisher = stream.publish("test", None).unwrap();
            let mut source = Source::of(publisher);
            source.push();
            sources.push(source);
        }
        let mut scene = Self { runtime, server, sources, connections: Vec::new() };
        scene.set("0");
        for &credential in credentials {
            for &kind in kinds.iter().filter(|kind| kind.is_of(credential)) {
                scene.open(kind, credential);
            }
        }
        scene.feed();
        scene
    }

    fn open(&mut self, kind: Kind, credential: Credential) {
        let address = |protocol: &str| {
            self.server.addresses().iter().find(|address| address.protocol == protocol).unwrap().address
        };
        let addresses = Addresses { rtsp: address("rtsp"), http: address("http"), rtmp: address("rtmp") };
        self.connections.push(Connection::open(kind, credential, addresses, &LinkKey::new(SECRET), SITE));
    }

    fn set(&self, value: &str) {
        for topic in self.server.context().topics.all() {
            topic.set("key", &Content::Json(value.to_owned())).unwrap();
        }
    }

    /// Everybody gets a picture and a value.
    fn feed(&mut self) {
        self.sources.iter_mut().for_each(Source::push);
        let mark = u8::try_from(self.sources[0].count - 1).unwrap();
        self.set(&format!("\"mark {mark}\""));
        for connection in &mut self.connections {
            connection.goes_on(mark);
        }
    }

    fn reload(&mut self, setup: &Setup) {
        let _entered = self.runtime.enter();
        self.server.reload(setup.config()).unwrap();
    }
}

/// Whether a change ends a connection of this kind by this credential.
type Ends = fn(Kind, Credential) -> bool;
type Change = fn(&mut Setup);

const CHANGES: [(&str, Change, Ends, &str); 15] = [
    ("nothing", |_| {}, |_, _| false, ""),
    ("another stream comes", |setup| setup.streams.push("new".to_owned()), |_, _| false, ""),
    (
        "a stream that nobody has goes",
        |setup| setup.streams.retain(|name| name != "open-spare"),
        |_, _| false,
        "",
    ),
    ("the user goes", |setup| setup.has_anna = false, |_, by| by == Credential::User, "the right to"),
    ("another user goes", |setup| setup.has_bert = false, |_, _| false, ""),
    ("another password", |setup| setup.password = "secret", |_, by| by == Credential::User, "the right to"),
    (
        "the user may not view",
        |setup| setup.view = "x",
        |kind, by| by == Credential::User && !kind.publishes(),
        "the right to view",
    ),
    (
        "the user may not publish",
        |setup| setup.publish = "x",
        |kind, by| by == Credential::User && kind.publishes(),
        "the right to publish",
    ),
    ("fewer rights, but these", |setup| (setup.view, setup.publish) = ("c*", "*o*"), |_, _| false, ""),
    (
        "another secret",
        |setup| setup.secret = "a new secret of some length",
        |_, by| by == Credential::Link,
        "the right to",
    ),
    (
        "viewing is not open",
        |setup| setup.open_view = "x",
        |kind, by| by.is_open() && !kind.publishes(),
        "the right to view",
    ),
    (
        "publishing is not open",
        |setup| setup.open_publish = "x",
        |kind, by| by.is_open() && kind.publishes(),
        "the right to publish",
    ),
    ("more is open", |setup| (setup.open_view, setup.open_publish) = ("*", "*"), |_, _| false, ""),
    (
        "the site is not trusted",
        |setup| setup.sites = "https://other.example",
        |_, by| by == Credential::Site,
        "pages of this site",
    ),
    (
        "streams go",
        |setup| setup.streams.retain(|name| !name.starts_with("open")),
        |_, by| by.is_open(),
        "the stream was removed",
    ),
];

const KINDS: [Kind; 15] = [
    Kind::RtspSetup,
    Kind::RtspTcp,
    Kind::RtspUdp,
    Kind::PublishTcp,
    Kind::PublishUdp,
    Kind::Pictures,
    Kind::Body("ts"),
    Kind::Body("mp4"),
    Kind::Body("fw"),
    Kind::Values,
    Kind::Events,
    Kind::Push,
    Kind::Whep,
    Kind::Whip,
    Kind::Rtmp,
];

#[test]
fn a_reload_ends_what_it_withdraws_and_nothing_else() {
    let start = Setup::new();
    let mut ended = BTreeMap::<bool, u32>::new();
    for (name, change, ends, reason) in CHANGES {
        let begin = Instant::now();
        let mut scene = Scene::new(&start, &KINDS, &Credential::ALL);
        let mut changed = start.clone();
        change(&mut changed);
        scene.reload(&changed);
        for mut connection in std::mem::take(&mut scene.connections) {
            let (kind, by) = connection.what();
            let ends = ends(kind, by);
            *ended.entry(ends).or_default() += 1;
            if ends {
                let why = connection.ends();
                assert!(why.is_none_or(|why| why.contains(reason)), "{name}: {kind:?} by {by:?}");
            } else {
                scene.connections.push(connection);
            }
        }
        println!("{name}: {} go on after {:?}", scene.connections.len(), begin.elapsed());
        scene.feed();
    }
    // Each kind by each credential, and by pages where pages can have it.
    assert_eq!((ended[&true], ended[&true] + ended[&false]), (108, 15 * (3 * 15 + 6)));
}

/// A stream that is removed and comes back is another one.
#[test]
fn nobody_stays_with_a_stream_that_was_replaced() {
    let start = Setup::new();
    let mut scene = Scene::new(&start, &KINDS, &Credential::ALL);
    let topic = scene.server.context().topics.find("open-cam").unwrap();
    scene.reload(&Setup { streams: Vec::new(), ..start.clone() });
    scene.reload(&start);
    for mut connection in std::mem::take(&mut scene.connections) {
        let (kind, by) = connection.what();
        let why = connection.ends();
        assert!(why.is_none_or(|why| why.contains("the stream was removed")), "{kind:?} by {by:?}");
    }
    let error = topic.set("key", &Content::Json("1".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "the stream was removed");
    scene.sources.clear();
    let newer = Scene::new(&start, &[Kind::Values], &[Credential::Open]);
    assert_eq!(newer.connections.len(), 1);
}

#[test]
fn members_of_a_multicast_group_end_with_the_stream() {
    let start = Setup::new();
    let mut scene = Scene::new(&start, &[Kind::Multicast], &[Credential::Open, Credential::User]);
    scene.reload(&Setup { has_anna: false, ..start.clone() });
    let mut user = scene.connections.pop().unwrap();
    assert_eq!(user.what().1, Credential::User);
    user.ends();
    scene.feed();
    let mut open = scene.connections.pop().unwrap();
    scene.reload(&Setup { streams: Vec::new(), ..start });
    assert!(open.ends().is_some_and(|why| why.contains("the stream was removed")));
}

/// `--open` lets everybody view; without it programs on this machine may do everything.
#[test]
fn closing_an_open_server_ends_those_who_had_no_password() {
    let start = Setup { open_view: "x", ..Setup::new() };
    let reload = |scene: &mut Scene, open: bool| {
        let mut config = start.config();
        config.open = open;
        let _entered = scene.runtime.enter();
        scene.server.reload(config).unwrap();
    };
    let mut scene = Scene::new(&start, &[], &[]);
    reload(&mut scene, true);
    for kind in [Kind::RtspTcp, Kind::Pictures, Kind::Values] {
        for by in [Credential::Open, Credential::Link] {
            scene.open(kind, by);
        }
    }
    reload(&mut scene, true);
    scene.feed();
    reload(&mut scene, false);
    for mut connection in std::mem::take(&mut scene.connections) {
        // A valid link lets in whether or not the server was open.
        if connection.what().1 == Credential::Link {
            scene.connections.push(connection);
        } else {
            connection.ends();
        }
    }
    assert_eq!(scene.connections.len(), 3);
    scene.feed();
}

/// RTSP and WHEP tell a client the codecs before it plays, and have no way to tell it others.
#[test]
fn a_changed_codec_ends_viewers_by_rtsp_and_whep() {
    let kinds = [Kind::RtspTcp, Kind::RtspUdp, Kind::Multicast, Kind::Whep];
    let mut scene = Scene::new(&Setup::new(), &kinds, &[Credential::Open]);
    let (sps, pps) = (vec![0x67, 0x42, 0xC0, 0x1F, 2], vec![0x68, 3, 4]);
    let of =
        |codec| Arc::new(Tracks { video: Some(VideoTrack { codec, width: 640, height: 360 }), audio: None });
    // Other parameter sets come with the pictures.
    let source = &mut scene.sources[0];
    source.tracks = of(VideoCodec::H264 { sps: sps.clone(), pps: pps.clone() });
    source.publisher.tracks(Arc::clone(&source.tracks));
    scene.feed();
    scene.sources[0].publisher.tracks(of(VideoCodec::H265 { vps: Vec::new(), sps, pps }));
    for mut connection in std::mem::take(&mut scene.connections) {
        let why = connection.ends();
        let (kind, _) = connection.what();
        assert!(why.is_some_and(|why| why.contains("codec of the stream has changed")), "{kind:?}");
    }
}
