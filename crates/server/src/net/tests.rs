use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::config::Limits;
use crate::tasks::Tasks;
use crate::tls::{Certificate, TlsError};

/// A certificate for `localhost`, in files.
struct Files {
    folder: tempfile::TempDir,
    der: CertificateDer<'static>,
}

impl Files {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { folder, der: made.cert.der().clone() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self) -> Result<Arc<Certificate>, TlsError> {
        Certificate::load(&self.path("cert.pem"), &self.path("key.pem"))
    }

    fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(crate::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

async fn acceptor(files: Option<&Files>, limits: Limits) -> (Acceptor, SocketAddr, Arc<Admission>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admission = Arc::new(Admission::new(limits));
    let tls = files.map(|files| files.load().unwrap().acceptor(&["http/1.1"]));
    let acceptor = Acceptor::new(listener, tls, Arc::clone(&admission), Tasks::new()).unwrap();
    let address = acceptor.local_addr();
    (acceptor, address, admission)
}

/// Bytes that repeat with a period that is no power of two.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Uses a socket as the engine does: seals in pieces and writes, then ends.
async fn write_stream(socket: std::net::TcpStream, mut seal: Option<Box<dyn Seal>>, plain: Vec<u8>) {
    let mut socket = TcpStream::from_std(socket).unwrap();
    let mut wire = Vec::new();
    for piece in plain.chunks(40_000) {
        wire.clear();
        match &mut seal {
            Some(seal) => {
                seal.flush(&mut wire).unwrap();
                seal.seal(piece, &mut wire).unwrap();
            }
            None => wire.extend_from_slice(piece),
        }
        socket.write_all(&wire).await.unwrap();
    }
    wire.clear();
    if let Some(seal) = &mut seal {
        seal.finish(&mut wire).unwrap();
    }
    socket.write_all(&wire).await.unwrap();
    socket.shutdown().await.unwrap();
}

async fn conversation(files: Option<&Files>) {
    let (acceptor, address, admission) = acceptor(files, Limits::default()).await;
    let stream = pattern(3 << 20);
    let requests = pattern(300_000);
    let connector = files.map(Files::connector);
    let (expected, sent) = (stream.clone(), requests.clone());
    let client = tokio::spawn(async move {
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut read, mut write): (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) =
            match connector {
                Some(connector) => {
                    let name = ServerName::try_from("localhost").unwrap();
                    let (read, write) = tokio::io::split(connector.connect(name, socket).await.unwrap());
                    (Box::new(read), Box::new(write))
                }
                None => {
                    let (read, write) = socket.into_split();
                    (Box::new(read), Box::new(write))
                }
            };
        write.write_all(b"PLAY").await.unwrap();
        let writing = tokio::spawn(async move {
            for piece in sent.chunks(7000) {
                write.write_all(piece).await.unwrap();
                write.flush().await.unwrap();
            }
            write.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        // Fails if the stream ends without close_notify.
        read.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got.strip_prefix(b"200 OK").is_some_and(|rest| rest == expected));
    });
    let mut conn = acceptor.accept().await;
    assert_eq!(conn.is_encrypted(), files.is_some());
    let mut request = [0; 4];
    conn.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"PLAY");
    conn.write_all(b"200 OK").await.unwrap();
    conn.flush().await.unwrap();
    let Parts { socket, seal, mut reader } = conn.into_parts().unwrap();
    let writing = tokio::spawn(write_stream(socket, seal, stream));
    let mut got = Vec::new();
    tokio::io::copy(&mut reader, &mut got).await.unwrap();
    assert!(got == requests, "{} bytes of {}", got.len(), requests.len());
    client.await.unwrap();
    writing.await.unwrap();
    assert_eq!(admission.open(), 1);
    drop(reader);
    assert_eq!(admission.open(), 0);
}

#[tokio::test]
async fn a_plain_stream_and_requests_pass_each_other() {
    conversation(None).await;
}

#[tokio::test]
async fn a_sealed_stream_and_requests_pass_each_other() {
    conversation(Some(&Files::new())).await;
}

/// OpenSSL is not the library at this end: TLS 1.2 and 1.3, a key update asked for by the client, session tickets.
#[tokio::test]
async fn openssl_reads_a_sealed_stream() {
    if Command::new("openssl").arg("version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs openssl");
        eprintln!("skipped: there is no openssl");
        return;
    }
    let files = Files::new();
    let (acceptor, address, _) = acceptor(Some(&files), Limits::default()).await;
    for version in ["-tls1_2", "-tls1_3"] {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", version, "-connect"])
            .arg(address.to_string())
            .arg("-CAfile")
            .arg(files.path("cert.pem"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        client.stdin.as_mut().unwrap().write_all(b"PLAY\n").unwrap();
        let mut conn = acceptor.accept().await;
        let mut request = [0; 5];
        conn.read_exact(&mut request).await.unwrap();
        let Parts { socket, seal, mut reader } = conn.into_parts().unwrap();
        client.stdin.as_mut().unwrap().write_all(b"TEARDOWN\n").unwrap();
        reader.read_exact(&mut [0; 9]).await.unwrap();
        let stream = pattern(1 << 20);
        let expected = stream.clone();
        let writing = tokio::spawn(write_stream(socket, seal, stream));
        let output = tokio::task::spawn_blocking(move || client.wait_with_output().unwrap());
        assert!(output.await.unwrap().stdout == expected, "{version}");
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_handshake_holds_up_nobody_and_ends() {
    let files = Files::new();
    let limits = Limits { handshake_timeout: Duration::from_millis(300), ..Limits::default() };
    let (acceptor, address, admission) = acceptor(Some(&files), limits).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut rude = TcpStream::connect(address).await.unwrap();
    rude.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let connector = files.connector();
    let quick = tokio::spawn(async move {
        let socket = TcpStream::connect(address).await.unwrap();
        connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap()
    });
    let conn = tokio::time::timeout(Duration::from_millis(250), acceptor.accept()).await;
    assert!(conn.is_ok_and(|conn| conn.is_encrypted()));
    quick.await.unwrap();
    assert_eq!(silent.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(admission.failed_handshakes.value(), 2);
}

#[tokio::test]
async fn beyond_the_limit_a_connection_is_closed() {
    let (acceptor, address, admission) =
        acceptor(None, Limits { max_connections: 1, ..Limits::default() }).await;
    let _first = TcpStream::connect(address).await.unwrap();
    let conn = acceptor.accept().await;
    let mut second = TcpStream::connect(address).await.unwrap();
    assert_eq!(second.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(admission.refused.value(), 1);
    drop(conn);
    let _third = TcpStream::connect(address).await.unwrap();
    acceptor.accept().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_handshake_on() {
    let files = Files::new();
    let certificate = files.load().unwrap();
    let renewed = Files::new();
    std::fs::write(files.path("key.pem"), "nonsense").unwrap();
    assert!(files.load().is_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admission = Arc::new(Admission::new(Limits::default()));
    let acceptor = Acceptor::new(listener, Some(certificate.acceptor(&[])), admission, Tasks::new()).unwrap();
    for trusting in [&files, &renewed] {
        let socket = TcpStream::connect(acceptor.local_addr()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let (connected, _) = tokio::join!(trusting.connector().connect(name, socket), acceptor.accept());
        connected.unwrap();
        certificate.renew(&renewed.load().unwrap());
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_explained() {
    let (files, others) = (Files::new(), Files::new());
    let error = |certificate: &std::path::Path, key: &std::path::Path| {
        Certificate::load(certificate, key).unwrap_err().to_string()
    };
    let (certificate, key) = (files.path("cert.pem"), files.path("key.pem"));
    for (shown, expected) in [
        (error(&files.path("none.pem"), &key), "cannot read the certificate"),
        (error(&key, &key), "it has no CERTIFICATE section"),
        (error(&certificate, &certificate), "cannot read the private key"),
        (error(&certificate, &others.path("key.pem")), "cannot be used together"),
    ] {
        eprintln!("{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}
