/// The name of the rendition that is published under the stream's own name.
pub const MAIN: &str = "main";

/// The most characters of a rendition's name.
const MAX_NAME: usize = 32;

/// The name cannot be that of a rendition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be a rendition's name; use 1 to 32 letters, digits, -, _ and ., but not all or none")]
pub struct RenditionNameError(String);

/// Whether a rendition may have this name, which is a part of addresses: 1 to 32 letters, digits, `-`, `_` and `.`.
///
/// # Errors
///
/// If it has other characters or another length, or is a word of addresses.
pub fn check_rendition_name(name: &str) -> Result<(), RenditionNameError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_allowed);
    // Addresses have these words for themselves.
    if fits && !["all", "none"].contains(&name) {
        return Ok(());
    }
    Err(RenditionNameError(name.chars().take(MAX_NAME).collect()))
}

/// The stream's name in an address, and that of the rendition behind `~`, if the address names one.
pub fn split_rendition(name: &str) -> (&str, Option<&str>) {
    name.split_once('~').map_or((name, None), |(stream, rendition)| (stream, Some(rendition)))
}
