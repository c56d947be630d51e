use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::broker::{BrokerAddress, BrokerAddressError};
use super::camera::{Camera, CameraError};
use super::pattern::PatternConfig;
use super::relay::{RelayAddress, RelayError};
use super::rendition::split_rendition;

/// Where a stream comes from.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A generated picture with a clock in it. Needs ffmpeg with libx264.
    Test(PatternConfig),
    /// Standard input: MPEG-TS, Annex B or IVF, at the pace at which it comes.
    Stdin,
    /// A file, in real time and looped. Annex B and IVF are read directly, everything else through ffmpeg.
    File(PathBuf),
    /// A camera, by its `rtsp://` address.
    Rtsp(String),
    /// A stream at a relay of Media over QUIC, by its `moq://` address. Read while somebody views it.
    Relay(RelayAddress),
    /// Publishers: pictures and sound by RTSP, values by HTTP.
    Publish,
    /// A broker of values.
    Broker(Box<BrokerAddress>),
}

/// The text is no address of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum SourceAddressError {
    /// Not one of a camera.
    Camera(#[from] CameraError),
    /// Not one of a stream at a relay.
    Relay(#[from] RelayError),
    /// Not one of a broker.
    Broker(#[from] BrokerAddressError),
}

/// `test`, `-`, `publish`, an address of a camera, a relay or a broker, or else the path of a file.
impl FromStr for Source {
    type Err = SourceAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "test" => Self::Test(PatternConfig::default()),
            "-" => Self::Stdin,
            "publish" => Self::Publish,
            url if is_relay(url) => {
                let address: RelayAddress = url.parse()?;
                address.broadcast()?;
                Self::Relay(address)
            }
            url if BrokerAddress::is_one(url) => Self::Broker(Box::new(BrokerAddress::parse(url)?)),
            url if url.contains("://") => {
                Camera::parse(url)?;
                Self::Rtsp(url.to_owned())
            }
            path => Self::File(path.into()),
        })
    }
}

/// Like [`fmt::Display`], so that no log has a camera's password.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// For people: an address without its password.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(_) => f.write_str("test"),
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Rtsp(url) => match Camera::parse(url) {
                Ok(camera) => f.write_str(&camera.origin()),
                Err(_) => f.write_str("a camera"),
            },
            Self::Relay(address) => address.fmt(f),
            Self::Publish => f.write_str("publish"),
            Self::Broker(broker) => write!(f, "{broker}"),
        }
    }
}

impl Source {
    /// Whether it feeds pictures and sound.
    pub(crate) fn is_fetched(&self) -> bool {
        !matches!(self, Self::Publish | Self::Broker(_))
    }

    /// Whether there are values of it.
    pub(crate) fn has_values(&self) -> bool {
        matches!(self, Self::Publish | Self::Broker(_))
    }
}

/// The text is no source, or no name of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

/// The most characters of a stream's name.
const MAX_NAME: usize = 64;

/// Whether the address is of a relay, by its scheme.
fn is_relay(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    ["moq", "moq+http"].iter().any(|own| scheme.eq_ignore_ascii_case(own))
}

/// Reads a source: `test`, `-` for standard input, `publish`, `rtsp://...`, `moq://...`, the address of a broker, or a path.
///
/// # Errors
///
/// If it is none of these, or the URL cannot be used.
pub fn parse_source(text: &str) -> Result<Source, SourceError> {
    let is_known = text.starts_with("rtsp://") || is_relay(text) || BrokerAddress::is_one(text);
    let other_scheme = text.contains("://") && !is_known;
    if text.is_empty() || other_scheme {
        let shown = text.split("://").next().unwrap_or(text);
        return Err(SourceError(format!(
            "{shown:?} is no source; write test, -, a path, rtsp://HOST/PATH, moq://HOST/PATH/NAME, mqtt://HOST/TOPIC, nats://HOST/SUBJECT \
             or publish"
        )));
    }
    text.parse().map_err(|error: SourceAddressError| SourceError(error.to_string()))
}

