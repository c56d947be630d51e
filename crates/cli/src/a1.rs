//! The two ways to an A1 connection, with the keys that both need.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, value_parser};
use freshwire::a1::{
    ConnectError, Connection, ConnectionConfig, HandshakeError, Interface, JoinConfig, KeyLog, Node,
    NodeConfig, Psk, PublicKey, Qos, Rate, Refusal, StaticKey,
};
use freshwire::network::NetworkQos;
use freshwire_record::{parse_duration, parse_size};
use freshwire_server::peer::{self, Newcomers, PeerError};

use crate::endpoint::Endpoint;
use crate::output::say;

/// How long a peer may take to answer unless it is waited for.
const ANSWER: Duration = Duration::from_secs(5);

/// How often a user who does not want to wait any more is looked for.
const WATCH: Duration = Duration::from_millis(100);

/// The reason for everybody but the first peer.
const BUSY: &str = "it has a peer already";

/// Signs of life within the idle timeout, by default. All but one may be lost. Chosen, not measured.
const SIGNS_OF_LIFE: u32 = 3;

/// The shortest idle timeout: a process may be left without a processor for longer than less.
const SHORTEST_IDLE: Duration = Duration::from_millis(100);

/// The largest record unless the user says otherwise, as over TCP.
const LARGEST_RECORD: u32 = 16 << 20;

/// The variable that names the file which the secrets of A1 connections are written to, for Wireshark.
const KEY_LOG: &str = "FRESHWIRE_KEYLOGFILE";

/// What A1 needs to know besides addresses.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct A1Args {
    /// With A1, to connect: the key of the peer, which it prints when it listens.
    #[arg(long, global = true, value_name = "KEY")]
    peer_key: Option<PublicKey>,
    /// With A1, to listen: a key whose owner may connect; can be given more than once [default: anybody].
    #[arg(long, global = true, value_name = "KEY")]
    allow_key: Vec<PublicKey>,
    /// With A1: the file that keeps this end's private key, made if it is not there [default: a new key each time].
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
    /// With A1: the file with a secret that both ends have, 64 hexadecimal digits.
    #[arg(long, global = true, value_name = "FILE")]
    psk: Option<PathBuf>,
    /// With A1 and multicast: the network interface, by its number (see `ip link`) or IPv4 address [default: the
    /// connection's, else by the routing table].
    #[arg(long, global = true, value_name = "INTERFACE", value_parser = parse_interface)]
    interface: Option<Interface>,
    /// With A1: a silence of this length ends the connection; the shorter one of both ends counts [default: 30s].
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    idle_timeout: Option<Duration>,
    /// With A1: ping the peer after a silence of this length, to keep the connection of a quiet source; 0 is never
    /// [default: a third of --idle-timeout].
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    keep_alive: Option<Duration>,
    /// With A1: the largest record, at most 64 MiB; both ends must allow it. A receiver may buffer 64 MiB, or two such
    /// records if that is more [default: 16 MiB].
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_largest)]
    largest_record: Option<u32>,
    /// With A1: records that may be in flight or unread, at most 65,536; the smaller of both ends' values counts. A slow
    /// reader lowers it [default: 1024].
    #[arg(long, global = true, value_name = "COUNT", value_parser = value_parser!(u32).range(1..=i64::from(Qos::MAX_OUTSTANDING)))]
    outstanding: Option<u32>,
    /// With A1: limit of the average rate, with bursts of 64 KiB. A multicast group sends at exactly this rate, which the
    /// network has to provide [default: the path's capacity].
    #[arg(long, global = true, value_name = "RATE")]
    rate: Option<Rate>,
    /// With A1: poll the socket for this time before sleeping, for lower latency at the price of processor time; 0 turns
    /// it off [default: 50us].
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    busy_poll: Option<Duration>,
}

/// What the other side types to reach us.
#[derive(Clone, Copy)]
pub(crate) struct PeerHint {
    /// The command up to our address.
    pub(crate) command: &'static str,
    /// What it has to add.
    pub(crate) note: Option<&'static str>,
}

/// How the connections of a command are.
#[derive(Clone, Debug, Default)]
pub(crate) struct A1Options {
    pub(crate) transport: ConnectionConfig,
    /// Whether to get what the peer sends to a multicast group.
    pub(crate) joins: bool,
    /// Whether somebody decides about each that comes.
    pub(crate) asks: bool,
    /// Service asked of the network.
    pub(crate) network: NetworkQos,
    /// Whether to go over TCP where UDP does not pass.
    pub(crate) tcp_fallback: bool,
}

