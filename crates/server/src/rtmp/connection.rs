//! A connection from its handshake to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use freshwire_media::demux;
use freshwire_media::rtmp::amf0::Value;
use freshwire_media::rtmp::{Message, kind};

use super::answer::{self, Answers, STREAM};
use super::publish::PublishSession;
use super::target::{MOST_APP_BYTES, Target, parameter, split_query};
use super::wire::{Command, MOST_COMMAND_BYTES, Wire, WireError};
use crate::access::{AdobeAnswer, Attempt, Grant, ProvenUser, Right, Verdict};
use crate::config::check_published_name;
use crate::context::Context;
use crate::hub::HubError;
use crate::lease::{Lease, Withdrawal};
use crate::net::Conn;
use crate::rtsp::common::{ControlTraffic, Pace};

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Wire(#[from] WireError),
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

enum Event {
    Read(Result<Option<Message>, WireError>),
    Tick,
    Withdrawn(Withdrawal),
    Shutdown,
}

struct Conversation {
    context: Arc<Context>,
    peer: std::net::SocketAddr,
    /// Nobody on the way can read it.
    is_private: bool,
    /// The application of `connect`; `None` before.
    app: Option<String>,
    /// The user that answered a challenge at `connect`.
    user: Option<ProvenUser>,
    session: Option<PublishSession>,
    lease: Option<Lease>,
    began: Instant,
    /// When the client was heard last.
    heard: Instant,
    pace: Pace,
    talk: ControlTraffic,
}

/// Serves a connection.
pub(super) async fn run(conn: Conn, context: Arc<Context>) {
    let (peer, encrypted) = (conn.peer_addr(), conn.is_encrypted());
    let began = Instant::now();
    let mut shutdown = context.shutdown.clone();
    let handshake =
        tokio::time::timeout(context.limits().request_timeout, Wire::accept(conn, MOST_COMMAND_BYTES));
    let wire = tokio::select! {
        wire = handshake => wire.unwrap_or(Err(WireError::Handshake("the handshake stays incomplete"))),
        _ = shutdown.wait_for(|stopped| *stopped) => return,
    };
    let mut wire = match wire {
        Ok(wire) => wire,
        // Programs that only look whether somebody listens.
        Err(WireError::Closed) => return,
        Err(error) => {
            context.counters.bad_requests.add_one();
            tracing::info!(%error, "connection ended");
            return;
        }
    };
    let mut conversation = Conversation {
        context,
        peer,
        is_private: encrypted || peer.ip().is_loopback(),
        app: None,
        user: None,
        session: None,
        lease: None,
        began,
        heard: began,
        pace: Pace::new(),
        talk: ControlTraffic::new(),
    };
    let end = conversation.run(&mut wire).await;
    conversation.end(&mut wire, &end).await;
    wire.close().await;
}

impl Conversation {
    /// Answers commands and takes what is published.
    async fn run(&mut self, wire: &mut Wire<Conn>) -> End {
        let mut shutdown = self.context.shutdown.clone();
        let mut tick = tokio::time::interval(TICK);
        loop {
            let event = tokio::select! {
                message = wire.read() => Event::Read(message),
                _ = tick.tick() => Event::Tick,
                why = withdrawn(&mut self.lease, &self.context) => Event::Withdrawn(why),
                _ = shutdown.wait_for(|stopped| *stopped) => Event::Shutdown,
            };
            let done = match event {
                Event::Read(Ok(message)) => match (self.hear(wire.take_cost()), message) {
                    (Ok(()), Some(message)) => self.message(&message, wire).await,
                    (heard, _) => heard,
                },
                Event::Read(Err(error)) => Err(error.into()),
                Event::Tick => self.check_times(wire.partial_for()),
                Event::Withdrawn(why) => Err(why.into()),
                Event::Shutdown => Err(End::Shutdown),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Counts what was read, whatever it is.
    fn hear(&mut self, cost: usize) -> Result<(), End> {
        let most = self.context.limits().max_publish_rate;
        let heard = match &mut self.session {
            Some(session) => session.hear(cost, most),
            None if cost > 0 => self.talk.hear(cost),
            None => Ok(()),
        };
        heard.map_err(End::Reason)
    }

    async fn message(&mut self, message: &Message, wire: &mut Wire<Conn>) -> Result<(), End> {
        let mut answers = Answers::new();
        let done = self.take(message, &mut answers).await;
        if let Some(acknowledgement) = wire.due_acknowledgement() {
            answers.push((super::wire::CONTROL, acknowledgement));
        }
        if !answers.is_empty() {
            self.write(wire, &answers).await?;
        }
        if self.session.is_some() {
            wire.limit_messages(demux::Config::default().max_unit_bytes);
        }
        done
    }

    async fn take(&mut self, message: &Message, answers: &mut Answers) -> Result<(), End> {
        self.heard = Instant::now();
        if let Some(session) = &mut self.session {
            self.context.counters.published_bytes.add(message.body.len() as u64);
            let most = self.context.limits().max_publish_rate;
            session.message(message, most).map_err(End::Reason)?;
        }
        match message.kind {
            kind::COMMAND | kind::COMMAND_AMF3 => {
                self.pace.request().await;
                self.context.counters.rtmp_commands.add_one();
                let command =
                    Command::read(message).inspect_err(|_| self.context.counters.bad_requests.add_one())?;
                self.command(&command, answers)
            }
            kind::USER_CONTROL => {
                if let Some((&[0, PING], time)) = message.body.split_first_chunk() {
                    answers.push(answer::event(PONG, time.get(..4).unwrap_or(time)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn write(&self, wire: &mut Wire<Conn>, answers: &Answers) -> Result<(), End> {
        match tokio::time::timeout(self.context.limits().request_timeout, wire.write(answers)).await {
            Ok(result) => result.map_err(End::Wire),
            Err(_) => Err(End::reason("the client does not read answers")),
        }
    }

    fn command(&mut self, command: &Command, answers: &mut Answers) -> Result<(), End> {
        let transaction = command.transaction;
        if self.app.is_none() && command.name != "connect" {
            return Err(End::reason("the first command is not connect"));
        }
        match command.name.as_str() {
            "connect" => return self.connect(command, answers),
            "createStream" => {
                answers.push(answer::result(transaction, [Value::Null, f64::from(STREAM).into()]));
            }
            "publish" => return self.publish(command, answers),
            "FCUnpublish" | "closeStream" | "deleteStream" => {
                if self.unpublish(&command.name) {
                    answers.push(answer::status(STREAM, "NetStream.Unpublish.Success", "unpublished"));
                }
            }
            "play" | "play2" => {
                answers.push(answer::failure(command.stream, "NetStream.Play.StreamNotFound", NO_VIEWERS));
                return Err(End::reason("it wants to view"));
            }
            // What publishers say besides; length is what players ask for.
            "releaseStream" | "FCPublish" | "_checkbw" | "getStreamLength" => {
                if transaction != 0.0 {
                    answers.push(answer::result(transaction, [Value::Null, Value::Null]));
                }
            }
            "@setDataFrame" | "onMetaData" | "_result" | "_error" | "onFCPublish" => {}
            other => {
                tracing::debug!(command = other, "an unknown command");
                if transaction != 0.0 {
                    answers.push(answer::refused(
                        transaction,
                        "NetConnection.Call.Failed",
                        "unknown command",
                    ));
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, command: &Command, answers: &mut Answers) -> Result<(), End> {
        if self.app.is_some() {
            return Err(End::reason("it connects twice"));
        }
        let app = command.values.first().and_then(|info| info.get("app")).and_then(Value::as_str);
        let app = app.unwrap_or_default();
        if app.len() > MOST_APP_BYTES {
            let why = format!(
                "the application has {} bytes, more than {MOST_APP_BYTES}; shorten the address",
                app.len()
            );
            answers.push(answer::refused(command.transaction, "NetConnection.Connect.Rejected", &why));
            return Err(End::Reason(why));
        }
        match self.identify(app) {
            Ok(user) => self.user = user,
            Err(challenge) => {
                let description = format!("[ AccessManager.Reject ] : [ {challenge}");
                answers.push(answer::refused(
                    command.transaction,
                    "NetConnection.Connect.Rejected",
                    &description,
                ));
                return Err(End::Reason(format!("it is asked for its user: {challenge}")));
            }
        }
        self.app = Some(app.to_owned());
        answers.extend(answer::connected(command.transaction));
        Ok(())
    }

    /// The user, if its application has the answer to a challenge. The error is what a client takes for the challenge.
    ///
    /// Clients that know a password say so only when they are asked here, before the key is known. An application
    /// without a path asks nobody, so that a key can have the credentials.
    fn identify(&self, app: &str) -> Result<Option<ProvenUser>, String> {
        let access = self.context.access();
        let (path, query) = split_query(app);
        let query = query.unwrap_or_default();
        let value = |name| parameter(query, name);
        if value("authmod") == Some("adobe") {
            let Some(user) = value("user") else { return Err(NEEDS_USER.to_owned()) };
            let Some(response) = value("response") else {
                return Err(format!("authmod=adobe ] : {}", access.adobe_challenge(user)));
            };
            let opaque = value("opaque").or(value("nonce")).unwrap_or_default();
            let challenge = value("challenge").unwrap_or_default();
            let answer = AdobeAnswer { user, opaque, challenge, response };
            return match access.prove(&answer, self.peer) {
                Ok(user) => Ok(Some(user)),
                Err(error) => {
                    self.deny(path, &error.to_string());
                    Err("authmod=adobe ] : ?reason=authfailed".to_owned())
                }
            };
        }
        let has_credentials = value("user").is_some() || value("sig").is_some();
        let path = path.trim_matches('/');
        if !has_credentials && !path.is_empty() && access.needs_user(Right::Publish, path, self.peer.ip()) {
            return Err(NEEDS_USER.to_owned());
        }
        Ok(None)
    }

    fn publish(&mut self, command: &Command, answers: &mut Answers) -> Result<(), End> {
        let app = self.app.as_deref().unwrap_or_default();
        let result = Target::new(app, command.text(0).unwrap_or_default())
            .map_err(|error| ("NetStream.Publish.BadName", error.to_string()))
            .and_then(|target| self.begin(&target));
        match result {
            Ok(session) => {
                answers.push(answer::event(STREAM_BEGIN, &STREAM.to_be_bytes()));
                let description = format!("{} is published", session.name());
                answers.push(answer::status(STREAM, "NetStream.Publish.Start", &description));
                self.session = Some(session);
                Ok(())
            }
            Err((code, why)) => {
                answers.push(answer::failure(command.stream, code, &why));
                Err(End::Reason(why))
            }
        }
    }

    /// Takes the stream. The error has the code of the refusal and its reason.
    fn begin(&mut self, target: &Target) -> Result<PublishSession, (&'static str, String)> {
        let bad_name = |why: String| ("NetStream.Publish.BadName", why);
        if self.session.is_some() {
            return Err(bad_name("this connection publishes already".to_owned()));
        }
        check_published_name(&target.stream).map_err(|error| bad_name(error.to_string()))?;
        let grant = self.authorize(target).map_err(|why| ("NetStream.Publish.Unauthorized", why))?;
        let origin = format!("rtmp publisher {}", self.peer);
        let hub = &self.context.hub;
        let publisher = match target.rendition.as_deref() {
            None => hub.publish(&target.stream, &origin, None),
            Some(rendition) => hub.publish_rendition(&target.stream, rendition, &origin, None),
        };
        let publisher = publisher.map_err(|error| match error {
            HubError::Busy(_) | HubError::RenditionName(_) => bad_name(error.to_string()),
            error => ("NetStream.Publish.Failed", error.to_string()),
        })?;
        let session = PublishSession::new(publisher);
        self.lease = Some(Lease::new(grant, None, session.removed(), &self.context));
        tracing::info!(stream = target.stream, rendition = target.rendition, "publishes");
        Ok(session)
    }

    /// Whether it may publish the stream. The error says what to do.
    fn authorize(&self, target: &Target) -> Result<Grant, String> {
        let access = self.context.access();
        let verdict = match &self.user {
            Some(user) => access.check_proven(user, Right::Publish, &target.stream, self.peer),
            None => {
                let basic = |(user, password): &(String, String)| {
                    format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes()))
                };
                access.check(&Attempt {
                    right: Right::Publish,
                    stream: &target.stream,
                    method: "publish",
                    uri: "",
                    query: target.query.as_deref(),
                    authorization: target.credentials.as_ref().map(basic).as_deref(),
                    encrypted: self.is_private,
                    base_path: "",
                    peer: self.peer,
                    host: None,
                })
            }
        };
        let why = match verdict {
            Verdict::Granted(grant) => return Ok(grant),
            Verdict::Denied(why) => why,
            Verdict::Challenge(_) if target.credentials.is_none() => NO_CREDENTIALS,
            Verdict::Challenge(_) if !self.is_private => READABLE,
            Verdict::Challenge(_) => "wrong user or password",
        };
        self.deny(&target.stream, why);
        Err(why.to_owned())
    }

    fn deny(&self, stream: &str, why: &str) {
        self.context.counters.denied.add_one();
        tracing::warn!(stream, why, "access denied");
    }

    /// Gives the stream's name back; `false` if it had none.
    fn unpublish(&mut self, reason: &str) -> bool {
        self.lease = None;
        let session = self.session.take();
        session.map(|session| session.end(reason)).is_some()
    }

    /// Ends connections of clients that leave a command incomplete or are not heard of.
    fn check_times(&mut self, partial_for: Option<Duration>) -> Result<(), End> {
        let limits = self.context.limits();
        if let Some(session) = &self.session {
            return session.overdue().map_or(Ok(()), |why| Err(End::Reason(why)));
        }
        if partial_for.is_some_and(|passed| passed > limits.request_timeout) {
            self.context.counters.bad_requests.add_one();
            return Err(End::reason("a command stays incomplete"));
        }
        if self.began.elapsed() > limits.max_connection_age {
            return Err(End::reason("it publishes nothing in the end"));
        }
        let patience = if self.app.is_none() { limits.request_timeout } else { limits.idle_timeout };
        if self.heard.elapsed() > patience {
            return Err(End::Reason(format!("nothing was heard for {patience:?}")));
        }
        Ok(())
    }

    /// Tells the publisher and the log why it ends.
    async fn end(&mut self, wire: &mut Wire<Conn>, end: &End) {
        let reason = end.to_string();
        let farewell = match end {
            End::Wire(WireError::Closed | WireError::Io(_)) => None,
            End::Withdrawn(_) => Some("NetStream.Publish.Unauthorized"),
            End::Wire(_) | End::Reason(_) | End::Shutdown => Some("NetStream.Publish.Failed"),
        };
        if self.unpublish(&reason) {
            if let Some(code) = farewell {
                // It may be gone, which is why it ends.
                let _ = self.write(wire, &vec![answer::failure(STREAM, code, &reason)]).await;
            }
        } else if farewell.is_some() {
            tracing::info!(reason, "connection ended");
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

const TICK: Duration = Duration::from_millis(500);
/// Events of user control messages.
const STREAM_BEGIN: u16 = 0;
const PING: u8 = 6;
const PONG: u16 = 7;

/// The first half of the challenge: the client comes again with its user.
const NEEDS_USER: &str = "code=403 need auth; authmod=adobe ] : publishing needs a user; for credentials behind the key, leave the path out of \
     the server's address";
const NO_VIEWERS: &str = "this server takes streams by RTMP and sends them by RTSP, HTTP and WebSocket; view rtsp://HOST:8554/NAME";
const NO_CREDENTIALS: &str = "publishing needs a user or a signed link: give rtmp://NAME:PASSWORD@HOST/STREAM (OBS: use authentication, \
     with the stream in the server's address), or put ?user=NAME&pass=PASSWORD or the link's ?expires=...&sig=... behind the key";
const READABLE: &str = "everybody on the way could read the password in this address; use rtmps://, or \
     rtmp://NAME:PASSWORD@HOST/STREAM (OBS: use authentication, with the stream in the server's address)";

#[cfg(test)]
mod tests;
