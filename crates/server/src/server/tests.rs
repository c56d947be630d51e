use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::config::{Listen, parse_source};

/// Listens on ports that are free.
fn config(streams: &[(&str, &str)]) -> Config {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listen = Listen { plain: Some(any), tls: None };
    let stream = |&(name, source): &(&str, &str)| (name.to_owned(), parse_source(source).unwrap().into());
    Config {
        rtsp: listen,
        rtmp: listen,
        http: listen,
        internal: Some(any),
        streams: streams.iter().map(stream).collect(),
        ..Config::default()
    }
}

fn address(server: &Server, protocol: &str) -> SocketAddr {
    server.addresses().iter().find(|address| address.protocol == protocol).unwrap().address
}

fn names(server: &Server) -> Vec<String> {
    server.context().hub.streams().iter().map(|stream| stream.name().to_owned()).collect()
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = socket.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_protocols_answer_and_end_in_order() {
    let server = Server::start(config(&[("live", "publish")])).await.unwrap();
    let rtsp = address(&server, "rtsp");
    let options = ask(rtsp, &format!("OPTIONS rtsp://{rtsp}/live RTSP/1.0\r\nCSeq: 1\r\n\r\n")).await;
    assert!(options.starts_with("RTSP/1.0 200"), "{options}");
    let page = ask(address(&server, "http"), "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let health = ask(address(&server, "internal"), "GET /health HTTP/1.0\r\n\r\n").await;
    assert!(health.starts_with("HTTP/1."), "{health}");
    assert!(server.invitations().is_empty() && server.calls()[0].0 == "live", "nothing is there to see yet");
    let begin = Instant::now();
    server.stop().await;
    assert!(begin.elapsed() < FAREWELL, "{:?}", begin.elapsed());
    assert!(TcpStream::connect(rtsp).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_shown_the_addresses_that_matter() {
    let mut config = config(&[("state", "publish"), ("door", "rtsp://127.0.0.1:1/x")]);
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    config.tls = Some(crate::config::TlsFiles { certificate, key });
    for listen in [&mut config.http, &mut config.rtsp, &mut config.rtmp] {
        listen.tls = listen.plain;
    }
    config.base_path = crate::config::BasePath::parse("/cam").unwrap();
    let server = Server::start(config).await.unwrap();
    let [http, https, rtsp, rtsps] = ["http", "https", "rtsp", "rtsps"].map(|name| address(&server, name));
    let invitations = server.invitations();
    let ffplay = "ffplay -fflags nobuffer -rtsp_transport tcp";
    assert_eq!(
        invitations,
        [
            format!("{ffplay} rtsp://{rtsp}/door"),
            format!("{ffplay} rtsps://{rtsps}/door"),
            format!("http://{http}/cam/door"),
            format!("https://{https}/cam/door")
        ]
    );
    let calls = server.calls();
    let [(name, lines)] = &calls[..] else { panic!("{calls:?}") };
    let text = lines.join("\n");
    assert!(*name == "state" && lines.len() == 16 && !text.contains("ffplay"), "{text}");
    for (web, socket, at) in [("http", "ws", http), ("https", "wss", https)] {
        for expected in [
            format!("{web}://{at}/cam/state/watch"),
            format!("{socket}://{at}/cam/state/push"),
            format!("{socket}://{at}/cam/state/values"),
            format!("curl -N {web}://{at}/cam/state/events"),
            format!("curl --data '{{\"n\":1}}' {web}://{at}/cam/state/KEY"),
        ] {
            assert!(lines.iter().any(|line| line.ends_with(&expected)), "{expected} in {text}");
        }
    }
    assert!(text.contains(&format!("rtsps://{rtsps}/state")), "{text}");
    let [rtmp, rtmps] = ["rtmp", "rtmps"].map(|name| address(&server, name));
    assert!(text.contains(&format!("rtmp://{rtmp}/state")), "{text}");
    assert!(text.ends_with(&format!("-f flv rtmps://{rtmps}/state")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_ever() {
    let server = Server::start(config(&[])).await.unwrap();
    let mut silent = TcpStream::connect(address(&server, "rtsp")).await.unwrap();
    // Pause: the connection is silent for a while.
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::timeout(FAREWELL + Duration::from_secs(1), server.stop()).await.unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(1), silent.read(&mut [0; 8])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_adds_and_removes_streams_and_keeps_the_rest() {
    let mut server = Server::start(config(&[("a", "publish"), ("b", "publish")])).await.unwrap();
    let kept = server.context().hub.find("b").unwrap();
    let mut newer = config(&[("b", "publish"), ("c", "publish")]);
    newer.limits.max_connections = 7;
    newer.rtsp.plain = Some("127.0.0.1:1".parse().unwrap());
    newer.open = true;
    assert_eq!(server.reload(newer).unwrap(), ["rtsp"]);
    assert_eq!(names(&server), ["b", "c"]);
    assert!(Arc::ptr_eq(&kept, &server.context().hub.find("b").unwrap()));
    assert_eq!(server.context().limits().max_connections, 7);
    let refused = server.reload(config(&[("d", "/nowhere/film.ts")])).unwrap_err().to_string();
    assert!(refused.starts_with("stream d: /nowhere/film.ts: No such file"), "{refused}");
    assert_eq!(names(&server), ["b", "c"]);
    assert_eq!(server.context().limits().max_connections, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_changes_nothing() {
    let small = |streams: &[(&str, &str)]| {
        let mut config = config(streams);
        config.hub.max_streams = 2;
        config
    };
    let mut server = Server::start(small(&[("a", "publish"), ("b", "publish")])).await.unwrap();
    let kept = server.context().hub.find("a").unwrap();
    let refused = server.reload(small(&[("c", "publish"), ("d", "publish"), ("e", "publish")])).unwrap_err();
    assert!(refused.to_string().starts_with("2 streams are the limit"), "{refused}");
    assert_eq!(names(&server), ["a", "b"]);
    assert!(Arc::ptr_eq(&kept, &server.context().hub.find("a").unwrap()));
    // As many as before, though others.
    server.reload(small(&[("c", "publish"), ("d", "publish")])).unwrap();
    assert_eq!(names(&server), ["c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_names_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listening_on = |address: &str| {
        let mut config = config(&[]);
        config.rtsp.plain = Some(address.parse().unwrap());
        config
    };
    let mut without_rtmp = config(&[]);
    without_rtmp.rtmp.plain = taken.local_addr().ok();
    let server = Server::start(without_rtmp.clone()).await.unwrap();
    assert!(server.addresses().iter().all(|address| address.protocol != "rtmp"), "it was not asked for");
    without_rtmp.requires_rtmp = true;
    let mut no_certificate = config(&[]);
    let nowhere = std::path::PathBuf::from("/nowhere.pem");
    no_certificate.tls = Some(crate::config::TlsFiles { certificate: nowhere.clone(), key: nowhere });
    for (config, expected) in [
        (listening_on(&taken.local_addr().unwrap().to_string()), "another program listens there; end it"),
        (without_rtmp, "choose another port (--listen-rtsp, --listen-rtmp"),
        (listening_on("192.0.2.1:8554"), "can be reached from other machines"),
        (config(&[("x", "/nowhere/film.ts")]), "give a file that exists"),
        (no_certificate, "cannot read the certificate /nowhere.pem"),
    ] {
        let error = Server::start(config).await.err().unwrap().to_string();
        eprintln!("{error}");
        assert!(error.contains(expected), "{error}");
    }
    let mut open = listening_on("192.0.2.1:8554");
    open.open = true;
    let error = Server::start(open).await.err().unwrap().to_string();
    assert!(error.contains("this machine has no such address"), "{error}");
}
