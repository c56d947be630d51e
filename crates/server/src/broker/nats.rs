//! NATS: a subscriber of subjects, or of a key-value bucket.
//!
//! A bucket is a stream of the server's (JetStream) with a message for each key. A consumer of this connection's own gets the newest
//! of each key first and then each change, in order and without acknowledgements. A message that is left out is noticed by the numbers of the
//! others; the bucket is read anew then, with another connection.

mod line;

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::json;

use self::line::{Input, Malformed, Message, Said};
use super::error::{BrokerError, shown};
use super::session::{Event, Session};
use crate::brokers::Publication;
use crate::config::{Credentials, Subscription};

/// Bytes of a message beside the value: headers, and answers of the server's interface.
const SYNTAX_BYTES: usize = 16 << 10;

/// The numbers of the subscriptions: values, and answers.
const VALUES: u64 = 1;
const ANSWERS: u64 = 2;

/// A bucket's consumer says that it is there this often, and is forgotten by the server this long after its client has gone. In
/// nanoseconds, as the server wants it.
const HEARTBEAT_NANOS: u64 = 5_000_000_000;
const FORGET_NANOS: u64 = 30_000_000_000;

/// How a client calls itself and what it wants.
pub(super) struct Wish {
    /// A text of letters and digits that no other client has.
    pub(super) client: String,
    pub(super) credentials: Option<Credentials>,
    pub(super) subscription: Subscription,
    pub(super) most_value_bytes: usize,
}

/// A connection. Its server has said hello, and it is encrypted if it has to be.
pub(super) struct Nats {
    input: Input,
    talk: Talk,
}

struct Talk {
    wish: Wish,
    /// The largest message that the server takes.
    most_payload: usize,
    /// What each answer to a question (`PING`) will say, the oldest first.
    asked: VecDeque<Asked>,
    /// Publications to a bucket that are not confirmed: subjects by ticket.
    unconfirmed: BTreeMap<u64, String>,
    bucket: Bucket,
}

/// What a bucket's consumer has said.
#[derive(Default)]
struct Bucket {
    is_ready: bool,
    is_whole: bool,
    /// Messages so far.
    delivered: u64,
}

/// A question on the way.
enum Asked {
    /// Whether the server is there.
    Presence,
    /// Whether it has taken user and subscription.
    Subscription,
    /// Whether it has taken a publication of this subject.
    Publication { ticket: u64, subject: String, refused: Option<String> },
}

/// How a server's first line begins.
const HELLO: &str = "INFO ";

/// What a server says of itself first.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Info {
    #[serde(default)]
    pub(super) tls_required: bool,
    #[serde(default)]
    max_payload: Option<usize>,
}

/// The server's answer to a question of its interface, or to a message of a bucket.
#[derive(Deserialize)]
struct Answer {
    error: Option<ApiError>,
    num_pending: Option<u64>,
}

#[derive(Deserialize)]
struct ApiError {
    code: u16,
    #[serde(default)]
    description: String,
}

impl Info {
    /// Reads the server's first line, and says how long that is; `None` if more bytes have to come.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, BrokerError> {
        let wrong = || protocol(Malformed("it does not begin with INFO"));
        let (word, rest) = bytes.split_at(HELLO.len().min(bytes.len()));
        // Another server may never end its line.
        if !HELLO.as_bytes().get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word)) {
            return Err(wrong());
        }
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let json = rest.get(..end).unwrap_or_default();
                let info = serde_json::from_slice(json).map_err(|_| wrong())?;
                Ok(Some((info, word.len() + end + 1)))
            }
            None if bytes.len() < line::MAX_LINE_BYTES => Ok(None),
            None => Err(protocol(Malformed("a line is too long"))),
        }
    }
}

impl Nats {
    pub(super) fn new(wish: Wish, info: &Info) -> Self {
        let input = Input::new(wish.most_value_bytes.saturating_add(SYNTAX_BYTES));
        let talk = Talk {
            wish,
            most_payload: info.max_payload.unwrap_or(1 << 20),
            asked: VecDeque::new(),
            unconfirmed: BTreeMap::new(),
            bucket: Bucket::default(),
        };
        Self { input, talk }
    }
}

