//! Properties one by one: which location they fit, and what an error shows of them. No data flows.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Once;

use gst::prelude::*;

/// When a test counts as hanging.
const PATIENCE: gst::ClockTime = gst::ClockTime::from_seconds(60);

fn begin() {
    static REGISTERED: Once = Once::new();
    gst::init().unwrap();
    REGISTERED.call_once(|| gstfreshwire::plugin_register_static().unwrap());
}

fn make(factory: &str) -> gst::Element {
    gst::ElementFactory::make(factory).build().unwrap()
}

/// What an element says on its way to PAUSED, with the details that `gst-launch-1.0` prints. It posts an error before it returns.
fn refusal(element: &gst::Element) -> String {
    said(element, |bus| bus.pop_filtered(&[gst::MessageType::Error]))
}

fn said(element: &gst::Element, pop: impl FnOnce(&gst::Bus) -> Option<gst::Message>) -> String {
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    let _ = element.set_state(gst::State::Paused);
    let message = pop(&bus);
    element.set_state(gst::State::Null).unwrap();
    message.as_deref().map(words).unwrap_or_default()
}

fn words(message: &gst::MessageRef) -> String {
    let gst::MessageView::Error(error) = message.view() else { return String::new() };
    format!("{} {}", error.error(), error.debug().unwrap_or_default())
}

/// A property, a value that is not its default, and the places that it has an effect at.
type Row = (&'static str, &'static str, &'static [&'static str]);

const SINK: &[Row] = &[
    ("stream-name", "door", &["server"]),
    ("listen-rtsp", "127.0.0.1:0", &["server"]),
    ("listen-http", "127.0.0.1:0", &["server"]),
    ("open", "true", &["server"]),
    ("config", "/nowhere.toml", &["server"]),
    ("mode", "listener", &["tcp", "a1"]),
    ("peer-key", "ab", &["a1"]),
    ("key-file", "/nowhere", &["a1"]),
    ("psk-file", "/nowhere", &["a1"]),
    ("policy", "fifo", &["tcp", "a1"]),
    ("deadline", "40", &["tcp", "a1"]),
    ("framing", "chunked", &["tcp"]),
    ("congestion", "reno", &["tcp"]),
    ("timeout", "100", &["tcp", "a1"]),
    ("drain-timeout", "100", &["tcp", "a1"]),
    ("sync", "false", &["server", "tcp", "a1"]),
];

const SOURCE: &[Row] = &[
    // A listener at http:// is refused in other words.
    ("mode", "listener", &["tcp", "a1", "http"]),
    ("peer-key", "ab", &["a1"]),
    ("key-file", "/nowhere", &["a1"]),
    ("psk-file", "/nowhere", &["a1"]),
    ("codec", "h264", &["tcp", "a1", "http"]),
    ("framing", "chunked", &["tcp"]),
    ("timeout", "100", &["tcp", "a1", "http"]),
    ("latency", "40", &["a1"]),
];

/// A place and the properties that lead there. Nothing is waited for: a listener is ready at once, and the stream's name is refused.
type Place = (&'static str, &'static [(&'static str, &'static str)]);

const TCP: Place = ("tcp", &[("location", "tcp://127.0.0.1:0"), ("mode", "listener")]);
const A1: Place = ("a1", &[("location", "a1://127.0.0.1:0"), ("mode", "listener")]);
const SERVER: Place = ("server", &[("listen-rtsp", "127.0.0.1:0"), ("listen-http", "none")]);
const HTTP: Place = ("http", &[("location", "http://127.0.0.1:1/live.ts")]);