/// Both that the rest of the command needs to hold.
pub(crate) struct OpenConnection {
    pub(crate) connection: Connection,
    pub(crate) node: Node,
}

impl OpenConnection {
    /// Refuses who has come since: there is one peer.
    pub(crate) fn turn_others_away(&self) -> anyhow::Result<()> {
        for address in Newcomers::default().refuse(&self.node, BUSY)? {
            say(&format!("{address} is turned away: there is a peer already"));
        }
        Ok(())
    }
}

impl A1Args {
    /// An error if an option was given that only A1 has.
    pub(crate) fn check_unused(&self) -> anyhow::Result<()> {
        let options = [
            (self.peer_key.is_some(), "--peer-key"),
            (!self.allow_key.is_empty(), "--allow-key"),
            (self.key.is_some(), "--key"),
            (self.psk.is_some(), "--psk"),
            (self.interface.is_some(), "--interface"),
            (self.idle_timeout.is_some(), "--idle-timeout"),
            (self.keep_alive.is_some(), "--keep-alive"),
            (self.largest_record.is_some(), "--largest-record"),
            (self.outstanding.is_some(), "--outstanding"),
            (self.rate.is_some(), "--rate"),
            (self.busy_poll.is_some(), "--busy-poll"),
        ];
        for (is_given, name) in options {
            if is_given {
                bail!("{name} is for A1: add --carrier a1");
            }
        }
        Ok(())
    }

    /// Whether there is what the endpoint needs.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let transport = self.transport(ConnectionConfig::default());
        if transport.idle_timeout < SHORTEST_IDLE {
            bail!("--idle-timeout is at least {SHORTEST_IDLE:?}");
        }
        if transport.keep_alive.is_some_and(|after| after >= transport.idle_timeout) {
            bail!("--keep-alive has to be shorter than --idle-timeout, {:?}", transport.idle_timeout);
        }
        match (endpoint, self.peer_key) {
            (Endpoint::Connect(..), None) => {
                bail!(
                    "say with --peer-key whom to expect there: the other side prints its key when it listens"
                )
            }
            (Endpoint::Connect(..), Some(_)) if !self.allow_key.is_empty() => {
                bail!("--allow-key is for the side that listens; this one says with --peer-key whom it wants")
            }
            (Endpoint::Listen(_), Some(_)) => {
                bail!("--peer-key is for the side that connects; this one waits")
            }
            _ => Ok(()),
        }
    }

    /// The largest record that this end sends or takes, in bytes.
    pub(crate) fn largest_record(&self) -> u32 {
        self.largest_record.unwrap_or(LARGEST_RECORD)
    }

    /// Whether an option names a key, which only A1 uses.
    pub(crate) fn names_key(&self) -> bool {
        self.peer_key.is_some() || !self.allow_key.is_empty() || self.key.is_some()
    }

    /// Whether this end has the same key each time.
    pub(crate) fn keeps_key(&self) -> bool {
        self.key.is_some()
    }

    /// The highest average rate.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// With the times that were asked for.
    fn transport(&self, mut transport: ConnectionConfig) -> ConnectionConfig {
        transport.idle_timeout = self.idle_timeout.unwrap_or(transport.idle_timeout);
        let keep_alive = self.keep_alive.unwrap_or(transport.idle_timeout / SIGNS_OF_LIFE);
        transport.keep_alive = Some(keep_alive).filter(|after| !after.is_zero());
        transport
    }

    /// The interface to use for a multicast group.
    pub(crate) fn interface(&self) -> Option<Interface> {
        self.interface
    }

    /// The connection, as soon as there is one. `other` is what the other side types to reach us.
    pub(crate) fn open(
        &self,
        endpoint: &Endpoint,
        options: A1Options,
        other: PeerHint,
    ) -> anyhow::Result<OpenConnection> {
        match (endpoint, &self.peer_key) {
            (Endpoint::Connect(peer, patience), Some(key)) => {
                let patience = if patience.is_zero() { ANSWER } else { *patience };
                self.connect(peer, key, patience, options)
            }
            (Endpoint::Connect(..), None) => bail!("the peer's key is not known"),
            (Endpoint::Listen(address), _) => {
                let node = self.listen(address, A1Options { asks: true, ..options }, other)?;
                let connection = first_established(&node)?;
                say(&format!("connected to {}", name_of(&connection)));
                Ok(OpenConnection { connection, node })
            }
        }
    }

    fn connect(
        &self,
        peer: &str,
        key: &PublicKey,
        patience: Duration,
        options: A1Options,
    ) -> anyhow::Result<OpenConnection> {
        let config = self.node_config(options)?;
        let connected = peer::connect_a1(peer, key, config, patience);
        let (node, connection) = connected.map_err(|error| match error {
            PeerError::ConnectA1 { cause, own_key, .. } => {
                explain(*cause, patience, &own_key).context(format!("cannot connect to {peer} over A1"))
            }
            error => error.into(),
        })?;
        Ok(OpenConnection { connection, node })
    }

    /// Opens a node that listens there, and prints its address.
    pub(crate) fn listen(&self, address: &str, options: A1Options, other: PeerHint) -> anyhow::Result<Node> {
        let carrier = if options.tcp_fallback { "auto" } else { "a1" };
        let mut config = self.node_config(options)?;
        if !self.allow_key.is_empty() {
            config.endpoint.allowed = Some(self.allow_key.iter().copied().collect());
        }
        let node = peer::listen_a1(address, &config)?;
        let own = node.local_addr().context("cannot tell the address")?;
        let host = if own.ip().is_unspecified() { "HOST".to_owned() } else { host_of(own.ip()) };
        say(&format!("listening on {own}"));
        let (port, key) = (own.port(), node.public_key());
        let command = other.command;
        say(&format!("the other side: {command} {host}:{port} --carrier {carrier} --peer-key {key}"));
        if let Some(note) = other.note {
            say(note);
        }
        Ok(node)
    }

    fn node_config(&self, options: A1Options) -> anyhow::Result<NodeConfig> {
        let mut config = match &self.key {
            Some(path) => NodeConfig::with_key(kept_key(path)?),
            None => NodeConfig::new().context("cannot make a key")?,
        };
        if let Some(path) = &self.psk {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the secret in {}", path.display()))?;
            let psk: Psk = text.trim().parse().with_context(|| format!("in {}", path.display()))?;
            config.endpoint.psk = Some(psk);
        }
        if let Some(path) = std::env::var_os(KEY_LOG) {
            config.endpoint.key_log = Some(key_log(Path::new(&path))?);
        }
        if options.joins {
            let join = JoinConfig::default();
            config = config.join(self.interface.map_or(join, |interface| join.interface(interface)));
        }
        config.busy_poll = self.busy_poll.or(config.busy_poll);
        let transport = self.transport(options.transport);
        let largest = self.largest_record();
        let maximum = Qos {
            send_average: self.rate,
            receive_average: self.rate,
            max_send_message: largest,
            max_receive_message: largest,
            outstanding: self.outstanding.unwrap_or(Qos::default().outstanding),
            ..Qos::default()
        };
        let config = config.network(options.network).tcp_fallback(options.tcp_fallback);
        Ok(config.ask(options.asks).connection(transport.maximum(maximum)))
    }
}

