//! Headers by which browsers guard an answer: what its page may load, which sites may frame it, and whose pages may read it.

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};

use super::reply::{self, Reply};
use crate::config::Origins;

/// The pages use nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors";

const FIXED: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

// Chromium asks this before a page of the Internet reaches a private network.
const ASKS_PRIVATE: &str = "access-control-request-private-network";
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Headers of a value besides its content.
const EXPOSED: &str = "etag, location, freshwire-at, freshwire-count";

/// The methods that a page of a trusted site may use.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";

/// Seconds for which a browser may remember that; WebKit remembers no longer.
const PREFLIGHT_LIFE: &str = "600";

/// The guarding headers of the answer to one request.
#[derive(Clone, Debug)]
pub(super) struct Guard(Vec<(HeaderName, HeaderValue)>);

impl Guard {
    /// For a request with these headers. A page of a trusted site may read the answer, and frame it; of others, none may.
    pub(super) fn of(headers: &HeaderMap, origins: &Origins) -> Self {
        let mut guard: Vec<_> =
            FIXED.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
        let ancestors =
            if origins.is_empty() { "'none'".to_owned() } else { format!("'self' {}", origins.sources()) };
        let policy = HeaderValue::try_from(format!("{POLICY} {ancestors}"));
        // A host that is no text for a header is no site of a browser's either.
        let policy =
            policy.unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
        guard.push((header::CONTENT_SECURITY_POLICY, policy));
        match origins.trusted_origin(headers) {
            Some(origin) => {
                guard.push((RESOURCE_POLICY, HeaderValue::from_static("cross-origin")));
                guard.push((header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()));
                guard.push((header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true")));
                guard.push((header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED)));
            }
            None => guard.push((RESOURCE_POLICY, HeaderValue::from_static("same-origin"))),
        }
        if !origins.is_empty() {
            guard.push((header::VARY, HeaderValue::from_static("origin")));
        }
        Self(guard)
    }

    /// Adds the headers to an answer.
    pub(super) fn apply(&self, reply: &mut Reply) {
        for (name, value) in &self.0 {
            if name == header::VARY {
                reply.headers_mut().append(name, value.clone());
            } else {
                reply.headers_mut().insert(name, value.clone());
            }
        }
    }

    /// Adds them to the head of an answer.
    pub(super) fn write(&self, head: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    /// The head of an answer whose body lasts as long as the connection. Proxies pass such a body on as it comes.
    pub(super) fn endless_head(&self, content_type: &str) -> Vec<u8> {
        let mut head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\nx-accel-buffering: no\r\n"
        )
        .into_bytes();
        self.write(&mut head);
        head.extend_from_slice(b"\r\n");
        head
    }

    /// Adds one header.
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.push((name, value));
        self
    }
}

/// The answer to a browser that asks whether a page of a trusted site may send a request (Fetch standard, CORS-preflight
/// fetch); `None` for any other request.
pub(super) fn preflight<B>(request: &Request<B>, origins: &Origins) -> Option<Reply> {
    let headers = request.headers();
    let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() != Method::OPTIONS || !asks || origins.trusted_origin(headers).is_none() {
        return None;
    }
    let mut reply = reply::text(StatusCode::NO_CONTENT, "");
    let answer = reply.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_LIFE));
    let varies = "access-control-request-method, access-control-request-headers";
    answer.insert(header::VARY, HeaderValue::from_static(varies));
    // No header of a request does more than the request itself.
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    if headers.contains_key(ASKS_PRIVATE) {
        answer.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
    }
    Some(reply)
}
