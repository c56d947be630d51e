//! Obstacles to a library that is preloaded into a program.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Why a library does not reach a program, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The file could not be read.
    Unreadable,
    /// It is no ELF file and no script.
    NoProgram,
    /// Its word size or byte order differs from the library's.
    Foreign,
    /// Nothing is linked when it starts.
    Static,
    /// It has rights that its caller has not.
    Privileged,
    /// It makes its system calls past the C library.
    Go,
    /// It reads packets of network interfaces and not of UDP sockets.
    Capture,
    /// It may receive through `io_uring`.
    IoUring,
}

impl Obstacle {
    /// Whether the library would do nothing.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::IoUring)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "cannot be read",
            Self::NoProgram => "is neither an ELF file nor a script",
            Self::Foreign => "is of another word size or byte order",
            Self::Static => "is statically linked, so no library can be preloaded",
            Self::Privileged => "has a set-user-ID bit, a set-group-ID bit or capabilities, for which the system ignores LD_PRELOAD",
            Self::Go => "is a Go program, which makes its system calls past the C library",
            Self::Capture => "captures packets with libpcap, from interfaces and not from UDP sockets",
            Self::IoUring => "is linked with liburing: what it receives through io_uring stays the kernel's alone",
        })
    }
}

/// Looks for a program as the shell does.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// The reason why the library does not reach the program at `path`.
pub(super) fn obstacle(path: &Path) -> Option<Obstacle> {
    let Ok(bytes) = fs::read(path) else { return Some(Obstacle::Unreadable) };
    if let Some(interpreter) = interpreter(&bytes) {
        // A script of a script is as deep as it gets in practice.
        let Ok(bytes) = fs::read(&interpreter) else { return Some(Obstacle::Unreadable) };
        return privileged(&interpreter).or_else(|| in_elf(&bytes));
    }
    privileged(path).or_else(|| in_elf(&bytes))
}

fn interpreter(bytes: &[u8]) -> Option<PathBuf> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.trim_ascii_start().split(u8::is_ascii_whitespace).next()?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

fn privileged(path: &Path) -> Option<Obstacle> {
    let found = fs::metadata(path).ok()?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let changes_user = found.mode() & 0o4000 != 0 && found.uid() != user.as_raw();
    let changes_group = found.mode() & 0o2000 != 0 && found.gid() != group.as_raw();
    let mut value = [0; 64];
    let has_capabilities =
        !user.is_root() && rustix::fs::getxattr(path, "security.capability", &mut value).is_ok();
    (changes_user || changes_group || has_capabilities).then_some(Obstacle::Privileged)
}

const INTERPRETER: u32 = 3;

fn in_elf(bytes: &[u8]) -> Option<Obstacle> {
    if !bytes.starts_with(b"\x7fELF") {
        return Some(Obstacle::NoProgram);
    }
    // 64 bits, in the order of bytes that this command has.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if bytes.get(4) != Some(&2) || bytes.get(5) != Some(&order) {
        return Some(Obstacle::Foreign);
    }
    let Some(headers) = program_headers(bytes) else { return Some(Obstacle::NoProgram) };
    if !headers.contains(&INTERPRETER) {
        return Some(Obstacle::Static);
    }
    let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    if has(b"\xff Go buildinf:") {
        return Some(Obstacle::Go);
    }
    if has(b"libpcap.so") {
        return Some(Obstacle::Capture);
    }
    has(b"liburing.so").then_some(Obstacle::IoUring)
}

/// The types of the segments.
fn program_headers(bytes: &[u8]) -> Option<Vec<u32>> {
    let short = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let offset = u64::from_ne_bytes(bytes.get(32..40)?.try_into().ok()?);
    let (size, count) = (short(54)?, short(56)?);
    (0..u64::from(count))
        .map(|index| {
            let at = usize::try_from(offset.checked_add(index * u64::from(size))?).ok()?;
            bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(segments: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        for segment in segments {
            bytes.extend(segment.to_ne_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_dynamic_program_has_no_obstacle_and_a_static_one_has() {
        assert_eq!(in_elf(&elf(&[1, INTERPRETER])), None);
        assert_eq!(in_elf(&elf(&[1, 2])), Some(Obstacle::Static));
        assert_eq!(in_elf(b"GIF89a"), Some(Obstacle::NoProgram));
        let mut foreign = elf(&[INTERPRETER]);
        foreign[4] = 1;
        assert_eq!(in_elf(&foreign), Some(Obstacle::Foreign));
        assert!(!Obstacle::IoUring.is_final() && Obstacle::Go.is_final());
    }

    #[test]
    fn words_inside_tell_of_go_libpcap_and_io_uring() {
        let with = |word: &[u8]| [elf(&[INTERPRETER]), word.to_vec()].concat();
        assert_eq!(in_elf(&with(b"\xff Go buildinf:")), Some(Obstacle::Go));
        assert_eq!(in_elf(&with(b"liburing.so.2")), Some(Obstacle::IoUring));
        assert_eq!(in_elf(&with(b"libpcap.so.0.8")), Some(Obstacle::Capture));
    }

    #[test]
    fn a_cut_off_file_is_no_program() {
        let whole = elf(&[1, INTERPRETER]);
        for len in 0..whole.len() - 56 {
            assert!(in_elf(&whole[..len]).is_some(), "{len} bytes");
        }
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        assert_eq!(interpreter(b"#! /bin/sh -e\n"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(interpreter(b"#!/usr/bin/env python3"), Some(PathBuf::from("/usr/bin/env")));
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn a_program_is_looked_for_in_the_path() {
        assert!(find(OsStr::new("sh")).is_some());
        assert_eq!(find(OsStr::new("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find(OsStr::new("no-such-program-at-all")), None);
        assert_eq!(obstacle(Path::new("/no/such/program")), Some(Obstacle::Unreadable));
    }
}
