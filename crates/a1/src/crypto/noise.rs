use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use zeroize::Zeroizing;

use super::identity::{Psk, PublicKey, StaticKey};
use super::keys::Secrets;
use super::random::Random;

/// The ephemeral key, the encrypted static key and the code of the payload.
const INITIATION_OVERHEAD: usize = 32 + (32 + 16) + 16;

/// The ephemeral key and the code of the payload.
const RESPONSE_OVERHEAD: usize = 32 + 16;

const PROTOCOL: &str = "Noise_IKpsk2_25519_AESGCM_SHA256";

/// Where IKpsk2 mixes in the pre-shared key.
const PSK_POSITION: u8 = 2;

/// Without a pre-shared key both ends mix in this, as WireGuard does.
const NO_PSK: [u8; 32] = [0; 32];

/// A handshake that cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HandshakeError {
    /// The message was not made for this handshake by an end that has the keys, or was changed on its way.
    #[error("the peer has other keys, or the message was changed on its way")]
    Unauthentic,
    /// The payload does not fit a message.
    #[error("the payload of a handshake message is too long")]
    TooLong,
}

/// What an end brings to a handshake.
#[derive(Clone, Copy)]
pub(crate) struct Local<'a> {
    pub(crate) key: &'a StaticKey,
    pub(crate) psk: Option<&'a Psk>,
    /// What both ends know and neither sends inside: a handshake succeeds only if it is the same for both.
    pub(crate) prologue: &'a [u8],
    /// From where the ephemeral key comes; never used twice.
    pub(crate) seed: [u8; 32],
}

/// The side that begins, after its message.
pub(crate) struct Initiator(Box<HandshakeState>);

impl Initiator {
    /// Begins a handshake with the owner of `remote`: appends the message that carries `payload`.
    pub(crate) fn begin(
        local: Local<'_>,
        remote: &PublicKey,
        payload: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<Self, HandshakeError> {
        let mut state = builder(&local)
            .remote_public_key(remote.as_bytes())
            .and_then(Builder::build_initiator)
            .expect("all that the pattern needs is there");
        write(&mut state, payload, INITIATION_OVERHEAD, message)?;
        Ok(Self(Box::new(state)))
    }

    /// Reads the answer and appends its payload. An answer that is not authentic changes nothing: the right one may still
    /// come.
    pub(crate) fn finish(
        &mut self,
        message: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<Secrets, HandshakeError> {
        read(&mut self.0, message, payload)?;
        let (initiators, responders) = split(&mut self.0);
        Ok(Secrets { send: initiators, receive: responders })
    }
}

/// The side that is called, after it has read the initiator's message.
pub(crate) struct Responder(Box<HandshakeState>);

impl Responder {
    /// Reads an initiator's message, appends its payload and gives the initiator's key.
    pub(crate) fn read(
        local: Local<'_>,
        message: &[u8],
        payload: &mut Vec<u8>,
    ) -> Result<(Self, PublicKey), HandshakeError> {
        let mut state = builder(&local).build_responder().expect("all that the pattern needs is there");
        read(&mut state, message, payload)?;
        let initiator: [u8; 32] = state
            .get_remote_static()
            .and_then(|key| key.try_into().ok())
            .expect("the first message of the pattern carries the initiator's key");
        Ok((Self(Box::new(state)), PublicKey::from_bytes(initiator)))
    }

    /// Appends the answer that carries `payload`.
    pub(crate) fn respond(
        mut self,
        payload: &[u8],
        message: &mut Vec<u8>,
    ) -> Result<Secrets, HandshakeError> {
        write(&mut self.0, payload, RESPONSE_OVERHEAD, message)?;
        let (initiators, responders) = split(&mut self.0);
        Ok(Secrets { send: responders, receive: initiators })
    }
}

//= spec/a1.md A1-HS-1
fn builder<'a>(local: &Local<'a>) -> Builder<'a> {
    let params = PROTOCOL.parse().expect("snow knows the protocol");
    Builder::with_resolver(params, Box::new(Resolver(Zeroizing::new(local.seed))))
        .local_private_key(local.key.private())
        .and_then(|builder| builder.psk(PSK_POSITION, local.psk.map_or(&NO_PSK, Psk::as_bytes)))
        .and_then(|builder| builder.prologue(local.prologue))
        .expect("each is given once")
}

fn write(
    state: &mut HandshakeState,
    payload: &[u8],
    overhead: usize,
    message: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let mut buffer = vec![0; payload.len() + overhead];
    let len = state.write_message(payload, &mut buffer).map_err(|_| HandshakeError::TooLong)?;
    buffer.truncate(len);
    message.extend(buffer);
    Ok(())
}

fn read(state: &mut HandshakeState, message: &[u8], payload: &mut Vec<u8>) -> Result<(), HandshakeError> {
    let mut buffer = vec![0; message.len()];
    let len = state.read_message(message, &mut buffer).map_err(|_| HandshakeError::Unauthentic)?;
    buffer.truncate(len);
    payload.extend(buffer);
    Ok(())
}

fn split(state: &mut HandshakeState) -> (Zeroizing<[u8; 32]>, Zeroizing<[u8; 32]>) {
    let (initiators, responders) = state.dangerously_get_raw_split();
    (Zeroizing::new(initiators), Zeroizing::new(responders))
}

