//! Connections to brokers, encrypted where they have to be.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, Error as TlsError};

use super::error::BrokerError;
use super::nats::Info;
use crate::config::{BrokerAddress, Subscription};
use crate::net::Conn;
use crate::tls;

/// How long a broker may take for each step, and to answer a question. As for cameras.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on which the protocol begins.
pub(super) struct Opened {
    pub(super) conn: Conn,
    /// What a NATS server has said of itself.
    pub(super) info: Info,
    /// What it has said behind it.
    pub(super) early: Vec<u8>,
}

pub(super) async fn within<T>(step: &'static str, future: impl Future<Output = T>) -> Result<T, BrokerError> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| BrokerError::Slow(PATIENCE, step))
}

/// Connects. An address with several IP addresses gets one that answers.
pub(super) async fn open(address: &BrokerAddress) -> Result<Opened, BrokerError> {
    let place = (address.host.as_str(), address.port);
    let found: Vec<_> = within("be found by its name", tokio::net::lookup_host(place))
        .await?
        .map_err(BrokerError::Name)?
        .collect();
    let mut socket =
        within("connect", TcpStream::connect(found.as_slice())).await?.map_err(BrokerError::Connect)?;
    // A socket that is gone already says so at the next read.
    let _ = socket.set_nodelay(true);
    let (info, early) = match &address.subscription {
        Subscription::Mqtt { .. } => (Info::default(), Vec::new()),
        _ => within("say hello", hello(&mut socket)).await??,
    };
    if !(address.tls || info.tls_required) {
        let conn = Conn::plain(socket).map_err(BrokerError::Io)?;
        return Ok(Opened { conn, info, early });
    }
    // Anybody on the way may have said what came in the clear.
    let conn = within("establish TLS", secure(address, socket)).await??;
    Ok(Opened { conn, info, early: Vec::new() })
}

/// The line that a NATS server says before anything else, also before TLS.
async fn hello(socket: &mut TcpStream) -> Result<(Info, Vec<u8>), BrokerError> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return Err(BrokerError::Unanswered),
            Ok(count) => said.extend(buffer.iter().take(count)),
        }
        if let Some((info, length)) = Info::read(&said)? {
            said.drain(..length);
            return Ok((info, said));
        }
    }
}

async fn secure(address: &BrokerAddress, socket: TcpStream) -> Result<Conn, BrokerError> {
    let peer = socket.peer_addr().map_err(BrokerError::Io)?;
    // A host's zone is not of its name.
    let host = address.host.split('%').next().unwrap_or_default().to_owned();
    let name = ServerName::try_from(host).map_err(|error| BrokerError::Certificate(error.to_string()))?;
    let connector = match &address.ca {
        Some(file) => tls::connector_for(file),
        None => tls::connector(),
    };
    let stream = connector.map_err(BrokerError::Ca)?.connect(name, socket).await.map_err(refusal)?;
    Ok(Conn::to_server(stream.into(), peer))
}

/// Why a handshake failed.
fn refusal(error: io::Error) -> BrokerError {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match tls {
        // An authority that was made anew has the same name and another key.
        Some(TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => BrokerError::UnknownAuthority,
        Some(TlsError::InvalidCertificate(why)) => BrokerError::Certificate(why.to_string()),
        _ => BrokerError::Tls(error),
    }
}
