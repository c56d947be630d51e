use super::*;

fn client_of(count: &str, nonce: &str) -> Client {
    let number = u32::from_str_radix(count, 16).unwrap();
    Client { written: count.to_owned(), count: number, nonce: nonce.to_owned() }
}

fn digest(algorithm: Algorithm, nonce: &str, client: Option<(&str, &str)>) -> Digest {
    Digest {
        username: "Mufasa".to_owned(),
        nonce: nonce.to_owned(),
        uri: "/dir/index.html".to_owned(),
        response: String::new(),
        algorithm,
        client: client.map(|(count, nonce)| client_of(count, nonce)),
    }
}

/// RFC 7616, section 3.9.1.
#[test]
fn the_answers_of_rfc_7616() {
    let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
    let client = Some(("00000001", "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"));
    for (algorithm, expected) in [
        (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
        (Algorithm::Sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ] {
        let password = algorithm.hash(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
        assert_eq!(digest(algorithm, nonce, client).response_for(&password, "GET"), expected);
    }
}

/// RFC 2069, section 2.4, as corrected by its erratum 749.
#[test]
fn the_answer_of_rfc_2069() {
    let password = Algorithm::Md5.hash(&["Mufasa", "testrealm@host.com", "CircleOfLife"]);
    let digest = digest(Algorithm::Md5, "dcd98b7102dd2f0e8b11d0f600bfb0c093", None);
    assert_eq!(digest.response_for(&password, "GET"), "1949323746fe6a43ef61f9606e7febea");
}

#[test]
fn a_header_as_clients_write_it() {
    let header = "Digest username=\"a \\\"b\\\"\", realm=\"freshwire\",nonce = \"n,1\" , uri=\"rtsp://h/live\", \
                  response=\"ABCD\", algorithm=MD5, qop=auth, nc=00000001, cnonce=\"c\", opaque=\"\"";
    let Some(Authorization::Digest(digest)) = parse(header) else { panic!("not understood") };
    assert_eq!((digest.username.as_str(), digest.nonce.as_str()), ("a \"b\"", "n,1"));
    assert_eq!((digest.uri.as_str(), digest.response.as_str()), ("rtsp://h/live", "abcd"));
    assert_eq!(digest.client, Some(client_of("00000001", "c")));
    let basic = Authorization::Basic { username: "Aladdin".to_owned(), password: "open sesame".to_owned() };
    assert_eq!(parse("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), Some(basic));
}

#[test]
fn a_header_that_is_none() {
    let complete = "username=\"a\", realm=\"freshwire\", nonce=\"n\", uri=\"/\", response=\"r\"";
    assert!(parse(&format!("Digest {complete}")).is_some());
    for header in [
        "",
        "Digest",
        "Bearer abc",
        "Basic !",
        "Basic bm9jb2xvbg==",
        "Digest username=\"a",
        "Digest username=\"a\\",
        "Digest username=\"a\" realm",
        &format!("Digest {complete}, nonce=\"m\""),
        &format!("Digest {complete}, algorithm=SHA-512-256"),
        &format!("Digest {complete}, qop=auth"),
        &format!("Digest {complete}, qop=auth, nc=x, cnonce=c"),
        &format!("Digest {complete}, qop=auth-int, nc=1, cnonce=c"),
        &format!("Digest {}", complete.replace("freshwire", "elsewhere")),
        &format!("Digest {}", (0..100).map(|n| format!("p{n}=1,")).collect::<String>()),
    ] {
        assert_eq!(parse(header), None, "{header}");
    }
}

#[test]
fn a_response_is_for_its_own_presentation() {
    let for_uri = |uri: &str| Digest { uri: uri.to_owned(), ..digest(Algorithm::Md5, "n", None) };
    for (signed, requested) in [
        ("rtsp://host:8554/live", "rtsp://host:8554/live"),
        ("rtsp://host/live/", "rtsp://host:8554/live/trackID=0"),
        ("/live/trackID=1", "rtsp://host/live?expires=1"),
        ("*", "*"),
        ("rtsp://host", "rtsp://host/"),
    ] {
        assert!(for_uri(signed).is_for(requested, ""), "{signed} {requested}");
    }
    for (signed, requested) in
        [("/live", "/live2"), ("/", "/live"), ("rtsp://host", "/live"), ("/a/b", "/a/c")]
    {
        assert!(!for_uri(signed).is_for(requested, ""), "{signed} {requested}");
    }
}

#[test]
fn a_client_behind_a_proxy_signs_the_path_that_it_sees() {
    let is_for = |signed: &str, requested| {
        Digest { uri: signed.to_owned(), ..digest(Algorithm::Md5, "n", None) }.is_for(requested, "/cam")
    };
    assert!(
        is_for("/cam/live", "/live") && is_for("/live", "/live") && is_for("https://host/cam/live", "/live")
    );
    assert!(is_for("/cam/", "/") && !is_for("/cam/live", "/live2") && !is_for("/camera/live", "/live"));
}

#[test]
fn no_header_and_no_address_makes_it_panic() {
    bolero::check!().with_type::<(String, String)>().for_each(|(header, uri)| {
        let _ = parse(header);
        for scheme in ["Digest ", "Basic "] {
            let parsed = parse(&format!("{scheme}{header}"));
            if let Some(Authorization::Digest(digest)) = parsed {
                digest.is_for(uri, "/a");
                digest.response_for("", uri);
            }
        }
        digest(Algorithm::Md5, header, None).is_for(uri, "");
    });
}
