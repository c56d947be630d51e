//! WHIP: a publisher.

use std::sync::Arc;

use freshwire_media::sdp::Media;
use tokio::sync::mpsc;

use super::ask::{Ask, Opened};
use super::offer::{Negotiated, OfferError, answer_publisher, negotiate};
use super::publishing::Publishing;
use super::session::Role;
use super::sessions::WebRtc;
use super::work::{self, Work};
use crate::access::Grant;
use crate::config::{Origin, SourceError, check_published_name};
use crate::context::Context;
use crate::hub::HubError;
use crate::lease::Lease;
use crate::net::Permit;
use crate::rtsp::feed::{Feed, SelectionError, TrackSelection};

/// Why a publisher is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error(transparent)]
    Name(#[from] SourceError),
    #[error(transparent)]
    Offer(#[from] OfferError),
    #[error(transparent)]
    Tracks(#[from] SelectionError),
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// What a publisher asked for.
pub(crate) struct PublishAsk<'a> {
    pub(crate) ask: Ask,
    pub(crate) name: &'a str,
    pub(crate) rendition: Option<&'a str>,
    pub(crate) grant: Grant,
    /// The site of the page that asked, if it had to be trusted.
    pub(crate) site: Option<Origin>,
    pub(crate) permit: Permit,
}

/// Begins a publisher's session. It has the stream's name from now on.
///
/// # Errors
///
/// If the name cannot be had, or the offer cannot be answered.
pub(crate) async fn publish(
    webrtc: &Arc<WebRtc>,
    context: &Arc<Context>,
    asked: PublishAsk<'_>,
) -> Result<Opened, PublishError> {
    let PublishAsk { ask, name, rendition, grant, site, permit } = asked;
    check_published_name(name)?;
    let Ask { peer, local, offer } = ask;
    let Negotiated { agreed, answer, video, audio } =
        negotiate(webrtc, move |port| answer_publisher(port, &offer, local)).await?;
    let lines = [video, audio].into_iter().flatten();
    let lines: Vec<_> = lines.filter_map(|line| Some((line.mid, line.media()?))).collect();
    let media: Vec<Media> = lines.iter().map(|(_, media)| media.clone()).collect();
    let feed = Feed::new(TrackSelection::new(&media)?);
    let origin = format!("whip from {peer}");
    // One request that waits says as much as many.
    let (asks, keys) = mpsc::channel(1);
    let publisher = match rendition {
        None => context.hub.publish(name, &origin, Some(asks)),
        Some(rendition) => context.hub.publish_rendition(name, rendition, &origin, Some(asks)),
    }?;
    let lease = Lease::new(grant, site, publisher.stream().removed(), context);
    let publishing = Publishing::new(publisher, feed, lines, context.limits().max_publish_rate);
    let part = work::Part::Publish { name: name.to_owned(), peer, keys };
    let work = Work { role: part, lease, permit };
    let id = work::begin(webrtc, context, agreed, Role::Publisher(Box::new(publishing)), work)?;
    Ok(Opened { id, answer })
}