/// What went wrong, with what the user needs to know to put it right.
fn explain(error: ConnectError, patience: Duration, own: &PublicKey) -> anyhow::Error {
    match &error {
        ConnectError::Failed(HandshakeError::NoAnswer) => anyhow!(
            "{error} in {patience:?}; start the other side first, or wait for it with a longer --wait"
        ),
        ConnectError::Failed(HandshakeError::Refused(refusal)) if refusal.code == Refusal::NOT_ALLOWED => {
            anyhow!("{error}; the key of this end is {own}")
        }
        _ => error.into(),
    }
}

/// The first that is established; the others are refused.
fn first_established(node: &Node) -> anyhow::Result<Connection> {
    let mut newcomers = Newcomers::default();
    loop {
        if let Some(connection) = newcomers.accept(node, WATCH)? {
            newcomers.refuse(node, BUSY)?;
            return Ok(connection);
        }
    }
}

/// Where and who the peer is.
pub(crate) fn name_of(connection: &Connection) -> String {
    let key = connection.peer_key().map_or_else(String::new, |key| format!(", key {key}"));
    format!("{}{key}", connection.peer_addr())
}

fn parse_interface(text: &str) -> Result<Interface, String> {
    match (text.parse(), text.parse()) {
        (Ok(number), _) if number > 0 => Ok(Interface::Number(number)),
        (_, Ok(address)) => Ok(Interface::Of(address)),
        _ => Err("neither the number of an interface nor its IPv4 address".to_owned()),
    }
}

fn parse_largest(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=Qos::MAX_MESSAGE).contains(bytes))
        .ok_or_else(|| format!("A1 has messages of 1 to {} bytes", Qos::MAX_MESSAGE))
}

