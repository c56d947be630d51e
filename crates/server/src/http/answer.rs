use std::sync::Arc;
use std::time::Duration;

use freshwire_media::unit::Tracks;
use hyper::{Method, Request, StatusCode, header};

use super::guard::{self, Guard};
use super::page;
use super::permission::{challenge, check, demand};
use super::reply::{self, Reply};
use super::requester::{Requester, text_of};
use super::route::{Container, Exchange, Route};
use super::socket;
use super::takeover::{Body, Carriage, Order};
use super::values;
use crate::access::{Right, Verdict};
use crate::config::split_rendition;
use crate::context::Context;
use crate::hub::{RenditionSelection, Stream, ViewRequest};
use crate::lease::Lease;

/// How long a player waits for a source that has not said what it has.
const TRACKS_PATIENCE: Duration = Duration::from_secs(5);

/// The outcome of a request.
pub(super) enum Outcome {
    /// This answer.
    Reply(Box<Reply>),
    /// A stream, on this connection.
    Order(Box<Order>),
    /// Values of a stream, on this connection.
    Exchange(Box<values::Order>),
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self::Reply(Box::new(reply))
    }
}

/// Decides about a request.
pub(super) async fn answer<B>(
    context: &Context,
    requester: &Requester,
    guard: &Guard,
    request: &Request<B>,
) -> Outcome
where
    B: hyper::body::Body,
{
    context.counters.http_requests.add_one();
    if let Some(reply) = reply_to_no_get(context, request) {
        return reply.into();
    }
    let not_found = || reply::text(StatusCode::NOT_FOUND, "there is no such page or stream").into();
    let Some(route) = Route::of(request.uri()) else { return not_found() };
    if let Some(wanted) = values::Wanted::of(context, request, &route) {
        return match demand(context, requester, request, Right::View, wanted.stream()) {
            Ok(_) => wanted.reply(context, request).into(),
            Err(refusal) => Outcome::Reply(refusal),
        };
    }
    let Some(address) = route.stream() else {
        return match &route {
            Route::Asset(name) => page::asset(name).map_or_else(not_found, Outcome::from),
            _ => index(context, requester, request).into(),
        };
    };
    let (name, rendition) = split_rendition(address);
    // A client without the right does not learn which streams there are.
    let right = match route {
        Route::Values(_, Exchange::Push) => Right::Publish,
        _ => Right::View,
    };
    let grant = match demand(context, requester, request, right, name) {
        Ok(grant) => grant,
        Err(refusal) => return Outcome::Reply(refusal),
    };
    if let Route::Values(_, exchange) = route {
        if rendition.is_some() {
            return not_found();
        }
        return match values::exchange(context, requester, guard, request, grant, exchange) {
            Ok(order) => Outcome::Exchange(Box::new(order)),
            Err(reply) => Outcome::Reply(reply),
        };
    }
    let Some(stream) = context.hub.find(name) else { return not_found() };
    let (latency, renditions) = match asked(rendition, request.uri().query()) {
        Ok(asked) => asked,
        Err(refusal) => return Outcome::Reply(refusal),
    };
    let site = context.origins().trusted(request.headers());
    if let Err(error) = stream.check_renditions(&renditions) {
        return reply::text(StatusCode::NOT_FOUND, &error.to_string()).into();
    }
    let (carriage, head) = match route {
        Route::Socket(_) => match socket::accept(request, &context.origins()) {
            Ok(head) => (Carriage::socket(&stream), head),
            Err(refusal) => return (*refusal).into(),
        },
        Route::Body(_, container) => match body(container, &stream).await {
            Ok(body) if request.method() == Method::HEAD => return head_of(&body).into(),
            Ok(body) => (body.carriage, guard.endless_head(&body.content_type)),
            Err(refusal) => return (*refusal).into(),
        },
        _ => return page::player(address, request.uri(), requester.site.webrtc.is_some()).into(),
    };
    let lease = Lease::new(grant, site, stream.removed(), context);
    Outcome::Order(Box::new(Order {
        stream,
        carriage,
        head,
        guard: guard.clone(),
        peer: requester.peer,
        lease,
        latency,
        renditions,
    }))
}

