use tokio::sync::oneshot;

use super::*;

fn session(version: MqttVersion) -> Mqtt {
    Mqtt::new(Wish {
        version,
        client: "freshwire1".to_owned(),
        credentials: Some(Credentials { user: "anna".to_owned(), password: "sesame".to_owned() }),
        filter: "a/#".to_owned(),
        most_value_bytes: 100,
    })
}

/// A connection that has been accepted.
fn connected(version: MqttVersion) -> Mqtt {
    let mut mqtt = session(version);
    let (mut out, mut events) = (Vec::new(), Vec::new());
    mqtt.begin(&mut out);
    let accepted: &[u8] =
        if version == MqttVersion::V5 { b"\x20\x03\x00\x00\x00" } else { b"\x20\x02\x00\x00" };
    out.clear();
    mqtt.take(accepted, &mut out, &mut events).unwrap();
    assert!(events.is_empty() && out.starts_with(b"\x82"), "{out:?}");
    mqtt
}

fn take(mqtt: &mut Mqtt, bytes: &[u8]) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    mqtt.take(bytes, &mut Vec::new(), &mut events).map(|()| events).map_err(|error| error.to_string())
}

fn publication(retain: bool, payload: Option<&[u8]>) -> Publication {
    let (answer, _) = oneshot::channel();
    Publication { key: "a/b".to_owned(), payload: payload.map(<[u8]>::to_vec), retain, answer }
}

#[test]
fn a_subscriber_says_these_bytes() {
    let mut out = Vec::new();
    session(MqttVersion::V3).begin(&mut out);
    assert_eq!(out, b"\x10\x24\x00\x04MQTT\x04\xc2\x00\x1e\x00\x0afreshwire1\x00\x04anna\x00\x06sesame");
    out.clear();
    session(MqttVersion::V5).begin(&mut out);
    assert_eq!(out, b"\x10\x25\x00\x04MQTT\x05\xc2\x00\x1e\x00\x00\x0afreshwire1\x00\x04anna\x00\x06sesame");
    out.clear();
    session(MqttVersion::V5).take(b"\x20\x03\x00\x00\x00", &mut out, &mut Vec::new()).unwrap();
    assert_eq!(out, b"\x82\x09\x00\x01\x00\x00\x03a/#\x00");
    out.clear();
    let mut mqtt = connected(MqttVersion::V3);
    mqtt.publish(7, &publication(true, Some(b"1")), &mut out, &mut Vec::new());
    assert_eq!(out, b"\x33\x08\x00\x03a/b\x00\x021");
    out.clear();
    mqtt.publish(8, &publication(false, None), &mut out, &mut Vec::new());
    assert_eq!(out, b"\x33\x07\x00\x03a/b\x00\x03", "a deletion is retained");
}

#[test]
fn messages_are_values_and_deletions() {
    let message = |key: &str, payload: Option<&[u8]>| Event::Message {
        key: key.to_owned(),
        payload: payload.map(<[u8]>::to_vec),
    };
    let mut mqtt = connected(MqttVersion::V5);
    assert_eq!(take(&mut mqtt, b"\x90\x04\x00\x01\x00\x00"), Ok(vec![Event::Ready("MQTT 5")]));
    let two = b"\x31\x07\x00\x03a/b\x001\x30\x0b\x00\x03a/c\x05\x01\x01\x0b\x80\x01";
    assert_eq!(take(&mut mqtt, two), Ok(vec![message("a/b", Some(b"1")), message("a/c", None)]));
    assert_eq!(take(&mut mqtt, b"\x30\x05\x00\x02\xff\xfe\x00"), Ok(vec![Event::BadKey]));
    assert_eq!(take(&mut mqtt, b"\xd0\x00"), Ok(Vec::new()));
    let error = take(&mut mqtt, b"\xe0\x06\x8b\x04\x1f\x00\x01\x1b").unwrap_err();
    assert!(error.contains("gives no reason"), "{error:?}");
    let mut mqtt = connected(MqttVersion::V3);
    assert_eq!(take(&mut mqtt, b"\x90\x03\x00\x01\x00"), Ok(vec![Event::Ready("MQTT 3.1.1")]));
    assert_eq!(take(&mut mqtt, b"\x30\x06\x00\x03a/b1"), Ok(vec![message("a/b", Some(b"1"))]));
    let large = [b"\x30\xff\xff\x03".as_slice(), &[0; 0xffff]].concat();
    assert_eq!(take(&mut mqtt, &large), Ok(vec![Event::TooLarge]));
    assert_eq!(take(&mut mqtt, b"\x30\x06\x00\x03a/b2"), Ok(vec![message("a/b", Some(b"2"))]));
}

