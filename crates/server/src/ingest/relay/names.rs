//! Which renditions of a stream the tracks of a broadcast are.

use freshwire_moq::VideoListing;

use crate::config::{MAIN, check_rendition_name};

/// The most characters of a name that is made here; a rendition may have a few more.
const MOST: usize = 24;

/// A name for the rendition of each track, in the same order: `main` for the track of that name, or else for the largest. Others keep the
/// characters that a rendition can have, with a number where that is not unique.
pub(super) fn renditions(tracks: &[VideoListing]) -> Vec<String> {
    names(tracks.iter().map(|track| track.name.as_str()))
}

fn names<'a>(tracks: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let main = tracks.clone().position(|name| name == MAIN).unwrap_or(0);
    let mut names: Vec<String> = Vec::new();
    for (index, track) in tracks.enumerate() {
        let name = if index == main { MAIN.to_owned() } else { plain(track) };
        let is_free = |name: &String| (index == main || name != MAIN) && !names.contains(name);
        let numbered = (2..).map(|number| format!("{name}{number}"));
        let name = std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name);
        names.push(name);
    }
    names
}

fn plain(track: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    let name: String = track.chars().map(allowed).take(MOST).collect();
    if check_rendition_name(&name).is_ok() { name } else { "track".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_allowed() {
        let of = |tracks: &[&str]| names(tracks.iter().copied());
        assert_eq!(of(&["hd", "main", "360p"]), ["hd", "main", "360p"]);
        assert_eq!(of(&["video0.avc3", "video1.avc3"]), ["main", "video1-avc3"]);
        assert_eq!(of(&["a", "b.", "b,", "main"]), ["a", "b-", "b-2", "main"]);
        assert_eq!(of(&["x", "", "\u{202e}"]).len(), 3);
    }

    #[test]
    fn any_names_are_renditions() {
        bolero::check!().with_type::<Vec<String>>().for_each(|tracks| {
            let names = names(tracks.iter().map(String::as_str));
            assert_eq!(names.len(), tracks.len());
            for (index, name) in names.iter().enumerate() {
                assert!(check_rendition_name(name).is_ok(), "{name}");
                assert!(!names[..index].contains(name), "{name}");
            }
        });
    }
}
