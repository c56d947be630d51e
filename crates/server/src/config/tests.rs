use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::access::{Access, Attempt, Right, Verdict};
use crate::ingest::Source;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("etc/f.toml")).map_err(|error| error.to_string())
}

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn the_packaged_file_shows_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/freshwire.toml");
    let packaged = Config::load(&path).unwrap();
    let mut expected = Config::default();
    expected.streams.insert("live".to_owned(), parse_source("test").unwrap().into());
    assert_eq!(format!("{packaged:?}"), format!("{expected:?}"));
    // The lines that are commented out are valid too.
    let text = std::fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("anna.secret"), "sesame\n").unwrap();
    let is_key = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let enable = |line: &'_ str| match line.strip_prefix("# ") {
        // One of these per secret may be there, and the files do not exist.
        Some(rest) if rest.contains("/etc/") || rest.contains("FRESHWIRE_") || rest.contains("...") => {
            String::new()
        }
        Some(rest) if rest.starts_with("tls") || rest.starts_with("[tls]") => String::new(),
        // An address that this machine need not have.
        Some(rest) if rest.starts_with("multicast_interface") => String::new(),
        Some(rest) if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(key, _)| is_key(key)) => {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    let enabled: Vec<String> = text.lines().map(enable).collect();
    let config = Config::parse(&enabled.join("\n"), &folder.path().join("f.toml")).unwrap();
    assert_eq!(config.hub.congestion.as_deref(), Some("bbr"));
    assert!(config.access.users["anna"].rights.publish.contain("live"));
}

#[test]
fn all_sections() {
    let config = parse(
        r#"
        [rtsp]
        listen = ":8554"
        [rtmp]
        listen = ":1935"
        [http]
        listen = "none"
        tls_listen = "[::1]:443"
        internal = "none"
        [tls]
        certificate = "c.pem"
        key = "/k.pem"
        [access]
        link_secret = "0123456789abcdef"
        [access.users.anna]
        password = "sesame"
        view = []
        [access.users.cam]
        sha256 = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        [limits]
        max_connections = 10
        max_connection_rate_per_ip = 3
        max_header = "4KiB"
        max_publish_rate = "8Mbit"
        [process]
        nice = 5
        [hub]
        arena = "8MiB"
        latency = "1s"
        rtp_packet = 1400
        engines = 3
        io_uring = false
        transfer = "copy"
        [streams.a]
        source = "film.ts"
        view = ["anna"]
        publish = ["cam"]
        [streams.b]
        source = "publish"
        "#,
    )
    .unwrap();
    assert_eq!(config.rtsp, Listen { plain: address("[::]:8554"), tls: address("[::]:8322") });
    assert_eq!(config.rtmp, Listen { plain: address("[::]:1935"), tls: address("[::]:1936") });
    assert!(config.requires_rtmp && !Config::default().requires_rtmp);
    assert_eq!(config.http, Listen { plain: None, tls: address("[::1]:443") });
    assert_eq!(config.internal, None);
    assert_eq!(config.tls, Some(TlsFiles { certificate: "etc/c.pem".into(), key: "/k.pem".into() }));
    assert_eq!((config.limits.max_connections, config.limits.max_header_bytes), (10, 4096));
    assert_eq!(config.limits.max_connection_rate_per_ip, 3);
    assert_eq!(config.limits.max_publish_rate, freshwire_record::Rate::from_bits_per_sec(8_000_000));
    assert_eq!((config.hub.arena_bytes, config.hub.latency), (8 << 20, Some(Duration::from_secs(1))));
    assert_eq!((config.nice, config.hub.engines, config.hub.io_uring), (Some(5), 3, false));
    assert_eq!(config.hub.transfer, freshwire::engine::Transfer::Copy);
    assert_eq!(config.hub.rtp_packet_bytes, 1400);
    assert_eq!(config.streams["a"].source, Source::File("etc/film.ts".into()));
    let (anna, cam) = (&config.access.users["anna"].rights, &config.access.users["cam"].rights);
    assert!(anna.view.contain("a") && !anna.view.contain("b") && anna.publish.is_empty());
    assert!(cam.view.contain("b") && cam.publish.contain("a") && !cam.publish.contain("b"));
    assert!(config.check().is_ok());
}

