use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn rights(view: &[&str], publish: &[&str]) -> Rights {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Rights { view: names(view), publish: names(publish), ..Rights::default() }
}

fn rules() -> Rules {
    let user = |name: &str, rights| User { password: Password::from_plain(name, "sesame"), rights };
    Rules {
        hosts: Vec::new(),
        users: BTreeMap::from([
            ("anna".to_owned(), user("anna", rights(&["*"], &[]))),
            ("cam".to_owned(), user("cam", rights(&[], &["cam*"]))),
        ]),
        anonymous: rights(&["public"], &[]),
        local: Rights::default(),
        link_key: Some(LinkKey::new("a secret of some length")),
    }
}

fn now() -> Now {
    Now { wall: 1_000_000, monotonic: Instant::now() }
}

fn attempt<'a>(right: Right, stream: &'a str, authorization: Option<&'a str>) -> Attempt<'a> {
    Attempt {
        right,
        stream,
        method: "DESCRIBE",
        uri: "rtsp://host/live",
        query: None,
        authorization,
        encrypted: false,
        base_path: "",
        peer: SocketAddr::from(([192, 0, 2, 1], 4000)),
        host: None,
    }
}

/// The answer of a client to the challenge at this place.
fn answer(access: &Access, place: usize, user: &str, password: &str, now: Now) -> String {
    let Verdict::Challenge(challenges) = access.check_at(&attempt(Right::View, "live", None), now) else {
        panic!("no challenge");
    };
    let nonce = challenges[place].split('"').nth(3).unwrap();
    let algorithm = if challenges[place].contains("SHA-256") { Algorithm::Sha256 } else { Algorithm::Md5 };
    let name = if algorithm == Algorithm::Md5 { "MD5" } else { "SHA-256" };
    let stored = algorithm.hash(&[user, REALM, password]);
    let request = algorithm.hash(&["DESCRIBE", "rtsp://host/live"]);
    let response = algorithm.hash(&[&stored, nonce, "00000001", "c", "auth", &request]);
    format!(
        "Digest username=\"{user}\", realm=\"{REALM}\", nonce=\"{nonce}\", uri=\"rtsp://host/live\", \
         algorithm={name}, qop=auth, nc=00000001, cnonce=\"c\", response=\"{response}\""
    )
}

/// The user's name, if the request is granted.
fn granted(verdict: Verdict) -> Option<Option<String>> {
    match verdict {
        Verdict::Granted(grant) => Some(grant.user().map(str::to_owned)),
        _ => None,
    }
}

fn to(user: &str) -> Option<Option<String>> {
    Some(Some(user.to_owned()))
}

#[test]
fn a_client_answers_the_first_challenge() {
    let challenges = digest::challenges("n1", false);
    let uri = "/live.fw?a=1";
    let header = digest::answer(&challenges[0], "anna", "sesame", "GET", uri).expect("ours");
    let Some(Authorization::Digest(given)) = digest::parse(&header) else { panic!("{header}") };
    let stored = Password::from_plain("anna", "sesame");
    let expected = given.response_for(stored.sha256.as_deref().unwrap(), "GET");
    assert_eq!((given.response.as_str(), given.is_for(uri, "")), (expected.as_str(), true));
    assert_eq!(digest::answer(&challenges[1], "anna", "sesame", "GET", uri), None);
    assert_eq!(digest::answer(&challenges[0], "an\"na", "sesame", "GET", uri), None);
}

#[test]
fn each_challenge_can_be_answered() {
    let (access, now) = (Access::new(rules()), now());
    for place in [0, 1] {
        let header = answer(&access, place, "anna", "sesame", now);
        assert_eq!(granted(access.check_at(&attempt(Right::View, "live", Some(&header)), now)), to("anna"));
    }
}

#[test]
fn basic_is_for_encrypted_connections() {
    let (access, now) = (Access::new(rules()), now());
    let header = "Basic YW5uYTpzZXNhbWU=";
    let plain = attempt(Right::View, "live", Some(header));
    let Verdict::Challenge(challenges) = access.check_at(&plain, now) else { panic!("no challenge") };
    assert!(challenges.len() == 2 && challenges.iter().all(|challenge| challenge.starts_with("Digest")));
    let encrypted = Attempt { encrypted: true, ..plain };
    assert_eq!(granted(access.check_at(&encrypted, now)), to("anna"));
    let Verdict::Challenge(challenges) = access.check_at(&Attempt { authorization: None, ..encrypted }, now)
    else {
        panic!("no challenge");
    };
    assert_eq!(challenges.last().unwrap(), "Basic realm=\"freshwire\", charset=\"UTF-8\"");
}

