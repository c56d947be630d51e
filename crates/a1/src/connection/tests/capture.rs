//! Captures that other programs can read, made in virtual time.

use std::net::{IpAddr, SocketAddr};

use freshwire_record::Timestamp;

use super::pair::Sent;

/// A capture in the classic pcap format: IPv4 without a link layer, nanoseconds.
pub(crate) struct Capture {
    bytes: Vec<u8>,
    now: Timestamp,
    /// Bytes of each packet that are kept.
    keeps: usize,
}

impl Capture {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.extend(NANOSECOND_MAGIC.to_le_bytes());
        bytes.extend(2u16.to_le_bytes());
        bytes.extend(4u16.to_le_bytes());
        for number in [0, 0, u32::from(u16::MAX), LINKTYPE_RAW] {
            bytes.extend(number.to_le_bytes());
        }
        Self { bytes, now: Timestamp::ZERO, keeps: usize::MAX }
    }

    /// Keeps this number of payload bytes of each datagram that follows.
    pub(crate) fn keep(&mut self, payload: usize) {
        self.keeps = payload;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a datagram at the time of the one before it.
    pub(crate) fn add(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let nanos = self.now.as_nanos();
        let kept = &payload[..payload.len().min(self.keeps)];
        let [captured, len] = [kept, payload].map(|payload| (IP_HEADER + UDP_HEADER + payload.len()) as u32);
        let (seconds, nanos) = ((nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32);
        for number in [seconds, nanos, captured, len] {
            self.bytes.extend(number.to_le_bytes());
        }
        let [(source, source_port), (target, target_port)] = [from, to].map(|address| match address.ip() {
            IpAddr::V4(ip) => (ip.octets(), address.port()),
            IpAddr::V6(_) => panic!("IPv4 only"),
        });
        self.bytes.extend([0x45, 0]);
        self.bytes.extend((len as u16).to_be_bytes());
        // No fragments, 64 hops, UDP, and no checksums: a card computes them after the capture.
        self.bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        self.bytes.extend(source);
        self.bytes.extend(target);
        self.bytes.extend(source_port.to_be_bytes());
        self.bytes.extend(target_port.to_be_bytes());
        self.bytes.extend(((UDP_HEADER + payload.len()) as u16).to_be_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend(kept);
    }

    /// Adds what two ends have sent.
    pub(crate) fn add_all(&mut self, sent: &[Sent]) {
        for Sent { at, from, to, bytes } in sent {
            self.now = *at;
            self.add(*from, *to, bytes);
        }
    }
}

const NANOSECOND_MAGIC: u32 = 0xa1b2_3c4d;
const LINKTYPE_RAW: u32 = 101;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
