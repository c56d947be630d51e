//! The grant of a lasting connection: a reload ends the connections whose grant it withdraws, and no others.

use tokio::sync::watch;

use crate::access::{Grant, Right};
use crate::config::Origin;
use crate::context::Context;

/// A lasting connection's permission to have its stream.
pub(crate) struct Lease {
    grant: Grant,
    /// The site of the page that asked, if it had to be trusted.
    site: Option<Origin>,
    /// Whether the server has removed the stream or the topic.
    removed: watch::Receiver<bool>,
    reviews: watch::Receiver<()>,
    /// The rules in force have been asked.
    is_reviewed: bool,
}

/// Why a connection has lost its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Withdrawal {
    /// The configuration has the stream no more, or had it not for a moment.
    #[error("the stream was removed")]
    Removed,
    /// The rules of access have changed.
    #[error("the right to view this stream was withdrawn")]
    View,
    /// The same.
    #[error("the right to publish this stream was withdrawn")]
    Publish,
    /// The page's site is not among `trusted_origins` any more.
    #[error("pages of this site may not use this stream any more")]
    Site,
}

impl Lease {
    /// `removed` becomes true when the server removes what is granted.
    pub(crate) fn new(
        grant: Grant,
        site: Option<Origin>,
        removed: watch::Receiver<bool>,
        context: &Context,
    ) -> Self {
        // The rules may have changed since the request.
        Self { grant, site, removed, reviews: context.reviews(), is_reviewed: false }
    }

    /// The user's name, if it had to say who it is.
    pub(crate) fn user(&self) -> Option<&str> {
        self.grant.user()
    }

    /// Waits until the server takes away what was granted. Cancel safe.
    pub(crate) async fn withdrawn(&mut self, context: &Context) -> Withdrawal {
        loop {
            if !self.is_reviewed {
                self.is_reviewed = true;
                if let Some(why) = self.review(context) {
                    return why;
                }
            }
            tokio::select! {
                Ok(()) = self.reviews.changed() => self.is_reviewed = false,
                // A sender that is gone has removed it, too.
                _ = self.removed.wait_for(|&is_removed| is_removed) => return Withdrawal::Removed,
            }
        }
    }

    /// Why the rules in force do not grant it any more.
    fn review(&self, context: &Context) -> Option<Withdrawal> {
        if !context.access().upholds(&self.grant) {
            return Some(match self.grant.right() {
                Right::View => Withdrawal::View,
                Right::Publish | Right::Broker => Withdrawal::Publish,
            });
        }
        let is_trusted = self.site.as_ref().is_none_or(|site| context.origins().contain(site));
        (!is_trusted).then_some(Withdrawal::Site)
    }
}
