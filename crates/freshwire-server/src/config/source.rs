use std::fmt;
use std::path::{Path, PathBuf};

/// Where a stream comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A pattern with a clock in it.
    Test,
    /// Standard input: Annex B or MPEG-TS.
    Stdin,
    /// A file, played in real time, again and again.
    File(PathBuf),
    /// A camera that is asked over RTSP.
    Rtsp(String),
    /// Whoever publishes it.
    Publish,
}

/// The text is no source, or no name of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

/// The most characters of a stream's name.
const MAX_NAME: usize = 64;

impl Source {
    /// Reads a source: `test`, `-` for standard input, `publish`, `rtsp://...` or a path.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        match text {
            "" => Err(SourceError(format!("an empty source; write {GRAMMAR}"))),
            "test" => Ok(Self::Test),
            "-" => Ok(Self::Stdin),
            "publish" => Ok(Self::Publish),
            url if url.starts_with("rtsp://") => Ok(Self::Rtsp(url.to_owned())),
            url if url.contains("://") => {
                Err(SourceError(format!("{:?} is no source; write {GRAMMAR}", hide_password(url))))
            }
            path => Ok(Self::File(PathBuf::from(path))),
        }
    }

    /// Reads `NAME=SOURCE` or `SOURCE`. Something in front of `=` that cannot be a name belongs to the source.
    pub fn parse_named(text: &str) -> Result<(Option<String>, Self), SourceError> {
        match text.split_once('=') {
            Some((name, source)) if check_stream_name(name).is_ok() => {
                Ok((Some(name.to_owned()), Self::parse(source)?))
            }
            _ => Ok((None, Self::parse(text)?)),
        }
    }

    /// A name for it: that of the file, else `live`; with a number if the name is taken.
    pub fn default_name(&self, taken: impl Fn(&str) -> bool) -> String {
        let stem = match self {
            Self::File(path) => path.file_stem().map(|stem| stem.to_string_lossy()),
            _ => None,
        };
        let allowed = |c: char| if is_name_character(c) { c } else { '-' };
        let base: String = stem.unwrap_or_default().chars().map(allowed).take(MAX_NAME - 8).collect();
        let base = if check_stream_name(&base).is_ok() { base } else { "live".to_owned() };
        let numbered = (2..).map(|number: u64| format!("{base}{number}"));
        std::iter::once(base.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(base)
    }

    /// The same with a relative path taken from this folder.
    pub(super) fn relative_to(self, folder: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(folder.join(path)),
            other => other,
        }
    }
}

const GRAMMAR: &str = "test, -, a path, rtsp://HOST/PATH or publish";

/// For people: without the password that an address may contain.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test => f.write_str("test"),
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Rtsp(url) => f.write_str(&hide_password(url)),
            Self::Publish => f.write_str("whoever publishes it"),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({self})")
    }
}

/// The address with stars for what stands between `://` and the last `@` of its authority.
fn hide_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}"),
        None => url.to_owned(),
    }
}

/// Whether a stream may have this name, which stands in addresses: 1 to 64 letters, digits, `-`, `_` and `.`, and no `.`
/// in front.
pub fn check_stream_name(name: &str) -> Result<(), SourceError> {
    let fits =
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_name_character) && !name.starts_with('.');
    if fits {
        return Ok(());
    }
    Err(SourceError(format!(
        "{name:?} cannot be a stream's name; use 1 to {MAX_NAME} letters, digits, -, _ and ., and no . in front"
    )))
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_with_and_without_a_name() {
        let named = |text| Source::parse_named(text).unwrap();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(named("test"), (None, Source::Test));
        assert_eq!(named("cam=-"), (name("cam"), Source::Stdin));
        assert_eq!(named("a.ts"), (None, Source::File("a.ts".into())));
        assert_eq!(named("./a=b.ts"), (None, Source::File("./a=b.ts".into())));
        let url = "rtsp://cam/stream?channel=1";
        assert_eq!(named(url), (None, Source::Rtsp(url.to_owned())));
        assert_eq!(named(&format!("x={url}")), (name("x"), Source::Rtsp(url.to_owned())));
        for wrong in ["", "cam=", "http://host/x", "cam=srt://host"] {
            assert!(Source::parse_named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_comes_from_the_file() {
        let name = |text: &str, taken: &[&str]| {
            Source::parse(text).unwrap().default_name(|name| taken.contains(&name))
        };
        assert_eq!(name("films/My Film.mp4", &[]), "My-Film");
        assert_eq!(name("films/a.mp4", &["a", "a2"]), "a3");
        assert_eq!(name("test", &[]), "live");
        assert_eq!(name("rtsp://cam", &["live"]), "live2");
        assert_eq!(name("/.h264", &[]), "live");
    }

    #[test]
    fn a_password_is_not_shown() {
        let source = Source::parse("rtsp://anna:se@same@cam:554/live?x=y@z").unwrap();
        assert_eq!(source.to_string(), "rtsp://***@cam:554/live?x=y@z");
        assert!(!format!("{source:?}").contains("same"));
        let error = Source::parse("http://anna:sesame@host/x").unwrap_err().to_string();
        assert!(!error.contains("sesame"), "{error}");
    }
}
