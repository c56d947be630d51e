//! Prints the checks for a person or for a program.

use serde::Serialize;

use super::checks::{Check, Status};

/// The version of the JSON lines.
const SCHEMA: u32 = 1;

/// A table with one check to a line, and below each what to do.
pub(super) fn table(checks: &[Check], coloured: bool) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, found, advice } in checks {
        let (word, colour) = match status {
            Status::Ok => ("ok     ", 32),
            Status::Warn => ("warn   ", 33),
            Status::Missing => ("missing", 31),
        };
        let word = if coloured { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() };
        text += &format!("{word}  {name:width$}  {found}\n");
        if let Some(advice) = advice {
            text += &format!("{:9}{:width$}  -> {advice}\n", "", "");
        }
    }
    text + "\n" + verdict(checks) + "\n"
}

fn verdict(checks: &[Check]) -> &'static str {
    match checks.iter().map(|check| check.status).max_by_key(|status| *status as u8) {
        Some(Status::Missing) => "Something that is needed is missing: see above.",
        Some(Status::Warn) => "Everything that is needed is there; some of it could be better.",
        _ => "Everything is there.",
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    r#type: &'static str,
    schema: u32,
    data: &'a T,
}

#[derive(Serialize)]
struct Summary {
    ok: usize,
    warn: usize,
    missing: usize,
}

/// JSON Lines: `{"type": "check", "schema": 1, "data": {...}}`, at the end one of type `summary`.
pub(super) fn json(checks: &[Check]) -> serde_json::Result<String> {
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let summary =
        Summary { ok: count(Status::Ok), warn: count(Status::Warn), missing: count(Status::Missing) };
    let mut text = String::new();
    for check in checks {
        text += &serde_json::to_string(&Line { r#type: "check", schema: SCHEMA, data: check })?;
        text.push('\n');
    }
    Ok(text + &serde_json::to_string(&Line { r#type: "summary", schema: SCHEMA, data: &summary })?)
}
