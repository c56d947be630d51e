//! One session's state behind its lock.

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freshwire_io::udp::{Outgoing, UdpSocket};
use str0m::channel::ChannelId;
use str0m::media::KeyframeRequestKind;
use str0m::net::{Protocol, Receive, Transmit};
use str0m::{Event, IceConnectionState, Input, Output, Rtc};
use tokio::sync::Notify;

use super::outlet::TcpOutlet;
use super::publishing::Publishing;
use super::rtp_sources::RtpSources;
use super::viewing::Viewing;
use crate::tasks::{Tasks, text_of};

/// Turns of the protocol at one time: it asks for the next one where it has more to send.
const MOST_TURNS: usize = 512;

/// Turns that are due so soon are taken at once.
const AT_ONCE: Duration = Duration::from_micros(50);

/// Questions of a page that wait for their answer.
const MOST_QUESTIONS: usize = 8;

/// Connections of one client.
const MOST_CONNECTIONS: usize = 4;

/// Bytes of such a question.
const MOST_QUESTION_BYTES: usize = 256;

/// A viewer or a publisher.
pub(super) struct Session {
    id: String,
    ufrag: String,
    /// The client's own.
    offered_ufrag: String,
    tasks: Tasks,
    inner: Mutex<Inner>,
    /// The session's task has something to do.
    pub(super) changed: Notify,
}

/// Bytes that have arrived.
pub(super) struct Arrival<'a> {
    pub(super) at: Instant,
    pub(super) protocol: Protocol,
    pub(super) from: SocketAddr,
    /// The address of this machine to which they were sent, if the system says.
    pub(super) to: Option<IpAddr>,
    pub(super) bytes: &'a [u8],
    /// The connection in which they came, if they did.
    pub(super) outlet: Option<&'a Arc<TcpOutlet>>,
}

/// The part behind the lock.
pub(super) struct Inner {
    pub(super) rtc: Rtc,
    outlet: Outlet,
    /// Why it has ended.
    ended: Option<String>,
    is_connected: bool,
    /// When the protocol wants its next turn.
    due: Instant,
    /// Until when the session's task sleeps.
    sleeps_until: Instant,
    /// The page's channel for questions, and those that are not answered yet.
    channel: Option<ChannelId>,
    questions: Vec<String>,
    /// A viewer needs a keyframe.
    needs_key: bool,
    sources: RtpSources,
    pub(super) role: Role,
}

/// The agreement with the client.
pub(super) struct Agreed {
    pub(super) rtc: Rtc,
    pub(super) candidates: Vec<SocketAddr>,
    pub(super) offered_ufrag: String,
}

/// What the session is for.
pub(super) enum Role {
    Viewer(Viewing),
    Publisher(Box<Publishing>),
}

/// Where packets leave.
struct Outlet {
    socket: UdpSocket,
    /// The local candidates, as the protocol knows them.
    candidates: Vec<SocketAddr>,
    /// The address of this machine to which the client sends: it takes answers from no other.
    source: Option<IpAddr>,
    /// Its connections, the newest last.
    connections: Vec<(SocketAddr, Arc<TcpOutlet>)>,
}

/// What the session's task has to do.
pub(super) struct Todo {
    pub(super) ended: Option<String>,
    pub(super) is_connected: bool,
    pub(super) needs_key: bool,
    pub(super) questions: Vec<String>,
    pub(super) due: Instant,
}

