//! Whose pages may play (RFC 6454): those that come from this server, as the browser sees it, and those that are trusted.

use hyper::{HeaderMap, header};

use super::requester::text_of;
use crate::config::{Origin, Origins, host_and_port, is_usual};

impl Origins {
    /// The site of a page that may play only because it is trusted; `None` for programs and for the server's own pages.
    pub(super) fn trusted(&self, headers: &HeaderMap) -> Option<Origin> {
        let origin = Origin::parse(headers.get(header::ORIGIN)?.to_str().ok()?)?;
        (self.contain(&origin) && !is_own(&origin, headers)).then_some(origin)
    }

    /// The origin of the page that asks, if it is one of these sites.
    pub(super) fn trusted_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a header::HeaderValue> {
        let value = headers.get(header::ORIGIN)?;
        let origin = value.to_str().ok().and_then(Origin::parse)?;
        self.contain(&origin).then_some(value)
    }

    /// Whether the page that asks may play. Programs that are no browsers say no origin.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else { return true };
        let Some(origin) = origin.to_str().ok().and_then(Origin::parse) else { return false };
        self.contain(&origin) || is_own(&origin, headers)
    }
}

/// Whether a page of this origin comes from here: from the host that the request names, or from the one that a proxy says it
/// was asked for. A page cannot say the latter: browsers set no such header in a WebSocket's request.
fn is_own(origin: &Origin, headers: &HeaderMap) -> bool {
    let forwarded = headers.get_all(FORWARDED_HOST).iter().filter_map(|value| value.to_str().ok());
    let forwarded = forwarded.flat_map(|value| value.split(',')).chain(forwarded_hosts(headers));
    let proxied = PROXIES.iter().any(|name| headers.contains_key(*name));
    let own = text_of(headers, &header::HOST).into_iter().chain(forwarded);
    own.filter_map(|host| host_and_port(host.trim())).any(|(host, port)| {
        // Proxies are often configured to leave the port out.
        host == origin.host && port.map_or(proxied || is_usual(origin), |port| port == origin.port)
    })
}

/// `host=` in the header `Forwarded` (RFC 7239).
fn forwarded_hosts(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all("forwarded").iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split([',', ';'])).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("host").then(|| value.trim().trim_matches('"'))
    })
}

const FORWARDED_HOST: &str = "x-forwarded-host";
/// Headers of requests that came through a proxy.
const PROXIES: [&str; 4] = [FORWARDED_HOST, "x-forwarded-proto", "x-forwarded-for", "forwarded"];

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let mut origins = Origins::default();
        origins.trust("https://Portal.example/").unwrap();
        origins.allow(&map)
    }

    #[test]
    fn the_usual_port_may_be_left_out() {
        let own = |origin, host| allowed(&[("origin", origin), ("host", host)]);
        assert!(own("https://ide.example", "ide.example:443"));
        assert!(own("http://cam.example", "Cam.Example:80"));
        assert!(own("http://cam.example:80", "cam.example"));
        assert!(own("https://cam.example", "cam.example"), "behind a proxy that speaks TLS");
        assert!(own("http://[::1]:8080", "[::1]:8080") && own("http://[::1]", "[::1]:80"));
        assert!(!own("http://cam.example:8080", "cam.example"));
        assert!(
            !own("http://cam.example", "cam.example:8080") && !own("https://cam.example", "cam.example:80")
        );
        assert!(!own("http://evil.example", "cam.example") && !own("null", "cam.example"));
        assert!(!own("ftp://cam.example", "cam.example"));
        assert!(allowed(&[("host", "cam.example")]));
    }

    #[test]
    fn a_proxy_says_which_host_was_asked_for() {
        let own =
            |origin, name, value| allowed(&[("origin", origin), ("host", "127.0.0.1:8080"), (name, value)]);
        assert!(own("https://cam.example", FORWARDED_HOST, "cam.example"));
        assert!(own("https://cam.example:8443", FORWARDED_HOST, "cam.example, 10.0.0.1:80"));
        assert!(own("https://cam.example", "forwarded", "for=1.2.3.4;host=\"cam.example\";proto=https"));
        assert!(own("http://127.0.0.1:8080", "x-forwarded-for", "1.2.3.4"));
        assert!(!own("https://evil.example", FORWARDED_HOST, "cam.example"));
        assert!(!own("https://cam.example", "x-forwarded-for", "cam.example"));
    }

    #[test]
    fn other_sites_may_be_trusted() {
        let from = |origin| allowed(&[("origin", origin), ("host", "127.0.0.1:8080")]);
        assert!(from("https://portal.example") && from("https://portal.example:443"));
        assert!(!from("http://portal.example") && !from("https://portal.example:444"));
        for wrong in
            ["portal.example", "https://", "https://a/b", "https://a:b", "*", "https://*", "https://a;b", ""]
        {
            assert!(Origins::default().trust(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_header_is_answered() {
        bolero::check!().with_type::<[String; 3]>().for_each(|[origin, host, forwarded]| {
            let mut map = HeaderMap::new();
            for (name, value) in [("origin", origin), ("host", host), ("forwarded", forwarded)] {
                if let Ok(value) = value.parse() {
                    map.insert(name, value);
                }
            }
            let _ = Origins::default().allow(&map);
        });
    }
}