/// The reply to a preflight, to another method and to a request with a body.
fn reply_to_no_get<B: hyper::body::Body>(context: &Context, request: &Request<B>) -> Option<Reply> {
    let preflight = guard::preflight(request, &context.origins());
    if preflight.is_some() {
        return preflight;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some(reply::method_not_allowed());
    }
    let has_body = !request.body().is_end_stream();
    has_body.then(|| reply::text(StatusCode::BAD_REQUEST, "a GET request has no body"))
}

/// The bound on the age of pictures and the renditions that a viewer asks for.
pub(super) fn asked(
    rendition: Option<&str>,
    query: Option<&str>,
) -> Result<(Option<Duration>, RenditionSelection), Box<Reply>> {
    let refuse = |why: String| Box::new(reply::text(StatusCode::BAD_REQUEST, &why));
    let latency = ViewRequest::latency_asked(query).map_err(|error| refuse(error.to_string()))?;
    let renditions =
        ViewRequest::renditions_of(rendition, query).map_err(|error| refuse(error.to_string()))?;
    Ok((latency, renditions.unwrap_or(RenditionSelection::All)))
}

/// The stream in this form, once it is known what it consists of.
async fn body(container: Container, stream: &Stream) -> Result<Body, Box<Reply>> {
    let tracks = known_tracks(stream).await?;
    Body::new(container, stream, tracks)
        .map_err(|why| Box::new(reply::text(StatusCode::NOT_ACCEPTABLE, &why)))
}

/// What the stream consists of. A source that has just started has a few seconds to show it.
pub(super) async fn known_tracks(stream: &Stream) -> Result<Arc<Tracks>, Box<Reply>> {
    let mut tracks = stream.tracks();
    let known = tokio::time::timeout(TRACKS_PATIENCE, tracks.wait_for(Option::is_some)).await;
    known.ok().and_then(|tracks| tracks.ok()?.clone()).ok_or_else(|| {
        let refusal = reply::text(StatusCode::SERVICE_UNAVAILABLE, "the stream has no source yet");
        Box::new(reply::with_header(refusal, header::RETRY_AFTER, "5"))
    })
}

fn head_of(body: &Body) -> Reply {
    let mut reply = reply::text(StatusCode::OK, "");
    let headers = reply.headers_mut();
    if let Ok(value) = body.content_type.parse() {
        headers.insert(header::CONTENT_TYPE, value);
    }
    reply
}

/// The streams that this client may see. If it may see none of them but could if it said who it is, it is asked.
fn index<B>(context: &Context, requester: &Requester, request: &Request<B>) -> Reply {
    let mut shown = Vec::new();
    let mut challenges = None;
    for stream in context.hub.streams() {
        match check(context, requester, request, Right::View, stream.name()) {
            Verdict::Granted { .. } => shown.push(stream),
            Verdict::Challenge(values) => challenges = Some(values),
            Verdict::Denied(_) => {}
        }
    }
    match challenges {
        Some(challenges) if shown.is_empty() => challenge(requester, request, &challenges),
        _ => {
            let keys = |name: &str| context.topics.find(name).map(|topic| topic.snapshot().keys);
            page::index(&shown, keys, &host(request), requester, request.uri().query())
        }
    }
}

/// The host without its port, as the client calls it.
fn host<B>(request: &Request<B>) -> String {
    let authority = text_of(request.headers(), &header::HOST).and_then(|host| host.parse().ok());
    let authority: Option<hyper::http::uri::Authority> = authority.or(request.uri().authority().cloned());
    authority.map_or_else(|| "localhost".to_owned(), |authority| authority.host().to_owned())
}
