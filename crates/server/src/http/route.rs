use hyper::Uri;
use percent_encoding::percent_decode_str;

/// The destination of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The list of streams.
    Index,
    /// A script or a style of the pages.
    Asset(String),
    /// The player of a stream.
    Player(String),
    /// A stream as fragmented MP4 in WebSocket.
    Socket(String),
    /// A stream as the body of an answer.
    Body(String, Container),
    /// A stream's values by key.
    Values(String, Exchange),
}

/// An exchange of a stream's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// A page shows them.
    Page,
    /// WebSocket messages for a watcher.
    Messages,
    /// Server-sent events for a watcher.
    Events,
    /// WebSocket messages of a publisher.
    Push,
}

impl Exchange {
    /// The end of the path.
    const SUFFIXES: [(&'static str, Self); 4] = [
        ("/watch", Self::Page),
        ("/values", Self::Messages),
        ("/events", Self::Events),
        ("/push", Self::Push),
    ];
}

/// The form of a stream that is the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    /// MPEG-TS.
    Ts,
    /// Fragmented MP4.
    Mp4,
    /// Freshwire's own chunks.
    Freshwire,
}

impl Container {
    /// The end of the path.
    const SUFFIXES: [(&'static str, Self); 3] =
        [(".ts", Self::Ts), (".mp4", Self::Mp4), (".fw", Self::Freshwire)];
}

impl Route {
    /// `None` if the path is no UTF-8, or says no stream.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?;
        let path = path.strip_prefix('/')?;
        if path.is_empty() {
            return Some(Self::Index);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        if let Some(asset) = path.strip_prefix("_/") {
            return Some(Self::Asset(asset.to_owned()));
        }
        let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        if let Some(name) = path.strip_suffix("/ws") {
            return named(name).map(Self::Socket);
        }
        for (suffix, exchange) in Exchange::SUFFIXES {
            if let Some(name) = path.strip_suffix(suffix) {
                return named(name).map(|name| Self::Values(name, exchange));
            }
        }
        for (suffix, container) in Container::SUFFIXES {
            if let Some(name) = path.strip_suffix(suffix) {
                return named(name).map(|name| Self::Body(name, container));
            }
        }
        named(path).map(Self::Player)
    }

    /// The stream that it shows.
    pub(super) fn stream(&self) -> Option<&str> {
        match self {
            Self::Index | Self::Asset(_) => None,
            Self::Player(name) | Self::Socket(name) | Self::Body(name, _) | Self::Values(name, _) => {
                Some(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::check_published_name;

    fn route(path: &str) -> Option<Route> {
        Route::of(&path.parse().unwrap())
    }

    #[test]
    fn paths_lead_where_the_module_says() {
        let name = || "cam".to_owned();
        assert_eq!(route("/"), Some(Route::Index));
        assert_eq!(route("/_/player.js"), Some(Route::Asset("player.js".to_owned())));
        assert_eq!(route("/cam"), Some(Route::Player(name())));
        assert_eq!(route("/cam/?token=x"), Some(Route::Player(name())));
        assert_eq!(route("/cam/ws"), Some(Route::Socket(name())));
        assert_eq!(route("/cam/events"), Some(Route::Values(name(), Exchange::Events)));
        assert_eq!(route("/cam/watch/"), Some(Route::Values(name(), Exchange::Page)));
        assert_eq!(route("/cam.ts?x"), Some(Route::Body(name(), Container::Ts)));
        assert_eq!(route("/cam.mp4"), Some(Route::Body(name(), Container::Mp4)));
        assert_eq!(route("/cam.fw"), Some(Route::Body(name(), Container::Freshwire)));
        assert_eq!(route("http://host/cam.fw"), Some(Route::Body(name(), Container::Freshwire)));
        assert_eq!(route("/live/d%C3%A9p%C3%B4t/ws"), Some(Route::Socket("live/dépôt".to_owned())));
    }

    #[test]
    fn a_path_without_a_stream_has_no_route() {
        for path in ["//", "//ws", "//values", "/.ts", "/%ff", "*"] {
            assert_eq!(route(path), None, "{path}");
        }
    }

    /// The rule of names knows all that distinguishes paths.
    #[test]
    fn a_name_that_may_be_published_leads_to_its_page() {
        use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
        let is_own = |name: &str| {
            let path = format!("/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
            assert_eq!(route(&path), Some(Route::Player(name.to_owned())), "{name}");
        };
        let parts = ["live", "ws", "push", "_", "a.ts", ".mp4", "fw", "..", "\u{e4} b", ""];
        for first in parts {
            for second in parts {
                for name in [format!("{first}/{second}"), format!("{first}.{second}"), first.to_owned()] {
                    if check_published_name(&name).is_ok() {
                        is_own(&name);
                    }
                }
            }
        }
        bolero::check!().with_type::<String>().for_each(|name| {
            if check_published_name(name).is_ok() {
                is_own(name);
            }
        });
    }

    #[test]
    fn any_path_is_a_route_or_none() {
        bolero::check!().with_type::<String>().for_each(|path| {
            if let Ok(uri) = path.parse::<Uri>()
                && let Some(route) = Route::of(&uri)
            {
                assert!(route.stream().is_none_or(|name| !name.is_empty()));
            }
        });
    }
}
