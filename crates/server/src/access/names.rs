/// Names of streams, each with `*` for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// Every name.
    pub fn all() -> Self {
        Self(vec!["*".to_owned()])
    }

    /// Adds a name or a pattern.
    pub fn add(&mut self, pattern: &str) {
        self.0.push(pattern.to_owned());
    }

    /// Whether the name is among them.
    pub fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }

    /// Whether no name is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

/// Goes back to the last `*` at most once for each character of the name.
fn matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    let mut last_star: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', after)), _) => {
                pattern = after;
                last_star = Some((after, name));
            }
            (Some((wanted, pattern_rest)), Some((found, name_rest))) if wanted == found => {
                pattern = pattern_rest;
                name = name_rest;
            }
            (None, None) => return true,
            _ => match last_star {
                Some((after, [_, rest @ ..])) => {
                    last_star = Some((after, rest));
                    (pattern, name) = (after, rest);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        let yes = [
            ("*", ""),
            ("*", "live"),
            ("cam*", "cam"),
            ("cam*", "cam-1"),
            ("*-hd", "a-hd-hd"),
            ("a*b*c", "aXbYbZc"),
        ];
        let no = [
            ("", "a"),
            ("cam", "cam1"),
            ("cam*", "ca"),
            ("*-hd", "a-hd-"),
            ("a*b*c", "aXbYbZ"),
            ("Cam", "cam"),
        ];
        for (pattern, name) in yes {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in no {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(60) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(2000).as_bytes()));
    }
}
