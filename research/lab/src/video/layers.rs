//! From the encoder's spatial and temporal layers to layers in one order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use clap::ValueEnum;

use super::file::Video;

/// What a viewer would rather have where not all layers fit: the "priority mapper" of Birkedal 2006, section 3.2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preference {
    /// All pictures at a small size before larger ones.
    Motion,
    /// Few pictures at the full size before more of them.
    Sharpness,
}

/// The spatial and the temporal layer of each layer, the most important first. None comes before one that its frames refer to; of those that could
/// come next the preferred one does.
pub(crate) fn layers(video: &Video, preference: Preference) -> anyhow::Result<Vec<(u8, u8)>> {
    let class = |at: usize| (video.frames[at].spatial, video.frames[at].temporal);
    let mut refs: BTreeMap<(u8, u8), BTreeSet<(u8, u8)>> = BTreeMap::new();
    for (at, frame) in video.frames.iter().enumerate() {
        let others = frame.refs.iter().map(|&reference| class(reference));
        refs.entry(class(at)).or_default().extend(others.filter(|other| *other != class(at)));
    }
    let mut layers: Vec<(u8, u8)> = Vec::new();
    while layers.len() < refs.len() {
        let is_next = |(class, on): &(&(u8, u8), &BTreeSet<(u8, u8)>)| {
            !layers.contains(class) && on.iter().all(|other| layers.contains(other))
        };
        let next = refs.iter().filter(is_next).min_by_key(|&(&(spatial, temporal), _)| match preference {
            Preference::Motion => (spatial, temporal),
            Preference::Sharpness => (temporal, spatial),
        });
        let (&class, _) = next.context("the layers refer to each other in a circle")?;
        layers.push(class);
    }
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::two_pictures;
    use super::*;

    #[test]
    fn dependencies_come_before_preferences() {
        let mut video = Video::parse(&two_pictures()).unwrap();
        assert_eq!(layers(&video, Preference::Motion).unwrap(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(layers(&video, Preference::Sharpness).unwrap(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        // The small picture between refers to the large one before it.
        video.frames[2].refs = vec![1];
        assert_eq!(layers(&video, Preference::Motion).unwrap(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn a_circle_of_layers_is_refused() {
        let mut video = Video::parse(&two_pictures()).unwrap();
        video.frames[1].temporal = 1;
        video.frames[2].refs = vec![1];
        // (1,1) refers to (0,1), which refers to (1,1).
        let error = layers(&video, Preference::Motion).unwrap_err().to_string();
        assert!(error.contains("circle"), "{error}");
    }
}
