//! `freshwire serve`: the live server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use freshwire_server::access::{Names, Password, Rights, User};
use freshwire_server::config::{
    Config, RelayAddress, StreamConfig, Target, TlsFiles, default_name, link_key, parse_listen,
    parse_named_source,
};
use freshwire_server::ingest::Source;
use freshwire_server::log::{self, LogEnd};
use freshwire_server::priority::set_nice;
use freshwire_server::server::{self, Inherited, Server};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::output::say;
use crate::sign;

#[derive(Args)]
#[command(
    after_help = "Signed links (`freshwire sign`) are let in whose secret is the file's link_secret, or else the environment's \
    FRESHWIRE_LINK_SECRET.\n\nSOURCE is `test`, `-` for standard input, a path, rtsp://HOST/PATH, moq://HOST/PATH/NAME, or `publish` for whoever \
    publishes it; NAME=SOURCE names the stream. Values by key come from a broker with mqtt://HOST/TOPIC (mqtts://), \
    nats://HOST/SUBJECT (tls://) or nats://HOST/kv/BUCKET, each with ?ca=FILE for an authority of one's own.\nWithout a source, encoders can publish streams under any name."
)]
pub(crate) struct ServeArgs {
    /// What to serve: [NAME=]SOURCE.
    sources: Vec<String>,
    /// Read settings from this TOML file; SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve RTSP here [default: 127.0.0.1:8554]; :8554 for all addresses, none for not at all.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen_rtsp: Option<Listen>,
    /// Take publishers by RTMP here [default: 127.0.0.1:1935]; :1935 for all addresses, none for not at all.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen_rtmp: Option<Listen>,
    /// Serve the page here [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen_http: Option<Listen>,
    /// Serve WebRTC here, over UDP [default: 127.0.0.1:8189].
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen_webrtc: Option<Listen>,
    /// Serve /metrics, /health and /api/streams here, without any password [default: 127.0.0.1:9464].
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen_internal: Option<Listen>,
    /// Encrypt with the certificate and the private key in these PEM files.
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"])]
    tls: Option<Vec<PathBuf>>,
    /// Publish a stream to this server: [NAME=]rtmp://HOST/APP/KEY or rtmps://. For a moment the list of processes shows the key: prefer
    /// --config.
    // Read later: clap's errors would show the key.
    #[arg(long = "forward", value_name = "URL")]
    forward: Vec<String>,
    /// Announce all streams, or the named one, at this relay of Media over QUIC: [NAME=]https://HOST:PORT/PATH. A token (?jwt=) is
    /// shown by the list of processes for a moment: prefer --config.
    // Read later: clap's errors would show the token.
    #[arg(long = "relay", value_name = "URL")]
    relays: Vec<String>,
    /// Let everybody view. To publish, others than this machine's programs still need a user.
    #[arg(long)]
    open: bool,
    /// A user who may view and publish all streams. For a moment the list of processes shows the password: prefer --config.
    // Read later: clap's errors would show the password.
    #[arg(long = "user", value_name = "NAME:PASSWORD")]
    users: Vec<String>,
    /// Threads that write to viewers, 1 to 64 [default: one per processor].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    engines: Option<u8>,
    /// Check the settings and end.
    #[arg(long)]
    check: bool,
    /// How the log is written.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// The least important messages: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
}

/// `None` is not served.
#[derive(Clone, Copy)]
struct Listen(Option<SocketAddr>);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

fn listen(text: &str) -> Result<Listen, String> {
    parse_listen(text).map(Listen)
}

fn user(text: &str) -> Result<(String, User), String> {
    match text.split_once(':') {
        Some((name, password)) if !name.is_empty() && !password.is_empty() => {
            let rights = Rights { broker: Names::default(), ..Rights::all() };
            Ok((name.to_owned(), User { password: Password::from_plain(name, password), rights }))
        }
        _ => Err("--user: write NAME:PASSWORD".to_owned()),
    }
}

