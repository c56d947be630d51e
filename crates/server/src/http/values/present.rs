//! `GET` of present values: `/NAME/KEY` is one, and `/NAME` all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};

use super::WatchQuery;
use super::change::Target;
use crate::context::Context;
use crate::http::reply::{self, Reply};
use crate::http::route::Route;
use crate::values::{Content, Present, Topic};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// The present values that a request asks for.
pub(in crate::http) struct Wanted {
    topic: Arc<Topic>,
    /// `None`: all of them.
    key: Option<String>,
}

impl Wanted {
    /// `None` for a request that asks for something else: a page, or pictures of a stream of that name.
    pub(in crate::http) fn of<B>(context: &Context, request: &Request<B>, route: &Route) -> Option<Self> {
        let (Route::Player(name) | Route::Body(name, _)) = route else { return None };
        let target = Target::of(request.uri(), |name| context.topics.find(name).is_some())?;
        let topic = context.topics.find(&target.name)?;
        match target.key.filter(|key| !key.is_empty()) {
            Some(key) => context.hub.find(name).is_none().then_some(Self { topic, key: Some(key) }),
            None => (!asks_for_page(request.headers())).then_some(Self { topic, key: None }),
        }
    }

    /// The stream that has the values.
    pub(in crate::http) fn stream(&self) -> &str {
        self.topic.name()
    }

    /// The values. They are as the client has them already if it names their tag.
    pub(in crate::http) fn reply<B>(&self, request: &Request<B>) -> Reply {
        match &self.key {
            Some(key) => match self.topic.present(Some(key)).pop() {
                Some(value) => one(value, request.headers()),
                None => reply::text(StatusCode::NOT_FOUND, "there is no such key"),
            },
            None => match WatchQuery::read(request.uri().query()) {
                Ok(asked) => all(&self.topic.present(None), asked.keys.as_ref()),
                Err(why) => reply::text(StatusCode::BAD_REQUEST, &why),
            },
        }
    }
}

/// A browser that opens an address asks for a page by name, and a program that takes anything does not.
fn asks_for_page(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accept.flat_map(|value| value.split(',')).filter_map(|one| one.split(';').next());
    types.any(|one| one.trim().eq_ignore_ascii_case("text/html"))
}

fn one(value: Present, headers: &HeaderMap) -> Reply {
    let tag = format!("\"{}-{}\"", value.count, value.at);
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = tags
        .flat_map(|value| value.split(','))
        .map(|known| known.trim().trim_start_matches("W/"))
        .any(|known| known == tag || known == "*");
    let mut reply = match value.content {
        _ if is_known => reply::of(StatusCode::NOT_MODIFIED, JSON, ""),
        Content::Json(json) => reply::of(StatusCode::OK, JSON, json),
        Content::Bytes(bytes) => reply::of(StatusCode::OK, BYTES, bytes),
    };
    let count = value.count.to_string();
    for (name, text) in [("etag", &tag), ("freshwire-count", &count), ("freshwire-at", &value.at)] {
        if let Ok(text) = HeaderValue::from_str(text) {
            reply.headers_mut().insert(name, text);
        }
    }
    if is_known {
        reply.headers_mut().remove(header::CONTENT_TYPE);
    }
    reply
}

/// An object of all values, or of these. Bytes are no JSON and are left out.
fn all(values: &[Present], keys: Option<&BTreeSet<String>>) -> Reply {
    let wanted = values.iter().filter(|value| keys.is_none_or(|keys| keys.contains(&value.key)));
    let members: Vec<String> = wanted
        .filter_map(|value| match &value.content {
            Content::Json(json) => Some(format!("{}:{json}", serde_json::Value::from(value.key.as_str()))),
            Content::Bytes(_) => None,
        })
        .collect();
    let reply = reply::of(StatusCode::OK, JSON, format!("{{{}}}", members.join(",")));
    reply::with_header(reply, header::VARY, "accept")
}
