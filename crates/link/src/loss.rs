use crate::direction::Direction;

/// How the wire loses packets. All shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Each packet is lost independently.
    Random {
        /// Share of packets lost.
        share: f64,
    },
    /// Packets are lost in runs whose lengths are geometrically distributed (the Gilbert model).
    Burst {
        /// Share of packets lost over a long time, below 1.
        share: f64,
        /// Mean length of a run of lost packets, at least 1.
        mean_packets: f64,
    },
    /// Two states with a loss each (the Gilbert-Elliott model). The state may change after each packet.
    GilbertElliott {
        /// Probability of changing from the good state to the bad one (p).
        to_bad: f64,
        /// Probability of changing from the bad state to the good one (r).
        to_good: f64,
        /// Share lost in the good state (1 - k).
        loss_good: f64,
        /// Share lost in the bad state (1 - h).
        loss_bad: f64,
    },
}

impl Loss {
    /// Share of packets lost over a long time.
    pub fn average(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Random { share } | Self::Burst { share, .. } => share,
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let bad = if to_bad > 0.0 { to_bad / (to_bad + to_good) } else { 0.0 };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }

    /// The same thing as two states, or `None` if it is no probability or cannot be reached.
    fn chain(&self) -> Option<Chain> {
        let chain = match *self {
            Self::None => Chain { to_bad: 0.0, to_good: 1.0, loss_good: 0.0, loss_bad: 0.0 },
            Self::Random { share } => Chain { to_bad: 0.0, to_good: 1.0, loss_good: share, loss_bad: share },
            Self::Burst { share, mean_packets } => {
                let to_good = 1.0 / mean_packets;
                Chain { to_bad: to_good * share / (1.0 - share), to_good, loss_good: 0.0, loss_bad: 1.0 }
            }
            Self::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                Chain { to_bad, to_good, loss_good, loss_bad }
            }
        };
        let all = [chain.to_bad, chain.to_good, chain.loss_good, chain.loss_bad];
        all.iter().all(|share| (0.0..=1.0).contains(share)).then_some(chain)
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.chain().is_some()
    }
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    to_bad: f64,
    to_good: f64,
    loss_good: f64,
    loss_bad: f64,
}

/// The loss of one direction, asked once for each packet in turn.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    chain: Chain,
    key: u64,
    bad: bool,
    packet: u64,
}

impl LossProcess {
    /// An invalid `loss` loses nothing; the configuration's builder has refused it before.
    pub(crate) fn new(loss: Loss, seed: u64, direction: Direction) -> Self {
        let none = Chain { to_bad: 0.0, to_good: 1.0, loss_good: 0.0, loss_bad: 0.0 };
        let chain = loss.chain().unwrap_or(none);
        let key = mix(mix(seed).wrapping_add(direction as u64));
        let stationary = if chain.to_bad > 0.0 { chain.to_bad / (chain.to_bad + chain.to_good) } else { 0.0 };
        Self { chain, key, bad: draw(key, Purpose::Start, 0) < stationary, packet: 0 }
    }

    pub(crate) fn next_is_lost(&mut self) -> bool {
        let share = if self.bad { self.chain.loss_bad } else { self.chain.loss_good };
        let lost = draw(self.key, Purpose::Loss, self.packet) < share;
        let change = if self.bad { self.chain.to_good } else { self.chain.to_bad };
        self.bad ^= draw(self.key, Purpose::Change, self.packet) < change;
        self.packet += 1;
        lost
    }

    /// Whether the packet that was last asked about is late, of which a share is.
    pub(crate) fn is_late(&self, share: f64) -> bool {
        draw(self.key, Purpose::Late, self.packet.wrapping_sub(1)) < share
    }
}

/// Keeps the draws of one packet independent of each other.
#[derive(Clone, Copy)]
enum Purpose {
    Start = 1,
    Loss = 2,
    Change = 3,
    Late = 4,
}

/// Uniform in [0, 1), a function of its arguments alone.
fn draw(key: u64, purpose: Purpose, packet: u64) -> f64 {
    let bits = mix(mix(key ^ purpose as u64).wrapping_add(packet.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 200_000;

    fn lost(loss: Loss, seed: u64, direction: Direction) -> Vec<bool> {
        let mut process = LossProcess::new(loss, seed, direction);
        (0..PACKETS).map(|_| process.next_is_lost()).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn splitmix_reference() {
        // First output of the published generator with seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn random_loss_is_within_four_standard_errors() {
        for expected in [0.001, 0.01, 0.05, 0.5] {
            for seed in 0..5 {
                let measured = share(&lost(Loss::Random { share: expected }, seed, Direction::Up));
                let error = (expected * (1.0 - expected) / f64::from(PACKETS)).sqrt();
                assert!((measured - expected).abs() < 4.0 * error, "{expected} {seed}: {measured}");
            }
        }
        assert_eq!(share(&lost(Loss::None, 1, Direction::Up)), 0.0);
        assert_eq!(share(&lost(Loss::Random { share: 1.0 }, 1, Direction::Up)), 1.0);
    }

    #[test]
    fn bursts_have_their_mean_length() {
        let lost = lost(Loss::Burst { share: 0.05, mean_packets: 4.0 }, 3, Direction::Down);
        let runs = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let mean = lost.iter().filter(|&&lost| lost).count() as f64 / runs;
        assert!((share(&lost) - 0.05).abs() < 0.005, "{}", share(&lost));
        assert!((mean - 4.0).abs() < 0.3, "{mean}");
    }

    #[test]
    fn directions_and_seeds_differ_and_repeat() {
        let loss = Loss::Random { share: 0.5 };
        let first = lost(loss, 7, Direction::Up);
        assert_eq!(first, lost(loss, 7, Direction::Up));
        for other in [lost(loss, 7, Direction::Down), lost(loss, 8, Direction::Up)] {
            let equal = first.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!((f64::from(PACKETS) / 2.0 - equal as f64).abs() < 1000.0, "{equal}");
        }
    }

    #[test]
    fn impossible_losses_are_refused() {
        for loss in [
            Loss::Random { share: 1.1 },
            Loss::Random { share: f64::NAN },
            Loss::Burst { share: 0.9, mean_packets: 1.0 },
            Loss::Burst { share: 0.1, mean_packets: 0.5 },
            Loss::Burst { share: 1.0, mean_packets: 5.0 },
        ] {
            assert!(!loss.is_valid(), "{loss:?}");
        }
    }
}
