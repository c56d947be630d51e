//! The server's pages and values within pages of other sites, and below a path of a proxy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freshwire_link::Config;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::config::{BasePath, Origins};
use freshwire_server::values::Content;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser_driver::{Browser, Chromium, Firefox};
use crate::http_rig::Server;
use crate::testing::{is_there, wait_for};
use crate::{keep_picture, small_picture};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn a_trusted_page_reads_and_frames_in_chromium(namespaces: &Namespaces) {
    a_trusted_page_reads_and_frames(namespaces, Chromium::start(namespaces));
}

pub(crate) fn a_trusted_page_reads_and_frames_in_firefox(namespaces: &Namespaces) {
    a_trusted_page_reads_and_frames(namespaces, Firefox::start(namespaces));
}

pub(crate) fn pages_work_below_a_path_in_chromium(namespaces: &Namespaces) {
    pages_work_below_a_path(namespaces, Chromium::start(namespaces));
}

pub(crate) fn pages_work_below_a_path_in_firefox(namespaces: &Namespaces) {
    pages_work_below_a_path(namespaces, Firefox::start(namespaces));
}

/// A path without limits.
fn path(namespaces: &Namespaces) -> Emulator {
    Emulator::start(namespaces, Config::default(), Config::default(), EmulatorOptions::default()).unwrap()
}

fn listener(namespaces: &Namespaces) -> TcpListener {
    namespaces.in_far(|| TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap()
}

/// A server with the streams `clock` and `state`, below `/kept` of a proxy.
fn server(namespaces: &Namespaces) -> Server {
    let base_path = BasePath::parse("/kept").unwrap();
    let server = Server::below(listener(namespaces), base_path, Access::open(), Limits::default());
    server.context.topics.keep(["state".to_owned()]);
    server.feed("clock", small_picture());
    server.context.hub.stream("state").unwrap();
    set(&server, "first", "1");
    server
}

fn set(server: &Server, key: &str, value: &str) {
    server.context.topics.find("state").unwrap().set(key, &Content::Json(value.to_owned())).unwrap();
}

fn watchers(server: &Server) -> usize {
    server.context.topics.find("state").unwrap().snapshot().watchers.len()
}

/// A site whose only page is empty, and lets itself do anything.
fn site(namespaces: &Namespaces) -> SocketAddr {
    let listener = listener(namespaces);
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut asked = [0; 4096];
            let _ = socket.read(&mut asked);
            let page = "<!doctype html><title>another site</title><body>";
            let length = page.len();
            let _ = write!(
                socket,
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
            );
        }
    });
    address
}

/// What a page of another site reaches of the server at `HOST`. Each member is `refused` or what came.
const REACH: &str = r#"(async () => {
    const refused = () => "refused";
    const ask = (path, options) => fetch("http://HOST" + path, { credentials: "include", ...options });
    const json = { "content-type": "application/json", "x-mine": "1" };
    const status = (path, options) => ask(path, options).then(({ status }) => status, refused);
    const soon = (promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 8000, "nothing"))]);
    const first = (source, event, value) => new Promise((resolve) => {
        source.addEventListener(event, (message) => { source.close(); resolve(value(message)); });
        source.addEventListener("error", () => { source.close(); resolve("refused"); });
    });
    const events = new EventSource("http://HOST/state/events?key=first", { withCredentials: true });
    const heard = first(events, "message", ({ data }) => JSON.parse(data).key);
    const socket = new WebSocket("ws://HOST/state/values", ["mine"]);
    const opened = first(socket, "open", () => socket.protocol);
    return {
        set: await soon(status("/state/second", { method: "POST", headers: json, body: "2" })),
        missing: await soon(status("/state/none", { method: "DELETE" })),
        value: await soon(ask("/state/first").then((answer) => answer.text(), refused)),
        count: await soon(ask("/state/first").then(({ headers }) => headers.get("freshwire-count"), refused)),
        page: await soon(status("/clock")),
        events: await soon(heard),
        socket: await soon(opened),
    };
})()"#;

/// The size of the picture of `/clock.mp4` in a page, once it may read its points.
const PICTURE: &str = r#"new Promise((resolve) => {
    const video = document.createElement("video");
    Object.assign(video, { crossOrigin: "use-credentials", muted: true, src: "http://HOST/clock.mp4" });
    video.onerror = () => resolve("refused");
    video.oncanplay = () => {
        const pen = Object.assign(document.createElement("canvas"), { width: 8, height: 8 }).getContext("2d");
        pen.drawImage(video, 0, 0, 8, 8);
        resolve(pen.getImageData(0, 0, 1, 1).data[3] === 255 ? video.videoWidth : "no points");
    };
    document.body.append(video);
    video.play();
})"#;

