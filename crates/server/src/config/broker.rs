//! The address of a broker: where values come from, and which of them.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use super::camera::Credentials;

/// A broker of messages, and the part of its messages that is a stream's values.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) credentials: Option<Credentials>,
    /// A PEM file with the authorities that may have signed the broker's certificate, instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) subscription: Subscription,
}

/// The part of a broker's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subscription {
    /// Topics of MQTT that match the filter.
    Mqtt {
        filter: String,
        /// The only version to speak; by default 5, and 3.1.1 with a broker that refuses 5.
        version: Option<MqttVersion>,
    },
    /// Subjects of NATS that match the filter.
    Subjects { filter: String },
    /// Keys of a key-value bucket of NATS that match the filter.
    Bucket { name: String, filter: String },
}

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MqttVersion {
    V3,
    V5,
}

/// The text is no address of a broker. The text of the error has nothing of it that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerAddressError {
    /// Scheme, host or port cannot be used.
    #[error("not an address like mqtt://USER:PASSWORD@HOST:PORT/TOPIC or nats://HOST/SUBJECT")]
    Form,
    /// It may be a password with a slash, which would be shown.
    #[error("it has an @ behind a slash; write %40 in a topic, and %2F for a slash in a password")]
    At,
    /// There is nothing to subscribe to.
    #[error(
        "it names no topic; write mqtt://HOST/TOPIC with + for one part and # for all below, or mqtt://HOST/# for everything"
    )]
    NoTopic,
    /// There is nothing to subscribe to.
    #[error(
        "it names no subject; write nats://HOST/SUBJECT with * for one part and > for all below, or nats://HOST/kv/BUCKET"
    )]
    NoSubject,
    /// A wildcard or character has no place there.
    #[error("{filter:?} cannot be subscribed: {why}")]
    Filter {
        /// The filter.
        filter: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The name of an option is unknown, or its value.
    #[error(
        "it has an option that is unknown; behind ? write ca=FILE, version=5 or version=3.1.1, with & between them, and %3F for a ? of a topic"
    )]
    Option,
}

impl MqttVersion {
    /// Its name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V3 => "MQTT 3.1.1",
            Self::V5 => "MQTT 5",
        }
    }
}

/// The schemes, whether they mean TLS, and the usual ports (IANA; 4222 of NATS is its server's default).
const SCHEMES: [(&str, bool, u16); 4] =
    [("mqtt", false, 1883), ("mqtts", true, 8883), ("nats", false, 4222), ("tls", true, 4222)];

/// The path of a key-value bucket begins with it. A subject has no slash.
const BUCKET: &str = "kv/";

/// The longest topic of MQTT, and of a subject that is taken.
const MAX_FILTER_BYTES: usize = 65_535;

impl BrokerAddress {
    /// Whether this is an address of a broker, going by its scheme.
    pub(crate) fn is_one(url: &str) -> bool {
        url.split_once("://").is_some_and(|(scheme, _)| usual(scheme).is_some())
    }

    /// Reads a URL, which may have a user and a password. They are never logged.
    ///
    /// # Errors
    ///
    /// If it is no address of a broker, or its filter or an option cannot be used.
    pub fn parse(url: &str) -> Result<Self, BrokerAddressError> {
        use BrokerAddressError as Error;
        let (scheme, rest) = url.split_once("://").ok_or(Error::Form)?;
        let (scheme, tls, port) = usual(scheme).ok_or(Error::Form)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(Error::At);
        }
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(u, p)| (Some(u), p));
        let (host, port) = host_and_port(place, port).ok_or(Error::Form)?;
        let decode = |text: &str| percent_decode_str(text).decode_utf8().map(|text| text.into_owned()).ok();
        let credentials = match user.filter(|user| !user.is_empty()) {
            Some(user) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let (user, password) = decode(user).zip(decode(password)).ok_or(Error::Form)?;
                Some(Credentials { user, password })
            }
            None => None,
        };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = decode(path).ok_or(Error::Form)?;
        let is_mqtt = scheme.starts_with("mqtt");
        let (mut ca, mut version) = (None, None);
        for (name, value) in query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        {
            match (name, decode(value).ok_or(Error::Option)?.as_str()) {
                ("ca", file) if !file.is_empty() => ca = Some(PathBuf::from(file)),
                ("version", "5") if is_mqtt => version = Some(MqttVersion::V5),
                ("version", "3.1.1") if is_mqtt => version = Some(MqttVersion::V3),
                _ => return Err(Error::Option),
            }
        }
        let subscription = if is_mqtt { mqtt(path, version)? } else { nats(&path)? };
        Ok(Self { host, port, tls, credentials, ca, subscription })
    }

    /// The same with a relative file taken from this folder.
    pub(super) fn relative_to(mut self, folder: &Path) -> Self {
        self.ca = self.ca.map(|ca| folder.join(ca));
        self
    }

    /// The host with the port, as an address has them.
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// For people: without user, password and options.
impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.authority();
        match (&self.subscription, self.tls) {
            (Subscription::Mqtt { filter, .. }, false) => write!(f, "mqtt://{at}/{filter}"),
            (Subscription::Mqtt { filter, .. }, true) => write!(f, "mqtts://{at}/{filter}"),
            (Subscription::Subjects { filter }, false) => write!(f, "nats://{at}/{filter}"),
            (Subscription::Subjects { filter }, true) => write!(f, "tls://{at}/{filter}"),
            (Subscription::Bucket { name, filter }, tls) => {
                let scheme = if tls { "tls" } else { "nats" };
                write!(f, "{scheme}://{at}/{BUCKET}{name}")?;
                if filter == ">" { Ok(()) } else { write!(f, "/{filter}") }
            }
        }
    }
}

