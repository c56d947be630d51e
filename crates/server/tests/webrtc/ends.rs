//! The page by WebRTC when its session ends before it wants that.

use std::time::{Duration, Instant};

use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::{Access, Names, Password, Rights, Rules, User};
use freshwire_server::ingest::PatternConfig;
use serde_json::Value;

use crate::browser_driver::{Browser, Chromium};
use crate::http_rig::Server;
use crate::testing::wait_for;
use crate::{Config, PATIENCE, frames_of, served, served_again};

/// The end has to be seen by then, and the picture has to be back by then.
const SEEN: Duration = Duration::from_secs(3);
const BACK: Duration = Duration::from_secs(20);

fn path(namespaces: &Namespaces) -> Emulator {
    Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default()).unwrap()
}

fn feed(server: &Server) {
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
}

/// Opens the page, which plays by WebRTC.
fn plays(browser: &mut Chromium, server: &Server) {
    feed(server);
    browser.go(&format!("http://{}/clock?via=webrtc", server.address));
    wait_for("pictures", PATIENCE, || frames_of(browser) > 50);
    assert_eq!(browser.evaluate("[freshwire.via, freshwire.fallback]"), serde_json::json!(["WebRTC", null]));
    assert_eq!(said(browser), Value::Null);
}

/// What the page says over the picture.
fn said(browser: &mut Chromium) -> Value {
    browser.evaluate(
        "(({ hidden, textContent }) => hidden ? null : textContent)(document.getElementById('message'))",
    )
}

fn status(browser: &mut Chromium) -> Value {
    browser.evaluate("document.getElementById('status').textContent")
}

/// Waits until the page plays again, and says nothing else.
fn is_back(browser: &mut Chromium) {
    let begin = Instant::now();
    let frames = frames_of(browser);
    wait_for("further pictures", BACK, || frames_of(browser) > frames + 25);
    println!("back after {:?}, by {}", begin.elapsed(), browser.evaluate("freshwire.via"));
    assert_eq!(said(browser), Value::Null);
    assert_eq!(status(browser), "live");
}

/// It does not wait for a password that nobody enters: what it may have again is there at once.
pub(crate) fn the_page_says_why_it_lost_its_stream(namespaces: &Namespaces) {
    let _path = path(namespaces);
    let server = served(namespaces);
    let mut browser = Chromium::start(namespaces);
    plays(&mut browser, &server);
    let rights = Rights { view: Names::all(), ..Rights::default() };
    let anna = User { password: Password::from_plain("anna", "secret"), rights };
    let closed = Rules { users: [("anna".to_owned(), anna)].into(), ..Rules::default() };
    let reason = "The right to view this stream was withdrawn.";
    for (via, pause) in [("WebRTC", 7), ("WebSocket", 1)] {
        assert_eq!(browser.evaluate("freshwire.via"), via);
        server.context.set_access(Access::new(closed.clone()));
        let begin = Instant::now();
        wait_for("the reason", SEEN, || said(&mut browser) == reason);
        println!("said after {:?}", begin.elapsed());
        assert_eq!(status(&mut browser), "reconnecting");
        wait_for("the end of the session", PATIENCE, || server.sessions() == 0);
        // Pause: the page tries again, without success.
        std::thread::sleep(Duration::from_secs(pause));
        assert_eq!(said(&mut browser), reason);
        assert_eq!(status(&mut browser), "reconnecting");
        server.context.set_access(Access::open());
        is_back(&mut browser);
    }
}

pub(crate) fn the_page_outlives_the_server(namespaces: &Namespaces) {
    let _path = path(namespaces);
    let server = served(namespaces);
    let mut browser = Chromium::start(namespaces);
    plays(&mut browser, &server);
    let address = server.address;
    server.shutdown.send_replace(true);
    wait_for("the reason", SEEN, || said(&mut browser) == "The server stops.");
    assert_eq!(status(&mut browser), "reconnecting");
    server.runtime.shutdown_timeout(Duration::from_secs(2));
    let server = served_again(namespaces, Namespaces::FAR_V4, address.port());
    feed(&server);
    is_back(&mut browser);
    assert_eq!(browser.evaluate("freshwire.via"), "WebRTC");
}

/// Keeps the address of the first session. Further requests for one have no answer.
const HANGING: &str = r#"(() => {
    const real = globalThis.fetch;
    globalThis.fetch = async (url, options = {}) => {
        if (options.method !== "POST") return real(url, options);
        if (globalThis.session) {
            globalThis.hung = (globalThis.hung ?? 0) + 1;
            return new Promise((_, reject) => {
                options.signal.onabort = () => reject(options.signal.reason);
            });
        }
        const answer = await real(url, options);
        globalThis.session = new URL(answer.headers.get("location"), answer.url);
        return answer;
    };
})()"#;

/// Somebody else ends the session without a word, and the server does not answer any more.
pub(crate) fn the_page_gives_up_a_request_that_hangs(namespaces: &Namespaces) {
    let _path = path(namespaces);
    let server = served(namespaces);
    let mut browser = Chromium::start(namespaces);
    browser.before_each_page(HANGING);
    plays(&mut browser, &server);
    let ended = browser.evaluate("fetch(session, { method: 'DELETE' }).then(({ status }) => status)");
    assert_eq!(ended, 200);
    wait_for("the page to see it", SEEN, || status(&mut browser) == "reconnecting");
    wait_for("another request", SEEN, || browser.evaluate("globalThis.hung ?? 0") == 1);
    is_back(&mut browser);
    assert_eq!(browser.evaluate("[freshwire.via, hung]"), serde_json::json!(["WebSocket", 1]));
    assert!(browser.evaluate("freshwire.fallback").is_string());
}
