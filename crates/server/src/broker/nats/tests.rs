use tokio::sync::oneshot;

use super::*;

fn session(subscription: Subscription) -> Nats {
    let credentials = Some(Credentials { user: "anna".to_owned(), password: "sesame".to_owned() });
    let wish = Wish { client: "c1".to_owned(), credentials, subscription, most_value_bytes: 100 };
    Nats::new(wish, &Info { max_payload: Some(1000), ..Info::default() })
}

fn subjects() -> Nats {
    session(Subscription::Subjects { filter: "robots.>".to_owned() })
}

fn bucket() -> Nats {
    session(Subscription::Bucket { name: "STATE".to_owned(), filter: ">".to_owned() })
}

/// What the client says to this, and the events.
fn take(nats: &mut Nats, text: &str) -> Result<(String, Vec<Event>), String> {
    let (mut out, mut events) = (Vec::new(), Vec::new());
    let result = nats.take(text.as_bytes(), &mut out, &mut events);
    result.map(|()| (String::from_utf8(out).unwrap(), events)).map_err(|error| error.to_string())
}

fn events(nats: &mut Nats, text: &str) -> Vec<Event> {
    take(nats, text).unwrap().1
}

fn value(key: &str, payload: Option<&str>) -> Event {
    Event::Message { key: key.to_owned(), payload: payload.map(|text| text.as_bytes().to_vec()) }
}

fn publish(nats: &mut Nats, ticket: u64, key: &str, payload: Option<&str>) -> String {
    let (answer, _) = oneshot::channel();
    let payload = payload.map(|text| text.as_bytes().to_vec());
    let publication = Publication { key: key.to_owned(), payload, retain: false, answer };
    let mut out = Vec::new();
    nats.publish(ticket, &publication, &mut out, &mut Vec::new());
    String::from_utf8(out).unwrap()
}

#[test]
fn a_hello_says_whether_tls_is_needed() {
    assert!(Info::read(b"INFO {\"tls_required\":tr").unwrap().is_none());
    let line = b"INFO {\"tls_required\":true,\"max_payload\":9,\"x\":[1]} \r\n";
    let (info, length) = Info::read(&[&line[..], b"PING"].concat()).unwrap().unwrap();
    assert!(info.tls_required && info.max_payload == Some(9) && length == line.len());
    let long = format!("INFO {}", "x".repeat(40_000));
    for wrong in [&b"H"[..], b"INFO {\r\n", b"MSG a 1 1\r\n", b"\xff", long.as_bytes()] {
        assert!(Info::read(wrong).unwrap_err().to_string().contains("speaks no NATS"));
    }
}

#[test]
fn a_subscriber_of_subjects_says_these_lines() {
    let mut nats = subjects();
    let mut out = Vec::new();
    nats.begin(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\"user\":\"anna\"") && text.contains("\"pass\":\"sesame\""), "{text}");
    assert!(text.ends_with("\r\nSUB robots.> 1\r\nPING\r\n"), "{text}");
    assert_eq!(take(&mut nats, "PING\r\nPONG\r\n"), Ok(("PONG\r\n".to_owned(), vec![Event::Ready("NATS")])));
    let found = events(&mut nats, "MSG robots.a 1 2\r\nhi\r\nMSG robots.b 1 r 0\r\n\r\n");
    assert_eq!(found, [value("robots.a", Some("hi")), value("robots.b", None)]);
    let large = format!("MSG robots.c 1 20000\r\n{}\r\n", "x".repeat(20_000));
    assert_eq!(events(&mut nats, &large), [Event::TooLarge]);
    assert_eq!(publish(&mut nats, 5, "robots.a", Some("go")), "PUB robots.a 2\r\ngo\r\nPING\r\n");
    publish(&mut nats, 6, "robots.b", Some("go"));
    let refused = "-ERR 'Permissions Violation for Publish to \"robots.a\"'\r\nPONG\r\nPONG\r\n";
    let found = events(&mut nats, refused);
    assert!(matches!(
        &found[..],
        [Event::Answer { ticket: 5, result: Err(_) }, Event::Answer { ticket: 6, result: Ok(()) }]
    ));
}

#[test]
fn a_bucket_is_read_whole_and_then_followed() {
    let mut nats = bucket();
    nats.begin(&mut Vec::new());
    let (asked, _) = take(&mut nats, "PONG\r\n").unwrap();
    assert!(asked.starts_with("PUB $JS.API.CONSUMER.CREATE.KV_STATE _INBOX.c1.answer.consumer "), "{asked}");
    let created = "{\"num_pending\":2}";
    let created = format!("MSG _INBOX.c1.answer.consumer 2 {}\r\n{created}\r\n", created.len());
    assert_eq!(events(&mut nats, &created), [Event::Ready("NATS, key-value")]);
    let first = "MSG $KV.STATE.a.b 1 $JS.ACK.KV_STATE.x.1.7.1.99.1 1\r\n1\r\n";
    assert_eq!(events(&mut nats, first), [value("a.b", Some("1"))]);
    let end = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n";
    let last = format!(
        "HMSG $KV.STATE.c 1 $JS.ACK.domain.hash.KV_STATE.x.1.8.2.99.0.token {0} {0}\r\n{end}\r\n",
        end.len()
    );
    assert_eq!(events(&mut nats, &last), [value("c", None), Event::Whole]);
    let control = |text: &str, reply: &str| {
        let head = format!("NATS/1.0 100 {text}\r\n\r\n");
        format!("HMSG _INBOX.c1.value 1 {reply}{0} {0}\r\n{head}\r\n", head.len())
    };
    let answer = take(&mut nats, &control("FlowControl Request", "$fc ")).unwrap().0;
    assert_eq!(answer, "PUB $fc 0\r\n\r\n");
    let beat = |last: u64| control(&format!("Idle Heartbeat\r\nNats-Last-Consumer: {last}"), "");
    assert_eq!(take(&mut nats, &beat(2)), Ok((String::new(), Vec::new())));
    assert!(take(&mut nats, &beat(3)).unwrap_err().contains("read anew"));
}

