//! The address of a camera.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

/// A camera: its address, and what it wants to know of who asks.
///
/// An address is kept as it was written, as cameras expect theirs; a password may have characters that belong escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Camera {
    /// For the system's resolver; an IPv6 address may have a zone.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As requests name it: without user, password and zone.
    pub(crate) url: String,
    pub(crate) credentials: Option<Credentials>,
    /// The password may be sent so that everybody on the way can read it.
    pub(crate) basic: bool,
}

/// A user and a password; never logged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

/// The text is no address of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a URL like rtsp://user:password@camera/path")]
pub struct CameraError;

/// The end of an address whose password may be sent in the clear.
const BASIC: &str = "#basic";

/// The port of RTSP.
const PORT: u16 = 554;

impl Camera {
    /// Reads a URL, which may have a user and a password. They are never logged.
    ///
    /// # Errors
    ///
    /// If it is not a URL of RTSP.
    pub fn parse(url: &str) -> Result<Self, CameraError> {
        let (scheme, rest) = url.split_once("://").ok_or(CameraError)?;
        if !scheme.eq_ignore_ascii_case("rtsp") || rest.chars().any(char::is_control) {
            return Err(CameraError);
        }
        let (rest, basic) = rest.strip_suffix(BASIC).map_or((rest, false), |rest| (rest, true));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(u, p)| (Some(u), p));
        Self::of(user, place, path, basic)
            // A password with a slash or the like in it.
            .or_else(|| {
                let (user, rest) = rest.rsplit_once('@')?;
                let (place, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                Self::of(Some(user), place, path, basic)
            })
            .ok_or(CameraError)
    }

    fn of(user: Option<&str>, place: &str, path: &str, basic: bool) -> Option<Self> {
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                // `%25` is how a zone begins in a URL, `%` how people write it.
                let (address, zone) = host.split_once('%').unwrap_or((host, ""));
                address.parse::<Ipv6Addr>().ok()?;
                let zone = zone.strip_prefix("25").unwrap_or(zone);
                let host = if zone.is_empty() { address.to_owned() } else { format!("{address}%{zone}") };
                (host, port)
            }
            None => {
                let end = place.find(':').unwrap_or(place.len());
                let (host, port) = place.split_at(end);
                (host.to_owned(), port)
            }
        };
        let number = match port {
            "" | ":" => None,
            port => Some(port.strip_prefix(':')?.parse().ok().filter(|&port: &u16| port > 0)?),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '@') {
            return None;
        }
        let path = path.split('#').next().unwrap_or(path);
        let mut url = "rtsp://".to_owned();
        let bare = host.split('%').next().unwrap_or(&host);
        escape(&if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() }, &mut url);
        if let Some(number) = number {
            // Writing to a string does not fail.
            let _ = write!(url, ":{number}");
        }
        escape(path, &mut url);
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let credentials = user.filter(|user| !user.is_empty()).map(|user| {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            Credentials { user: decoded(user), password: decoded(password) }
        });
        Some(Self { host, port: number.unwrap_or(PORT), url, credentials, basic })
    }

    /// Its address for people: without user, password and query, which may hold secrets as well.
    pub fn origin(&self) -> String {
        self.url.split('?').next().unwrap_or(&self.url).to_owned()
    }

    /// Where it says it is. Another host does not get the password.
    pub(crate) fn redirected(&self, location: &str) -> Result<Self, CameraError> {
        let location = location.trim();
        let mut camera = if location.contains("://") {
            Self::parse(location)?
        } else {
            let authority = self.url.get("rtsp://".len()..).unwrap_or_default();
            let authority = authority.split(['/', '?']).next().unwrap_or_default();
            let camera = Self::parse(&format!("rtsp://{authority}/{}", location.trim_start_matches('/')))?;
            Self { host: self.host.clone(), ..camera }
        };
        if camera.host.eq_ignore_ascii_case(&self.host) && camera.credentials.is_none() {
            camera.credentials.clone_from(&self.credentials);
            camera.basic = self.basic;
        }
        Ok(camera)
    }
}

