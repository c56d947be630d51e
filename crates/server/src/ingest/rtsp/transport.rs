//! The header `Transport` of an answer to SETUP, as cameras write it.

/// The transport that a camera has agreed to, as far as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AgreedTransport {
    /// The channel of RTP in the connection; RTCP has the next one.
    pub(super) channel: Option<u8>,
    /// The ports that the camera sends RTP and RTCP from.
    pub(super) ports: Option<(u16, u16)>,
    /// It wants datagrams, whatever it was asked for.
    pub(super) is_udp: bool,
}

impl AgreedTransport {
    /// Reads a header. Unknown parameters are skipped.
    pub(super) fn parse(header: &str) -> Self {
        let mut agreed = Self::default();
        let mut words = header.split(',').next().unwrap_or_default().split(';').map(str::trim);
        let protocol = words.next().unwrap_or_default();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let (first, second) = value.split_once('-').unwrap_or((value, ""));
            let name = name.trim();
            if name.eq_ignore_ascii_case("interleaved") {
                // The next channel has to exist.
                agreed.channel = first.trim().parse().ok().filter(|&channel| channel < u8::MAX);
            } else if name.eq_ignore_ascii_case("server_port") {
                let rtp = first.trim().parse().ok().filter(|&port: &u16| port > 0);
                agreed.ports = rtp.and_then(|rtp| {
                    let rtcp = second.trim().parse().ok().filter(|&port: &u16| port > 0);
                    Some((rtp, rtcp.or(rtp.checked_add(1))?))
                });
            } else if name.eq_ignore_ascii_case("client_port") {
                agreed.is_udp = true;
            }
        }
        let says_tcp = protocol.to_ascii_uppercase().ends_with("/TCP") || agreed.channel.is_some();
        agreed.is_udp = !says_tcp && (agreed.is_udp || agreed.ports.is_some());
        agreed
    }
}

/// The addresses by which a track may be asked for, the likeliest first. `base` is that of the whole presentation.
pub(super) fn addresses(base: &str, control: Option<&str>) -> Vec<String> {
    let control = control.map(str::trim).unwrap_or_default();
    if control.is_empty() || control == "*" {
        return vec![base.to_owned()];
    }
    if control.contains("://") {
        return vec![clean(control)];
    }
    let control = clean(control);
    // Most cameras want the control behind everything, also behind a query, whatever RFC 3986 says.
    let joined = format!("{}/{}", base.trim_end_matches('/'), control.trim_start_matches('/'));
    let mut addresses = vec![joined];
    if let Some((path, query)) = base.split_once('?') {
        addresses.push(format!("{}/{control}?{query}", path.trim_end_matches('/')));
    }
    if control.starts_with('/')
        && let Some((scheme, rest)) = base.split_once("://")
    {
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        addresses.push(format!("{scheme}://{host}{control}"));
    }
    addresses
}

/// Without what would end a request's line.
pub(super) fn clean(address: &str) -> String {
    address.trim().chars().filter(char::is_ascii_graphic).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_of_cameras_are_parsed() {
        let channel = |header: &str| AgreedTransport::parse(header).channel;
        assert_eq!(channel("RTP/AVP/TCP;unicast;interleaved=8-9;ssrc=11223344"), Some(8));
        assert_eq!(channel("RTP/AVP/TCP;ssrc=0x6f7c;interleaved=1"), Some(1));
        assert_eq!(channel("RTP/AVP/TCP; unicast; interleaved = 2 - 3 ; mode=\"PLAY\""), Some(2));
        assert_eq!(channel("RTP/AVP/TCP;unicast"), None);
        assert_eq!(channel("RTP/AVP/TCP;interleaved=255-256"), None);
        let udp = AgreedTransport::parse("RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971");
        assert_eq!((udp.is_udp, udp.ports), (true, Some((6970, 6971))));
        assert_eq!(
            AgreedTransport::parse("RTP/AVP;unicast;client_port=5000;server_port=6970").ports,
            Some((6970, 6971))
        );
        // It says the protocol wrong and means the connection.
        assert!(!AgreedTransport::parse("RTP/AVP;unicast;interleaved=0-1").is_udp);
        assert_eq!(AgreedTransport::parse(""), AgreedTransport::default());
    }

    #[test]
    fn tracks_are_requested_at_their_control_address() {
        let first = |base: &str, control: &str| addresses(base, Some(control)).remove(0);
        assert_eq!(first("rtsp://cam/1/", "trackID=1"), "rtsp://cam/1/trackID=1");
        assert_eq!(first("rtsp://cam/1", "trackID=1"), "rtsp://cam/1/trackID=1");
        assert_eq!(first("rtsp://cam/1", "rtsp://10.0.0.1/x?a=b"), "rtsp://10.0.0.1/x?a=b");
        assert_eq!(first("rtsp://cam/1", "*"), "rtsp://cam/1");
        assert_eq!(addresses("rtsp://cam/1", None), ["rtsp://cam/1"]);
        let both = ["rtsp://cam/1?x=2/track1", "rtsp://cam/1/track1?x=2"];
        assert_eq!(addresses("rtsp://cam/1?x=2", Some("track1")), both);
        let both = ["rtsp://cam:1/1/a/track1", "rtsp://cam:1/a/track1"];
        assert_eq!(addresses("rtsp://cam:1/1/", Some("/a/track1")), both);
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<(String, String)>().for_each(|(header, control)| {
            let agreed = AgreedTransport::parse(header);
            assert!(agreed.channel.is_none_or(|channel| channel < u8::MAX));
            for address in addresses("rtsp://cam/1?x", Some(control)) {
                assert!(address.bytes().all(|byte| byte.is_ascii_graphic()), "{address}");
            }
        });
    }
}
