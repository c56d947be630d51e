use hyper::{Request, header};

use super::asker::{Asker, text_of};
use crate::access::{Attempt, Right, Verdict, text};
use crate::context::Context;

/// Whether this client has the right to that stream.
pub(super) fn check<B>(
    context: &Context,
    asker: &Asker,
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
        encrypted: asker.encrypted,
        peer: asker.peer.ip(),
        host: text_of(request.headers(), &header::HOST),
    });
    let refused = match &verdict {
        Verdict::Granted { .. } => None,
        Verdict::Challenge(_) => authorization.map(|_| "its credentials are not valid"),
        Verdict::Denied(why) => Some(*why),
    };
    if let Some(why) = refused {
        context.counters.denied.add_one();
        tracing::info!(peer = %asker.peer, stream, why, "a client is not let in");
    }
    verdict
}