impl fmt::Debug for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrokerAddress({self})")
    }
}

fn usual(scheme: &str) -> Option<(&'static str, bool, u16)> {
    SCHEMES.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(scheme))
}

fn host_and_port(place: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.split('%').next()?.parse::<Ipv6Addr>().ok()?;
            (host, port)
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let port = match port {
        "" => usual,
        port => port.strip_prefix(':')?.parse().ok().filter(|&port: &u16| port > 0)?,
    };
    let is_host =
        !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@');
    is_host.then(|| (host.to_owned(), port))
}

/// Checks a filter of MQTT (5.0, section 4.7.1).
fn mqtt(filter: String, version: Option<MqttVersion>) -> Result<Subscription, BrokerAddressError> {
    let wrong = |why| Err(BrokerAddressError::Filter { filter: filter.chars().take(64).collect(), why });
    if filter.is_empty() {
        return Err(BrokerAddressError::NoTopic);
    }
    if filter.len() > MAX_FILTER_BYTES || filter.chars().any(char::is_control) {
        return wrong("it is too long, or has control characters");
    }
    if filter.split('/').any(|part| part.len() > 1 && part.contains(['+', '#'])) {
        return wrong("+ and # stand alone between slashes");
    }
    if filter.split('/').rev().skip(1).any(|part| part == "#") {
        return wrong("# is the last part");
    }
    Ok(Subscription::Mqtt { filter, version })
}

fn nats(path: &str) -> Result<Subscription, BrokerAddressError> {
    let Some(bucket) = path.strip_prefix(BUCKET) else {
        return Ok(Subscription::Subjects { filter: subject_filter(path)? });
    };
    let (name, filter) = bucket.split_once('/').unwrap_or((bucket, ">"));
    // The names that the server accepts (ADR-8 of NATS).
    if name.is_empty()
        || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    {
        let why = "a bucket's name has letters, digits, - and _";
        return Err(BrokerAddressError::Filter { filter: name.chars().take(64).collect(), why });
    }
    Ok(Subscription::Bucket { name: name.to_owned(), filter: subject_filter(filter)? })
}

fn subject_filter(filter: &str) -> Result<String, BrokerAddressError> {
    let wrong = |why| Err(BrokerAddressError::Filter { filter: filter.chars().take(64).collect(), why });
    if filter.is_empty() {
        return Err(BrokerAddressError::NoSubject);
    }
    if filter.len() > MAX_FILTER_BYTES || filter.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return wrong("it is too long, or has blanks or control characters");
    }
    if filter.split('.').any(|part| part.is_empty() || (part.len() > 1 && part.contains(['*', '>']))) {
        return wrong("between dots it needs something, and * and > stand alone");
    }
    if filter.split('.').rev().skip(1).any(|part| part == ">") {
        return wrong("> is the last part");
    }
    Ok(filter.to_owned())
}

impl Subscription {
    /// Whether a message with this key is one of those, and may be sent: it has no wildcard.
    pub(crate) fn covers(&self, key: &str) -> bool {
        let is_text = !key.is_empty() && !key.chars().any(char::is_control);
        match self {
            Self::Mqtt { filter, .. } => {
                // Topics of the broker's own are matched by their name only (section 4.7.2).
                let is_own = key.starts_with('$') && !filter.starts_with('$');
                is_text
                    && !key.contains(['+', '#'])
                    && !is_own
                    && covers(filter.split('/'), key.split('/'), "+", "#", true)
            }
            Self::Subjects { filter } | Self::Bucket { filter, .. } => {
                let is_subject =
                    !key.contains([' ', '*', '>']) && key.split('.').all(|part| !part.is_empty());
                is_text && is_subject && covers(filter.split('.'), key.split('.'), "*", ">", false)
            }
        }
    }

    /// The filter.
    pub(crate) fn filter(&self) -> &str {
        match self {
            Self::Mqtt { filter, .. } | Self::Subjects { filter } | Self::Bucket { filter, .. } => filter,
        }
    }
}

