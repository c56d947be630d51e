//! A session's task: its timers, its viewer, and its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use freshwire::Rate;
use freshwire_io::udp::UdpSocket;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::farewell;
use super::offer::OfferError;
use super::plan::ViewPlan;
use super::publishing::{Publishing, SILENCE};
use super::session::{Agreed, Role, Session, Todo};
use super::sessions::WebRtc;
use crate::context::Context;
use crate::hub::Viewer;
use crate::lease::Lease;
use crate::net::Permit;
use crate::statistics::{self, Question};

/// How often it is seen to that viewer and publisher are still there.
const LOOK: Duration = Duration::from_millis(500);

/// The rate that is looked for is this many times that of the largest rendition: keyframes and repetitions need room.
const WANTED: f64 = 1.5;

/// The least rate that is looked for, before the renditions are measured.
const LEAST_WANTED: Rate = Rate::from_bits_per_sec(2_000_000);

/// A session's task.
pub(super) struct Work {
    pub(super) role: Part,
    pub(super) lease: Lease,
    /// Its place within the limits.
    pub(super) permit: Permit,
}

/// What it does for the hub.
pub(super) enum Part {
    View(ViewPlan),
    Publish { name: String, peer: SocketAddr, keys: mpsc::Receiver<()> },
}

/// Begins the session, and returns its identifier.
pub(super) fn begin(
    webrtc: &Arc<WebRtc>,
    context: &Arc<Context>,
    agreed: Agreed,
    role: Role,
    work: Work,
) -> Result<String, OfferError> {
    let refused = |error: std::io::Error| OfferError::Malformed(error.to_string());
    let socket = webrtc.port.socket.try_clone().and_then(UdpSocket::from_std).map_err(refused)?;
    let id = crate::rtsp::common::random::<16>().map_err(refused)?;
    let id = data_encoding::HEXLOWER.encode(&id);
    let tasks = context.tasks.clone();
    let session = Arc::new(Session::new(id.clone(), agreed, socket, role, tasks));
    webrtc.sessions().add(Arc::clone(&session));
    let span = tracing::info_span!("webrtc", session = id.get(..8));
    let running = run(session, work, Arc::clone(webrtc), Arc::clone(context)).instrument(span);
    context.tasks.spawn("WebRTC session", running);
    Ok(id)
}

/// Removes the session from the register, whatever ends its task.
struct Registered<'a> {
    webrtc: &'a WebRtc,
    session: &'a Arc<Session>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.session.end("its task has ended");
        self.webrtc.sessions().remove(self.session.id());
    }
}

async fn run(session: Arc<Session>, work: Work, webrtc: Arc<WebRtc>, context: Arc<Context>) {
    let Work { mut role, mut lease, permit: _permit } = work;
    let registered = Registered { webrtc: &webrtc, session: &session };
    let mut shutdown = context.shutdown.clone();
    let mut look = tokio::time::interval(LOOK);
    let opened = Instant::now();
    let mut viewer: Option<Viewer> = None;
    let mut was_connected = false;
    let mut withdrawal = None;
    let reason = loop {
        let Todo { ended, is_connected, needs_key, questions, due } = session.look();
        if let Some(why) = ended {
            break why;
        }
        if is_connected && !was_connected {
            was_connected = true;
            if let Err(why) = connected(&role, &session, &mut viewer) {
                break why;
            }
        }
        if let Some(viewer) = &viewer {
            if needs_key {
                viewer.ask_for_key();
            }
            answer(&session, &role, &questions);
        }
        tokio::select! {
            () = session.changed.notified() => {}
            () = tokio::time::sleep_until(due.into()) => {}
            _ = look.tick() => {
                let late = !is_connected && opened.elapsed() > context.limits().handshake_timeout;
                if late {
                    break "it was not connected within limits.handshake_timeout".to_owned();
                }
                if let Err(why) = attend(&session, &role, viewer.as_ref()) {
                    break why;
                }
            }
            () = key_wanted(&mut role) => {
                session.with(|inner| inner.ask_for_key(false));
            }
            why = lease.withdrawn(&context) => {
                withdrawal = Some(why);
                break why.to_string();
            }
            _ = shutdown.wait_for(|stopped| *stopped) => break "the server stops".to_owned(),
        }
    };
    // No picture leaves from here on, although the session lasts until the page has heard why.
    drop(viewer);
    let is_said = farewell::say(&session, withdrawal, &reason);
    // A publisher's packets would be taken meanwhile, and a server that stops takes no confirmations.
    if is_said && matches!(role, Part::View(_)) && !*shutdown.borrow() {
        farewell::heard(&session).await;
    }
    session.end(&reason);
    drop(registered);
    match &role {
        Part::View(plan) => {
            tracing::info!(stream = plan.stream.name(), peer = %plan.peer, reason, "no longer views");
        }
        Part::Publish { name, peer, .. } => {
            tracing::info!(stream = name, %peer, reason, "no longer publishes");
        }
    }
}

/// The client has proved who it is.
fn connected(role: &Part, session: &Arc<Session>, viewer: &mut Option<Viewer>) -> Result<(), String> {
    match role {
        Part::View(plan) => {
            session.with(|inner| {
                if let Role::Viewer(viewing) = &mut inner.role {
                    viewing.is_served = true;
                }
            });
            let opened = plan.begin(session).map_err(|error| error.to_string())?;
            tracing::info!(stream = plan.stream.name(), peer = %plan.peer, viewer = opened.id(), "views");
            *viewer = Some(opened);
        }
        Part::Publish { name, peer, .. } => tracing::info!(stream = name, %peer, "publishes"),
    }
    Ok(())
}

/// Answers the page's questions.
fn answer(session: &Session, role: &Part, questions: &[String]) {
    let Part::View(plan) = role else { return };
    for question in questions {
        if let Some(Question::Ping { at }) = Question::read(question) {
            session.say(&statistics::pong(at, plan.stream.capture_clock(), SystemTime::now()));
        }
    }
}

/// Sees to it that both ends are still there.
fn attend(session: &Session, role: &Part, viewer: Option<&Viewer>) -> Result<(), String> {
    match role {
        Part::View(plan) => {
            let Some(viewer) = viewer else { return Ok(()) };
            if let Some(ended) = viewer.ended() {
                return Err(ended.to_string());
            }
            let largest = plan.stream.largest_rate().map_or(0, Rate::bytes_per_sec);
            let wanted = Rate::from_bytes_per_sec((largest as f64 * WANTED) as u64);
            session.with(|inner| inner.want(wanted.max(LEAST_WANTED)));
            if session.has_page()
                && let Some(snapshot) = viewer.snapshot()
            {
                session.say(&statistics::report(&snapshot, &plan.stream));
            }
            Ok(())
        }
        Part::Publish { .. } => {
            let is_silent = session.with(|inner| {
                inner.ask_for_key(true);
                let silent = |publishing: &Publishing| publishing.is_silent();
                inner.is_connected() && matches!(&inner.role, Role::Publisher(it) if silent(it))
            });
            if is_silent == Some(true) {
                return Err(format!("no packet came for {:?}", SILENCE));
            }
            Ok(())
        }
    }
}

/// Waits until a viewer needs a keyframe of the publisher.
async fn key_wanted(role: &mut Part) {
    match role {
        Part::Publish { keys, .. } => match keys.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        },
        Part::View(_) => std::future::pending().await,
    }
}
