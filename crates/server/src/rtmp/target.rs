//! The stream that a publisher means, and its credentials.

use percent_encoding::percent_decode_str;

use crate::config::split_rendition;

/// A stream, as the application's path and the key name it together: `live` and `cam` are `live/cam`, and one of the two
/// may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// The stream's name.
    pub(super) stream: String,
    /// The rendition's, behind `~`.
    pub(super) rendition: Option<String>,
    /// The parts behind `?` of the key and of the application, for signed links.
    pub(super) query: Option<String>,
    /// `user` and `pass` in the query.
    pub(super) credentials: Option<(String, String)>,
}

/// An application and a key that name no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("the address names no stream; publish to rtmp://HOST/NAME, or give NAME as the key")]
    Empty,
    #[error("the stream's name is longer than {MOST_NAME_BYTES} bytes")]
    Length,
    #[error("the stream's name has control characters or is not UTF-8")]
    Characters,
    #[error("the query, behind ? in the address, is longer than {MOST_QUERY_BYTES} bytes")]
    Query,
}

/// Longest name of a stream.
const MOST_NAME_BYTES: usize = 128;
/// Longest query.
const MOST_QUERY_BYTES: usize = 1024;
/// Longest application: a name, each of its bytes as `%41`, and a query, with room for slashes.
pub(super) const MOST_APP_BYTES: usize = 2 * MOST_QUERY_BYTES;

impl Target {
    /// What an application and a key name.
    pub(super) fn new(app: &str, key: &str) -> Result<Self, TargetError> {
        let ((app, app_query), (key, key_query)) = (split_query(app), split_query(key));
        let parts = [app, key].map(|part| part.trim_matches('/'));
        let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let path = percent_decode_str(&path).decode_utf8().map_err(|_| TargetError::Characters)?;
        if path.len() > MOST_NAME_BYTES {
            return Err(TargetError::Length);
        }
        if path.chars().any(char::is_control) {
            return Err(TargetError::Characters);
        }
        let (stream, rendition) = split_rendition(&path);
        if stream.is_empty() {
            return Err(TargetError::Empty);
        }
        let query = [key_query, app_query].into_iter().flatten().collect::<Vec<_>>().join("&");
        if query.len() > MOST_QUERY_BYTES {
            return Err(TargetError::Query);
        }
        let credentials = parameter(&query, "user").zip(parameter(&query, "pass"));
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Ok(Self {
            stream: stream.to_owned(),
            rendition: rendition.map(str::to_owned),
            credentials: credentials.map(|(user, password)| (decoded(user), decoded(password))),
            query: Some(query).filter(|query| !query.is_empty()),
        })
    }
}

/// The parts in front of the first `?` and behind it.
pub(super) fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(before, query)| (before, Some(query)))
}

/// The value of this name in a query. Clients put a query of their own behind that of the address.
pub(super) fn parameter<'a>(query: &'a str, wanted: &str) -> Option<&'a str> {
    let mut pairs = query.split(['&', '?']).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(app: &str, key: &str) -> (String, Option<String>) {
        let target = Target::new(app, key).expect("a stream");
        (target.stream, target.rendition)
    }

    #[test]
    fn application_and_key_are_one_name() {
        for (app, key) in [("live", ""), ("", "live"), ("/live/", ""), ("live?a=b", "?c"), ("", "%6Cive")] {
            assert_eq!(named(app, key), ("live".to_owned(), None), "{app} {key}");
        }
        for (app, key) in [("live", "cam"), ("", "live/cam"), ("live/cam", ""), ("live/", "/cam")] {
            assert_eq!(named(app, key), ("live/cam".to_owned(), None), "{app} {key}");
        }
        assert_eq!(named("live", "cam~low"), ("live/cam".to_owned(), Some("low".to_owned())));
    }

    #[test]
    fn credentials_are_in_the_key_or_the_application() {
        let target = Target::new("live?user=anna&pass=s%26m", "cam?expires=1&sig=2").expect("a stream");
        assert_eq!(target.credentials, Some(("anna".to_owned(), "s&m".to_owned())));
        assert_eq!(target.query.as_deref(), Some("expires=1&sig=2&user=anna&pass=s%26m"));
        assert_eq!(Target::new("live", "?user=anna").expect("a stream").credentials, None);
    }

    #[test]
    fn names_that_are_none() {
        let long = "a".repeat(129);
        let query = format!("a?{}", "b".repeat(1025));
        let cases = [
            ("", "", TargetError::Empty),
            ("/", "?sig=1", TargetError::Empty),
            ("", "~low", TargetError::Empty),
            ("live", long.as_str(), TargetError::Length),
            ("live", query.as_str(), TargetError::Query),
            ("live", "a%0ab", TargetError::Characters),
            ("live", "%ff", TargetError::Characters),
        ];
        for (app, key, error) in cases {
            assert_eq!(Target::new(app, key), Err(error), "{app} {key}");
        }
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<(String, String)>().for_each(|(app, key)| {
            if let Ok(target) = Target::new(app, key) {
                assert!(!target.stream.is_empty() && target.stream.len() <= MOST_NAME_BYTES);
            }
        });
    }
}
