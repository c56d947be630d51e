use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Aim;
use freshwire_media::framing::fmp4::{self, Fmp4};
use freshwire_media::framing::ts::Ts;
use freshwire_media::framing::{Framer, Framing};
use freshwire_media::unit::{Catalog, Kind, Tracks};
use tokio::io::AsyncReadExt as _;

use super::guard::Guard;
use super::route::Container;
use super::shutdown::stopped;
use super::socket;
use crate::context::Context;
use crate::hub::{RenditionSelection, Stream, ViewRequest};
use crate::lease::{Lease, Withdrawal};
use crate::net::{Conn, Reader};

/// How often to see whether a viewer has ended.
const LOOK: Duration = Duration::from_secs(1);

/// A stream that was asked for and granted.
pub(super) struct Order {
    /// The stream.
    pub(super) stream: Arc<Stream>,
    /// How it is carried.
    pub(super) carriage: Carriage,
    /// The head of the answer.
    pub(super) head: Vec<u8>,
    /// The guard of another answer.
    pub(super) guard: Guard,
    /// For whom.
    pub(super) peer: SocketAddr,
    /// For as long as it is granted.
    pub(super) lease: Lease,
    /// How old its units may be when they arrive, if it says.
    pub(super) latency: Option<Duration>,
    /// Which renditions it may get.
    pub(super) renditions: RenditionSelection,
}

/// How a stream is carried.
pub(super) struct Carriage {
    /// Its name in statistics.
    pub(super) protocol: &'static str,
    /// Writes it.
    pub(super) framer: Box<dyn Framer>,
    /// The catalog of the framing's units.
    pub(super) catalog: Arc<Catalog>,
    /// The only track that it carries.
    pub(super) only: Option<Kind>,
    /// The client may say something, and hears how it is served.
    pub(super) is_socket: bool,
}

/// A stream as the body of an answer.
pub(super) struct Body {
    /// The media type of the answer.
    pub(super) content_type: String,
    /// How it is carried.
    pub(super) carriage: Carriage,
}

impl Carriage {
    /// In WebSocket messages.
    pub(super) fn socket(stream: &Stream) -> Self {
        let catalog = stream.catalog();
        let framer = Fmp4::new(Arc::clone(&catalog), fmp4::Carriage::WebSocket);
        Self { protocol: "websocket", framer: Box::new(framer), catalog, only: None, is_socket: true }
    }
}

impl Body {
    /// The stream in this form; a text for people if it cannot have it.
    pub(super) fn new(container: Container, stream: &Stream, tracks: Arc<Tracks>) -> Result<Self, String> {
        let catalog = stream.catalog();
        let for_framer = Arc::clone(&catalog);
        let (protocol, content_type, framer): (_, String, Box<dyn Framer>) = match container {
            Container::Ts => {
                let framer = Ts::new(for_framer, tracks).map_err(|error| error.to_string())?;
                ("ts", "video/mp2t".into(), Box::new(framer))
            }
            Container::Mp4 => {
                let mime =
                    fmp4::mime(&tracks).ok_or("MP4 does not carry this stream; use another way out")?;
                ("mp4", mime, Box::new(Fmp4::new(for_framer, fmp4::Carriage::Plain)))
            }
            Container::Freshwire => ("freshwire", "application/octet-stream".into(), Framing::Chunked.into()),
        };
        // Records of Freshwire's own stream do not say what they are, so they are all pictures.
        let only = (container == Container::Freshwire).then_some(Kind::Video);
        let carriage = Carriage { protocol, framer, catalog, only, is_socket: false };
        Ok(Self { content_type, carriage })
    }
}

/// Hands the connection's writing to the engine and reads what the client says until one of them has enough. `early` was
/// read already.
pub(super) async fn run(conn: Conn, early: Vec<u8>, order: Order, context: &Context) -> io::Result<()> {
    let parts = conn.into_parts()?;
    parts.reader.outlast(context.hub.config().stall_timeout);
    let refusal = if parts.seal.is_none() { parts.socket.try_clone().ok() } else { None };
    let viewer = order.stream.view(ViewRequest {
        socket: parts.socket.into(),
        preface: order.head,
        framer: order.carriage.framer,
        catalog: order.carriage.catalog,
        renditions: order.renditions,
        seal: parts.seal,
        protocol: order.carriage.protocol,
        peer: order.peer,
        user: order.lease.user().map(str::to_owned),
        only: order.carriage.only,
        latency: order.latency,
        reorders: true,
        join_age: None,
        aim: Aim::Screen,
    });
    let viewer = viewer.map_err(|error| {
        refuse(refusal, &order.guard, &error);
        io::Error::other(error)
    })?;
    if order.carriage.is_socket {
        let viewing = socket::StreamService::new(&order.stream, viewer);
        socket::attend(parts.reader, &early, viewing, order.lease, context).await;
    } else if let Some(why) = wait(parts.reader, order.lease, context, |_| viewer.ended().is_some()).await {
        // The body has no place for a reason.
        tracing::info!(peer = %order.peer, stream = order.stream.name(), %why, "no longer views");
    }
    Ok(())
}

/// Says why a client whose connection was taken from hyper is not served. An encrypted one sees it close.
pub(super) fn refuse(socket: Option<TcpStream>, guard: &Guard, why: &dyn Display) {
    if let Some(mut socket) = socket {
        let mut answer =
            b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: text/plain\r\nretry-after: 5\r\n"
                .to_vec();
        guard.write(&mut answer);
        answer.extend_from_slice(format!("\r\n{why}\n").as_bytes());
        // The connection is new, so that a short answer has room; if not, the client sees it close.
        let _ = socket.write_all(&answer);
    }
}

/// When a wait asks for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// A moment has passed.
    Look,
    /// The client says nothing more, and may have left: one that has refuses what is written now.
    HalfClosed,
}

/// Waits until the client closes, the engine has given up, or the server stops or withdraws what was granted, with the reason. `ended` is
/// asked about once a second.
pub(super) async fn wait(
    mut reader: Reader,
    mut lease: Lease,
    context: &Context,
    mut ended: impl FnMut(Moment) -> bool,
) -> Option<Withdrawal> {
    let mut shutdown = context.shutdown.clone();
    let mut look = tokio::time::interval(LOOK);
    let mut ignored = [0; 256];
    let mut half_closed = false;
    loop {
        tokio::select! {
            read = reader.read(&mut ignored), if !half_closed => match read {
                // A client that ends its half may go on listening (RFC 9112, 9.6). Otherwise it refuses the bytes.
                Ok(0) => {
                    half_closed = true;
                    reader.probe(&context.limits());
                    if ended(Moment::HalfClosed) {
                        return None;
                    }
                }
                Err(_) => return None,
                Ok(_) => {}
            },
            _ = look.tick() => {
                if ended(Moment::Look) || (half_closed && reader.is_reset()) {
                    return None;
                }
            }
            why = lease.withdrawn(context) => return Some(why),
            _ = stopped(&mut shutdown) => return None,
        }
    }
}
