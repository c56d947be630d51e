//! A connection from its first request to its end, or until the engine takes it over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rtsp_types::Method;
use rtsp_types::headers::{ACCEPT, AUTHORIZATION, TRANSPORT};
use tokio::io::AsyncWriteExt as _;

use super::channel::Channel;
use super::common::{self, ControlTraffic, Pace, SESSION_TIMEOUT, wrong_state};
use super::link::{Link, LinkError};
use super::message::{Message, Request};
use super::preferences::Preferences;
use super::publish::{self, PublishSession};
use super::reply::Reply;
use super::target::Target;
use super::transport;
use super::view::{self, Ends, Transmission, ViewSession, keep_alive, session_header};
use super::viewing::Viewing;
use crate::access::{Attempt, Grant, Right, Verdict};
use crate::context::Context;
use crate::lease::{Lease, Withdrawal};
use crate::net::{Conn, canonical};

/// Serves a connection. The conversation before PLAY, with the connection itself, is on the heap, so that a viewer's task is small.
pub(super) fn run(conn: Conn, context: Arc<Context>) -> impl Future<Output = ()> + Send {
    let conversation = Box::pin(converse(conn, Arc::clone(&context)));
    async move {
        if let Some(viewing) = conversation.await {
            viewing.run(&context).await;
        }
    }
}

