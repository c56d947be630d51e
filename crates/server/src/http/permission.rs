use hyper::{Request, StatusCode, header};

use super::reply::{self, Reply};
use super::requester::{Requester, text_of};
use crate::access::{Attempt, Grant, Right, Verdict, is_basic, text};
use crate::context::Context;

const CREDENTIALS: &str = "this stream asks for a user and a password, or a signed link";

/// Why a password is not looked at, and what to do.
const BASIC_IN_PLAIN: &str = "basic authentication would send the password readable for everybody on the way: use digest authentication \
    (curl --digest, HTTPDigestAuth in Python), or https, with [tls] in the server's configuration";

/// The grant of a right to that stream; the answer, if the client has none.
pub(super) fn demand<B>(
    context: &Context,
    requester: &Requester,
    request: &Request<B>,
    right: Right,
    stream: &str,
) -> Result<Grant, Box<Reply>> {
    match check(context, requester, request, right, stream) {
        Verdict::Granted(grant) => Ok(grant),
        Verdict::Challenge(challenges) => Err(challenge(requester, request, &challenges).into()),
        Verdict::Denied(why) => Err(reply::text(StatusCode::FORBIDDEN, why).into()),
    }
}

/// Asks who the client is.
pub(super) fn challenge<B>(requester: &Requester, request: &Request<B>, challenges: &[String]) -> Reply {
    reply::challenge(challenges, if is_readable(requester, request) { BASIC_IN_PLAIN } else { CREDENTIALS })
}

/// Whether the client sent its password for everybody on the way to read.
fn is_readable<B>(requester: &Requester, request: &Request<B>) -> bool {
    let authorization = request.headers().get(header::AUTHORIZATION);
    !requester.encrypted && authorization.is_some_and(|value| is_basic(value.as_bytes()))
}

/// Whether this client has the right to that stream.
pub(super) fn check<B>(
    context: &Context,
    requester: &Requester,
    request: &Request<B>,
    right: Right,
    stream: &str,
) -> Verdict {
    let uri = request.uri();
    // A user's name need not be ASCII; those that are not UTF-8 are of the older kind.
    let authorization = request.headers().get(header::AUTHORIZATION).map(|value| text(value.as_bytes()));
    let authorization = authorization.as_deref();
    let verdict = context.access().check(&Attempt {
        right,
        stream,
        method: request.method().as_str(),
        uri: uri.path_and_query().map_or("/", |path| path.as_str()),
        query: uri.query(),
        authorization,
        base_path: requester.site.base_path.as_str(),
        encrypted: requester.encrypted,
        peer: requester.peer,
        host: text_of(request.headers(), &header::HOST),
    });
    let refused = match &verdict {
        Verdict::Granted { .. } => None,
        Verdict::Challenge(_) if is_readable(requester, request) => Some("basic authentication needs TLS"),
        Verdict::Challenge(_) => authorization.map(|_| "its credentials are not valid"),
        Verdict::Denied(why) => Some(*why),
    };
    if let Some(why) = refused {
        context.counters.denied.add_one();
        // The longest comes last: a long line is cut.
        tracing::info!(peer = %requester.peer, why, stream, "a client is not let in");
    }
    verdict
}
