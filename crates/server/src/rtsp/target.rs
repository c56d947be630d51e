//! The stream and track that a request's URI names.

use percent_encoding::percent_decode_str;

use crate::config::split_rendition;
use crate::hub::{HubError, RenditionSelection, ViewRequest};

/// A stream, and one of its tracks where the URI ends with a control that players add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The stream's name.
    pub(super) stream: String,
    /// The rendition's, where the path ends with `~NAME`.
    pub(super) rendition: Option<String>,
    /// The part behind `?`, without a control.
    pub(super) query: Option<String>,
    /// The number at the end of `trackID=0` and the like.
    pub(super) track: Option<u8>,
    /// The URI as it was asked for, without the user.
    pub(super) uri: String,
    /// The name if nothing in the path is a control, and the URI that goes with it.
    whole: (String, String),
    /// The stream's URI without user, query, track and slash at the end.
    base: String,
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
    #[error("the query is longer than {MAX_QUERY_BYTES} bytes")]
    Query,
}

/// Longest name of a stream.
const MAX_NAME_BYTES: usize = 128;

/// Longest query. It comes back in answers, and a viewer keeps it.
const MAX_QUERY_BYTES: usize = 1024;

impl Target {
    /// Reads a URI. Players put the control behind the path, or behind the query.
    pub(super) fn parse(uri: &str) -> Result<Self, TargetError> {
        let (scheme, rest) = uri.split_once("://").ok_or(TargetError::Form)?;
        if !scheme.eq_ignore_ascii_case("rtsp") && !scheme.eq_ignore_ascii_case("rtsps") {
            return Err(TargetError::Form);
        }
        let (authority, path_and_query) = rest.split_once('/').ok_or(TargetError::Form)?;
        let (path, query) = path_and_query
            .split_once('?')
            .map_or((path_and_query, None), |(path, query)| (path, Some(query)));
        let whole_path = path.trim_end_matches('/');
        let (path, path_track) = split_track(path);
        let (query, query_track) = query.map_or((None, None), |query| {
            let (query, track) = split_query_track(query);
            (Some(query.to_owned()), track)
        });
        if query.as_ref().is_some_and(|query| query.len() > MAX_QUERY_BYTES) {
            return Err(TargetError::Query);
        }
        let stream = percent_decode_str(path).decode_utf8().map_err(|_| TargetError::Characters)?;
        let whole = percent_decode_str(whole_path).decode_utf8().map_err(|_| TargetError::Characters)?;
        if stream.is_empty() || stream.len() > MAX_NAME_BYTES {
            return Err(TargetError::Length);
        }
        if whole.chars().any(char::is_control) {
            return Err(TargetError::Characters);
        }
        // A control behind the name of a rendition is no part of the stream's name either.
        let (whole, _) = split_rendition(&whole);
        let (stream, rendition) = split_rendition(&stream);
        if stream.is_empty() {
            return Err(TargetError::Length);
        }
        let host = authority.rsplit('@').next().unwrap_or(authority);
        let base = |path: &str| format!("{scheme}://{host}/{path}");
        Ok(Self {
            stream: stream.to_owned(),
            rendition: rendition.map(str::to_owned),
            query,
            track: path_track.or(query_track),
            uri: base(path_and_query),
            whole: (whole.to_owned(), base(whole_path)),
            base: base(path),
        })
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
    pub(super) fn renditions(&self) -> Result<Option<RenditionSelection>, HubError> {
        ViewRequest::renditions_of(self.rendition.as_deref(), self.query.as_deref())
    }

    /// The base of controls. Most players put a control behind all of it, the query included. By RFC 3986 it comes
    /// behind the path: hence the slash before the query, which is lost then, so that the connection has to remember it.
    pub(super) fn content_base(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}/{query}", self.base)
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

/// Parts our own control from the end of a query, and slashes. A query belongs to whoever wrote it: what only resembles a control
/// stays.
fn split_query_track(query: &str) -> (&str, Option<u8>) {
    let trimmed = query.trim_end_matches('/');
    let ours = trimmed.rsplit_once('/').filter(|(_, last)| last.starts_with("trackID="));
    match ours.and_then(|(before, last)| Some((before, track(last)?))) {
        Some((before, track)) => (before.trim_end_matches('/'), Some(track)),
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
        assert_eq!(target("rtsp://h/live/cam%201/?expires=1&sig=a/b/trackID=0"), signed(Some(0)));
        assert_eq!(target("rtsp://h/live/cam%201/?expires=1&sig=a/b/"), signed(None));
    }

    #[test]
    fn a_query_keeps_what_only_resembles_a_control() {
        for query in ["track=1", "stream=2", "trackID=0", "a=b/stream=3", "a=b/track=x", "latency=2s", ""] {
            assert_eq!(
                target(&format!("rtsp://h/cam?{query}")),
                ("cam".to_owned(), Some(query.to_owned()), None)
            );
        }
    }

    /// The URI that players make of the base and a relative control.
    #[test]
    fn a_control_is_found_behind_the_base_however_it_is_joined() {
        for uri in ["rtsp://h/a/cam?latency=2s&x=y/z", "rtsp://h/a/cam", "rtsp://h/a/cam/?latency=2s"] {
            let asked = Target::parse(uri).expect(uri);
            let base = asked.content_base();
            let slash = if base.ends_with('/') { "" } else { "/" };
            let appended = Target::parse(&format!("{base}{slash}trackID=1")).expect(uri);
            assert_eq!((&appended.query, appended.track), (&asked.query, Some(1)), "{uri}");
            let path = base.split('?').next().expect("a path");
            let resolved = Target::parse(&format!("{path}trackID=1")).expect(uri);
            assert_eq!((resolved.query, resolved.track), (None, Some(1)), "{uri}");
            for target in [appended.stream, resolved.stream] {
                assert_eq!(target, "a/cam", "{uri}");
            }
            let again = Target::parse(&base).expect(uri);
            assert_eq!(again.content_base(), base, "a base is its own base");
        }
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
    fn a_rendition_is_no_part_of_the_streams_name() {
        let paths = [
            ("live~low", "live", "low", None),
            ("live%7Elow/", "live", "low", None),
            ("live~low/streamid=0", "live", "low", Some(0)),
            ("live~low/trackID=1?sig=x", "live", "low", Some(1)),
            ("a/stream=2~low", "a/stream=2", "low", None),
            ("live~a~b", "live", "a~b", None),
        ];
        for (path, stream, rendition, track) in paths {
            let parsed = Target::parse(&format!("rtsp://me:secret@h:1/{path}")).expect("valid");
            // Whether or not there are streams of any name, as for ANNOUNCE.
            for exists in [true, false] {
                let target = parsed.clone().resolve(|_| exists);
                let found = (target.stream.as_str(), target.rendition.as_deref(), target.track);
                assert_eq!(found, (stream, Some(rendition), track), "{path}");
            }
        }
        assert_eq!(Target::parse("rtsp://h/~low"), Err(TargetError::Length));
    }

    #[test]
    fn the_base_tells_no_secrets() {
        let target = Target::parse("rtsp://me:secret@h:1/cam/trackID=0?sig=x").expect("valid");
        assert_eq!(target.base, "rtsp://h:1/cam");
        assert_eq!(target.content_base(), "rtsp://h:1/cam/?sig=x");
        assert_eq!(target.uri, "rtsp://h:1/cam/trackID=0?sig=x");
    }

    #[test]
    fn invalid_targets_are_refused() {
        let long = format!("rtsp://h/{}", "x".repeat(129));
        let query = format!("rtsp://h/cam?{}", "x".repeat(1025));
        let cases = [
            ("*", TargetError::Form),
            ("/cam", TargetError::Form),
            ("http://h/cam", TargetError::Form),
            ("rtsp://h", TargetError::Form),
            ("rtsp://h/", TargetError::Length),
            ("rtsp://h/trackID=0", TargetError::Length),
            (&long, TargetError::Length),
            (&query, TargetError::Query),
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
                let again = Target::parse(&target.content_base()).expect("a base is a target");
                assert!(again.stream.len() <= target.stream.len());
            }
        });
    }
}
