//! TLS: certificates from PEM files, and sessions that two threads share.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use freshwire::sink::Seal;
use tokio::io::ReadBuf;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ClientConfig, Connection, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate's file cannot be read.
    #[error("cannot read the certificate {}: {reason}; it must be a PEM file that this user may read", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The key's file cannot be read.
    #[error("cannot read the private key {}: {reason}; it must be a PEM file that this user may read", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// They do not belong together.
    #[error("the certificate {} and the key {} cannot be used together: {reason}", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The problem.
        reason: String,
    },
}

/// The server's certificate. All listeners share it, and a reload replaces it for the next handshake.
#[derive(Debug)]
pub struct Certificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    /// Reads the certificate with its chain, and its key.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(Arc::new(read(certificate, key)?));
        Ok(Arc::new(Self { current }))
    }

    /// Takes over another one for the handshakes to come.
    pub fn renew(&self, newer: &Self) {
        let newer = newer.current();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = newer;
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The maker of TLS sessions with it; `protocols` are offered in the handshake (ALPN).
    pub fn acceptor(self: &Arc<Self>, protocols: &[&str]) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("AWS-LC has the cipher suites of TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let no_certificate = |reason: String| TlsError::Certificate { path: certificate.to_owned(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| no_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(no_certificate("it has no CERTIFICATE section".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::Key { path: key.to_owned(), reason: error.to_string() })?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: error.to_string(),
    })
}

/// The maker of TLS sessions with other servers, whose certificates the system's authorities have to vouch for. `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` name other authorities.
///
/// # Errors
///
/// If no authority's certificate can be read.
pub(crate) fn connector() -> io::Result<TlsConnector> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or_else(|| "there is none".to_owned(), ToString::to_string);
        return Err(io::Error::other(format!(
            "no certificate authority is known: {why}; install ca-certificates, or name a PEM file in SSL_CERT_FILE"
        )));
    }
    Ok(connector_of(roots))
}

/// The same for one server, whose certificate an authority in this PEM file has to vouch for.
///
/// # Errors
///
/// If the file has no certificate.
pub(crate) fn connector_for(authorities: &Path) -> io::Result<TlsConnector> {
    let unusable = |why: String| {
        io::Error::other(format!(
            "{} is no PEM file with the certificate of an authority that this user may read: {why}",
            authorities.display()
        ))
    };
    let found = CertificateDer::pem_file_iter(authorities)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(found) {
        (0, _) => Err(unusable("it has none".to_owned())),
        _ => Ok(connector_of(roots)),
    }
}

fn connector_of(roots: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("AWS-LC has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Where the server's cryptography comes from.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A TLS session that one thread writes and another one reads.
///
/// Everything that leaves comes out of the session in one order, through [`TlsSeal`] alone: what reading makes it say,
/// such as an alert, waits inside for the seal's next call.
#[derive(Clone)]
pub(crate) struct Session(Arc<Mutex<Connection>>);

impl Session {
    pub(crate) fn new(mut connection: Connection) -> Self {
        // Each input is taken out in the same call.
        connection.set_buffer_limit(None);
        Self(Arc::new(Mutex::new(connection)))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves decrypted bytes into the buffer; none into it means the end. `None`: more has to be read from the wire.
    pub(crate) fn read_plain(&self, buffer: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        match self.lock().reader().read(buffer.initialize_unfilled()) {
            Ok(count) => {
                buffer.advance(count);
                Some(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // Many players hang up without a word. Requests say themselves whether they are complete.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes in what the socket has, once. Fails with `WouldBlock` if it has nothing.
    pub(crate) fn read_wire(&self, mut socket: &TcpStream) -> io::Result<()> {
        let mut connection = self.lock();
        connection.read_tls(&mut socket)?;
        connection.process_new_packets().map(drop).map_err(invalid)
    }
}

/// Encrypts a viewer's stream at the commit point.
pub(crate) struct TlsSeal {
    session: Session,
}

impl TlsSeal {
    pub(crate) fn new(session: Session) -> Self {
        Self { session }
    }

    fn take(connection: &mut Connection, out: &mut Vec<u8>) -> io::Result<()> {
        while connection.wants_write() {
            connection.write_tls(out)?;
        }
        Ok(())
    }
}

impl Seal for TlsSeal {
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.session.lock();
        connection.writer().write_all(plain)?;
        Self::take(&mut connection, out)
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        Self::take(&mut self.session.lock(), out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.session.lock();
        connection.send_close_notify();
        Self::take(&mut connection, out)
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
