//! Values of brokers: MQTT and NATS.
//!
//! ```text
//!  broker ─► socket ─► Session ─► Inbox: the newest of each key ─► Topic ─► readers, each at its own pace
//!                         │  └ too large: passed over, never kept
//!  POST ─► publications ──┘
//! ```
//!
//! The task of a broker takes what the socket has before it offers anything to readers, so nothing waits at the broker, however
//! slow readers are. What comes faster than readers can be offered it replaces older messages of its key in the inbox. A
//! connection that fails is established again, with backoff.

mod error;
mod feed;
mod inbox;
mod link;
mod mqtt;
mod nats;
mod session;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop::consume_budget;

use self::error::BrokerError;
use self::feed::Feed;
use self::link::{Opened, PATIENCE};
use self::mqtt::Mqtt;
use self::nats::Nats;
use self::session::{Event, Session};
use crate::brokers::{BrokerState, BrokerStatus, Publication, PublishError, Refusal};
use crate::config::{MqttVersion, Subscription};
use crate::context::Context;
use crate::values::Topic;

/// The pauses before a connection is tried again; they double. As for cameras.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Bytes of one read: the messages of some milliseconds of a fast broker.
const READ_BYTES: usize = 64 << 10;

/// Values that are offered to readers between two reads. With hundreds of readers they take some milliseconds.
const OFFERED_AT_ONCE: usize = 16;

/// How often to look whether something takes too long.
const LOOK: Duration = Duration::from_millis(500);

/// Bytes that may wait for a broker to read them, beside a publication: answers to its questions. A broker asks some each minute, with a
/// few hundred bytes each.
const MOST_UNREAD_BYTES: usize = 256 << 10;

/// Publications on the way to a broker. One of MQTT takes 65,535 unless it says less (5.0, 3.2.2.3.3); mosquitto says 20.
const MOST_UNCONFIRMED: usize = 16;

/// Feeds a stream of values from its broker. Returns when the stream was removed; drop the future to end it at once.
pub(crate) async fn run(context: Arc<Context>, topic: Arc<Topic>, status: Arc<BrokerStatus>) {
    let name = format!("broker of {}", topic.name());
    context.tasks.keep(name, || feed(&topic, &status)).await;
}

async fn feed(topic: &Arc<Topic>, status: &Arc<BrokerStatus>) {
    let mut removed = topic.removed();
    let mut client = Client {
        feed: Feed::new(Arc::clone(topic), Arc::clone(status)),
        topic,
        status,
        version: MqttVersion::V5,
        tickets: 0,
    };
    let serve = async {
        let mut outgoing = status.outgoing.lock().await;
        match client.serve_always(&mut outgoing).await {}
    };
    tokio::select! {
        never = serve => never,
        _ = removed.wait_for(|&is_removed| is_removed) => {}
    }
}

struct Client<'a> {
    feed: Feed,
    topic: &'a Topic,
    status: &'a BrokerStatus,
    /// The version of MQTT to try next.
    version: MqttVersion,
    /// Publications so far.
    tickets: u64,
}

/// Publications that the broker has not confirmed, by ticket: since when, and where its answer goes.
type Unconfirmed = BTreeMap<u64, (Instant, oneshot::Sender<Result<(), PublishError>>)>;

