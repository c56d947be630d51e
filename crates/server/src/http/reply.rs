use std::io;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode, Uri};

/// A whole answer, or one whose body is made as the client takes it.
pub(super) type Reply = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Text for a person.
pub(super) fn text(status: StatusCode, text: &str) -> Reply {
    of(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// An answer of this type.
pub(super) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    with_body(status, content_type, Full::new(body.into()).map_err(|never| match never {}))
}

/// The same, whatever makes the body.
pub(super) fn with_body(
    status: StatusCode,
    content_type: &'static str,
    body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static,
) -> Reply {
    let mut reply = Response::new(body.boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
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

/// Sends a client to the same address with a slash behind it.
pub(super) fn with_slash(uri: &Uri) -> Reply {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut reply = text(StatusCode::PERMANENT_REDIRECT, "the address ends with a slash");
    if let Ok(place) = HeaderValue::try_from(format!("{}/{query}", uri.path())) {
        reply.headers_mut().insert(header::LOCATION, place);
    }
    reply
}

/// Says who may see this. A challenge that cannot be in a header is left out.
pub(super) fn challenge(challenges: &[String], why: &str) -> Reply {
    let mut reply = text(StatusCode::UNAUTHORIZED, why);
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
