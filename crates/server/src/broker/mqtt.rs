//! MQTT 3.1.1 and 5: a subscriber with QoS 0, which publishes with QoS 1.
//!
//! A broker waits for no answer to what it sends with QoS 0, so nothing waits at the broker for this server but what TCP has not
//! taken. A newer value replaces a lost one, and the retained messages come again with each connection.

mod packet;

use std::collections::BTreeMap;
use std::time::Duration;

use self::packet::{Fields, Input, Malformed, Packet, counted, kind, write};
use super::error::{BrokerError, shown};
use super::session::{Event, PING_EVERY, Session};
use crate::brokers::Publication;
use crate::config::{Credentials, MqttVersion};

/// Bytes of a packet beside the value: a topic of the longest key, properties, and reasons.
const SYNTAX_BYTES: usize = 16 << 10;

/// The time within which the broker hears from its client, in seconds: three questions, [`PING_EVERY`].
const KEEP_ALIVE_SECONDS: u16 = 30;

/// The only subscription's packet. Publications have the numbers behind it.
const SUBSCRIBE_ID: u16 = 1;

/// Reason codes (section 2.4).
mod reason {
    pub(super) const UNSUPPORTED_VERSION: u8 = 0x84;
    pub(super) const BAD_USER: u8 = 0x86;
    pub(super) const NOT_AUTHORIZED: u8 = 0x87;
    pub(super) const BAD_METHOD: u8 = 0x8c;
    pub(super) const FAILURE: u8 = 0x80;
}

/// How a client calls itself and what it wants.
pub(super) struct Wish {
    pub(super) version: MqttVersion,
    pub(super) client: String,
    pub(super) credentials: Option<Credentials>,
    pub(super) filter: String,
    pub(super) most_value_bytes: usize,
}

/// A connection.
pub(super) struct Mqtt {
    input: Input,
    talk: Talk,
}

struct Talk {
    wish: Wish,
    is_connected: bool,
    has_no_qos: bool,
    has_no_retain: bool,
    ping_every: Duration,
    /// Publications that the broker has not confirmed: tickets by packet.
    unconfirmed: BTreeMap<u16, u64>,
    last_id: u16,
}

impl Mqtt {
    pub(super) fn new(wish: Wish) -> Self {
        let input = Input::new(wish.most_value_bytes.saturating_add(SYNTAX_BYTES));
        let talk = Talk {
            wish,
            is_connected: false,
            has_no_qos: false,
            has_no_retain: false,
            ping_every: PING_EVERY,
            unconfirmed: BTreeMap::new(),
            last_id: SUBSCRIBE_ID,
        };
        Self { input, talk }
    }
}