/// Adds what may not stand in a request's line as it is in its escaped form.
fn escape(text: &str, to: &mut String) {
    for character in text.chars() {
        if character.is_ascii_graphic() {
            to.push(character);
        } else {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                let _ = write!(to, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> (String, u16, String, Option<(String, String)>) {
        let camera = Camera::parse(url).expect(url);
        let credentials = camera.credentials.map(|it| (it.user, it.password));
        (camera.host, camera.port, camera.url, credentials)
    }

    fn of(
        host: &str,
        port: u16,
        url: &str,
        user: Option<(&str, &str)>,
    ) -> (String, u16, String, Option<(String, String)>) {
        let user = user.map(|(user, password)| (user.to_owned(), password.to_owned()));
        (host.to_owned(), port, url.to_owned(), user)
    }

    #[test]
    fn the_forms_of_an_address() {
        let cases = [
            ("rtsp://cam", of("cam", 554, "rtsp://cam", None)),
            ("RTSP://cam:8554/live?x=[1]", of("cam", 8554, "rtsp://cam:8554/live?x=[1]", None)),
            ("rtsp://me:p%40%3A%2F%3F%23ss@cam/1", of("cam", 554, "rtsp://cam/1", Some(("me", "p@:/?#ss")))),
            ("rtsp://me:p#s/s?@w@cam:1/a b#x", of("cam", 1, "rtsp://cam:1/a%20b", Some(("me", "p#s/s?@w")))),
            ("rtsp://cam/to:you@home", of("cam", 554, "rtsp://cam/to:you@home", None)),
            (
                "rtsp://[fe80::1%25eth0]:8554/ü",
                of("fe80::1%eth0", 8554, "rtsp://[fe80::1]:8554/%C3%BC", None),
            ),
            ("rtsp://me@[fe80::1%eth0]", of("fe80::1%eth0", 554, "rtsp://[fe80::1]", Some(("me", "")))),
        ];
        for (url, expected) in cases {
            assert_eq!(read(url), expected, "{url}");
        }
    }

    #[test]
    fn invalid_camera_urls_are_refused() {
        for url in [
            "",
            "cam",
            "http://cam/live",
            "rtsp:///live",
            "rtsp://cam:port/",
            "rtsp://[cam]/",
            "rtsp://cam/\n",
        ] {
            assert!(matches!(Camera::parse(url), Err(CameraError)), "{url}");
        }
    }

    #[test]
    fn secrets_stay_secret() {
        let camera = Camera::parse("rtsp://me:sesame@cam:8554/live?token=x").unwrap();
        assert_eq!(camera.origin(), "rtsp://cam:8554/live");
        assert!(!format!("{camera:?}").contains("sesame"));
        assert!(!camera.basic && Camera::parse("rtsp://me:x@cam/1#basic").unwrap().basic);
    }

    #[test]
    fn another_host_does_not_get_the_password() {
        let camera = Camera::parse("rtsp://me:x@cam:8554/live#basic").unwrap();
        let moved = camera.redirected("rtsp://cam:9000/other").unwrap();
        assert!(moved.credentials.is_some() && moved.basic && moved.port == 9000);
        let moved = camera.redirected("/other?a=b").unwrap();
        assert_eq!((moved.url.as_str(), moved.credentials.is_some()), ("rtsp://cam:8554/other?a=b", true));
        let moved = camera.redirected("rtsp://elsewhere/live").unwrap();
        assert!(moved.credentials.is_none() && !moved.basic);
        assert!(camera.redirected("http://cam/").is_err());
    }

    #[test]
    fn any_text() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(camera) = Camera::parse(&format!("rtsp://{text}")) {
                assert!(camera.url.bytes().all(|byte| byte.is_ascii_graphic()), "{}", camera.url);
                let _ = camera.redirected(text);
            }
        });
    }
}
