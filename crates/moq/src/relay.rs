//! Upstream's relay in this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use moq_auth::serve::{Keys, Policy};
use moq_auth::{Grant, Pattern, Request, lease};
use moq_relay::Config;
use tokio::task::JoinHandle;

use crate::error::MoqError;

/// How long sessions may take to leave when the relay stops. They connect elsewhere, or again. Chosen, not measured.
const DRAIN: Duration = Duration::from_secs(1);

/// How the relay runs.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where it listens, over UDP.
    pub listen: SocketAddr,
    /// Its certificate.
    pub identity: RelayIdentity,
    /// The file with the key that tokens are checked with, as `moq auth generate` writes it. It is read for each session.
    pub key: Option<PathBuf>,
    /// Paths that need no token to publish and to read, as patterns: `demo/**` is a subtree, `**` is all.
    pub public: Vec<String>,
    /// Paths that need no token to read.
    pub public_read: Vec<String>,
    /// Other relays, as addresses: `https://HOST/?jwt=TOKEN`. Streams of each are known to the other.
    pub peers: Vec<String>,
}

/// The certificate of a relay.
#[derive(Clone, Debug)]
pub enum RelayIdentity {
    /// Certificate with its chain, and private key, PEM. They are read again when they change.
    Files(PathBuf, PathBuf),
    /// One that is made at the start for these host names. Its fingerprint is served by HTTP over TCP, at the same port: for trials.
    Generated(Vec<String>),
}

/// A relay whose sockets are open.
pub struct Relay {
    relay: moq_relay::Relay,
    policy: Policy,
}

impl Relay {
    /// Opens its sockets.
    ///
    /// # Errors
    ///
    /// If the settings do not fit together, or an address or a file cannot be had.
    pub async fn open(config: &RelayConfig) -> Result<Self, MoqError> {
        let mut policy = Policy::default();
        policy.keys = config.key.clone().map(Keys::File);
        let public = patterns(&config.public)?;
        policy.public.publish = public.iter().cloned().collect();
        policy.public.subscribe = public.into_iter().chain(patterns(&config.public_read)?).collect();
        if policy.keys.is_none() && policy.public.is_empty() {
            let advice = "nobody may use it: give a key for tokens, or paths that need none";
            return Err(MoqError::Relay(advice.to_owned()));
        }
        let relay = moq_relay::Relay::load(settings(config)?).await;
        let relay = relay.map_err(|error| MoqError::Relay(format!("{error:#}")))?;
        Ok(Self { relay, policy })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.relay.addr()
    }

    /// Serves until the process is asked to end by SIGINT or SIGTERM.
    ///
    /// # Errors
    ///
    /// If it ends for another reason.
    pub async fn run(mut self) -> Result<(), MoqError> {
        let admissions = self.relay.admissions();
        let _admitting = admissions.map(|admissions| Admitting(tokio::spawn(admit(admissions, self.policy))));
        self.relay.run().await.map_err(|error| MoqError::Relay(format!("{error:#}")))
    }
}

/// The task that decides who may connect; it ends with this.
struct Admitting(JoinHandle<()>);

impl Drop for Admitting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Decides who may connect.
async fn admit(mut admissions: moq_relay::auth::Admissions, policy: Policy) {
    while let Some(admission) = admissions.next().await {
        match decide(&policy, &admission.request).await {
            Ok(grant) => admission.grant(lease::Consumer::fixed(grant)),
            Err(reason) => {
                let (path, remote) = (&admission.request.path, admission.request.remote);
                tracing::warn!(path, ?remote, reason, "a session is refused");
                admission.refuse(moq_relay::auth::Error::Refused);
            }
        }
    }
}

async fn decide(policy: &Policy, request: &Request) -> Result<Grant, String> {
    policy.decide(request).await.map_err(|refusal| refusal.to_string())
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>, MoqError> {
    let read = |text: &String| {
        let wrong = |error| MoqError::Relay(format!("the path {text:?}: {error}; write demo/** or **"));
        text.trim_start_matches('/').parse::<Pattern>().map_err(wrong)
    };
    texts.iter().map(read).collect()
}

fn settings(config: &RelayConfig) -> Result<Config, MoqError> {
    let mut settings = Config::default();
    settings.listen.bind = Some(moq_tokio::listen::Bind::Addr(config.listen));
    match &config.identity {
        RelayIdentity::Files(certificate, key) => {
            settings.listen.tls.cert = vec![certificate.clone()];
            settings.listen.tls.key = vec![key.clone()];
        }
        RelayIdentity::Generated(names) => {
            settings.listen.tls.generate.clone_from(names);
            settings.web.http.listen = Some(config.listen);
        }
    }
    settings.drain_timeout = DRAIN;
    for peer in &config.peers {
        let parsed = peer.parse();
        // The address may have a token.
        let parsed =
            parsed.map_err(|_| MoqError::Relay("a peer is no address: write https://HOST:PORT/".to_owned()));
        settings.cluster.connect.push(parsed?);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_file_is_upstreams() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/relays.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let block = page.split("```toml\n").find(|block| block.starts_with("[listen]")).expect("a block");
        let file = std::env::temp_dir().join(format!("freshwire-relay-{}.toml", std::process::id()));
        std::fs::write(&file, block.split("```").next().expect("its text")).expect("written");
        let read = Config::parse_and_merge(["moq-relay".into(), file.clone().into_os_string()]);
        let _ = std::fs::remove_file(&file);
        let settings = read.expect("settings");
        assert_eq!((settings.listen.tls.cert.len(), settings.cluster.connect.len()), (1, 1));
        assert!(settings.auth.url.is_some());
    }

    #[test]
    fn a_relay_that_nobody_can_use_is_refused() {
        let config = RelayConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            identity: RelayIdentity::Generated(vec!["localhost".to_owned()]),
            key: None,
            public: Vec::new(),
            public_read: Vec::new(),
            peers: Vec::new(),
        };
        let open = |config: &RelayConfig| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(Relay::open(config)).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(open(&config).contains("nobody may use it"));
        let wrong = RelayConfig { public: vec!["a//b".to_owned()], ..config.clone() };
        assert!(open(&wrong).contains("write demo/** or **"), "{}", open(&wrong));
        let peer =
            RelayConfig { public: vec!["**".to_owned()], peers: vec!["host:1".to_owned()], ..config.clone() };
        assert!(open(&peer).contains("a full URL"), "{}", open(&peer));
        let files = RelayIdentity::Files("/nowhere/c.pem".into(), "/nowhere/k.pem".into());
        let files = RelayConfig { public: vec!["**".to_owned()], identity: files, ..config };
        assert!(!open(&files).is_empty());
    }
}
