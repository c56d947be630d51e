//! WHEP and WHIP (RFC 9725): offers by `POST`, and the session that each begins.

use std::sync::Arc;

use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use super::answer::{asked, known_tracks};
use super::body;
use super::guard;
use super::permission::demand;
use super::reply::{self, Reply};
use super::requester::{Requester, text_of};
use super::values::FOREIGN;
use crate::access::Right;
use crate::config::split_rendition;
use crate::context::Context;
use crate::hub::HubError;
use crate::lease::Lease;
use crate::net::Permit;
use crate::webrtc::{self, Ask, OfferError, Opened, PublishAsk, PublishError, ViewAsk, WebRtc};

const SDP: &str = "application/sdp";
const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
const OFF: &str = "WebRTC is not served here: start the server with --listen-webrtc, or set webrtc.listen in its configuration";

/// Characters of a session's identifier, which are hexadecimal digits.
const ID_CHARS: usize = 32;

/// What such a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The stream, with the rendition behind `~`.
    address: String,
    right: Right,
    /// The session, if it is about one.
    id: Option<String>,
}

impl Target {
    /// `None` if the path is another one's.
    fn of_path(path: &str) -> Option<Self> {
        let path = percent_decode_str(path).decode_utf8().ok()?;
        let (path, id) = match path.rsplit_once('/') {
            Some((path, id)) if id.len() == ID_CHARS && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                (path, Some(id.to_owned()))
            }
            _ => (&*path, None),
        };
        let (address, end) = path.strip_prefix('/')?.rsplit_once('/')?;
        let right = match end {
            "whep" => Right::View,
            "whip" => Right::Publish,
            _ => return None,
        };
        (!address.is_empty()).then(|| Self { address: address.to_owned(), right, id })
    }

    /// The target of a request; `None` if it is about something else, such as a value with such a key.
    pub(super) fn of<B>(context: &Context, request: &Request<B>) -> Option<Self> {
        let target = Self::of_path(request.uri().path())?;
        let is_value = || target.id.is_none() && context.topics.find(&target.address).is_some();
        let is_ours =
            content_type(request) == Some(SDP) || request.method() == Method::OPTIONS || !is_value();
        is_ours.then_some(target)
    }
}

/// Answers a request for WebRTC.
pub(super) async fn answer<B>(
    context: &Arc<Context>,
    requester: &Requester,
    request: Request<B>,
    target: Target,
) -> Reply
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    context.counters.http_requests.add_one();
    if let Some(preflight) = guard::preflight(&request, &context.origins()) {
        return preflight;
    }
    // A page of another site may send a text here without asking.
    if !context.origins().allow(request.headers()) {
        return reply::text(StatusCode::FORBIDDEN, FOREIGN);
    }
    let Some(sessions) = requester.site.webrtc.clone() else {
        return reply::text(StatusCode::NOT_FOUND, OFF);
    };
    let outcome = match (request.method().clone(), &target.id) {
        (Method::POST, None) => begin(&sessions, context, requester, request, &target).await,
        (Method::DELETE, Some(id)) if sessions.end(id) => Ok(reply::text(StatusCode::OK, "ended")),
        (Method::PATCH, Some(id)) if sessions.has(id) => patch(&sessions, context, request, id).await,
        (Method::DELETE | Method::PATCH, Some(_)) => {
            Ok(reply::text(StatusCode::NOT_FOUND, "there is no such session"))
        }
        (Method::OPTIONS, None) => {
            let options = reply::text(StatusCode::NO_CONTENT, "");
            Ok(reply::with_header(options, ACCEPT_POST, SDP))
        }
        (_, id) => {
            let allowed = if id.is_some() { "DELETE, PATCH" } else { "POST, OPTIONS" };
            let refusal =
                reply::text(StatusCode::METHOD_NOT_ALLOWED, &format!("{allowed} are answered here"));
            Ok(reply::with_header(refusal, header::ALLOW, allowed))
        }
    };
    outcome.unwrap_or_else(|refusal| *refusal)
}

