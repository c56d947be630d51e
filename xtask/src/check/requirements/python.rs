//! What Python source imports, and what it starts: the first word of a list behind `subprocess`, and `shutil.which`.

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
        for lead in [
            "subprocess.run([",
            "subprocess.Popen([",
            "subprocess.check_output([",
            "subprocess.check_call([",
            "shutil.which(",
            "_exec(",
        ] {
            if let Some((_, rest)) = code.split_once(lead)
                && let Some(name) =
                    rest.strip_prefix(['"', '\'']).and_then(|rest| rest.split(['"', '\'']).next())
            {
                calls.program(path, number, name);
            }
        }
        for text in code.split('"').skip(1).step_by(2) {
            pipeline::read(path, number, text, calls);
        }
    }
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
}
