//! Addresses as URIs, for `playbin`, `uridecodebin` and whatever else makes elements by URI.
//!
//! ```text
//! a1://HOST:PORT?peer-key=KEY                 the other end of an A1 connection
//! freshwire://[USER:PASSWORD@]HOST[:PORT]/NAME    a stream of a server
//! ```
//!
//! Behind a question mark are properties of the element, by their names. Others go to the server, such as those of a signed link.

use gst::glib;
use gst::prelude::*;

/// The schemes of both elements.
pub(crate) const SCHEMES: &[&str] = &["a1", "freshwire"];

/// The port of a server's pages and streams, as the command's.
const HTTP_PORT: u16 = 8080;

/// What a URI says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    pub(crate) target: Target,
    /// Names and values, as they are: no value of a property here needs to be escaped.
    properties: Vec<(String, String)>,
}

/// Where a URI leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The location of an A1 node.
    A1(String),
    /// A stream of a server: `[USER:PASSWORD@]HOST:PORT`, and its name.
    Stream(String, String),
}

impl Uri {
    /// Reads it.
    pub(crate) fn parse(text: &str) -> Result<Self, glib::Error> {
        let wrong = |why: &str| {
            let forms = "write a1://HOST:PORT?peer-key=KEY or freshwire://HOST:PORT/NAME";
            Err(error(gst::URIError::BadUri, &format!("URI {:?}: {why}; {forms}", shown(text))))
        };
        if has_hidden_user(text) {
            return wrong(
                "an @ behind a question mark is written %40, and a question mark in a password %3F",
            );
        }
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let Some((scheme, address)) = address.split_once("://") else { return wrong("it has no scheme") };
        let target = match scheme {
            "a1" => Target::A1(format!("a1://{}", address.trim_end_matches('/'))),
            "freshwire" => match address.split_once('/') {
                Some((server, name)) if !name.is_empty() => {
                    Target::Stream(with_port(server), name.strip_suffix(".fw").unwrap_or(name).to_owned())
                }
                _ => return wrong("the stream's name is missing"),
            },
            _ => return wrong("its scheme is not known here"),
        };
        let mut properties = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return wrong(&format!("{pair:?} is not PROPERTY=VALUE"));
            };
            properties.push((name.to_owned(), value.to_owned()));
        }
        Ok(Self { target, properties })
    }

    /// Takes out what is not among these properties: the query of the server's own, with its question mark.
    pub(crate) fn take_query(&mut self, allowed: &[&str]) -> String {
        let is_ours = |(name, _): &(String, String)| allowed.contains(&name.as_str());
        let (ours, theirs): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.properties).into_iter().partition(is_ours);
        self.properties = ours;
        let pairs: Vec<String> = theirs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    /// Sets the properties of an element, all or none. Others than `allowed` are refused: a URI may come from a list that
    /// somebody else has written.
    pub(crate) fn set_properties(
        &self,
        element: &impl IsA<gst::Element>,
        allowed: &[&str],
    ) -> Result<(), glib::Error> {
        let mut values = Vec::new();
        for (name, text) in &self.properties {
            let spec = element.find_property(name).filter(|_| allowed.contains(&name.as_str()));
            let Some(spec) = spec else {
                let words = format!("a URI cannot have {name}: {} can be in it", allowed.join(", "));
                return Err(error(gst::URIError::BadUri, &words));
            };
            let value = glib::Value::deserialize(text, spec.value_type()).ok();
            let Some(value) = value else {
                return Err(error(
                    gst::URIError::BadUri,
                    &format!("{name}={text}: {name} has no such value"),
                ));
            };
            values.push((name, value));
        }
        for (name, value) in values {
            element.set_property_from_value(name, &value);
        }
        Ok(())
    }
}

/// Refuses a new URI while the element is in use.
pub(crate) fn check_state(element: &impl IsA<gst::Element>) -> Result<(), glib::Error> {
    match element.current_state() > gst::State::Ready {
        true => Err(error(
            gst::URIError::BadState,
            "the URI can change in READY and NULL only: stop the element first",
        )),
        false => Ok(()),
    }
}

/// An address as it may be shown: without the user and the password, and without the query, which may be the proof of a signed link.
pub(crate) fn shown(address: &str) -> String {
    let is_scheme =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), address),
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A question mark in a password looks like the begin of a query.
    let host = if query.contains('@') { "" } else { place.rsplit('@').next().unwrap_or_default() };
    format!("{scheme}{host}")
}

/// Whether something behind the question mark may be a part of a user's password: then nobody knows where the host begins.
pub(crate) fn has_hidden_user(address: &str) -> bool {
    address.split_once('?').is_some_and(|(_, query)| query.contains('@'))
}

fn with_port(server: &str) -> String {
    let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { server.to_owned() } else { format!("{server}:{HTTP_PORT}") }
}

fn error(kind: gst::URIError, words: &str) -> glib::Error {
    glib::Error::new(kind, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let target = |text| Uri::parse(text).map(|uri| uri.target).map_err(|error| error.to_string());
        let stream = |server: &str, name: &str| Ok(Target::Stream(server.to_owned(), name.to_owned()));
        assert_eq!(target("a1://viewer:5000/?peer-key=ab"), Ok(Target::A1("a1://viewer:5000".to_owned())));
        assert_eq!(target("freshwire://host/live"), stream("host:8080", "live"));
        assert_eq!(target("freshwire://u:p@[::1]/live.fw"), stream("u:p@[::1]:8080", "live"));
        assert_eq!(target("freshwire://u:p@host:81/a/b?latency=5"), stream("u:p@host:81", "a/b"));
        let mut uri = Uri::parse("freshwire://h/a?codec=h264&token=%30&until=7").unwrap();
        assert_eq!(uri.take_query(&["codec", "latency"]), "?token=%30&until=7");
        assert_eq!(uri.properties, [("codec".to_owned(), "h264".to_owned())]);
        assert_eq!(uri.take_query(&["codec"]), "");
        for (wrong, why) in [
            ("viewer", "no scheme"),
            ("http://viewer/live", "not known"),
            ("freshwire://viewer", "name is missing"),
            ("freshwire://viewer/", "name is missing"),
            ("a1://viewer:1?latency", "not PROPERTY=VALUE"),
            ("freshwire://anna:a?b@viewer/live", "a question mark in a password %3F"),
        ] {
            let words = target(wrong).err().unwrap_or_default();
            assert!(words.contains(why) && words.contains("write a1://"), "{wrong}: {words}");
        }
    }

    #[test]
    fn no_user_and_no_query_is_shown() {
        for (address, wanted) in [
            ("http://host:1/live?a=b", "http://host:1/live"),
            ("http://anna:sesame@host:1/live", "http://host:1/live"),
            ("anna:sesame@host", "host"),
            ("anna:ses/ame@host/x", "host/x"),
            ("anna:se://same@host", "host"),
            ("rtsp://anna:s@same@host/x", "rtsp://host/x"),
            ("http://anna:s?same@host/x", "http://"),
            ("anna:s?same@host/x", ""),
            ("anna:sesame@", ""),
            ("host:1", "host:1"),
        ] {
            assert_eq!(shown(address), wanted, "{address}");
        }
    }
}
