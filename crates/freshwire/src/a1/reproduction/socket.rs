//! The user interface of Mapp 1997: one socket, any number of sinks.

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use bytes::Bytes;
use freshwire_a1::{ConnectConfig, Message, PublicKey, Qos, QosError};
use freshwire_io::now;
use freshwire_ring::{Meta, Outcome};

use super::status::Status;
use crate::a1::buffers::{BufferError, BufferLimits, BufferSink};
use crate::a1::config::{NodeConfig, SinkConfig};
use crate::a1::connection::Connection;
use crate::a1::error::{BindError, ConnectError};
use crate::a1::node::Node;
use crate::choice;
use crate::error::SenderError;
use crate::sink::ended::{CloseMode, Ended};

/// Largest number of sinks of a socket.
pub const MAX_SOCKET_SINKS: usize = 64;

/// Largest number of ends and changes that are not reported yet.
const MAX_NEWS: usize = 2 * MAX_SOCKET_SINKS;

/// Treatment of a message that cannot be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Wait until every sink has space.
    Block,
    /// Sinks without space miss it, and the status says so. The application sends newer data later.
    Report,
}

/// Result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of sinks that accepted the message.
    pub sinks: usize,
    /// [`Status::WINDOW_EXCEEDED`] if a sink had no space and misses the message, [`Status::TOO_LARGE`] if
    /// one has agreed on smaller messages, and flags about earlier messages.
    pub status: Status,
}

/// Address and key of another node, as [`Socket::add_sink`] expects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// Address of the node.
    pub address: SocketAddr,
    /// Public key of the node.
    pub key: PublicKey,
}

/// Result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to the buffer.
    pub len: usize,
    /// Sender of the bytes, or the connection to which `status` refers. `None` if nothing was received or happened.
    pub from: Option<Contact>,
    /// Whether the bytes start or end a message; otherwise an event such as [`Status::ABORTED`] or [`Status::QOS_CHANGED`].
    pub status: Status,
}

