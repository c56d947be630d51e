use std::time::Duration;

use freshwire_record::Rate;

use super::cursor::{Cursor, put_varint};
use super::error::Malformed;
use crate::crypto::ResetToken;

/// The quality of service cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QosError {
    /// It asks for more than the maximum that was given at bind, or that the other end has agreed to. Only a new connection can
    /// have another one (`Node::reopen` of the `freshwire` crate).
    #[error(
        "{0} is beyond the maximum that the ends of the connection have agreed to: reopen it with a larger one"
    )]
    BeyondMaximum(&'static str),
    /// No connection has such a value.
    #[error("{name}: {value} is not from {least} to {most}")]
    OutOfRange {
        /// What it is the value of.
        name: &'static str,
        /// The requested value.
        value: u32,
        /// The least that there is.
        least: u32,
        /// The most that there is.
        most: u32,
    },
    /// The peer has not answered the last change yet.
    #[error("the last change is still pending: wait for its answer")]
    Pending,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

/// Quality of service of a connection (Mapp 1997, "QoS support in A1"). The receiver may narrow what the sender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// Average rate at which this end sends; `None` is no limit.
    pub send_average: Option<Rate>,
    /// Bytes that may go at once above the average.
    pub send_burst: u32,
    /// Average rate at which this end is willing to receive; `None` is no limit.
    pub receive_average: Option<Rate>,
    /// Bytes that may come at once above the average.
    pub receive_burst: u32,
    /// Which connection of a node goes first where several have something to send; a higher one does. One turn in 16 goes to who
    /// waits longest of the lowest.
    pub priority: u8,
    /// Whether packets that are not encrypted carry a checksum. Without it only UDP's own notices damage. In
    /// the maximum: whether there has to be one. Encryption checks anyway.
    pub checksum: bool,
    /// Whether lost blocks are sent again while their message is worth it.
    pub retransmission: bool,
    /// The largest message that this end sends, in bytes; at most [`Qos::MAX_MESSAGE`].
    pub max_send_message: u32,
    /// The largest message that this end accepts, in bytes; at most [`Qos::MAX_MESSAGE`].
    pub max_receive_message: u32,
    /// Messages that may be outstanding: sent, and not yet consumed by the receiving application; from 1 to
    /// [`Qos::MAX_OUTSTANDING`]. With the size of the largest one it makes the flow-control window
    /// ([`Qos::receive_window`]). Fewer are let on their way where the path does not need as many, and few if the
    /// application is slow: the sender's choice has the others.
    pub outstanding: u32,
}

impl Default for Qos {
    /// No limit of rate, messages of up to 1 MiB, 1024 outstanding, check and retransmission.
    fn default() -> Self {
        Self {
            send_average: None,
            send_burst: 64 << 10,
            receive_average: None,
            receive_burst: 64 << 10,
            priority: 0,
            checksum: true,
            retransmission: true,
            max_send_message: 1 << 20,
            max_receive_message: 1 << 20,
            outstanding: 1024,
        }
    }
}

impl Qos {
    /// The largest message of all, in bytes.
    pub const MAX_MESSAGE: u32 = 64 << 20;
    /// The most messages that may be outstanding.
    pub const MAX_OUTSTANDING: u32 = 1 << 16;
    /// The most bytes that may be outstanding, unless two of the largest messages are more.
    pub const MAX_WINDOW: u64 = 64 << 20;

    /// The bytes that may be outstanding towards this end: the agreed number of the largest messages. The
    /// limit is [`Qos::MAX_WINDOW`], or two of the largest messages if that is more. The peer can make this
    /// end hold as much.
    //= spec/a1.md A1-FLOW-1
    pub fn receive_window(&self) -> u64 {
        let largest = u64::from(self.max_receive_message);
        (largest * u64::from(self.outstanding)).min(Self::MAX_WINDOW.max(2 * largest))
    }

    /// What of `self` is within `maximum`: each rate, size and number the smaller of the two.
    //= spec/a1.md A1-QOS-1
    #[must_use]
    pub fn within(&self, maximum: &Self) -> Self {
        Self {
            send_average: smaller(self.send_average, maximum.send_average),
            send_burst: self.send_burst.min(maximum.send_burst),
            receive_average: smaller(self.receive_average, maximum.receive_average),
            receive_burst: self.receive_burst.min(maximum.receive_burst),
            priority: self.priority.min(maximum.priority),
            checksum: self.checksum || maximum.checksum,
            retransmission: self.retransmission && maximum.retransmission,
            max_send_message: self.max_send_message.min(maximum.max_send_message),
            max_receive_message: self.max_receive_message.min(maximum.max_receive_message),
            outstanding: self.outstanding.min(maximum.outstanding),
        }
    }