fn content_type<B>(request: &Request<B>) -> Option<&str> {
    let value = text_of(request.headers(), &header::CONTENT_TYPE)?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

/// Begins a session.
async fn begin<B>(
    sessions: &Arc<WebRtc>,
    context: &Arc<Context>,
    requester: &Requester,
    request: Request<B>,
    target: &Target,
) -> Result<Reply, Box<Reply>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if content_type(&request) != Some(SDP) {
        let refusal = reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send an offer as application/sdp");
        return Err(Box::new(reply::with_header(refusal, ACCEPT_POST, SDP)));
    }
    let (name, rendition) = split_rendition(&target.address);
    let bearing = with_bearer(&request);
    let grant = demand(context, requester, &bearing, target.right, name)?;
    let permit = context.admission.admit(requester.peer.ip()).map_err(|limit| {
        let why = format!("the limit {limit} is reached; try again later");
        Box::new(reply::with_header(
            reply::text(StatusCode::SERVICE_UNAVAILABLE, &why),
            header::RETRY_AFTER,
            "5",
        ))
    })?;
    let (parts, body) = request.into_parts();
    let offer = body::read(body, &context.limits()).await?;
    let offer = String::from_utf8(offer.to_vec())
        .map_err(|_| Box::new(reply::text(StatusCode::BAD_REQUEST, "the offer is not UTF-8")))?;
    // A body takes a while, and a reload may have come meanwhile.
    if !context.access().upholds(&grant) {
        return Err(Box::new(reply::text(StatusCode::FORBIDDEN, "the right to this stream was withdrawn")));
    }
    let ask = Ask { peer: requester.peer, local: requester.local, offer };
    let site = context.origins().trusted(&parts.headers);
    let opened = match target.right {
        Right::View => {
            let asked = Asked { name, rendition, uri: &parts.uri };
            let lease = |stream: &crate::hub::Stream| Lease::new(grant, site, stream.removed(), context);
            view(sessions, context, ask, &asked, lease, permit).await?
        }
        // An address of WebRTC gives one of the other two.
        Right::Publish | Right::Broker => {
            publish(sessions, context, PublishAsk { ask, name, rendition, grant, site, permit }).await?
        }
    };
    Ok(created(&opened, target.right))
}

/// The stream that a viewer asks for.
struct Asked<'a> {
    name: &'a str,
    rendition: Option<&'a str>,
    uri: &'a Uri,
}

async fn view(
    sessions: &Arc<WebRtc>,
    context: &Arc<Context>,
    ask: Ask,
    asked_for: &Asked<'_>,
    lease: impl FnOnce(&crate::hub::Stream) -> Lease,
    permit: Permit,
) -> Result<Opened, Box<Reply>> {
    let refuse = |status, why: &str| Box::new(reply::text(status, why));
    let Asked { name, rendition, uri } = *asked_for;
    let stream = context.hub.find(name);
    let stream = stream.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "there is no such stream"))?;
    let (latency, renditions) = asked(rendition, uri.query())?;
    let checked = stream.check_renditions(&renditions);
    checked.map_err(|error| refuse(StatusCode::NOT_FOUND, &error.to_string()))?;
    let tracks = known_tracks(&stream).await?;
    let lease = lease(&stream);
    let asked = ViewAsk { ask, stream, tracks, lease, permit, latency, renditions };
    webrtc::view(sessions, context, asked).await.map_err(|error| refuse(status(&error), &error.to_string()))
}