const FRAME: &str = r#"new Promise((resolve) => {
    const frame = document.createElement("iframe");
    Object.assign(frame, { width: 800, height: 500, src: "http://HOST/state/watch" });
    frame.onload = () => resolve(true);
    document.body.append(frame);
})"#;

fn a_trusted_page_reads_and_frames(namespaces: &Namespaces, mut browser: impl Browser) {
    let _path = path(namespaces);
    let server = server(namespaces);
    let [trusted, foreign] = [site(namespaces), site(namespaces)];
    let mut origins = Origins::default();
    origins.trust(&format!("http://{trusted}")).unwrap();
    server.context.set_origins(origins);
    let host = server.address.to_string();
    let ask = |browser: &mut dyn Browser, script: &str| browser.evaluate(&script.replace("HOST", &host));

    browser.go(&format!("http://{foreign}/"));
    let reached = ask(&mut browser, REACH);
    for (what, found) in reached.as_object().unwrap() {
        assert_eq!(found, "refused", "{what}: {reached}");
    }
    assert_eq!(ask(&mut browser, PICTURE), "refused");
    assert_eq!(ask(&mut browser, FRAME), true);
    assert_eq!(watchers(&server), 0, "the page in the frame would watch");
    assert!(server.context.topics.find("state").unwrap().present("second").is_none());

    browser.go(&format!("http://{trusted}/"));
    let reached = ask(&mut browser, REACH);
    let expected = json!({
        "set": 204, "missing": 404, "value": "1", "count": "1", "page": 200, "events": "first", "socket": "mine"
    });
    assert_eq!(reached, expected);
    wait_for("the picture's source", PATIENCE, || {
        server.context.hub.find("clock").unwrap().snapshot().origin.is_some()
    });
    assert_eq!(ask(&mut browser, PICTURE), 640);
    assert_eq!(ask(&mut browser, FRAME), true);
    wait_for("the readers of the page in the frame", PATIENCE, || watchers(&server) == 2);
    keep_picture(&mut browser, "frame");
}

