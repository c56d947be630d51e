use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection with a time limit for the peer to take written data. The limit runs from the first write that
/// finds no room until all data has been flushed. A peer that takes a byte now and then gains no time.
pub(crate) struct Patience<T> {
    inner: T,
    patience: Duration,
    /// When it ends; `None` while nothing waits.
    end: Option<Pin<Box<Sleep>>>,
}

impl<T> Patience<T> {
    pub(crate) fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, end: None }
    }

    pub(crate) fn into_inner(self) -> T {
        self.inner
    }

    /// Whether a write may go on that came to this.
    fn judge<R>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<R>>,
        is_whole: bool,
    ) -> Poll<io::Result<R>> {
        if result.is_ready() && (is_whole || self.end.is_none()) {
            self.end = None;
            return result;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match end.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not take its answer",
            ))),
            Poll::Pending => result,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patience<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patience<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge(cx, written, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, flushed, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, shut, true)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::sleep;

    use super::*;

    /// In real time, so that a busy machine may be late by much.
    const PATIENCE: Duration = Duration::from_millis(1500);

    #[tokio::test]
    async fn a_peer_that_takes_little_or_nothing_times_out() {
        for takes in [false, true] {
            let (near, mut far) = tokio::io::duplex(16);
            let mut near = Patience::new(near, PATIENCE);
            let reader = tokio::spawn(async move {
                loop {
                    // Pause: data that comes in time.
                    sleep(PATIENCE / 10).await;
                    if takes {
                        let _ = far.read_u8().await;
                    }
                }
            });
            let error = near.write_all(&[0; 1000]).await.expect_err("nobody reads all of it");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            reader.abort();
        }
    }

    #[tokio::test]
    async fn a_peer_that_takes_each_answer_in_time_never_times_out() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patience::new(near, PATIENCE);
        let reader = tokio::spawn(async move {
            let mut answer = [0; 100];
            for _ in 0..10 {
                // Pause: data that comes in time.
                sleep(PATIENCE / 5).await;
                far.read_exact(&mut answer).await.expect("an answer");
            }
        });
        for _ in 0..10 {
            near.write_all(&[0; 100]).await.expect("in time");
            near.flush().await.expect("in time");
        }
        reader.await.expect("all answers came");
    }
}
