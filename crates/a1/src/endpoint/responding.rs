//! The side that is called.

use aws_lc_rs::digest::{SHA256, digest};
use freshwire_record::Timestamp;

use crate::config::{ConnectionConfig, Limits};
use crate::connection::{Connection, Setup};
use crate::crypto::{Keys, Local, Protection, PublicKey, Responder};
use crate::key_log::Ids;
use crate::wire::{Cursor, Packet, Parameters, VERSION};

use super::agreement::{Answer, parameters, prologue};
use super::datagram::InitiationPacket;
use super::table::{Entry, Initiation, Open, PendingRequest, Response, State};
use super::{
    ConnectError, ConnectionHandle, Datagram, Endpoint, EndpointEvent, Incoming, Refusal, WrongHandle,
};

/// An initiator whose handshake message was decrypted.
struct Caller {
    noise: Responder,
    key: PublicKey,
    peer: Parameters,
    protection: Protection,
}

impl Endpoint {
    /// Accepts an initiator, with its requested quality of service narrowed to the maximum of `config`. The connection
    /// can send at once; [`EndpointEvent::Connected`] follows when the initiator is heard of.
    ///
    /// # Errors
    /// If the initiator does not wait any more: it was answered already, or it waited for too long.
    //= spec/a1.md A1-SEC-1
    pub fn accept(
        &mut self,
        now: Timestamp,
        handle: ConnectionHandle,
        config: ConnectionConfig,
    ) -> Result<(), WrongHandle> {
        let (noise, initiation, peer, came) = self.take_asked(handle)?;
        let protection = Protection::from_code(peer.protection)
            .map_or(config.protection, |asked| asked.min(config.protection));
        let qos = peer.qos.mirrored().within(&config.maximum);
        let reset = self.resets.token(handle.id, initiation.from.address.ip());
        let local = parameters(&config, protection, qos, reset);
        let mut payload = Vec::new();
        Answer::Accepted(handle.id, local).put(&mut payload);
        let mut message = Vec::new();
        let secrets =
            noise.respond(&payload, &mut message).expect("parameters are shorter than a message may be");
        if let Some(log) = &self.config.key_log {
            let ids = Ids { initiator: initiation.id, responder: handle.id };
            log.write(ids, false, protection, &secrets);
        }
        let keys = Keys::new(protection, &secrets);
        let setup = Setup {
            epoch: came,
            remote: initiation.from,
            peer_id: initiation.id,
            keys,
            local,
            peer,
            qos,
            is_initiator: false,
            config,
            seed: self.random.bytes(),
            pool: self.pool.clone(),
        };
        let response = self.respond(now, handle, initiation, &message);
        self.table.open(handle, Open { connection: Connection::new(now, setup), response: Some(response) });
        self.table.queue(handle);
        Ok(())
    }

    /// Refuses an initiator, and sends it the reason. Its handle is void from now on.
    ///
    /// # Errors
    /// If the initiator does not wait any more: it was answered already, or it waited for too long.
    pub fn refuse(
        &mut self,
        now: Timestamp,
        handle: ConnectionHandle,
        refusal: Refusal,
    ) -> Result<(), WrongHandle> {
        let (noise, initiation, _, _) = self.take_asked(handle)?;
        // It waits for nothing any more, so it takes no place of those who do.
        self.half_open.remove(handle);
        let Limits { half_open, half_open_per_address, .. } = self.config.limits;
        while let Some(first) =
            self.refused.first_to_go(initiation.from.address, half_open, half_open_per_address)
        {
            self.remove(first);
        }
        self.refused.insert(handle, initiation.from.address);
        let (mut payload, mut message) = (Vec::new(), Vec::new());
        Answer::Refused(refusal).put(&mut payload);
        noise.respond(&payload, &mut message).expect("a refusal is shorter than a message may be");
        let response = self.respond(now, handle, initiation, &message);
        // It is kept for a while, for when its packet is lost.
        if let Some(entry) = self.table.get_mut(handle) {
            entry.state = State::Refused(Box::new(response));
        }
        self.table.set_timer(handle.id);
        self.stats.refused += 1;
        Ok(())
    }

    fn take_asked(
        &mut self,
        handle: ConnectionHandle,
    ) -> Result<(Responder, Initiation, Parameters, Timestamp), WrongHandle> {
        match self.table.get_mut(handle) {
            Some(Entry { state: State::PendingRequest(asked), initiation: Some(initiation), .. }) => {
                let noise = asked.noise.take().ok_or(WrongHandle)?;
                Ok((noise, *initiation, asked.peer, asked.came))
            }
            _ => Err(WrongHandle),
        }
    }

    //= spec/a1.md A1-HS-2
    pub(super) fn on_initiation(
        &mut self,
        now: Timestamp,
        datagram: &Datagram<'_>,
        call: InitiationPacket<'_>,
    ) {
        if !self.config.accept {
            self.stats.unknown += 1;
        } else if call.version != VERSION {
            self.send_limited(now, datagram, &Packet::Version { to: call.from, version: VERSION });
        } else if call.cookie.is_empty() {
            self.send_cookie(now, datagram, call.from);
        } else if !self.cookies.is_valid(now, datagram.from.address, call.from, call.cookie) {
            self.stats.wrong_cookies += 1;
            self.send_cookie(now, datagram, call.from);
        } else {
            self.on_proven_initiation(now, datagram, call);
        }
    }