/// Answers requests until the engine has taken over; `None` if the connection ended before.
async fn converse(conn: Conn, context: Arc<Context>) -> Option<Box<Viewing>> {
    let local = match conn.local_addr() {
        Ok(local) => local,
        Err(error) => {
            tracing::info!(%error, "a connection ended at once");
            return None;
        }
    };
    let ends = Ends { local: canonical(local), peer: conn.peer_addr(), encrypted: conn.is_encrypted() };
    let limits = context.limits();
    let mut link = Link::new(conn, &limits);
    let mut conversation = Conversation {
        context,
        ends,
        state: State::Open,
        granted: Vec::new(),
        lease: None,
        described: None,
        failures: 0,
        requests: 0,
        began: Instant::now(),
        heard: Instant::now(),
        round_trip: None,
        pace: Pace::new(),
        talk: ControlTraffic::new(),
    };
    match conversation.run(&mut link).await {
        Ok(preface) => {
            let State::View(session) = conversation.state else { return None };
            let lease = conversation.lease?;
            let viewing = Viewing::begin(link, session, lease, preface);
            viewing.inspect_err(|error| tracing::warn!(%error, "cannot serve a viewer")).ok()
        }
        Err(end) => {
            conversation.log(&end);
            None
        }
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{0}")]
    Reason(String),
    #[error(transparent)]
    Withdrawn(#[from] Withdrawal),
    #[error("the server stops")]
    Shutdown,
}

impl End {
    fn reason(reason: impl Into<String>) -> Self {
        Self::Reason(reason.into())
    }
}

/// The client's session so far.
enum State {
    Open,
    View(ViewSession),
    /// Plays over UDP.
    Viewing(ViewSession, Transmission),
    Publish(Box<PublishSession>),
}

struct Conversation {
    context: Arc<Context>,
    ends: Ends,
    state: State,
    /// The grant of this connection and its user: players leave out a link's signature in later requests.
    granted: Vec<Grant>,
    /// That of the session.
    lease: Option<Lease>,
    /// The stream that was described last, and what the address asked for: players leave the query out as well.
    described: Option<(String, Preferences)>,
    failures: u32,
    requests: u64,
    began: Instant,
    /// When the client was heard last.
    heard: Instant,
    /// The connection's round trip as of PLAY.
    round_trip: Option<Duration>,
    pace: Pace,
    talk: ControlTraffic,
}

/// The consequence of a request.
enum Outcome {
    Reply(Reply),
    /// The answer, and the engine takes over.
    View(Reply),
}

enum Event {
    Message(Result<Message, LinkError>),
    Publish(publish::Event),
    Tick,
    Withdrawn(Withdrawal),
    Shutdown,
}

impl Conversation {
    /// Answers requests until the engine has to take over: then the bytes of the answer to PLAY.
    async fn run(&mut self, link: &mut Link<Conn>) -> Result<Vec<u8>, End> {
        let mut shutdown = self.context.shutdown.clone();
        let mut tick = tokio::time::interval(TICK);
        loop {
            let event = tokio::select! {
                message = link.next() => Event::Message(message),
                event = self.state.event() => Event::Publish(event),
                _ = tick.tick() => Event::Tick,
                why = withdrawn(&mut self.lease, &self.context) => Event::Withdrawn(why),
                _ = shutdown.wait_for(|stopped| *stopped) => Event::Shutdown,
            };
            match event {
                Event::Message(Ok(Message::Request(request))) => {
                    self.heard = Instant::now();
                    if let Some(preface) = self.request(&request, link).await? {
                        return Ok(preface);
                    }
                }
                Event::Message(Ok(Message::Packet { channel, bytes })) => {
                    self.interleaved(channel, &bytes)?
                }
                Event::Message(Ok(Message::Response(response))) => {
                    self.talk.hear(response.body.len()).map_err(End::Reason)?;
                    self.heard = Instant::now();
                }
                Event::Message(Err(error)) => {
                    if let LinkError::Message(error) = &error {
                        self.context.counters.bad_requests.add_one();
                        let reply = Reply::refuse(400, format!("Bad Request: {error}"));
                        self.write(link, &reply.header("Connection", "close").to_bytes(None)).await?;
                    }
                    return Err(error.into());
                }
                Event::Publish(publish::Event::Write(bytes)) => self.write(link, &bytes).await?,
                Event::Publish(publish::Event::Packet(channel, bytes)) => {
                    self.published(Some(channel), &bytes)?;
                }
                Event::Tick => {
                    self.check_times(link.partial_for())?;
                    if let State::Viewing(..) = self.state {
                        // Nothing here is urgent, and each wake-up of a thousand viewers costs.
                        tick.reset_after(VIEWING_TICK);
                    }
                }
                Event::Withdrawn(why) => {
                    if let State::Viewing(_, watching) = &self.state {
                        watching.say_goodbye(why);
                    }
                    return Err(why.into());
                }
                Event::Shutdown => return Err(End::Shutdown),
            }
        }
    }

    /// Answers one request. The bytes are those of an answer to PLAY that the engine has to send.
    async fn request(&mut self, request: &Request, link: &mut Link<Conn>) -> Result<Option<Vec<u8>>, End> {
        self.pace.request().await;
        self.requests += 1;
        let outcome = match common::refusal(request, self.state.id()) {
            Some(refusal) => Outcome::Reply(refusal),
            None => {
                if *request.method() == Method::Play {
                    self.round_trip = link.source.round_trip();
                }
                self.handle(request).await
            }
        };
        self.context.counters.rtsp_requests.add_one();
        let (Outcome::Reply(reply) | Outcome::View(reply)) = &outcome;
        if reply.status() >= 400 && reply.status() != 401 {
            let (status, reason) = (reply.status(), reply.reason());
            tracing::info!(method = request.method_name(), status, reason, "a request is refused");
        }
        let bytes = reply.to_bytes(common::cseq(request));
        if let Outcome::View(_) = outcome {
            return Ok(Some(bytes));
        }
        self.write(link, &bytes).await?;
        if self.failures >= MOST_FAILURES {
            return Err(End::reason("too many wrong credentials"));
        }
        Ok(None)
    }

    async fn write(&self, link: &mut Link<Conn>, bytes: &[u8]) -> Result<(), End> {
        let written = async {
            link.source.write_all(bytes).await?;
            link.source.flush().await
        };
        match tokio::time::timeout(self.context.limits().request_timeout, written).await {
            Ok(result) => result.map_err(|error| End::Link(error.into())),
            Err(_) => Err(End::reason("the client does not read answers")),
        }
    }

    async fn handle(&mut self, request: &Request) -> Outcome {
        let method = request.method();
        match method {
            Method::Options => return Outcome::Reply(common::options()),
            Method::GetParameter | Method::SetParameter => {
                return Outcome::Reply(keep_alive(self.state.id()));
            }
            Method::Teardown => return Outcome::Reply(self.teardown()),
            _ => {}
        }
        let target = match Target::parse(&request.uri) {
            // ANNOUNCE names a stream and no track.
            Ok(target) if *method == Method::Announce => target.resolve(|_| true),
            Ok(target) => target.resolve(|name| self.context.hub.find(name).is_some()),
            Err(error) => return Outcome::Reply(Reply::refuse(400, format!("Bad Request: {error}"))),
        };
        let result = match method {
            Method::Describe => self.describe(request, &target).await,
            Method::Announce => self.announce(request, &target),
            Method::Setup => self.setup(request, &target),
            Method::Record => self.record(),
            Method::Play => return self.play(&target).unwrap_or_else(Outcome::Reply),
            Method::Pause => self.pause(),
            _ => Err(Reply::refuse(405, "Method Not Allowed").header("Allow", common::METHODS)),
        };
        Outcome::Reply(result.unwrap_or_else(|refusal| refusal))
    }

    /// Whether the client may do this; asked once for each stream and connection, and again when the rules take it away.
    fn authorize(&mut self, right: Right, request: &Request, target: &Target) -> Result<Grant, Reply> {
        let access = self.context.access();
        self.granted.retain(|grant| access.upholds(grant));
        let is_it = |grant: &&Grant| grant.right() == right && grant.stream() == target.stream;
        if let Some(grant) = self.granted.iter().find(is_it) {
            return Ok(grant.clone());
        }
        let authorization = request.header(&AUTHORIZATION);
        let verdict = access.check(&Attempt {
            right,
            stream: &target.stream,
            method: request.method_name(),
            uri: &request.uri,
            query: target.query.as_deref(),
            authorization,
            encrypted: self.ends.encrypted,
            base_path: "",
            peer: self.ends.peer,
            host: None,
        });
        match verdict {
            Verdict::Granted(grant) => {
                if self.granted.len() < MOST_GRANTS {
                    self.granted.push(grant.clone());
                }
                Ok(grant)
            }
            Verdict::Challenge(values) => {
                if authorization.is_some() {
                    self.fail(target, "wrong credentials");
                }
                let reply = Reply::refuse(401, "Unauthorized");
                Err(values.into_iter().fold(reply, |reply, value| reply.header("WWW-Authenticate", value)))
            }
            Verdict::Denied(why) => {
                self.fail(target, why);
                Err(Reply::refuse(403, format!("Forbidden: {why}")))
            }
        }
    }

    fn fail(&mut self, target: &Target, why: &str) {
        self.failures += 1;
        self.context.counters.denied.add_one();
        tracing::warn!(stream = target.stream, why, "access denied");
    }

    async fn describe(&mut self, request: &Request, target: &Target) -> Result<Reply, Reply> {
        self.authorize(Right::View, request, target)?;
        if !request
            .header(&ACCEPT)
            .is_none_or(|accept| accept.contains("application/sdp") || accept.contains('*'))
        {
            return Err(Reply::refuse(406, "Not Acceptable: a stream is described as application/sdp"));
        }
        let preferences = Preferences::of(target)?;
        let retransmission = view::retransmission_asked(target)?;
        let stream = self.context.hub.find(&target.stream).ok_or_else(|| unknown(target))?;
        view::renditions_asked(target, &stream)?;
        self.described = Some((target.stream.clone(), preferences));
        Ok(view::describe(&stream, target, self.ends.local.ip(), retransmission).await)
    }

    fn setup(&mut self, request: &Request, target: &Target) -> Result<Reply, Reply> {
        let transport = request.header(&TRANSPORT).unwrap_or_default();
        let offers = transport::offers(transport);
        match &mut self.state {
            State::Publish(session) => {
                return session.setup(&request.uri, offers, &self.ends).map_err(unavailable);
            }
            State::Viewing(..) => return Err(wrong_state("the stream is playing")),
            State::View(session) if session.stream.name() == target.stream => {
                return session.setup(target, offers, &self.ends, &self.context.groups).map_err(unavailable);
            }
            State::View(_) => {
                return Err(Reply::refuse(
                    459,
                    "Aggregate operation not allowed: the session is of another stream",
                ));
            }
            State::Open => {}
        }
        let grant = self.authorize(Right::View, request, target)?;
        let stream = self.context.hub.find(&target.stream).ok_or_else(|| unknown(target))?;
        let described = self.described.as_ref().filter(|(name, _)| *name == target.stream);
        let preferences = described.map_or_else(Preferences::default, |(_, preferences)| *preferences);
        let mut session =
            ViewSession::new(stream, grant.user().map(str::to_owned), preferences).map_err(unavailable)?;
        let groups = &self.context.groups;
        let reply = session.setup(target, offers, &self.ends, groups).map_err(unavailable)?;
        if session.is_ready() {
            self.lease = Some(Lease::new(grant, None, session.stream.removed(), &self.context));
            self.state = State::View(session);
        }
        Ok(reply)
    }

    fn play(&mut self, target: &Target) -> Result<Outcome, Reply> {
        match &mut self.state {
            State::View(session) => {
                session.asked_at_play(target, true)?;
                let until_recoded = |lease: Lease| lease.until_recoded(&session.stream, &session.described);
                self.lease = self.lease.take().map(until_recoded);
            }
            State::Viewing(session, ..) => session.asked_at_play(target, false)?,
            _ => {}
        }
        match std::mem::replace(&mut self.state, State::Open) {
            State::View(session) if session.is_interleaved() => {
                let reply = session.play();
                self.state = State::View(session);
                Ok(Outcome::View(reply))
            }
            State::View(mut session) => {
                let reply = session.play();
                let watching = session.view_datagrams(&self.ends, self.round_trip).map_err(unavailable)?;
                tracing::info!(
                    stream = session.stream.name(),
                    protocol = watching.protocol(),
                    viewer = watching.viewer(),
                    "views"
                );
                self.state = State::Viewing(session, watching);
                Ok(Outcome::Reply(reply))
            }
            State::Viewing(session, watching) => {
                watching.pause(false);
                let reply = session.play();
                self.state = State::Viewing(session, watching);
                Ok(Outcome::Reply(reply))
            }
            state => {
                self.state = state;
                Err(wrong_state("no track was set up for playing"))
            }
        }
    }

    fn announce(&mut self, request: &Request, target: &Target) -> Result<Reply, Reply> {
        if !matches!(self.state, State::Open) {
            return Err(wrong_state("the connection has a session"));
        }
        let grant = self.authorize(Right::Publish, request, target)?;
        let origin = format!("rtsp publisher {}", self.ends.peer);
        let rendition = target.rendition.as_deref();
        let name = (target.stream.as_str(), rendition);
        let session = PublishSession::announce(request.body(), &self.context.hub, name, &origin)
            .map_err(|error| error.reply())?;
        let reply = Reply::ok().header("Session", session_header(&session.id));
        tracing::info!(stream = target.stream, rendition, "publishes");
        self.lease = Some(Lease::new(grant, None, session.removed(), &self.context));
        self.state = State::Publish(Box::new(session));
        Ok(reply)
    }

    fn record(&mut self) -> Result<Reply, Reply> {
        match &mut self.state {
            State::Publish(session) => Ok(session.record()),
            _ => Err(wrong_state("nothing was announced")),
        }
    }

    fn pause(&mut self) -> Result<Reply, Reply> {
        match &mut self.state {
            State::Viewing(session, watching) => {
                watching.pause(true);
                Ok(Reply::ok().header("Session", session_header(&session.id)))
            }
            State::Publish(session) => Ok(session.pause()),
            State::View(_) | State::Open => Err(wrong_state("nothing is playing")),
        }
    }

    fn teardown(&mut self) -> Reply {
        match std::mem::replace(&mut self.state, State::Open) {
            State::Open => Reply::refuse(454, "Session Not Found"),
            state => {
                self.lease = None;
                state.log_end("TEARDOWN");
                Reply::ok()
            }
        }
    }

    fn interleaved(&mut self, channel: u8, bytes: &[u8]) -> Result<(), End> {
        match &self.state {
            State::Publish(session) => {
                let channel = session.channel(channel);
                self.published(channel, bytes)
            }
            // Receiver reports of one who has stopped, or who plays over UDP.
            _ => self.talk.hear(bytes.len()).map_err(End::Reason),
        }
    }

    fn published(&mut self, channel: Option<Channel>, bytes: &[u8]) -> Result<(), End> {
        let State::Publish(session) = &mut self.state else { return Ok(()) };
        self.heard = Instant::now();
        self.context.counters.published_bytes.add(bytes.len() as u64);
        session.packet(channel, bytes, self.context.limits().max_publish_rate).map_err(End::Reason)
    }

    /// Ends connections of clients who leave a request incomplete or are not heard of.
    fn check_times(&mut self, partial_for: Option<Duration>) -> Result<(), End> {
        let limits = self.context.limits();
        if partial_for.is_some_and(|passed| passed > limits.request_timeout) {
            self.context.counters.bad_requests.add_one();
            return Err(End::reason("a request stays incomplete"));
        }
        let patience = match &self.state {
            State::Open if self.requests == 0 => limits.request_timeout,
            State::Open if self.began.elapsed() > limits.max_connection_age => {
                return Err(End::reason("it asks for nothing in the end"));
            }
            State::Open | State::View(_) => limits.idle_timeout,
            State::Viewing(_, watching) => {
                if let Some(ended) = watching.ended() {
                    return Err(End::Reason(format!("{ended:?}")));
                }
                if watching.was_heard() {
                    self.heard = Instant::now();
                }
                SESSION_TIMEOUT
            }
            State::Publish(session) => {
                return session.overdue(&limits).map_or(Ok(()), |why| Err(End::Reason(why)));
            }
        };
        if self.heard.elapsed() > patience {
            return Err(End::Reason(format!("nothing was heard for {patience:?}")));
        }
        Ok(())
    }

    fn log(&self, end: &End) {
        let reason = end.to_string();
        match (&self.state, end) {
            // Without a session, how the connection ends does not matter: many players reset it after TEARDOWN.
            (State::Open, End::Link(LinkError::Closed | LinkError::Io(_))) => {
                tracing::debug!(reason, requests = self.requests, "connection ended");
            }
            (State::Open, _) => tracing::info!(reason, requests = self.requests, "connection ended"),
            (state, _) => state.log_end(&reason),
        }
    }
}

impl State {
    /// The session's name.
    fn id(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::View(session) | Self::Viewing(session, ..) => Some(&session.id),
            Self::Publish(session) => Some(&session.id),
        }
    }

    /// The next event in a publisher's session.
    async fn event(&mut self) -> publish::Event {
        match self {
            Self::Publish(session) => session.event().await,
            _ => std::future::pending().await,
        }
    }

    fn log_end(&self, reason: &str) {
        match self {
            Self::Open => {}
            Self::View(session) => tracing::info!(stream = session.stream.name(), reason, "never viewed"),
            Self::Viewing(session, watching) => {
                let viewer = watching.viewer();
                tracing::info!(stream = session.stream.name(), viewer, reason, "no longer views");
            }
            Self::Publish(session) => {
                let (lost, unusable, malformed) = session.damage();
                let stream = session.name();
                tracing::info!(stream, reason, lost, unusable, malformed, "no longer publishes");
            }
        }
    }
}

/// Waits until the session loses what it was granted.
async fn withdrawn(lease: &mut Option<Lease>, context: &Context) -> Withdrawal {
    match lease {
        Some(lease) => lease.withdrawn(context).await,
        None => std::future::pending().await,
    }
}

fn unknown(target: &Target) -> Reply {
    Reply::refuse(404, format!("Not Found: no stream {}", target.stream))
}

fn unavailable(error: impl std::fmt::Display) -> Reply {
    Reply::refuse(503, format!("Service Unavailable: {error}"))
}

const TICK: Duration = Duration::from_millis(500);
/// How often a viewer over UDP is looked at, as over TCP.
const VIEWING_TICK: Duration = Duration::from_secs(4);
const MOST_FAILURES: u32 = 8;
const MOST_GRANTS: usize = 16;
