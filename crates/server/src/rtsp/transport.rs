//! The header `Transport` (RFC 2326, 12.39), as far as it concerns one sender and one receiver.

use std::net::{IpAddr, SocketAddr};

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

/// The RTP profile of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Profile {
    /// RFC 3551.
    Avp,
    /// With early feedback (RFC 4585): the client may request lost packets.
    Avpf,
}

impl Profile {
    /// Its name in the header, without the lower transport.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Avp => "RTP/AVP",
            Self::Avpf => "RTP/AVPF",
        }
    }
}

/// The header in the answer to SETUP for a track that goes to a multicast group.
pub(super) fn multicast(profile: Profile, group: SocketAddr, source: IpAddr, ttl: u8) -> String {
    let (profile, address, port) = (profile.name(), group.ip(), group.port());
    let reports = port + 1;
    format!("{profile};multicast;destination={address};source={source};port={port}-{reports};ttl={ttl}")
}

/// The offers that can be met. Encrypted profiles cannot.
pub(super) fn offers(header: &str) -> impl Iterator<Item = (Profile, Offer)> + '_ {
    header.split(',').take(MAX_OFFERS).filter_map(offer)
}

fn offer(text: &str) -> Option<(Profile, Offer)> {
    let mut params = text.split(';').map(str::trim);
    let (profile, lower) = profile(params.next()?)?;
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
    if lower.eq_ignore_ascii_case("/TCP") {
        // The next channel has to exist.
        let channel = channel.filter(|&channel: &u8| channel < u8::MAX);
        return Some((profile, Offer::Interleaved(channel)));
    }
    let is_udp = lower.is_empty() || lower.eq_ignore_ascii_case("/UDP");
    if is_multicast {
        return is_udp.then_some((profile, Offer::Multicast));
    }
    if is_udp {
        let (rtp, rtcp) = ports?;
        let rtcp = match rtcp {
            Some(rtcp) => rtcp,
            None => rtp.checked_add(1)?,
        };
        return (rtp > 0 && rtcp > 0).then_some((profile, Offer::Udp { rtp, rtcp }));
    }
    None
}

/// Parts the profile from the lower transport behind it.
fn profile(transport: &str) -> Option<(Profile, &str)> {
    [Profile::Avpf, Profile::Avp].into_iter().find_map(|profile| {
        let (name, lower) = transport.split_at_checked(profile.name().len())?;
        let is_whole = lower.is_empty() || lower.starts_with('/');
        (is_whole && name.eq_ignore_ascii_case(profile.name())).then_some((profile, lower))
    })
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
        let of_avp = |(profile, offer)| (profile == Profile::Avp).then_some(offer);
        offers(header).filter_map(of_avp).collect()
    }

    #[test]
    fn offers_with_feedback_are_distinguished_from_others() {
        // GStreamer's header.
        let header = "RTP/AVPF;unicast;client_port=5000-5001,RTP/AVPF/TCP;unicast;interleaved=0-1,rtp/avpf;multicast,\
                      RTP/AVP;unicast;client_port=5002-5003,RTP/AVPFX;unicast;client_port=1-2,RTP/SAVPF;client_port=1-2";
        let expected = [
            (Profile::Avpf, Offer::Udp { rtp: 5000, rtcp: 5001 }),
            (Profile::Avpf, Offer::Interleaved(Some(0))),
            (Profile::Avpf, Offer::Multicast),
            (Profile::Avp, Offer::Udp { rtp: 5002, rtcp: 5003 }),
        ];
        assert_eq!(offers(header).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn offers_of_clients_are_parsed() {
        assert_eq!(all("RTP/AVP/TCP;unicast;interleaved=2-3"), [Offer::Interleaved(Some(2))]);
        assert_eq!(all("RTP/AVP/TCP;unicast;interleaved=0-1;mode=record"), [Offer::Interleaved(Some(0))]);
        assert_eq!(all("rtp/avp/tcp"), [Offer::Interleaved(None)]);
        let udp = Offer::Udp { rtp: 4588, rtcp: 4589 };
        assert_eq!(all("RTP/AVP;unicast;client_port=4588-4589;mode=\"PLAY\""), [udp]);
        assert_eq!(all("RTP/AVP/UDP;unicast;client_port=4588"), [udp]);
        let several = "RTP/SAVP;unicast;client_port=1-2,RTP/AVP;multicast, RTP/AVP/TCP;interleaved=0-1";
        assert_eq!(all(several), [Offer::Multicast, Offer::Interleaved(Some(0))]);
        // The headers of ffmpeg and GStreamer.
        assert_eq!(all("RTP/AVP/UDP;multicast"), [Offer::Multicast]);
        assert_eq!(all("RTP/AVP;multicast;destination=224.1.2.3;port=7-8;ttl=9"), [Offer::Multicast]);
    }

    #[test]
    fn unsupported_offers_are_left_out() {
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
