//! What Python source imports, and what it starts: the first word of a list behind `subprocess`, also of one in a variable, and
//! `shutil.which`.

use super::calls::Calls;
use super::pipeline;

/// The modules of Python 3.11 itself that are in use here or likely to be: `sys.stdlib_module_names`, without private and removed ones.
const STANDARD: &str = "__future__ abc argparse array ast asyncio atexit base64 binascii bisect calendar cmath codecs \
    collections colorsys concurrent configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib dis \
    email ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc getopt getpass gettext \
    glob graphlib grp gzip hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache locale \
    logging lzma mailbox marshal math mimetypes mmap multiprocessing numbers operator os pathlib pdb pickle pkgutil platform \
    plistlib poplib posix pprint profile pstats pty pwd queue random re readline resource runpy sched secrets select selectors \
    shelve shlex shutil signal site smtplib socket socketserver sqlite3 ssl stat statistics string stringprep struct subprocess \
    symtable sys sysconfig syslog tarfile tempfile termios textwrap threading time timeit tkinter token tokenize tomllib trace \
    traceback tracemalloc tty types typing unicodedata unittest urllib uuid venv warnings wave weakref webbrowser wsgiref xml \
    xmlrpc zipapp zipfile zipimport zlib zoneinfo";

/// Calls whose first argument is a program, or a list that begins with one.
const STARTS: &[&str] = &[
    "subprocess.run(",
    "subprocess.Popen(",
    "subprocess.call(",
    "subprocess.check_output(",
    "subprocess.check_call(",
    "shutil.which(",
    "_exec(",
];

/// How many variables may be between a call and its program.
const MOST_VARIABLES: usize = 3;

/// Reads one file. `own` are the modules that lie in the repository.
pub(super) fn read(path: &str, text: &str, own: &[String], calls: &mut Calls) {
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let code = line.trim_start();
        for module in imports(code) {
            let top = module.split('.').next().unwrap_or_default();
            let is_known = top.starts_with('_')
                || STANDARD.split_whitespace().any(|name| name == top)
                || own.iter().any(|name| name == top);
            if !top.is_empty() && !is_known {
                calls.module(path, number, top);
            }
        }
        if let Some((_, typelib)) =
            code.split_once("require_version(\"").or_else(|| code.split_once("require_version('"))
        {
            let name: String = typelib.chars().take_while(|next| next.is_alphanumeric()).collect();
            calls.typelib(path, number, &name);
        }
        for text in code.split('"').skip(1).step_by(2) {
            pipeline::read(path, number, text, calls);
        }
    }
    for start in STARTS {
        for (at, _) in text.match_indices(start) {
            let argument = text.get(at + start.len()..).unwrap_or_default();
            programs(path, text, argument, MOST_VARIABLES, calls);
        }
    }
}

/// The program at the begin of an argument: a string, a list that begins with one, or a variable that holds such a list.
/// `argument` is the end of `text`.
fn programs(path: &str, text: &str, argument: &str, variables: usize, calls: &mut Calls) {
    let argument = argument.trim_start();
    let first = argument.strip_prefix(['[', '(']).unwrap_or(argument).trim_start().trim_start_matches('*');
    if let Some(rest) = first.strip_prefix(['"', '\'']) {
        let before = text.len() - rest.len();
        let line = 1 + text.get(..before).unwrap_or_default().matches('\n').count();
        calls.program(path, line, rest.split(['"', '\'']).next().unwrap_or_default());
        return;
    }
    let is_name = |next: char| next.is_alphanumeric() || next == '_';
    let (name, rest) = first.split_at(first.find(|next| !is_name(next)).unwrap_or(first.len()));
    // A member, a call and a string with a prefix are no variables of this file.
    if name.is_empty() || rest.starts_with(['.', '(', '"', '\'']) || variables == 0 {
        return;
    }
    for value in values(text, name) {
        // A single string may be anything.
        if value.starts_with(['[', '(', '*']) || value.starts_with(is_name) {
            programs(path, text, value, variables - 1, calls);
        }
    }
}

/// Everything that a variable is set to in a file, up to the file's end.
fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut at = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let begin = at;
        at += line.len();
        let rest = line.trim_start().strip_prefix(name)?.trim_start();
        // With a type or without.
        let value = match rest.strip_prefix(':') {
            Some(typed) => typed.split_once(" = ")?.1,
            None => rest.strip_prefix('=').filter(|value| !value.starts_with('='))?,
        };
        Some(text.get(begin + line.len() - value.len()..)?.trim_start())
    })
}

fn imports(code: &str) -> Vec<&str> {
    if let Some(rest) = code.strip_prefix("from ") {
        let module = rest.split_whitespace().next().unwrap_or_default();
        let is_import = rest.split_whitespace().nth(1) == Some("import");
        return if is_import && !module.starts_with('.') { vec![module] } else { Vec::new() };
    }
    let Some(rest) = code.strip_prefix("import ") else { return Vec::new() };
    let rest = rest.split(['#', ';']).next().unwrap_or_default();
    rest.split(',')
        .filter_map(|part| part.split_whitespace().next())
        .filter(|name| name.chars().all(|next| next.is_alphanumeric() || "._".contains(next)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_modules_and_programs_are_found() {
        let text = "import json, simpy as s\nfrom av.codec import x\nfrom .own import y\nfrom freshwire import z\nimport other.part  # noqa\n\
            gi.require_version(\"GstApp\", \"1.0\")\nsubprocess.run([\"rustc\", \"-V\"])\nfrom here on it is prose\n";
        let mut calls = Calls::default();
        read("a.py", text, &["freshwire".to_owned()], &mut calls);
        assert_eq!(calls.modules.into_keys().collect::<Vec<_>>(), ["av", "other", "simpy"]);
        assert_eq!(calls.typelibs.into_keys().collect::<Vec<_>>(), ["GstApp"]);
        assert_eq!(calls.programs.into_keys().collect::<Vec<_>>(), ["rustc"]);
    }

    #[test]
    fn programs_in_other_lines_and_variables_are_found() {
        let text = "subprocess.run(\n    [\n        \"openssl\", \"req\"]\n    + more,\n)\n\
            command = [\n    'ffmpeg', '-i']\nif slow:\n    command = [\"nice\"] + command\nsubprocess.Popen(command)\n\
            base: list[str] = ['tc', 'qdisc']\nothers = [*base, 'add']\nsubprocess.check_call([*others])\n\
            name = 'no list'\nsubprocess.run(name)\nargs = ['--no-program']\nsubprocess.run([sys.executable, *args])\n\
            unused = ['mpv']\ncommand == ['vlc']\nawait asyncio.create_subprocess_exec(\n    'nc', 'host')\nloop = [loop]\nshutil.which(loop)";
        let mut calls = Calls::default();
        read("a.py", text, &[], &mut calls);
        let found: Vec<_> = calls.programs.into_iter().collect();
        let found: Vec<_> = found.iter().map(|(name, place)| (name.as_str(), place.as_str())).collect();
        let wanted = [
            ("ffmpeg", "a.py:7"),
            ("nc", "a.py:21"),
            ("nice", "a.py:9"),
            ("openssl", "a.py:3"),
            ("tc", "a.py:11"),
        ];
        assert_eq!(found, wanted);
    }
}