impl Session for Mqtt {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let wish = &self.talk.wish;
        let (level, properties): (u8, &[u8]) = match wish.version {
            MqttVersion::V3 => (4, &[]),
            MqttVersion::V5 => (5, &[0]),
        };
        // A clean start; user and password if they are given (section 3.1.2.3).
        let (mut flags, mut who) = (0x02, counted(wish.client.as_bytes()));
        if let Some(Credentials { user, password }) = &wish.credentials {
            flags |= 0x80;
            who.extend(counted(user.as_bytes()));
            // MQTT has users without password. One of no characters is none.
            if !password.is_empty() {
                flags |= 0x40;
                who.extend(counted(password.as_bytes()));
            }
        }
        let [high, low] = KEEP_ALIVE_SECONDS.to_be_bytes();
        write(0x10, &[&counted(b"MQTT"), &[level, flags, high, low], properties, &who], out);
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>, events: &mut Vec<Event>) -> Result<(), BrokerError> {
        let Self { input, talk } = self;
        input.push(bytes);
        // Another server may never end what looks like a packet.
        if !talk.is_connected && input.head().is_some_and(|head| head >> 4 != kind::CONNACK) {
            return Err(protocol(Malformed("the first packet is no answer to the connection")));
        }
        loop {
            match input.next().map_err(protocol)? {
                None => return Ok(()),
                Some(Packet::TooLarge(head)) if head >> 4 == kind::PUBLISH && talk.is_connected => {
                    events.push(Event::TooLarge);
                }
                Some(Packet::TooLarge(_)) => return Err(protocol(Malformed("a packet is too long"))),
                Some(Packet::Whole(head, body)) => talk.packet(head, Fields(body), out, events)?,
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
        // Only a retained message of no bytes makes the broker forget the retained one.
        let retain = publication.retain || publication.payload.is_none();
        if retain && talk.has_no_retain {
            let result = Err("it keeps no messages; leave out ?retain".to_owned());
            return events.push(Event::Answer { ticket, result });
        }
        let payload = publication.payload.as_deref().unwrap_or_default();
        let properties: &[u8] = if talk.wish.version == MqttVersion::V5 { &[0] } else { &[] };
        let topic = counted(publication.key.as_bytes());
        if talk.has_no_qos {
            write(0x30 | u8::from(retain), &[&topic, properties, payload], out);
            return events.push(Event::Answer { ticket, result: Ok(()) });
        }
        let id = talk.next_id();
        talk.unconfirmed.insert(id, ticket);
        write(0x32 | u8::from(retain), &[&topic, &id.to_be_bytes(), properties, payload], out);
    }

    fn give_up(&mut self, ticket: u64) {
        self.talk.unconfirmed.retain(|_, other| *other != ticket);
    }

    fn ping(&mut self, out: &mut Vec<u8>) {
        write(0xc0, &[], out);
    }

    fn ping_every(&self) -> Duration {
        self.talk.ping_every
    }
}

impl Talk {
    /// The number of the next packet: one that is not in use.
    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(SUBSCRIBE_ID + 1);
            if !self.unconfirmed.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    fn packet(
        &mut self,
        head: u8,
        mut fields: Fields<'_>,
        out: &mut Vec<u8>,
        events: &mut Vec<Event>,
    ) -> Result<(), BrokerError> {
        match (head >> 4, self.is_connected) {
            (kind::CONNACK, false) => self.connected(fields, out),
            (_, false) => Err(protocol(Malformed("the first packet is no answer to the connection"))),
            (kind::PUBLISH, true) => {
                events.push(self.message(head, fields).map_err(protocol)?);
                Ok(())
            }
            (kind::SUBACK, true) => {
                self.subscribed(fields)?;
                events.push(Event::Ready(self.wish.version.name()));
                Ok(())
            }
            (kind::PUBACK, true) => {
                let (id, code, why) = self.confirmation(&mut fields).map_err(protocol)?;
                if let Some(ticket) = self.unconfirmed.remove(&id) {
                    events
                        .push(Event::Answer { ticket, result: if code < 0x80 { Ok(()) } else { Err(why) } });
                }
                Ok(())
            }
            (kind::PINGRESP, true) => Ok(()),
            (kind::DISCONNECT, true) => {
                let code = fields.byte().unwrap_or_default();
                let found = fields.properties().map_err(protocol)?;
                Err(BrokerError::Ended(text(code, found.reason)))
            }
            _ => Err(protocol(Malformed("a packet is of a kind that a broker does not send"))),
        }
    }

    /// The answer to the connection; the subscription follows.
    fn connected(&mut self, mut fields: Fields<'_>, out: &mut Vec<u8>) -> Result<(), BrokerError> {
        let read = |fields: &mut Fields<'_>| {
            fields.byte()?;
            fields.byte()
        };
        let code = read(&mut fields).map_err(protocol)?;
        // A broker that does not know the version answers in its own (section 3.2.2.2 of 3.1.1).
        if code == reason::UNSUPPORTED_VERSION || code == 1 {
            return Err(BrokerError::Version);
        }
        let found = match self.wish.version {
            MqttVersion::V5 => fields.properties().map_err(protocol)?,
            MqttVersion::V3 => packet::Properties::default(),
        };
        match (self.wish.version, code) {
            (_, 0) => {}
            (MqttVersion::V3, 4 | 5)
            | (_, reason::BAD_USER | reason::NOT_AUTHORIZED | reason::BAD_METHOD) => {
                return Err(BrokerError::Credentials(text(code, found.reason)));
            }
            _ => return Err(BrokerError::Refused(text(code, found.reason))),
        }
        (self.has_no_qos, self.has_no_retain) = (found.has_no_qos, found.has_no_retain);
        // A broker may want to hear from its clients more often (section 3.2.2.3.14); 0 means never.
        if let Some(seconds @ 1..) = found.keep_alive {
            self.ping_every = PING_EVERY.min(Duration::from_secs(seconds.into()) / 2);
        }
        self.is_connected = true;
        let properties: &[u8] = if self.wish.version == MqttVersion::V5 { &[0] } else { &[] };
        // Options 0: QoS 0, retained messages at once, and one's own messages as well.
        let filter = counted(self.wish.filter.as_bytes());
        write(0x82, &[&SUBSCRIBE_ID.to_be_bytes(), properties, &filter, &[0]], out);
        Ok(())
    }

    fn subscribed(&self, mut fields: Fields<'_>) -> Result<(), BrokerError> {
        fields.short().map_err(protocol)?;
        let found = match self.wish.version {
            MqttVersion::V5 => fields.properties().map_err(protocol)?,
            MqttVersion::V3 => packet::Properties::default(),
        };
        let code = fields.byte().map_err(protocol)?;
        if code < reason::FAILURE {
            return Ok(());
        }
        let reason = text(code, found.reason);
        Err(BrokerError::Subscription { filter: self.wish.filter.clone(), reason })
    }

    fn confirmation(&self, fields: &mut Fields<'_>) -> Result<(u16, u8, String), Malformed> {
        let id = fields.short()?;
        if self.wish.version == MqttVersion::V3 || fields.0.is_empty() {
            return Ok((id, 0, String::new()));
        }
        let code = fields.byte()?;
        let found = fields.properties()?;
        Ok((id, code, text(code, found.reason)))
    }

    fn message(&self, head: u8, mut fields: Fields<'_>) -> Result<Event, Malformed> {
        let topic = fields.counted()?;
        if head & 0x06 != 0 {
            return Err(Malformed("a message has a QoS that was not subscribed"));
        }
        if self.wish.version == MqttVersion::V5 && fields.properties()?.has_alias {
            return Err(Malformed("a message has an alias of a topic, which was not allowed"));
        }
        let Ok(key) = str::from_utf8(topic) else { return Ok(Event::BadKey) };
        // A message of no bytes is how a retained one is removed (section 3.3.1.3).
        let payload = Some(fields.0).filter(|payload| !payload.is_empty()).map(<[u8]>::to_vec);
        Ok(Event::Message { key: key.to_owned(), payload })
    }
}

fn protocol(error: Malformed) -> BrokerError {
    BrokerError::Protocol("MQTT", error.to_string())
}

/// A reason for people: the broker's, or else that of the code (section 2.4; 3.2.2.3 of 3.1.1).
fn text(code: u8, said: Option<&str>) -> String {
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        return shown(said);
    }
    let known = match code {
        0x02 | 0x85 => "the client's identifier is not valid",
        0x03 | 0x88 => "the broker is unavailable",
        0x04 | reason::BAD_USER => "bad user or password",
        0x05 | reason::NOT_AUTHORIZED => "not authorized",
        0x89 => "the broker is busy",
        0x8a => "the client is banned",
        0x8b => "the broker shuts down",
        0x8d => "the client was silent for too long",
        0x8e => "another client has taken over the session",
        0x8f => "the filter is not valid",
        0x90 => "the topic is not valid",
        0x95 => "a packet is too large",
        0x97 => "a quota is exceeded",
        0x9c | 0x9d => "another broker has to be used",
        0x9f => "connections come too often",
        0xa2 => "filters with wildcards are not allowed",
        _ => return format!("reason code {code:#04x}"),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests;