/// What `snow` has itself, with our own seeded randomness.
struct Resolver(Zeroizing<[u8; 32]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(Random::from_seed(*self.0)))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl snow::types::Random for Random {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        self.fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ends {
        initiator: StaticKey,
        responder: StaticKey,
        psk: Psk,
    }

    impl Ends {
        fn new() -> Self {
            Self {
                initiator: StaticKey::generate([1; 32]),
                responder: StaticKey::generate([2; 32]),
                psk: Psk::from_bytes([3; 32]),
            }
        }

        fn initiator(&self) -> Local<'_> {
            Local { key: &self.initiator, psk: Some(&self.psk), prologue: b"prologue", seed: [4; 32] }
        }

        fn responder(&self) -> Local<'_> {
            Local { key: &self.responder, seed: [5; 32], ..self.initiator() }
        }

        fn begin(&self, local: Local<'_>) -> (Initiator, Vec<u8>) {
            let mut message = Vec::new();
            let state =
                Initiator::begin(local, &self.responder.public_key(), b"question", &mut message).unwrap();
            (state, message)
        }

        fn read(&self, local: Local<'_>, message: &[u8]) -> Result<(Responder, PublicKey), HandshakeError> {
            let mut payload = Vec::new();
            let read = Responder::read(local, message, &mut payload)?;
            assert_eq!(payload, b"question");
            Ok(read)
        }

        fn answer(&self, message: &[u8]) -> (Secrets, Vec<u8>) {
            let mut answer = Vec::new();
            let (responder, _) = self.read(self.responder(), message).unwrap();
            (responder.respond(b"answer", &mut answer).unwrap(), answer)
        }
    }

    #[test]
    fn both_ends_agree_on_keys_and_carry_payloads() {
        let ends = Ends::new();
        let (mut initiator, message) = ends.begin(ends.initiator());
        let (responder, key) = ends.read(ends.responder(), &message).unwrap();
        assert_eq!(key, ends.initiator.public_key());
        let mut answer = Vec::new();
        let at_responder = responder.respond(b"answer", &mut answer).unwrap();
        let mut payload = Vec::new();
        let at_initiator = initiator.finish(&answer, &mut payload).unwrap();
        assert_eq!(payload, b"answer");
        assert_eq!(at_initiator.send, at_responder.receive);
        assert_eq!(at_initiator.receive, at_responder.send);
        assert_ne!(at_initiator.send, at_initiator.receive);
    }

    #[test]
    fn the_same_seeds_give_the_same_bytes_and_others_do_not() {
        let ends = Ends::new();
        let (_, message) = ends.begin(ends.initiator());
        assert_eq!(ends.begin(ends.initiator()).1, message);
        assert_eq!(ends.answer(&message).1, ends.answer(&message).1);
        assert_ne!(ends.begin(Local { seed: [9; 32], ..ends.initiator() }).1, message);
    }

    #[test]
    fn another_key_psk_or_prologue_is_not_understood() {
        let ends = Ends::new();
        let (_, message) = ends.begin(ends.initiator());
        let stranger = StaticKey::generate([8; 32]);
        for local in
            [Local { key: &stranger, ..ends.responder() }, Local { prologue: b"", ..ends.responder() }]
        {
            assert!(matches!(ends.read(local, &message), Err(HandshakeError::Unauthentic)));
        }
    }

    /// IKpsk2 mixes the secret into the answer: the initiator is the one who notices.
    #[test]
    fn a_wrong_psk_makes_the_answer_unreadable() {
        let ends = Ends::new();
        let (mut initiator, message) = ends.begin(ends.initiator());
        let wrong = Psk::from_bytes([7; 32]);
        for psk in [Some(&wrong), None] {
            let (responder, _) = ends.read(Local { psk, ..ends.responder() }, &message).unwrap();
            let mut answer = Vec::new();
            responder.respond(b"answer", &mut answer).unwrap();
            let read = initiator.finish(&answer, &mut Vec::new());
            assert!(matches!(read, Err(HandshakeError::Unauthentic)));
        }
    }

    #[test]
    fn altered_messages_are_refused_before_the_right_answer() {
        let ends = Ends::new();
        let (mut initiator, message) = ends.begin(ends.initiator());
        let (secrets, answer) = ends.answer(&message);
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 0x40;
            assert!(ends.read(ends.responder(), &changed).is_err(), "byte {at}");
            assert!(ends.read(ends.responder(), &message[..at]).is_err(), "cut at {at}");
        }
        for at in 0..answer.len() {
            let mut changed = answer.clone();
            changed[at] ^= 0x40;
            assert!(initiator.finish(&changed, &mut Vec::new()).is_err(), "byte {at}");
            assert!(initiator.finish(&answer[..at], &mut Vec::new()).is_err(), "cut at {at}");
        }
        assert_eq!(initiator.finish(&answer, &mut Vec::new()).unwrap().send, secrets.receive);
    }

    #[test]
    fn random_bytes_are_no_handshake() {
        let ends = Ends::new();
        bolero::check!().with_iterations(200).for_each(|bytes: &[u8]| {
            assert!(Responder::read(ends.responder(), bytes, &mut Vec::new()).is_err());
        });
    }

    #[test]
    fn a_payload_that_fits_no_message_is_refused() {
        let ends = Ends::new();
        let payload = vec![0; 1 << 16];
        let initiation =
            Initiator::begin(ends.initiator(), &ends.responder.public_key(), &payload, &mut Vec::new());
        assert!(matches!(initiation, Err(HandshakeError::TooLong)));
    }
}
