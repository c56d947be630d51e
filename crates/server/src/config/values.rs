use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::error::Fault;
use crate::access::LinkKey;

/// A value whose text form has a unit. A bare number is taken as well: what it means, or that it needs a unit, its
/// parser says.
#[derive(Debug)]
pub(super) struct Quantity(String);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number with a unit in quotes, such as \"700ms\"")
            }

            fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A list of texts. A text alone is a list of one.
#[derive(Default)]
pub(super) struct Texts(pub(super) Vec<Spanned<String>>);

/// Either form of [`Texts`], before the place of a text alone is known.
enum Form {
    Text(String),
    List(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = Spanned::<Form>::deserialize(deserializer)?;
        let place = form.span();
        Ok(Self(match form.into_inner() {
            Form::Text(text) => vec![Spanned::new(place, text)],
            Form::List(texts) => texts,
        }))
    }
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Form;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of texts, such as [\"ONE\", \"OTHER\"]")
            }

            fn visit_str<E>(self, text: &str) -> Result<Form, E> {
                Ok(Form::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Form, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Form::List)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Sets `target` if there is a value. It must lie between the two values of `range`, which are written in the same form.
pub(super) fn set<T: PartialOrd, E: fmt::Display>(
    target: &mut T,
    key: &str,
    value: Option<&Spanned<Quantity>>,
    parse: impl Fn(&str) -> Result<T, E>,
    range: (&str, &str),
) -> Result<(), Fault> {
    let Some(value) = value else { return Ok(()) };
    let fault = |message: String| Fault::new(value.span(), format!("{key}: {message}"));
    let read = |text: &str| parse(text).map_err(|error| fault(error.to_string()));
    let text = &value.get_ref().0;
    let (parsed, least, most) = (read(text)?, read(range.0)?, read(range.1)?);
    if parsed < least || parsed > most {
        return Err(fault(format!("{text} is not from {} to {}", range.0, range.1)));
    }
    *target = parsed;
    Ok(())
}

/// Reads a whole number.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number such as 64"))
}

/// Reads an address to listen on: `IP:PORT`, `localhost:PORT`, `:PORT` for all addresses, or `none`.
///
/// # Errors
///
/// If it is none of these.
pub fn parse_listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        return Ok(None);
    }
    let port = |text: &str| text.parse::<u16>().ok();
    let address = if let Some(number) = text.strip_prefix(':') {
        port(number).map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
    } else if let Some(number) = text.strip_prefix("localhost:") {
        port(number).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    } else {
        text.parse().ok()
    };
    address.map(Some).ok_or_else(|| {
        format!(
            "{text:?} is no address to listen on; write 127.0.0.1:8554, [::1]:8554, :8554 for all, or none"
        )
    })
}

/// A shorter secret can be guessed from one link.
const MIN_LINK_SECRET: usize = 16;

/// The key that signs and checks links with this secret.
///
/// # Errors
///
/// If the secret is shorter than 16 characters.
pub fn link_key(secret: &str) -> Result<LinkKey, String> {
    if secret.len() < MIN_LINK_SECRET {
        return Err(format!(
            "a link_secret has at least {MIN_LINK_SECRET} characters; make one with: openssl rand -hex 32"
        ));
    }
    Ok(LinkKey::new(secret))
}

/// Reads a secret from a file: its text without the line's end.
///
/// # Errors
///
/// If the file cannot be read, or is empty.
pub fn secret_from_file(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty; write the secret into it", path.display())),
        secret => Ok(secret.to_owned()),
    }
}