#[test]
fn wrong_passwords_users_and_methods_are_asked_again() {
    let (access, now) = (Access::new(rules()), now());
    let right = answer(&access, 0, "anna", "sesame", now);
    for header in [
        answer(&access, 0, "anna", "open", now),
        answer(&access, 0, "nobody", "sesame", now),
        right.replace("DESCRIBE", "x").replace("uri=\"rtsp://host/live\"", "uri=\"rtsp://host/other\""),
        "Bearer x".to_owned(),
    ] {
        let verdict = access.check_at(&attempt(Right::View, "live", Some(&header)), now);
        assert!(matches!(verdict, Verdict::Challenge(_)), "{header}");
    }
    let other_method = Attempt { method: "PLAY", ..attempt(Right::View, "live", Some(&right)) };
    assert!(matches!(access.check_at(&other_method, now), Verdict::Challenge(_)));
}

#[test]
fn viewing_and_publishing_are_separate_rights() {
    let (access, now) = (Access::new(rules()), now());
    let check = |right, stream, user| {
        let header = answer(&access, 0, user, "sesame", now);
        access.check_at(&attempt(right, stream, Some(&header)), now)
    };
    assert_eq!(granted(check(Right::Publish, "cam1", "cam")), to("cam"));
    assert_eq!(
        check(Right::Publish, "live", "cam"),
        Verdict::Denied("this user may not publish this stream")
    );
    assert_eq!(check(Right::View, "cam1", "cam"), Verdict::Denied("this user may not view this stream"));
    assert_eq!(
        check(Right::Publish, "live", "anna"),
        Verdict::Denied("this user may not publish this stream")
    );
    let public = access.check_at(&attempt(Right::View, "public", None), now);
    assert_eq!(granted(public), Some(None));
    assert!(matches!(access.check_at(&attempt(Right::Publish, "public", None), now), Verdict::Challenge(_)));
}

#[test]
fn an_old_nonce_is_stale_and_no_failure() {
    let (access, now) = (Access::new(rules()), now());
    let header = answer(&access, 0, "anna", "sesame", now);
    let later = Now { wall: now.wall + 700, ..now };
    for _ in 0..20 {
        let Verdict::Challenge(challenges) =
            access.check_at(&attempt(Right::View, "live", Some(&header)), later)
        else {
            panic!("no challenge");
        };
        assert!(challenges.iter().all(|challenge| challenge.ends_with(", stale=true")), "{challenges:?}");
    }
    let reloaded = access.with_rules(rules());
    assert_eq!(granted(reloaded.check_at(&attempt(Right::View, "live", Some(&header)), now)), to("anna"));
    let restarted = Access::new(rules());
    let Verdict::Challenge(challenges) =
        restarted.check_at(&attempt(Right::View, "live", Some(&header)), now)
    else {
        panic!("no challenge");
    };
    assert!(challenges[0].ends_with("stale=true"));
}

#[test]
fn a_throttled_client_waits_even_with_the_right_password() {
    let (access, now) = (Access::new(rules()), now());
    let wrong = answer(&access, 0, "anna", "guess", now);
    let right = answer(&access, 0, "anna", "sesame", now);
    for _ in 0..10 {
        access.check_at(&attempt(Right::View, "live", Some(&wrong)), now);
    }
    let again = attempt(Right::View, "live", Some(&right));
    assert_eq!(access.check_at(&again, now), Verdict::Denied(THROTTLED));
    assert_eq!(access.with_rules(rules()).check_at(&again, now), Verdict::Denied(THROTTLED));
    let other = Attempt { peer: SocketAddr::from(([192, 0, 2, 2], 4000)), ..again };
    assert_eq!(granted(access.check_at(&other, now)), to("anna"));
    let later = Now { monotonic: now.monotonic + MINUTE, ..now };
    let anew = answer(&access, 0, "anna", "sesame", now);
    assert_eq!(granted(access.check_at(&attempt(Right::View, "live", Some(&anew)), later)), to("anna"));
}

