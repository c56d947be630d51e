use clap::Parser;
use freshwire_server::access::{LinkKey, Right};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ServeArgs,
}

fn complete(line: &[&str]) -> Result<Config, String> {
    let line = Line::try_parse_from(["serve"].iter().chain(line)).map_err(|error| error.to_string())?;
    line.args.complete().map_err(|error| format!("{error:#}"))
}

#[test]
fn sources_get_names() {
    let config = complete(&["test", "test", "cam=rtsp://host/x", "films/a.mp4", "-"]).unwrap();
    let names: Vec<_> = config.streams.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "cam", "live", "live2", "live3"]);
    let error = complete(&["a=test", "a=-"]).unwrap_err();
    assert!(error.starts_with("there are two streams a; name one of them"), "{error}");
    let error = complete(&["-", "x=-"]).unwrap_err();
    assert!(error.starts_with("standard input can be"), "{error}");
    let error = complete(&["srt://host"]).unwrap_err();
    assert!(error.contains("is no source; write test"), "{error}");
}

#[test]
fn listening_to_the_world_needs_a_decision() {
    let error = complete(&["test", "--listen-rtsp", ":8554"]).unwrap_err();
    assert!(error.contains("[::]:8554 can be reached from other machines"), "{error}");
    assert!(complete(&["test", "--listen-rtsp", ":8554", "--open"]).unwrap().open);
    let config = complete(&["test", "--listen-http", "0.0.0.0:80", "--user", "anna:sesame"]).unwrap();
    assert!(config.access.users.contains_key("anna"));
    assert!(complete(&["--user", "anna"]).unwrap_err().contains("write NAME:PASSWORD"));
    assert!(complete(&["--listen-rtsp", "world"]).unwrap_err().contains("is no address to listen on"));
}

#[test]
fn the_command_line_is_added_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.toml");
    std::fs::write(&path, "[http]\nlisten = \"none\"\n[streams.a]\nsource = \"test\"").unwrap();
    let path = path.to_str().unwrap();
    let config = complete(&["b=test", "--config", path, "--listen-internal", "none"]).unwrap();
    assert_eq!(config.streams.len(), 2);
    assert_eq!((config.http.plain, config.internal), (None, None));
    assert!(config.rtsp.plain.is_some());
    let tls = complete(&["--config", path, "--tls", "c.pem", "k.pem"]).unwrap();
    assert_eq!(tls.rtsp.tls.map(|address| address.port()), Some(8322));
}

#[test]
fn targets_belong_to_a_stream() {
    let targets = |line: &[&str]| {
        let config = complete(line)?;
        let shown = |(name, stream): (&String, &StreamConfig)| {
            let targets = stream.forward.iter().map(move |target| format!("{name} {target}"));
            targets.collect::<Vec<_>>()
        };
        Ok(config.streams.iter().flat_map(shown).collect::<Vec<_>>())
    };
    let only = ["live=publish", "--forward", "rtmp://a/app/k?x=y", "--forward", "rtmps://b/app/k"];
    let both = ["live rtmp://a:1935/app", "live rtmps://b:443/app"].map(str::to_owned).to_vec();
    assert_eq!(targets(&only), Ok::<_, String>(both));
    let named = ["a=test", "b=test", "--forward", "b=rtmp://h/app/k"];
    assert_eq!(targets(&named), Ok(vec!["b rtmp://h:1935/app".to_owned()]));
    let refused = |line: &[&str], why: &str| {
        let error = targets(line).expect_err("it is refused");
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    };
    refused(&["a=test", "b=test", "--forward", "rtmp://h/app/secret"], "several streams");
    refused(&["--forward", "rtmp://h/app/secret"], "there is no stream to publish");
    refused(&["a=test", "--forward", "b=rtmp://h/app/secret"], "there is no stream \"b\"");
    refused(&["a=test", "--forward", "srt://h/app/secret"], "write rtmp://");
}

#[test]
#[cfg(feature = "moq")]
fn relays_are_for_all_streams_or_one() {
    let relays = |line: &[&str]| {
        let config = complete(line)?;
        let shown = |(name, stream): (&String, &StreamConfig)| {
            stream.relays.iter().map(|relay| format!("{name} {relay}")).collect::<Vec<_>>()
        };
        Ok::<_, String>(config.streams.iter().flat_map(shown).collect::<Vec<_>>())
    };
    let all = relays(&["a=test", "b=test", "--relay", "https://r:1/x?jwt=secret"]).unwrap();
    assert_eq!(all, ["a moq://r:1/x", "b moq://r:1/x"]);
    let one = relays(&["a=test", "b=moq://r/x/b", "--relay", "b=http://r:1/x"]).unwrap();
    assert_eq!(one, ["b moq+http://r:1/x"]);
    for (line, why) in [
        (&["--relay", "https://r/secret"][..], "there is no stream to announce"),
        (&["a=test", "--relay", "b=https://r/secret"], "there is no stream \"b\""),
        (&["a=test", "--relay", "rtmp://r/secret"], "write moq://"),
        (&["a=moq://r"], "the name of the stream is missing"),
    ] {
        let error = relays(line).expect_err("it is refused");
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    }
}

#[test]
#[cfg(not(feature = "moq"))]
fn a_program_without_relays_says_so() {
    let error = complete(&["a=test", "--relay", "https://r/x"]).unwrap_err();
    assert!(error.contains("built without relays"), "{error}");
    let error = complete(&["a=moq://r/x/a"]).unwrap_err();
    assert!(error.contains("built without relays"), "{error}");
}

#[test]
fn the_secret_of_links_is_where_sign_has_it() {
    let secret = |text: &str| Some(OsString::from(text));
    let mut config = Config::default();
    let error = take_link_secret(&mut config, secret("short")).unwrap_err().to_string();
    assert!(error.starts_with("FRESHWIRE_LINK_SECRET: a link_secret has at least 16 characters"), "{error}");
    take_link_secret(&mut config, None).unwrap();
    assert!(config.access.link_key.is_none());
    take_link_secret(&mut config, secret("a secret of some length")).unwrap();
    let link =
        |config: &Config| config.access.link_key.as_ref().map(|key| key.query(Right::View, "live", 1000));
    let signed = LinkKey::new("a secret of some length").query(Right::View, "live", 1000);
    assert_eq!(link(&config), Some(signed.clone()));
    take_link_secret(&mut config, secret("another one of some length")).unwrap();
    assert_eq!(link(&config), Some(signed), "what the file says goes first");
}
