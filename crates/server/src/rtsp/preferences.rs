//! What the query of a viewer's address asks for.

use std::time::Duration;

use freshwire_media::framing::interleaved::{MAX_PACKET_BYTES, MIN_PACKET_BYTES};
use freshwire_record::parse_size;
use percent_encoding::percent_decode_str;

use super::reply::Reply;
use super::target::Target;
use crate::hub::ViewRequest;

/// What an address asks for besides the renditions; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    /// How old a unit may be when it arrives.
    pub(super) latency: Option<Duration>,
    /// The largest RTP packet, its header included.
    pub(super) packet_bytes: Option<usize>,
}

impl Preferences {
    /// The preferences of an address; an answer if one of them cannot be met.
    pub(super) fn of(target: &Target) -> Result<Self, Reply> {
        let query = target.query.as_deref();
        let latency = ViewRequest::latency_asked(query)
            .map_err(|error| Reply::refuse(400, format!("Bad Request: {error}")))?;
        Ok(Self { latency, packet_bytes: packet_bytes(query.unwrap_or_default())? })
    }

    /// These, and those of `before` where these say nothing.
    pub(super) fn or(self, before: Self) -> Self {
        Self {
            latency: self.latency.or(before.latency),
            packet_bytes: self.packet_bytes.or(before.packet_bytes),
        }
    }
}

fn packet_bytes(query: &str) -> Result<Option<usize>, Reply> {
    let Some(value) = query.split('&').find_map(|pair| pair.strip_prefix("packet=")) else {
        return Ok(None);
    };
    let value = percent_decode_str(value).decode_utf8_lossy();
    let bytes = parse_size(&value).ok().and_then(|bytes| usize::try_from(bytes).ok());
    if let Some(bytes) = bytes.filter(|bytes| (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(bytes)) {
        return Ok(Some(bytes));
    }
    let value: String = value.chars().take(MOST_QUOTED).collect();
    Err(Reply::refuse(
        400,
        format!(
            "Bad Request: packet={value} is not a size from {MIN_PACKET_BYTES} to {MAX_PACKET_BYTES} bytes"
        ),
    ))
}

/// Characters of an invalid value that come back in the answer.
const MOST_QUOTED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<Preferences, String> {
        let target = Target::parse(&format!("rtsp://h/cam?{query}")).expect(query);
        Preferences::of(&target).map_err(|refusal| refusal.reason().to_owned())
    }

    #[test]
    fn an_address_names_the_largest_packet() {
        let packet = |query| of(query).map(|preferences| preferences.packet_bytes);
        for (query, bytes) in [
            ("packet=1400", 1400),
            ("sig=ab&packet=8KiB&latency=1s", 8192),
            ("packet=256B", 256),
            ("packet=65000", 65_000),
            ("packet=65%30%30%30", 65_000),
        ] {
            assert_eq!(packet(query), Ok(Some(bytes)), "{query}");
        }
        for query in ["", "max-packet=1", "packets=1", "packet"] {
            assert_eq!(packet(query), Ok(None), "{query}");
        }
        for query in ["packet=", "packet=255", "packet=65001", "packet=-1", "packet=1e99", "packet=1GB"] {
            let refusal = packet(query).expect_err(query);
            assert!(refusal.contains(" is not a size from 256 to 65000 bytes"), "{refusal}");
        }
    }

    #[test]
    fn later_preferences_have_precedence() {
        let [first, second] = ["latency=1s&packet=300", "packet=400"].map(|query| of(query).expect(query));
        let both = Preferences { latency: Some(Duration::from_secs(1)), packet_bytes: Some(400) };
        assert_eq!((second.or(first), first.or(second)), (both, first));
    }
}