/// Somebody on the way can read an answer and send it again, with another body or from another connection.
#[test]
fn an_answer_counts_once() {
    let (access, now) = (Access::new(rules()), now());
    let is_stale = |attempt: &Attempt<'_>| match access.check_at(attempt, now) {
        Verdict::Challenge(challenges) => challenges[0].ends_with("stale=true"),
        _ => false,
    };
    let header = answer(&access, 0, "anna", "sesame", now);
    let again = attempt(Right::View, "live", Some(&header));
    assert_eq!(granted(access.check_at(&again, now)), to("anna"));
    let elsewhere = Attempt { peer: SocketAddr::from(([192, 0, 2, 9], 1)), ..again };
    // No wrong password, however often.
    assert!((0..20).all(|_| is_stale(&again) && is_stale(&elsewhere)));
    let reloaded = access.with_rules(rules());
    assert!(matches!(reloaded.check_at(&again, now), Verdict::Challenge(_)), "a reload forgets none");
    // Without a count (RFC 2069), as GStreamer and VLC answer over RTSP: one connection may say it again, no other one.
    let Verdict::Challenge(challenges) = access.check_at(&attempt(Right::View, "live", None), now) else {
        panic!("no challenge")
    };
    let nonce = challenges[1].split('"').nth(3).unwrap();
    let md5 = |parts: &[&str]| Algorithm::Md5.hash(parts);
    let response = md5(&[&md5(&["anna", REALM, "sesame"]), nonce, &md5(&["DESCRIBE", "rtsp://host/live"])]);
    let header = format!(
        "Digest username=\"anna\", realm=\"{REALM}\", nonce=\"{nonce}\", uri=\"rtsp://host/live\", response=\"{response}\""
    );
    let plain = attempt(Right::View, "live", Some(&header));
    assert!((0..3).all(|_| granted(access.check_at(&plain, now)) == to("anna")));
    assert!(is_stale(&Attempt { peer: SocketAddr::from(([192, 0, 2, 1], 4001)), ..plain }));
}

#[test]
fn a_signed_link_lets_in_until_it_expires() {
    let (access, now) = (Access::new(rules()), now());
    let query = rules().link_key.unwrap().query(Right::View, "live", now.wall + 10);
    let with_link = Attempt { query: Some(&query), ..attempt(Right::View, "live", None) };
    assert_eq!(granted(access.check_at(&with_link, now)), Some(None));
    let expired = access.check_at(&with_link, Now { wall: now.wall + 10, ..now });
    assert_eq!(expired, Verdict::Denied("the link has expired; ask for a new one"));
    let elsewhere = access.check_at(&Attempt { stream: "live2", ..with_link }, now);
    assert!(matches!(elsewhere, Verdict::Denied(why) if why.contains("not valid")));
}

#[test]
fn without_users_nobody_is_asked_for_a_password() {
    let closed = Access::new(Rules { local: Rights::all(), ..Rules::default() });
    let outside = attempt(Right::View, "live", None);
    assert_eq!(closed.check(&outside), Verdict::Denied("viewing is not open to this address"));
    for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let local = Attempt { peer: SocketAddr::new(peer.parse().unwrap(), 4000), ..outside };
        assert_eq!(granted(closed.check(&local)), Some(None));
    }
    assert_eq!(granted(Access::open().check(&outside)), Some(None));
}

#[test]
fn a_user_may_have_one_hash_only() {
    let now = now();
    for (keep, place) in [(Algorithm::Sha256, 0), (Algorithm::Md5, 1)] {
        let mut rules = rules();
        let anna = &mut rules.users.get_mut("anna").unwrap().password;
        match keep {
            Algorithm::Sha256 => anna.md5 = None,
            Algorithm::Md5 => anna.sha256 = None,
        }
        let access = Access::new(rules);
        let header = answer(&access, place, "anna", "sesame", now);
        assert_eq!(granted(access.check_at(&attempt(Right::View, "live", Some(&header)), now)), to("anna"));
        let other = answer(&access, 1 - place, "anna", "sesame", now);
        let verdict = access.check_at(&attempt(Right::View, "live", Some(&other)), now);
        assert!(matches!(verdict, Verdict::Challenge(_)));
        let basic =
            Attempt { encrypted: true, ..attempt(Right::View, "live", Some("Basic YW5uYTpzZXNhbWU=")) };
        assert_eq!(granted(access.check_at(&basic, now)), to("anna"));
    }
}

#[test]
fn secrets_stay_out_of_logs() {
    let shown = format!("{:?}", Access::new(rules()));
    let hash = Password::from_plain("anna", "sesame").sha256.unwrap();
    assert!(shown.contains("hidden") && !shown.contains(&hash) && !shown.contains("a secret"), "{shown}");
}