/// nginx in the far namespace. Dropping it ends it.
struct Proxy {
    process: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Proxy {
    /// Shows the server below `/cam/`, whose requests come without that path, and below `/kept/`, whose requests come with it.
    fn start(namespaces: &Namespaces, server: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The port is free once the listener is dropped.
        let address = listener(namespaces).local_addr().unwrap();
        let place = folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {place}/{name};\n"))
            .concat();
        let shared = "proxy_http_version 1.1; proxy_buffering off; proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade; proxy_set_header Host $http_host;";
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/log;
            events {{ worker_connections 64; }}
            http {{ access_log off; {temporary}
                server {{ listen {address};
                    location /cam/ {{ proxy_pass http://{server}/; {shared} }}
                    location /kept {{ proxy_pass http://{server}; {shared} }}
                }}
            }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let process = namespaces.spawn_far(&mut command).unwrap();
        let proxy = Self { process, address, _folder: folder };
        let is_up = || namespaces.in_far(|| std::net::TcpStream::connect(address).is_ok()).unwrap();
        wait_for("nginx", PATIENCE, is_up);
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pages_work_below_a_path(namespaces: &Namespaces, mut browser: impl Browser) {
    if !is_there("nginx") {
        return;
    }
    let _path = path(namespaces);
    let server = server(namespaces);
    let proxy = Proxy::start(namespaces, server.address);
    let at = |place: &str| format!("http://{}{place}", proxy.address);
    for base in ["/cam", "/kept"] {
        browser.go(&at(base));
        let list = "[...document.querySelectorAll('a.name')].map(({ href }) => href)";
        let expected = json!([at(&format!("{base}/clock")), at(&format!("{base}/state/watch"))]);
        wait_for("the list of streams", PATIENCE, || {
            browser.evaluate("typeof document.querySelectorAll === 'function' && document.readyState")
                == "complete"
        });
        assert_eq!(browser.evaluate(list), expected, "{base}");
        let shown = "[...document.querySelectorAll('code[data-here]')].map((code) => code.textContent)";
        let first = json!(at(&format!("{base}/clock.ts")));
        wait_for("whole addresses", PATIENCE, || browser.evaluate(shown)[0] == first);
        let asked =
            browser.evaluate(&format!("fetch({first}, {{ method: 'HEAD' }}).then(({{ status }}) => status)"));
        assert_eq!(asked, 200, "{first}");

        browser.go(&at(&format!("{base}/clock")));
        let frames = "window.freshwire?.frames ?? 0";
        wait_for("the picture", PATIENCE, || browser.evaluate(frames).as_u64() > Some(10));
        assert_eq!(browser.evaluate("freshwire.error"), Value::Null);
        assert_eq!(browser.evaluate("document.querySelector('header a').href"), at(&format!("{base}/")));

        browser.go(&at(&format!("{base}/state/watch")));
        let connected = "window.freshwire?.readers.filter((reader) => reader?.connected).length ?? 0";
        wait_for("two readers", PATIENCE, || browser.evaluate(connected) == 2);
        browser.evaluate("document.getElementById('publish').click()");
        wait_for("values of the page's own", PATIENCE, || {
            browser.evaluate("freshwire.readers[0].received").as_u64() > Some(5)
        });
        assert_eq!(browser.evaluate("freshwire.error"), Value::Null);
        assert_eq!(browser.evaluate("document.querySelector('header a').href"), at(&format!("{base}/")));
    }
}

/// A phone shows the whole width, and ages say what is on the screen: they rise while nothing comes.
pub(crate) fn the_page_of_values_fits_a_phone(namespaces: &Namespaces) {
    let _path = path(namespaces);
    let server = server(namespaces);
    for (key, value) in [
        ("temperature", "21.5"),
        (
            "a-key-with-a-rather-long-name-of-a-sensor",
            "{\"unit\":\"celsius\",\"place\":\"behind the door\",\"value\":-3}",
        ),
        ("text", "\"withoutanyblankinawordthatislongerthanthescreeniswideonaphoneofthatsize\""),
    ] {
        set(&server, key, value);
    }
    let mut browser = Chromium::start(namespaces);
    browser.resize(360, 740);
    browser.go(&format!("http://{}/state/watch", server.address));
    wait_for("the values", PATIENCE, || {
        browser.evaluate("document.querySelectorAll('#values tr').length") == 4
    });
    let ages = "(freshwire.readers.map(({ age }) => age))";
    let both = |ages: &Value| ages[0].as_f64().zip(ages[1].as_f64());
    let mut first = None;
    wait_for("ages", PATIENCE, || {
        first = both(&browser.evaluate(ages));
        first.is_some()
    });
    let (fast, slow) = first.unwrap();
    wait_for("older values on the screen", PATIENCE, || {
        both(&browser.evaluate(ages)).is_some_and(|(now, other)| now > fast + 1500.0 && other > slow + 1500.0)
    });
    keep_picture(&mut browser, "chromium-values-phone");
    let overflow = "[...document.querySelectorAll('body *')].filter((one) => {
        const { left, right, width } = one.getBoundingClientRect();
        return width > 0 && (left < 0 || right > 360.5);
    }).map((one) => one.outerHTML.slice(0, 100))";
    assert_eq!(browser.evaluate(overflow), json!([]));
    assert_eq!(browser.evaluate("[innerWidth, document.documentElement.scrollWidth]"), json!([360, 360]));
    // Nothing that is read lies on something else, or is cut off.
    let lines = "[...document.querySelectorAll('th, td:nth-child(n+3)')].map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return range.getClientRects().length;
    }).filter((lines) => lines !== 1)";
    assert_eq!(browser.evaluate(lines), json!([]), "headings and numbers on one line");
    let words = browser.evaluate("[...document.querySelectorAll('th')].map((one) => one.textContent)");
    assert_eq!(words, json!(["Key", "Value", "Changes", "Age"]));
    let age = browser.evaluate("document.querySelector('#values tr td:last-child').textContent");
    let text = age.as_str().unwrap();
    let (number, unit) = text.split_once(' ').unwrap();
    assert!(unit == "s" && number.parse::<f64>().is_ok_and(|age| age > 1.0) && number.len() <= 4, "{text}");
    browser.evaluate("scrollTo(0, document.body.scrollHeight)");
    keep_picture(&mut browser, "chromium-values-phone-below");
    six_connections(&mut browser);
}

/// To one origin a browser has six connections over HTTP/1.1 at once, and a WebSocket is none of them.
fn six_connections(browser: &mut Chromium) {
    browser.evaluate(
        "void (globalThis.sources = Array.from({ length: 7 }, () => new EventSource('../state/events')))",
    );
    let open = "sources.filter(({ readyState }) => readyState === EventSource.OPEN).length";
    wait_for("six streams of events", PATIENCE, || browser.evaluate(open) == 6);
    let socket = "new Promise((resolve) => {
        const socket = new WebSocket(location.href.replace('http', 'ws').replace('watch', 'values'));
        socket.onmessage = () => resolve(true);
    })";
    assert_eq!(browser.evaluate(socket), true);
    assert_eq!(browser.evaluate(open), 6, "the seventh waits");
    browser.evaluate("sources.find(({ readyState }) => readyState === EventSource.OPEN).close()");
    wait_for("the seventh", PATIENCE, || browser.evaluate(open) == 6);
}

/// Safari on an iPhone has only a `ManagedMediaSource`. This one is Chromium's own source under that name, and takes nothing
/// before `startstreaming` and after `endstreaming`.
const MANAGED: &str = r#"(() => {
    const managed = (globalThis.managed = { outside: 0, appends: [], current: null });
    class Managed extends MediaSource {
        streaming = false;
        constructor() {
            super();
            managed.current = this;
            this.addEventListener("sourceopen", () => {
                if (document.querySelector("video").disableRemotePlayback) setTimeout(() => this.set(true), 300);
            });
        }
        set(streaming) {
            this.streaming = streaming;
            this.dispatchEvent(new Event(streaming ? "startstreaming" : "endstreaming"));
        }
        addSourceBuffer(mime) {
            const buffer = super.addSourceBuffer(mime);
            const append = buffer.appendBuffer.bind(buffer);
            buffer.appendBuffer = (bytes) => {
                if (!this.streaming) managed.outside += 1;
                // The flags of the fragment's one sample.
                managed.appends.push({ kind: mime.split("/")[0], isKey: bytes[96] === 2 });
                append(bytes);
            };
            return buffer;
        }
    }
    globalThis.ManagedMediaSource = Managed;
    delete globalThis.MediaSource;
})()"#;

