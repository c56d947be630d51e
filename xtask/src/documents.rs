//! The blocks of code in Markdown files, and `xtask/documents.txt`, which says how a test runs each of them
//! or why none does. `xtask/documents.py` runs them.

pub(crate) const TABLE: &str = "xtask/documents.txt";

/// A fenced block of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The first word behind the fence.
    pub(crate) language: String,
    /// Number of its first line, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// An entry of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) document: String,
    /// How the block begins; more than the first line where several begin alike.
    pub(crate) begin: String,
    /// In the table, from 1.
    pub(crate) line: usize,
    /// Name, value and the line of its text.
    pub(crate) fields: Vec<(String, String, usize)>,
}

impl Entry {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(one, _, _)| one == name).map(|(_, value, _)| value.as_str())
    }
}

/// The blocks of a document in order. A fence may be indented, as in a list.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let Some(language) = content.strip_prefix("```") else {
            if let Some((block, indent)) = &mut open {
                let indent = (*indent).min(line.len() - content.len());
                block.text.push_str(&line[indent..]);
                block.text.push('\n');
            }
            continue;
        };
        match open.take() {
            Some((block, _)) => blocks.push(block),
            None => {
                let language = language.split([',', ' ']).next().unwrap_or_default().to_owned();
                let block = Block { language, line: number + 2, text: String::new() };
                open = Some((block, line.len() - content.len()));
            }
        }
    }
    blocks
}

/// Reads the table.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = number + 1;
        let indent = line.len() - line.trim_start().len();
        if line.trim().is_empty() || (indent < 8 && line.trim_start().starts_with('#')) {
            continue;
        }
        let content = line.trim();
        match (indent, entries.last_mut()) {
            (0, _) => {
                let (document, begin) = content
                    .split_once(": ")
                    .ok_or_else(|| format!("{TABLE}:{at} is not `document: first line`"))?;
                entries.push(Entry {
                    document: document.to_owned(),
                    begin: begin.replace("\\n", "\n"),
                    line: at,
                    fields: Vec::new(),
                });
            }
            (4, Some(entry)) => {
                let (name, value) =
                    content.split_once(':').ok_or_else(|| format!("{TABLE}:{at} is not `field: value`"))?;
                let begin = if value.trim().is_empty() { at + 1 } else { at };
                entry.fields.push((name.to_owned(), value.trim().to_owned(), begin));
            }
            (8.., Some(Entry { fields, .. })) if !fields.is_empty() => {
                let last = fields.len() - 1;
                let (_, value, _) = &mut fields[last];
                if !value.is_empty() {
                    value.push('\n');
                }
                value.push_str(&line[8..]);
            }
            _ => {
                return Err(format!(
                    "{TABLE}:{at} is indented by {indent}: an entry by 0, a field by 4, its lines by 8"
                ));
            }
        }
    }
    Ok(entries)
}

/// The shell that the test runs: the blocks that are not left out, and what the entries add. Each with its file and line.
pub(crate) fn scripts(read: &dyn Fn(&str) -> Option<String>) -> Vec<(String, usize, String)> {
    let entries = read(TABLE).and_then(|text| parse(&text).ok()).unwrap_or_default();
    let mut scripts = Vec::new();
    for entry in entries.iter().filter(|entry| entry.field("except").is_none()) {
        let blocks = read(&entry.document).map(|text| blocks(&text)).unwrap_or_default();
        let of_entry = blocks.into_iter().find(|block| block.text.starts_with(&entry.begin));
        // The check runs what it makes of a file.
        let is_run = !matches!(entry.field("how"), Some("options" | "file"));
        if let Some(block) = of_entry.filter(|block| block.language == "sh" && is_run) {
            scripts.push((entry.document.clone(), block.line, block.text));
        }
        for (_, value, line) in
            entry.fields.iter().filter(|(name, _, _)| matches!(name.as_str(), "before" | "check"))
        {
            scripts.push((TABLE.to_owned(), *line, value.clone()));
        }
    }
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_lists_too() {
        let text = "a\n```sh\none\n  two\n```\n1. b\n\n   ```rust,no_run\n   three\n   ```\n";
        let found: Vec<_> =
            blocks(text).into_iter().map(|block| (block.language, block.line, block.text)).collect();
        assert_eq!(
            found,
            [("sh".to_owned(), 3, "one\n  two\n".to_owned()), ("rust".to_owned(), 9, "three\n".to_owned())]
        );
    }

    #[test]
    fn entries_have_fields_of_one_line_or_more() {
        let text = "# comment\na.md: run x\n    how: lasts\n    check:\n        # a script\n        one\n          two\n\nb.md: y\n    except: why\n";
        let entries = parse(text).expect("a table");
        assert_eq!((entries[0].document.as_str(), entries[0].begin.as_str()), ("a.md", "run x"));
        assert_eq!(entries[0].field("check"), Some("# a script\none\n  two"));
        assert_eq!(entries[1].field("except"), Some("why"));
        assert!(parse("    field: without an entry\n").is_err());
        assert!(parse("a.md\n").is_err());
    }
}
