use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes that nobody can guess, from the operating system.
///
/// # Errors
///
/// If the system has no source of randomness.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // The kernel gives so few bytes at once or not at all.
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() -> io::Result<()> {
        assert_ne!(random()?, random()?);
        Ok(())
    }
}