/// Appends secrets to the file, which only its owner reads if it is new.
fn key_log(path: &Path) -> anyhow::Result<KeyLog> {
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let file =
        opened.with_context(|| format!("{KEY_LOG} names {}, which cannot be written to", path.display()))?;
    let (file, path) = (Mutex::new(file), path.to_owned());
    Ok(KeyLog::new(move |line| {
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{line}") {
            say(&format!("a secret is missing in {}: {error}", path.display()));
        }
    }))
}

fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The key in the file; a new one if there is no file yet.
pub(crate) fn kept_key(path: &Path) -> anyhow::Result<StaticKey> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.trim().parse().with_context(|| format!("{} holds no private key", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => new_key(path),
        Err(error) => Err(error).with_context(|| format!("cannot read the key in {}", path.display())),
    }
}

fn new_key(path: &Path) -> anyhow::Result<StaticKey> {
    let key = StaticKey::generate(freshwire_io::random().context("cannot make a key")?);
    let digits: String = key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.and_then(|mut file| writeln!(file, "{digits}"))
        .with_context(|| format!("cannot keep the key in {}", path.display()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use freshwire::a1::DEFAULT_BUSY_POLL;

    #[test]
    fn a_key_is_kept_where_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = kept_key(&path).unwrap();
        assert_eq!(kept_key(&path).unwrap().public_key(), made.public_key());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "nonsense").unwrap();
        let error = format!("{:#}", kept_key(&path).unwrap_err());
        assert!(error.contains("holds no private key: a key is 64"), "{error}");
    }

    #[test]
    fn a_quiet_connection_is_kept_unless_the_user_does_not_want_it() {
        let times = |idle: Option<u64>, keep: Option<u64>| A1Args {
            idle_timeout: idle.map(Duration::from_secs),
            keep_alive: keep.map(Duration::from_secs),
            ..A1Args::default()
        };
        for (idle, keep, expected) in [
            (None, None, Some(10)),
            (Some(6), None, Some(2)),
            (None, Some(25), Some(25)),
            (Some(6), Some(0), None),
        ] {
            let transport = times(idle, keep).transport(ConnectionConfig::default());
            assert_eq!(transport.keep_alive, expected.map(Duration::from_secs));
            assert_eq!(transport.idle_timeout, Duration::from_secs(idle.unwrap_or(30)));
        }
        let listens = Endpoint::Listen("1".to_owned());
        let error = times(Some(6), Some(6)).check(&listens).unwrap_err().to_string();
        assert!(error.contains("has to be shorter than --idle-timeout, 6s"), "{error}");
        let error = times(Some(0), None).check(&listens).unwrap_err().to_string();
        assert!(error.contains("--idle-timeout is at least"), "{error}");
        assert!(
            times(None, Some(1)).check_unused().unwrap_err().to_string().contains("--keep-alive is for A1")
        );
    }

    #[test]
    fn busy_polling_is_as_the_user_wants_it() {
        for (wanted, expected) in [(None, DEFAULT_BUSY_POLL), (Some(Duration::ZERO), Duration::ZERO)] {
            let args = A1Args { busy_poll: wanted, ..A1Args::default() };
            assert_eq!(args.node_config(A1Options::default()).unwrap().busy_poll, Some(expected));
            assert_eq!(args.check_unused().is_err(), wanted.is_some());
        }
    }

    #[test]
    fn keys_are_asked_for_where_they_are_needed() {
        let connect = Endpoint::Connect("a:1".to_owned(), Duration::ZERO);
        let error = A1Args::default().check(&connect).unwrap_err().to_string();
        assert!(error.contains("--peer-key"), "{error}");
        let key = StaticKey::generate([1; 32]).public_key();
        let args = A1Args { peer_key: Some(key), ..A1Args::default() };
        assert!(args.check(&connect).is_ok());
        assert!(args.check(&Endpoint::Listen("1".to_owned())).is_err());
        let both = A1Args { allow_key: vec![key], ..args.clone() };
        assert!(both.check(&connect).unwrap_err().to_string().contains("--allow-key is for the side"));
        let lists = A1Args { allow_key: vec![key], ..A1Args::default() };
        assert!(lists.check(&Endpoint::Listen("1".to_owned())).is_ok());
        assert!(lists.check_unused().unwrap_err().to_string().contains("--allow-key is for A1"));
        assert!(args.check_unused().unwrap_err().to_string().contains("--carrier a1"));
        assert!(A1Args::default().check_unused().is_ok());
    }
}
