use std::net::SocketAddr;

use freshwire_a1::{Endpoint, EndpointConfig, StaticKey};

use crate::rng::Rng;

/// An endpoint with its address.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    /// The path to a far node.
    pub(crate) path: Option<usize>,
    key: StaticKey,
    number: u8,
    port: u16,
    rng: Rng,
}

impl Node {
    pub(crate) fn new(number: usize, path: Option<usize>, mut rng: Rng) -> Self {
        let key = StaticKey::generate(rng.bytes());
        let endpoint = endpoint(&key, path.is_some(), &mut rng);
        let number = u8::try_from(number).expect("a world has at most 256 nodes");
        Self { endpoint, path, key, number, port: 4000, rng }
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
        self.endpoint = endpoint(&self.key, self.path.is_some(), &mut self.rng);
    }
}

fn endpoint(key: &StaticKey, accept: bool, rng: &mut Rng) -> Endpoint {
    Endpoint::new(EndpointConfig::new(key.clone()).accept(accept), rng.bytes())
}
