//! Which properties fit which other end. One without effect is refused: with a key that is ignored, a stream looks encrypted.

/// What an element is connected with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The viewers of a server in this process: there is no location.
    Server,
    /// A location `tcp://`.
    Tcp,
    /// A location `a1://`.
    A1,
    /// A location `http://` or `https://`.
    Http,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "a server",
            Self::Tcp => "tcp://",
            Self::A1 => "a1://",
            Self::Http => "http://",
        }
    }
}

/// A property: its name, whether it differs from its default, and the places that it has an effect at.
pub(crate) type Use = (&'static str, bool, &'static [Place]);

/// An error if a property was set that has no effect at this place.
pub(crate) fn check(place: Place, uses: &[Use]) -> Result<(), String> {
    let Some((name, _, fits)) = uses.iter().find(|(_, is_set, fits)| *is_set && !fits.contains(&place))
    else {
        return Ok(());
    };
    let fitting: Vec<&str> = fits.iter().map(|fitting| fitting.name()).collect();
    let fitting = fitting.join(" and ");
    Err(match (place, *fits) {
        (Place::Server, _) => {
            format!("{name} is for a location at {fitting}: set location, or leave {name} out")
        }
        (_, [Place::Server]) => {
            format!("{name} is for the server, which runs without location: leave location or {name} out")
        }
        _ => {
            let scheme = place.name();
            format!("{name} is for {fitting}, and the location is {scheme}: change it, or leave {name} out")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_without_effect_is_named() {
        let uses: &[Use] = &[("codec", false, &[Place::Tcp]), ("psk-file", true, &[Place::A1])];
        assert_eq!(check(Place::A1, uses), Ok(()));
        for (place, words) in [
            (Place::Tcp, "psk-file is for a1://, and the location is tcp://"),
            (Place::Http, "psk-file is for a1://, and the location is http://"),
            (Place::Server, "psk-file is for a location at a1://: set location"),
        ] {
            let refusal = check(place, uses).err().unwrap_or_default();
            assert!(refusal.starts_with(words) && refusal.ends_with("leave psk-file out"), "{refusal}");
        }
        let refusal = check(Place::Tcp, &[("open", true, &[Place::Server])]).err().unwrap_or_default();
        assert!(refusal.contains("leave location or open out"), "{refusal}");
    }
}