pub(crate) fn a_managed_source_gets_nothing_while_it_takes_nothing(namespaces: &Namespaces) {
    let _path = path(namespaces);
    let server = server(namespaces);
    let mut browser = Chromium::start(namespaces);
    browser.before_each_page(MANAGED);
    browser.go(&format!("http://{}/clock", server.address));
    let number = |browser: &mut Chromium, expression: &str| browser.evaluate(expression).as_f64().unwrap();
    let plays = |browser: &mut Chromium, beyond: f64| {
        wait_for("pictures", PATIENCE, || number(browser, "window.freshwire?.frames ?? 0") > beyond);
    };
    plays(&mut browser, 25.0);
    assert_eq!(browser.evaluate("typeof MediaSource"), "undefined");
    for round in 1..=2 {
        browser.evaluate("managed.current.set(false)");
        let before = number(&mut browser, "managed.appends.length");
        // A group of pictures takes two seconds: by then several keyframes have come.
        wait_for("newer pictures that wait", PATIENCE, || number(&mut browser, "freshwire.lead") > 5.0);
        assert_eq!(number(&mut browser, "managed.appends.length"), before, "round {round}");
        let shown = number(&mut browser, "freshwire.frames");
        browser.evaluate("managed.current.set(true)");
        let kinds = format!("managed.appends.slice({before}).find(({{ kind }}) => kind === 'video').isKey");
        wait_for("an append", PATIENCE, || number(&mut browser, "managed.appends.length") > before);
        wait_for("the live edge", PATIENCE, || number(&mut browser, "freshwire.lead") < 1.0);
        let appended = number(&mut browser, "managed.appends.length") - before;
        assert_eq!(browser.evaluate(&kinds), true, "it goes on with a keyframe");
        assert!(appended < 300.0, "{appended} of more than 360 pieces that came meanwhile");
        plays(&mut browser, shown + 25.0);
        let delay = number(&mut browser, "freshwire.delay");
        assert!(delay < 1.5, "round {round}: {delay} s");
    }
    assert_eq!(number(&mut browser, "managed.outside"), 0.0);
    assert_eq!(browser.evaluate("[freshwire.connections, freshwire.error]"), json!([1, null]));
}
