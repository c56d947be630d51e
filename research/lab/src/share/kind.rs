//! The kinds of flows, by their names.

use crate::scheme;

/// What a flow's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// `a1`, `a1-cubic`, `a1-newreno`.
    A1,
    /// `freshwire-CONTROL`, or `freshwire-unbounded-CONTROL` without the bound on the bottleneck's queue.
    Freshwire {
        /// The kernel's name of the congestion control.
        congestion: &'a str,
        /// Whether the sink bounds the bottleneck's queue, as by default.
        is_bounded: bool,
    },
    /// `send()` into a socket, named for its congestion control.
    Tcp,
}

impl<'a> Kind<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        if scheme::is_a1(name) {
            return Self::A1;
        }
        let Some(rest) = name.strip_prefix(scheme::FRESHWIRE).and_then(|rest| rest.strip_prefix('-')) else {
            return Self::Tcp;
        };
        match rest.strip_prefix("unbounded-") {
            Some(congestion) => Self::Freshwire { congestion, is_bounded: false },
            None => Self::Freshwire { congestion: rest, is_bounded: true },
        }
    }
}

/// The same flows with plain TCP in the place of all others. A1 without a control of TCP has the place of the first plain flow's kind.
/// `None` if there are plain flows only, or if nothing says which control to take.
pub(super) fn in_place(flows: &[String]) -> Option<Vec<String>> {
    let plain = flows.iter().find(|name| Kind::of(name) == Kind::Tcp);
    let replaced = flows.iter().map(|name| match Kind::of(name) {
        Kind::Tcp => Some(name.clone()),
        Kind::Freshwire { congestion, .. } => Some(congestion.to_owned()),
        Kind::A1 => match name.as_str() {
            scheme::A1_CUBIC => Some("cubic".to_owned()),
            scheme::A1_NEWRENO => Some("reno".to_owned()),
            _ => plain.cloned(),
        },
    });
    replaced.collect::<Option<Vec<_>>>().filter(|replaced| replaced != flows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(text: &str) -> Vec<String> {
        text.split('+').map(str::to_owned).collect()
    }

    #[test]
    fn a_name_says_what_carries_the_flow() {
        let freshwire = |congestion, is_bounded| Kind::Freshwire { congestion, is_bounded };
        for (name, kind) in [
            ("a1-newreno", Kind::A1),
            ("freshwire-bbr", freshwire("bbr", true)),
            ("freshwire-unbounded-cubic", freshwire("cubic", false)),
            ("cubic", Kind::Tcp),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn plain_tcp_takes_the_place_of_the_others() {
        for (scene, expected) in [
            ("freshwire-cubic+bbr", Some("cubic+bbr")),
            ("freshwire-unbounded-bbr+freshwire-reno+cubic", Some("bbr+reno+cubic")),
            ("a1+bbr", Some("bbr+bbr")),
            ("a1-newreno+a1-cubic+bbr", Some("reno+cubic+bbr")),
            ("a1+a1", None),
            ("cubic+bbr", None),
        ] {
            assert_eq!(in_place(&flows(scene)), expected.map(flows), "{scene}");
        }
    }
}