impl Session {
    pub(super) fn new(id: String, agreed: Agreed, socket: UdpSocket, role: Role, tasks: Tasks) -> Self {
        let Agreed { mut rtc, candidates, offered_ufrag } = agreed;
        let ufrag = rtc.direct_api().local_ice_credentials().ufrag;
        let now = Instant::now();
        let sources = match &role {
            Role::Viewer(_) => RtpSources::of_viewer(),
            Role::Publisher(_) => RtpSources::of_publisher(),
        };
        let inner = Inner {
            rtc,
            outlet: Outlet { socket, candidates, source: None, connections: Vec::new() },
            ended: None,
            is_connected: false,
            due: now,
            sleeps_until: now,
            channel: None,
            questions: Vec::new(),
            needs_key: false,
            sources,
            role,
        };
        Self { id, ufrag, offered_ufrag, tasks, inner: Mutex::new(inner), changed: Notify::new() }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn ufrag(&self) -> &str {
        &self.ufrag
    }

    /// Whether the client has offered itself by this user fragment.
    pub(super) fn is_offered(&self, ufrag: &str) -> bool {
        self.offered_ufrag == ufrag
    }

    /// Works with the state. `None`: the session has ended. A panic ends it.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> Option<R> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.ended.is_some() {
            return None;
        }
        let done = catch_unwind(AssertUnwindSafe(|| work(&mut inner)));
        let done = match done {
            Ok(done) => Some(done),
            Err(panic) => {
                self.tasks.count_panic();
                let text = text_of(&*panic);
                tracing::error!(
                    session = self.id,
                    panic = text,
                    "a WebRTC session has panicked and is given up"
                );
                inner.ended = Some("an error of the server".to_owned());
                None
            }
        };
        let wakes = inner.ended.is_some() || inner.has_news() || inner.due + AT_ONCE < inner.sleeps_until;
        drop(inner);
        if wakes {
            self.changed.notify_one();
        }
        done
    }

    /// Takes what arrived. Returns `false` if it is not this session's.
    pub(super) fn take(&self, arrival: &Arrival<'_>) -> bool {
        self.with(|inner| inner.take(arrival)).unwrap_or(false)
    }

    /// Ends it, for this reason. The client is notified, if it is there.
    pub(super) fn end(&self, why: &str) {
        self.with(|inner| {
            if inner.rtc.close().is_ok() {
                inner.turn();
            }
            inner.ended.get_or_insert_with(|| why.to_owned());
        });
    }

    /// Gives the protocol its turn if it is due, and says what there is to do. `None`: it had ended before.
    pub(super) fn look(&self) -> Todo {
        let todo = self.with(|inner| {
            if inner.due <= Instant::now() {
                inner.turn();
            }
            inner.sleeps_until = inner.due;
            Todo {
                ended: inner.ended.clone(),
                is_connected: inner.is_connected,
                needs_key: std::mem::take(&mut inner.needs_key),
                questions: std::mem::take(&mut inner.questions),
                due: inner.due,
            }
        });
        todo.unwrap_or_else(|| {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            Todo {
                ended: Some(inner.ended.clone().unwrap_or_default()),
                is_connected: false,
                needs_key: false,
                questions: Vec::new(),
                due: inner.due,
            }
        })
    }

    /// Whether it has ended, for whatever reason.
    pub(super) fn has_ended(&self) -> bool {
        self.with(|_| ()).is_none()
    }

    /// Whether a page listens.
    pub(super) fn has_page(&self) -> bool {
        self.with(|inner| inner.channel.is_some()).unwrap_or(false)
    }

    /// Sends a text to the page.
    pub(super) fn say(&self, text: &str) {
        self.with(|inner| {
            let Some(mut channel) = inner.channel.and_then(|id| inner.rtc.channel(id)) else { return };
            // What the channel has no room for is as good as lost: the next report says it again.
            if channel.buffered_amount() == 0 && channel.write(false, text.as_bytes()).is_ok() {
                inner.turn();
            }
        });
    }

    /// Sends the page a last text, behind what it has not received yet. Returns `false` if no page listens.
    pub(super) fn say_last(&self, text: &str) -> bool {
        let said = self.with(|inner| {
            let Some(mut channel) = inner.channel.and_then(|id| inner.rtc.channel(id)) else { return false };
            let is_taken = matches!(channel.write(false, text.as_bytes()), Ok(true));
            inner.turn();
            is_taken
        });
        said.unwrap_or(false)
    }

    /// Whether the page has yet to confirm a text.
    pub(super) fn is_unheard(&self) -> bool {
        let unheard = self.with(|inner| {
            let channel = inner.channel.and_then(|id| inner.rtc.channel(id));
            channel.is_some_and(|mut channel| channel.buffered_amount() > 0)
        });
        unheard.unwrap_or(false)
    }
}

impl Inner {
    fn has_news(&self) -> bool {
        self.needs_key || !self.questions.is_empty() || self.is_new_connection()
    }

    /// Whether the session's task has yet to see that it is connected.
    fn is_new_connection(&self) -> bool {
        self.is_connected && matches!(&self.role, Role::Viewer(viewing) if !viewing.is_served)
    }