#[test]
fn a_gap_in_a_bucket_is_noticed() {
    let mut nats = bucket();
    let skipped = "MSG $KV.STATE.a 1 $JS.ACK.KV_STATE.x.1.7.2.99.0 1\r\n1\r\n";
    assert!(take(&mut nats, skipped).unwrap_err().contains("read anew"));
    let other = "MSG $KV.OTHER.a 1 $JS.ACK.KV_STATE.x.1.7.1.99.0 1\r\n1\r\n";
    assert!(take(&mut bucket(), other).unwrap_err().contains("another bucket"));
}

#[test]
fn publications_to_a_bucket_are_confirmed_by_the_stream() {
    let mut nats = bucket();
    let said = publish(&mut nats, 5, "a", Some("go"));
    assert_eq!(said, "PUB $KV.STATE.a _INBOX.c1.answer.p5 2\r\ngo\r\n");
    let said = publish(&mut nats, 6, "a", None);
    assert!(said.starts_with("HPUB $KV.STATE.a _INBOX.c1.answer.p6 "), "{said}");
    let answers = "MSG _INBOX.c1.answer.p5 2 9\r\n{\"seq\":1}\r\nHMSG _INBOX.c1.answer.p6 2 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
    let found = events(&mut nats, answers);
    assert!(matches!(
        &found[..],
        [Event::Answer { ticket: 5, result: Ok(()) }, Event::Answer { ticket: 6, result: Err(_) }]
    ));
}

#[test]
fn a_user_that_may_not_publish_hears_so_at_once() {
    let mut nats = bucket();
    for (ticket, key) in [(5, "a"), (6, "a.b"), (7, "a.b"), (8, "c")] {
        publish(&mut nats, ticket, key, Some("go"));
    }
    for (key, answered) in [("a.b", Some(6)), ("b", None), ("a.b", Some(7)), ("a.b", None), ("a", Some(5))] {
        let refused = format!("-ERR 'Permissions Violation for Publish to \"$KV.STATE.{key}\"'\r\n");
        // What concerns no publication is about the subscription, until that is established.
        nats.talk.bucket.is_ready = true;
        let found = events(&mut nats, &refused);
        let is_refusal = |event: &Event| match event {
            Event::Answer { ticket, result: Err(why) } => {
                Some(*ticket) == answered && why.contains("Violation")
            }
            _ => false,
        };
        assert!(
            found.len() == usize::from(answered.is_some()) && found.iter().all(is_refusal),
            "{key}: {found:?}"
        );
    }
}

/// Publications that nobody answers leave nothing behind once they have been given up.
#[test]
fn publications_that_are_given_up_are_forgotten() {
    let mut nats = bucket();
    for ticket in 0..100 {
        publish(&mut nats, ticket, "a", Some("go"));
    }
    (0..99).for_each(|ticket| nats.give_up(ticket));
    assert_eq!(nats.talk.unconfirmed.len(), 1);
    let late =
        "MSG _INBOX.c1.answer.p5 2 9\r\n{\"seq\":1}\r\nMSG _INBOX.c1.answer.p99 2 9\r\n{\"seq\":2}\r\n";
    assert_eq!(events(&mut nats, late), [Event::Answer { ticket: 99, result: Ok(()) }]);
    let mut nats = subjects();
    for ticket in 0..3 {
        publish(&mut nats, ticket, "a", Some("go"));
    }
    nats.give_up(0);
    nats.give_up(1);
    let refused = "-ERR 'Permissions Violation for Publish to \"a\"'\r\nPONG\r\nPONG\r\nPONG\r\n";
    assert!(matches!(&events(&mut nats, refused)[..], [Event::Answer { ticket: 2, result: Err(_) }]));
}

#[test]
fn refusals_say_what_to_do() {
    for (mut nats, said, why) in [
        (subjects(), "-ERR 'Authorization Violation'\r\n", "user and password"),
        (
            subjects(),
            "-ERR 'Permissions Violation for Subscription to \"robots.>\"'\r\n",
            "what the user may read",
        ),
        (subjects(), "-ERR 'Slow Consumer'\r\n", "Slow Consumer"),
        (subjects(), "hello\r\n", "speaks no NATS"),
        (subjects(), "MSG a 9 1\r\nx\r\n", "no subscription"),
        (bucket(), "-ERR 'Permissions Violation for Publish to \"$JS.API\"'\r\n", "the bucket STATE"),
        (
            bucket(),
            "MSG _INBOX.c1.answer.consumer 2 55\r\n{\"error\":{\"code\":404,\"description\":\"stream not found\"}}\r\n",
            "no such bucket",
        ),
    ] {
        let error = take(&mut nats, said).unwrap_err();
        assert!(error.contains(why), "{said:?}: {error}");
    }
}

#[test]
fn any_bytes_of_a_server_are_events_or_an_error() {
    bolero::check!().with_type::<(bool, Vec<Vec<u8>>)>().for_each(|(is_bucket, pieces)| {
        let mut nats = if *is_bucket { bucket() } else { subjects() };
        nats.begin(&mut Vec::new());
        for piece in pieces {
            let _ = Info::read(piece);
            if nats.take(piece, &mut Vec::new(), &mut Vec::new()).is_err() {
                break;
            }
        }
    });
}
