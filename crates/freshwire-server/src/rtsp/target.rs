//! What the URI of a request names.

use percent_encoding::percent_decode_str;

use crate::hub::{HubError, RenditionsAsked, ViewRequest, check_rendition_name};

/// A stream, and one of its tracks where the URI ends with a control that players add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The stream's name.
    pub(super) stream: String,
    /// The rendition's, where the path ends with `~NAME`.
    pub(super) rendition: Option<String>,
    /// What follows `?`.
    pub(super) query: Option<String>,
    /// The number at the end of `trackID=0` and the like.
    pub(super) track: Option<u8>,
    /// The name if nothing in the path is a control, and the URI that goes with it.
    whole: (String, String),
    /// The stream's URI without query, track and slash at the end.
    pub(super) base: String,
}

/// A URI that names no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("the URI is not rtsp://host/stream")]
    Form,
    #[error("the stream's name is empty or longer than {MAX_NAME_BYTES} bytes")]
    Length,
    #[error("the stream's name has control characters or is not UTF-8")]
    Characters,
}

/// Longest name of a stream.
const MAX_NAME_BYTES: usize = 128;

impl Target {
    /// Reads a URI. Players put the control behind the path, or behind the query.
    pub(super) fn parse(uri: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = uri.split_once("://").ok_or(TargetError::Form)?;
        if !scheme.eq_ignore_ascii_case("rtsp") && !scheme.eq_ignore_ascii_case("rtsps") {
            return Err(TargetError::Form);
        }
        let (authority, path) = rest.split_once('/').ok_or(TargetError::Form)?;
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let whole_path = path.trim_end_matches('/');
        let (path, path_track) = split_track(path);
        let (query, query_track) = query.map_or((None, None), |query| {
            let (query, track) = split_track(query);
            (Some(query.to_owned()), track)
        });
        let stream = percent_decode_str(path).decode_utf8().map_err(|_| TargetError::Characters)?;
        let whole = percent_decode_str(whole_path).decode_utf8().map_err(|_| TargetError::Characters)?;
        if stream.is_empty() || stream.len() > MAX_NAME_BYTES {
            return Err(TargetError::Length);
        }
        if whole.chars().any(char::is_control) {
            return Err(TargetError::Characters);
        }
        let (stream, rendition) = match stream.split_once('~') {
            Some((stream, rendition)) => (stream.to_owned(), Some(rendition.to_owned())),
            None => (stream.into_owned(), None),
        };
        if stream.is_empty() {
            return Err(TargetError::Length);
        }
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let base = |path: &str| format!("{scheme}://{host}/{path}");
        let whole = (whole.into_owned(), base(whole_path));
        Ok(Self { stream, rendition, query, track: path_track.or(query_track), whole, base: base(path) })
    }

    /// A stream's name may end as a control does: `live/stream=2`. If there is such a stream, that one is meant.
    pub(super) fn resolve(self, exists: impl Fn(&str) -> bool) -> Self {
        if self.whole.0 == self.stream || self.whole.0.len() > MAX_NAME_BYTES || !exists(&self.whole.0) {
            return self;
        }
        let (stream, base) = self.whole.clone();
        Self { stream, base, track: None, ..self }
    }

    /// The renditions that it asks a viewer's stream for.
    pub(super) fn renditions(&self) -> Result<Option<RenditionsAsked>, HubError> {
        match &self.rendition {
            Some(name) => check_rendition_name(name).map(|()| Some(RenditionsAsked::Named(name.clone()))),
            None => ViewRequest::renditions_asked(self.query.as_deref()),
        }
    }
}

/// Parts the control from the end, and slashes.
fn split_track(text: &str) -> (&str, Option<u8>) {
    let trimmed = text.trim_end_matches('/');
    let (before, last) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    match track(last) {
        Some(track) => (before.trim_end_matches('/'), Some(track)),
        None => (trimmed, None),
    }
}

fn track(segment: &str) -> Option<u8> {
    let (name, number) = segment.split_once('=')?;
    let is_known =
        ["trackID", "streamid", "track", "stream"].iter().any(|known| name.eq_ignore_ascii_case(known));
    number.parse().ok().filter(|_| is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> (String, Option<String>, Option<u8>) {
        let target = Target::parse(uri).expect(uri);
        (target.stream, target.query, target.track)
    }

    #[test]
    fn the_forms_that_players_send() {
        let plain = |track| ("cam".to_owned(), None, track);
        assert_eq!(target("rtsp://h:8554/cam"), plain(None));
        assert_eq!(target("RTSP://h/cam/"), plain(None));
        assert_eq!(target("rtsps://[::1]:322/cam/trackID=1"), plain(Some(1)));
        assert_eq!(target("rtsp://h/cam//streamid=0/"), plain(Some(0)));
        let signed = |track| ("live/cam 1".to_owned(), Some("expires=1&sig=a/b".to_owned()), track);
        assert_eq!(target("rtsp://h/live/cam%201?expires=1&sig=a/b"), signed(None));
        assert_eq!(target("rtsp://h/live/cam%201/trackID=0?expires=1&sig=a/b"), signed(Some(0)));
        assert_eq!(target("rtsp://h/live/cam%201?expires=1&sig=a/b/trackID=0"), signed(Some(0)));
    }

    #[test]
    fn a_name_may_end_as_a_control_does() {
        let target = |uri: &str| {
            let target = Target::parse(uri).expect(uri).resolve(|name| name == "live/stream=2");
            (target.stream, target.track, target.base)
        };
        let of = |name: &str, track| (name.to_owned(), track, format!("rtsp://h/{name}"));
        assert_eq!(target("rtsp://h/live/stream=2/"), of("live/stream=2", None));
        assert_eq!(target("rtsp://h/live/stream=2/trackID=0"), of("live/stream=2", Some(0)));
        assert_eq!(target("rtsp://h/live/stream=1"), of("live", Some(1)));
    }

    #[test]
    fn the_base_tells_no_secrets() {
        let target = Target::parse("rtsp://me:secret@h:1/cam/trackID=0?sig=x").expect("valid");
        assert_eq!(target.base, "rtsp://h:1/cam");
    }

    #[test]
    fn what_names_no_stream() {
        let long = format!("rtsp://h/{}", "x".repeat(129));
        let cases = [
            ("*", TargetError::Form),
            ("/cam", TargetError::Form),
            ("http://h/cam", TargetError::Form),
            ("rtsp://h", TargetError::Form),
            ("rtsp://h/", TargetError::Length),
            ("rtsp://h/trackID=0", TargetError::Length),
            (&long, TargetError::Length),
            ("rtsp://h/a%0ab", TargetError::Characters),
            ("rtsp://h/%ff", TargetError::Characters),
        ];
        for (uri, error) in cases {
            assert_eq!(Target::parse(uri), Err(error), "{uri}");
        }
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<String>().for_each(|text| {
            let _ = Target::parse(text);
            if let Ok(target) = Target::parse(&format!("rtsp://h/{text}")) {
                let again = Target::parse(&target.base).expect("a base is a target");
                assert!(again.stream.len() <= target.stream.len() && again.query.is_none());
            }
        });
    }
}
