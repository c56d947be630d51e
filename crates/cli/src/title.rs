//! Passwords of the command line, which the list of processes shows to every user of the machine.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Overwrites the passwords in this process's arguments. Call it when they have been read. It fails where the system has no `/proc`,
/// or hides a process's memory from itself.
pub(crate) fn hide_passwords() -> io::Result<()> {
    let line = fs::read("/proc/self/cmdline")?;
    let secrets = secrets(&line);
    if secrets.is_empty() {
        return Ok(());
    }
    let start = arguments_at(&fs::read_to_string("/proc/self/stat")?).ok_or(io::ErrorKind::InvalidData)?;
    let memory = File::options().write(true).open("/proc/self/mem")?;
    for secret in secrets {
        memory.write_all_at(&vec![b'x'; secret.len()], start + secret.start as u64)?;
    }
    Ok(())
}

/// Where the arguments are in memory: `arg_start` of proc(5), the 48th field.
fn arguments_at(stat: &str) -> Option<u64> {
    // The name in parentheses, the second field, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(45)?.parse().ok()
}

/// Where passwords are: in addresses with a user or a token, and behind `--user NAME:`.
fn secrets(line: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at, mut is_user) = (Vec::new(), 0, false);
    for argument in line.split(|byte| *byte == 0) {
        let user = argument.strip_prefix(b"--user=").or(is_user.then_some(argument));
        let before_query = argument.split(|byte| *byte == b'?').next().unwrap_or_default();
        let secret = match (user, before_query.iter().rposition(|byte| *byte == b'@')) {
            (Some(user), _) => Some(argument.len() - user.len()..argument.len()),
            (None, Some(end)) => {
                let scheme = before_query.windows(3).position(|bytes| bytes == b"://");
                Some(scheme.map_or(0, |scheme| scheme + 3).min(end)..end)
            }
            (None, None) => None,
        };
        // The name may be seen.
        let password = secret.and_then(|Range { start, end }| {
            // A user of NATS without password is a token.
            let has_token = [b"nats://", b" tls://"]
                .iter()
                .any(|scheme| argument[..start].ends_with(scheme.trim_ascii_start()));
            match argument[start..end].iter().position(|byte| *byte == b':') {
                Some(name) => Some(start + name + 1..end),
                None => has_token.then_some(start..end),
            }
        });
        found.extend(password.map(|Range { start, end }| at + start..at + end));
        found.extend(token(argument).map(|Range { start, end }| at + start..at + end));
        is_user = argument == b"--user";
        at += argument.len() + 1;
    }
    found
}

/// Where the token of a relay is: behind `jwt=` in the query.
fn token(argument: &[u8]) -> Option<Range<usize>> {
    let query = argument.iter().position(|byte| *byte == b'?')? + 1;
    let mut at = query;
    for pair in argument[query..].split(|byte| *byte == b'&') {
        if let Some(token) = pair.strip_prefix(b"jwt=") {
            return Some(at + pair.len() - token.len()..at + pair.len());
        }
        at += pair.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_and_nothing_else() {
        let line = "freshwire serve --user anna:sesame --user=bob:se:cret cam=rtsp://me:pa@ss@host:1/x?y=a:b@c \
                    http://host:80/a me:word@host rtsp://eve@host/ --to host:1 s=nats://token@host/a \
                    --relay https://r/a?x=1&jwt=to.ken&y";
        let bytes = line.replace(' ', "\0").into_bytes();
        let words: Vec<_> = secrets(&bytes).into_iter().map(|range| &line[range]).collect();
        assert_eq!(words, ["sesame", "se:cret", "pa@ss", "word", "token", "to.ken"]);
    }

    #[test]
    fn the_place_of_the_arguments_is_read() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let start = arguments_at(&stat).unwrap();
        let mut bytes = [0; 4];
        File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, start).unwrap();
        assert!(fs::read("/proc/self/cmdline").unwrap().starts_with(&bytes));
    }
}