/// Each text with what its error has to begin with.
const WRONG: [(&str, &str); 28] = [
    ("\n[rtps]\n", "etc/f.toml:2: unknown field `rtps`, expected one of `rtsp`"),
    ("[hub]\nlatency = 700", "etc/f.toml:2: latency: \"700\" is not a duration such as 50ms"),
    ("[hub]\nlatency = \"2h\"", "etc/f.toml:2: latency: 2h is not from 20ms to 1min"),
    (
        "[hub]\ntransfer = \"sendfile\"",
        "etc/f.toml:2: transfer: \"sendfile\" is none of \"auto\", \"copy\" and \"reference\"",
    ),
    ("[hub]\nengines = 0", "etc/f.toml:2: engines: 0 is not from 1 to 64"),
    ("[hub]\nrtp_packet = 255", "etc/f.toml:2: rtp_packet: 255 is not from 256B to 65000B"),
    ("[hub]\nrtp_packet = \"64KiB\"", "etc/f.toml:2: rtp_packet: 64KiB is not from 256B to 65000B"),
    ("[hub]\narena = true", "etc/f.toml:2: invalid type: boolean, expected a number with a unit"),
    (
        "[limits]\n\nmax_connections = \"many\"",
        "etc/f.toml:3: max_connections: \"many\" is not a whole number",
    ),
    (
        "[limits]\nmax_publish_rate = \"8MB\"",
        "etc/f.toml:2: max_publish_rate: \"8MB\" is not clear: some programs",
    ),
    (
        "[rtsp]\nlisten = \"8554\"",
        "etc/f.toml:2: rtsp.listen: \"8554\" is no address to listen on; write 127",
    ),
    ("[process]\nnice = -21", "etc/f.toml:2: nice: -21 is not from -20 to 19"),
    ("[process]\nnice = \"low\"", "etc/f.toml:2: nice: \"low\" is not a whole number such as -10"),
    ("[rtsp]\ntls_listen = \":1\"", "etc/f.toml:2: rtsp.tls_listen needs a certificate: add [tls]"),
    ("[tls]\nkey = \"k\"", "etc/f.toml:1: missing field `certificate`"),
    ("[access]\nlink_secret = \"short\"", "etc/f.toml:2: a link_secret has at least 16 characters; make one"),
    ("[access.users.a]\nview = []", "etc/f.toml:1: user a has no password; add password_file"),
    ("[access.users.a]\npassword = \"\"", "etc/f.toml:2: password is empty"),
    (
        "[access.users.a]\npassword = \"x\"\npassword_env = \"X\"",
        "etc/f.toml:3: password is given twice; keep one of password, password_file and password_env",
    ),
    (
        "[access.users.a]\npassword_env = \"FRESHWIRE_NO_SUCH\"",
        "etc/f.toml:2: password: the environment has no variable FRESHWIRE_NO_SUCH; set it",
    ),
    (
        "[access.users.a]\npassword_file = \"no\"",
        "etc/f.toml:2: password: etc/no cannot be read: No such file",
    ),
    (
        "[access.users.a]\nmd5 = \"xyz\"",
        "etc/f.toml:2: a hash has 32 hexadecimal digits; make it with: printf",
    ),
    (
        "[access.users.\"a:b\"]\npassword = \"x\"",
        "etc/f.toml:1: a user's name is not empty and has no colons",
    ),
    (
        "[streams.\"a//b\"]\nsource = \"test\"",
        "etc/f.toml:1: \"a//b\" cannot be a stream's name; use 1 to 64",
    ),
    ("[streams.a]\nsource = \"srt://x\"", "etc/f.toml:2: \"srt\" is no source; write test, -, a path"),
    ("[streams.a]\nurl = \"x\"", "etc/f.toml:2: unknown field `url`, expected one of `source`"),
    (
        "[streams.a]\nsource = \"test\"\nview = [\n\"x\"]",
        "etc/f.toml:4: there is no user \"x\"; add [access.users.NAME]",
    ),
    ("[hub]\nlatency = = 1", "etc/f.toml:2: "),
];

