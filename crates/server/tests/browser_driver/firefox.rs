//! Firefox, through WebDriver BiDi (W3C), which it speaks without a driver between.

use std::process::Command;

use freshwire_netns::Namespaces;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Browser, Tools, picture};

/// It plays without a click, and asks nothing of servers elsewhere.
const PREFERENCES: &str = r#"
user_pref("media.autoplay.default", 0);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.page", 0);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("app.normandy.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
"#;

pub(crate) struct Firefox {
    tools: Tools,
    /// The page's name.
    context: String,
    _profile: TempDir,
}

impl Firefox {
    /// Starts it in the near namespace.
    pub(crate) fn start(namespaces: &Namespaces) -> Self {
        let profile = tempfile::tempdir().unwrap();
        std::fs::write(profile.path().join("user.js"), PREFERENCES).unwrap();
        let mut command = Command::new("firefox-esr");
        command.args(["--headless", "--no-remote", "--remote-debugging-port=0", "--profile"]);
        command.arg(profile.path()).env("HOME", profile.path());
        let mut tools = Tools::start(namespaces, &mut command, "WebDriver BiDi listening on ", "/session");
        tools.ask("session.new", &json!({"capabilities": {}}), &[]);
        let tree = tools.ask("browsingContext.getTree", &json!({}), &[]);
        let context = tree["contexts"][0]["context"].as_str().unwrap().to_owned();
        let viewport = json!({"context": context, "viewport": {"width": 1280, "height": 800}});
        tools.ask("browsingContext.setViewport", &viewport, &[]);
        Self { tools, context, _profile: profile }
    }
}

impl Browser for Firefox {
    fn go(&mut self, address: &str) {
        let place = json!({"context": self.context, "url": address, "wait": "complete"});
        self.tools.ask("browsingContext.navigate", &place, &[]);
    }

    /// As JSON: the protocol's own form of values says the type of each.
    fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": format!("(async () => JSON.stringify(await ({expression})) ?? 'null')()"),
            "target": {"context": self.context},
            "awaitPromise": true,
        });
        let answer = self.tools.ask("script.evaluate", &parameters, &[]);
        assert_eq!(answer["type"], "success", "{expression}: {answer}");
        serde_json::from_str(answer["result"]["value"].as_str().unwrap()).unwrap()
    }

    fn screenshot(&mut self) -> Vec<u8> {
        let answer =
            self.tools.ask("browsingContext.captureScreenshot", &json!({"context": self.context}), &[]);
        picture(&answer["data"])
    }
}