async fn publish(
    sessions: &Arc<WebRtc>,
    context: &Arc<Context>,
    asked: PublishAsk<'_>,
) -> Result<Opened, Box<Reply>> {
    webrtc::publish(sessions, context, asked).await.map_err(|error| {
        let status = match &error {
            PublishError::Name(_) => StatusCode::BAD_REQUEST,
            PublishError::Offer(error) => status(error),
            PublishError::Tracks(_) => StatusCode::NOT_ACCEPTABLE,
            PublishError::Hub(HubError::Busy(_)) => StatusCode::CONFLICT,
            PublishError::Hub(HubError::RenditionName(_)) => StatusCode::BAD_REQUEST,
            PublishError::Hub(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Box::new(reply::text(status, &error.to_string()))
    })
}

fn status(error: &OfferError) -> StatusCode {
    match error {
        OfferError::Malformed(_) => StatusCode::BAD_REQUEST,
        OfferError::Codec(_) => StatusCode::NOT_ACCEPTABLE,
        OfferError::NoAddress | OfferError::Busy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The answer with the session's address, as seen from the one that was asked: a proxy may show it below another path.
fn created(opened: &Opened, right: Right) -> Reply {
    let mut reply = reply::of(StatusCode::CREATED, SDP, opened.answer.clone());
    let end = if right == Right::View { "whep" } else { "whip" };
    let headers = reply.headers_mut();
    if let Ok(place) = HeaderValue::try_from(format!("{end}/{}", opened.id)) {
        headers.insert(header::LOCATION, place);
    }
    headers.insert(header::ETAG, HeaderValue::from_static(ETAG));
    headers.insert(ACCEPT_PATCH, HeaderValue::from_static(FRAGMENT));
    reply
}

/// The entity tag of a session's ICE part, which never changes.
const ETAG: &str = "\"1\"";

/// Takes candidates of the client. The server, an ICE-lite agent, needs none: it answers whoever knows the session's password. A restart
/// of ICE is refused: the client begins another session.
async fn patch<B>(
    sessions: &WebRtc,
    context: &Context,
    request: Request<B>,
    id: &str,
) -> Result<Reply, Box<Reply>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if content_type(&request) != Some(FRAGMENT) {
        let refusal = reply::text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send candidates as application/trickle-ice-sdpfrag",
        );
        return Err(Box::new(reply::with_header(refusal, ACCEPT_PATCH, FRAGMENT)));
    }
    let matches = text_of(request.headers(), &header::IF_MATCH).map(str::to_owned);
    if matches.as_deref().is_some_and(|tag| tag != ETAG && tag != "*") {
        return Ok(reply::text(StatusCode::PRECONDITION_FAILED, "the session has another entity tag"));
    }
    let fragment = body::read(request.into_body(), &context.limits()).await?;
    let fragment = String::from_utf8_lossy(&fragment);
    let ufrag = fragment.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:"));
    let restarts = ufrag.is_some_and(|ufrag| !sessions.is_offered(id, ufrag.trim()));
    if restarts {
        let why = "ICE cannot be restarted: begin another session";
        return Ok(reply::text(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    Ok(reply::text(StatusCode::NO_CONTENT, ""))
}

/// The head of the request, where a bearer's token is a signed link's query, or user and password, plain or as in basic authentication.
/// Encoders have no other field for it.
fn with_bearer<B>(request: &Request<B>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    let token = text_of(request.headers(), &header::AUTHORIZATION).and_then(bearer_token);
    let Some(token) = token else { return head };
    if token.contains("sig=") {
        head.headers_mut().remove(header::AUTHORIZATION);
        let path = request.uri().path();
        if let Ok(uri) = format!("{path}?{}", token.trim_start_matches('?')).parse() {
            *head.uri_mut() = uri;
        }
        return head;
    }
    let basic =
        if token.contains(':') { data_encoding::BASE64.encode(token.as_bytes()) } else { token.to_owned() };
    if let Ok(value) = HeaderValue::try_from(format!("Basic {basic}")) {
        head.headers_mut().insert(header::AUTHORIZATION, value);
    }
    head
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_stream_and_a_session() {
        let target = |address: &str, right, id: Option<&str>| {
            Some(Target { address: address.to_owned(), right, id: id.map(str::to_owned) })
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(Target::of_path("/cam/whep"), target("cam", Right::View, None));
        assert_eq!(Target::of_path("/live/a%20b/whip"), target("live/a b", Right::Publish, None));
        assert_eq!(Target::of_path(&format!("/cam/whep/{id}")), target("cam", Right::View, Some(id)));
        for other in ["/whep", "/cam", "/cam/whep/", "/cam/whep/1", "/cam/whepx", "//whep", "/%ff/whep"] {
            assert_eq!(Target::of_path(other), None, "{other}");
        }
        bolero::check!().with_type::<String>().for_each(|path| {
            assert!(Target::of_path(path).is_none_or(|target| !target.address.is_empty()));
        });
    }

    #[test]
    fn a_bearers_token_is_a_link_or_a_password() {
        let head = |token: &str| {
            let request = Request::post("/cam/whip").header(header::AUTHORIZATION, token).body(()).unwrap();
            let head = with_bearer(&request);
            let authorization = text_of(head.headers(), &header::AUTHORIZATION).map(str::to_owned);
            (head.uri().to_string(), authorization)
        };
        let basic = || Some("Basic YW5uYTpzZWNyZXQ=".to_owned());
        assert_eq!(head("Bearer anna:secret"), ("/cam/whip".to_owned(), basic()));
        assert_eq!(head("bearer YW5uYTpzZWNyZXQ="), ("/cam/whip".to_owned(), basic()));
        assert_eq!(head("Bearer expires=1&sig=ab"), ("/cam/whip?expires=1&sig=ab".to_owned(), None));
        assert_eq!(head("Basic YW5uYTpzZWNyZXQ="), ("/cam/whip".to_owned(), basic()));
    }
}
