//! Sentences and words of a text without markup.

/// Ends of words behind which a full stop ends no sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "vs.", "pp.", "No.", "St."];

/// The sentences of a text. One ends at a full stop, question or exclamation mark before a space and what can begin another.
pub(super) fn split(text: &str) -> Vec<String> {
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let mut sentences = Vec::new();
    let mut sentence: Vec<&str> = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        sentence.push(token);
        let bare = token.trim_end_matches(['*', '"', ')', '_']);
        let ends = bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&bare) && !is_initial(bare);
        let next = tokens
            .get(place + 1)
            .and_then(|next| next.trim_start_matches(['*', '"', '(', '[', '_']).chars().next());
        if ends && next.is_none_or(|c| c.is_uppercase() || c.is_ascii_digit() || !c.is_alphanumeric()) {
            sentences.push(std::mem::take(&mut sentence).join(" "));
        }
    }
    if !sentence.is_empty() {
        sentences.push(sentence.join(" "));
    }
    sentences
}

/// `J.`, as in a name.
fn is_initial(token: &str) -> bool {
    token.len() == 2 && token.starts_with(|c: char| c.is_uppercase())
}

/// The words of a sentence in lower case, without punctuation around them.
pub(super) fn words(sentence: &str) -> Vec<String> {
    sentence
        .split_whitespace()
        .map(|token| token.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_where_another_can_begin() {
        assert_eq!(split("One, e.g. this. Two? 3 of it (yes.) no.").len(), 4 - 1);
        assert_eq!(split("By J. Lai at 0.5 s. End"), ["By J. Lai at 0.5 s.", "End"]);
    }

    #[test]
    fn words_have_no_punctuation() {
        assert_eq!(words("It's - \"so\" (many)!"), ["it's", "so", "many"]);
    }
}
