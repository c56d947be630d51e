//! A headless Chromium, driven through its DevTools protocol.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freshwire_io::netns::Namespaces;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
    "--window-size=1280,800",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
];

/// A browser with one page. Dropping it ends it.
pub(crate) struct Browser {
    process: Child,
    tools: WebSocket<TcpStream>,
    session: String,
    asked: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts it in the near namespace.
    pub(crate) fn start(namespaces: &Namespaces) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = namespaces.spawn_near(&mut command).unwrap();
        let mut talk = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = talk
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned))
            .expect("chromium says where its tools listen");
        // What it says further on must not fill the pipe.
        std::thread::spawn(move || talk.for_each(drop));
        let authority = address.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
        let socket = namespaces.in_near(|| TcpStream::connect(&authority)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (tools, _) = tungstenite::client(address, socket).unwrap();
        let mut browser = Self { process, tools, session: String::new(), asked: 0, _profile: profile };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let target = target["targetId"].as_str().unwrap().to_owned();
        let session = browser.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Opens an address.
    pub(crate) fn go(&mut self, address: &str) {
        let answer = self.ask("Page.navigate", json!({"url": address}));
        assert!(answer["errorText"].is_null(), "{answer}");
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The page as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        data_encoding::BASE64.decode(answer["data"].as_str().unwrap().as_bytes()).unwrap()
    }

    /// What the person prefers: a `dark` or `light` page.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.ask("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Makes it a phone with a screen of this size.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 2, "mobile": true});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut command = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.tools.send(Message::text(command.to_string())).unwrap();
        loop {
            let Message::Text(text) = self.tools.read().unwrap() else { continue };
            let answer: Value = serde_json::from_str(&text).unwrap();
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