#[test]
fn an_error_names_the_file_the_line_and_what_to_do() {
    for (text, expected) in WRONG {
        let error = parse(text).unwrap_err();
        eprintln!("{error}");
        assert!(error.starts_with(expected), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
    let missing = Config::load(Path::new("/nowhere/f.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nowhere/f.toml: cannot be read: No such file"), "{missing}");
}

/// Each setting that may hold a secret, with values of each type, as slips write them.
#[test]
fn no_error_has_a_value_that_may_be_secret() {
    let secret = "48151623";
    let users = "[access.users.anna]\n";
    let settings = [
        ("", "access"),
        ("[access]\n", "link_secret"),
        ("[access]\n", "users"),
        ("[access.users]\n", "anna"),
        (users, "password"),
        (users, "sha256"),
        (users, "md5"),
        ("", "streams"),
        ("[streams]\n", "live"),
        ("[streams.live]\n", "source"),
        ("[streams.live]\nsource = \"test\"\n", "forward"),
        ("[streams.live]\nsource = \"test\"\n", "relay"),
        ("[streams.live]\nsource = \"test\"\n", "rendition"),
        ("[[streams.live.rendition]]\n", "source"),
    ];
    let texts = [
        format!("\"{secret}\""),
        format!("\"rtmp://h/a/{secret}\""),
        format!("\"https://h/?jwt={secret}\""),
        format!("\"rtsp://anna:{secret}@h/a\""),
        format!("\"anna:{secret}\""),
        format!("\"{secret}, expected {secret}\\n\\\"\""),
        secret.to_owned(),
        format!("-{secret}"),
        format!("{secret}.5"),
        format!("2026-11-30T01:00:00.{secret}Z"),
    ];
    let mut errors = 0;
    for (section, setting) in settings {
        for text in &texts {
            let bare = text.trim_matches('"');
            for value in [
                text.clone(),
                bare.to_owned(),
                format!("\"{bare}"),
                format!("[{text}]"),
                format!("[[{text}]]"),
                format!("[{text}, 1, true]"),
                format!("{{ a = {text} }}"),
                format!("[{{ a = {text} }}]"),
                format!("{text} {text}"),
            ] {
                let text = format!("{section}{setting} = {value}\n");
                if let Err(error) = parse(&text) {
                    assert!(!error.contains(secret), "{text}: {error}");
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 1000, "{errors}");
    let error = parse(&format!("[access.users.\"anna:{secret}\"]")).unwrap_err();
    assert!(error.contains("password_file") && !error.contains(secret), "{error}");
    let error = parse("[access]\nlink_secret = [\"x\"]").unwrap_err();
    assert_eq!(error, "etc/f.toml:2: invalid type: sequence, expected a string");
}

#[test]
fn a_server_alone_needs_no_list() {
    let read = |value: &str| {
        let text = format!("[streams.live]\nsource = \"test\"\nforward = {value}");
        parse(&text).map(|config| config.streams["live"].forward.clone())
    };
    let alone = read("\"rtmp://h/a/k\"").unwrap();
    assert_eq!((alone.len(), &alone), (1, &read("[\"rtmp://h/a/k\"]").unwrap()));
    assert_eq!(read("[]").unwrap(), []);
    for wrong in ["\"h/a/k\"", "[\"rtmp://h/a/k\",\n\"h/a/k\"]"] {
        let line = 3 + wrong.matches('\n').count();
        let error = read(wrong).unwrap_err();
        assert!(error.starts_with(&format!("etc/f.toml:{line}: forward: write rtmp://")), "{error}");
    }
    let error = read("1").unwrap_err();
    assert_eq!(
        error,
        "etc/f.toml:3: invalid type: integer, expected a list of texts, such as [\"ONE\", \"OTHER\"]"
    );
    // Without the feature of relays the address is read, and refused for that.
    let relay = parse("[streams.live]\nsource = \"test\"\nrelay = \"https://h/?jwt=sesame\"");
    match relay {
        Ok(config) => assert_eq!(config.streams["live"].relays.len(), 1),
        Err(error) => assert!(error.contains("relay: this program is built without"), "{error}"),
    }
}

#[test]
fn listening_beyond_loopback_needs_access_rules_or_open() {
    let listening = |more: &str| parse(&format!("[rtsp]\nlisten = \":8554\"\n{more}")).unwrap();
    let error = listening("").check().unwrap_err().to_string();
    eprintln!("{error}");
    assert!(error.starts_with("[::]:8554 can be reached") && error.contains("--open"), "{error}");
    for enough in [
        "[access]\nopen = true",
        "[access]\nlink_secret = \"0123456789abcdef\"",
        "[access.users.a]\npassword = \"x\"",
        "[access.anonymous]\nview = [\"*\"]",
    ] {
        assert!(listening(enough).check().is_ok(), "{enough}");
    }
    assert!(Config::default().check().is_ok());
}

#[test]
fn an_unknown_congestion_control_fails_the_check() {
    let with = |name: &str| parse(&format!("[hub]\ncongestion = \"{name}\"")).unwrap();
    assert!(with("reno").check().is_ok());
    let error = with("nosuch").check().unwrap_err().to_string();
    assert!(error.contains("\"nosuch\"") && error.contains("tcp_allowed_congestion_control"), "{error}");
}

#[test]
fn a_streams_own_network_service_has_precedence() {
    let text = r#"
        [hub]
        dscp = "CS1"
        priority = 4
        [streams.live]
        source = "test"
        dscp = "46"
        max_rate = "20Mbit"
        [streams.door]
        source = "test"
    "#;
    let config = parse(text).unwrap();
    assert!(config.check().is_ok());
    let of = |name| {
        let network = config.hub.network_of(name);
        (network.dscp.map(|dscp| dscp.value()), network.priority, network.max_rate.is_some())
    };
    assert_eq!(of("live"), (Some(46), Some(4), true));
    assert_eq!([of("door"), of("other")], [(Some(8), Some(4), false); 2]);
    let error = parse("[hub]\ndscp = \"AF44\"").unwrap_err();
    assert!(error.contains("AF11 to AF43"), "{error}");
    for value in ["-1", "\"high\"", "1.5"] {
        assert!(parse(&format!("[hub]\npriority = {value}")).unwrap_err().contains("priority"), "{value}");
    }
}

#[test]
fn anonymous_rights_follow_from_the_configuration() {
    let verdict = |text: &str, right, peer: &str| {
        let access = Access::new(parse(text).unwrap().rules());
        let attempt = Attempt {
            right,
            stream: "live",
            method: "DESCRIBE",
            uri: "/live",
            query: None,
            authorization: None,
            base_path: "",
            encrypted: false,
            peer: SocketAddr::new(peer.parse().unwrap(), 4000),
            host: None,
        };
        matches!(access.check(&attempt), Verdict::Granted(grant) if grant.user().is_none())
    };
    let (here, there) = ("127.0.0.1", "192.0.2.1");
    let cases = [("", [true, true, false, false]), ("open = true", [true, true, true, false])];
    for (text, expected) in cases {
        let text = format!("[access]\n{text}");
        let granted = [
            verdict(&text, Right::View, here),
            verdict(&text, Right::Publish, here),
            verdict(&text, Right::View, there),
            verdict(&text, Right::Publish, there),
        ];
        assert_eq!(granted, expected, "{text}");
    }
    let with_user = "[access.users.a]\npassword = \"x\"";
    assert!(!verdict(with_user, Right::View, here) && !verdict(with_user, Right::Publish, here));
    for text in ["", "[access]\nopen = true", "[access.anonymous]\npublish = [\"*\"]\nbroker = [\"other\"]"] {
        assert!(!verdict(text, Right::Broker, here), "{text}");
    }
    let open = "[access.anonymous]\nbroker = [\"li*\"]";
    assert!(verdict(open, Right::Broker, there) && !verdict(open, Right::Publish, there));
}

#[test]
fn a_brokers_address_is_checked_where_it_is_written() {
    let of = |text: &str| parse(&format!("[streams.state]\nsource = {text}"));
    let config = of("\"mqtts://me:sesame@broker/a/#?ca=ca.pem\"").unwrap();
    let Source::Broker(broker) = &config.streams["state"].source else { panic!("a broker") };
    assert!(broker.to_string() == "mqtts://broker:8883/a/#" && !format!("{config:?}").contains("sesame"));
    for (text, why) in [
        ("\"mqtt://broker\"", "f.toml:2: it names no topic"),
        ("\"nats://broker/a b\"", "f.toml:2: \"a b\" cannot be subscribed"),
        ("\"mqtt://broker/#\"\nladder = [\"640x360@400k\"]", "gives values and no pictures"),
        ("\"mqtt://broker/#\"\nforward = [\"rtmp://a/b/c\"]", "gives values and no pictures"),
        ("\"publish\"\n[[streams.state.rendition]]\nsource = \"mqtt://broker/#\"", "a stream of its own"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_trusted_site_is_also_a_name_of_the_server() {
    let text = "[http]\nhosts = [\"studio.lan\"]\ntrusted_origins = [\"https://Cam.example:8443\"]";
    let access = Access::new(parse(text).unwrap().rules());
    for host in ["studio.lan", "cam.example", "cam.example:443", "localhost"] {
        assert!(access.knows_host(Some(host)), "{host}");
    }
    assert!(!access.knows_host(Some("evil.example")));
}

#[test]
fn a_renditions_name_is_no_streams_name() {
    let says = "publish it to rtsp://HOST/door~low, or configure it as [[streams.door.rendition]]";
    let error = parse("[streams.\"door~low\"]\nsource = \"publish\"").unwrap_err();
    assert!(error.contains(says), "{error}");
    let error = parse_named_source("door~low=publish").unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_base_path_is_a_path() {
    let of = |path: &str| parse(&format!("[http]\nbase_path = \"{path}\""));
    assert_eq!(of("cam/").unwrap().base_path.as_str(), "/cam");
    let error = of("/a b").unwrap_err().to_string();
    assert!(error.contains("base_path: \"/a b\" is no path of a page; write letters"), "{error}");
    assert_eq!(Config::default().fixed_differences(&of("/cam").unwrap()), ["http"]);
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let old = Config::default();
    let new =
        parse("[rtsp]\nlisten = \":1\"\n[rtmp]\nlisten = \":2\"\n[hub]\nlatency = \"1s\"\n[limits]\nmax_connections = 1\n[process]\nnice = 0").unwrap();
    assert_eq!(old.fixed_differences(&new), ["rtsp", "rtmp", "process", "hub"]);
    assert!(old.fixed_differences(&old.clone()).is_empty());
}

#[test]
fn no_text_makes_it_panic() {
    bolero::check!().with_type::<(String, u8)>().for_each(|(text, place)| {
        let _ = parse(text);
        let _ = (parse_listen(text), parse_named_source(text));
        // A valid file with a piece of it replaced reaches further.
        let (valid, _) = WRONG[usize::from(*place) % WRONG.len()];
        let at = usize::from(*place) % (valid.len() + 1);
        let _ = parse(&format!("{}{text}{}", &valid[..at], &valid[at..]));
    });
}

const LADDER: &str = "ladder = [\"640x360@400k\"]\n";

#[test]
fn renditions_and_ladders_are_read() {
    let stream = |more: &str| {
        let text = format!("[streams.door]\nsource = \"rtsp://cam/main\"\n{more}");
        parse(&text).map(|config| config.streams["door"].clone())
    };
    let section = |more: &str| format!("[[streams.door.rendition]]\nsource = \"rtsp://cam/sub\"\n{more}\n");
    let door = stream(&[section(""), section(""), section("name = \"x\"")].concat()).unwrap();
    let names: Vec<_> = door.renditions.iter().map(|rendition| rendition.name.as_str()).collect();
    assert_eq!(names, ["sub", "sub2", "x"]);
    let door = stream("ladder = [\"640x360@400k\", \"426x240@150k\"]").unwrap();
    let encoder = stream(&format!("{LADDER}encoder = \"h264_vaapi\"")).unwrap().encoder;
    assert_eq!(encoder.map(|encoder| encoder.name()), Some("h264_vaapi"));
    assert_eq!(door.ladder.iter().map(|rung| rung.name()).collect::<Vec<_>>(), ["360p", "240p"]);
    let wrong = [
        (section("name = \"main\""), "there is a rendition \"main\" already"),
        (section("name = \"all\""), "cannot be a rendition's name"),
        (section("name = \"sub2\"") + &section(""), "there is a rendition \"sub2\" already"),
        (section("colour = 1"), "unknown field `colour`"),
        (section("").repeat(8), "8 renditions of a stream are the limit"),
        ("ladder = [\"640x360\"]".to_owned(), "is no rung of a ladder"),
        ("encoder = \"libx264\"".to_owned(), "this stream has nothing to encode; add a ladder"),
        (format!("{LADDER}encoder_device = \"/dev/dri/renderD128\""), "a device needs an encoder"),
        (
            format!("{LADDER}encoder = \"nvenc\""),
            "\"nvenc\" is no encoder for a ladder; write one of libx264",
        ),
        (
            format!("{LADDER}encoder = \"h264_qsv\"\nencoder_device = \"0\""),
            "the device of h264_qsv is a path, such as /dev/dri/renderD128",
        ),
        ("ladder = [\"640x360@1M\", \"480x360@400k\"]".to_owned(), "there is a rendition \"360p\" already"),
    ];
    for (text, expected) in wrong {
        let error = stream(&text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
