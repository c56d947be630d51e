//! `freshwire sign`: links that let anybody in until they expire.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use freshwire_record::parse_duration;
use freshwire_server::access::{LinkKey, Right};
use freshwire_server::client::without_user;
use freshwire_server::config::split_rendition;
use freshwire_server::config::{check_stream_name, link_key, secret_from_file};

use crate::output::print;

#[derive(Args)]
pub(crate) struct SignArgs {
    /// The stream's address, such as rtsp://HOST:8554/live, or its name.
    #[arg(value_name = "URL")]
    target: String,
    /// How long the link is valid from now on.
    #[arg(long = "for", value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
    valid_for: Duration,
    /// The stream's name, where the address has more than that: a proxy's path in front, or a key behind.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// What it lets do.
    #[arg(long, value_enum, default_value_t = Allow::View)]
    allow: Allow,
    /// The file with the server's link_secret; without it the environment's FRESHWIRE_LINK_SECRET.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Allow {
    View,
    Publish,
    /// Send values to the broker of the stream.
    Broker,
}

/// The variable with the secret of links, which `serve` reads too.
pub(crate) const VARIABLE: &str = "FRESHWIRE_LINK_SECRET";

pub(crate) fn run(args: &SignArgs) -> anyhow::Result<ExitCode> {
    let secret = match &args.secret_file {
        Some(path) => secret_from_file(path).map_err(|error| anyhow!(error))?,
        None => std::env::var(VARIABLE)
            .with_context(|| format!("no secret: give --secret-file FILE, or set {VARIABLE}"))?,
    };
    let key = link_key(&secret).map_err(|error| anyhow!(error))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    print(&link(args, &key, now.as_secs())?)?;
    Ok(ExitCode::SUCCESS)
}

/// The address with its signature.
fn link(args: &SignArgs, key: &LinkKey, now: u64) -> anyhow::Result<String> {
    let right = match args.allow {
        Allow::View => Right::View,
        Allow::Publish => Right::Publish,
        Allow::Broker => Right::Broker,
    };
    // The holder of the link needs no user.
    let target = without_user(&args.target);
    check_query(&target)?;
    let stream = match &args.stream {
        Some(name) => check_stream_name(name).map(|()| name.as_str())?,
        None => stream_of(&target)?,
    };
    let query = key.query(right, stream, now.saturating_add(args.valid_for.as_secs()));
    let joint = if target.contains('?') { '&' } else { '?' };
    Ok(format!("{target}{joint}{query}"))
}

/// The parts of a query that RTMP and relays take a password or a token from.
const SECRETS: [&str; 3] = ["user", "pass", "jwt"];

/// Refuses secrets that the link would give away. The error has no value.
fn check_query(target: &str) -> anyhow::Result<()> {
    // RTMP may have a query behind the application and behind the key.
    for pair in target.split(['?', '&']).skip(1) {
        let name = pair.split('=').next().unwrap_or(pair);
        if SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret)) {
            bail!(
                "the link would give {name}= to everybody who has it: leave {name}= out, the link takes its place"
            );
        }
        // It may be the end of a password with a question mark.
        if pair.contains('@') {
            bail!("there is an @ behind a question mark: leave the user and the password out, or write %40");
        }
    }
    Ok(())
}

/// The name of the stream at the address: all of its path, without the ending or the place of a way to view it.
fn stream_of(target: &str) -> anyhow::Result<&str> {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => target,
    };
    let path = path.split('?').next().unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let name = ENDINGS.iter().find_map(|ending| path.strip_suffix(ending)).unwrap_or(path);
    // The rights of a stream are those of its renditions.
    let (name, _) = split_rendition(name);
    check_stream_name(name)
        .with_context(|| format!("{target:?} names no stream; write rtsp://HOST:8554/NAME"))?;
    Ok(name)
}

/// What follows the name in an address over HTTP.
const ENDINGS: [&str; 8] = ["/ws", "/watch", "/values", "/events", "/push", ".ts", ".mp4", ".fw"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_signed_for_the_stream_of_its_address() {
        let key = LinkKey::new("a secret of some length");
        let args = |target: &str| SignArgs {
            target: target.to_owned(),
            valid_for: Duration::from_secs(10),
            allow: Allow::View,
            stream: None,
            secret_file: None,
        };
        let query = key.query(Right::View, "live", 1010);
        for target in [
            "live",
            "rtsp://host:8554/live",
            "rtsp://host/live~low",
            "http://host/live.ts",
            "http://host/live~low.ts",
            "https://host/live/ws",
            "http://host/live/watch",
            "http://host/live/events",
            "wss://host/live/values",
            "http://host/live/",
        ] {
            assert_eq!(link(&args(target), &key, 1000).unwrap(), format!("{target}?{query}"));
        }
        let secret = link(&args("rtsp://anna:sesame@host/live"), &key, 1000).unwrap();
        assert_eq!(secret, format!("rtsp://host/live?{query}"));
        let error = link(&args("anna:sesame@a b"), &key, 0).unwrap_err();
        assert!(!format!("{error:#}").contains("sesame"), "{error:#}");
        let more = link(&args("http://host/live?a=b"), &key, 1000).unwrap();
        assert_eq!(more, format!("http://host/live?a=b&{query}"));
        let publish = SignArgs { allow: Allow::Publish, ..args("live") };
        assert_eq!(
            link(&publish, &key, 1000).unwrap(),
            format!("live?{}", key.query(Right::Publish, "live", 1010))
        );
        let inside = SignArgs { stream: Some("live".to_owned()), ..args("https://host/cam/live/counter") };
        assert_eq!(link(&inside, &key, 1000).unwrap(), format!("https://host/cam/live/counter?{query}"));
        for wrong in ["http://host", "http://host/", "a b", ""] {
            assert!(link(&args(wrong), &key, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_link_gives_no_secret_away() {
        let key = LinkKey::new("a secret of some length");
        let refused = |target: &str, allow: Allow, stream: Option<&str>| {
            let stream = stream.map(str::to_owned);
            let args = SignArgs {
                target: target.to_owned(),
                valid_for: Duration::from_secs(10),
                allow,
                stream,
                secret_file: None,
            };
            format!("{:#}", link(&args, &key, 1000).expect_err(target))
        };
        let queries = [
            ("user=sesame", "leave user= out"),
            ("user=anna&pass=sesame", "leave user= out"),
            ("pass=sesame", "leave pass= out"),
            ("a=b&PASS=sesame&c", "leave PASS= out"),
            ("jwt=sesame", "leave jwt= out"),
            ("a=b/cam?jwt=sesame", "leave jwt= out"),
            ("jwt", "leave jwt= out"),
        ];
        for (query, remedy) in queries {
            for place in [
                "rtmp://host/live",
                "https://host/live/ws",
                "live",
                "rtmp://host",
                "http://a:sesame@host/live",
            ] {
                for allow in [Allow::View, Allow::Publish, Allow::Broker] {
                    for stream in [None, Some("live")] {
                        let error = refused(&format!("{place}?{query}"), allow, stream);
                        assert!(
                            error.contains(remedy) && !error.contains("sesame"),
                            "{place}?{query}: {error}"
                        );
                    }
                }
            }
        }
        let error = refused("rtsp://anna:se?same@host/live", Allow::View, None);
        assert!(error.contains("write %40") && !error.contains("same"), "{error}");
    }
}
