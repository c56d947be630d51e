use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

use super::answer::{Outcome, answer};
use super::guard::Guard;
use super::heads::{Heads, Heard};
use super::reply::{self, Reply};
use super::requester::Requester;
use super::shutdown::stopped;
use super::site::Site;
use super::takeover;
use super::values;
use super::webrtc;
use crate::config::Limits;
use crate::context::Context;
use crate::net::{Conn, Patience};

/// Answers requests until the client leaves, or until one asks for a stream: then it serves that.
pub(super) async fn run(conn: Conn, context: Arc<Context>, site: Site) {
    let local = conn.local_addr().ok().map(|local| local.ip());
    let requester = Requester { peer: conn.peer_addr(), local, encrypted: conn.is_encrypted(), site };
    let peer = requester.peer;
    let Some((conn, early, order)) = speak(conn, Arc::clone(&context), requester).await else { return };
    let (stream, served) = match order {
        Handover::Stream(order) => {
            let stream = order.stream.name().to_owned();
            (stream, takeover::run(conn, early, *order, &context).await)
        }
        Handover::Exchange(order) => {
            let stream = order.topic.name().to_owned();
            (stream, values::run(conn, early, *order, &context).await)
        }
    };
    if let Err(error) = served {
        tracing::info!(%peer, stream, %error, "a connection could not be served");
    }
}

/// The purpose for which hyper gives up a connection.
enum Handover {
    Stream(Box<takeover::Order>),
    Exchange(Box<values::Order>),
}

/// Speaks HTTP. The connection comes back when somebody asks for a stream, with what was read too much.
async fn speak(conn: Conn, context: Arc<Context>, requester: Requester) -> Option<(Conn, Vec<u8>, Handover)> {
    let (orders, mut ordered) = mpsc::channel(1);
    let mut shutdown = context.shutdown.clone();
    let counters = Arc::clone(&context);
    let peer = requester.peer;
    let asked = Notify::new();
    let heads = Heads::new();
    let service = service_fn(|mut request: Request<Incoming>| {
        asked.notify_one();
        heads.is_whole();
        let heads = Arc::clone(&heads);
        let (context, orders, requester) = (Arc::clone(&context), orders.clone(), requester.clone());
        // Boxed, because the connection can only be taken from a future that can be moved.
        let reply: Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>> = Box::pin(async move {
            let (method, uri) = (request.method().clone(), requester.site.base_path.strip(request.uri()));
            let has_body = !request.body().is_end_stream();
            let guard = Guard::of(request.headers(), &context.origins());
            let outcome = if requester.site.base_path.lacks_slash(&uri) {
                reply::with_slash(&uri).into()
            } else {
                *request.uri_mut() = uri.clone();
                if let Some(target) = webrtc::Target::of(&context, &request) {
                    webrtc::answer(&context, &requester, request, target).await.into()
                } else if values::is_change(&method) {
                    values::change(&context, &requester, request).await.into()
                } else {
                    answer(&context, &requester, &guard, &request).await
                }
            };
            let taken = match outcome {
                Outcome::Reply(mut reply) => {
                    guard.apply(&mut reply);
                    log_refusal(peer, &method, &uri, &reply);
                    // The rest of a body that was refused may still come, and is no head.
                    if !has_body || reply.status().is_success() {
                        heads.is_answered();
                    }
                    return Ok(*reply);
                }
                Outcome::Order(order) => Handover::Stream(order),
                Outcome::Exchange(order) => Handover::Exchange(order),
            };
            // The receiver takes the connection apart at once, with this future in it.
            let _ = orders.send(taken).await;
            std::future::pending().await
        });
        reply
    });
    let limits = context.limits();
    let conn = Heard::new(Patience::new(conn, limits.answer_timeout), &heads);
    let mut connection = builder(&limits).serve_connection(TokioIo::new(conn), service);
    let old = tokio::time::sleep(limits.max_connection_age);
    let mut old = std::pin::pin!(old);
    // Before the first request hyper would close it, and a client that has only just connected would have no answer.
    let mut end = std::pin::pin!(async {
        any(stopped(&mut shutdown), old.as_mut()).await;
        asked.notified().await;
    });
    let mut overdue = std::pin::pin!(heads.overdue(limits.request_timeout));
    let mut stopping = false;
    let order = loop {
        tokio::select! {
            biased;
            order = ordered.recv() => break order?,
            ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
                if let Err(error) = ended {
                    note_end(&counters, peer, &error);
                    leave(connection.into_parts().io.into_inner().into_inner().into_inner()).await;
                }
                // Dropping it closes the connection; what was answered has been flushed.
                return None;
            }
            () = end.as_mut(), if !stopping => {
                stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = overdue.as_mut() => {
                note_end(&counters, peer, &"a request's head was not complete in time");
                return None;
            }
        }
    };
    let parts = connection.into_parts();
    Some((parts.io.into_inner().into_inner().into_inner(), parts.read_buf.into(), order))
}

fn note_end(context: &Context, peer: SocketAddr, why: &dyn std::fmt::Display) {
    context.counters.bad_requests.add_one();
    tracing::debug!(%peer, %why, "a client did not speak HTTP to the end");
}

async fn any(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::select! {
        () = one => {}
        () = other => {}
    }
}

/// Closes a connection whose request was refused before it was read. Without reading the rest of it the system would reset
/// the connection, and the client would not see why.
async fn leave(mut conn: Conn) {
    let read = async {
        let mut ignored = [0; 4096];
        let mut most = MOST_IGNORED_BYTES;
        let _ = conn.shutdown().await;
        while let Ok(count @ 1..) = conn.read(&mut ignored).await {
            most = most.saturating_sub(count);
            if most == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, read).await;
}

/// A client that has yet to say who it is was not refused, and 5xx is the server's state rather than the request.
fn log_refusal(peer: SocketAddr, method: &Method, uri: &Uri, reply: &Reply) {
    let status = reply.status();
    if status.is_client_error() && status != StatusCode::UNAUTHORIZED {
        let path: String = uri.path().chars().take(MOST_PATH_LOGGED).collect();
        tracing::info!(%peer, %method, path, %status, "a request is refused");
    }
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(limits.max_header_bytes.max(SMALLEST_BUFFER));
    builder
}

/// A refused client gets this long to read why.
const LINGER: Duration = Duration::from_millis(500);

/// Bytes of a refused request that are read and ignored.
const MOST_IGNORED_BYTES: usize = 1 << 20;

/// Characters of a path in the log.
const MOST_PATH_LOGGED: usize = 80;

/// The least that hyper accepts.
const SMALLEST_BUFFER: usize = 8 << 10;
