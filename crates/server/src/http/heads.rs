//! How long the head of a request may take. Hyper knows one time for that and for the pause between two requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The heads of a connection's requests.
pub(super) struct Heads(watch::Sender<Phase>);

#[derive(Clone, Copy)]
enum Phase {
    /// Between two requests.
    Idle,
    /// A head arrives since then.
    Arriving(Instant),
    /// A request is answered.
    Answering,
}

impl Heads {
    /// The first head is awaited from now on.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Phase::Arriving(Instant::now()))))
    }

    /// A head is whole.
    pub(super) fn is_whole(&self) {
        self.0.send_replace(Phase::Answering);
    }

    /// The answer is there.
    pub(super) fn is_answered(&self) {
        self.0.send_replace(Phase::Idle);
    }

    fn arrives(&self) {
        self.0.send_if_modified(|phase| {
            let begins = matches!(phase, Phase::Idle);
            if begins {
                *phase = Phase::Arriving(Instant::now());
            }
            begins
        });
    }

    /// Waits until a head has taken longer than this.
    pub(super) async fn overdue(&self, limit: Duration) {
        let mut phases = self.0.subscribe();
        loop {
            let phase = *phases.borrow_and_update();
            let end = async {
                match phase {
                    Phase::Arriving(since) => sleep_until(since + limit).await,
                    Phase::Idle | Phase::Answering => std::future::pending().await,
                }
            };
            tokio::select! {
                // On a busy machine the head may have become whole in time, and this be looked at later.
                biased;
                _ = phases.changed() => {}
                () = end => return,
            }
        }
    }
}

/// A connection that notices when a head begins.
pub(super) struct Heard<T> {
    inner: T,
    heads: Arc<Heads>,
}

impl<T> Heard<T> {
    pub(super) fn new(inner: T, heads: &Arc<Heads>) -> Self {
        Self { inner, heads: Arc::clone(heads) }
    }

    pub(super) fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.heads.arrives();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    async fn is_overdue_after(heads: &Heads, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), heads.overdue(LIMIT)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_on() {
        let heads = Heads::new();
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Heard::new(near, &heads);
        assert!(!is_overdue_after(&heads, 9).await);
        assert!(is_overdue_after(&heads, 2).await, "the first one, from the connection on");
        heads.is_whole();
        assert!(!is_overdue_after(&heads, 1000).await, "an answer that takes long");
        heads.is_answered();
        assert!(!is_overdue_after(&heads, 1000).await, "a client that rests");
        far.write_all(b"G").await.unwrap();
        near.read_u8().await.unwrap();
        assert!(!is_overdue_after(&heads, 9).await);
        far.write_all(b"E").await.unwrap();
        near.read_u8().await.unwrap();
        assert!(is_overdue_after(&heads, 2).await, "further bytes give no further time");
    }
}
