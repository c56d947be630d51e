//! WebRTC with real browsers: they view by WHEP and publish by WHIP.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod browser_driver;
#[path = "webrtc/ends.rs"]
mod ends;
mod http_rig;
mod testing;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use browser_driver::{Browser, Chromium, Firefox};
use freshwire_link::{Config, Loss};
use freshwire_netns::testing::namespaces;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::ingest::{self, CLOCK_CELLS, Outlet, PatternConfig, Source};
use freshwire_server::webrtc::WebRtc;
use http_rig::Server;
use serde_json::Value;
use testing::{is_there, wait_for};

fn main() -> ExitCode {
    if !is_there("ffmpeg") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("FRESHWIRE_TEST_LOG").is_some() {
        tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
    }
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    let tests: [(_, _, fn(&Namespaces)); 10] = [
        ("chromium", "chromium_views_without_going_backwards", chromium_views_without_going_backwards),
        ("chromium", "chromium_views_over_tcp", chromium_views_over_tcp),
        ("chromium", "chromium_publishes_its_camera", chromium_publishes_its_camera),
        ("chromium", "the_page_uses_webrtc_in_chromium", the_page_uses_webrtc_in_chromium),
        (
            "firefox-esr",
            "firefox_gets_the_high_profile_by_websocket",
            firefox_gets_the_high_profile_by_websocket,
        ),
        ("chromium", "the_page_goes_over_to_websocket", the_page_goes_over_to_websocket),
        ("chromium", "the_page_says_why_it_lost_its_stream", ends::the_page_says_why_it_lost_its_stream),
        ("chromium", "the_page_outlives_the_server", ends::the_page_outlives_the_server),
        ("chromium", "the_page_gives_up_a_request_that_hangs", ends::the_page_gives_up_a_request_that_hangs),
        ("chromium", "a_lossy_path_shows_fresh_pictures", a_lossy_path_shows_fresh_pictures),
    ];
    for (program, name, test) in tests {
        if name.contains(&filter) && is_there(program) {
            test(&namespaces);
            println!("ok: {name}");
        }
    }
    ExitCode::SUCCESS
}

const PATIENCE: Duration = Duration::from_secs(30);

/// A page that views `clock` by WHEP, without the server's own script.
const VIEW: &str = r#"(async () => {
    if (document.readyState !== "complete") await new Promise((loaded) => addEventListener("load", loaded));
    const seen = globalThis.seen = { frames: 0, backwards: 0, states: [], newest: null };
    const peer = globalThis.peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
    peer.addTransceiver("video", { direction: "recvonly" });
    peer.addTransceiver("audio", { direction: "recvonly" });
    peer.onconnectionstatechange = () => seen.states.push(peer.connectionState);
    const video = document.body.appendChild(document.createElement("video"));
    Object.assign(video, { muted: true, autoplay: true, playsInline: true });
    peer.ontrack = ({ track, streams }) => {
        if (track.kind === "video") video.srcObject = new MediaStream([track]);
    };
    const shown = (now, frame) => {
        seen.frames += 1;
        if (seen.newest !== null && (frame.rtpTimestamp - seen.newest | 0) < 0) seen.backwards += 1;
        seen.newest = frame.rtpTimestamp;
        video.requestVideoFrameCallback(shown);
    };
    video.requestVideoFrameCallback(shown);
    await peer.setLocalDescription();
    const answer = await fetch("/clock/whep", {
        method: "POST", headers: { "content-type": "application/sdp" }, body: peer.localDescription.sdp,
    });
    seen.status = answer.status;
    seen.location = answer.headers.get("location");
    const sdp = await answer.text();
    seen.offer = peer.localDescription.sdp;
    seen.answer = sdp;
    if (answer.ok) await peer.setRemoteDescription({ type: "answer", sdp });
    return { status: seen.status, location: seen.location, sdp };
})()"#;

/// A stream with B pictures that others refer to plays, and no picture is shown after one that follows it.
fn chromium_views_without_going_backwards(namespaces: &Namespaces) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    let server = served(namespaces);
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
    let mut browser = Chromium::start(namespaces);
    browser.go(&format!("http://{}/", server.address));
    wait_for("the source", PATIENCE, || {
        server.context.hub.find("clock").is_some_and(|stream| stream.tracks().borrow().is_some())
    });
    let answer = browser.evaluate(VIEW);
    assert_eq!(answer["status"], 201, "{answer}: {}", browser.evaluate("seen.offer").as_str().unwrap());
    wait_for("pictures", PATIENCE, || browser.evaluate("seen.frames").as_u64() > Some(50));
    let seen = browser.evaluate("({ ...seen, offer: null, answer: null })");
    println!("{seen}");
    let stats = browser.evaluate(
        "peer.getStats().then((all) => [...all.values()].filter(({ type }) => type === 'inbound-rtp'))",
    );
    println!("{stats:#}");
    assert_eq!(seen["backwards"], 0, "{seen}");
    assert_eq!(seen["states"].as_array().and_then(|states| states.last()), Some(&Value::from("connected")));
}

