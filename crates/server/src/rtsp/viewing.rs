//! A viewer whose stream goes in the connection: the engine writes, and requests are answered between two packets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Aim;
use rtsp_types::Method;

use super::begin_error::BeginError;
use super::common::{self, ControlTraffic, Pace};
use super::link::{Link, LinkError};
use super::message::{Message, Request};
use super::reply::Reply;
use super::target::Target;
use super::view::{ViewSession, keep_alive, session_header};
use crate::context::Context;
use crate::hub::{ViewRequest, Viewer};
use crate::lease::{Lease, Withdrawal};
use crate::net::{Conn, Reader};

/// A viewer and its control.
pub(super) struct Viewing {
    link: Link<Reader>,
    viewer: Viewer,
    session: ViewSession,
    lease: Lease,
    pace: Pace,
    talk: ControlTraffic,
}

/// The consequence of a message.
enum Step {
    Message,
    Request,
    Teardown,
    Withdrawn(Withdrawal),
    Ended(String),
}

impl Viewing {
    /// Hands the connection over to the engine. `preface` is the answer to PLAY.
    pub(super) fn begin(
        link: Link<Conn>,
        session: ViewSession,
        lease: Lease,
        preface: Vec<u8>,
    ) -> Result<Box<Self>, BeginError> {
        let mut taken = None;
        let stall_timeout = session.stream.stall_timeout();
        let mut link = link.exchange(|conn| {
            let peer = conn.peer_addr();
            let protocol = if conn.is_encrypted() { "rtsps" } else { "rtsp" };
            let parts = conn.into_parts()?;
            parts.reader.outlast(stall_timeout);
            taken = Some((parts.socket, parts.seal, peer, protocol));
            Ok(parts.reader)
        })?;
        link.read_little();
        let (socket, seal, peer, protocol) = taken.ok_or_else(|| io::Error::other("no connection"))?;
        let catalog = session.stream.catalog();
        let viewer = session.stream.view(ViewRequest {
            socket: socket.into(),
            preface,
            framer: Box::new(session.framer(Arc::clone(&catalog))),
            catalog,
            renditions: session.renditions.clone(),
            seal,
            protocol,
            peer,
            user: session.user.clone(),
            only: session.only(),
            latency: session.preferences.latency,
            reorders: true,
            join_age: None,
            aim: Aim::Screen,
        })?;
        tracing::info!(stream = session.stream.name(), protocol, viewer = viewer.id(), "views");
        Ok(Box::new(Self { link, viewer, session, lease, pace: Pace::new(), talk: ControlTraffic::new() }))
    }

    /// Answers requests until the viewer has left. A message is dropped before anything is waited for, so that the task is small.
    pub(super) async fn run(mut self: Box<Self>, context: &Context) {
        let mut shutdown = context.shutdown.clone();
        let mut tick = tokio::time::interval(TICK);
        let mut last = None;
        let reason = loop {
            let next = tokio::select! {
                message = self.link.next() => self.take(message, context),
                _ = tick.tick() => self.look(context),
                why = self.lease.withdrawn(context) => Step::Withdrawn(why),
                _ = shutdown.wait_for(|stopped| *stopped) => Step::Ended("the server stops".to_owned()),
            };
            match next {
                Step::Message => {}
                Step::Request => self.pace.request().await,
                Step::Teardown => {
                    self.leave().await;
                    break "TEARDOWN".to_owned();
                }
                Step::Withdrawn(why) => {
                    last = Some(self.session.goodbye(&why.to_string()));
                    break why.to_string();
                }
                Step::Ended(reason) => break reason,
            }
        };
        tracing::info!(
            stream = self.session.stream.name(),
            viewer = self.viewer.id(),
            reason,
            "no longer views"
        );
        if let Some(last) = last {
            self.viewer.finish_with(last);
        }
    }

    /// Answers what came.
    fn take(&mut self, message: Result<Message, LinkError>, context: &Context) -> Step {
        match message {
            Ok(Message::Request(request)) => {
                context.counters.rtsp_requests.add_one();
                if self.answer(&request) { Step::Teardown } else { Step::Request }
            }
            // Receiver reports: that the stream is taken shows more.
            Ok(Message::Packet { bytes, .. }) => {
                self.talk.hear(bytes.len()).map_or_else(Step::Ended, |()| Step::Message)
            }
            Ok(Message::Response(response)) => {
                self.talk.hear(response.body.len()).map_or_else(Step::Ended, |()| Step::Message)
            }
            Err(error) => {
                if let LinkError::Message(_) = error {
                    context.counters.bad_requests.add_one();
                }
                Step::Ended(error.to_string())
            }
        }
    }

    /// Whether the viewer is still there and does not leave a request incomplete.
    fn look(&self, context: &Context) -> Step {
        if let Some(ended) = self.viewer.ended() {
            return Step::Ended(ended.to_string());
        }
        if self.link.partial_for().is_some_and(|passed| passed > context.limits().request_timeout) {
            context.counters.bad_requests.add_one();
            return Step::Ended("a request stays incomplete".to_owned());
        }
        Step::Message
    }

    /// Answers a request; true if it ends the session.
    fn answer(&mut self, request: &Request) -> bool {
        let refusal = common::refusal(request, Some(&self.session.id));
        let reply = refusal.unwrap_or_else(|| match request.method() {
            Method::Options => common::options().header("Session", session_header(&self.session.id)),
            Method::GetParameter | Method::SetParameter => keep_alive(Some(&self.session.id)),
            Method::Pause => {
                self.viewer.pause();
                Reply::ok().header("Session", session_header(&self.session.id))
            }
            Method::Play => self.play_on(&request.uri).unwrap_or_else(|refusal| refusal),
            Method::Teardown => Reply::ok().header("Connection", "close"),
            _ => common::wrong_state("the stream is playing"),
        });
        let ends = *request.method() == Method::Teardown && reply.status() == 200;
        if ends {
            self.viewer.pause();
        }
        self.viewer.interject(reply.to_bytes(common::cseq(request)));
        ends
    }

    fn play_on(&mut self, uri: &str) -> Result<Reply, Reply> {
        let target =
            Target::parse(uri).map_err(|error| Reply::refuse(400, format!("Bad Request: {error}")))?;
        self.session.asked_at_play(&target, false)?;
        self.viewer.resume();
        Ok(self.session.play())
    }

    /// Leaves the client a moment to read the last answer and to close.
    async fn leave(&mut self) {
        let closed = async { while self.link.next().await.is_ok() {} };
        let _ = tokio::time::timeout(LINGER, closed).await;
    }
}

/// How often it is seen to that the viewer is still there.
const TICK: Duration = Duration::from_secs(4);
const LINGER: Duration = Duration::from_millis(500);
