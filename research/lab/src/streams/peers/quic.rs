//! QUIC by quinn, set up as its documents advise for live data: a stream for each record, sent by priority and reset
//! when the record has lost its value.
//!
//! The other settings were chosen by trial, in quinn's favour. They are a send window of a quarter of the source's
//! second (its BBR puts as much on the way as it may), and an acknowledgement for each packet.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::Namespaces;
use freshwire_record::Timestamp;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{
    AckFrequencyConfig, Connection, Endpoint, EndpointConfig, ReadError, RecvStream, TransportConfig, VarInt,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::super::offer::OfferedRecord;
use super::super::pace::{Ends, LEAD, LastReport, SenderAccount, Span, payload};
use super::super::receive::{Received, whole_record};
use crate::quic::{NAME, configurations, endpoint};
use crate::scenario::TestLink;
use crate::schema::Plan;

/// Largest record that the receiver keeps, in bytes, as the other readers of the lab.
const MAX_RECORD: usize = 1 << 20;

/// Bytes that quinn may hold and have on the way, in seconds of the source.
const SEND_WINDOW: f64 = 0.25;

/// The shortest time that its timers know.
const TIMER: Duration = Duration::from_millis(1);

/// The code with which streams are reset and the connection closed.
const GIVEN_UP: VarInt = VarInt::from_u32(0);

/// Sends the offered records across the link and receives them. Both ends share a thread: at these rates neither waits
/// for the other.
pub(super) fn run(link: &TestLink, plan: &Plan, offered: &[OfferedRecord]) -> anyhow::Result<Ends> {
    let bind = |address| UdpSocket::bind((address, 0)).context("cannot bind a socket");
    let far = link.namespaces.in_far(|| bind(Namespaces::FAR_V4))??;
    let near = link.namespaces.in_near(|| bind(Namespaces::NEAR_V4))??;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (sender, receiver) = connect(near, far, transport(plan)?).await?;
        let span = Span::of(plan, link.start_after(LEAD)?);
        let receiving = tokio::spawn(receive(receiver.connection.clone(), span));
        let paced = send(&sender.connection, offered, span).await.context("the sender failed")?;
        let received = receiving.await.context("the receiver panicked")?.context("the receiver failed")?;
        Ok(Ends { span, paced: settle(paced, &received), received })
    })
}

/// One end of the connection. The endpoint carries its packets as long as it lives.
struct End {
    connection: Connection,
    _endpoint: Endpoint,
}

async fn connect(near: UdpSocket, far: UdpSocket, transport: TransportConfig) -> anyhow::Result<(End, End)> {
    let address: SocketAddr = far.local_addr()?;
    let (server, client) = configurations(transport)?;
    let far = endpoint(far, Some(server), EndpointConfig::default())?;
    let near = endpoint(near, None, EndpointConfig::default())?;
    let accepting = tokio::spawn({
        let far = far.clone();
        async move { anyhow::Ok(far.accept().await.context("the endpoint is closed")?.await?) }
    });
    let sending =
        near.connect_with(client, address, NAME)?.await.context("cannot connect across the link")?;
    let receiving = accepting.await.context("accepting panicked")?.context("cannot accept")?;
    Ok((End { connection: sending, _endpoint: near }, End { connection: receiving, _endpoint: far }))
}

fn transport(plan: &Plan) -> anyhow::Result<TransportConfig> {
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match plan.congestion.as_str() {
        "bbr" => Arc::new(BbrConfig::default()),
        "cubic" => Arc::new(CubicConfig::default()),
        "reno" => Arc::new(NewRenoConfig::default()),
        other => anyhow::bail!("quinn has bbr, cubic and reno, not {other:?}"),
    };
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(VarInt::from_u32(0)).max_ack_delay(Some(TIMER));
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(controller)
        .send_fairness(false)
        .send_window((plan.source.bytes_per_second() * SEND_WINDOW).round() as u64)
        .ack_frequency_config(Some(acknowledgements));
    Ok(transport)
}