    /// Whether there is such a quality of service at all, whatever the maximum.
    ///
    /// # Errors
    ///
    /// If a value is out of range.
    pub fn check_range(&self) -> Result<(), QosError> {
        let fields = [
            (SENT, self.max_send_message, 0, Self::MAX_MESSAGE),
            (ACCEPTED, self.max_receive_message, 0, Self::MAX_MESSAGE),
            (OUTSTANDING, self.outstanding, 1, Self::MAX_OUTSTANDING),
        ];
        match fields.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((name, value, least, most)) => Err(QosError::OutOfRange { name, value, least, most }),
            None => Ok(()),
        }
    }

    /// Whether all of it can be had within `maximum`.
    ///
    /// # Errors
    ///
    /// If a value is out of range, or exceeds `maximum`.
    pub fn check(&self, maximum: &Self) -> Result<(), QosError> {
        self.check_range()?;
        let rate = |rate: Option<Rate>| rate.map_or(u64::MAX, Rate::bits_per_sec);
        let fields = [
            ("the average sending rate", rate(self.send_average), rate(maximum.send_average)),
            ("the average receiving rate", rate(self.receive_average), rate(maximum.receive_average)),
            ("the sending burst", self.send_burst.into(), maximum.send_burst.into()),
            ("the receiving burst", self.receive_burst.into(), maximum.receive_burst.into()),
            ("the priority", self.priority.into(), maximum.priority.into()),
            (SENT, self.max_send_message.into(), maximum.max_send_message.into()),
            (ACCEPTED, self.max_receive_message.into(), maximum.max_receive_message.into()),
            (OUTSTANDING, self.outstanding.into(), maximum.outstanding.into()),
            ("retransmission", self.retransmission.into(), maximum.retransmission.into()),
            ("going without a checksum", (!self.checksum).into(), (!maximum.checksum).into()),
        ];
        match fields.into_iter().find(|(_, wanted, most)| wanted > most) {
            Some((name, _, _)) => Err(QosError::BeyondMaximum(name)),
            None => Ok(()),
        }
    }

    /// The same connection as its other end sees it: sending and receiving change places.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        Self {
            send_average: self.receive_average,
            send_burst: self.receive_burst,
            receive_average: self.send_average,
            receive_burst: self.send_burst,
            max_send_message: self.max_receive_message,
            max_receive_message: self.max_send_message,
            ..*self
        }
    }

    /// Appends it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.checksum) | u8::from(self.retransmission) << 1;
        out.extend([self.priority, flags]);
        for rate in [self.send_average, self.receive_average] {
            put_varint(out, rate.map_or(0, |rate| rate.bits_per_sec().max(1)));
        }
        for number in [
            self.send_burst,
            self.receive_burst,
            self.max_send_message,
            self.max_receive_message,
            self.outstanding,
        ] {
            put_varint(out, u64::from(number));
        }
    }

    /// Reads it.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [priority, flags] = cursor.array()?;
        let mut rate = || cursor.varint().map(|bits| (bits != 0).then(|| Rate::from_bits_per_sec(bits)));
        let (send_average, receive_average) = (rate()?, rate()?);
        let qos = Self {
            send_average,
            receive_average,
            priority,
            checksum: flags & 1 != 0,
            retransmission: flags & 2 != 0,
            send_burst: cursor.varint32("burst")?,
            receive_burst: cursor.varint32("burst")?,
            max_send_message: cursor.varint32("largest message")?,
            max_receive_message: cursor.varint32("largest message")?,
            outstanding: cursor.varint32("outstanding messages")?,
        };
        if qos.max_send_message.max(qos.max_receive_message) > Self::MAX_MESSAGE {
            return Err(Malformed::OutOfBounds("largest message"));
        }
        if !(1..=Self::MAX_OUTSTANDING).contains(&qos.outstanding) {
            return Err(Malformed::OutOfBounds("outstanding messages"));
        }
        Ok(qos)
    }
}

fn smaller(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What an end tells the other in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// A silence of this length ends the connection.
    pub(crate) idle_timeout: Duration,
    /// How long an acknowledgement may be put off.
    pub(crate) ack_delay: Duration,
    /// The largest UDP payload that it can take.
    pub(crate) max_datagram: u16,
    /// How packets are protected: the number of a `Protection`.
    pub(crate) protection: u8,
    /// The most that it will ever ask for.
    pub(crate) maximum: Qos,
    /// What it asks for now, as it sees it.
    pub(crate) qos: Qos,
    /// By what it ends the connection when it knows it no more; `None`: it does not.
    pub(crate) reset: Option<ResetToken>,
}

impl Parameters {
    /// Appends them.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.idle_timeout.as_millis() as u64);
        put_varint(out, self.ack_delay.as_micros() as u64);
        put_varint(out, u64::from(self.max_datagram));
        out.push(self.protection);
        self.maximum.put(out);
        self.qos.put(out);
        if let Some(token) = &self.reset {
            out.extend(token.as_bytes());
        }
    }

    /// Reads them; what follows is of a later version.
    //= spec/a1.md A1-HS-10
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let idle_timeout = Duration::from_millis(cursor.varint()?.min(MAX_IDLE_MS));
        let ack_delay = Duration::from_micros(cursor.varint()?);
        if ack_delay > MAX_ACK_DELAY {
            return Err(Malformed::OutOfBounds("delay of acknowledgements"));
        }
        let max_datagram = u16::try_from(cursor.varint()?).map_err(|_| Malformed::OutOfBounds("datagram"))?;
        if usize::from(max_datagram) < super::MIN_INITIATION {
            return Err(Malformed::OutOfBounds("datagram"));
        }
        let protection = cursor.u8()?;
        let maximum = Qos::read(cursor)?;
        let qos = Qos::read(cursor)?;
        let reset = if cursor.is_empty() { None } else { Some(ResetToken::from_bytes(cursor.array()?)) };
        Ok(Self { idle_timeout, ack_delay, max_datagram, protection, maximum, qos, reset })
    }
}

/// What errors call fields.
const SENT: &str = "the largest message to send";
const ACCEPTED: &str = "the largest message to accept";
const OUTSTANDING: &str = "the number of outstanding messages";

/// The longest idle timeout: a day. Chosen, not measured.
const MAX_IDLE_MS: u64 = 24 * 3600 * 1000;
/// The longest delay of acknowledgements. Chosen, not measured.
const MAX_ACK_DELAY: Duration = Duration::from_secs(1);
