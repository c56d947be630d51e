use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn rights(view: &[&str], publish: &[&str]) -> Rights {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Rights { view: names(view), publish: names(publish) }
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
        peer: IpAddr::from([192, 0, 2, 1]),
        host: None,
    }
}

/// What a client answers to the challenge at this place.
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

fn granted(user: &str) -> Verdict {
    Verdict::Granted { user: Some(user.to_owned()) }
}

#[test]
fn a_client_answers_the_first_challenge() {
    let challenges = digest::challenges("n1", false);
    let uri = "/live.fw?a=1";
    let header = digest::answer(&challenges[0], "anna", "sesame", "GET", uri).expect("ours");
    let Some(Authorization::Digest(given)) = digest::parse(&header) else { panic!("{header}") };
    let stored = Password::from_plain("anna", "sesame");
    let expected = given.response_for(stored.sha256.as_deref().unwrap(), "GET");
    assert_eq!((given.response.as_str(), given.is_for(uri)), (expected.as_str(), true));
    assert_eq!(digest::answer(&challenges[1], "anna", "sesame", "GET", uri), None);
    assert_eq!(digest::answer(&challenges[0], "an\"na", "sesame", "GET", uri), None);
}

#[test]
fn each_challenge_can_be_answered() {
    let (access, now) = (Access::new(rules()), now());
    for place in [0, 1] {
        let header = answer(&access, place, "anna", "sesame", now);
        assert_eq!(access.check_at(&attempt(Right::View, "live", Some(&header)), now), granted("anna"));
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
    assert_eq!(access.check_at(&encrypted, now), granted("anna"));
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
    assert_eq!(check(Right::Publish, "cam1", "cam"), granted("cam"));
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
    assert_eq!(public, Verdict::Granted { user: None });
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
    assert_eq!(reloaded.check_at(&attempt(Right::View, "live", Some(&header)), now), granted("anna"));
    let restarted = Access::new(rules());
    let Verdict::Challenge(challenges) =
        restarted.check_at(&attempt(Right::View, "live", Some(&header)), now)
    else {
        panic!("no challenge");
    };
    assert!(challenges[0].ends_with("stale=true"));
}

#[test]
fn who_fails_too_often_waits_even_with_the_right_password() {
    let (access, now) = (Access::new(rules()), now());
    let wrong = answer(&access, 0, "anna", "guess", now);
    let right = answer(&access, 0, "anna", "sesame", now);
    for _ in 0..10 {
        access.check_at(&attempt(Right::View, "live", Some(&wrong)), now);
    }
    let again = attempt(Right::View, "live", Some(&right));
    assert_eq!(access.check_at(&again, now), Verdict::Denied(THROTTLED));
    assert_eq!(access.with_rules(rules()).check_at(&again, now), Verdict::Denied(THROTTLED));
    let other = Attempt { peer: IpAddr::from([192, 0, 2, 2]), ..again };
    assert_eq!(access.check_at(&other, now), granted("anna"));
    let later = Now { monotonic: now.monotonic + MINUTE, ..now };
    assert_eq!(access.check_at(&again, later), granted("anna"));
}

#[test]
fn a_signed_link_lets_in_until_it_expires() {
    let (access, now) = (Access::new(rules()), now());
    let query = rules().link_key.unwrap().query(Right::View, "live", now.wall + 10);
    let with_link = Attempt { query: Some(&query), ..attempt(Right::View, "live", None) };
    assert_eq!(access.check_at(&with_link, now), Verdict::Granted { user: None });
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
        let local = Attempt { peer: peer.parse().unwrap(), ..outside };
        assert_eq!(closed.check(&local), Verdict::Granted { user: None });
    }
    assert_eq!(Access::open().check(&outside), Verdict::Granted { user: None });
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
        assert_eq!(access.check_at(&attempt(Right::View, "live", Some(&header)), now), granted("anna"));
        let other = answer(&access, 1 - place, "anna", "sesame", now);
        let verdict = access.check_at(&attempt(Right::View, "live", Some(&other)), now);
        assert!(matches!(verdict, Verdict::Challenge(_)));
        let basic =
            Attempt { encrypted: true, ..attempt(Right::View, "live", Some("Basic YW5uYTpzZXNhbWU=")) };
        assert_eq!(access.check_at(&basic, now), granted("anna"));
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
        let attempt = Attempt { peer: IpAddr::from([127, 0, 0, 1]), ..attempt(Right::View, "live", None) };
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
        assert_eq!(called(Some(host)), Verdict::Granted { user: None }, "{host}");
    }
    for host in
        ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b"]
    {
        assert_eq!(called(Some(host)), Verdict::Denied(UNKNOWN_HOST), "{host}");
    }
    assert_eq!(called(None), Verdict::Granted { user: None });
    let everybody =
        Access::open().check(&Attempt { host: Some("evil.example"), ..attempt(Right::View, "live", None) });
    assert_eq!(everybody, Verdict::Granted { user: None });
}