async fn send(
    connection: &Connection,
    offered: &[OfferedRecord],
    span: Span,
) -> anyhow::Result<SenderAccount> {
    let mut paced = SenderAccount::new(offered.len());
    let mut tasks = JoinSet::new();
    for record in offered {
        let due = span.start + record.at;
        sleep(left(due)).await;
        paced.lateness = paced.lateness.max(freshwire_io::now().saturating_since(due));
        tasks.spawn(send_record(connection.clone(), record.clone(), span));
    }
    while let Some(sent) = tasks.join_next().await {
        let (seq, fate, bytes) = sent.context("a stream panicked")?;
        paced.sent_bytes += bytes;
        paced.fates[seq as usize] = fate;
    }
    sleep(left(span.stop_at)).await;
    connection.close(GIVEN_UP, b"");
    Ok(paced)
}

/// Sends a record on a stream of its own, unless its value ends first. Gives what became of it, and the bytes that the
/// connection took.
async fn send_record(connection: Connection, record: OfferedRecord, span: Span) -> (u64, LastReport, u64) {
    let bytes = payload(&record, span.start);
    let mut fate = LastReport::default();
    let mut written = 0;
    let mut stream = None;
    let whole = async {
        let stream = stream.insert(connection.open_uni().await?);
        stream.set_priority(priority(&record))?;
        fate.committed = Some(freshwire_io::now());
        while written < bytes.len() {
            written += stream.write(&bytes[written..]).await?;
        }
        stream.finish()?;
        stream.stopped().await?;
        anyhow::Ok(())
    };
    let delivered = timeout(left(span.start + record.deadline), whole).await;
    fate.word = Some(match (delivered, &mut stream) {
        (Ok(Ok(())), _) => "sent".to_owned(),
        (_, Some(stream)) => {
            // An error says that it has ended by itself.
            let _ = stream.reset(GIVEN_UP);
            "abandoned".to_owned()
        }
        (_, None) => "dropped: expired".to_owned(),
    });
    (record.seq, fate, written as u64)
}

/// Lower layers first, then what is older.
fn priority(record: &OfferedRecord) -> i32 {
    const OLDER: i32 = 1 << 24;
    -(i32::from(record.layer) * OLDER + (record.seq % OLDER as u64) as i32)
}

async fn receive(connection: Connection, span: Span) -> anyhow::Result<Received> {
    let mut streams = JoinSet::new();
    while let Ok(Ok(stream)) = timeout(left(span.stop_at), connection.accept_uni()).await {
        streams.spawn(receive_record(stream, span));
    }
    let mut received = Received::default();
    while let Some(one) = streams.join_next().await {
        received.join(one.context("a stream panicked")??)?;
    }
    Ok(received)
}

/// Reads the record of one stream; what was reset on the way, or is not whole when the run ends, has not arrived.
async fn receive_record(mut stream: RecvStream, span: Span) -> anyhow::Result<Received> {
    let mut received = Received::default();
    let mut record = Vec::new();
    loop {
        let read = timeout(left(span.stop_at), stream.read_chunk(MAX_RECORD, true)).await;
        let now = freshwire_io::now();
        match read {
            Ok(Ok(Some(chunk))) => {
                record.extend_from_slice(&chunk.bytes);
                anyhow::ensure!(record.len() <= MAX_RECORD, "a stream of more than {MAX_RECORD} bytes");
                received.count(chunk.bytes.len(), now, span.count_until);
            }
            Ok(Ok(None)) => {
                received.arrived(whole_record(&record)?, now)?;
                return Ok(received);
            }
            Ok(Err(ReadError::Reset(_) | ReadError::ConnectionLost(_))) | Err(_) => return Ok(received),
            Ok(Err(error)) => return Err(error.into()),
        }
    }
}

/// A record that arrived was sent, although the sender may have given it up before it knew.
fn settle(mut paced: SenderAccount, received: &Received) -> SenderAccount {
    for seq in received.arrivals.keys() {
        if let Some(fate) = paced.fates.get_mut(*seq as usize) {
            fate.word = Some("sent".to_owned());
        }
    }
    paced.count_drops();
    paced
}

fn left(until: Timestamp) -> Duration {
    until.saturating_since(freshwire_io::now())
}