/// Error of a socket's call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The socket could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The address could not be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection could not become a sink.
    #[error(transparent)]
    Sender(#[from] SenderError),
    /// The quality of service cannot be had.
    #[error(transparent)]
    Qos(#[from] QosError),
    /// It has as many sinks as it may have.
    #[error("a socket has at most {MAX_SOCKET_SINKS} sinks")]
    TooManySinks,
    /// The message could not be queued.
    #[error(transparent)]
    Push(#[from] BufferError),
    /// There is nobody to send to.
    #[error("no sink was added, or all have ended")]
    NoSink,
    /// The message is larger than what any sink has agreed to.
    #[error("a message of {bytes} bytes is larger than the {most} that the quality of service names")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest one that a sink takes.
        most: u32,
    },
}

/// Messages to any number of sinks and from any connecting peer (Mapp 1997, "The User Interface"). Bind to an address
/// with a maximum quality of service, add sinks, send or receive, change the quality within the maximum, close.
///
/// Each sink has its own connection; the messages are in memory once. For deadlines, layers or fates use a [`Node`] with a
/// [`BufferSink`] or a [`Sender`](crate::Sender) instead.
pub struct Socket {
    members: Vec<Member>,
    maximum: Qos,
    next_seq: u64,
    /// A message that was received and not wholly read.
    rest: Option<Rest>,
    /// The member that is looked at first.
    turn: usize,
    /// A sink has ended by itself and is forgotten.
    has_lost_sink: bool,
    /// Ends and changes that are not reported yet, the oldest first.
    news: VecDeque<(Contact, Status)>,
    // Dropped last: the sinks end in order before it stops.
    node: Node,
}

/// A connection of the socket.
struct Member {
    sink: Option<BufferSink>,
    connection: Connection,
    key: PublicKey,
    /// Messages that it was given and that are not at their end.
    outstanding: u32,
    /// A message was given up, and this is not reported yet.
    has_given_up: bool,
    /// It has not answered to the message that is being sent.
    is_offered: bool,
    /// The end of the connection is in the news for the application.
    end_was_reported: bool,
    /// It has ended, and nothing is left to read of it.
    is_drained: bool,
}

struct Rest {
    message: Message,
    from: Contact,
    read: usize,
}

impl Socket {
    /// Binds to an address. [`ConnectionConfig::maximum`](crate::a1::ConnectionConfig::maximum) is the upper limit of the quality of service.
    ///
    /// # Errors
    ///
    /// As [`Node::bind`].
    pub fn bind(address: SocketAddr, config: NodeConfig) -> Result<Self, SocketError> {
        let maximum = config.connection.maximum;
        let node = Node::bind(address, config)?;
        Ok(Self {
            members: Vec::new(),
            maximum,
            next_seq: 0,
            rest: None,
            turn: 0,
            has_lost_sink: false,
            news: VecDeque::new(),
            node,
        })
    }

    /// Local address of the socket.
    ///
    /// # Errors
    ///
    /// If the operating system cannot tell.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.node.local_addr()
    }

    /// Public key by which peers identify this node.
    pub fn public_key(&self) -> PublicKey {
        self.node.public_key()
    }

    /// Adds the node with this key at `address` to the destinations; see [`Node::connect`]. `qos` is the
    /// sink's initial quality of service; `None` is the maximum. At most [`MAX_SOCKET_SINKS`] can be open.
    ///
    /// # Errors
    ///
    /// If connecting fails or there are too many sinks.
    pub fn add_sink(
        &mut self,
        address: impl ToSocketAddrs,
        key: &PublicKey,
        qos: Option<Qos>,
    ) -> Result<(), SocketError> {
        if self.rest.is_none() {
            self.look();
        }
        if self.members.iter().filter(|member| member.is_sink()).count() >= MAX_SOCKET_SINKS {
            return Err(SocketError::TooManySinks);
        }
        let mut config = ConnectConfig::default();
        config.qos = qos;
        let connection = self.node.connect(address, key, &config)?;
        let sink = connection.add_buffer_sink(SinkConfig::new(choice::fifo()), UNLIMITED)?;
        self.members.push(Member { sink: Some(sink), ..Member::new(connection, *key) });
        Ok(())
    }

    /// Sends a message to every sink. Sinks with space receive it at once, before the call waits for the
    /// others. A sink that has agreed on smaller messages is skipped, with [`Status::TOO_LARGE`].
    ///
    /// The message is copied if a sink accepts it; [`Socket::send_buffer`] never copies.
    ///
    /// # Errors
    ///
    /// If there is no sink, or the message is too large for all.
    pub fn send(&mut self, payload: &[u8], when_full: WhenFull) -> Result<Sent, SocketError> {
        self.send_outgoing(Payload::Lent(payload), when_full)
    }

    /// Sends a message as [`Socket::send`] does, without a copy: its owner gets it back when every sink is
    /// done with it. See [`BufferSink`].
    ///
    /// # Errors
    ///
    /// As [`Socket::send`].
    pub fn send_buffer(
        &mut self,
        payload: impl Into<Bytes>,
        when_full: WhenFull,
    ) -> Result<Sent, SocketError> {
        self.send_outgoing(Payload::Owned(payload.into()), when_full)
    }

    fn send_outgoing(&mut self, payload: Payload<'_>, when_full: WhenFull) -> Result<Sent, SocketError> {
        let meta = Meta { seq: self.next_seq, generated: now(), ..Meta::default() };
        self.next_seq += 1;
        let mut outgoing = Outgoing { payload, meta };
        for member in self.members.iter_mut().filter(|member| member.sink.is_some()) {
            member.is_offered = true;
            member.catch_up();
        }
        let mut sent = Sent { sinks: 0, status: Status::default() };
        let mut most = None;
        let waits = loop {
            let seen = self.node.activity();
            let mut waits = false;
            for member in self.members.iter_mut().filter(|member| member.is_offered) {
                member.connection.await_turn();
                let outcome = outgoing.push(member)?;
                member.is_offered = outcome == Pushed::NoRoom;
                match outcome {
                    Pushed::NoRoom => waits = true,
                    Pushed::Taken => sent.sinks += 1,
                    Pushed::TooLarge { most: agreed } => most = most.max(Some(agreed)),
                    Pushed::Ended => {}
                }
            }
            if !waits || when_full == WhenFull::Report {
                break waits;
            }
            self.node.wait_activity(seen, Duration::MAX);
        };
        sent.status.set(Status::WINDOW_EXCEEDED, waits);
        sent.status.set(Status::TOO_LARGE, most.is_some());
        for member in self.members.iter_mut().filter(|member| member.sink.is_some()) {
            // A window that is full may have had room for this one.
            sent.status = sent.status.and(Status::held(&member.connection).without(Status::WINDOW_EXCEEDED));
            sent.status.set(Status::GIVEN_UP, std::mem::take(&mut member.has_given_up));
        }
        match most {
            _ if waits || sent.sinks > 0 => Ok(sent),
            Some(most) => Err(SocketError::TooLarge { bytes: outgoing.len(), most }),
            None => Err(SocketError::NoSink),
        }
    }

    /// Returns the next part of a message from any peer, after at most `timeout`. A message larger than the
    /// buffer comes in parts. The end of a connection and a change of the quality of service are reported by
    /// a call without data, one connection at a time; [`Received::from`] names it. To answer a peer that
    /// accepts connections, add it as a sink.
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn recv(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<Received, SocketError> {
        let give_up = now() + timeout;
        loop {
            let seen = self.node.activity();
            if let Some(received) = self.read_rest(buffer) {
                return Ok(received);
            }
            if let Some((from, status)) = self.news.pop_front() {
                return Ok(Received { len: 0, from: Some(from), status });
            }
            self.take_newcomers()?;
            self.look();
            if self.rest.is_some() || !self.news.is_empty() {
                continue;
            }
            let left = give_up.saturating_since(now());
            if left.is_zero() {
                return Ok(Received { len: 0, from: None, status: Status::default() });
            }
            self.node.wait_activity(seen, left);
        }
    }

    /// Upper limit for [`Socket::set_qos`]: the limit given at bind, as far as every sink has agreed to it.
    pub fn maximum(&self) -> Qos {
        let sinks = self.members.iter().filter(|member| member.is_sink());
        let maxima = sinks.filter_map(|member| member.connection.maximum());
        maxima.fold(self.maximum, |most, sink| most.within(&sink))
    }

    /// Requests another quality of service at every sink, within [`Socket::maximum`]. [`Status::QOS_PENDING`]
    /// is set until the peer has answered; [`Status::QOS_CHANGED`] then reports that it is in force.
    ///
    /// # Errors
    ///
    /// If the request exceeds the maximum, a sink's last change is pending, or there is no sink. Nothing has
    /// changed then.
    pub fn set_qos(&mut self, qos: Qos) -> Result<(), SocketError> {
        qos.check(&self.maximum())?;
        let sinks = || self.members.iter().filter(|member| member.is_sink()).map(|member| &member.connection);
        if sinks().any(|connection| connection.held().qos_pending) {
            return Err(QosError::Pending.into());
        }
        if sinks().next().is_none() {
            return Err(SocketError::NoSink);
        }
        for connection in sinks() {
            match connection.set_qos(qos) {
                // It may end at any time.
                Ok(()) | Err(QosError::Ended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Current status of all connections. A change is reported once, here or by [`recv`](Self::recv), which
    /// also names the connection.
    pub fn status(&mut self) -> Status {
        let waiting = self.news.drain(..).map(|(_, news)| news);
        let mut status = waiting.fold(Status::default(), Status::and);
        for member in &mut self.members {
            status = status.and(Status::held(&member.connection)).and(member.news());
        }
        status
    }

    /// Delivers the sent messages, for at most `timeout` at each sink, and closes. Returns `true` if all were
    /// delivered and no sink had ended before.
    pub fn close(mut self, timeout: Duration) -> bool {
        let none_lost = !self.has_lost_sink;
        let sinks = self.members.iter_mut().filter_map(|member| member.sink.take());
        sinks
            .map(|sink| sink.close(CloseMode::Drain, timeout))
            .fold(none_lost, |all, end| all & (end == Ended::Closed))
    }

    fn read_rest(&mut self, buffer: &mut [u8]) -> Option<Received> {
        let rest = self.rest.as_mut()?;
        let mut status = Status::default();
        status.set(Status::START, rest.read == 0);
        let left = &rest.message.data[rest.read..];
        let len = left.len().min(buffer.len());
        buffer[..len].copy_from_slice(&left[..len]);
        rest.read += len;
        let from = Some(rest.from);
        if rest.read == rest.message.data.len() {
            status.set(Status::END, true);
            self.rest = None;
        }
        Some(Received { len, from, status })
    }

    fn take_newcomers(&mut self) -> Result<(), SocketError> {
        while let Some(connection) = self.node.accept(Duration::ZERO).map_err(|_| ConnectError::Stopped)? {
            if let Some(key) = connection.peer_key() {
                self.members.push(Member::new(connection, key));
            }
        }
        Ok(())
    }

    /// Takes the next message, from one member after the other, and what there is to tell of those before it. If there is none,
    /// those that have ended are forgotten.
    fn look(&mut self) {
        for step in 0..self.members.len() {
            let at = (self.turn + step) % self.members.len();
            let member = &mut self.members[at];
            match member.connection.recv(Duration::ZERO) {
                Ok(Some(message)) => {
                    self.rest = Some(Rest { message, from: member.contact(), read: 0 });
                    self.turn = at + 1;
                    return;
                }
                Ok(None) => {}
                Err(_) => member.is_drained = true,
            }
            let news = member.news();
            if !news.is_empty() {
                // An application that adds sinks and never asks gets the latest news only.
                if self.news.len() == MAX_NEWS {
                    self.news.pop_front();
                }
                self.news.push_back((member.contact(), news));
            }
        }
        let is_over = |member: &Member| member.end_was_reported && member.is_drained;
        self.has_lost_sink |= self.members.iter().any(|member| member.sink.is_some() && is_over(member));
        self.members.retain(|member| !is_over(member));
    }
}

impl Member {
    fn new(connection: Connection, key: PublicKey) -> Self {
        Self {
            sink: None,
            connection,
            key,
            outstanding: 0,
            has_given_up: false,
            is_offered: false,
            end_was_reported: false,
            is_drained: false,
        }
    }

    fn contact(&self) -> Contact {
        Contact { address: self.connection.peer_addr(), key: self.key }
    }

    fn is_sink(&self) -> bool {
        self.sink.is_some() && self.connection.closed().is_none()
    }

    /// What waits may only wait for the node's thread: it is sent if it may.
    fn catch_up(&self) {
        if self.sink.as_ref().is_some_and(|sink| sink.waiting() > 0) {
            self.connection.catch_up();
        }
    }

    /// Whether another message may be given to it. Nothing waits behind what the window or the rate holds back, and no more
    /// is on the way than was agreed.
    fn has_room(&self, waiting: usize, qos: &Qos) -> bool {
        if self.outstanding >= qos.outstanding || waiting == 0 {
            return self.outstanding < qos.outstanding;
        }
        // What waits may only wait for the path; one may wait for the window.
        let held = self.connection.held();
        waiting as u64 <= self.connection.credit() && !(held.window_exceeded || held.rate_exceeded)
    }

    /// Takes what became of its messages.
    fn take_fates(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        while let Some(fate) = sink.poll_fate() {
            self.outstanding = self.outstanding.saturating_sub(1);
            self.has_given_up |= matches!(fate.outcome, Outcome::Dropped(_));
        }
    }

    /// Changes since the last call, and the end of the connection once.
    fn news(&mut self) -> Status {
        // No fate comes after the end.
        let closed = self.connection.closed();
        self.take_fates();
        let mut news = Status::of_news(self.connection.take_news());
        news.set(Status::GIVEN_UP, std::mem::take(&mut self.has_given_up));
        if let Some(closed) = closed.filter(|_| !self.end_was_reported) {
            self.end_was_reported = true;
            news = news.and(Status::of_end(&closed));
        }
        news
    }
}

/// A message on its way to the sinks.
struct Outgoing<'a> {
    payload: Payload<'a>,
    meta: Meta,
}

/// What it says: the caller's, until the first sink takes it.
enum Payload<'a> {
    Lent(&'a [u8]),
    Owned(Bytes),
}

/// What a sink says to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushed {
    Taken,
    NoRoom,
    TooLarge {
        /// What it takes.
        most: u32,
    },
    Ended,
}

impl Outgoing<'_> {
    fn len(&self) -> usize {
        match &self.payload {
            Payload::Lent(bytes) => bytes.len(),
            Payload::Owned(bytes) => bytes.len(),
        }
    }

    fn payload(&mut self) -> Bytes {
        let payload = match &self.payload {
            Payload::Lent(bytes) => Bytes::copy_from_slice(bytes),
            Payload::Owned(bytes) => return bytes.clone(),
        };
        self.payload = Payload::Owned(payload.clone());
        payload
    }

    fn push(&mut self, to: &mut Member) -> Result<Pushed, SocketError> {
        to.take_fates();
        let Some(qos) = to.connection.qos().filter(|_| to.is_sink()) else { return Ok(Pushed::Ended) };
        if self.len() > qos.max_send_message as usize {
            return Ok(Pushed::TooLarge { most: qos.max_send_message });
        }
        let Some(sink) = &to.sink else { return Ok(Pushed::Ended) };
        if !to.has_room(sink.waiting(), &qos) {
            return Ok(Pushed::NoRoom);
        }
        let Some(sink) = &mut to.sink else { return Ok(Pushed::Ended) };
        match sink.push_owned(self.payload(), &self.meta) {
            Ok(_) => {
                to.outstanding += 1;
                Ok(Pushed::Taken)
            }
            Err(BufferError::Full) => Ok(Pushed::NoRoom),
            Err(BufferError::Closed) => Ok(Pushed::Ended),
            Err(error) => Err(error.into()),
        }
    }
}

/// What may wait is bounded by the quality of service.
const UNLIMITED: BufferLimits = BufferLimits { records: usize::MAX, bytes: usize::MAX };