impl Session for Nats {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let talk = &mut self.talk;
        let mut options = json!({
            "verbose": false, "pedantic": false, "echo": true, "headers": true, "no_responders": true, "protocol": 1,
            "name": "freshwire", "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
        });
        match &talk.wish.credentials {
            // A token has no password.
            Some(Credentials { user, password }) if password.is_empty() => {
                options["auth_token"] = user.as_str().into()
            }
            Some(Credentials { user, password }) => {
                options["user"] = user.as_str().into();
                options["pass"] = password.as_str().into();
            }
            None => {}
        }
        line(out, &["CONNECT", &options.to_string()]);
        if let Subscription::Subjects { filter } = &talk.wish.subscription {
            line(out, &["SUB", filter, &VALUES.to_string()]);
        } else {
            line(out, &["SUB", &talk.inbox("value"), &VALUES.to_string()]);
            line(out, &["SUB", &talk.inbox("answer.*"), &ANSWERS.to_string()]);
        }
        talk.ask(Asked::Subscription, out);
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), BrokerError> {
        let Self { input, talk } = self;
        input.push(bytes);
        loop {
            match input.next().map_err(protocol)? {
                None => return Ok(()),
                Some(Said::Line(line)) => talk.line(line, out, events)?,
                Some(Said::TooLarge(VALUES)) => {
                    // It has a number all the same.
                    talk.bucket.delivered += 1;
                    events.push(Event::TooLarge);
                }
                Some(Said::TooLarge(_)) => {}
                Some(Said::Message(message)) => talk.message(&message, out, events)?,
            }
        }
    }

    fn publish(
        &mut self,
        ticket: u64,
        publication: &Publication,
        out: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) {
        let talk = &mut self.talk;
        let payload = publication.payload.as_deref().unwrap_or_default();
        if payload.len() > talk.most_payload {
            let result = Err(format!("it takes at most {} bytes", talk.most_payload));
            return events.push(Event::Answer { ticket, result });
        }
        let Subscription::Bucket { name, .. } = &talk.wish.subscription else {
            message(out, &publication.key, None, "", payload);
            let subject = publication.key.clone();
            return talk.ask(Asked::Publication { ticket, subject, refused: None }, out);
        };
        let subject = format!("$KV.{name}.{}", publication.key);
        let reply = talk.inbox(&format!("answer.p{ticket}"));
        let headers =
            if publication.payload.is_none() { "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n" } else { "" };
        message(out, &subject, Some(&reply), headers, payload);
        talk.unconfirmed.insert(ticket, subject);
    }

    fn give_up(&mut self, ticket: u64) {
        self.talk.unconfirmed.remove(&ticket);
        for asked in &mut self.talk.asked {
            // Its question is still to be answered; a later refusal is not of this one.
            if matches!(asked, Asked::Publication { ticket: other, .. } if *other == ticket) {
                *asked = Asked::Presence;
            }
        }
    }

    fn ping(&mut self, out: &mut Vec<u8>) {
        self.talk.ask(Asked::Presence, out);
    }
}

impl Talk {
    fn inbox(&self, end: &str) -> String {
        format!("_INBOX.{}.{end}", self.wish.client)
    }

    fn ask(&mut self, what: Asked, out: &mut Vec<u8>) {
        line(out, &["PING"]);
        self.asked.push_back(what);
    }

