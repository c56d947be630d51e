//! `GET` of present values: `/NAME/KEY` is one, and `/NAME` all of them.

use std::collections::{BTreeSet, btree_set};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Instant;

use hyper::body::{Body, Bytes, Frame};
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

/// Text that is made at a time: enough that a frame costs little beside it, and little enough that no other client waits for it.
const FRAME_BYTES: usize = 16 << 10;

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
    pub(in crate::http) fn reply<B>(&self, context: &Context, request: &Request<B>) -> Reply {
        match &self.key {
            Some(key) => match self.topic.present(key) {
                Some(value) => one(value, request.headers()),
                None => reply::text(StatusCode::NOT_FOUND, "there is no such key"),
            },
            None => match WatchQuery::read(request.uri().query()) {
                Ok(asked) => {
                    all(Arc::clone(&self.topic), asked.keys, Instant::now() + context.limits().answer_timeout)
                }
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

/// An object of all values, or of these.
fn all(topic: Arc<Topic>, keys: Option<BTreeSet<String>>, end: Instant) -> Reply {
    let keys = keys.map_or(Keys::All { last: None }, |keys| Keys::These(keys.into_iter()));
    let mut members = Members { topic, keys, part: Part::Start, ahead: String::new(), end };
    let first = members.write();
    // A short answer goes with its length.
    let reply = if members.part == Part::Done {
        reply::of(StatusCode::OK, JSON, first)
    } else {
        reply::with_body(StatusCode::OK, JSON, Members { ahead: first, ..members })
    };
    reply::with_header(reply, header::VARY, "accept")
}

/// The text of that object. Each value is read when it is about to be written, so that a client that takes its time gets what is
/// present then, and costs no copy of all.
struct Members {
    topic: Arc<Topic>,
    keys: Keys,
    part: Part,
    /// Text that was made already.
    ahead: String,
    /// When the client has to have taken it: the right to it is not asked for again.
    end: Instant,
}

/// The keys that are still to come.
enum Keys {
    /// All that come after the last one.
    All {
        last: Option<String>,
    },
    These(btree_set::IntoIter<String>),
}

/// The text that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Start,
    /// The second member or a later one.
    Further,
    Done,
}

impl Members {
    /// The next key's value. A key that has none any more is passed over.
    fn next(&mut self) -> Option<Present> {
        match &mut self.keys {
            Keys::All { last } => {
                let present = self.topic.present_after(last.as_deref())?;
                *last = Some(present.key.clone());
                Some(present)
            }
            Keys::These(keys) => keys.find_map(|key| self.topic.present(&key)),
        }
    }

    /// Some members: no more than is done at a time, so possibly none.
    fn write(&mut self) -> String {
        let (mut text, mut read) = (String::new(), 0);
        while read < FRAME_BYTES && self.part != Part::Done {
            let is_first = self.part == Part::Start;
            match self.next() {
                Some(Present { key, content: Content::Json(json), .. }) => {
                    read += key.len() + json.len();
                    text.push(if is_first { '{' } else { ',' });
                    text += &serde_json::Value::from(key).to_string();
                    text.push(':');
                    text += &json;
                    self.part = Part::Further;
                }
                // Bytes are no JSON and are left out.
                Some(Present { content: Content::Bytes(bytes), .. }) => read += bytes.len(),
                None => {
                    text += if is_first { "{}" } else { "}" };
                    self.part = Part::Done;
                }
            }
        }
        text
    }
}

impl Body for Members {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let members = self.get_mut();
        let mut text = std::mem::take(&mut members.ahead);
        if text.is_empty() {
            if members.part == Part::Done {
                return Poll::Ready(None);
            }
            if *members.topic.removed().borrow() {
                return Poll::Ready(Some(Err(io::Error::other("the stream was removed"))));
            }
            if Instant::now() > members.end {
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            }
            text = members.write();
        }
        if text.is_empty() {
            // Others have their turn before more is read.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }

    fn is_end_stream(&self) -> bool {
        self.part == Part::Done
    }
}