#[test]
fn a_page_that_was_led_here_by_its_own_name_has_no_right() {
    let access =
        Access::new(Rules { local: Rights::all(), hosts: vec!["studio.lan".to_owned()], ..Rules::default() });
    let called = |host| {
        let attempt =
            Attempt { peer: SocketAddr::from(([127, 0, 0, 1], 4000)), ..attempt(Right::View, "live", None) };
        access.check(&Attempt { host, ..attempt })
    };
    let own = [
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "192.0.2.7",
        "localhost",
        "LOCALHOST:8080",
        "localhost.",
    ];
    for host in own.into_iter().chain(["cam.localhost:1", "Studio.lan:8080"]) {
        assert_eq!(granted(called(Some(host))), Some(None), "{host}");
    }
    for host in
        ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b"]
    {
        assert_eq!(called(Some(host)), Verdict::Denied(UNKNOWN_HOST), "{host}");
    }
    assert_eq!(granted(called(None)), Some(None));
    let everybody =
        Access::open().check(&Attempt { host: Some("evil.example"), ..attempt(Right::View, "live", None) });
    assert_eq!(granted(everybody), Some(None));
}

/// A grant is upheld by what it was proven with, and by nothing else.
#[test]
fn a_grant_is_upheld_as_long_as_the_rules_give_it() {
    let now = now();
    let access = Access::new(rules());
    let grant = |attempt: &Attempt<'_>| match access.check_at(attempt, now) {
        Verdict::Granted(grant) => grant,
        other => panic!("{other:?}"),
    };
    let header = answer(&access, 0, "anna", "sesame", now);
    let by_user = grant(&attempt(Right::View, "live", Some(&header)));
    let open = grant(&attempt(Right::View, "public", None));
    let query = rules().link_key.unwrap().query(Right::View, "live", now.wall + 1);
    let by_link = grant(&Attempt { query: Some(&query), ..attempt(Right::View, "live", None) });
    // The grants that each change of the rules withdraws: of the user, of everybody, of the link.
    type Change = fn(&mut Rules);
    let changes: [(&str, Change, [bool; 3]); 12] = [
        ("nothing", |_| {}, [true, true, true]),
        ("the user is removed", |rules| drop(rules.users.remove("anna")), [false, true, true]),
        ("another user is removed", |rules| drop(rules.users.remove("cam")), [true, true, true]),
        (
            "another password",
            |rules| rules.users.get_mut("anna").unwrap().password = Password::from_plain("anna", "open"),
            [false, true, true],
        ),
        (
            "the same password, as one hash",
            |rules| rules.users.get_mut("anna").unwrap().password.md5 = None,
            [true, true, true],
        ),
        (
            "fewer streams",
            |rules| rules.users.get_mut("anna").unwrap().rights = rights(&["other"], &["*"]),
            [false, true, true],
        ),
        (
            "fewer streams, but this one",
            |rules| rules.users.get_mut("anna").unwrap().rights = rights(&["li*"], &[]),
            [true, true, true],
        ),
        ("nothing is open", |rules| rules.anonymous = Rights::default(), [true, false, true]),
        ("everything is open", |rules| rules.anonymous = Rights::all(), [true, true, true]),
        ("another secret", |rules| rules.link_key = Some(LinkKey::new("a new secret")), [true, true, false]),
        ("no secret", |rules| rules.link_key = None, [true, true, false]),
        (
            "another secret, and everything is open",
            |rules| (rules.link_key, rules.anonymous) = (None, Rights::all()),
            [true, true, true],
        ),
    ];
    for (name, change, expected) in changes {
        let mut changed = rules();
        change(&mut changed);
        let access = access.with_rules(changed);
        assert_eq!([&by_user, &open, &by_link].map(|grant| access.upholds(grant)), expected, "{name}");
    }
    // A link in the address counts although everybody may view.
    let signed = rules().link_key.unwrap().query(Right::View, "public", now.wall + 1);
    let both = grant(&Attempt { query: Some(&signed), ..attempt(Right::View, "public", None) });
    let closed = access.with_rules(Rules { anonymous: Rights::default(), ..rules() });
    assert!(closed.upholds(&both) && !closed.upholds(&open));
}

/// Programs on this machine, by a name of the server that a reload takes away.
#[test]
fn a_local_grant_lasts_as_long_as_the_servers_name() {
    let local = |hosts: &[&str]| Rules {
        local: Rights::all(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..Rules::default()
    };
    let access = Access::new(local(&["studio.lan"]));
    let here = |host| Attempt {
        peer: SocketAddr::from(([127, 0, 0, 1], 4000)),
        host,
        ..attempt(Right::View, "live", None)
    };
    for (host, without) in [(Some("studio.lan:8080"), false), (Some("localhost:8080"), true), (None, true)] {
        let Verdict::Granted(grant) = access.check(&here(host)) else { panic!("{host:?}") };
        assert!(access.upholds(&grant), "{host:?}");
        assert_eq!(access.with_rules(local(&[])).upholds(&grant), without, "{host:?}");
        assert!(!access.with_rules(Rules::default()).upholds(&grant), "{host:?}");
    }
}
