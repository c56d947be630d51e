//! Where the ends of a measurement stand.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use freshwire_netns::Namespaces;
use freshwire_record::Rate;

use crate::scenario::TestLink;
use crate::schema::LinkConfig;

/// Rate of the link: what the emulator carries with a processor to spare.
const RATE: u64 = 100_000_000;

/// Bytes that the link's queue holds: 10 ms at its rate.
const QUEUE: u64 = 125_000;

pub(super) enum Place {
    Loopback,
    Link(Box<TestLink>),
}

impl Place {
    /// The emulated link. Call while the process has one thread.
    pub(super) fn link() -> anyhow::Result<Self> {
        let config = LinkConfig::steady(Some(RATE), 0.0, Duration::ZERO, Some(QUEUE), 1);
        Ok(Self::Link(Box::new(TestLink::open(&config)?)))
    }

    /// Makes something at the end that sends.
    pub(super) fn near<T: Send>(
        &self,
        make: impl FnOnce(IpAddr) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        match self {
            Self::Loopback => make(Ipv4Addr::LOCALHOST.into()),
            Self::Link(link) => link.namespaces.in_near(|| make(Namespaces::NEAR_V4.into()))?,
        }
    }

    /// Makes something at the end that receives.
    pub(super) fn far<T: Send>(
        &self,
        make: impl FnOnce(IpAddr) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        match self {
            Self::Loopback => make(Ipv4Addr::LOCALHOST.into()),
            Self::Link(link) => link.namespaces.in_far(|| make(Namespaces::FAR_V4.into()))?,
        }
    }

    /// Its capacity.
    pub(super) fn rate(&self) -> Option<Rate> {
        match self {
            Self::Loopback => None,
            Self::Link(_) => Some(Rate::from_bits_per_sec(RATE)),
        }
    }
}