/// Reads `NAME=SOURCE` or `SOURCE`. Something in front of `=` that cannot be a name belongs to the source.
///
/// # Errors
///
/// If the name or the source cannot be used.
pub fn parse_named_source(text: &str) -> Result<(Option<String>, Source), SourceError> {
    match text.split_once('=') {
        Some((name, _)) if name.contains('/') && Path::new(text).exists() => Ok((None, parse_source(text)?)),
        Some((name, source)) if check_stream_name(name).is_ok() => {
            Ok((Some(name.to_owned()), parse_source(source)?))
        }
        // Before it would be taken for the path of a file.
        Some((name, _)) if is_rendition(name) && !Path::new(text).exists() => {
            Err(check_stream_name(name).expect_err("it has a rendition's name"))
        }
        _ => Ok((None, parse_source(text)?)),
    }
}

/// Whether this is the name of a stream with that of a rendition behind it.
fn is_rendition(name: &str) -> bool {
    matches!(split_rendition(name), (stream, Some(_)) if check_stream_name(stream).is_ok())
}

/// A name for the stream of this source: that of the file, `state` for values of a broker, else `live`; with a number if the name is
/// taken.
pub fn default_name(source: &Source, taken: impl Fn(&str) -> bool) -> String {
    let stem = match source {
        Source::File(path) => path.file_stem().map(|stem| stem.to_string_lossy()),
        _ => None,
    };
    let allowed = |c: char| if is_name_character(c) { c } else { '-' };
    let base: String = stem.unwrap_or_default().chars().map(allowed).take(MAX_NAME - 8).collect();
    let other = if matches!(source, Source::Broker(_)) { "state" } else { "live" };
    let base = if check_stream_name(&base).is_ok() { base } else { other.to_owned() };
    let numbered = (2..).map(|number: u64| format!("{base}{number}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(base)
}

/// The same with a relative path taken from this folder.
pub(super) fn relative_to(source: Source, folder: &Path) -> Source {
    match source {
        Source::File(path) => Source::File(folder.join(path)),
        Source::Broker(broker) => Source::Broker(Box::new(broker.relative_to(folder))),
        other => other,
    }
}

/// Whether a stream may have this name, which is a part of addresses. It has 1 to 64 letters, digits, `-`, `_` and
/// `.`, with `/` between parts, and no part begins with `.`. [`check_published_name`] refuses some more.
///
/// # Errors
///
/// With the rule that the name breaks.
pub fn check_stream_name(name: &str) -> Result<(), SourceError> {
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_name_character);
    let fits = (1..=MAX_NAME).contains(&name.len()) && name.split('/').all(is_part);
    if fits || name.contains('~') {
        return check_published_name(name);
    }
    Err(SourceError(format!(
        "{name:?} cannot be a stream's name; use 1 to {MAX_NAME} letters, digits, -, _ and ., with / between parts, and no . in front"
    )))
}

/// Whether a stream may be published under this name: one that is visible, and whose address is no other stream's. Parts
/// between slashes are not empty and do not begin with `.`, and it does not end as the addresses of the HTTP server do.
///
/// # Errors
///
/// With the rule that the name breaks.
pub fn check_published_name(name: &str) -> Result<(), SourceError> {
    let refuse = |why: &str| Err(SourceError(format!("{name:?} cannot be a stream's name: {why}")));
    if name.chars().any(is_invisible) {
        return refuse("it has characters that cannot be seen");
    }
    if let (stream, Some(rendition)) = split_rendition(name) {
        return refuse(&format!(
            "behind ~ is the name of a rendition; publish it to rtsp://HOST/{stream}~{rendition}, or configure it as \
             [[streams.{stream}.rendition]]"
        ));
    }
    let mut parts = name.split('/');
    if parts.clone().any(|part| part.is_empty() || part.starts_with('.')) {
        return refuse("between slashes it needs something that does not begin with a dot");
    }
    if parts.next() == Some("_") {
        return refuse("what begins with _/ is the page's own");
    }
    let ends = [".ts", ".mp4", ".fw", "/ws", "/watch", "/values", "/events", "/push", "/whep", "/whip"];
    match ends.into_iter().find(|end| name.ends_with(end)) {
        Some(end) => refuse(&format!("{end} at the end marks the address of another stream")),
        None => Ok(()),
    }
}

/// Control characters, and those that change how their neighbours are shown.
fn is_invisible(c: char) -> bool {
    let changes = ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}'];
    c.is_control() || c == '\u{feff}' || changes.iter().any(|range| range.contains(&c))
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_distinguished_by_their_form() {
        let parse = |text: &str| text.parse::<Source>().expect("a source");
        assert!(matches!(parse("test"), Source::Test(_)));
        assert_eq!(parse("-"), Source::Stdin);
        assert_eq!(parse("publish"), Source::Publish);
        assert_eq!(parse("./test"), Source::File("./test".into()));
        assert_eq!(parse("rtsp://me:secret@cam/1").to_string(), "rtsp://cam/1");
        assert_eq!(format!("{:?}", parse("rtsp://me:secret@cam/1?token=x")), "Source(rtsp://cam/1)");
        assert!("http://cam/1".parse::<Source>().is_err());
        let broker = parse("mqtt://me:secret@broker/a/#");
        assert_eq!((broker.to_string(), broker.has_values()), ("mqtt://broker:1883/a/#".to_owned(), true));
        assert_eq!(format!("{broker:?}"), "Source(mqtt://broker:1883/a/#)");
    }

    #[test]
    fn sources_with_and_without_a_name() {
        let named = |text: &str| parse_named_source(text).unwrap();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(named("test"), (None, parse_source("test").unwrap()));
        assert_eq!(named("cam=-"), (name("cam"), Source::Stdin));
        assert_eq!(named("a.ts"), (None, Source::File("a.ts".into())));
        assert_eq!(named("./a=b.ts"), (None, Source::File("./a=b.ts".into())));
        assert_eq!(named("live/cam=publish"), (name("live/cam"), Source::Publish));
        assert_eq!(named("live//cam=publish"), (None, Source::File("live//cam=publish".into())));
        let url = "rtsp://cam/stream?channel=1";
        assert_eq!(named(url), (None, Source::Rtsp(url.to_owned())));
        assert_eq!(named(&format!("x={url}")), (name("x"), Source::Rtsp(url.to_owned())));
        for url in ["mqtt://broker/a=b/#", "nats://broker/kv/STATE"] {
            let source = parse_source(url).unwrap();
            assert_eq!(named(&format!("state={url}")), (name("state"), source.clone()));
            assert_eq!(named(url), (None, source));
        }
        for wrong in ["", "cam=", "http://host/x", "cam=srt://host", "state=mqtt://broker"] {
            assert!(parse_named_source(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_comes_from_the_file() {
        let name = |text: &str, taken: &[&str]| {
            default_name(&parse_source(text).unwrap(), |name| taken.contains(&name))
        };
        assert_eq!(name("films/My Film.mp4", &[]), "My-Film");
        assert_eq!(name("films/a.mp4", &["a", "a2"]), "a3");
        assert_eq!(name("test", &[]), "live");
        assert_eq!(name("rtsp://cam", &["live"]), "live2");
        assert_eq!(name("mqtt://broker/#", &["state"]), "state2");
        assert_eq!(name("/.h264", &[]), "live");
    }

    #[test]
    fn a_name_is_no_other_streams_address() {
        for name in
            ["live", "live/cam", "a.b", "haust\u{fc}r", "live/stream=2", "ws", "_x", "a_/b", "live.m3u8"]
        {
            assert_eq!(check_published_name(name), Ok(()), "{name}");
        }
        let wrong = [
            "",
            "/",
            "..",
            "a/../b",
            "a//b",
            "a/",
            ".a",
            "live.ts",
            "a/b.mp4",
            "live/ws",
            "live/events",
            "_/player.js",
        ];
        for name in wrong.into_iter().chain(["live.fw", "a\u{202e}b", "a\u{1b}[2J", "_"]) {
            assert!(check_published_name(name).is_err(), "{name}");
            assert!(check_stream_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let error = parse_source("http://anna:sesame@host/x").unwrap_err().to_string();
        assert!(error.starts_with("\"http\" is no source") && !error.contains("sesame"), "{error}");
    }
}
