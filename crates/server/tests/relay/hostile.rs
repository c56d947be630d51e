//! Relays that are gone, refuse or change, and broadcasts that lie.

use std::time::{Duration, Instant};

use freshwire_moq::relay::RelayConfig;
use freshwire_moq::token::{self, Scope};
use freshwire_netns::trust::{Trial, measure};
use freshwire_server::hub::SourceState;
use freshwire_server::report::StreamReport;

use crate::relay_rig::{PATIENCE, RelayScene, Scene, open_relay};
use crate::testing::{has, wait_for};

/// Longer than a relay's silence is noticed, and the pause after that.
const BACK: Duration = Duration::from_secs(2);

/// The reason that the edge gives for its retries.
fn refusal(edge: &Scene) -> Option<String> {
    match edge.snapshot("live").source?.state {
        SourceState::Retrying { reason } => Some(reason),
        _ => None,
    }
}

/// The state of the origin's only target, with the reason if it has one. It is absent until its task has started.
fn target(origin: &Scene) -> (String, Option<String>) {
    let text = origin.get("/api/streams");
    let streams: Vec<StreamReport> = serde_json::from_str(&text).expect("a report");
    let target = streams.first().and_then(|stream| stream.targets.first()).cloned();
    target.map_or_else(|| ("absent".to_owned(), None), |target| (target.state, target.reason))
}

#[test]
fn a_relay_that_was_killed_costs_two_seconds() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let config = open_relay();
    let mut relay = RelayScene::new(&config);
    let (origin, edge) = (Scene::origin(&relay), Scene::edge(&relay));
    let _viewer = edge.view("live");
    // A tenth of the two seconds.
    measure("relays: pictures after a relay was killed", BACK / 10, || {
        wait_for("pictures", PATIENCE, || edge.units("live") > 50);
        let config = RelayConfig { listen: relay.address, ..config.clone() };
        relay.kill();
        // Pause: it is away for a moment, as a process that is started again.
        std::thread::sleep(Duration::from_millis(500));
        relay = RelayScene::new(&config);
        let units = edge.units("live");
        let begin = Instant::now();
        wait_for("pictures again", PATIENCE, || edge.units("live") > units);
        let away = begin.elapsed();
        assert_eq!(edge.viewers("live"), 1, "its viewer has stayed");
        Trial::new(away <= BACK, || format!("after {away:?}"))
    });
    drop(relay);
    wait_for("the origin to notice", PATIENCE, || target(&origin).0 == "retrying");
}

#[test]
fn an_origin_that_comes_back_is_read_again() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let relay = RelayScene::new(&open_relay());
    let edge = Scene::edge(&relay);
    wait_for("a reason", PATIENCE, || {
        refusal(&edge).is_some_and(|why| why.contains("nobody announces \"live\""))
    });
    let origin = Scene::origin(&relay);
    let _viewer = edge.view("live");
    wait_for("pictures", PATIENCE, || edge.units("live") > 50);
    drop(origin);
    let _origin = Scene::origin(&relay);
    let units = edge.units("live");
    wait_for("pictures again", PATIENCE, || edge.units("live") > units + 50);
    assert_eq!(edge.viewers("live"), 1, "its viewer has stayed");
}

#[test]
fn tokens_are_checked() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (key, other) = (folder.path().join("relay.key"), folder.path().join("other.key"));
    token::make_key(&key).unwrap();
    token::make_key(&other).unwrap();
    assert!(token::make_key(&key).unwrap_err().to_string().contains("exists"));
    let relay = RelayScene::new(&RelayConfig { key: Some(key.clone()), public: Vec::new(), ..open_relay() });
    let hour = Duration::from_secs(3600);
    let good = token::sign(&key, "demo/**", Scope::Publish, hour).unwrap();
    let reader = token::sign(&key, "demo/**", Scope::Read, hour).unwrap();
    let wrong = [
        String::new(),
        "?jwt=garbage".to_owned(),
        format!("?jwt={}", token::sign(&other, "demo/**", Scope::Publish, hour).unwrap()),
        format!("?jwt={}", token::sign(&key, "elsewhere/**", Scope::Publish, hour).unwrap()),
        format!("?jwt={}", token::sign(&key, "demo/**", Scope::Publish, Duration::ZERO).unwrap()),
    ];
    // Pause: until the token without time has expired.
    std::thread::sleep(Duration::from_secs(1));
    for query in &wrong {
        let edge = Scene::new(&format!("[streams.live]\nsource = \"{}{query}\"\n", relay.url("demo/live")));
        wait_for("a refusal", PATIENCE, || {
            refusal(&edge).is_some_and(|why| why.starts_with("refuses the path"))
        });
        let shown = edge.get("/api/streams");
        assert!(query.is_empty() || !shown.contains(query.as_str()), "{shown}");
    }
    let origin = |query: &str| {
        Scene::new(&format!(
            "[streams.live]\nsource = \"test\"\nrelay = [\"{}{query}\"]\n",
            relay.url("demo")
        ))
    };
    let refused = origin("?jwt=garbage");
    wait_for("a refusal", PATIENCE, || {
        target(&refused).1.is_some_and(|why| why.starts_with("refuses the path"))
    });
    let reading = origin(&format!("?jwt={reader}"));
    wait_for("a refusal of a reader's token", PATIENCE, || {
        target(&reading).1.is_some_and(|why| why.starts_with("refuses the path"))
    });
    let _origin = origin(&format!("?jwt={good}"));
    let edge = Scene::new(&format!("[streams.live]\nsource = \"{}?jwt={reader}\"\n", relay.url("demo/live")));
    let _viewer = edge.view("live");
    wait_for("pictures", PATIENCE, || edge.units("live") > 20);
}
