//! A layered stream of more than the bottleneck carries, over Freshwire on TCP.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::Context as _;
use freshwire::sink::CloseMode;
use freshwire::{Ended, Engine, Meta, PushError, RingConfig, Sender, SinkConfig, SinkId, choice};
use freshwire_io::now;
use freshwire_io::tcp::TcpSocket;
use freshwire_record::{Rate, Timestamp};

use super::repeated;
use crate::scenario::wait_until;

/// The layers of Birkedal 2006, section 5.1, in windows of an eighth of a second. A window whose base is lost takes nothing more. With several
/// windows of value at any time the sender then still has something to send.
const LAYERS: u64 = 8;
const WINDOW: Duration = Duration::from_millis(125);

/// For how long a window keeps its value.
const DEADLINE: Duration = Duration::from_secs(1);

/// The share of windows that may come to an empty ring, as after a stall of the machine; with more the sender was not always busy.
const MAX_DRY: f64 = 0.02;

/// The offered rate, as a part of the bottleneck's: three halves, so that even a flow that is alone has to choose.
const OFFERED: (u64, u64) = (3, 2);

/// Time of the bottleneck's rate in a record, and the bounds of its size: a segment of Ethernet, and a block.
const RECORD_TIME: Duration = Duration::from_millis(2);
const RECORD_BYTES: (u64, u64) = (1448, 16 << 10);

/// The ring holds a quarter more than what has value: records in flight, and the next layer.
const SPARE: u64 = 4;

/// How long the engine may take to end the sink.
const CLOSE: Duration = Duration::from_secs(2);

/// A stream whose sender always has something to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layered {
    record_bytes: u64,
    /// Records of a layer of a window.
    per_layer: u64,
    /// Whether the sink bounds the bottleneck's queue, as by default.
    is_bounded: bool,
}

impl Layered {
    /// A stream above the rate of the bottleneck.
    pub(super) fn above(bottleneck: Rate, is_bounded: bool) -> Self {
        let record_bytes = bottleneck.bytes_in(RECORD_TIME).clamp(RECORD_BYTES.0, RECORD_BYTES.1);
        let layer_bytes = bottleneck.bytes_in(WINDOW) * OFFERED.0 / OFFERED.1 / LAYERS;
        Self { record_bytes, per_layer: layer_bytes.div_ceil(record_bytes).max(1), is_bounded }
    }

    fn ring(&self) -> RingConfig {
        let alive = (DEADLINE.as_nanos() / WINDOW.as_nanos()) as u64 * LAYERS * self.per_layer;
        let records = (alive + alive / SPARE) as u32;
        let slots = records.next_power_of_two();
        RingConfig { rings: 1, slots, block_bytes: self.record_bytes as u32, blocks: records }
    }

    /// Sends from `begin` to `end`. Returns the share of bytes that TCP sent again.
    pub(super) fn send(&self, stream: &TcpStream, begin: Timestamp, end: Timestamp) -> anyhow::Result<f64> {
        let socket = TcpSocket::new(stream.try_clone().context("cannot duplicate a socket")?)?;
        let engine = Engine::new()?.spawn()?;
        let mut sender = Sender::new(&self.ring(), &engine.handle())?;
        let mut config = SinkConfig::new(choice::layered(Duration::ZERO));
        if !self.is_bounded {
            config = config.queue_target(None);
        }
        let sink = sender.add_sink(stream.try_clone().context("cannot duplicate a socket")?, config)?;
        let payload = vec![7; self.record_bytes as usize];
        let (mut dry, mut windows) = (0, 0);
        while begin + WINDOW * windows < end {
            wait_until(begin + WINDOW * windows);
            if windows > 0 && sender.waiting(sink.id())? == 0 {
                dry += 1;
            }
            self.push_window(&mut sender, sink.id(), windows, &payload)?;
            windows += 1;
        }
        wait_until(end);
        let lost = repeated::of_tcp(&socket)?;
        let drops: u64 = sink.stats().drops.iter().map(|(_, count)| count).sum();
        let ended = sink.close(CloseMode::Abort, CLOSE);
        anyhow::ensure!(ended == Ended::Closed, "the connection broke: {ended:?}");
        let most_dry = MAX_DRY * f64::from(windows);
        anyhow::ensure!(f64::from(dry) <= most_dry, "the source was empty before {dry} of {windows} windows");
        anyhow::ensure!(drops > 0, "nothing was ever dropped: there was no late choice");
        Ok(lost)
    }

    /// Offers what the ring has room for, the base layer first.
    fn push_window(
        &self,
        sender: &mut Sender,
        sink: SinkId,
        window: u32,
        payload: &[u8],
    ) -> anyhow::Result<()> {
        while sender.poll_fate(sink)?.is_some() {}
        let generated = now();
        for place in 0..LAYERS * self.per_layer {
            let meta = Meta {
                seq: u64::from(window) * LAYERS * self.per_layer + place,
                generated,
                deadline: generated + DEADLINE,
                layer: (place / self.per_layer) as u8,
                group: window,
                ..Meta::default()
            };
            match sender.push(sink, payload, &meta) {
                Ok(_) => {}
                Err(PushError::Full | PushError::OutOfBlocks) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_exceeded_with_room_for_all_that_has_value() {
        for rate in [20_000, 1_000_000, 10_000_000, 100_000_000, 10_000_000_000] {
            let rate = Rate::from_bits_per_sec(rate);
            let stream = Layered::above(rate, true);
            let offered = LAYERS * LAYERS * stream.per_layer * stream.record_bytes;
            assert!(offered * 2 >= rate.bytes_in(Duration::from_secs(1)) * 3 - 200, "{rate}: {offered}");
            let ring = stream.ring();
            let alive = LAYERS * LAYERS * stream.per_layer;
            assert!(u64::from(ring.slots) > alive && u64::from(ring.blocks) > alive, "{rate}: {ring:?}");
        }
    }
}
