//! Secrets of the command line, which the list of processes shows to every user of the machine.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Overwrites the secrets in this process's arguments. Call it when they have been read. It fails where the system has no `/proc`,
/// or hides a process's memory from itself.
pub(crate) fn hide_secrets() -> io::Result<()> {
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

/// Where secrets are: behind `--user NAME:`, and in addresses.
fn secrets(line: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at, mut last) = (Vec::new(), 0, &b""[..]);
    for argument in line.split(|byte| *byte == 0) {
        let equals = argument.iter().position(|byte| *byte == b'=').filter(|_| argument.starts_with(b"--"));
        let (option, start) = equals.map_or((last, 0), |equals| (&argument[..equals], equals + 1));
        let value = &argument[start..];
        let secrets = match option {
            b"--user" => [behind_name(value), None],
            _ => of_address(value, option == b"--forward"),
        };
        let start = at + start;
        found.extend(secrets.into_iter().flatten().map(|secret| start + secret.start..start + secret.end));
        last = argument;
        at += argument.len() + 1;
    }
    found
}

/// Where the password of `NAME:PASSWORD` is. The name may be seen.
fn behind_name(user: &[u8]) -> Option<Range<usize>> {
    user.iter().position(|byte| *byte == b':').map(|name| name + 1..user.len())
}

/// Where the secrets of an address are. The first is the password or the token before the host. The second is the query, or the key of a
/// server to publish to and all behind it.
fn of_address(address: &[u8], has_key: bool) -> [Option<Range<usize>>; 2] {
    let scheme = address.windows(3).position(|bytes| bytes == b"://");
    let start = scheme.map_or(0, |scheme| scheme + 3);
    let query = address.iter().position(|byte| *byte == b'?').unwrap_or(address.len()).max(start);
    let place = &address[start..query];
    let port =
        place.split(|byte| *byte == b':').nth(1).and_then(|rest| rest.split(|byte| *byte == b'/').next());
    // A camera's password may have a question mark; then what is before that is no port.
    let is_cut =
        address[query..].contains(&b'@') && port.is_some_and(|port| !port.iter().all(u8::is_ascii_digit));
    let user = match place.iter().rposition(|byte| *byte == b'@') {
        None => is_cut.then_some(place),
        at => at.map(|at| &place[..at]),
    };
    // A user of NATS without password is a token.
    let has_token =
        [b"nats://", b" tls://"].iter().any(|scheme| address[..start].ends_with(scheme.trim_ascii_start()));
    let secret = user.and_then(|user| behind_name(user).or_else(|| has_token.then_some(0..user.len())));
    // The application in front of the key may be seen.
    let mut slashes = place.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let key = slashes.nth(1).filter(|_| has_key).map_or(query, |(slash, _)| start + slash);
    // A command with an address in it goes on behind a blank.
    let end = address[key..].iter().position(u8::is_ascii_whitespace).map_or(address.len(), |end| key + end);
    let rest = scheme.is_some().then_some(key + 1..end).filter(|rest| !rest.is_empty());
    [secret.map(|secret| start + secret.start..start + secret.end), rest]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_and_nothing_else() {
        let line = "freshwire serve --user anna:sesame --user=bob:se:cret cam=rtsp://me:pa@ss@host:1/x?y=a:b@c \
                    http://host:80/a me:word@host rtsp://eve@host/ --to host:1 s=nats://token@host/a \
                    --relay https://r/a?x=1&jwt=to.ken&y --forward rtmp://h/app/k1 --forward=e=rtmps://h:1/app/k/2?a=b \
                    --forward rtmp://h/app?k3 --forward rtmp://h/app a=rtmp://h/app/seen rtsp://me:p?s@w@host:1 rtsp://h:1/?u@x";
        let bytes = line.replace(' ', "\0").into_bytes();
        let words: Vec<_> = secrets(&bytes).into_iter().map(|range| &line[range]).collect();
        let found = "sesame se:cret pa@ss y=a:b@c word token x=1&jwt=to.ken&y k1 k/2?a=b k3 p s@w@host:1 u@x";
        assert_eq!(words, found.split(' ').collect::<Vec<_>>());
        let command = b"sh -c curl http://a:b@h/c?d | less";
        let found = of_address(&command[6..], false).map(|range| range.map(|range| &command[6..][range]));
        assert_eq!(found, [Some(&b"b"[..]), Some(&b"d"[..])]);
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
