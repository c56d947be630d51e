//! A small RTSP client: requests, their answers, and what comes between.
//!
//! It is our own, because cameras deviate from the protocol and have to be understood all the same, and because a
//! camera may be hostile. Everything that it sends has a bound, and every answer a deadline.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use rtsp_types::Method;
use rtsp_types::headers::CSEQ;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::challenge::Challenge;
use super::error::{PullError, within};
use crate::config::Camera;
use crate::rtsp::common::random;
use crate::rtsp::link::{Link, LinkError};
use crate::rtsp::message::{Bounds, Message, Request, Response};

/// Most bytes of an answer's head.
pub const MAX_CAMERA_HEAD_BYTES: usize = 32 << 10;

/// Most bytes of an answer's body, such as a session description.
pub const MAX_CAMERA_BODY_BYTES: usize = 128 << 10;

/// Most bytes of packets that are kept while an answer is waited for. More of them are dropped.
pub const MAX_EARLY_BYTES: usize = 4 << 20;

/// A request is sent so often until the camera takes user and password.
const MOST_ATTEMPTS: u32 = 3;

/// A connection to a camera.
pub(super) struct Client {
    pub(super) camera: Camera,
    pub(super) link: Link<TcpStream>,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// The session's name, once the camera has said it.
    pub(super) session: Option<String>,
    /// Packets that came while an answer was waited for.
    pub(super) early: VecDeque<(u8, Vec<u8>)>,
    early_bytes: usize,
    challenge: Option<Challenge>,
    answered: u32,
    cseq: u32,
}

impl Client {
    /// Connects. An address with several IP addresses gets one that answers.
    pub(super) async fn connect(camera: Camera) -> Result<Self, PullError> {
        let (link, peer, local) = connection(&camera).await?;
        Ok(Self {
            camera,
            link,
            peer,
            local,
            session: None,
            early: VecDeque::new(),
            early_bytes: 0,
            challenge: None,
            answered: 0,
            cseq: 0,
        })
    }

    /// Sends a request and waits for the answer, which may be a refusal. Says user and password if it is asked for them.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response, PullError> {
        let mut may_reconnect = false;
        for _ in 0..MOST_ATTEMPTS {
            let response = match self.exchange(method, uri, headers).await {
                // Some close the connection behind a 401.
                Err(PullError::Ended | PullError::Io(_)) if std::mem::take(&mut may_reconnect) => {
                    (self.link, self.peer, self.local) = connection(&self.camera).await?;
                    self.exchange(method, uri, headers).await?
                }
                result => result?,
            };
            if let Some(session) = response.header("session") {
                let name = session.split(';').next().unwrap_or_default().trim();
                if !name.is_empty() {
                    self.session = Some(name.to_owned());
                }
            }
            if response.status != 401 {
                return Ok(response);
            }
            self.take_challenge(&response)?;
            may_reconnect = self.session.is_none();
        }
        Err(PullError::Credentials("does not take this user and password"))
    }

    async fn exchange(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response, PullError> {
        self.send(method, uri, headers).await?;
        within(self.answer(), "did not answer").await?
    }

    /// Keeps the challenge of a 401. Fails if it was met already or cannot be.
    pub(super) fn take_challenge(&mut self, response: &Response) -> Result<(), PullError> {
        if self.camera.credentials.is_none() {
            return Err(PullError::Credentials(
                "asks for a user and a password; write rtsp://USER:PASSWORD@HOST/PATH",
            ));
        }
        let all = Challenge::all(response.headers("www-authenticate"));
        // On the way to this machine itself there is nobody who could read it.
        let basic = self.camera.basic || self.peer.ip().to_canonical().is_loopback();
        let best = all.iter().find(|challenge| basic || **challenge != Challenge::Basic);
        match best {
            None if all.is_empty() => {
                Err(PullError::Credentials("asks for credentials in a form that is not supported"))
            }
            None => Err(PullError::Credentials(
                "wants the password in the clear (Basic); if everybody on the way may read it, write #basic behind the address",
            )),
            same if same == self.challenge.as_ref() => {
                Err(PullError::Credentials("does not take this user and password"))
            }
            best => {
                (self.challenge, self.answered) = (best.cloned(), 0);
                Ok(())
            }
        }
    }

    /// Sends a request. Its answer comes from [`answer`](Self::answer), or as a message of the connection.
    pub(super) async fn send(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<(), PullError> {
        let text = self.request(method, uri, headers)?;
        self.write(text.as_bytes()).await
    }

    /// The text of the next request.
    pub(super) fn request(
        &mut self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<String, PullError> {
        self.cseq += 1;
        let mut text = format!("{method} {uri} RTSP/1.0\r\nCSeq: {}\r\nUser-Agent: freshwire\r\n", self.cseq);
        if let (Some(challenge), Some(who)) = (&self.challenge, &self.camera.credentials) {
            self.answered += 1;
            let own = data_encoding::HEXLOWER.encode(&random::<8>()?);
            let answer = challenge.answer(who, method, uri, self.answered, &own);
            text.push_str(&format!("Authorization: {answer}\r\n"));
        }
        if let Some(session) = &self.session {
            text.push_str(&format!("Session: {session}\r\n"));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        Ok(text)
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        Ok(within(self.link.source.write_all(bytes), "took nothing").await??)
    }

    /// Waits for an answer. It is taken for that of the last request whatever its `CSeq`: some cameras get that wrong, and
    /// only one answer is waited for at a time.
    async fn answer(&mut self) -> Result<Response, PullError> {
        loop {
            match self.link.next().await? {
                Message::Response(response) if response.status >= 200 => return Ok(response),
                Message::Response(_) => {}
                Message::Request(request) => self.reply(&request).await?,
                Message::Packet { channel, bytes } => {
                    if self.early_bytes + bytes.len() <= MAX_EARLY_BYTES {
                        self.early_bytes += bytes.len();
                        self.early.push_back((channel, bytes));
                    }
                }
            }
        }
    }

    /// Answers what the camera asks: there is nothing that it could know from us, but some end a session if nobody answers.
    pub(super) async fn reply(&mut self, request: &Request) -> Result<(), PullError> {
        let status = match request.method() {
            Method::Options
            | Method::Announce
            | Method::GetParameter
            | Method::SetParameter
            | Method::Redirect
            | Method::Teardown => "200 OK",
            _ => "501 Not Implemented",
        };
        let cseq = request.header(&CSEQ).unwrap_or_default().trim();
        let public =
            if *request.method() == Method::Options { "Public: OPTIONS, GET_PARAMETER\r\n" } else { "" };
        self.write(format!("RTSP/1.0 {status}\r\nCSeq: {cseq}\r\n{public}\r\n").as_bytes()).await
    }
}

async fn connection(camera: &Camera) -> Result<(Link<TcpStream>, SocketAddr, SocketAddr), PullError> {
    let connecting = TcpStream::connect((camera.host.as_str(), camera.port));
    let socket = within(connecting, "could not be reached").await??;
    // A socket that is gone already says so at the next read.
    let _ = socket.set_nodelay(true);
    let (peer, local) = (socket.peer_addr()?, socket.local_addr()?);
    let bounds = Bounds { head: MAX_CAMERA_HEAD_BYTES, body: MAX_CAMERA_BODY_BYTES };
    Ok((Link::with_bounds(socket, bounds), peer, local))
}

impl From<LinkError> for PullError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Closed => Self::Ended,
            LinkError::Io(error) => Self::Io(error),
            LinkError::Message(error) => Self::Message(error.to_string()),
        }
    }
}

impl From<io::Error> for PullError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
