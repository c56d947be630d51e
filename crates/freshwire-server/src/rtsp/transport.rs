//! The header `Transport` (RFC 2326, 12.39), as far as it concerns one sender and one receiver.

/// A way to carry a track that the client can do, in its order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// In the connection, RTP on this channel and RTCP on the next one.
    Interleaved(Option<u8>),
    /// Datagrams to these ports of the client.
    Udp {
        /// For RTP.
        rtp: u16,
        /// For RTCP.
        rtcp: u16,
    },
    /// Datagrams to a group that the server names.
    Multicast,
}

/// The offers that can be met. Encrypted profiles cannot.
pub(super) fn offers(header: &str) -> impl Iterator<Item = Offer> + '_ {
    header.split(',').take(MAX_OFFERS).filter_map(offer)
}

fn offer(text: &str) -> Option<Offer> {
    let mut params = text.split(';').map(str::trim);
    let transport = params.next()?;
    let is = |known: &str| transport.eq_ignore_ascii_case(known);
    let mut channel = None;
    let mut ports = None;
    let mut is_multicast = false;
    for param in params {
        let (name, value) = param.split_once('=').unwrap_or((param, ""));
        if name.eq_ignore_ascii_case("multicast") {
            is_multicast = true;
        } else if name.eq_ignore_ascii_case("interleaved") {
            channel = Some(range(value)?.0);
        } else if name.eq_ignore_ascii_case("client_port") {
            ports = Some(range::<u16>(value)?);
        }
    }
    if is("RTP/AVP/TCP") {
        // The next channel has to exist.
        return Some(Offer::Interleaved(channel.filter(|&channel: &u8| channel < u8::MAX)));
    }
    let is_udp = is("RTP/AVP") || is("RTP/AVP/UDP");
    if is_multicast {
        return is_udp.then_some(Offer::Multicast);
    }
    if is_udp {
        let (rtp, rtcp) = ports?;
        let rtcp = match rtcp {
            Some(rtcp) => rtcp,
            None => rtp.checked_add(1)?,
        };
        return (rtp > 0 && rtcp > 0).then_some(Offer::Udp { rtp, rtcp });
    }
    None
}

/// `4588-4589`, or only the first.
fn range<T: std::str::FromStr>(text: &str) -> Option<(T, Option<T>)> {
    let (first, second) = text.split_once('-').map_or((text, None), |(first, second)| (first, Some(second)));
    let first = first.trim().parse().ok()?;
    match second {
        Some(second) => Some((first, Some(second.trim().parse().ok()?))),
        None => Some((first, None)),
    }
}

const MAX_OFFERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(header: &str) -> Vec<Offer> {
        offers(header).collect()
    }

    #[test]
    fn what_clients_offer() {
        assert_eq!(all("RTP/AVP/TCP;unicast;interleaved=2-3"), [Offer::Interleaved(Some(2))]);
        assert_eq!(all("RTP/AVP/TCP;unicast;interleaved=0-1;mode=record"), [Offer::Interleaved(Some(0))]);
        assert_eq!(all("rtp/avp/tcp"), [Offer::Interleaved(None)]);
        let udp = Offer::Udp { rtp: 4588, rtcp: 4589 };
        assert_eq!(all("RTP/AVP;unicast;client_port=4588-4589;mode=\"PLAY\""), [udp]);
        assert_eq!(all("RTP/AVP/UDP;unicast;client_port=4588"), [udp]);
        let several = "RTP/SAVP;unicast;client_port=1-2,RTP/AVP;multicast, RTP/AVP/TCP;interleaved=0-1";
        assert_eq!(all(several), [Offer::Multicast, Offer::Interleaved(Some(0))]);
        // What ffmpeg and GStreamer ask for.
        assert_eq!(all("RTP/AVP/UDP;multicast"), [Offer::Multicast]);
        assert_eq!(all("RTP/AVP;multicast;destination=224.1.2.3;port=7-8;ttl=9"), [Offer::Multicast]);
    }

    #[test]
    fn what_is_not_met() {
        for header in
            ["", "RTP/AVP", "RTP/AVP;unicast;client_port=x", "RTP/AVP;client_port=65535", "RAW/RAW/UDP"]
        {
            assert_eq!(all(header), [], "{header}");
        }
        assert_eq!(all("RTP/AVP/TCP;interleaved=255"), [Offer::Interleaved(None)]);
        assert_eq!(all("RTP/AVP/TCP;interleaved=256"), []);
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(offers(text).count() <= MAX_OFFERS);
        });
    }
}
