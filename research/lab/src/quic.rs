//! QUIC by quinn, to compare with: what both ends of a connection need.

use std::net::UdpSocket;
use std::sync::Arc;

use anyhow::Context as _;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};

/// The name that the certificate is made for.
pub(crate) const NAME: &str = "freshwire";

/// Both ends' settings, with a certificate of their own.
pub(crate) fn configurations(transport: TransportConfig) -> anyhow::Result<(ServerConfig, ClientConfig)> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).context("cannot make a certificate")?;
    let certificate = CertificateDer::from(made.cert);
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.clone())?;
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::with_root_certificates(Arc::new(trusted))?;
    client.transport_config(transport);
    Ok((server, client))
}

/// An endpoint on a socket of any namespace. Call in a runtime.
pub(crate) fn endpoint(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    config: EndpointConfig,
) -> anyhow::Result<Endpoint> {
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).context("cannot make an endpoint")
}
