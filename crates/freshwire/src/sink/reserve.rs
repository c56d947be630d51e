use std::time::Duration;

use freshwire_io::tcp::TcpInfo;
use freshwire_record::Rate;

/// How many bytes may be committed and not on the wire.
///
/// The connection's horizon is at most this plus one segment: a segment is handed over only while less than the reserve
/// is unsent. The reserve counts in whole segments; less than one means that the kernel's queue has to be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserve {
    /// Follows the congestion control and the delivery rate: as small as keeps the connection busy. Loss-based
    /// controls lose nothing with one segment. BBR takes an empty queue for a pause of the application and stops
    /// measuring, so it gets four segments and 10 ms of its rate.
    #[default]
    Auto,
    /// This many bytes, whatever the rate. Zero counts as one.
    Fixed(u32),
}

/// The largest reserve that [`Reserve::Auto`] gives, reached only above about 10 Gbit/s.
pub const MAX_RESERVE: u32 = 4 << 20;

/// Segments and time of the delivery rate in reserve, for controls that need no standing queue and for those that do.
const LOSS_BASED: (u32, Duration) = (0, Duration::from_millis(1));
const MODEL_BASED: (u32, Duration) = (4, Duration::from_millis(10));

impl Reserve {
    /// The reserve in bytes under this congestion control and this delivery rate.
    pub(crate) fn bytes(self, congestion: &str, info: &TcpInfo, rate: Option<Rate>) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes.max(1),
            Self::Auto => {
                let (segments, time) = if congestion.starts_with("bbr") { MODEL_BASED } else { LOSS_BASED };
                let flow = rate.map_or(0, |rate| rate.bytes_in(time));
                let flow_segments = u32::try_from(flow / u64::from(info.mss)).unwrap_or(u32::MAX);
                segments.saturating_add(flow_segments).saturating_mul(info.mss).clamp(1, MAX_RESERVE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_path_has_one_segment_and_bbr_four() {
        let info = TcpInfo { mss: 1448, ..TcpInfo::default() };
        let slow = Some(Rate::from_bits_per_sec(512_000));
        assert_eq!(Reserve::Auto.bytes("cubic", &info, slow), 1);
        assert_eq!(Reserve::Auto.bytes("reno", &info, None), 1);
        assert_eq!(Reserve::Auto.bytes("bbr", &info, slow), 4 * 1448);
        let fast = Some(Rate::from_bits_per_sec(100_000_000));
        assert_eq!(Reserve::Auto.bytes("bbr", &info, fast), (4 + 86) * 1448);
        assert_eq!(Reserve::Auto.bytes("cubic", &info, Some(Rate::from_bits_per_sec(1 << 50))), MAX_RESERVE);
        assert_eq!(Reserve::Fixed(0).bytes("cubic", &info, fast), 1);
    }
}