#[test]
fn publications_are_confirmed_by_their_packets() {
    let mut mqtt = connected(MqttVersion::V5);
    let mut out = Vec::new();
    for ticket in [10, 11] {
        mqtt.publish(ticket, &publication(false, Some(b"1")), &mut out, &mut Vec::new());
    }
    let answer =
        |ticket, result: Result<(), &str>| Event::Answer { ticket, result: result.map_err(str::to_owned) };
    assert_eq!(take(&mut mqtt, b"\x40\x02\x00\x03"), Ok(vec![answer(11, Ok(()))]));
    assert_eq!(take(&mut mqtt, b"\x40\x03\x00\x02\x87"), Ok(vec![answer(10, Err("not authorized"))]));
    assert_eq!(take(&mut mqtt, b"\x40\x02\x00\x09"), Ok(Vec::new()), "of nothing that was sent");
    let mut modest = session(MqttVersion::V5);
    let (mut out, mut events) = (Vec::new(), Vec::new());
    modest.take(b"\x20\x07\x00\x00\x04\x24\x00\x25\x00", &mut out, &mut events).unwrap();
    modest.publish(1, &publication(false, Some(b"1")), &mut out, &mut events);
    modest.publish(2, &publication(true, Some(b"1")), &mut out, &mut events);
    assert!(matches!(
        &events[..],
        [Event::Answer { ticket: 1, result: Ok(()) }, Event::Answer { ticket: 2, result: Err(_) }]
    ));
}

/// More publications than there are numbers, at a broker that confirms none of them.
#[test]
fn numbers_of_publications_do_not_run_out() {
    let mut mqtt = connected(MqttVersion::V5);
    for ticket in 0..200_000 {
        mqtt.publish(ticket, &publication(false, None), &mut Vec::new(), &mut Vec::new());
        if let Some(late) = ticket.checked_sub(15) {
            mqtt.give_up(late);
        }
    }
    assert_eq!(mqtt.talk.unconfirmed.len(), 15);
}

#[test]
fn refusals_say_what_to_do() {
    for (version, answer, why) in [
        (MqttVersion::V5, &b"\x20\x03\x00\x86\x00"[..], "bad user or password"),
        (MqttVersion::V5, b"\x20\x08\x00\x87\x05\x1f\x00\x02no", "user and password (no)"),
        (MqttVersion::V5, b"\x20\x02\x00\x01", "version of MQTT"),
        (MqttVersion::V5, b"\x20\x03\x00\x84\x00", "version of MQTT"),
        (MqttVersion::V5, b"\x20\x03\x00\x9f\x00", "refuses the connection: connections come too often"),
        (MqttVersion::V3, b"\x20\x02\x00\x05", "not authorized"),
        (MqttVersion::V3, b"\x20\x02\x00\x02", "identifier is not valid"),
        (MqttVersion::V3, b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks no MQTT"),
        (MqttVersion::V5, b"\x15\x03\x03\x00\x02\x02\x0a", "port is one for TLS"),
        (MqttVersion::V5, b"\x30\x03\x00\x01a", "speaks no MQTT"),
    ] {
        let error = take(&mut session(version), answer).unwrap_err();
        assert!(error.contains(why), "{answer:?}: {error}");
    }
    for (answer, why) in [
        (&b"\x90\x04\x00\x01\x00\x87"[..], "subscription to a/#: not authorized"),
        (b"\x90\x04\x00\x01\x00\xa2", "wildcards are not allowed"),
        (b"\x32\x08\x00\x03a/b\x00\x01\x00", "QoS that was not subscribed"),
        (b"\x30\x09\x00\x03a/b\x03\x23\x00\x01", "alias"),
        (b"\x30\x02\x00\x09", "shorter than its content"),
        (b"\x10\x00", "kind that a broker does not send"),
    ] {
        let error = take(&mut connected(MqttVersion::V5), answer).unwrap_err();
        assert!(error.contains(why), "{answer:?}: {error}");
    }
}

#[test]
fn any_bytes_of_a_broker_are_events_or_an_error() {
    bolero::check!().with_type::<(bool, bool, Vec<Vec<u8>>)>().for_each(|(is_v5, is_connected, pieces)| {
        let version = if *is_v5 { MqttVersion::V5 } else { MqttVersion::V3 };
        let mut mqtt = if *is_connected { connected(version) } else { session(version) };
        for piece in pieces {
            match take(&mut mqtt, piece) {
                Ok(events) => {
                    let is_bounded = |event: &Event| match event {
                        Event::Message { payload: Some(payload), .. } => payload.len() <= 100 + SYNTAX_BYTES,
                        _ => true,
                    };
                    assert!(events.iter().all(is_bounded));
                }
                Err(_) => break,
            }
        }
    });
}