    fn send_cookie(&mut self, now: Timestamp, datagram: &Datagram<'_>, to: u32) {
        let cookie = self.cookies.issue(now, datagram.from.address, to);
        if self.send_limited(now, datagram, &Packet::Retry { to, cookie: &cookie }) {
            self.stats.retries += 1;
        }
    }

    /// Sends a packet to an address that proves nothing; false if there were too many of them lately.
    //= spec/a1.md A1-HS-3
    fn send_limited(&mut self, now: Timestamp, datagram: &Datagram<'_>, packet: &Packet<'_>) -> bool {
        if !self.retries.take(now) {
            self.stats.over_limit += 1;
            return false;
        }
        let mut bytes = Vec::new();
        packet.put(&mut bytes);
        self.send(datagram.from, datagram.to, bytes);
        true
    }

    /// The initiator receives at its address.
    //= spec/a1.md A1-HS-8
    fn on_proven_initiation(&mut self, now: Timestamp, datagram: &Datagram<'_>, call: InitiationPacket<'_>) {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, call.noise).as_ref());
        let initiation = Initiation { from: datagram.from, id: call.from, digest: sum };
        if let Some(handle) = self.initiators.get(&sum).copied() {
            return self.respond_again(now, handle, initiation);
        }
        if !self.responses.take(now) {
            self.stats.over_limit += 1;
            return;
        }
        match self.understand(call) {
            Some(caller) => self.on_caller(now, datagram, initiation, caller),
            None => self.stats.unauthentic += 1,
        }
    }

    /// An initiation that came before: the response may have been lost.
    //= spec/a1.md A1-HS-5
    fn respond_again(&mut self, now: Timestamp, handle: ConnectionHandle, initiation: Initiation) {
        let Some(entry) = self.table.get(handle) else { return };
        let response = match &entry.state {
            State::Refused(response) => Some(&**response),
            State::Open(open) => open.response.as_ref(),
            State::PendingRequest(_) | State::Initiating(_) => None,
        };
        let Some(response) = response else { return };
        let (bytes, local) = (response.bytes.clone(), entry.local);
        if self.retries.take(now) {
            self.send(initiation.from, local, bytes);
        } else {
            self.stats.over_limit += 1;
        }
    }

    //= spec/a1.md A1-HS-10
    fn understand(&mut self, call: InitiationPacket<'_>) -> Option<Caller> {
        let local = Local {
            key: &self.config.key,
            psk: self.config.psk.as_ref(),
            prologue: &prologue(call.from, call.cookie),
            seed: self.random.bytes(),
        };
        let mut payload = Vec::new();
        let (noise, key) = Responder::read(local, call.noise, &mut payload).ok()?;
        let peer = Parameters::read(&mut Cursor::new(&payload)).ok()?;
        Some(Caller { noise, key, protection: Protection::from_code(peer.protection)?, peer })
    }

    fn on_caller(&mut self, now: Timestamp, datagram: &Datagram<'_>, initiation: Initiation, caller: Caller) {
        let Caller { noise, key, peer, protection } = caller;
        let refusal = if self.config.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&key)) {
            Some(Refusal::new(Refusal::NOT_ALLOWED, "the key is not on the list"))
        } else if self.table.len() - self.refused.len() >= self.config.limits.connections {
            Some(Refusal::new(Refusal::BUSY, "too many connections"))
        } else {
            None
        };
        let handle = self.table.reserve(&mut self.random, self.config.shard);
        let Limits { half_open, half_open_per_address, .. } = self.config.limits;
        while let Some(first) =
            self.half_open.first_to_go(initiation.from.address, half_open, half_open_per_address)
        {
            self.stats.over_limit += 1;
            self.fail(first, ConnectError::NotCompleted);
        }
        self.half_open.insert(handle, initiation.from.address);
        self.initiators.insert(initiation.digest, handle);
        let expires = now + self.config.limits.handshake_time;
        let asked = PendingRequest { noise: Some(noise), peer, came: now, expires };
        self.table.insert_theirs(handle, initiation, asked, datagram.to);
        if let Some(refusal) = refusal {
            return self.refuse(now, handle, refusal).expect("it was put there to wait");
        }
        self.events.push_back(EndpointEvent::Incoming(Incoming {
            handle,
            from: initiation.from,
            key,
            protection,
            qos: peer.qos.mirrored(),
            maximum: peer.maximum.mirrored(),
        }));
    }

    fn respond(
        &mut self,
        now: Timestamp,
        handle: ConnectionHandle,
        initiation: Initiation,
        message: &[u8],
    ) -> Response {
        let mut bytes = Vec::new();
        Packet::Response { to: initiation.id, from: handle.id, noise: message }.put(&mut bytes);
        let local = self.table.get(handle).and_then(|entry| entry.local);
        self.send(initiation.from, local, bytes.clone());
        Response { bytes, expires: now + self.config.limits.handshake_time }
    }
}
