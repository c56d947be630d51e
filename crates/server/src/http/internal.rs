//! Answers for operators and their programs, on an address of its own: `/health`, `/metrics`, `/api/streams` and `/api/values`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::guard::{self, Guard};
use super::health;
use super::metrics;
use super::reply::{self, Reply};
use super::requester::text_of;
use super::shutdown::stopped;
use crate::access::UNKNOWN_HOST;
use crate::context::Context;
use crate::hub::Stream;
use crate::net::Patience;
use crate::report::{StreamReport, TopicReport};
use crate::values::Topic;

/// Connections at once. One more replaces the oldest, so that there is always a place for a probe.
const MAX_CONNECTIONS: usize = 32;

/// How long to wait when the system has no descriptor for a connection.
const EXHAUSTED: Duration = Duration::from_millis(200);

const JSON: &str = "application/json";

/// Answers operators until the server shuts down. Anybody who reaches the listener may ask. `expected` has the names of
/// the streams with a configured source: the server is healthy when all of them are delivering.
pub async fn serve_internal(
    listener: TcpListener,
    context: Arc<Context>,
    expected: watch::Receiver<Vec<String>>,
) {
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let inquiry = Inquiry { context: Arc::clone(&context), expected, is_local };
    context.tasks.keep("internal address".to_owned(), || accept(&listener, &inquiry)).await;
}

async fn accept(listener: &TcpListener, inquiry: &Inquiry) {
    let context = &inquiry.context;
    let mut shutdown = context.shutdown.clone();
    let mut inquiries: VecDeque<AbortHandle> = VecDeque::with_capacity(MAX_CONNECTIONS);
    loop {
        tokio::select! {
            socket = take(listener) => {
                let Some(socket) = socket else { continue };
                let inquiry = inquiry.clone();
                inquiries.retain(|inquiry| !inquiry.is_finished());
                if inquiries.len() >= MAX_CONNECTIONS && let Some(oldest) = inquiries.pop_front() {
                    oldest.abort();
                }
                let answers = context.tasks.spawn("inquiry", async move { inquiry.answer_all(socket).await });
                inquiries.push_back(answers.abort_handle());
            }
            _ = stopped(&mut shutdown) => return,
        }
    }
}

async fn take(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((socket, _)) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection to the internal address");
            tokio::time::sleep(EXHAUSTED).await;
            None
        }
    }
}

/// The state for one connection's answers.
#[derive(Clone)]
struct Inquiry {
    context: Arc<Context>,
    expected: watch::Receiver<Vec<String>>,
    /// It listens on loopback, so that only programs on this machine should ask.
    is_local: bool,
}

impl Inquiry {
    async fn answer_all(&self, socket: TcpStream) {
        let limits = self.context.limits();
        let service =
            service_fn(
                |request: Request<Incoming>| async move { Ok::<_, Infallible>(self.guarded(&request)) },
            );
        let socket = Patience::new(socket, limits.answer_timeout);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout)
            .max_header_size(limits.max_header_bytes)
            .serve_connection(TokioIo::new(socket), service);
        match tokio::time::timeout(limits.max_connection_age, connection).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an inquiry did not end well"),
        }
    }

    fn guarded<B>(&self, request: &Request<B>) -> Reply {
        let origins = self.context.origins();
        let mut reply = guard::preflight(request, &origins).unwrap_or_else(|| self.answer(request));
        Guard::of(request.headers(), &origins).apply(&mut reply);
        reply
    }

    fn answer<B>(&self, request: &Request<B>) -> Reply {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return reply::method_not_allowed();
        }
        if self.is_local && !self.context.access().knows_host(text_of(request.headers(), &header::HOST)) {
            return reply::text(StatusCode::FORBIDDEN, UNKNOWN_HOST);
        }
        match request.uri().path() {
            "/health" => self.health(),
            "/metrics" => match metrics::text(&self.context) {
                Ok(text) => reply::of(StatusCode::OK, metrics::CONTENT_TYPE, text),
                Err(error) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            },
            "/api/streams" => self.streams(),
            "/api/values" => self.values(),
            _ => reply::text(StatusCode::NOT_FOUND, "ask for /health, /metrics, /api/streams or /api/values"),
        }
    }

    fn health(&self) -> Reply {
        let now = Instant::now();
        let mut report = health::report(&self.expected.borrow(), &self.context.hub, now);
        report.add_tasks(&self.context.tasks, now);
        report.add_brokers(&self.context.brokers.all());
        if !self.context.hub.is_served() {
            report.add_ended_engine();
        }
        let status = if report.is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        json(status, &report)
    }

    fn streams(&self) -> Reply {
        let streams = self.context.hub.streams();
        let report = |stream: &Arc<Stream>| {
            StreamReport::from(&stream.snapshot()).with_targets(&self.context.targets.of(stream.name()))
        };
        let reports: Vec<_> = streams.iter().map(report).collect();
        json(StatusCode::OK, &reports)
    }

    fn values(&self) -> Reply {
        let topics = self.context.topics.all();
        let report = |topic: &Arc<Topic>| {
            let broker = self.context.brokers.find(topic.name()).map(|broker| broker.snapshot());
            TopicReport::from(&topic.snapshot()).with_broker(broker.as_ref())
        };
        let reports: Vec<_> = topics.iter().map(report).collect();
        json(StatusCode::OK, &reports)
    }
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => reply::of(status, JSON, text),
        Err(error) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
