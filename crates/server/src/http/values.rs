//! Values by key over HTTP: watchers, publishers, and single changes.

mod change;
mod present;
mod publisher;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use freshwire::framing::event_stream;
use freshwire::now;
use freshwire::websocket::Keepalive;
use freshwire_record::parse_duration;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use percent_encoding::percent_decode_str;

pub(super) use change::{change, is_change};
pub(super) use present::Wanted;

use super::guard::Guard;
use super::reply::{self, Reply};
use super::requester::Requester;
use super::route::Exchange;
use super::socket::{self, ServiceEnd, SocketService};
use super::takeover::{Moment, refuse, wait};
use super::{page, socket::accept};
use crate::access::Grant;
use crate::config::Origins;
use crate::context::Context;
use crate::lease::Lease;
use crate::net::Conn;
use crate::statistics::{self, Question};
use crate::values::{Topic, ValueError, WatchRequest, Watcher};

/// Most keys that a watcher may name.
const MAX_KEYS_ASKED: usize = 64;

/// Most values on the way that a client acknowledges.
const MAX_WINDOW: u32 = 1024;

/// An exchange of values that was asked for and granted.
pub(super) struct Order {
    pub(super) topic: Arc<Topic>,
    exchange: Exchange,
    /// The head of the answer.
    head: Vec<u8>,
    guard: Guard,
    peer: SocketAddr,
    asked: WatchQuery,
    /// For as long as it is granted.
    lease: Lease,
}

/// The query of a watcher's address.
#[derive(Debug, Default, PartialEq, Eq)]
struct WatchQuery {
    within: Option<Duration>,
    keys: Option<BTreeSet<String>>,
    /// Values that may be on the way before the client says that it has handled them.
    window: Option<u32>,
    /// Reports between the values: how it is served.
    reports: bool,
}

impl WatchQuery {
    fn read(query: Option<&str>) -> Result<Self, String> {
        let mut asked = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // Pages write a blank as a plus sign.
            let value = value.replace('+', " ");
            let value = percent_decode_str(&value).decode_utf8_lossy();
            match name {
                "within" => {
                    let within = parse_duration(&value).ok().filter(|within| WITHIN.contains(within));
                    let short: String = value.chars().take(32).collect();
                    asked.within = Some(
                        within.ok_or_else(|| format!("within={short} is not a duration from 1ms to 1min"))?,
                    );
                }
                "key" => {
                    let keys = asked.keys.get_or_insert_default();
                    keys.insert(value.into_owned());
                    if keys.len() > MAX_KEYS_ASKED {
                        return Err(format!(
                            "{MAX_KEYS_ASKED} keys are the limit of a watcher; leave them out for all"
                        ));
                    }
                }
                "window" => {
                    let window = value.parse().ok().filter(|window| (1..=MAX_WINDOW).contains(window));
                    let short: String = value.chars().take(32).collect();
                    asked.window =
                        Some(window.ok_or_else(|| {
                            format!("window={short} is not a number from 1 to {MAX_WINDOW}")
                        })?);
                }
                "reports" => asked.reports = true,
                // A signed link has more.
                _ => {}
            }
        }
        Ok(asked)
    }
}

const WITHIN: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// Decides about a request for the values of a stream. The right to them has been checked.
///
/// # Errors
///
/// The answer, where that is all: a page, a refusal.
pub(super) fn exchange<B>(
    context: &Context,
    requester: &Requester,
    guard: &Guard,
    request: &Request<B>,
    grant: Grant,
    exchange: Exchange,
) -> Result<Order, Box<Reply>> {
    let Some(topic) = context.topics.find(grant.stream()) else {
        return Err(reply::text(StatusCode::NOT_FOUND, NO_TOPIC).into());
    };
    if exchange == Exchange::Push && context.brokers.find(grant.stream()).is_some() {
        return Err(reply::text(StatusCode::CONFLICT, OF_A_BROKER).into());
    }
    let asked = match WatchQuery::read(request.uri().query()) {
        Ok(asked) => asked,
        Err(why) => return Err(reply::text(StatusCode::BAD_REQUEST, &why).into()),
    };
    let head = match exchange {
        Exchange::Page => return Err(page::watch(grant.stream(), request.uri()).into()),
        Exchange::Messages | Exchange::Push => accept(request, &context.origins())?,
        Exchange::Events if request.method() == Method::HEAD => {
            return Err(reply::of(StatusCode::OK, event_stream::CONTENT_TYPE, "").into());
        }
        Exchange::Events => match events_head(guard, request.headers(), &context.origins()) {
            Some(head) => head,
            None => return Err(reply::text(StatusCode::FORBIDDEN, FOREIGN).into()),
        },
    };
    let site = context.origins().trusted(request.headers());
    let lease = Lease::new(grant, site, topic.removed(), context);
    Ok(Order { topic, exchange, head, guard: guard.clone(), peer: requester.peer, asked, lease })
}

/// The head of an answer of events; `None` for a page of an origin that is not trusted.
fn events_head(guard: &Guard, headers: &HeaderMap, origins: &Origins) -> Option<Vec<u8>> {
    if !origins.allow(headers) {
        return None;
    }
    let guard = match headers.get(header::ORIGIN) {
        // The server's own pages may come by another scheme.
        Some(own) if origins.trusted_origin(headers).is_none() => guard
            .clone()
            .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, own.clone())
            .with(header::VARY, HeaderValue::from_static("origin")),
        _ => guard.clone(),
    };
    Some(guard.endless_head(event_stream::CONTENT_TYPE))
}