#[test]
fn a_property_that_does_not_fit_the_location_is_refused() {
    begin();
    for (factory, rows, places) in
        [("freshwiresink", SINK, [SERVER, TCP, A1]), ("freshwiresrc", SOURCE, [TCP, A1, HTTP])]
    {
        let element = make(factory);
        for spec in element.list_properties().iter().filter(|spec| spec.owner_type() == element.type_()) {
            let is_listed = spec.name() == "location" || rows.iter().any(|(name, ..)| *name == spec.name());
            assert!(is_listed || !spec.flags().contains(gst::glib::ParamFlags::WRITABLE), "{spec:?}");
        }
        for (place, base) in places {
            for (name, value, fits) in rows {
                let element = make(factory);
                for (name, value) in base {
                    element.set_property_from_str(name, value);
                }
                element.set_property_from_str(name, value);
                let refusal = refusal(&element);
                let is_refused = refusal.contains(&format!("{name} is for "));
                assert_eq!(is_refused, !fits.contains(&place), "{factory} {place} {name}: {refusal}");
                assert!(!is_refused || refusal.contains(&format!("{name} out")), "{refusal}");
            }
        }
    }
}

/// As the test of the same name in the command.
#[test]
fn no_error_has_a_password() {
    begin();
    let addresses = [
        "http://anna:sesame@nowhere.invalid:1/live",
        "http://anna:sesame@nowhere.invalid:1/live.fw",
        "http://anna:sesame@127.0.0.1:1/live.fw",
        "http://anna:ses/ame@nowhere.invalid/live.fw",
        "http://anna:ses?ame@nowhere.invalid/live.fw",
        "http://anna:ses?a/me@nowhere.invalid/live.fw",
        "http://anna:sesame@nowhere.invalid/a b.fw",
        "https://anna:sesame@nowhere.invalid:1/live.fw",
        "anna:sesame@nowhere.invalid:1",
        "anna:sesame@nowhere.invalid",
        "anna:se://same@nowhere.invalid",
        "tcp://anna:sesame@nowhere.invalid:1",
        "tcp://anna:sesame@nowhere.invalid",
        "a1://anna:sesame@nowhere.invalid:1",
        "a1://anna:ses/ame@nowhere.invalid",
        "rtsp://anna:sesame@nowhere.invalid/live",
        "freshwire://anna:sesame@nowhere.invalid:1",
        "freshwire://anna:sesame@127.0.0.1:1/live",
        "freshwire://anna:ses/ame@nowhere.invalid/live",
        "freshwire://anna:ses?ame@nowhere.invalid/live",
        "freshwire://anna:sesame@nowhere.invalid/live?latency=soon",
    ];
    let clean = |said: &str, place: &str| {
        let secrets = ["sesame", "ses/", "ses?", "same", "anna", "\"ses"];
        let shown = secrets.into_iter().find(|secret| said.contains(secret));
        assert_eq!(shown, None, "{place}: {said}");
    };
    for address in addresses {
        for (factory, property) in [
            ("freshwiresrc", "location"),
            ("freshwiresink", "location"),
            ("freshwiresink", "listen-http"),
            ("freshwiresink", "listen-rtsp"),
        ] {
            for mode in ["caller", "listener"] {
                let element = make(factory);
                element.set_property(property, address);
                if property == "location" {
                    element.set_property_from_str("mode", mode);
                    element.set_property("timeout", 1_u32);
                }
                let said = refusal(&element);
                assert!(!said.is_empty(), "{factory} {property} {address} is refused");
                clean(&said, &format!("{factory} {property}={address}"));
            }
        }
        // Other plugins have the other schemes.
        if !["a1://", "freshwire://"].iter().any(|scheme| address.starts_with(scheme)) {
            continue;
        }
        for kind in [gst::URIType::Src, gst::URIType::Sink] {
            match gst::Element::make_from_uri(kind, address, None) {
                Err(error) => clean(&error.to_string(), address),
                Ok(element) if kind == gst::URIType::Src => {
                    element.set_property("timeout", 1_u32);
                    clean(&refusal(&element), address);
                }
                Ok(element) => panic!("{element:?} has a user"),
            }
        }
        let decoder = make("uridecodebin");
        decoder.set_property("uri", address);
        let said = said(&decoder, |bus| bus.timed_pop_filtered(PATIENCE, &[gst::MessageType::Error]));
        assert!(!said.is_empty(), "uridecodebin {address} is refused");
        clean(&said, &format!("uridecodebin {address}"));
    }
}