    /// Whether the client has proved who it is, and packets can go.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    fn take(&mut self, arrival: &Arrival<'_>) -> bool {
        let Some(to) = self.outlet.candidate_for(arrival.from) else { return false };
        let Ok(received) = Receive::new(arrival.protocol, arrival.from, to, arrival.bytes) else {
            return false;
        };
        let input = Input::Receive(arrival.at, received);
        if !self.rtc.accepts(&input) {
            return false;
        }
        self.outlet.learn(arrival);
        if !self.sources.admit(arrival.bytes) {
            return true;
        }
        match self.rtc.handle_input(input) {
            Ok(()) => self.turn(),
            Err(error) => self.fail(&error.to_string()),
        }
        true
    }

    /// Does what the protocol wants to do now.
    pub(super) fn turn(&mut self) {
        for _ in 0..MOST_TURNS {
            let now = Instant::now();
            if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
                return self.fail(&error.to_string());
            }
            self.due = loop {
                match self.rtc.poll_output() {
                    Ok(Output::Timeout(at)) => break at,
                    Ok(Output::Transmit(transmit)) => self.transmit(&transmit),
                    Ok(Output::Event(event)) => self.notice(event),
                    Err(error) => return self.fail(&error.to_string()),
                }
            };
            if !self.rtc.is_alive() {
                return self.fail("the client has left");
            }
            if self.due > now + AT_ONCE {
                return;
            }
        }
    }

    /// Asks the publisher for a keyframe. `if_missed`: only if pictures have come with gaps.
    pub(super) fn ask_for_key(&mut self, if_missed: bool) {
        let Role::Publisher(publishing) = &mut self.role else { return };
        let Some(mid) = publishing.asks_for_key(if_missed) else { return };
        let mut api = self.rtc.direct_api();
        if let Some(stream) = api.stream_rx_by_mid(mid, None) {
            stream.request_keyframe(KeyframeRequestKind::Pli);
            self.turn();
        }
    }

    fn fail(&mut self, why: &str) {
        self.ended.get_or_insert_with(|| why.to_owned());
    }

    fn transmit(&mut self, transmit: &Transmit) {
        let bytes = self.outlet.send(transmit);
        if let Role::Viewer(viewing) = &mut self.role {
            viewing.left(bytes);
        }
    }

    fn notice(&mut self, event: Event) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::IceConnectionStateChange(IceConnectionState::Disconnected) => {
                self.fail("the client does not answer any more");
            }
            Event::Closed => self.fail("the client has left"),
            Event::KeyframeRequest(_) => self.needs_key = true,
            Event::ChannelOpen(id, _) => self.channel = Some(id),
            Event::ChannelData(data)
                if !data.binary
                    && self.channel == Some(data.id)
                    && data.data.len() <= MOST_QUESTION_BYTES
                    && self.questions.len() < MOST_QUESTIONS =>
            {
                self.questions.extend(String::from_utf8(data.data));
            }
            event => match &mut self.role {
                Role::Viewer(viewing) => viewing.notice(&event),
                Role::Publisher(publishing) => {
                    if let Event::RtpPacket(packet) = event
                        && let Err(why) = publishing.take(&packet)
                    {
                        self.fail(&why);
                    }
                }
            },
        }
    }
}

impl Outlet {
    /// The local candidate that a client at this address sees.
    fn candidate_for(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.candidates.iter().copied().find(|candidate| candidate.is_ipv4() == peer.is_ipv4())
    }

    /// The client has proved that it is this one.
    fn learn(&mut self, arrival: &Arrival<'_>) {
        let Some(outlet) = arrival.outlet else {
            self.source = arrival.to;
            return;
        };
        if !self.connections.iter().any(|(_, known)| Arc::ptr_eq(known, outlet)) {
            self.connections.push((arrival.from, Arc::clone(outlet)));
            if self.connections.len() > MOST_CONNECTIONS {
                self.connections.remove(0);
            }
        }
    }

    /// Sends a datagram and returns its bytes on the wire. One that the system does not take is lost, as on the way.
    fn send(&mut self, transmit: &Transmit) -> u64 {
        let bytes: &[u8] = &transmit.contents;
        if transmit.proto == Protocol::Tcp {
            let found = self.connections.iter().rev().find(|(peer, _)| *peer == transmit.destination);
            if let Some((_, outlet)) = found {
                outlet.send(bytes);
            }
            return bytes.len() as u64;
        }
        let outgoing =
            Outgoing { to: transmit.destination, from: self.source, ecn: None, bytes, segment: None };
        let _ = self.socket.send(&outgoing);
        bytes.len() as u64
    }
}