impl Client<'_> {
    async fn serve_always(&mut self, outgoing: &mut mpsc::Receiver<Publication>) -> Infallible {
        let (stream, broker) = (self.topic.name(), &self.status.address);
        let mut pause = SHORTEST_PAUSE;
        loop {
            let start = Instant::now();
            self.status.set(BrokerState::Connecting);
            let Err(error) = self.serve(outgoing).await;
            self.feed_all().await;
            if self.changes_version(&error) {
                tracing::info!(stream, %broker, "the broker refuses MQTT 5, it is asked for 3.1.1");
                continue;
            }
            if start.elapsed() > LONGEST_PAUSE {
                pause = SHORTEST_PAUSE;
            }
            tracing::warn!(stream, %broker, %error, again_in = ?pause, "no values from the broker");
            self.status.set(BrokerState::Retrying { reason: error.to_string() });
            // Their senders may send those again that still wait.
            while let Ok(late) = outgoing.try_recv() {
                let _ = late.answer.send(Err(PublishError::Away(error.to_string())));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether to try again at once with the other version of MQTT. A broker from before MQTT 5 may close without an answer; then the
    /// next attempt, after the pause, is with the other one.
    fn changes_version(&mut self, error: &BrokerError) -> bool {
        if !matches!(self.status.address.subscription, Subscription::Mqtt { version: None, .. }) {
            return false;
        }
        let tried = self.version;
        let is_refused = matches!(error, BrokerError::Version);
        if is_refused || matches!(error, BrokerError::Unanswered) {
            self.version = if tried == MqttVersion::V5 { MqttVersion::V3 } else { MqttVersion::V5 };
        }
        is_refused && tried == MqttVersion::V5
    }

    fn session(&self, opened: &Opened) -> Result<Box<dyn Session>, BrokerError> {
        let address = &self.status.address;
        let mut number = [0; 6];
        getrandom::fill(&mut number).map_err(|error| BrokerError::Io(error.into()))?;
        // At most 23 letters and digits, which every broker takes (MQTT 5.0, 3.1.3.1).
        let client = format!("freshwire{}", data_encoding::HEXLOWER.encode(&number));
        let credentials = address.credentials.clone();
        let most_value_bytes = self.topic.limits().max_value_bytes;
        Ok(match &address.subscription {
            Subscription::Mqtt { filter, version } => Box::new(Mqtt::new(mqtt::Wish {
                version: version.unwrap_or(self.version),
                client,
                credentials,
                filter: filter.clone(),
                most_value_bytes,
            })),
            subscription => {
                let subscription = subscription.clone();
                let wish = nats::Wish { client, credentials, subscription, most_value_bytes };
                Box::new(Nats::new(wish, &opened.info))
            }
        })
    }

    /// Offers readers all that waits.
    async fn feed_all(&mut self) {
        while !self.feed.is_empty() && self.feed.offer_next() {
            consume_budget().await;
        }
        self.feed.report();
    }

    /// One connection.
    async fn serve(&mut self, outgoing: &mut mpsc::Receiver<Publication>) -> Result<Infallible, BrokerError> {
        let opened = link::open(&self.status.address).await?;
        let mut session = self.session(&opened)?;
        self.feed.begin();
        let Opened { conn, early, .. } = opened;
        let (mut reader, mut writer) = tokio::io::split(conn);
        let (mut out, mut events) = (Vec::new(), Vec::new());
        let (mut is_ready, mut is_flushed, mut unconfirmed) = (false, true, Unconfirmed::new());
        let start = Instant::now();
        let (mut heard, mut asked, mut pinged) = (start, None, start);
        let mut look = tokio::time::interval(LOOK);
        let mut buffer = vec![0; READ_BYTES];
        session.begin(&mut out);
        session.take(&early, &mut out, &mut events)?;
        // A publication is written only when nothing waits.
        let mut publication_bytes = 0;
        loop {
            if out.len() > MOST_UNREAD_BYTES + publication_bytes {
                return Err(BrokerError::Unread(out.len()));
            }
            tokio::select! {
                read = reader.read(&mut buffer) => match read {
                    // A broker that expects TLS resets the connection.
                    Ok(0) | Err(_) if !is_ready => return Err(BrokerError::Unanswered),
                    Ok(0) => return Err(BrokerError::Closed),
                    Err(error) => return Err(BrokerError::Io(error)),
                    Ok(count) => {
                        (heard, asked) = (Instant::now(), None);
                        let bytes = buffer.get(..count).unwrap_or_default();
                        let result = session.take(bytes, &mut out, &mut events);
                        for event in events.drain(..) {
                            is_ready |= self.handle(event, &mut unconfirmed);
                        }
                        result?;
                        self.feed.report();
                        self.offer_some();
                    }
                },
                () = std::future::ready(()), if !self.feed.is_empty() => {
                    self.offer_some();
                    consume_budget().await;
                }
                written = write(&mut writer, &out), if !out.is_empty() || !is_flushed => {
                    let written = written.map_err(BrokerError::Io)?;
                    is_flushed = out.is_empty();
                    out.drain(..written);
                    publication_bytes = publication_bytes.min(out.len());
                }
                Some(publication) = outgoing.recv(), if is_ready && out.is_empty() && unconfirmed.len() < MOST_UNCONFIRMED => {
                    self.tickets += 1;
                    session.publish(self.tickets, &publication, &mut out, &mut events);
                    publication_bytes = out.len();
                    unconfirmed.insert(self.tickets, (Instant::now(), publication.answer));
                    for event in events.drain(..) {
                        self.handle(event, &mut unconfirmed);
                    }
                }
                _ = look.tick() => {
                    let now = Instant::now();
                    if !is_ready && now.duration_since(start) > PATIENCE {
                        return Err(BrokerError::Slow(PATIENCE, "take the connection and the subscription"));
                    }
                    if asked.is_some_and(|at| now.duration_since(at) > PATIENCE) {
                        return Err(BrokerError::Silent(now.duration_since(heard)));
                    }
                    // A broker of MQTT wants to hear from its clients, whatever it sends them itself.
                    if is_ready && now.duration_since(pinged) > session.ping_every() {
                        session.ping(&mut out);
                        (asked, pinged) = (asked.or(Some(now)), now);
                    }
                    give_up(&mut unconfirmed, session.as_mut(), now);
                }
            }
        }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.status.address.subscription, Subscription::Bucket { .. })
    }

    fn offer_some(&mut self) {
        for _ in 0..OFFERED_AT_ONCE {
            if self.feed.is_empty() || !self.feed.offer_next() {
                break;
            }
        }
        self.feed.report();
    }

    /// Returns `true` if the broker has taken the subscription.
    fn handle(&mut self, event: Event, unconfirmed: &mut Unconfirmed) -> bool {
        match event {
            Event::Ready(protocol) => {
                let (stream, broker) = (self.topic.name(), &self.status.address);
                tracing::info!(stream, %broker, protocol, "values from the broker");
                self.status.set(BrokerState::Subscribed { protocol });
                return true;
            }
            Event::Message { key, payload } => self.feed.put(&key, payload, self.is_bucket()),
            Event::TooLarge => self.feed.pass_over(Refusal::TooLarge),
            Event::BadKey => self.feed.pass_over(Refusal::Key),
            Event::Whole => self.feed.whole(),
            Event::Answer { ticket, result } => {
                if let Some((_, answer)) = unconfirmed.remove(&ticket) {
                    if result.is_ok() {
                        self.status.count(|counts| counts.published += 1);
                    }
                    // Its sender may have gone.
                    let _ = answer.send(result.map_err(PublishError::Refused));
                }
            }
        }
        false
    }
}

/// Writes some of the bytes, or flushes if there are none. Cancel safe.
async fn write(writer: &mut (impl AsyncWrite + Unpin), out: &[u8]) -> io::Result<usize> {
    if out.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(out).await }
}

/// Gives up the publications that have waited too long.
fn give_up(unconfirmed: &mut Unconfirmed, session: &mut dyn Session, now: Instant) {
    let late: Vec<u64> = unconfirmed
        .iter()
        .filter(|(_, (since, _))| now.duration_since(*since) > PATIENCE)
        .map(|(ticket, _)| *ticket)
        .collect();
    for ticket in late {
        session.give_up(ticket);
        if let Some((_, answer)) = unconfirmed.remove(&ticket) {
            let _ = answer.send(Err(PublishError::Unconfirmed(PATIENCE)));
        }
    }
}