/// Serves the exchange until one of them has enough. `early` was read already.
pub(super) async fn run(conn: Conn, early: Vec<u8>, order: Order, context: &Context) -> io::Result<()> {
    if order.exchange == Exchange::Push {
        return publisher::run(conn, &early, &order.topic, &order.head, order.lease, context).await;
    }
    let parts = conn.into_parts()?;
    parts.reader.outlast(context.hub.config().stall_timeout);
    let refusal: Option<TcpStream> = if parts.seal.is_none() { parts.socket.try_clone().ok() } else { None };
    let is_socket = order.exchange == Exchange::Messages;
    let watcher = order.topic.watch(WatchRequest {
        socket: parts.socket,
        preface: order.head,
        seal: parts.seal,
        framer: if is_socket { WatchRequest::messages() } else { WatchRequest::events() },
        takes_bytes: is_socket,
        within: order.asked.within,
        window: order.asked.window.filter(|_| is_socket),
        keys: order.asked.keys,
        protocol: if is_socket { "websocket" } else { "events" },
        peer: order.peer,
    });
    let watcher = watcher.map_err(|error| {
        refuse(refusal, &order.guard, &error);
        io::Error::other(error)
    })?;
    if is_socket {
        let watching = ValueService { watcher, reports: order.asked.reports, acked: 0 };
        socket::attend(parts.reader, &early, watching, order.lease, context).await;
    } else {
        let mut spoken = Instant::now();
        let ended = |moment| {
            if spoken.elapsed() >= context.limits().keepalive || moment == Moment::HalfClosed {
                spoken = Instant::now();
                watcher.interject(event_stream::KEEP_ALIVE.to_vec());
            }
            watcher.snapshot().is_none() || watcher.ended().is_some()
        };
        let why = tokio::select! {
            why = wait(parts.reader, order.lease, context, ended) => why,
            never = watcher.offer_missed() => match never {},
        };
        if let Some(why) = why {
            watcher.finish_with(event_stream::comment(&why.to_string()));
        }
    }
    Ok(())
}

/// A watcher over WebSocket.
struct ValueService {
    watcher: Watcher,
    reports: bool,
    acked: u64,
}

impl SocketService for ValueService {
    fn reply(&self, text: &str) -> Option<String> {
        match Question::read(text)? {
            Question::Ping { at } => Some(statistics::pong(at, None, SystemTime::now())),
            Question::Ack { received } => {
                self.watcher.acknowledge(received);
                None
            }
        }
    }

    fn report(&mut self, keepalive: &mut Keepalive) -> Result<Option<String>, ServiceEnd> {
        let snapshot =
            self.watcher.snapshot().filter(|_| self.watcher.ended().is_none()).ok_or(ServiceEnd)?;
        keepalive.acknowledged(&snapshot.sink, now());
        let is_stuck = snapshot.sink.acked < snapshot.sink.bytes && snapshot.sink.acked == self.acked;
        self.acked = snapshot.sink.acked;
        Ok((self.reports && !is_stuck).then(|| statistics::watch_report(&snapshot)))
    }

    fn interject(&self, frames: Vec<u8>) {
        self.watcher.interject(frames);
    }

    async fn attend(&self) -> Infallible {
        self.watcher.offer_missed().await
    }

    fn finish(self, last: Vec<u8>) {
        self.watcher.finish_with(last);
    }
}

/// The status of an answer that refuses a change.
fn status(error: &ValueError) -> StatusCode {
    match error {
        ValueError::TooManyKeys(_) => StatusCode::INSUFFICIENT_STORAGE,
        ValueError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ValueError::NoKey(_) | ValueError::Removed => StatusCode::NOT_FOUND,
        ValueError::NotText => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ValueError::Line { error, .. } => status(error),
        ValueError::TooManyPublishers(_) | ValueError::TooManyWatchers(_) | ValueError::Io(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ValueError::Key(_) | ValueError::NotJson(_) | ValueError::TooDeep | ValueError::Malformed(_) => {
            StatusCode::BAD_REQUEST
        }
    }
}

const NO_TOPIC: &str = "there is no stream of values here; configure it with the source publish, as in `freshwire serve NAME=publish`, or with that of a broker";
const OF_A_BROKER: &str =
    "the values of this stream come from a broker: publish there, or send it single ones with POST /NAME/KEY";
pub(super) const FOREIGN: &str =
    "pages of other sites may not use this stream; trusted_origins in [http] names those that may";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_asks_in_its_address() {
        let keys = ["a&b", "c"].map(str::to_owned).into();
        let asked = WatchQuery::read(Some("key=a%26b&key=c&within=300ms&reports&token=x&window=4"));
        assert_eq!(
            asked,
            Ok(WatchQuery {
                within: Some(Duration::from_millis(300)),
                keys: Some(keys),
                window: Some(4),
                reports: true
            })
        );
        assert_eq!(WatchQuery::read(None), Ok(WatchQuery::default()));
        for wrong in ["within=", "within=2h", "within=0s", "within=soon", "window=0", "window=x"] {
            assert!(WatchQuery::read(Some(wrong)).is_err(), "{wrong}");
        }
        let many: String = (0..=MAX_KEYS_ASKED).map(|key| format!("key={key}&")).collect();
        assert!(WatchQuery::read(Some(&many)).is_err());
    }
}