    fn line(&mut self, text: &str, out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), BrokerError> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word.to_ascii_uppercase().as_str() {
            "PING" => {
                line(out, &["PONG"]);
                Ok(())
            }
            "PONG" => {
                match self.asked.pop_front() {
                    Some(Asked::Subscription) => self.subscribed(out, events),
                    Some(Asked::Publication { ticket, refused, .. }) => {
                        events.push(Event::Answer { ticket, result: refused.map_or(Ok(()), Err) });
                    }
                    Some(Asked::Presence) | None => {}
                }
                Ok(())
            }
            // Addresses of the cluster, and that this server is going to stop.
            "INFO" | "+OK" => Ok(()),
            "-ERR" => self.error(rest.trim_matches('\''), events),
            _ => Err(protocol(Malformed("a line begins with no word that a server says"))),
        }
    }

    /// The server knows the user, and has the subscription.
    fn subscribed(&mut self, out: &mut Vec<u8>, events: &mut Vec<Event>) {
        let Subscription::Bucket { name, filter } = &self.wish.subscription else {
            return events.push(Event::Ready("NATS"));
        };
        let request = json!({
            "stream_name": format!("KV_{name}"),
            "config": {
                "deliver_subject": self.inbox("value"), "filter_subject": format!("$KV.{name}.{filter}"),
                "deliver_policy": "last_per_subject", "ack_policy": "none", "replay_policy": "instant", "max_deliver": 1,
                "mem_storage": true, "num_replicas": 1,
                "flow_control": true, "idle_heartbeat": HEARTBEAT_NANOS, "inactive_threshold": FORGET_NANOS,
            },
        });
        let (subject, reply) = (format!("$JS.API.CONSUMER.CREATE.KV_{name}"), self.inbox("answer.consumer"));
        message(out, &subject, Some(&reply), "", request.to_string().as_bytes());
    }

    fn error(&mut self, text: &str, events: &mut Vec<Event>) -> Result<(), BrokerError> {
        let lower = text.to_ascii_lowercase();
        if lower.contains("authorization violation") || lower.contains("authentication") {
            return Err(BrokerError::Credentials(shown(text)));
        }
        if lower.contains("permissions violation") && lower.contains("publish") {
            let is_named = |subject: &str| text.contains(&format!("\"{subject}\""));
            // One to a bucket gets no other answer.
            let mut unconfirmed = self.unconfirmed.iter();
            if let Some((&ticket, _)) = unconfirmed.find(|(_, subject)| is_named(subject)) {
                self.unconfirmed.remove(&ticket);
                events.push(Event::Answer { ticket, result: Err(shown(text)) });
                return Ok(());
            }
            // The answer to the question behind the publication says it to its sender.
            for asked in &mut self.asked {
                if let Asked::Publication { subject, refused, .. } = asked
                    && refused.is_none()
                    && is_named(subject)
                {
                    *refused = Some(shown(text));
                    return Ok(());
                }
            }
            if !self.bucket.is_ready && matches!(self.wish.subscription, Subscription::Bucket { .. }) {
                return Err(self.refusal(shown(text)));
            }
            return Ok(());
        }
        if lower.contains("permissions violation") {
            return Err(self.refusal(shown(text)));
        }
        Err(BrokerError::Ended(shown(text)))
    }

    fn refusal(&self, reason: String) -> BrokerError {
        let filter = match &self.wish.subscription {
            Subscription::Bucket { name, .. } => format!("the bucket {name}"),
            other => other.filter().to_owned(),
        };
        BrokerError::Subscription { filter, reason }
    }

    fn message(
        &mut self,
        message: &Message<'_>,
        out: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<(), BrokerError> {
        match (message.subscription, &self.wish.subscription) {
            (VALUES, Subscription::Bucket { .. }) => self.entry(message, out, events),
            (VALUES, _) => {
                // A subject has no other way to end.
                let payload = Some(message.payload).filter(|payload| !payload.is_empty()).map(<[u8]>::to_vec);
                events.push(Event::Message { key: message.subject.to_owned(), payload });
                Ok(())
            }
            (ANSWERS, _) => self.answer(message, events),
            _ => Err(protocol(Malformed("a message is for no subscription of this client"))),
        }
    }

    /// An answer of the server's interface, or to a publication.
    fn answer(&mut self, message: &Message<'_>, events: &mut Vec<Event>) -> Result<(), BrokerError> {
        let end = message.subject.rsplit('.').next().unwrap_or_default();
        let answer: Option<Answer> = serde_json::from_slice(message.payload).ok();
        let error = match (message.headers.status(), &answer) {
            (Some("503"), _) => Some("the server has no JetStream, or the bucket is gone".to_owned()),
            (_, Some(Answer { error: Some(error), .. })) => Some(match error.code {
                404 => format!("there is no such bucket ({})", shown(&error.description)),
                _ => shown(&error.description),
            }),
            (_, None) => Some("the answer is no JSON".to_owned()),
            (_, Some(_)) => None,
        };
        let ticket = end.strip_prefix('p').and_then(|ticket| ticket.parse().ok());
        if let Some(ticket) = ticket.filter(|ticket| self.unconfirmed.remove(ticket).is_some()) {
            events.push(Event::Answer { ticket, result: error.map_or(Ok(()), Err) });
            return Ok(());
        }
        if end != "consumer" || self.bucket.is_ready {
            return Ok(());
        }
        if let Some(reason) = error {
            return Err(self.refusal(reason));
        }
        self.bucket.is_ready = true;
        events.push(Event::Ready("NATS, key-value"));
        if answer.and_then(|answer| answer.num_pending) == Some(0) && !self.bucket.is_whole {
            self.bucket.is_whole = true;
            events.push(Event::Whole);
        }
        Ok(())
    }

    /// A message of a bucket's consumer.
    fn entry(
        &mut self,
        message: &Message<'_>,
        out: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<(), BrokerError> {
        if message.headers.status() == Some("100") {
            return self.control(message, out);
        }
        let Subscription::Bucket { name, .. } = &self.wish.subscription else { return Ok(()) };
        let place = message.reply.and_then(Place::read);
        let place = place.ok_or_else(|| protocol(Malformed("a message of a bucket has no number")))?;
        self.bucket.delivered += 1;
        if place.delivered != self.bucket.delivered {
            return Err(BrokerError::Gap);
        }
        let key = message.subject.strip_prefix("$KV.").and_then(|rest| rest.strip_prefix(name.as_str()));
        let key = key.and_then(|rest| rest.strip_prefix('.'));
        let key = key.ok_or_else(|| protocol(Malformed("a message is of another bucket")))?;
        let is_end = matches!(message.headers.value("KV-Operation"), Some("DEL" | "PURGE"))
            // The server's own, when a value has lived long enough (2.11).
            || message.headers.value("Nats-Marker-Reason").is_some();
        let payload = (!is_end).then(|| message.payload.to_vec());
        events.push(Event::Message { key: key.to_owned(), payload });
        if place.pending == 0 && !self.bucket.is_whole {
            self.bucket.is_whole = true;
            events.push(Event::Whole);
        }
        Ok(())
    }

    /// A question of a bucket's consumer: whether what it has sent has come.
    fn control(&self, asked: &Message<'_>, out: &mut Vec<u8>) -> Result<(), BrokerError> {
        let stalled = asked.headers.value("Nats-Consumer-Stalled");
        if let Some(subject) = asked.reply.or(stalled) {
            message(out, subject, None, "", b"");
        }
        let last = asked.headers.value("Nats-Last-Consumer").and_then(|last| last.parse::<u64>().ok());
        if last.is_some_and(|last| last != self.bucket.delivered) { Err(BrokerError::Gap) } else { Ok(()) }
    }
}

/// Where a message is among those of its consumer.
struct Place {
    delivered: u64,
    pending: u64,
}

impl Place {
    /// `$JS.ACK.STREAM.CONSUMER.TIMES.NUMBER-IN-STREAM.NUMBER.TIME.PENDING`, or with domain and account in front of the stream (ADR-15
    /// of NATS).
    fn read(reply: &str) -> Option<Self> {
        let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').take(12).collect();
        let from = if parts.len() > 7 { 2 } else { 0 };
        let number = |at: usize| parts.get(from + at)?.parse().ok();
        Some(Self { delivered: number(4)?, pending: number(6)? })
    }
}

fn line(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(words.join(" ").as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a message.
fn message(out: &mut Vec<u8>, subject: &str, reply: Option<&str>, headers: &str, payload: &[u8]) {
    let lengths = if headers.is_empty() {
        payload.len().to_string()
    } else {
        format!("{} {}", headers.len(), headers.len() + payload.len())
    };
    let word = if headers.is_empty() { "PUB" } else { "HPUB" };
    let words: Vec<&str> = [word, subject].into_iter().chain(reply).chain([lengths.as_str()]).collect();
    line(out, &words);
    out.extend_from_slice(headers.as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

fn protocol(error: Malformed) -> BrokerError {
    BrokerError::Protocol("NATS", error.to_string())
}

#[cfg(test)]
mod tests;