impl ServeArgs {
    /// The file's settings, or the defaults, with what the command line says on top.
    fn settings(&self) -> anyhow::Result<Config> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)?;
        for (given, target) in [
            (self.listen_rtsp, &mut config.rtsp.plain),
            (self.listen_rtmp, &mut config.rtmp.plain),
            (self.listen_http, &mut config.http.plain),
            (self.listen_webrtc, &mut config.webrtc),
            (self.listen_internal, &mut config.internal),
        ] {
            if let Some(Listen(address)) = given {
                *target = address;
            }
        }
        config.requires_rtmp |= self.listen_rtmp.is_some();
        if let Some([certificate, key]) = self.tls.as_deref() {
            config.tls = Some(TlsFiles { certificate: certificate.clone(), key: key.clone() });
            config.complete_tls();
        }
        config.open |= self.open;
        if let Some(engines) = self.engines {
            config.hub.engines = engines.into();
        }
        for text in &self.users {
            let (name, user) = user(text).map_err(|error| anyhow!(error))?;
            config.access.users.insert(name, user);
        }
        take_link_secret(&mut config, std::env::var_os(sign::VARIABLE))?;
        Ok(config)
    }

    /// Adds the command line's streams.
    fn add_sources(&self, config: &mut Config) -> anyhow::Result<()> {
        for text in &self.sources {
            let (name, source) = parse_named_source(text)?;
            let name =
                name.unwrap_or_else(|| default_name(&source, |name| config.streams.contains_key(name)));
            if config.streams.contains_key(&name) {
                bail!("there are two streams {name}; name one of them: NAME={source}");
            }
            config.streams.insert(name, StreamConfig::from(source));
        }
        let inputs = config.streams.values().filter(|stream| stream.source == Source::Stdin).count();
        if inputs > 1 {
            bail!("standard input can be the source of one stream only");
        }
        Ok(())
    }

    /// Adds the command line's targets to their streams.
    fn add_targets(&self, config: &mut Config) -> anyhow::Result<()> {
        for text in &self.forward {
            let (name, url) = split_name(text);
            let target: Target = url.parse().map_err(|error| anyhow!("--forward: {error}"))?;
            let mut names = config.streams.keys();
            let name = match (name, names.next(), names.next()) {
                (Some(name), ..) => name.to_owned(),
                (None, Some(only), None) => only.clone(),
                (None, None, _) => bail!(
                    "--forward: there is no stream to publish; name one, such as: freshwire serve live=publish --forward URL"
                ),
                (None, ..) => {
                    bail!("--forward: there are several streams; write which one: NAME=rtmp://HOST/APP/KEY")
                }
            };
            let Some(stream) = config.streams.get_mut(&name) else {
                bail!("--forward: there is no stream {name:?}; add {name}=publish, or {name}=SOURCE");
            };
            if !stream.forward.contains(&target) {
                stream.forward.push(target);
            }
        }
        Ok(())
    }

    /// Adds the command line's relays to their streams.
    fn add_relays(&self, config: &mut Config) -> anyhow::Result<()> {
        for text in &self.relays {
            let (name, url) = split_name(text);
            let relay: RelayAddress = url.parse().map_err(|error| anyhow!("--relay: {error}"))?;
            if config.streams.is_empty() {
                bail!(
                    "--relay: there is no stream to announce; name one, such as: freshwire serve live=publish --relay URL"
                );
            }
            if let Some(name) = name.filter(|name| !config.streams.contains_key(*name)) {
                bail!("--relay: there is no stream {name:?}; add {name}=publish, or {name}=SOURCE");
            }
            let streams = config.streams.iter_mut().filter(|(own, _)| name.is_none_or(|name| name == *own));
            for (_, stream) in streams {
                if !stream.relays.contains(&relay) {
                    stream.relays.push(relay.clone());
                }
            }
        }
        Ok(())
    }

    fn read(&self) -> anyhow::Result<Config> {
        let mut config = self.settings()?;
        self.add_sources(&mut config)?;
        self.add_targets(&mut config)?;
        self.add_relays(&mut config)?;
        Ok(config)
    }

    fn complete(&self) -> anyhow::Result<Config> {
        let config = self.read()?;
        config.check()?;
        Ok(config)
    }
}

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let inherited = Inherited::from_environment()?;
    let config = args.complete()?;
    if args.check {
        say(&checked(&config, args.config.as_deref()));
        return Ok(ExitCode::SUCCESS);
    }
    let _log = log(args.log_format, args.log_level)?;
    if let Err(error) = set_nice(config.nice) {
        tracing::info!(
            %error,
            "busy programs may delay what is sent by some milliseconds: the system does not allow the nice value; give the server \
             CAP_SYS_NICE or `ulimit -e 30`, or set [process] nice to 0"
        );
    }
    freshwire_io::share_heap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the server's threads")?;
    runtime.block_on(async {
        let server = Server::start_on(inherited, config).await?;
        if args.log_format == LogFormat::Text {
            welcome(&server);
        }
        server::run(server, || args.config.is_some().then(|| args.read())).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The name of a stream in front of an address, if there is one. An address may have `=` behind its scheme.
fn split_name(text: &str) -> (Option<&str>, &str) {
    let scheme = text.find("://").unwrap_or(text.len());
    match text.find('=').filter(|&at| at < scheme) {
        Some(at) => (Some(&text[..at]), &text[at + 1..]),
        None => (None, text),
    }
}

/// Takes the secret of signed links from where `sign` has it, unless the file has one.
fn take_link_secret(config: &mut Config, variable: Option<OsString>) -> anyhow::Result<()> {
    if let (None, Some(secret)) = (&config.access.link_key, variable) {
        let secret = secret.to_str().with_context(|| format!("{} is no text", sign::VARIABLE))?;
        let key = link_key(secret).map_err(|error| anyhow!("{}: {error}", sign::VARIABLE))?;
        config.access.link_key = Some(key);
    }
    Ok(())
}

fn checked(config: &Config, file: Option<&Path>) -> String {
    let place = file.map_or_else(|| "the command line".to_owned(), |path| path.display().to_string());
    format!("{place} is fine: {} streams, {} users", config.streams.len(), config.access.users.len())
}

fn welcome(server: &Server) {
    for address in server.addresses() {
        say(&format!("{:8} {}", address.protocol, address.address));
    }
    let (invitations, calls) = (server.invitations(), server.calls());
    for (name, lines) in &calls {
        say(&format!("{name} waits for a publisher:"));
        for line in lines {
            say(&format!("  {line}"));
        }
    }
    if invitations.is_empty() && calls.is_empty() {
        say(
            "no stream yet: publish one, such as with ffmpeg ... -f rtsp -rtsp_transport tcp rtsp://127.0.0.1:8554/live, or from OBS \
             to rtmp://127.0.0.1/live",
        );
    }
    if !invitations.is_empty() {
        say("watch with:");
    }
    for invitation in invitations {
        say(&format!("  {invitation}"));
    }
}

/// Begins the log. It never fails and never waits: who reads it may be gone, or its disk full.
fn log(format: LogFormat, level: LevelFilter) -> anyhow::Result<LogEnd> {
    let (writer, end) = log::to(std::io::stderr()).context("cannot start the log's thread")?;
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .log_internal_errors(false)
        .with_writer(move || writer.clone());
    // It warns of every box of ffmpeg's that it has no name for.
    let mut targets =
        Targets::new().with_default(level).with_target("mp4_atom", level.min(LevelFilter::ERROR));
    // The libraries of relays warn of each failure that the server reports in its own words.
    if level <= LevelFilter::INFO {
        let libraries = ["moq_net", "moq_tokio", "moq_mux", "moq_sock", "web_transport_moq", "hang"];
        targets = targets.with_targets(libraries.map(|library| (library, level.min(LevelFilter::ERROR))));
    }
    match format {
        LogFormat::Text => {
            let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(is_terminal).finish().with(targets).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).finish().with(targets).init(),
    }
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        tracing::error!(thread, "{panic}");
    }));
    Ok(end)
}

#[cfg(test)]
mod tests;
