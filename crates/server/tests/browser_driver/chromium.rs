//! Chromium, through its DevTools protocol.

use std::process::Command;

use freshwire_netns::Namespaces;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Browser, Tools, picture};

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

pub(crate) struct Chromium {
    tools: Tools,
    session: String,
    _profile: TempDir,
}

impl Chromium {
    /// Starts it in the near namespace.
    pub(crate) fn start(namespaces: &Namespaces) -> Self {
        Self::with_flags(namespaces, &[])
    }

    /// Starts it with a camera and a microphone of its own making, which pages of this site may use.
    pub(crate) fn with_camera(namespaces: &Namespaces, site: &str) -> Self {
        let secure = format!("--unsafely-treat-insecure-origin-as-secure={site}");
        let camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", &secure];
        Self::with_flags(namespaces, &camera)
    }

    fn with_flags(namespaces: &Namespaces, flags: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command
            .args(FLAGS)
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank");
        let mut tools = Tools::start(namespaces, &mut command, "DevTools listening on ", "");
        let target = tools.ask("Target.createTarget", &json!({"url": "about:blank"}), &[]);
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = tools.ask("Target.attachToTarget", &attach, &[]);
        let session = session["sessionId"].as_str().unwrap().to_owned();
        Self { tools, session, _profile: profile }
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.tools.ask(method, parameters, &[("sessionId", &self.session)])
    }

    /// What the person prefers: a `dark` or `light` page.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.ask("Emulation.setEmulatedMedia", &json!({"features": [feature]}));
    }

    /// Runs a script in each further page before those of the page.
    pub(crate) fn before_each_page(&mut self, script: &str) {
        self.ask("Page.enable", &json!({}));
        self.ask("Page.addScriptToEvaluateOnNewDocument", &json!({"source": script}));
    }

    /// Makes it a phone with a screen of this size.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 2, "mobile": true});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
    }
}

impl Browser for Chromium {
    fn go(&mut self, address: &str) {
        let answer = self.ask("Page.navigate", &json!({"url": address}));
        assert!(answer["errorText"].is_null(), "{answer}");
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.captureScreenshot", &json!({"format": "png"}));
        picture(&answer["data"])
    }
}
