//! `freshwire relay`: upstream's relay of Media over QUIC, in this process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use freshwire_moq::relay::{Relay, RelayConfig, RelayIdentity};
use freshwire_moq::token::{self, Scope};
use freshwire_record::parse_duration;
use freshwire_server::config::parse_listen;
use tracing::level_filters::LevelFilter;

use crate::output::{print, say};

#[derive(Args)]
#[command(
    after_help = "This is moq-relay, for trials and small trees; docs/relays.md says how to run it by itself in production.\n\nWithout \
    --tls a certificate is made at the start. Clients fetch its fingerprint over HTTP: they write http:// or moq+http://.\nWithout --key and \
    --public, programs of this machine may do everything, and the relay listens on the loopback address only."
)]
pub(crate) struct RelayArgs {
    /// Listen here, over UDP; :4443 for all addresses.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4443", value_parser = listen)]
    listen: SocketAddr,
    /// The certificate and the private key, PEM.
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"])]
    tls: Option<Vec<PathBuf>>,
    /// The key that tokens (?jwt=) are checked with, as --make-key or `moq auth generate` writes it.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Only make a key in this file.
    #[arg(long, value_name = "FILE")]
    make_key: Option<PathBuf>,
    /// Only print a token for these paths, such as demo/**, signed with --key.
    #[arg(long, value_name = "PATTERN", requires = "key")]
    sign: Option<String>,
    /// The token of --sign permits reading only.
    #[arg(long, requires = "sign")]
    read_only: bool,
    /// How long the token of --sign is valid.
    #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = parse_duration, requires = "sign")]
    valid_for: Duration,
    /// Paths that need no token, such as demo/** or **.
    #[arg(long, value_name = "PATTERN")]
    public: Vec<String>,
    /// Paths that need no token to be read.
    #[arg(long, value_name = "PATTERN")]
    public_read: Vec<String>,
    /// Another relay, whose streams are known here and the other way round: https://HOST:PORT/?jwt=TOKEN.
    #[arg(long = "peer", value_name = "URL")]
    peers: Vec<String>,
    /// The least important messages: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: LevelFilter,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    parse_listen(text)?.ok_or_else(|| "a relay has to listen somewhere, such as :4443".to_owned())
}

impl RelayArgs {
    fn config(&self) -> anyhow::Result<RelayConfig> {
        let mut public = self.public.clone();
        if public.is_empty() && self.public_read.is_empty() && self.key.is_none() {
            anyhow::ensure!(
                self.listen.ip().is_loopback(),
                "{} can be reached from other machines, and everybody could publish: give --key FILE, or say with --public '**' that \
                 everybody may",
                self.listen
            );
            public.push("**".to_owned());
        }
        let identity = match self.tls.as_deref() {
            Some([certificate, key]) => RelayIdentity::Files(certificate.clone(), key.clone()),
            _ => RelayIdentity::Generated(vec!["localhost".to_owned(), self.listen.ip().to_string()]),
        };
        Ok(RelayConfig {
            listen: self.listen,
            identity,
            key: self.key.clone(),
            public,
            public_read: self.public_read.clone(),
            peers: self.peers.clone(),
        })
    }
}

pub(crate) fn run(args: &RelayArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.make_key {
        token::make_key(path)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(pattern), Some(key)) = (&args.sign, &args.key) {
        let scope = if args.read_only { Scope::Read } else { Scope::Publish };
        print(&token::sign(key, pattern, scope, args.valid_for)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = args.config()?;
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_max_level(args.log_level).with_ansi(is_terminal);
    log.with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the relay's threads")?;
    runtime.block_on(async {
        let relay = Relay::open(&config).await?;
        let address = relay.address().unwrap_or(config.listen);
        let scheme = if args.tls.is_some() { "https" } else { "http" };
        say(&format!("moq      {address}"));
        say(&format!("announce a stream: freshwire serve live=test --relay {scheme}://{address}/demo"));
        relay.run().await?;
        Ok(ExitCode::SUCCESS)
    })
}