/// Where datagrams do not come through, candidates of TCP do.
fn chromium_views_over_tcp(namespaces: &Namespaces) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    let server = served(namespaces);
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
    let mut browser = Chromium::start(namespaces);
    browser.go(&format!("http://{}/", server.address));
    let tracks = server.context.hub.stream("clock").unwrap().tracks();
    wait_for("the source", PATIENCE, || tracks.borrow().is_some());
    let without_udp = VIEW.replace(
        "type: \"answer\", sdp }",
        "type: \"answer\", sdp: sdp.replace(/a=candidate:\\S+ 1 udp .*\\r\\n/g, \"\") }",
    );
    assert_ne!(without_udp, VIEW);
    let answer = browser.evaluate(&without_udp);
    assert_eq!(answer["status"], 201, "{answer}");
    wait_for("pictures", PATIENCE, || browser.evaluate("seen.frames").as_u64() > Some(30));
    let pair = browser.evaluate(
        "peer.getStats().then((all) => {
            const of = (id) => all.get(id);
            const transport = [...all.values()].find(({ type }) => type === 'transport');
            return of(of(transport.selectedCandidatePairId).remoteCandidateId).protocol;
        })",
    );
    assert_eq!(pair, "tcp");
    assert_eq!(browser.evaluate("seen.backwards"), 0);
}

/// A server behind the emulated path, with WebRTC.
fn served(namespaces: &Namespaces) -> Server {
    served_at(namespaces, Namespaces::FAR_V4)
}

/// The same with this address for WebRTC.
fn served_at(namespaces: &Namespaces, address: Ipv4Addr) -> Server {
    served_again(namespaces, address, 0)
}

/// The same at this port for HTTP; 0: any.
fn served_again(namespaces: &Namespaces, address: Ipv4Addr, port: u16) -> Server {
    let open = || {
        let listener = std::net::TcpListener::bind((Namespaces::FAR_V4, port)).unwrap();
        (listener, WebRtc::open((address, 0).into(), Vec::new()).unwrap())
    };
    let (listener, webrtc) = namespaces.in_far(open).unwrap();
    Server::with_webrtc(listener, Access::open(), Limits::default(), webrtc)
}

/// A page that publishes the browser's camera as `cam` by WHIP.
const PUBLISH: &str = r#"(async () => {
    const media = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 360 }, audio: true });
    const peer = globalThis.publisher = new RTCPeerConnection();
    for (const track of media.getTracks()) peer.addTransceiver(track, { direction: "sendonly", streams: [media] });
    await peer.setLocalDescription();
    const answer = await fetch("/cam/whip", {
        method: "POST", headers: { "content-type": "application/sdp" }, body: peer.localDescription.sdp,
    });
    const sdp = await answer.text();
    if (answer.ok) await peer.setRemoteDescription({ type: "answer", sdp });
    return { status: answer.status, location: answer.headers.get("location"), sdp };
})()"#;

/// What the browser's camera sees arrives with its sound, adapts to the path, and is viewed by WHEP.
fn chromium_publishes_its_camera(namespaces: &Namespaces) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    let server = served(namespaces);
    let site = format!("http://{}", server.address);
    let mut browser = Chromium::with_camera(namespaces, &site);
    browser.go(&format!("{site}/"));
    let answer = browser.evaluate(PUBLISH);
    println!("{answer:#}");
    assert_eq!(answer["status"], 201, "{answer}");
    let stream = || server.context.hub.find("cam");
    wait_for("its pictures", PATIENCE, || stream().is_some_and(|stream| stream.snapshot().units > 100));
    let tracks = stream().unwrap().tracks().borrow().clone().unwrap();
    println!("{:?} {:?}", tracks.video.as_ref().map(|video| (video.width, video.height)), tracks.audio);
    assert!(tracks.video.is_some() && tracks.audio.is_some(), "{tracks:?}");
    assert!(stream().unwrap().snapshot().origin.unwrap().starts_with("whip from "));
    // A second page views it. Its keyframe is asked for: the camera's encoder makes one on request only.
    let mut viewer = Chromium::start(namespaces);
    viewer.go(&format!("{site}/cam"));
    wait_for("pictures of the camera", PATIENCE, || {
        viewer.evaluate("globalThis.freshwire?.frames ?? 0").as_u64() > Some(50)
    });
    assert_eq!(viewer.evaluate("freshwire.via"), "WebRTC");
    println!("age {}", viewer.evaluate("freshwire.screenAge"));
    assert_eq!(viewer.evaluate("document.querySelector('video').srcObject.getTracks().length"), 2);
    // A reload of the publisher's page ends the session, and it can publish again at once.
    let location = answer["location"].as_str().unwrap();
    let ended = browser
        .evaluate(&format!("fetch('/cam/{location}', {{ method: 'DELETE' }}).then((it) => it.status)"));
    assert_eq!(ended, 200);
    wait_for("the end of the source", PATIENCE, || {
        stream().is_some_and(|stream| stream.snapshot().origin.is_none())
    });
    browser.go(&format!("{site}/"));
    assert_eq!(browser.evaluate(PUBLISH)["status"], 201);
    let frames = viewer.evaluate("globalThis.freshwire?.frames ?? 0").as_u64();
    wait_for("further pictures", PATIENCE, || {
        viewer.evaluate("globalThis.freshwire?.frames ?? 0").as_u64() > frames.map(|it| it + 50)
    });
}