/// `takes_none`: the wildcard for all below matches nothing as well.
fn covers<'a>(
    mut filter: impl Iterator<Item = &'a str>,
    mut name: impl Iterator<Item = &'a str>,
    one: &str,
    all: &str,
    takes_none: bool,
) -> bool {
    loop {
        match (filter.next(), name.next()) {
            (None, None) => return true,
            (Some(part), None) => return takes_none && part == all,
            (Some(part), Some(_)) if part == all => return true,
            (Some(part), Some(found)) if part == one || part == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> BrokerAddress {
        BrokerAddress::parse(url).expect(url)
    }

    #[test]
    fn the_forms_of_a_brokers_address() {
        let mqtt = parse("mqtt://me:p%40s%2Fs@broker/sensors/+/t%3F/#?version=3.1.1&ca=ca%20.pem");
        assert_eq!((mqtt.host.as_str(), mqtt.port, mqtt.tls), ("broker", 1883, false));
        let credentials = mqtt.credentials.clone().expect("a user");
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("me", "p@s/s"));
        assert_eq!(mqtt.ca.as_deref(), Some(Path::new("ca .pem")));
        let filter = "sensors/+/t?/#".to_owned();
        assert_eq!(mqtt.subscription, Subscription::Mqtt { filter, version: Some(MqttVersion::V3) });
        for (url, shown) in [
            ("MQTTS://b/#", "mqtts://b:8883/#"),
            ("mqtt://[fe80::1]:1/a//b", "mqtt://[fe80::1]:1/a//b"),
            ("mqtt://b/$SYS/#", "mqtt://b:1883/$SYS/#"),
            ("nats://token@b/robots.>", "nats://b:4222/robots.>"),
            ("tls://b:1/a.*.c", "tls://b:1/a.*.c"),
            ("nats://b/kv/STATE", "nats://b:4222/kv/STATE"),
            ("nats://b/kv/STATE/a.>?ca=x", "nats://b:4222/kv/STATE/a.>"),
        ] {
            assert_eq!(parse(url).to_string(), shown);
        }
        let secret = parse("mqtt://me:sesame@b/#?ca=sesame");
        assert!(!format!("{secret:?} {secret}").contains("sesame"));
    }

    #[test]
    fn addresses_that_cannot_be_used_say_why() {
        for (url, why) in [
            ("mqtt://", "not an address"),
            ("mqtt://:1/a", "not an address"),
            ("mqtt://b:0/a", "not an address"),
            ("mqtt://b:x/a", "not an address"),
            ("mqtt://b/%ff", "not an address"),
            ("mqtt://me:12/3@b/x", "%2F for a slash"),
            ("mqtt://b", "no topic"),
            ("mqtt://b/", "no topic"),
            ("mqtt://b/a#", "stand alone"),
            ("mqtt://b/a/#/b", "# is the last"),
            ("mqtt://b/a%0A", "control"),
            ("mqtt://b/#?version=4", "version=5"),
            ("nats://b/a?version=5", "version=5"),
            ("mqtt://b/#?ca=", "ca=FILE"),
            ("nats://b", "no subject"),
            ("nats://b/kv/", "bucket's name"),
            ("nats://b/kv/a.b", "bucket's name"),
            ("nats://b/a..b", "between dots"),
            ("nats://b/>.a", "> is the last"),
            ("nats://b/a%20b", "blanks"),
        ] {
            let error = BrokerAddress::parse(url).expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn a_filter_covers_its_topics() {
        let covers = |filter: &str, key: &str| parse(&format!("mqtt://b/{filter}")).subscription.covers(key);
        for (filter, key) in [
            ("#", "a/b"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("+/b", "a/b"),
            ("+/b", "/b"),
            ("$SYS/#", "$SYS/x"),
            ("a", "a"),
        ] {
            assert!(covers(filter, key), "{filter} {key}");
        }
        for (filter, key) in [
            ("#", "$SYS/x"),
            ("+/b", "$x/b"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("a", "b"),
            ("#", "a/#"),
            ("#", "+"),
            ("#", ""),
        ] {
            assert!(!covers(filter, key), "{filter} {key}");
        }
        let covers = |filter: &str, key: &str| parse(&format!("nats://b/{filter}")).subscription.covers(key);
        assert!(covers("a.>", "a.b.c") && covers("a.*", "a.b") && covers(">", "a"));
        assert!(!covers("a.>", "a") && !covers(">", "a..b") && !covers(">", "a b") && !covers(">", "a.*"));
    }

    #[test]
    fn any_text_is_a_brokers_address_or_an_error() {
        bolero::check!().with_type::<String>().for_each(|text| {
            for scheme in ["mqtt", "nats"] {
                if let Ok(address) = BrokerAddress::parse(&format!("{scheme}://{text}")) {
                    assert!(!address.host.is_empty() && !address.subscription.filter().is_empty());
                    let _ = address.subscription.covers(text);
                }
            }
        });
    }
}
