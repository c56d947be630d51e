use std::sync::Arc;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;

/// The path below which a proxy shows the pages, such as `/cam`. Requests may have it in front or not. Default: none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath(Arc<str>);

/// The text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path of a page; write letters, digits, `-`, `_`, `.` and `~` between slashes: /cam")]
pub struct BasePathError(String);

impl Default for BasePath {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl BasePath {
    /// Reads `/cam`, with or without a slash at either end. `/` is none.
    ///
    /// # Errors
    ///
    /// If the text has other characters than those of a path that nobody has to escape.
    pub fn parse(text: &str) -> Result<Self, BasePathError> {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        if inner.is_empty() {
            return Ok(Self::default());
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && part.bytes().all(is_plain);
        if !inner.split('/').all(is_part) {
            return Err(BasePathError(text.to_owned()));
        }
        Ok(Self(Arc::from(format!("/{inner}"))))
    }

    /// It, with a slash in front and none behind; empty without one.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path behind it; `None` for one that is not below it.
    fn inner<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&*self.0).filter(|inner| inner.starts_with('/'))
    }

    /// Whether this is its own path without the slash, to which the addresses of the pages are not relative.
    pub(crate) fn lacks_slash(&self, uri: &Uri) -> bool {
        !self.0.is_empty() && uri.path() == &*self.0
    }

    /// The address without it.
    pub(crate) fn strip(&self, uri: &Uri) -> Uri {
        let inner = || {
            let inner = self.inner(uri.path()).filter(|_| !self.0.is_empty())?;
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            let mut parts = uri.clone().into_parts();
            parts.path_and_query = Some(PathAndQuery::try_from(format!("{inner}{query}")).ok()?);
            Uri::from_parts(parts).ok()
        };
        inner().unwrap_or_else(|| uri.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_written_with_slashes_or_without() {
        for text in ["/cam", "cam", "/cam/", "cam/"] {
            assert_eq!(BasePath::parse(text).unwrap().as_str(), "/cam", "{text}");
        }
        assert_eq!(BasePath::parse("/a/b.c/").unwrap().as_str(), "/a/b.c");
        for text in ["", "/"] {
            assert_eq!(BasePath::parse(text), Ok(BasePath::default()));
        }
        for wrong in ["/a//b", "/a b", "/..", "/a?b", "https://a/b", "/%41", "/a\"b"] {
            assert!(BasePath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_may_have_it_in_front_or_not() {
        let strip =
            |base: &str, uri: &str| BasePath::parse(base).unwrap().strip(&uri.parse().unwrap()).to_string();
        assert_eq!(strip("/cam", "/cam/live?a=b"), "/live?a=b");
        assert_eq!(strip("/cam", "/cam/"), "/");
        assert_eq!(strip("/cam", "http://host/cam/live"), "http://host/live");
        for other in ["/live?a=b", "/camera/live", "/cam", "*"] {
            assert_eq!(strip("/cam", other), other);
            assert_eq!(strip("", other), other);
        }
        let lacks = |uri: &str| BasePath::parse("/cam").unwrap().lacks_slash(&uri.parse().unwrap());
        assert!(lacks("/cam") && lacks("/cam?a=b") && !lacks("/cam/") && !lacks("/"));
        assert!(!BasePath::default().lacks_slash(&"/".parse().unwrap()));
    }
}
