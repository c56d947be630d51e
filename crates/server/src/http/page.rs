//! The web pages. They come with the program and use nothing from elsewhere.

use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use hyper::{StatusCode, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::reply::{self, Reply};
use super::requester::Requester;
use crate::hub::Stream;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, type and content of what the pages refer to below `/_/`.
const ASSETS: [(&str, &str, &str); 13] = [
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("index.js", SCRIPT, include_str!("page/index.js")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("clock.js", SCRIPT, include_str!("page/clock.js")),
    ("durations.js", SCRIPT, include_str!("page/durations.js")),
    ("feed.js", SCRIPT, include_str!("page/feed.js")),
    ("mp4.js", SCRIPT, include_str!("page/mp4.js")),
    ("peer.js", SCRIPT, include_str!("page/peer.js")),
    ("player.js", SCRIPT, include_str!("page/player.js")),
    ("watch.js", SCRIPT, include_str!("page/watch.js")),
    ("watch-worker.js", SCRIPT, include_str!("page/watch-worker.js")),
    ("charts.js", SCRIPT, include_str!("page/charts.js")),
];

const INDEX: &str = include_str!("page/index.html");
const PLAYER: &str = include_str!("page/player.html");
const WATCH: &str = include_str!("page/watch.html");

/// Everything in a path's segment but what it may have unescaped (RFC 3986); `/` stays, it is part of names.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A script or a style.
pub(super) fn asset(name: &str) -> Option<Reply> {
    let (_, content_type, content) = ASSETS.into_iter().find(|(asset, ..)| *asset == name)?;
    Some(reply::of(StatusCode::OK, content_type, content))
}

/// The player of a stream. `webrtc`: the server has it.
pub(super) fn player(name: &str, uri: &Uri, webrtc: bool) -> Reply {
    of_stream(&PLAYER.replace("{{webrtc}}", if webrtc { "on" } else { "off" }), name, uri)
}

/// The page that shows the values of a stream.
pub(super) fn watch(name: &str, uri: &Uri) -> Reply {
    of_stream(WATCH, name, uri)
}

fn of_stream(page: &str, name: &str, uri: &Uri) -> Reply {
    let path = utf8_percent_encode(name, IN_PATH);
    let page = page
        .replace("{{root}}", &root(uri))
        .replace("{{path}}", &Escaped(path).to_string())
        .replace("{{name}}", &Escaped(name).to_string());
    reply::of(StatusCode::OK, HTML, page)
}

/// Where the list of streams is, as seen from the page at this address. Pages refer to everything from there, because a proxy may
/// show them below a path that the server does not know.
fn root(uri: &Uri) -> String {
    match uri.path().matches('/').count() {
        0 | 1 => "./".to_owned(),
        depth => "../".repeat(depth - 1),
    }
}

/// The list of streams, with the addresses under which others play them. A signed link's query stays in them. `keys` says how
/// many keys a stream of values has; `None` for others.
pub(super) fn index(
    streams: &[Arc<Stream>],
    keys: impl Fn(&str) -> Option<usize>,
    host: &str,
    requester: &Requester,
    query: Option<&str>,
) -> Reply {
    let mut list = String::new();
    for stream in streams {
        let entry = Entry { stream, keys: keys(stream.name()), host, requester, query };
        // Writing to a string does not fail.
        let _ = write!(list, "{entry}");
    }
    if list.is_empty() {
        list.push_str(
            "<p class=\"empty\">No stream yet. Publish one, or start the server with a source.</p>",
        );
    }
    reply::of(StatusCode::OK, HTML, INDEX.replace("{{root}}", "./").replace("{{streams}}", &list))
}

/// One stream of the list.
struct Entry<'a> {
    stream: &'a Stream,
    keys: Option<usize>,
    host: &'a str,
    requester: &'a Requester,
    query: Option<&'a str>,
}

impl Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.stream.name();
        let path = utf8_percent_encode(name, IN_PATH).to_string();
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        let is_live = self.stream.snapshot().origin.is_some();
        let has_values = self.keys > Some(0);
        let (class, state) = match (is_live, has_values) {
            (true, _) => ("live", "live"),
            (false, true) => ("live", "values"),
            (false, false) => ("away", "no source"),
        };
        write!(
            f,
            "<li><div class=\"head\"><a class=\"name\" href=\"./{0}{1}\">{2}</a>\
             <span class=\"state {class}\">{state}</span></div><dl>",
            Escaped(if !is_live && has_values { format!("{path}/watch") } else { path.clone() }),
            Escaped(&query),
            Escaped(name)
        )?;
        let host = self.host;
        let scheme = |secure, port: Option<u16>, plain| {
            port.map(|port| (secure, format!("{plain}://{host}:{port}/{path}{query}")))
        };
        let site = &self.requester.site;
        let rtsp =
            [scheme("RTSP", site.rtsp_port, "rtsp"), scheme("RTSP over TLS", site.rtsps_port, "rtsps")];
        for (label, url) in rtsp.into_iter().flatten() {
            write_address(f, label, &url, "")?;
        }
        // The page knows under which address it was reached; its script puts that in front.
        for (label, suffix) in [("MPEG-TS", "ts"), ("MP4", "mp4")] {
            write_address(f, label, &format!("./{path}.{suffix}{query}"), " data-here")?;
        }
        if self.keys.is_some() {
            write_address(f, "Values", &format!("./{path}/watch{query}"), " data-here")?;
        }
        f.write_str("</dl></li>")
    }
}

fn write_address(f: &mut fmt::Formatter<'_>, label: &str, url: &str, mark: &str) -> fmt::Result {
    let url = Escaped(url);
    write!(
        f,
        "<dt>{label}</dt><dd><code{mark}>{url}</code>\
         <button type=\"button\" class=\"copy\" aria-label=\"Copy the {label} address\">Copy</button></dd>"
    )
}

/// Text as it is written in HTML, also within quotes.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.to_string().chars() {
            match char {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_becomes_markup() {
        assert_eq!(Escaped("<a href='x\">&").to_string(), "&lt;a href=&#39;x&quot;&gt;&amp;");
        assert_eq!(utf8_percent_encode("a/b c?d#é", IN_PATH).to_string(), "a/b%20c%3Fd%23%C3%A9");
    }

    #[test]
    fn pages_refer_only_to_assets_that_exist() {
        for page in [INDEX, PLAYER, WATCH].into_iter().chain(ASSETS.map(|(_, _, content)| content)) {
            assert!(!page.contains("https://") && !page.contains("//cdn"), "nothing from elsewhere");
            let is_absolute = page.contains("\"/_/") || page.contains("=\"/");
            assert!(!is_absolute, "a proxy may show the pages below a path");
        }
        let mut references = 0;
        for (begin, texts) in [
            ("\"{{root}}_/", [INDEX, PLAYER, WATCH].to_vec()),
            ("\"./", ASSETS.map(|(_, _, content)| content).to_vec()),
        ] {
            for reference in texts.iter().flat_map(|text| text.split(begin).skip(1)) {
                let name = reference.split('"').next().unwrap_or_default();
                assert!(asset(name).is_some(), "{name}");
                references += 1;
            }
        }
        assert!(references > 15, "{references}");
    }

    #[test]
    fn a_page_knows_where_the_list_of_streams_is() {
        for (path, expected) in
            [("/", "./"), ("/live", "./"), ("/live/", "../"), ("/a/b/watch?x=/", "../../"), ("/a%2Fb", "./")]
        {
            assert_eq!(root(&path.parse().unwrap()), expected, "{path}");
        }
    }
}
