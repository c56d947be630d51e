//! The grant of a lasting connection: a reload ends the connections whose grant it withdraws, and no others.

use std::mem::discriminant;
use std::sync::Arc;

use freshwire_media::unit::Tracks;
use tokio::sync::watch;

use crate::access::{Grant, Right};
use crate::config::Origin;
use crate::context::Context;
use crate::hub::Stream;

/// A lasting connection's permission to have its stream.
pub(crate) struct Lease {
    grant: Grant,
    /// The site of the page that asked, if it had to be trusted.
    site: Option<Origin>,
    /// Whether the server has removed the stream or the topic.
    removed: watch::Receiver<bool>,
    described: Option<Described>,
    reviews: watch::Receiver<()>,
    /// The rules in force have been asked.
    is_reviewed: bool,
}

/// The tracks that the client has decoders for, and those of the stream.
struct Described {
    then: Tracks,
    now: watch::Receiver<Option<Arc<Tracks>>>,
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
    /// The source has another codec than the client's description, and the protocol cannot describe it again.
    #[error("the codec of the stream has changed: ask for the stream again")]
    Codec,
}

/// The code of a close frame (RFC 6455, section 7.4.1) to a client that may come again. Pages by WebRTC get the same codes.
pub(crate) const AWAY: u16 = 1001;
/// That to a client that may not have what it asked for.
pub(crate) const POLICY: u16 = 1008;

impl Withdrawal {
    /// The code of a close frame that says so.
    pub(crate) fn close_code(self) -> u16 {
        match self {
            Self::Removed | Self::Codec => AWAY,
            Self::View | Self::Publish | Self::Site => POLICY,
        }
    }
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
        Self { grant, site, removed, described: None, reviews: context.reviews(), is_reviewed: false }
    }

    /// Ends it, too, when the stream needs other decoders than these tracks.
    pub(crate) fn until_recoded(self, stream: &Stream, tracks: &Tracks) -> Self {
        Self { described: Some(Described { then: tracks.clone(), now: stream.tracks() }), ..self }
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
                () = recoded(&mut self.described) => return Withdrawal::Codec,
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

/// Waits until the stream needs other decoders than were described. Cancel safe.
async fn recoded(described: &mut Option<Described>) {
    if let Some(Described { then, now }) = described {
        let is_other = |now: &Option<Arc<Tracks>>| now.as_ref().is_some_and(|now| needs_others(now, then));
        if now.wait_for(is_other).await.is_ok() {
            return;
        }
    }
    std::future::pending().await
}

/// Whether decoders for the tracks `then` do not decode what is there `now`. Parameter sets of pictures come with the pictures, those
/// of sound only with the description. A track that comes or goes harms no decoder.
fn needs_others(now: &Tracks, then: &Tracks) -> bool {
    let pictures = now.video.as_ref().zip(then.video.as_ref());
    let sound = now.audio.as_ref().zip(then.audio.as_ref());
    pictures.is_some_and(|(now, then)| discriminant(&now.codec) != discriminant(&then.codec))
        || sound.is_some_and(|(now, then)| !then.decodes(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshwire_media::unit::{AudioCodec, AudioTrack, VideoCodec, VideoTrack};

    #[test]
    fn a_viewer_ends_where_its_decoders_do_not_fit() {
        let video = |codec, width| Some(VideoTrack { codec, width, height: 90 });
        let sound = |codec, rate| Some(AudioTrack { codec, rate, channels: 2 });
        let of = |audio| Tracks { video: None, audio };
        let (vp9, av1) =
            (VideoCodec::Vp9 { profile: 0, bit_depth: 8 }, VideoCodec::Av1 { sequence_header: Vec::new() });
        let aac = |config: &[u8]| AudioCodec::Aac { config: config.to_vec() };
        let then = Tracks { video: video(vp9.clone(), 160), audio: sound(aac(&[0x12, 0x10]), 44_100) };
        for (name, video, audio, expected) in [
            ("the same", then.video.clone(), then.audio.clone(), false),
            ("another size", video(vp9.clone(), 320), then.audio.clone(), false),
            ("another codec", video(av1, 160), then.audio.clone(), true),
            ("another rate of sound", then.video.clone(), sound(aac(&[0x11, 0x90]), 48_000), true),
            (
                "another encoder of the same sound",
                None,
                sound(aac(&[0x12, 0x10, 0x56, 0xe5, 0]), 44_100),
                false,
            ),
            ("another codec of sound", then.video.clone(), sound(AudioCodec::Opus, 48_000), true),
            ("no sound", then.video.clone(), None, false),
            ("no pictures", None, then.audio.clone(), false),
        ] {
            assert_eq!(needs_others(&Tracks { video, audio }, &then), expected, "{name}");
        }
        let opus = |channels| of(Some(AudioTrack { codec: AudioCodec::Opus, rate: 48_000, channels }));
        assert!(!needs_others(&opus(1), &opus(2)));
    }
}
