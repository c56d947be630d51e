//! How long a file and a function may be, and how large a file in the repository.

use super::mask::mask;
use super::workspace::{File, Workspace};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 80;
/// Every clone carries each file for ever: tools and results of that size belong elsewhere.
const FILE_BYTES: u64 = 512 << 10;

/// What may be longer than its budget: path, function (empty for the file itself), and why.
const WAIVERS: &[(&str, &str, &str)] = &[];

/// Files and functions beyond their budget, and waivers that nothing needs any more.
pub(super) fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = with_waivers(&workspace.files, WAIVERS);
    findings.extend(too_large(&workspace.sizes));
    findings
}

fn too_large(sizes: &[(String, u64)]) -> impl Iterator<Item = String> + '_ {
    let large = sizes.iter().filter(|(_, bytes)| *bytes > FILE_BYTES);
    large.map(|(path, bytes)| {
        format!("{path} has {bytes} bytes, at most {FILE_BYTES} are allowed: keep it out of git")
    })
}

fn with_waivers(files: &[File], waivers: &[(&str, &str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut used = vec![false; waivers.len()];
    for file in files {
        for excess in excesses(file) {
            let waiver = waivers
                .iter()
                .position(|(path, function, _)| *path == file.path && *function == excess.function);
            match waiver {
                Some(waiver) => used[waiver] = true,
                None => findings.push(excess.sentence(&file.path)),
            }
        }
    }
    for ((path, function, _), used) in waivers.iter().zip(used) {
        if !used {
            findings.push(format!("{path} {function}: the waiver is not needed any more, delete it"));
        }
    }
    findings
}

struct Excess {
    function: String,
    line: usize,
    lines: usize,
}

impl Excess {
    fn sentence(&self, path: &str) -> String {
        let Self { function, line, lines } = self;
        if function.is_empty() {
            format!("{path} has {lines} lines of code, at most {FILE_LINES} are allowed: split it")
        } else {
            format!(
                "{path}:{line} `{function}` has {lines} lines, at most {FUNCTION_LINES} are allowed: split it"
            )
        }
    }
}

fn excesses(file: &File) -> Vec<Excess> {
    let code = match file.path.rsplit_once('.') {
        Some((_, "rs" | "c" | "h")) => mask(&file.text),
        Some((_, "py" | "sh")) => without_hash_comments(&file.text),
        _ => return Vec::new(),
    };
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    let mut excesses = Vec::new();
    if lines > FILE_LINES {
        excesses.push(Excess { function: String::new(), line: 1, lines });
    }
    if file.path.ends_with(".rs") {
        excesses.extend(functions(&code).into_iter().filter(|function| function.lines > FUNCTION_LINES));
    }
    excesses
}

fn without_hash_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Every function with a body in masked source, from its `fn` to its closing brace; blank lines do not count.
fn functions(code: &str) -> Vec<Excess> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|name| name.is_alphanumeric() || *name == '_').collect();
        if let Some(len) = body_end(&code[at..]).filter(|_| !name.is_empty()) {
            let lines = code[at..at + len].lines().filter(|line| !line.trim().is_empty()).count();
            functions.push(Excess { function: name, line: 1 + code[..at].matches('\n').count(), lines });
        }
    }
    functions
}

/// Where the body that belongs to this signature ends; `None` if a semicolon comes first, as in a trait. A semicolon
/// inside brackets, as in `[u8; 4]`, belongs to the signature.
fn body_end(signature: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (at, character) in signature.char_indices() {
        match character {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 && brackets == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: String) -> File {
        File { path: path.to_owned(), text }
    }

    #[test]
    fn a_large_file_is_found_whatever_it_holds() {
        let sizes = [("picture.jpg", FILE_BYTES), ("tool.whl", FILE_BYTES + 1)];
        let sizes = sizes.map(|(path, bytes)| (path.to_owned(), bytes)).to_vec();
        let found = findings(&Workspace { sizes, ..Workspace::default() });
        assert_eq!(found, ["tool.whl has 524289 bytes, at most 524288 are allowed: keep it out of git"]);
    }

    #[test]
    fn a_file_counts_its_code_and_not_its_comments() {
        let within = format!("{}{}", "static A: u8 = 0;\n".repeat(FILE_LINES), "// why\n\n".repeat(500));
        assert!(with_waivers(&[file("a.rs", within.clone())], &[]).is_empty());
        let beyond = with_waivers(&[file("a.rs", within + "static B: u8 = 0;\n")], &[]);
        assert_eq!(beyond, ["a.rs has 801 lines of code, at most 800 are allowed: split it"]);
        assert_eq!(with_waivers(&[file("a.py", "x = 1\n".repeat(801))], &[]).len(), 1);
        assert!(with_waivers(&[file("a.md", "text\n".repeat(2000))], &[]).is_empty());
    }

    #[test]
    fn a_function_is_measured_to_its_closing_brace() {
        let body =
            |lines: usize| format!("\n\nfn f(x: [u8; 4]) -> u8 {{\n{}}}\n", "let _ = \"}\";\n".repeat(lines));
        assert!(with_waivers(&[file("a.rs", body(FUNCTION_LINES - 2))], &[]).is_empty());
        let beyond = with_waivers(&[file("a.rs", body(FUNCTION_LINES - 1))], &[]);
        assert_eq!(beyond, ["a.rs:3 `f` has 81 lines, at most 80 are allowed: split it"]);
    }

    #[test]
    fn declarations_and_function_pointers_are_no_functions() {
        let code = "trait T { fn f(&self); } struct S { f: fn(u8) -> u8 } fn g() { let h = |x| { x }; }";
        let names: Vec<_> = functions(code).into_iter().map(|function| function.function).collect();
        assert_eq!(names, ["g"]);
    }

    #[test]
    fn a_waiver_covers_its_function_and_must_be_needed() {
        let long = file("a.rs", format!("fn f() {{\n{}}}\n", "g();\n".repeat(100)));
        assert!(with_waivers(std::slice::from_ref(&long), &[("a.rs", "f", "a table")]).is_empty());
        let stale = with_waivers(&[long], &[("a.rs", "f", "a table"), ("b.rs", "", "gone")]);
        assert_eq!(stale, ["b.rs : the waiver is not needed any more, delete it"]);
    }
}
