//! The elements of a pipeline as `gst-launch-1.0` takes it.

use super::calls::Calls;

/// Reads a text that may be a pipeline: elements stand between exclamation marks.
pub(super) fn read(path: &str, line: usize, text: &str, calls: &mut Calls) {
    let is_pipeline = text.contains(" ! ") || text.starts_with("! ") || text.starts_with("( ");
    // A script has an end of its commands.
    if !is_pipeline || text.contains(';') {
        return;
    }
    for (place, part) in text.split('!').enumerate() {
        // Before the first one there may be the command itself.
        let words: Vec<&str> = part.split_whitespace().collect();
        let begin = words
            .iter()
            .rposition(|word| word.starts_with('-') || word.starts_with("gst-launch"))
            .map_or(0, |at| at + 1);
        for word in words.iter().skip(if place == 0 { begin } else { 0 }) {
            if is_element(word) {
                calls.element(path, line, word);
            }
        }
    }
}

/// A name without properties, caps, pads or a reference to another element.
pub(super) fn is_element(word: &str) -> bool {
    word.len() > 2
        && word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.chars().all(|next| next.is_ascii_alphanumeric() || next == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_differ_from_the_rest() {
        let mut calls = Calls::default();
        let text = "gst-launch-1.0 -q rtspsrc location=a ! video/x-raw,width=1 ! queue name=q autoaudiosrc ! opusenc ! q. {MORE} ! fakesink";
        read("a", 1, text, &mut calls);
        assert_eq!(
            calls.elements.into_keys().collect::<Vec<_>>(),
            ["autoaudiosrc", "fakesink", "opusenc", "queue", "rtspsrc"]
        );
        let mut none = Calls::default();
        read("a", 1, "stop! now", &mut none);
        assert!(none.elements.is_empty());
    }
}
