use std::io;

/// Encrypts a stream at the commit point; dropped records are never encrypted. A TLS session is an example.
///
/// The engine calls it from its own thread, with a copy of the bytes to write.
pub trait Seal: Send {
    /// Adds what has to be written for `plain` to `out`. Every byte that was added before is written before. Fails if the
    /// session has ended; the sink ends then as well.
    ///
    /// # Errors
    ///
    /// If the session has ended; the sink then ends with [`SinkError::Io`](crate::sink::SinkError::Io).
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()>;

    /// Adds what the session itself has to say, such as an answer to the peer's key update. Called before each write.
    ///
    /// # Errors
    ///
    /// As [`seal`](Self::seal).
    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let _ = out;
        Ok(())
    }

    /// Adds what ends the session after the last byte.
    ///
    /// # Errors
    ///
    /// As [`seal`](Self::seal).
    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let _ = out;
        Ok(())
    }
}
