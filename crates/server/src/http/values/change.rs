//! `POST` and `DELETE`: changes of values, one request each or a batch of lines.

use std::sync::Arc;

use hyper::body::{Body, Bytes};
use hyper::{Method, Request, StatusCode, Uri, header};
use percent_encoding::percent_decode_str;
use tokio::task::coop::consume_budget;

use super::{FOREIGN, NO_TOPIC, status};
use crate::access::Right;
use crate::brokers::{BrokerStatus, PublishError};
use crate::context::Context;
use crate::http::body;
use crate::http::permission::demand;
use crate::http::reply::{self, Reply};
use crate::http::requester::{Requester, text_of};
use crate::lease::Withdrawal;
use crate::values::{Change, Content, Topic, ValueError};

/// Whether a request with this method changes values.
pub(in crate::http) fn is_change(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::DELETE)
}

/// Parses the path of such a request: `/NAME/KEY`, or `/NAME` for a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) key: Option<String>,
}

impl Target {
    /// A stream's own path is for batches. Otherwise the key is behind the last slash; one in the key itself is `%2F`.
    pub(super) fn of(uri: &Uri, is_topic: impl Fn(&str) -> bool) -> Option<Self> {
        let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned());
        let path = uri.path().strip_prefix('/')?;
        let whole = decode(path)?;
        if is_topic(&whole) {
            return Some(Self { name: whole, key: None });
        }
        let (name, key) = path.rsplit_once('/')?;
        Some(Self { name: decode(name)?, key: Some(decode(key)?) })
    }
}

/// Carries out a change, and answers.
pub(in crate::http) async fn change<B>(context: &Context, requester: &Requester, request: Request<B>) -> Reply
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    context.counters.http_requests.add_one();
    let Some(target) = Target::of(request.uri(), |name| context.topics.find(name).is_some()) else {
        return reply::method_not_allowed();
    };
    let broker = context.brokers.find(&target.name);
    let right = if broker.is_some() { Right::Broker } else { Right::Publish };
    let grant = match demand(context, requester, &request, right, &target.name) {
        Ok(grant) => grant,
        Err(refusal) => return *refusal,
    };
    // A page of another site may send a form here without asking.
    if !context.origins().allow(request.headers()) {
        return reply::text(StatusCode::FORBIDDEN, FOREIGN);
    }
    let Some(topic) = context.topics.find(&target.name) else {
        return reply::text(StatusCode::NOT_FOUND, NO_TOPIC);
    };
    let method = request.method().clone();
    let retain = wants(request.uri(), "retain");
    let content_type = text_of(request.headers(), &header::CONTENT_TYPE).map(str::to_owned);
    let body = match body::read(request.into_body(), &context.limits()).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    context.counters.published_bytes.add(body.len() as u64);
    // A body takes a while, and a reload may have come meanwhile.
    if !context.access().upholds(&grant) {
        return reply::text(StatusCode::FORBIDDEN, &Withdrawal::Publish.to_string());
    }
    if let Some(broker) = broker {
        return send(&broker, method, target.key, &body, retain).await;
    }
    let result = match (method, target.key) {
        (Method::DELETE, Some(key)) => topic.delete(&key),
        (Method::DELETE, None) => {
            return reply::text(StatusCode::BAD_REQUEST, "name the key: DELETE /NAME/KEY");
        }
        (_, Some(key)) => {
            Content::of_body(content_type.as_deref(), &body).and_then(|value| topic.set(&key, &value))
        }
        (_, None) => batch(&topic, &body).await,
    };
    match result {
        Ok(()) => reply::text(StatusCode::NO_CONTENT, ""),
        Err(error) => reply::text(status(&error), &error.to_string()),
    }
}

/// Whether the query has this option.
fn wants(uri: &Uri, option: &str) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some(option))
}

/// Sends a value to the broker that the stream's values come from.
async fn send(
    broker: &BrokerStatus,
    method: Method,
    key: Option<String>,
    body: &[u8],
    retain: bool,
) -> Reply {
    let Some(key) = key else {
        return reply::text(
            StatusCode::BAD_REQUEST,
            "this stream's broker takes one key at a time: POST /NAME/KEY",
        );
    };
    let payload = (method != Method::DELETE && !body.is_empty()).then(|| body.to_vec());
    let Err(error) = broker.publish(key, payload, retain).await else {
        return reply::text(StatusCode::NO_CONTENT, "");
    };
    let status = match error {
        PublishError::Foreign { .. } => StatusCode::BAD_REQUEST,
        PublishError::Away(_) | PublishError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        PublishError::Refused(_) => StatusCode::BAD_GATEWAY,
        PublishError::Unconfirmed(_) => StatusCode::GATEWAY_TIMEOUT,
    };
    reply::text(status, &error.to_string())
}

/// Carries out the lines of a batch, up to the first that is refused. Empty lines are skipped.
async fn batch(topic: &Arc<Topic>, body: &[u8]) -> Result<(), ValueError> {
    let lines = body.split(|byte| *byte == b'\n').zip(1..);
    for (bytes, line) in lines.filter(|(bytes, _)| !bytes.trim_ascii().is_empty()) {
        // A change takes a while with many watchers, and a body may have thousands.
        consume_budget().await;
        let text = str::from_utf8(bytes).map_err(|_| ValueError::NotText);
        let result = text.and_then(Change::of_text).and_then(|change| topic.apply(&change));
        result.map_err(|error| ValueError::Line { line, error: Box::new(error) })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_stream_and_a_key() {
        let is_topic = |name: &str| ["state", "a/b"].contains(&name);
        let target = |path: &str| Target::of(&path.parse().unwrap(), is_topic);
        let of = |name: &str, key: Option<&str>| {
            Some(Target { name: name.to_owned(), key: key.map(str::to_owned) })
        };
        assert_eq!(target("/state"), of("state", None));
        assert_eq!(target("/a/b"), of("a/b", None));
        assert_eq!(target("/state/door?token=x"), of("state", Some("door")));
        assert_eq!(target("/a/b/t%C3%BCr%2F1"), of("a/b", Some("tür/1")));
        assert_eq!(target("/state/"), of("state", Some("")));
        for none in ["/", "/other", "*", "/state/%ff"] {
            assert_eq!(target(none), None, "{none}");
        }
    }
}