fn the_page_uses_webrtc_in_chromium(namespaces: &Namespaces) {
    the_page_uses_webrtc(namespaces, Chromium::start(namespaces));
}

/// Firefox decodes H.264 of the baseline profile only in WebRTC, and says so in its offer.
fn firefox_gets_the_high_profile_by_websocket(namespaces: &Namespaces) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    let server = served(namespaces);
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
    let mut browser = Firefox::start(namespaces);
    browser.go(&format!("http://{}/clock", server.address));
    wait_for("pictures", PATIENCE, || frames_of(&mut browser) > 50);
    assert_eq!(browser.evaluate("freshwire.via"), "WebSocket");
    let why = browser.evaluate("freshwire.fallback");
    assert!(why.as_str().is_some_and(|why| why.contains("high profile")), "{why}");
}

/// The page plays by WebRTC and says so, knows how old its picture is, and gets sound by WebSocket if WebRTC does not carry it.
fn the_page_uses_webrtc(namespaces: &Namespaces, mut browser: impl Browser) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    let server = served(namespaces);
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
    browser.go(&format!("http://{}/clock?via=webrtc", server.address));
    wait_for("pictures", PATIENCE, || {
        browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64() > Some(50)
    });
    let said = browser.evaluate("({ via: freshwire.via, fallback: freshwire.fallback, delay: freshwire.delay,
        age: freshwire.screenAge, stalls: freshwire.stalls, path: document.getElementById('path').textContent })");
    println!("{said}");
    assert_eq!(said["via"], "WebRTC", "{said}");
    assert!(said["path"].as_str().unwrap().contains("carried byWebRTC"), "{said}");
    assert!(said["path"].as_str().unwrap().contains("AAC"), "{said}");
    assert!(said["path"].as_str().unwrap().contains("B pictures"), "{said}");
    let age = said["age"].as_f64().unwrap();
    assert!((0.0..0.4).contains(&age), "{said}");
    keep_picture(&mut browser, "webrtc-page");
    // Sound is wanted.
    browser.evaluate("document.getElementById('mute').click()");
    wait_for("WebSocket", PATIENCE, || browser.evaluate("freshwire.via") == "WebSocket");
    wait_for("the end of the session", PATIENCE, || server.sessions() == 0);
    let frames = browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64().unwrap();
    let count = |browser: &mut _| frames_of(browser);
    wait_for("further pictures", PATIENCE, || count(&mut browser) > frames + 50);
    // Left to itself the page has all pictures.
    browser.go(&format!("http://{}/clock", server.address));
    wait_for("WebSocket", PATIENCE, || browser.evaluate("globalThis.freshwire?.via ?? null") == "WebSocket");
    let why = browser.evaluate("freshwire.fallback");
    assert!(why.as_str().is_some_and(|why| why.contains("B pictures")), "{why}");
}

fn frames_of(browser: &mut impl Browser) -> u64 {
    browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64().unwrap()
}

/// Where datagrams do not come through, the page plays by WebSocket and says why.
fn the_page_goes_over_to_websocket(namespaces: &Namespaces) {
    let _emulator =
        Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default())
            .unwrap();
    // The address that it offers is another machine's.
    let server = served_at(namespaces, Ipv4Addr::LOCALHOST);
    server.feed("clock", PatternConfig { width: 640, height: 360, ..PatternConfig::default() });
    let mut browser = Chromium::start(namespaces);
    browser.go(&format!("http://{}/clock", server.address));
    wait_for("pictures", PATIENCE, || {
        browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64() > Some(100)
    });
    assert_eq!(browser.evaluate("freshwire.via"), "WebSocket");
    println!("{}", browser.evaluate("freshwire.fallback"));
    assert!(browser.evaluate("freshwire.fallback").is_string());
    wait_for("the end of the session", PATIENCE, || server.sessions() == 0);
    browser.go(&format!("http://{}/clock?via=websocket", server.address));
    wait_for("pictures", PATIENCE, || {
        browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64() > Some(50)
    });
    assert_eq!(browser.evaluate("freshwire.fallback"), Value::Null);
}

