use super::*;

/// The handshake of RFC 6455, section 1.3, changed by `edit`.
fn handshake(edit: impl FnOnce(&mut Request<()>)) -> Result<Vec<u8>, StatusCode> {
    let mut request = Request::builder()
        .uri("/cam/ws")
        .header("host", "server.example.com")
        .header("upgrade", "websocket")
        .header("connection", "keep-alive, Upgrade")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("origin", "http://server.example.com")
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    edit(&mut request);
    accept(&request, &Origins::default()).map_err(|refusal| refusal.status())
}

#[test]
fn the_handshake_of_the_rfc_is_answered_with_its_key() {
    let head = String::from_utf8(handshake(|_| {}).unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"));
}

#[test]
fn an_invalid_handshake_is_refused() {
    let without = |name: &'static str| {
        handshake(|request| {
            request.headers_mut().remove(name);
        })
    };
    assert_eq!(without("upgrade"), Err(StatusCode::UPGRADE_REQUIRED));
    assert_eq!(without("sec-websocket-version"), Err(StatusCode::UPGRADE_REQUIRED));
    assert_eq!(without("connection"), Err(StatusCode::BAD_REQUEST));
    assert_eq!(without("sec-websocket-key"), Err(StatusCode::BAD_REQUEST));
    assert_eq!(handshake(|request| *request.version_mut() = Version::HTTP_10), Err(StatusCode::BAD_REQUEST));
    assert_eq!(handshake(|request| *request.method_mut() = Method::HEAD), Err(StatusCode::UPGRADE_REQUIRED));
}

#[test]
fn only_pages_of_this_server_may_play() {
    let from = |origin: Option<&'static str>| {
        handshake(|request| {
            let headers = request.headers_mut();
            headers.remove("origin");
            if let Some(origin) = origin {
                headers.insert("origin", header::HeaderValue::from_static(origin));
            }
        })
        .map(|_| ())
    };
    assert_eq!(from(None), Ok(()));
    assert_eq!(from(Some("https://SERVER.example.com")), Ok(()));
    for origin in ["null", "http://evil.example", "http://server.example.com:8080", "server.example.com"] {
        assert_eq!(from(Some(origin)), Err(StatusCode::FORBIDDEN), "{origin}");
    }
}

#[test]
fn any_headers_are_answered() {
    bolero::check!().with_type::<[Vec<u8>; 4]>().for_each(|values| {
        let names = ["upgrade", "connection", "origin", "sec-websocket-key"];
        let _ = handshake(|request| {
            for (name, value) in names.into_iter().zip(values) {
                if let Ok(value) = header::HeaderValue::from_bytes(value) {
                    request.headers_mut().insert(name, value);
                }
            }
        });
    });
}
