//! A viewer of sound, whose encoder takes the processor that pictures leave.

use std::f32::consts::PI;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Samples that an encoder turns into coefficients at a time: 20 ms of speech at 8 kHz, and the block before it.
const BLOCK: usize = 160;
const WINDOW: usize = 2 * BLOCK;

/// Nice value: two encoders weigh 272 each, beside the 1,024 of the thread that sends pictures. So pictures get 65 % of the processor if
/// they want it: the load of the camera that sends as fast as it can (66 %, table 4.4).
pub(super) const NICE: i32 = 6;

/// An encoder of the kind of AAC and Opus: the coefficients of a modified discrete cosine transform.
struct Encoder {
    window: Vec<f32>,
    samples: Vec<f32>,
}

impl Encoder {
    fn new(tone: f32) -> Self {
        let window = (0..WINDOW).map(|n| (PI * (n as f32 + 0.5) / WINDOW as f32).sin()).collect();
        let samples = (0..WINDOW).map(|n| (n as f32 * tone).sin()).collect();
        Self { window, samples }
    }

    /// The next block: a byte for each coefficient.
    fn encode(&mut self, block: &mut [u8; BLOCK]) {
        self.samples.rotate_left(BLOCK);
        for (frequency, out) in block.iter_mut().enumerate() {
            let step = PI / BLOCK as f32 * (frequency as f32 + 0.5);
            let shift = 0.5 + BLOCK as f32 / 2.0;
            let terms = self.samples.iter().zip(&self.window).enumerate();
            let sum: f32 =
                terms.map(|(n, (sample, window))| sample * window * (step * (n as f32 + shift)).cos()).sum();
            *out = (sum.clamp(-8.0, 7.9) * 16.0) as i8 as u8;
        }
    }
}

/// Encodes until `stop`, and sends the newest block each `interval`. Returns blocks encoded, and blocks sent.
pub(super) fn run(
    socket: &UdpSocket,
    tone: f32,
    interval: Duration,
    stop: &AtomicBool,
) -> io::Result<(u64, u64)> {
    let mut encoder = Encoder::new(tone);
    let mut block = [0; BLOCK];
    let (mut encoded, mut sent) = (0, 0);
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        encoder.encode(&mut block);
        encoded += 1;
        if Instant::now() >= due {
            socket.send(&block)?;
            sent += 1;
            due += interval;
        }
    }
    Ok((encoded, sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_is_found_at_its_frequency() {
        let mut block = [0; BLOCK];
        Encoder::new(PI / BLOCK as f32 * 40.5).encode(&mut block);
        let strength = |at: usize| i32::from(block[at] as i8).abs();
        let loudest = (0..BLOCK).max_by_key(|&at| strength(at)).unwrap();
        assert!((38..=42).contains(&loudest), "{loudest}");
        assert!(strength(loudest) > 4 * strength(100), "{block:?}");
    }
}
