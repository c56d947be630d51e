//! A viewer whose stream goes in the connection: the engine writes, and requests are answered between two packets.

use std::io;
use std::time::Duration;

use rtsp_types::Method;

use super::link::{Link, LinkError};
use super::message::{Message, Request};
use super::methods::{self, Pace};
use super::reply::Reply;
use super::target::Target;
use super::view::{ViewSession, keep_alive, session_header};
use crate::context::Context;
use crate::hub::{HubError, ViewRequest, Viewer};
use crate::net::{Conn, Reader};

/// Why viewing could not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum BeginError {
    #[error("cannot hand over the connection: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// A viewer and its control.
pub(super) struct Viewing {
    link: Link<Reader>,
    viewer: Viewer,
    session: ViewSession,
    pace: Pace,
}

impl Viewing {
    /// Hands the connection over to the engine. `preface` is the answer to PLAY.
    pub(super) fn begin(
        link: Link<Conn>,
        session: ViewSession,
        preface: Vec<u8>,
    ) -> Result<Box<Self>, BeginError> {
        let mut taken = None;
        let mut link = link.exchange(|conn| {
            let peer = conn.peer_addr();
            let protocol = if conn.is_encrypted() { "rtsps" } else { "rtsp" };
            let parts = conn.into_parts()?;
            taken = Some((parts.socket, parts.seal, peer, protocol));
            Ok(parts.reader)
        })?;
        link.read_little();
        let (socket, seal, peer, protocol) = taken.ok_or_else(|| io::Error::other("no connection"))?;
        let viewer = session.stream.view(ViewRequest {
            socket,
            preface,
            framer: Box::new(session.framer()),
            seal,
            protocol,
            peer,
            user: session.user.clone(),
            only: session.only(),
            latency: session.latency,
            join_age: None,
        })?;
        tracing::info!(stream = session.stream.name(), protocol, viewer = viewer.id(), "views");
        Ok(Box::new(Self { link, viewer, session, pace: Pace::new() }))
    }

    /// Answers requests until the viewer has left.
    pub(super) async fn run(mut self: Box<Self>, context: &Context) {
        let mut shutdown = context.shutdown.clone();
        let mut tick = tokio::time::interval(TICK);
        let reason = loop {
            let message = tokio::select! {
                message = self.link.next() => message,
                _ = tick.tick() => {
                    if let Some(ended) = self.viewer.ended() {
                        break format!("{ended:?}");
                    }
                    if self.link.partial_for().is_some_and(|passed| passed > context.limits().request_timeout) {
                        context.counters.bad_requests.add_one();
                        break "a request stays incomplete".to_owned();
                    }
                    continue;
                }
                _ = shutdown.wait_for(|stopped| *stopped) => break "the server stops".to_owned(),
            };
            match message {
                Ok(Message::Request(request)) => {
                    self.pace.request().await;
                    context.counters.rtsp_requests.add_one();
                    if self.answer(&request) {
                        self.leave().await;
                        break "TEARDOWN".to_owned();
                    }
                }
                // Receiver reports: that the stream is taken shows more.
                Ok(Message::Packet { .. } | Message::Response) => {}
                Err(error) => {
                    if let LinkError::Message(_) = error {
                        context.counters.bad_requests.add_one();
                    }
                    break error.to_string();
                }
            }
        };
        tracing::info!(
            stream = self.session.stream.name(),
            viewer = self.viewer.id(),
            reason,
            "no longer views"
        );
    }

    /// Answers a request; true if it ends the session.
    fn answer(&mut self, request: &Request) -> bool {
        let id = &self.session.id;
        let reply = methods::refusal(request, Some(id)).unwrap_or_else(|| match request.method() {
            Method::Options => methods::options().header("Session", session_header(id)),
            Method::GetParameter | Method::SetParameter => keep_alive(Some(id)),
            Method::Pause => {
                self.viewer.pause();
                Reply::ok().header("Session", session_header(id))
            }
            Method::Play => {
                self.viewer.resume();
                Target::parse(&request.uri).map_or_else(
                    |error| Reply::refuse(400, error.to_string()),
                    |target| self.session.play(&target),
                )
            }
            Method::Teardown => Reply::ok().header("Connection", "close"),
            _ => methods::wrong_state("the stream is playing"),
        });
        let ends = *request.method() == Method::Teardown && reply.status() == 200;
        if ends {
            self.viewer.pause();
        }
        self.viewer.interject(reply.to_bytes(methods::cseq(request)));
        ends
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
