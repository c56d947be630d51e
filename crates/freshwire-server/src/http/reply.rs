use std::fmt::Write as _;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// A whole answer.
pub(super) type Reply = Response<Full<Bytes>>;

/// What every answer has. The pages use nothing from elsewhere, and nobody else may frame them.
pub(super) const SECURITY: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Text for a person.
pub(super) fn text(status: StatusCode, text: &str) -> Reply {
    of(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// An answer of this type.
pub(super) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in SECURITY {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// The method is not one of `allowed`.
pub(super) fn method_not_allowed() -> Reply {
    with_header(
        text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered"),
        header::ALLOW,
        "GET, HEAD",
    )
}

/// Says who may see this. A challenge that cannot be in a header is left out.
pub(super) fn challenge(challenges: &[String]) -> Reply {
    let mut reply =
        text(StatusCode::UNAUTHORIZED, "this stream asks for a user and a password, or a signed link");
    for challenge in challenges {
        if let Ok(value) = HeaderValue::from_str(challenge) {
            reply.headers_mut().append(header::WWW_AUTHENTICATE, value);
        }
    }
    reply
}

/// The answer with one more header.
pub(super) fn with_header(mut reply: Reply, name: HeaderName, value: &'static str) -> Reply {
    reply.headers_mut().insert(name, HeaderValue::from_static(value));
    reply
}

/// The head of an answer whose body lasts as long as the connection.
pub(super) fn endless_head(content_type: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
    for (name, value) in SECURITY {
        // Writing to a string does not fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}