/// 300 kbit/s, 2 % loss and 50 ms, with three renditions of which the smallest fits.
fn a_lossy_path_shows_fresh_pictures(namespaces: &Namespaces) {
    let path = Config::builder()
        .rate("300kbit".parse().unwrap())
        .delay(Duration::from_millis(25))
        .loss(Loss::Random { share: 0.02 })
        .build()
        .unwrap();
    let back = Config::builder().delay(Duration::from_millis(25)).build().unwrap();
    let _emulator = Emulator::start(namespaces, back, path, EmulatorOptions::default()).unwrap();
    let server = served(namespaces);
    let rendition = |width, height, kbit| PatternConfig {
        width,
        height,
        kbit,
        sound: false,
        b_pictures: false,
        ..PatternConfig::default()
    };
    server.feed("clock", rendition(640, 360, 800));
    for (name, width, height, kbit) in [("middle", 480, 270, 350), ("small", 320, 180, 150)] {
        let outlet = Outlet::rendition(server.context.hub.stream("clock").unwrap(), name);
        server.runtime.spawn(ingest::run(Source::Test(rendition(width, height, kbit)), outlet));
    }
    // Pause: the renditions are measured.
    std::thread::sleep(Duration::from_secs(6));
    let mut browser = Chromium::start(namespaces);
    browser.go(&format!("http://{}/clock", server.address));
    wait_for("the first picture", PATIENCE, || {
        browser.evaluate("window.freshwire?.frames ?? 0").as_u64() > Some(0)
    });
    // Pause: the path is measured.
    std::thread::sleep(Duration::from_secs(5));
    let seconds = std::env::var("FRESHWIRE_TEST_SECONDS").map_or(20, |text| text.parse().unwrap());
    let before = browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64().unwrap();
    let (mut ages, mut renditions) = (Vec::new(), Vec::new());
    for _ in 0..seconds * 10 {
        // Pause: the interval of the samples.
        std::thread::sleep(Duration::from_millis(100));
        ages.extend(browser.evaluate(&picture_age()).as_f64());
        renditions.push(browser.evaluate("freshwire.stats?.rendition ?? null"));
    }
    assert!(ages.len() as u64 > seconds * 5, "the clock in the picture can be read");
    ages.sort_by(f64::total_cmp);
    let mean = ages.iter().sum::<f64>() / ages.len() as f64;
    let at = |share: f64| ages[(ages.len() as f64 * share) as usize];
    let frames = browser.evaluate("globalThis.freshwire?.frames ?? 0").as_u64().unwrap() - before;
    let said = browser.evaluate("({ via: freshwire.via, stalls: freshwire.stalls, stats: freshwire.stats })");
    renditions.dedup();
    println!(
        "age on the screen: mean {mean:.3} s, median {:.3} s, 95 % {:.3} s; {frames} pictures in {seconds} s; {renditions:?}; {said}",
        at(0.5),
        at(0.95)
    );
    assert_eq!(said["via"], "WebRTC");
    // 0.2 s was measured. On a busy machine the browser decodes late.
    assert!(mean <= 1.0, "{mean}");
    assert!(frames > seconds * 8, "{frames}");
}

/// How old the picture on the screen is in seconds, by the clock that is drawn in it; `null` if that cannot be read.
fn picture_age() -> String {
    format!(
        "(() => {{
            const video = document.querySelector('video');
            const width = video.videoWidth;
            const pen = new OffscreenCanvas(width, 1).getContext('2d', {{ willReadFrequently: true }});
            pen.drawImage(video, 0, Math.round(video.videoHeight * 31 / 32), width, 1, 0, 0, width, 1);
            const now = Date.now() / 1e3;
            const line = pen.getImageData(0, 0, width, 1).data;
            const cells = Array.from({{ length: {CLOCK_CELLS} }}, (_, at) =>
                Number(line[4 * Math.floor((at + 0.5) * width / {CLOCK_CELLS}) + 1] > 128));
            const [white, black, ...bits] = cells;
            const parity = bits.pop();
            const isValid = white && !black && bits.reduce((sum, bit) => sum + bit, 0) % 2 === parity;
            return isValid ? now - bits.reduce((sum, bit) => 2 * sum + bit, 0) / 1e3 : null;
        }})()"
    )
}

/// Keeps a screenshot.
fn keep_picture(browser: &mut impl Browser, name: &str) {
    // Pause: the drawings are renewed four times a second.
    std::thread::sleep(Duration::from_millis(400));
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
    std::fs::write(&path, browser.screenshot()).unwrap();
    println!("{name}: screenshot in {}", path.display());
}
