use std::net::SocketAddr;

use freshwire_a1::{Endpoint, EndpointConfig, StaticKey};

use crate::dice::Dice;

/// An endpoint with its address.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    /// The path to a far node.
    pub(crate) path: Option<usize>,
    key: StaticKey,
    number: u8,
    port: u16,
    dice: Dice,
}

impl Node {
    pub(crate) fn new(number: usize, path: Option<usize>, mut dice: Dice) -> Self {
        let key = StaticKey::generate(dice.bytes());
        let endpoint = endpoint(&key, path.is_some(), &mut dice);
        let number = u8::try_from(number).expect("a world has at most 256 nodes");
        Self { endpoint, path, key, number, port: 4000, dice }
    }

    /// Where others reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, self.number], self.port))
    }

    /// A NAT gives it another port.
    pub(crate) fn rebind(&mut self) {
        self.port = self.port.checked_add(1).unwrap_or(4000);
    }

    /// It forgets everything but its key and its address.
    pub(crate) fn restart(&mut self) {
        self.endpoint = endpoint(&self.key, self.path.is_some(), &mut self.dice);
    }
}

fn endpoint(key: &StaticKey, accept: bool, dice: &mut Dice) -> Endpoint {
    Endpoint::new(EndpointConfig::new(key.clone(), dice.bytes()).accept(accept))
}
